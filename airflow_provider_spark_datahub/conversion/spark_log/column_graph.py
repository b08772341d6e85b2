"""Columns of a plan by their ids, and the columns that each comes from, read from the text of
expressions.

Spark gives each column an id, ``amount#12``, which is unique within an application. A column that
an expression makes has an id of its own, and the plan names both: ``(amount#12 * 1.2) AS
with_tax#30``.

Tests: ``tests/conversion/test_run_events.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import product
from typing import NamedTuple

from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    ATTRIBUTE,
    SUBQUERY,
    Node,
    PlanDataset,
    closing_bracket,
    id_of,
    ids_of,
    split_items,
)

_REFERENCE = re.compile(r"#(?P<id>\d+)L?|\.\.\. \d+ more fields")
_OF_UNION = "'"
"""Between the id of a column of a union, which is that of a column of its first part, and the
number of the union.
"""
_LEFT_OUT = "..."
_LAMBDA_VARIABLE = re.compile(r"\blambda \w+#\d+L?")
# The brackets of conditions and keys: those of functions, and the columns around a subquery that
# its conditions name.
_DECIDING = (
    r"(?P<decides>\bif \(|\bFILTER \(WHERE |\bwindowspecdefinition\(|\bouter\(|(?<=\d) \[)"
    r"|(?P<decides_first>pivotfirst\()"
    r"|(?P<decides_last>(?<![^\W_])(?:max_by|min_by|listagg|string_agg)\()"
    r"|(?P<ranks>\b(?:rank|dense_rank|percent_rank)\()"
)
_MAY_DECIDE = re.compile(rf"\bCASE WHEN |{_DECIDING}")
_MARK = re.compile(
    rf"{_DECIDING}|\b(?P<word>CASE(?= WHEN )|WHEN(?= )|(?<= )THEN(?= )|(?<= )END(?![\w#]))"
    r"|(?P<opens>[(\[{])|(?P<closes>[)\]}])|(?P<comma>, )"
)
_STRUCT = "struct("
_SHOWN_ROWS = re.compile(
    r"stack\((?P<number>\d+), |inline\(array\(|explode\(map\(|replicaterows\([^,]+, "
)
_ROWS_OF_COLUMN = re.compile(rf"(?P<function>inline|explode)\({ATTRIBUTE.pattern}\)")
# EXCEPT ALL counts the rows of its second query down.
_COUNTED_DOWN = ("vcol", "-1")
_DEEPEST_CALL = 10
_CALL = re.compile(r"(?:partial_|merge_)?(?P<function>\w+)\(")
_STRUCTS = frozenset({"struct", "named_struct"})
# Functions whose result is one of the structs that they are given, or an array of them.
_OF_SAME_SHAPE = frozenset(
    {
        *(
            "max",
            "min",
            "first",
            "first_value",
            "last",
            "last_value",
            "any_value",
            "nth_value",
            "lag",
            "lead",
        ),
        *("max_by", "min_by", "collect_list", "collect_set", "array_agg"),
        *(
            "array",
            "sort_array",
            "array_sort",
            "array_distinct",
            "reverse",
            "shuffle",
            "slice",
            "filter",
        ),
        *(
            "explode",
            "explode_outer",
            "element_at",
            "try_element_at",
            "array_max",
            "array_min",
            "knownnotnull",
        ),
    }
)


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


class ColumnGraph:
    """Columns of one execution by their ids, with the columns from which expressions derive them.

    A field of a struct is a column of its own: ``9.day``.

    :ivar names: the names of columns.
    :ivar sources: columns of datasets that scans give.
    :ivar known: columns of datasets behind a column, from an earlier execution or computed by a
        database.
    :ivar fields: the fields of each struct, as far as expressions show them.
    :ivar counted_down: columns of ``EXCEPT ALL`` that mark rows of its second query.
    :ivar scope: the columns that ids mean at the node that is read, if these are not the columns of
        the ids. A union gives its columns the ids of those of its first part.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.sources: dict[str, dict[ColumnSource, None]] = {}
        self.known: dict[str, Sources] = {}
        self.counted_down: set[str] = set()
        self.fields: dict[str, dict[str, None]] = {}
        self.scope: dict[str, str] = {}
        self._derived: dict[str, dict[str, Derivation]] = {}
        self._deciding: dict[str, dict[str, None]] = {}
        self._filters: dict[tuple[int, str], list[str]] = {}
        self._kept: frozenset[str] = frozenset()
        self._unions = 0

    def read_names(self, node: Node) -> None:
        """Record the columns that a node names, and the aliases that it defines."""
        attributes = node.listed("Aggregate Attributes")
        lists = [*map(node.listed, ("Output", "Results", "Input")), attributes, *node.lists]
        aliases = []
        for item in (item for items in lists for item in items or ()):
            expression, alias, attribute = item.rpartition(" AS ")
            named = ATTRIBUTE.fullmatch(attribute)
            if named is not None:
                self.names.setdefault(named["id"], named["name"])
                # Java objects hide the columns that they were made of.
                is_alias = alias and node.kind != "SerializeFromObject"
                aliases += (
                    [(self.scope.get(named["id"], named["id"]), expression)] if is_alias else []
                )
        for place, (function, attribute) in enumerate(
            zip(node.listed("Functions") or (), attributes or (), strict=False)
        ):
            self.derive_from(id_of(attribute), function, Derivation.AGGREGATION)
            # Only the first step of an aggregate shows its filter.
            whole, _, condition = function.removeprefix("partial_").partition(" FILTER (WHERE ")
            if condition:
                self._filters[place, whole] = self.references(function, deciding=True)
            for below in self._filters.get((place, whole), ()):
                self._deciding.setdefault(id_of(attribute), {})[below] = None
            self._read_fields(id_of(attribute), function, Derivation.AGGREGATION)
        for column, expression in aliases:
            if (self.names[column], expression) == _COUNTED_DOWN:
                self.counted_down.add(column)
            self.derive_from(column, expression, self.kind_of(expression))
            self._read_fields(column, expression)

    def derive_from(self, column: str, expression: str, kind: Derivation) -> None:
        """Derive a column from the columns of an expression."""
        if column not in self._kept and _MAY_DECIDE.search(expression):
            self._deciding.setdefault(column, {}).update(
                dict.fromkeys(self.references(expression, deciding=True))
            )
        self.derive(column, self.references(expression), kind)

    def derive(self, column: str, below: Iterable[str], kind: Derivation) -> None:
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
        for name, field in held.fields.items():
            self._derive_field(column, name, (), Derivation.IDENTITY)
            self.read_held(f"{column}.{name}", field)

    def hide(self, column: str) -> None:
        """Record that the plans do not show all sources of a column."""
        self.derive(column, [_LEFT_OUT], Derivation.IDENTITY)

    def unite(self, first: list[str], others: Iterable[list[str] | None]) -> list[str]:
        """Return the columns of a union, which have the ids of those of its first part."""
        self._unions += 1
        output = [f"{column_id(column)}{_OF_UNION}{self._unions}" for column in first]
        others = [
            part if part and len(part) == len(first) else [_LEFT_OUT] * len(first)
            for part in others
        ]
        for column, *below in zip(output, first, *others, strict=True):
            self.names[column] = self.names.get(below[0], "")
            self.derive(column, below, Derivation.IDENTITY)
            for name in {name: None for part in below for name in self.fields.get(part, ())}:
                of_parts = [
                    f"{part}.{name}" if name in self.fields.get(part, ()) else part
                    for part in below
                ]
                self._derive_field(column, name, of_parts, Derivation.IDENTITY)
        self.scope = self.scope | dict(zip(map(column_id, first), output, strict=True))
        return output

    def align(self, output: list[str] | None, inputs: list[list[str] | None]) -> list[str] | None:
        """Derive the columns of an output from those of its inputs in the same places, and return
        it.
        """
        for columns in inputs:
            if output and columns and len(columns) == len(output):
                for column, below in zip(output, columns, strict=True):
                    if column != below:
                        self.derive(column, [below], Derivation.IDENTITY)
                        self.derive_fields(column, below)
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

    def references(self, expression: str, *, deciding: bool = False) -> list[str]:
        """Return the ids of the columns whose values are in that of an expression, as far as Spark
        shows them.

        A text in it may look like a column, so an id counts only behind the name of its column.

        :param deciding: return those in its conditions, keys and orders instead.
        """
        expression = _LAMBDA_VARIABLE.sub("", expression)
        conditions = _Conditions(expression).parts if _MAY_DECIDE.search(expression) else []
        references, end = [], len(expression)
        for match in reversed(list(_REFERENCE.finditer(expression))):
            if match.end() > end:
                continue
            name = self.names.get(match["id"] or "")
            begin = match.start() - len(name or "")
            spelling = expression[max(begin, 0) : match.start()]
            is_unknown = name is None and (
                not match["id"] or expression[begin - 1 : begin].isalnum()
            )
            # A query may spell a column in another case than its table.
            if is_unknown or (name is not None and spelling.lower() == name.lower()):
                # The name of an aggregate holds the names of its columns, and its conditions.
                end = begin
                while conditions and conditions[-1][0] > begin:
                    conditions.pop()
                if (bool(conditions) and begin < conditions[-1][1]) == deciding:
                    references.append(self._referenced(match))
        return references

    def _referenced(self, match: re.Match[str]) -> str:
        """Return the column of a reference, or the field of it that is taken; Spark names some
        ``sum(amount)``.
        """
        column = self.scope.get(match["id"], match["id"] or _LEFT_OUT)
        names = (
            name
            for name in self.fields.get(column, ())
            if match.string.startswith(f".{name}", match.end())
        )
        name = max(names, key=len, default="")
        return f"{column}.{name}" if name else column

    def derive_fields(
        self, column: str, struct: str, kind: Derivation = Derivation.IDENTITY
    ) -> None:
        """Derive the fields of a column from those of the struct that it is."""
        for name in self.fields.get(struct, ()):
            self._derive_field(column, name, [f"{struct}.{name}"], kind)

    def kind_of(self, expression: str) -> Derivation:
        """Return whether an expression is a column as it is."""
        is_same = self._column(expression) or SUBQUERY.search(expression)
        return Derivation.IDENTITY if is_same else Derivation.TRANSFORMATION

    def _column(self, expression: str) -> str:
        """Return the column that an expression is; empty if it is not one as it is."""
        named = ATTRIBUTE.fullmatch(expression)
        is_column = named is not None and self.names.get(named["id"]) == named["name"]
        return self.scope.get(named["id"], named["id"]) if named is not None and is_column else ""

    def generate(self, generator: str, columns: list[str]) -> None:
        """Derive the columns of a generator: all from all of its arguments, unless it shows the
        rows that it makes.
        """
        rows = list(_shown_rows(generator, len(columns)))
        if not rows and len(columns) == 1:
            self._read_fields(columns[0], generator)
        named = _ROWS_OF_COLUMN.fullmatch(generator)
        if not rows and named is not None and (named["function"] == "inline" or len(columns) == 2):
            # The rows are the structs of an array, or the entries of a map.
            struct = self.scope.get(named["id"], named["id"])
            fields = [f"{struct}.{name}" for name in self.fields.get(struct, ())]
            if len(fields) == len(columns):
                for column, field in zip(columns, fields, strict=True):
                    self.derive(column, [field], Derivation.IDENTITY)
                return
        for row in rows:
            for column, expression in zip(columns, row, strict=True):
                below = [item for item in self.references(expression) if item != column]
                self.derive(column, below, self.kind_of(expression))
        for column in columns if not rows else ():
            self.derive(column, self.references(generator), Derivation.TRANSFORMATION)

    def _read_fields(
        self, column: str, expression: str, kind: Derivation = Derivation.IDENTITY, depth: int = 0
    ) -> None:
        """Record the fields of a column of structs, if the expression that makes it shows them.

        ``max(struct(day, day#3, amount, amount#2))#9`` has a field ``day`` that comes from
        ``day#3`` only.
        """
        if same := self._column(expression):
            self.derive_fields(column, same, kind)
            return
        call = _CALL.match(expression)
        closing = closing_bracket(expression, call.end()) if call is not None else None
        arguments = (
            split_items(expression[call.end() : closing])
            if call is not None and closing is not None
            else []
        )
        function = call["function"] if call is not None else ""
        for name, value in _named_arguments(function, arguments):
            self._derive_field(column, name, self.references(value), max(kind, self.kind_of(value)))
        if function in _OF_SAME_SHAPE and arguments and depth < _DEEPEST_CALL:
            for argument in arguments if function == "array" else arguments[:1]:
                self._read_fields(column, argument, kind, depth + 1)

    def _derive_field(self, column: str, name: str, below: Iterable[str], kind: Derivation) -> None:
        self.fields.setdefault(column, {})[name] = None
        self.derive(f"{column}.{name}", below, kind)


def column_id(column: str) -> str:
    """Return the id that plans give a column."""
    return column.partition(_OF_UNION)[0]


def _named_arguments(function: str, arguments: list[str]) -> Iterable[tuple[str, str]]:
    """Return the fields of the structs, or the keys and values of the map, that a call makes, and
    their expressions.
    """
    half = 0 if len(arguments) % 2 else len(arguments) // 2
    if function == "map" and half:
        return [*product(("key",), arguments[::2]), *product(("value",), arguments[1::2])]
    if function in _STRUCTS and half:
        return zip(arguments[::2], arguments[1::2], strict=True)
    return (
        zip(arguments[half:], arguments[:half], strict=True)
        if function == "arrays_zip" and half
        else ()
    )


def _shown_rows(generator: str, columns: int) -> Iterator[list[str]]:
    """Yield the expressions of each row of ``stack``, of ``inline`` over an array of structs, or of
    a map's entries.
    """
    found = _SHOWN_ROWS.match(generator)
    closing = generator.count("(", 0, found.end()) if found is not None else 0
    items = split_items(generator[found.end() : -closing]) if found is not None and columns else []
    if found is not None and found[0] != "inline(array(":
        number = int(found["number"] or len(items) // max(columns, 1))
        if len(items) == number * columns:
            yield from (items[begin : begin + columns] for begin in range(0, len(items), columns))
        return
    rows = [
        split_items(item.removeprefix(_STRUCT).removesuffix(")"))
        for item in items
        if item.startswith(_STRUCT)
    ]
    if len(rows) == len(items) and all(len(row) == 2 * columns for row in rows):
        # The names of the fields are between them.
        yield from (row[1::2] for row in rows)


class _Conditions:
    """Outermost parts of an expression that only decide: conditions, keys and orders. Texts have no
    quotes.
    """

    def __init__(self, expression: str) -> None:
        self.parts: list[tuple[int, int]] = []
        # Each open bracket, by the name of its mark, or CASE; and where a condition in it began, or
        # -1.
        self._open: list[tuple[str, int]] = []
        self._cases: list[int] = []
        for mark in _MARK.finditer(expression):
            kind = mark.lastgroup or ""
            top, begin = self._open[-1] if self._open else ("", -1)
            if kind == "word":
                self._read_word(mark)
            elif kind == "closes" and top != "CASE":
                if top != "ranks" or expression.startswith(" windowspecdefinition(", mark.end()):
                    self._end(mark.start())
                del self._open[-1:]
            elif kind not in ("closes", "comma"):
                self._open.append((kind, -1 if kind in ("opens", "decides_last") else mark.end()))
            elif top == "decides_first":
                self._end(mark.start())
            elif top == "decides_last" and begin < 0:
                self._open[-1] = top, mark.end()

    def _end(self, end: int) -> None:
        """End the condition in the innermost open bracket or CASE."""
        kind, begin = self._open.pop() if self._open else ("", -1)
        self._open.append((kind, -1))
        while begin >= 0 and self.parts and self.parts[-1][0] >= begin:
            self.parts.pop()
        self.parts += [(begin, end)] if begin >= 0 else []

    def _read_word(self, mark: re.Match[str]) -> None:
        """Read a word of a CASE, or a text that looks like one where no such word can be."""
        word, place = mark["word"], self._cases[-1] if self._cases else -1
        if word == "CASE":
            self._cases.append(len(self._open))
            self._open.append((word, -1))
        elif place >= 0 and (word == "THEN") == (self._open[place][1] >= 0):
            del self._open[place + 1 :]
            if word == "WHEN":
                self._open[place] = "CASE", mark.end()
            elif word == "THEN":
                self._end(mark.start())
            else:
                self._open.pop()
                self._cases.pop()
