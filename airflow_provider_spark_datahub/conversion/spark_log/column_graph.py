"""Columns of a plan by their ids, and the columns that each comes from, read from the text of
expressions.

Spark gives each column an id, ``amount#12``, which is unique within an application. A column that
an expression makes has an id of its own, and the plan names both: ``(amount#12 * 1.2) AS
with_tax#30``.

Spark prints texts in expressions without quotes, so they may look like anything. A column counts
only behind its name, and a text that looks like a bracket or a word costs at most the fields of its
expression.

Tests: ``tests/conversion/test_expressions.py`` and ``tests/conversion/test_run_events.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain, cycle
from types import MappingProxyType
from typing import NamedTuple

from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    ATTRIBUTE,
    Node,
    PlanDataset,
    id_of,
    ids_of,
    split_items,
)

LEFT_OUT = "..."
"""Stands for columns that Spark omitted from a long list."""
_REFERENCE = re.compile(r"\blambda \w+#(?P<variable>\d+)|#(?P<id>\d+)L?|\.\.\. \d+ more fields")
_MARK = re.compile(
    r"(?P<word>\bCASE(?= WHEN )| WHEN | THEN(?= )| ELSE | END(?![\w#]))"
    r"|(?P<decides>\bif \(| FILTER \(WHERE | windowspecdefinition\(|\bouter\(|(?<=\d) \[)"
    r"|(?<!\w)(?:partial_|merge_)?(?P<function>\w*)\((?P<call>)"
    r"|(?P<opens>[\[{])|(?P<closes>[)\]}])|(?P<comma>, )|(?P<between> else | as )|(?P<field>\.)"
)
_FIELDS_OF_TYPE = re.compile(r"([^<>,:]+):")
_CASE, _CONDITION, _ELEMENT, _LAMBDA = "CASE", "if", "[", "lambdafunction"
# The innermost of a CASE and its condition, in which a word may stand.
_AROUND_WORD = {"WHEN": _CASE, "THEN": _CONDITION, "ELSE": _CASE, "END": _CASE}
_MAP, _KEY, _VALUE = "map", "[key]", "[value]"
_PAIRS = frozenset({"struct", "named_struct", "arrays_zip", _MAP})
_RANKS = frozenset({"rank", "dense_rank", "percent_rank"})
_ELEMENTS = frozenset({_ELEMENT, "element_at", "try_element_at"})
_ALL = 1_000_000
# Which arguments give the value of a function, whole or in an array. The others only decide on it.
_PASSED = {
    _CONDITION: (0, 0),
    **dict.fromkeys(("array", "coalesce", "lag", "lead", _CASE, *_RANKS), (0, _ALL)),
    **dict.fromkeys(("transform", "pivotfirst"), (1, _ALL)),
    **dict.fromkeys(
        (
            *("max", "min", "first", "first_value", "last", "last_value", "any_value"),
            *("nth_value", "max_by", "min_by", "collect_list", "collect_set", "array_agg"),
            *("listagg", "string_agg", "sort_array", "array_sort", "array_distinct", "reverse"),
            *("shuffle", "slice", "filter", "explode", "explode_outer", "inline", "array_max"),
            *("array_min", "knownnotnull", "cast", _LAMBDA, *_ELEMENTS),
        ),
        (0, 1),
    ),
}
_DEEPEST = 50
"""Brackets in brackets whose fields are followed."""
_OF_COPY = "'"
"""Between the id of a column of a union, which is that of a column of its first part, and the
number of the union.
"""
# Generators that show the rows that they make, behind their number.
_ROWS = frozenset({"stack", "replicaterows"})
# EXCEPT ALL counts the rows of its second query down.
_COUNTED_DOWN = ("vcol", "-1")
_DEEPEST_FIELD, _MOST_STRUCTS = 6, 10_000
"""Fields of fields, and columns of structs of one execution, that are followed."""


class Derivation(IntEnum):
    """How a column comes from another, in the terms of OpenLineage's column lineage facet. The
    larger one prevails.
    """

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2


class ColumnSource(NamedTuple):
    """A column that a plan reads.

    :param decides: it is read for a condition, a key or an order, and not for its values.
    """

    dataset: PlanDataset
    column: str
    decides: bool = False


Sources = dict[ColumnSource, Derivation]
"""Where a column comes from."""


class HeldColumn(NamedTuple):
    """A column of rows that Spark keeps for later queries, such as a checkpoint's.

    :param is_resolved: the plans show all columns that it comes from.
    :param fields: those of the struct that it is.
    """

    sources: Sources
    is_resolved: bool
    fields: Mapping[str, HeldColumn]


class Value(NamedTuple):
    """A value that an expression may have, or what decides on it.

    :param columns: those that it is made of.
    :param decides: it is a condition, a key or an order.
    :param column: the column that it is; empty if it is not one.
    :param is_same: nothing changes it.
    :param fields: the values that each field may have, if it is a struct.
    :param text: its place in the text.
    """

    columns: list[str]
    decides: bool = False
    column: str = ""
    is_same: bool = False
    fields: Mapping[str, list[Value]] = MappingProxyType({})
    text: slice = slice(0)

    @classmethod
    def of(cls, column: str) -> Value:
        """Return the value of a column."""
        return cls([column], column=column, is_same=True)


class ColumnGraph:
    """Columns of one execution by their ids, with the columns from which expressions derive them.

    :ivar names: the names of columns, by their ids.
    :ivar fields: the fields of each struct, as far as expressions show them. A field is a column of
        its own: ``9.day``.
    :ivar scope: the columns that ids mean at the node that is read, if these are not the columns of
        the ids. A union gives its columns the ids of those of its first part.
    :ivar sources: columns of datasets that scans give.
    :ivar known: columns of datasets behind a column, from an earlier execution or computed by a
        database.
    :ivar counted_down: columns of ``EXCEPT ALL`` that mark rows of its second query.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.fields: dict[str, dict[str, None]] = {}
        self.scope: dict[str, str] = {}
        self.sources: dict[str, dict[ColumnSource, None]] = {}
        self.known: dict[str, Sources] = {}
        self.counted_down: set[str] = set()
        self._derived: dict[str, dict[str, Derivation]] = {}
        self._deciding: dict[str, dict[str, None]] = {}
        self._filters: dict[tuple[int, str], dict[str, None]] = {}
        self._kept: frozenset[str] = frozenset()
        self._copies = 0

    def read_names(self, node: Node) -> None:
        """Record the columns that a node names, and the aliases that it defines."""
        attributes = node.listed("Aggregate Attributes")
        lists = [*map(node.listed, ("Output", "Results", "Input")), *node.lists]
        aliases = []
        for item in (item for items in lists for item in items or ()):
            expression, alias, attribute = item.rpartition(" AS ")
            named = ATTRIBUTE.fullmatch(attribute)
            if named is not None:
                self.names.setdefault(named["id"], named["name"])
                # Java objects hide the columns that they were made of.
                if alias and node.kind != "SerializeFromObject":
                    aliases.append((self.scope.get(named["id"], named["id"]), expression))
        for place, (function, attribute) in enumerate(
            zip(node.listed("Functions") or (), attributes or (), strict=False)
        ):
            column = id_of(attribute)
            self.names.setdefault(column, attribute.rpartition("#")[0])
            self.derive_from(column, function, Derivation.AGGREGATION)
            # Only the first step of an aggregate shows its filter.
            whole, _, condition = function.removeprefix("partial_").partition(" FILTER (WHERE ")
            if condition:
                self._filters[place, whole] = self._deciding.get(column, {})
            self._decide(column, self._filters.get((place, whole), ()))
        for column, expression in aliases:
            if (self.names[column], expression) == _COUNTED_DOWN:
                self.counted_down.add(column)
            self.derive_from(column, expression)

    def read(self, text: str) -> list[Value]:
        """Return the values that an expression may have, and what decides on them."""
        return _Parser(self, text).read()

    def fields_of(self, values: Iterable[Value]) -> list[str]:
        """Return the names of the fields that a value may have."""
        names: dict[str, None] = {}
        for value in values:
            names |= dict.fromkeys(self.fields.get(value.column, value.fields))
        return [*names]

    def taken(self, values: Iterable[Value], name: str) -> list[Value]:
        """Return the values of a field. A struct that does not show it counts as a whole."""
        taken = []
        for value in values:
            if name in self.fields.get(value.column, ()):
                taken.append(Value.of(f"{value.column}.{name}"))
            else:
                taken += value.fields.get(name) or [Value(value.columns, value.decides)]
        return taken

    def derive_from(self, column: str, text: str, kind: Derivation = Derivation.IDENTITY) -> None:
        """Derive a column, and the fields of it, from an expression."""
        self.derive_values(column, self.read(text), kind)

    def derive_values(
        self,
        column: str,
        values: list[Value],
        kind: Derivation = Derivation.IDENTITY,
        depth: int = 0,
    ) -> None:
        """Derive a column, and the fields of it, from the values that it may have."""
        self._derive_columns(column, values, max(kind, kind_of(values)))
        self.derive_fields(column, values, kind, depth)

    def _derive_columns(self, column: str, values: list[Value], kind: Derivation) -> None:
        self.derive(column, columns_of(values), kind)
        for value in values:
            if value.decides:
                self._decide(column, value.columns)

    def _decide(self, column: str, below: Iterable[str]) -> None:
        """Record columns that decide on the value of a column."""
        if column not in self._kept:
            self._deciding.setdefault(column, {}).update(dict.fromkeys(below))

    def derive(
        self, column: str, below: Iterable[str], kind: Derivation = Derivation.IDENTITY
    ) -> None:
        """Derive a column from others: from none if it is constant."""
        if column in self._kept:
            return
        derived = self._derived.setdefault(column, {})
        for source in below:
            if source != column:
                derived[source] = max(kind, derived.get(source, kind))

    def keep_derived(self, *, is_kept: bool) -> None:
        """Set whether the columns that are derived already stay as they are."""
        self._kept = frozenset((*self._derived, *self.sources)) if is_kept else frozenset()

    def ids_of(self, items: list[str] | None) -> list[str] | None:
        """Return the columns that a list names; ``None`` if an item is not a column."""
        ids = ids_of(items)
        return [self.scope.get(column, column) for column in ids] if ids and self.scope else ids

    def held(self, column: str) -> HeldColumn:
        """Return a column as later queries read it."""
        fields = {name: self.held(f"{column}.{name}") for name in self.fields.get(column, ())}
        return HeldColumn(self.origins(column), self.is_resolved(column), fields)

    def read_held(self, column: str, held: HeldColumn) -> None:
        """Record that a column is one that an earlier query kept."""
        self.known[column] = held.sources
        if not held.is_resolved:
            self.hide(column)
        for name, held_field in held.fields.items():
            self.fields.setdefault(column, {})[name] = None
            self.read_held(f"{column}.{name}", held_field)

    def hide(self, column: str) -> None:
        """Record that the plans do not show all sources of a column."""
        self.derive(column, [LEFT_OUT])

    def unite(self, first: list[str], others: Iterable[list[str] | None]) -> list[str]:
        """Return the columns of a union, which have the ids of those of its first part."""
        output = self.copied(first)
        others = [
            part if part and len(part) == len(first) else [LEFT_OUT] * len(first) for part in others
        ]
        for column, *below in zip(output, first, *others, strict=True):
            self.derive(column, below)
            self.derive_fields(column, list(map(Value.of, below)))
        return output

    def copied(self, columns: list[str]) -> list[str]:
        """Return new columns with the names of others; the nodes above find them by the same ids."""
        self._copies += 1
        copies = [f"{column_id(column)}{_OF_COPY}{self._copies}" for column in columns]
        for column, copy in zip(columns, copies, strict=True):
            self.names[copy] = self.names.get(column, "")
        self.scope = self.scope | dict(zip(map(column_id, columns), copies, strict=True))
        return copies

    def align(self, output: list[str] | None, inputs: list[list[str] | None]) -> list[str] | None:
        """Derive the columns of an output from those of its inputs in the same places, and return
        it.
        """
        for columns in inputs:
            if output and columns and len(columns) == len(output):
                for column, below in zip(output, columns, strict=True):
                    if column != below:
                        self.derive(column, [below])
                        self.derive_fields(column, [Value.of(below)])
        return output

    def origins(self, column: str) -> Sources:
        """Return the columns of datasets that a column comes from, through all that lies between."""
        result: Sources = {}
        waiting, seen = [(column, Derivation.IDENTITY, False)], set()
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            current, derivation, decides = step
            for source, kind in (
                dict.fromkeys(self.sources.get(current, ()), derivation)
                | self.known.get(current, {})
            ).items():
                own = source._replace(decides=True) if decides else source
                result[own] = max(derivation, kind, result.get(own, derivation))
            for below, kind in self._derived.get(current, {}).items():
                waiting.append((below, max(derivation, kind), decides))
            waiting += [(below, derivation, True) for below in self._deciding.get(current, ())]
        return result

    def path(self, column: str) -> set[str]:
        """Return the ids of a column and of all columns between it and its sources."""
        path, waiting = {column}, [column]
        while waiting:
            below = self._derived.get(waiting.pop(), {}).keys() - path
            path |= below
            waiting += below
        return path

    def is_resolved(self, column: str) -> bool:
        """Return whether the plans show all columns of datasets, with their names, that a column
        comes from.
        """
        return all(
            not any(source.dataset.relation for source in self.sources[step])
            if step in self.sources
            else step in self.known or step in self._derived
            for step in self.path(column)
        )

    def generate(self, generator: str, columns: list[str]) -> None:
        """Derive the columns of a generator: all from all of its arguments, unless it shows the
        rows that it makes.
        """
        function, _, arguments = generator.partition("(")
        rows = split_items(arguments.removesuffix(")"))[1:] if function in _ROWS else []
        if rows and columns and not len(rows) % len(columns):
            for column, expression in zip(cycle(columns), rows, strict=False):
                self.derive_from(column, expression)
            return
        values = self.read(generator)
        fields = self.fields_of(values)
        if len(fields) == len(columns) and (function == "inline" or len(columns) == 2):
            # The rows are the structs of an array, or the entries of a map.
            for column, name in zip(columns, fields, strict=True):
                self.derive_values(column, self.taken(values, name))
            return
        for column in columns:
            self._derive_columns(column, values, Derivation.TRANSFORMATION)
        if len(columns) == 1:
            self.derive_fields(columns[0], values)

    def derive_fields(
        self,
        column: str,
        values: list[Value],
        kind: Derivation = Derivation.IDENTITY,
        depth: int = 0,
    ) -> None:
        """Derive the fields of a column of structs, as far as the values that it may have show
        them.

        ``max(struct(day, day#3, amount, amount#2))#9`` has a field ``day`` that comes from
        ``day#3`` only.
        """
        if depth == _DEEPEST_FIELD or len(self.fields) > _MOST_STRUCTS:
            return
        for name in self.fields_of(values):
            self.fields.setdefault(column, {})[name] = None
            taken = self.taken(values, name)
            self.derive_values(f"{column}.{name}", taken, kind, depth + 1)


@dataclass
class _Bracket:
    """An open bracket of a function that passes values on, or a CASE.

    :param begin: its place in the text, that of its function.
    :param place: where its last part begins.
    :ivar term: the place of the last column or call in it.
    :ivar values: those that this term may have.
    :ivar others: values of the terms before it, in the same part.
    :ivar inner: the number of other brackets that are open in it.
    """

    function: str
    begin: int
    place: int
    arguments: list[list[Value]] = field(default_factory=lambda: [[]])
    term: tuple[int, int] = (0, 0)
    values: list[Value] = field(default_factory=list)
    others: list[Value] = field(default_factory=list)
    inner: int = 0


class _Parser:
    """Reads an expression from left to right, with a stack of open brackets.

    If a text in it closes a bracket, arguments of other functions may be taken for those of the
    functions around them, so no argument decides.
    """

    def __init__(self, graph: ColumnGraph, text: str, *, is_balanced: bool = True) -> None:
        self._graph, self._text = graph, text
        self._is_balanced = self._was_balanced = is_balanced
        self._open = [_Bracket("", 0, 0)]
        # The places of each CASE and its condition, among the open brackets.
        self._cases = [0]

    def read(self) -> list[Value]:
        """Return the values that the expression may have."""
        end, length = 0, len(self._text)
        for begin, next_end, column in self._named():
            for mark in _MARK.finditer(self._text, end, begin):
                if mark.start() >= end:
                    end = self._read_mark(mark)
            if begin < length:
                self._add_term(begin, next_end, [Value.of(column)])
            end = next_end
        if self._was_balanced and not self._is_balanced:
            return _Parser(self._graph, self._text, is_balanced=False).read()
        self._unwind(0)
        self._end_piece(length, length)
        arguments = self._open[0].arguments
        return arguments[0] if len(arguments) == 1 else _merged(chain(*arguments))

    def _named(self) -> Iterator[tuple[int, int, str]]:
        """Yield the place of each column, and the column.

        The name of a column may look like anything, too.
        """
        text, named, end = self._text, [], len(self._text)
        for match in reversed([*_REFERENCE.finditer(text)]):
            column = match["id"] or match["variable"] or LEFT_OUT
            name = self._graph.names.get(column, "")
            begin = match.start() - len(name)
            # A query may spell a column in another case than its table.
            is_spelled = text[max(begin, 0) : match.start()].lower() == name.lower()
            is_column = name or not match["id"] or text[begin - 1 : begin].isalnum()
            if match.end() <= end and is_spelled and is_column:
                named.append((begin, match.end(), self._graph.scope.get(column, column)))
                end = begin
        yield from reversed(named)
        yield len(text), len(text), ""

    # -- marks

    def _read_mark(self, mark: re.Match[str]) -> int:
        """Read a mark, and return where the next one may begin."""
        kind, bracket = mark.lastgroup, self._open[-1]
        if kind == "field":
            return self._read_field(mark)
        if kind == "word":
            self._read_word(mark)
        elif kind in ("decides", "call", "opens"):
            self._read_opening(mark)
        elif bracket.inner:
            bracket.inner -= kind == "closes"
        elif kind == "comma":
            self._end_argument(mark)
        elif kind == "between":
            self._end_piece(mark.start(), mark.end())
        elif len(self._open) == 1:
            self._is_balanced = False
        elif len(self._open) - 1 != self._cases[-1]:
            self._close(mark)
        return mark.end()

    def _read_field(self, mark: re.Match[str]) -> int:
        """Take the field of the last term that is named behind it, and return its end."""
        bracket, end = self._open[-1], mark.end()
        begin, before = bracket.term
        fields = self._graph.fields_of(bracket.values) if before == mark.start() else []
        names = [name for name in fields if self._text.startswith(name, end)]
        if names:
            name = max(names, key=len)
            end += len(name)
            bracket.values = self._graph.taken(bracket.values, name)
            bracket.term = begin, end
        return end

    def _read_word(self, mark: re.Match[str]) -> None:
        """Read a word of a CASE, or a text that looks like one where no such word can be."""
        word, place = mark["word"].strip(), self._cases[-1]
        if word == _CASE:
            self._cases.append(len(self._open))
            self._push(_CASE, mark)
        elif self._open[place].function == _AROUND_WORD[word]:
            self._unwind(place)
            self._open[-1].inner = 0
            if word in ("THEN", "END"):
                self._cases.pop()
                self._close(mark)
            else:
                self._end_argument(mark)
            if word == "WHEN":
                self._cases.append(len(self._open))
                self._push(_CONDITION, mark)

    def _read_opening(self, mark: re.Match[str]) -> None:
        around, function = self._open[-1], mark["function"]
        begin, end = around.term
        if mark["decides"]:
            if not around.inner:
                self._end_piece(mark.start(), mark.start())
            self._push(_CONDITION, mark)
        elif mark[0] == "[" and end == mark.start():
            bracket = self._push(_ELEMENT, mark)
            bracket.begin, bracket.arguments = begin, [around.values, []]
            around.values = []
        elif function in _PASSED or function in _PAIRS:
            self._push(function, mark)
        else:
            around.inner += 1

    # -- brackets and their parts

    def _push(self, function: str, mark: re.Match[str]) -> _Bracket:
        bracket = _Bracket(function, mark.start(), mark.end())
        self._open.append(bracket)
        return bracket

    def _unwind(self, place: int) -> None:
        """Leave the brackets within one: a text in the expression opened them."""
        while len(self._open) - 1 > place:
            bracket = self._open.pop()
            values = chain(*bracket.arguments, bracket.others, bracket.values)
            self._open[-1].others += _merged(values)

    def _add_term(self, begin: int, end: int, values: list[Value]) -> None:
        bracket = self._open[-1]
        bracket.others += bracket.values
        bracket.term, bracket.values = (begin, end), values

    def _end_piece(self, end: int, begin: int) -> None:
        """End a part of an argument; the next one begins."""
        bracket = self._open[-1]
        text = slice(bracket.place, end)
        values = bracket.values
        if bracket.others or not values or bracket.term != (bracket.place, end):
            values = _merged([*bracket.others, *values], text=text)
        if bracket.place < end:
            bracket.arguments[-1] += values
        bracket.place, bracket.values, bracket.others = begin, [], []

    def _end_argument(self, mark: re.Match[str]) -> None:
        self._end_piece(mark.start(), mark.end())
        self._open[-1].arguments.append([])

    def _close(self, mark: re.Match[str]) -> None:
        """Close the innermost bracket."""
        end = mark.end()
        self._end_piece(mark.start(), end)
        bracket = self._open.pop()
        if bracket.function in _RANKS and self._text.startswith(" windowspec", end):
            bracket.function = _CONDITION
        elif bracket.function == _LAMBDA:
            [body, *variables] = bracket.arguments
            self._bind(variables)
            bracket.arguments = [body]
        self._add_term(bracket.begin, end, self._made_by(bracket.function, bracket.arguments))
        if bracket.function == _CONDITION and not self._open[-1].inner:
            self._end_piece(end, end + 1)

    # -- values

    def _bind(self, variables: list[list[Value]]) -> None:
        """Derive the variables of a lambda function from the array whose elements they are.

        Other functions than those that pass values on count with all that their arguments name.
        """
        around = self._open[-1]
        array = [] if around.inner else around.arguments[0]
        for variable in chain(*variables):
            for column in variable.columns:
                self._graph.derive_values(column, array)

    def _made_by(self, function: str, arguments: list[list[Value]]) -> list[Value]:
        """Return the values that a call may have, and what decides on them."""
        if len(self._open) > _DEEPEST and function != _CONDITION:
            return _merged(chain(*arguments))
        if function in _PAIRS:
            columns = [column for value in chain(*arguments) for column in value.columns]
            return [Value(columns, fields=self._fields_made_by(function, arguments))]
        begin, end = _PASSED[function]
        if end and not self._is_balanced:
            end = _ALL
        values, deciding = [], [*chain(*arguments[:begin], *arguments[end:])]
        for value in chain(*arguments[begin:end]):
            if value.decides:
                deciding.append(value)
            else:
                values.append(value._replace(is_same=False))
        if function == "cast":
            values = self._renamed(values)
        if function in _ELEMENTS and _VALUE in self._graph.fields_of(values):
            values = self._graph.taken(values, _VALUE)
        return values + _merged(deciding, decides=True)

    def _fields_made_by(
        self, function: str, arguments: list[list[Value]]
    ) -> dict[str, list[Value]]:
        names, values = arguments[::2], arguments[1::2]
        if function == _MAP:
            return {_KEY: [*chain(*names)], _VALUE: [*chain(*values)]}
        if function == "arrays_zip":
            half = len(arguments) // 2
            names, values = arguments[half:], arguments[:half]
        texts = [self._text[name[0].text] if name else "" for name in names]
        return dict(zip(texts, values, strict=False))

    def _renamed(self, values: list[Value]) -> list[Value]:
        """Name the fields of structs as the type behind them does, which has the same order."""
        *values, type_name = values
        names = _FIELDS_OF_TYPE.findall(self._text[type_name.text])
        renamed = []
        for value in values:
            fields = self._graph.fields_of([value])
            taken = [self._graph.taken([value], name) for name in fields]
            if len(taken) == len(names):
                new_fields = dict(zip(names, taken, strict=True))
                renamed.append(value._replace(column="", fields=new_fields))
            else:
                renamed.append(value)
        return renamed


def column_id(column: str) -> str:
    """Return the id that plans give a column."""
    return column.partition(_OF_COPY)[0]


def kind_of(values: list[Value]) -> Derivation:
    """Return whether an expression that may have these values is a column as it is."""
    is_same = values and all(value.is_same for value in values)
    return Derivation.IDENTITY if is_same else Derivation.TRANSFORMATION


def columns_of(values: Iterable[Value]) -> list[str]:
    """Return the columns that values are made of, without those that only decide."""
    return [column for value in values if not value.decides for column in value.columns]


def _merged(
    values: Iterable[Value], *, decides: bool = False, text: slice = slice(0)
) -> list[Value]:
    """Merge values into one, and what decides on them into another."""
    direct, deciding = list[list[str]](), list[list[str]]()
    for value in values:
        lists = deciding if decides or value.decides else direct
        lists.append(value.columns)
    merged = [] if decides else [Value(_joined(direct), text=text)]
    if any(deciding):
        merged.append(Value(_joined(deciding), decides=True, is_same=True))
    return merged


def _joined(lists: list[list[str]]) -> list[str]:
    """Add lists to the longest of them, so that nested expressions take linear time."""
    lists.sort(key=len)
    joined = lists.pop() if lists else []
    for columns in lists:
        joined += columns
    return joined
