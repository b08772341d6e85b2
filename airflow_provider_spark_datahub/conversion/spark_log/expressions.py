"""The columns that an expression of a plan names, and the fields of the struct that it makes.

Spark prints texts in expressions without quotes, so they may look like anything. A column counts
only behind its name, and a text that looks like a bracket or a word costs at most the fields of its
expression.

Tests: ``tests/conversion/test_expressions.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

LEFT_OUT = "..."
"""Stands for columns that Spark omitted from a long list."""
_REFERENCE = re.compile(r"\b(?P<variable>lambda \w+)#\d+|#(?P<id>\d+)L?|\.\.\. \d+ more fields")
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
_DECIDED_BY_FIRST = "pivotfirst"
_DECIDED_BY_OTHERS = frozenset({"max_by", "min_by", "listagg", "string_agg"})
_RANKS = frozenset({"rank", "dense_rank", "percent_rank"})
_MAP, _KEY, _VALUE = "map", "[key]", "[value]"
_PAIRS = frozenset({"struct", "named_struct", _MAP})
_ELEMENTS = frozenset({_ELEMENT, "element_at", "try_element_at"})
# The arguments of functions whose result is one of these, or an array of them.
_PASSED = {
    **dict.fromkeys(("", "array", "coalesce", "lag", "lead", _CASE), slice(None)),
    "transform": slice(1, None),
    **dict.fromkeys(
        (
            *("max", "min", "first", "first_value", "last", "last_value", "any_value"),
            *("nth_value", "max_by", "min_by", "collect_list", "collect_set", "array_agg"),
            *("sort_array", "array_sort", "array_distinct", "reverse", "shuffle", "slice"),
            *("filter", "explode", "explode_outer", "inline", "array_max", "array_min"),
            *("knownnotnull", "cast", _LAMBDA, *_ELEMENTS),
        ),
        slice(1),
    ),
}
_DEEPEST = 50
"""Brackets in brackets whose fields are followed."""
_MOST_BOUND = 20
"""Columns that a variable of a lambda function may stand for."""


class Reference(NamedTuple):
    """A column that an expression names.

    :param decides: it is read for a condition, a key or an order, and not for its value.
    """

    column: str
    decides: bool = False


class Value(NamedTuple):
    """A value that an expression may have, or what decides on it.

    :param column: the column that it is; empty if it is not one.
    :param is_same: nothing changes it.
    :param fields: the values that each field may have, if it is a struct.
    """

    references: list[Reference]
    column: str = ""
    is_same: bool = False
    fields: Mapping[str, list[Value]] = MappingProxyType({})
    text: str = ""

    @classmethod
    def of(cls, column: str) -> Value:
        """Return the value of a column."""
        return cls([Reference(column)], column, is_same=True)


class Columns:
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

    def read(self, text: str) -> tuple[list[Reference], list[Value]]:
        """Return the columns that an expression names, and the values that it may have as far as
        its fields are concerned.
        """
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
                taken += value.fields.get(name) or [Value(value.references)]
        return taken


@dataclass
class _Bracket:
    """An open bracket, or a CASE.

    :param begin: its place in the text, that of its function.
    :param first: the number of references before it.
    :param piece: where its last part begins: its place, and the number of references before it.
    :param decides: its last argument decides.
    :param is_within: a bracket around it decides.
    :param bound: what variables of lambda functions stand for.
    :ivar term: the place of the last column or call in it, and the number of references before it.
    :ivar values: those that this term may have.
    """

    function: str
    begin: int
    first: int
    piece: tuple[int, int]
    decides: bool
    is_within: bool
    bound: list[Value]
    arguments: list[list[Value]] = field(default_factory=lambda: [[]])
    term: tuple[int, int, int] = (0, 0, 0)
    values: list[Value] = field(default_factory=list)


class _Parser:
    """Reads an expression from left to right, with a stack of open brackets."""

    def __init__(self, columns: Columns, text: str) -> None:
        self._columns, self._text = columns, text
        self._references: list[Reference] = []
        self._open = [_Bracket("", 0, 0, (0, 0), False, False, [])]
        # The places of each CASE and its condition, among the open brackets.
        self._cases = [0]

    def read(self) -> tuple[list[Reference], list[Value]]:
        """Return the columns that the expression names, and the values that it may have."""
        end = 0
        for begin, next_end, column in self._named():
            for mark in _MARK.finditer(self._text, end, begin):
                if mark.start() >= end:
                    end = self._read_mark(mark)
            self._read_column(begin, next_end, column)
            end = next_end
        for mark in _MARK.finditer(self._text, end):
            if mark.start() >= end:
                end = self._read_mark(mark)
        del self._open[1:]
        self._end_piece(len(self._text), 0)
        [values, *others] = self._open[0].arguments
        return self._references, [] if others else values

    def _named(self) -> Iterator[tuple[int, int, str]]:
        """Yield the place of each column, and the column; an empty text for a variable.

        The name of a column may look like anything, too.
        """
        text, named, end = self._text, [], len(self._text)
        for match in reversed([*_REFERENCE.finditer(text)]):
            column = match["id"] or ("" if match["variable"] else LEFT_OUT)
            name = self._columns.names.get(column, "")
            begin = match.start() - len(name)
            # A query may spell a column in another case than its table.
            is_spelled = text[max(begin, 0) : match.start()].lower() == name.lower()
            is_column = name or not match["id"] or text[begin - 1 : begin].isalnum()
            if match.end() <= end and is_spelled and is_column:
                named.append((begin, match.end(), self._columns.scope.get(column, column)))
                end = begin
        return reversed(named)

    # -- marks

    def _read_mark(self, mark: re.Match[str]) -> int:
        """Read a mark, and return where the next one may begin."""
        kind = mark.lastgroup
        if kind == "word":
            self._read_word(mark)
        elif kind == "decides":
            self._end_piece(mark.start(), mark.start())
            self._push(_CONDITION, mark)
        elif kind in ("call", "opens"):
            self._push(mark["function"] or "", mark)
        elif kind == "comma":
            self._end_argument(mark)
        elif kind == "between":
            self._end_piece(mark.start(), mark.end())
        elif kind == "field":
            return self._read_field(mark)
        elif len(self._open) - 1 != self._cases[-1]:
            self._close(mark)
        return mark.end()

    def _read_column(self, begin: int, end: int, column: str) -> None:
        bracket = self._open[-1]
        bracket.term = begin, end, len(self._references)
        bracket.values = [Value.of(column)] if column else bracket.bound
        self._references += _references(bracket.values)

    def _read_field(self, mark: re.Match[str]) -> int:
        """Take the field of the last term that is named behind it, and return its end."""
        bracket, end = self._open[-1], mark.end()
        begin, before, first = bracket.term
        fields = self._columns.fields_of(bracket.values) if before == mark.start() else []
        names = [name for name in fields if self._text.startswith(name, end)]
        if names:
            name = max(names, key=len)
            end += len(name)
            bracket.values = self._take(bracket.values, name, first)
            bracket.term = begin, end, first
        return end

    def _read_word(self, mark: re.Match[str]) -> None:
        """Read a word of a CASE, or a text that looks like one where no such word can be."""
        word, place = mark["word"].strip(), self._cases[-1]
        if word == _CASE:
            self._cases.append(len(self._open))
            self._push(_CASE, mark)
        elif self._open[place].function == _AROUND_WORD[word]:
            del self._open[place + 1 :]
            if word in ("THEN", "END"):
                self._cases.pop()
                self._close(mark)
            else:
                self._end_argument(mark)
            if word == "WHEN":
                self._cases.append(len(self._open))
                self._push(_CONDITION, mark)

    # -- brackets and their parts

    def _push(self, function: str, mark: re.Match[str]) -> None:
        around, first = self._open[-1], len(self._references)
        is_within = around.is_within or around.decides
        decides = function in (_CONDITION, _DECIDED_BY_FIRST)
        piece = mark.end(), first
        bracket = _Bracket(function, mark.start(), first, piece, decides, is_within, around.bound)
        self._open.append(bracket)
        begin, end, first_of_term = around.term
        if mark[0] == "[" and end == mark.start():
            bracket.function, bracket.begin, bracket.first = _ELEMENT, begin, first_of_term
            bracket.arguments = [around.values, []]
        elif function == _LAMBDA:
            if first - around.first + len(around.bound) > _MOST_BOUND:
                bracket.function = LEFT_OUT
            bracket.bound = [*around.bound, *chain(*around.arguments)]

    def _end_piece(self, end: int, begin: int) -> None:
        """End a part of an argument; the next one begins."""
        bracket = self._open[-1]
        place, first = bracket.piece
        if bracket.decides and not bracket.is_within:
            self._decide(first)
        if place < end and len(self._open) < _DEEPEST:
            values = bracket.values if bracket.term[:2] == (place, end) else []
            opaque = Value(self._references[first:], text=self._text[place:end])
            bracket.arguments[-1] += values or [opaque]
        bracket.piece = begin, len(self._references)

    def _end_argument(self, mark: re.Match[str]) -> None:
        self._end_piece(mark.start(), mark.end())
        bracket = self._open[-1]
        bracket.arguments.append([])
        bracket.decides = bracket.function in (_CONDITION, *_DECIDED_BY_OTHERS)

    def _close(self, mark: re.Match[str]) -> None:
        """Close the innermost bracket."""
        end = mark.end()
        self._end_piece(mark.start(), end)
        bracket = self._open[-1]
        if bracket.function in _RANKS and self._text.startswith(" windowspec", end):
            self._decide(bracket.first)
        is_followed = len(self._open) < _DEEPEST
        values = self._made_by(bracket) if is_followed else []
        self._open.pop()
        around = self._open[-1]
        if bracket.function != _CONDITION:
            around.term, around.values = (bracket.begin, end, bracket.first), values
            return
        if is_followed:
            condition = Value(self._references[bracket.first :], is_same=True)
            around.arguments[-1].append(condition)
        around.piece = end + 1, len(self._references)

    def _decide(self, first: int) -> None:
        columns = [reference.column for reference in self._references[first:]]
        self._references[first:] = [Reference(column, decides=True) for column in columns]

    # -- values

    def _made_by(self, bracket: _Bracket) -> list[Value]:
        """Return the values that a call may have, if its fields can be followed."""
        function, arguments = bracket.function, bracket.arguments
        if fields := _fields_made_by(function, arguments):
            return [Value(self._references[bracket.first :], fields=fields)]
        values = [
            value._replace(is_same=False)
            for argument in arguments[_PASSED.get(function, slice(0))]
            for value in argument
        ]
        if function == "cast":
            return self._renamed(values)
        if function in _ELEMENTS and _VALUE in self._columns.fields_of(values):
            return self._take(values, _VALUE, bracket.first)
        return values

    def _renamed(self, values: list[Value]) -> list[Value]:
        """Name the fields of structs as the type behind them does, which has the same order."""
        *values, type_name = values
        names = _FIELDS_OF_TYPE.findall(type_name.text)
        renamed = []
        for value in values:
            taken = [
                self._columns.taken([value], name) for name in self._columns.fields_of([value])
            ]
            if len(taken) == len(names):
                fields = dict(zip(names, taken, strict=True))
                renamed.append(Value(value.references, fields=fields))
            else:
                renamed.append(value)
        return renamed

    def _take(self, values: list[Value], name: str, first: int) -> list[Value]:
        """Take a field of a term that begins behind so many references."""
        taken = self._columns.taken(values, name)
        whole = {*_references(values)}
        others = [reference for reference in self._references[first:] if reference not in whole]
        self._references[first:] = others + _references(taken)
        return taken


def _fields_made_by(function: str, arguments: list[list[Value]]) -> dict[str, list[Value]]:
    fields: dict[str, list[Value]] = {}
    if len(arguments) % 2 or function not in _PAIRS:
        return {}
    for name, values in zip(arguments[::2], arguments[1::2], strict=True):
        if function == _MAP:
            fields.setdefault(_KEY, []).extend(name)
            fields.setdefault(_VALUE, []).extend(values)
        else:
            fields["".join(value.text for value in name)] = values
    return fields


def _references(values: Iterable[Value]) -> list[Reference]:
    return [reference for value in values for reference in value.references]
