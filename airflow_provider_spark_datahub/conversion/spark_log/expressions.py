"""The columns that an expression of a plan names, and the fields of the struct that it makes.

Spark prints texts in expressions without quotes, so they may look like anything. A column counts
only behind its name, and a text that looks like a bracket or a word costs at most the fields of its
expression.

Tests: ``tests/conversion/test_expressions.py``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

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


class Columns(ABC):
    """The columns that expressions may name.

    :ivar names: the names of columns, by their ids.
    :ivar fields: the fields of each struct, as far as expressions show them. A field is a column of
        its own: ``9.day``.
    :ivar scope: the columns that ids mean at the node that is read, if these are not the columns of
        the ids. A union gives its columns the ids of those of its first part.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.fields: dict[str, dict[str, None]] = {}
        self.scope: dict[str, str] = {}

    def read(self, text: str) -> list[Value]:
        """Return the values that an expression may have, and what decides on them."""
        return _Parser(self, text).read()

    @abstractmethod
    def derive_values(self, column: str, values: list[Value]) -> None:
        """Derive a column, and the fields of it, from the values that it may have."""

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

    def __init__(self, columns: Columns, text: str, *, is_balanced: bool = True) -> None:
        self._columns, self._text = columns, text
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
            return _Parser(self._columns, self._text, is_balanced=False).read()
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
            name = self._columns.names.get(column, "")
            begin = match.start() - len(name)
            # A query may spell a column in another case than its table.
            is_spelled = text[max(begin, 0) : match.start()].lower() == name.lower()
            is_column = name or not match["id"] or text[begin - 1 : begin].isalnum()
            if match.end() <= end and is_spelled and is_column:
                named.append((begin, match.end(), self._columns.scope.get(column, column)))
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
        fields = self._columns.fields_of(bracket.values) if before == mark.start() else []
        names = [name for name in fields if self._text.startswith(name, end)]
        if names:
            name = max(names, key=len)
            end += len(name)
            bracket.values = self._columns.taken(bracket.values, name)
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
                self._columns.derive_values(column, array)

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
        if function in _ELEMENTS and _VALUE in self._columns.fields_of(values):
            values = self._columns.taken(values, _VALUE)
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
            fields = self._columns.fields_of([value])
            taken = [self._columns.taken([value], name) for name in fields]
            if len(taken) == len(names):
                new_fields = dict(zip(names, taken, strict=True))
                renamed.append(value._replace(column="", fields=new_fields))
            else:
                renamed.append(value)
        return renamed


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
