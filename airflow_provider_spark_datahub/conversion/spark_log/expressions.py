"""The columns that an expression of a plan names, and the fields of the struct that it makes.

Spark prints expressions without quotes, so a text in them may look like a bracket, a word or a
column. A column counts only behind its name; a text that looks like a bracket costs at most the
fields of its own expression.

Tests: ``tests/conversion/test_expressions.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

LEFT_OUT = "..."
"""Stands for columns that Spark omitted from a long list."""
_REFERENCE = re.compile(r"(?P<variable>\blambda \w+)?#(?P<id>\d+)L?|\.\.\. \d+ more fields")
# Stands in a text for a name and its id, since a name may look like anything, too.
_MASK = "\x01"
_MARK = re.compile(
    rf"(?P<reference>{_MASK})"
    r"|\b(?P<word>CASE(?= WHEN )|WHEN(?= )|(?<= )(?:THEN|ELSE)(?= )|(?<= )END(?![\w#]))"
    r"|(?P<opens>(?<!\w)(?P<function>\w*)(?P<space> ?)[(\[{])"
    r"|(?P<closes>[)\]}])|(?P<comma>, )|(?P<between> else | as )"
)
_IN_TYPE = re.compile(r"(?P<name>[^<>,:]+):|[<>]")
_WINDOW = " windowspecdefinition("
# Brackets whose content only decides: conditions, keys, and the columns around a subquery.
_SUBQUERY = "subquery"
_DECIDING = frozenset({"if ", "FILTER ", "windowspecdefinition", "outer", _SUBQUERY})
_DECIDED_BY_FIRST = "pivotfirst"
_DECIDED_BY_OTHERS = frozenset({"max_by", "min_by", "listagg", "string_agg"})
_RANKS = frozenset({"rank", "dense_rank", "percent_rank"})
_CASE, _WHEN = "CASE", "WHEN"
_STRUCTS = frozenset({"struct", "named_struct"})
_KEY, _VALUE = "[key]", "[value]"
"""The fields of a map."""
_ELEMENT = "[]"
_ELEMENTS = frozenset({_ELEMENT, "element_at", "try_element_at"})
# Functions whose result is one of the values that they are given, or an array of them.
_OF_ANY = frozenset({"", "array", "coalesce", _CASE})
_OF_FIRST = _ELEMENTS | {
    *("max", "min", "first", "first_value", "last", "last_value", "any_value", "nth_value"),
    *("lag", "lead", "max_by", "min_by", "collect_list", "collect_set", "array_agg"),
    *("sort_array", "array_sort", "array_distinct", "reverse", "shuffle", "slice", "filter"),
    *("explode", "explode_outer", "array_max", "array_min", "knownnotnull", "inline"),
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
    decides: bool


class Alternative(NamedTuple):
    """A value that an expression may have, or what decides on it.

    :param column: the column that it is; empty if it is not one.
    :param is_same: nothing changes the value of its column.
    :param fields: the alternatives of each field, if the expression makes a struct.
    """

    references: list[Reference]
    column: str = ""
    is_same: bool = False
    fields: Mapping[str, list[Alternative]] = MappingProxyType({})

    @classmethod
    def of(cls, column: str, *, decides: bool = False) -> Alternative:
        """Return the value of a column."""
        return cls([Reference(column, decides)], column, is_same=True)


class Expression(NamedTuple):
    """What an expression names.

    :param alternatives: the values that it may have, as far as its fields are concerned.
    """

    references: list[Reference]
    alternatives: list[Alternative]

    @property
    def values(self) -> list[str]:
        """The columns whose values are in that of the expression."""
        return [reference.column for reference in self.references if not reference.decides]

    @property
    def is_same(self) -> bool:
        """Whether the expression is a column as it is."""
        return any(value.is_same for value in self.alternatives)


class Columns(NamedTuple):
    """The columns that expressions may name.

    :param names: their names, by their ids.
    :param fields: the names of the fields of each column that is a struct. The columns of fields
        have ids of their own: ``9.day``.
    """

    names: Mapping[str, str]
    fields: Mapping[str, Mapping[str, None]]

    def read(self, text: str, scope: Mapping[str, str]) -> Expression:
        """Read an expression.

        :param scope: the columns that ids mean, if these are not the columns of the ids.
        """
        return _Parser(self, text, scope).read()

    def fields_of(self, alternatives: Iterable[Alternative]) -> dict[str, None]:
        """Return the names of the fields that a value may have."""
        names: dict[str, None] = {}
        for value in alternatives:
            names.update(dict.fromkeys(self.fields.get(value.column, value.fields)))
        return names

    def taken(self, alternatives: Iterable[Alternative], name: str) -> list[Alternative]:
        """Return the alternatives of a field: a value that does not show it counts as a whole."""
        taken = []
        for value in alternatives:
            if name in self.fields.get(value.column, ()):
                decides = value.references[0].decides
                taken.append(Alternative.of(f"{value.column}.{name}", decides=decides))
            else:
                taken += value.fields.get(name) or [Alternative(value.references)]
        return taken


@dataclass(slots=True)
class _Term:
    """A column or a call, with the fields that are taken from it.

    :param first: the number of references before it.
    """

    begin: int
    end: int
    first: int
    alternatives: list[Alternative]


class _Piece(NamedTuple):
    """A part of an argument: a condition, or a value that the argument may have."""

    begin: int
    end: int
    references: slice
    decides: bool
    alternatives: list[Alternative]


@dataclass(slots=True)
class _Bracket:
    """An open bracket, or a CASE.

    :param is_within: a bracket around it decides.
    :param decides: its present piece decides.
    :param bound: what variables of lambda functions stand for.
    """

    function: str
    begin: int
    first: int
    is_within: bool
    decides: bool
    bound: list[Alternative]
    piece_begin: int
    piece_first: int
    term: _Term | None = None
    pieces: list[_Piece] = field(default_factory=list)
    arguments: list[list[_Piece]] = field(default_factory=list)


class _Parser:
    """Reads an expression from left to right, with a stack of open brackets."""

    def __init__(self, columns: Columns, source: str, scope: Mapping[str, str]) -> None:
        self._columns, self._source, self._scope = columns, source, scope
        self._named: dict[int, re.Match[str]] = {}
        self._text = self._masked()
        self._references: list[Reference] = []
        self._open = [_Bracket("", 0, 0, False, False, [], 0, 0)]
        self._cases: list[int] = []
        self._read_to = 0

    def _masked(self) -> str:
        """Return the text without the names of columns, and remember these by their places."""
        source, names = self._source, self._columns.names
        pieces, end = [], len(source)
        for match in reversed(list(_REFERENCE.finditer(source))):
            if match.end() > end:
                continue
            name = names.get(match["id"] or "")
            name_end = match.end("variable") if match["variable"] else match.start()
            if name is None:
                begin = match.start()
                is_column = not match["id"] or source[name_end - 1 : name_end].isalnum()
            else:
                # A query may spell a column in another case than its table.
                begin = name_end - len(name)
                is_column = source[max(begin, 0) : name_end].lower() == name.lower()
            if is_column:
                self._named[begin] = match
                mask = _MASK.ljust(match.end() - begin, "\0")
                pieces += [source[match.end() : end], mask]
                end = begin
        pieces.append(source[:end])
        return "".join(reversed(pieces))

    def read(self) -> Expression:
        """Return the columns that the expression names."""
        for mark in _MARK.finditer(self._text):
            if mark.start() < self._read_to:
                continue
            match mark.lastgroup:
                case "reference":
                    self._read_column(mark.start())
                case "word":
                    self._read_word(mark)
                case "opens":
                    self._read_opening(mark)
                case "closes":
                    self._read_closing(mark)
                case "comma":
                    self._read_comma(mark)
                case _:
                    self._end_piece(self._open[-1], mark.start(), mark.end())
        self._decide_nothing_unclosed()
        del self._open[1:]
        self._end_argument(len(self._text), 0)
        [first, *others] = self._open[0].arguments
        return Expression(self._references, [] if others else self._values(first))

    def _decide_nothing_unclosed(self) -> None:
        """Count what a condition without an end holds as values: a text may have its bracket."""
        for bracket in self._open[1:]:
            if bracket.decides:
                columns = [reference.column for reference in self._references[bracket.first :]]
                self._references[bracket.first :] = [Reference(name, False) for name in columns]
                break

    # -- marks

    def _read_column(self, begin: int) -> None:
        match = self._named.get(begin)
        if match is None:
            return
        bracket, first = self._open[-1], len(self._references)
        column = self._scope.get(match["id"], match["id"] or LEFT_OUT)
        values = [Alternative.of(column, decides=bracket.decides)]
        if match["variable"] and match["id"] not in self._columns.names:
            values = bracket.bound
        self._references += _references(values)
        self._add_term(begin, match.end(), first, values)

    def _read_word(self, mark: re.Match[str]) -> None:
        """Read a word of a CASE, or a text that looks like one where no such word can be."""
        word = mark["word"]
        if word == _CASE:
            self._cases.append(len(self._open))
            self._push(_CASE, mark.start(), mark.end())
            return
        case = self._open[self._cases[-1]] if self._cases else None
        if case is None or (word == "THEN") != (case.function == _WHEN):
            return
        del self._open[self._cases[-1] + 1 :]
        self._end_piece(case, mark.start(), mark.end() + 1)
        case.function = _WHEN if word == _WHEN else _CASE
        case.decides = case.is_within or word == _WHEN
        if word == "END":
            self._cases.pop()
            self._close(mark.end())

    def _read_opening(self, mark: re.Match[str]) -> None:
        around = self._open[-1]
        function = mark["function"] + mark["space"]
        term = around.term if mark[0].endswith("[") else None
        if term is not None and term.end == mark.start():
            function = _SUBQUERY if mark["space"] else _ELEMENT
        elif mark["space"] and function not in _DECIDING:
            function = ""
        function = function.removeprefix("partial_").removeprefix("merge_")
        if function in _DECIDING:
            self._end_piece(around, mark.start(), mark.start())
        bracket = self._push(function, mark.start(), mark.end())
        if function == _ELEMENT and term is not None:
            references = slice(term.first, bracket.first)
            indexed = _Piece(term.begin, term.end, references, False, term.alternatives)
            bracket.begin, bracket.first = term.begin, term.first
            bracket.arguments.append([indexed])
        elif function == "lambdafunction":
            bracket.bound = self._bound_in(around)

    def _read_closing(self, mark: re.Match[str]) -> None:
        bracket = self._open[-1]
        if len(self._open) == 1 or bracket.function in (_CASE, _WHEN):
            return
        if bracket.function in _RANKS and self._text.startswith(_WINDOW, mark.end()):
            columns = [reference.column for reference in self._references[bracket.first :]]
            self._references[bracket.first :] = [Reference(name, True) for name in columns]
        self._end_piece(bracket, mark.start(), mark.end())
        self._close(mark.end())

    def _read_comma(self, mark: re.Match[str]) -> None:
        self._end_argument(mark.start(), mark.end())
        bracket = self._open[-1]
        if bracket.function in _DECIDED_BY_OTHERS:
            bracket.decides = True
        elif bracket.function == _DECIDED_BY_FIRST:
            bracket.decides = bracket.is_within

    # -- brackets and their parts

    def _push(self, function: str, begin: int, piece_begin: int) -> _Bracket:
        around, first = self._open[-1], len(self._references)
        decides = around.decides or function in _DECIDING or function == _DECIDED_BY_FIRST
        bracket = _Bracket(
            function, begin, first, around.decides, decides, around.bound, piece_begin, first
        )
        self._open.append(bracket)
        return bracket

    def _end_piece(self, bracket: _Bracket, end: int, begin: int, *, decides: bool = False) -> None:
        """End a part of an argument; the next one begins."""
        if self._text.startswith(" ", end - 1):
            end -= 1
        term, values = bracket.term, list[Alternative]()
        if term is not None and (term.begin, term.end) == (bracket.piece_begin, end):
            values = term.alternatives
        if end > bracket.piece_begin:
            references = slice(bracket.piece_first, len(self._references))
            piece = _Piece(bracket.piece_begin, end, references, decides or bracket.decides, values)
            bracket.pieces.append(piece)
        bracket.piece_begin, bracket.piece_first = begin, len(self._references)
        bracket.term = None

    def _end_argument(self, end: int, begin: int) -> None:
        bracket = self._open[-1]
        self._end_piece(bracket, end, begin)
        bracket.arguments.append(bracket.pieces)
        bracket.pieces = []

    def _close(self, end: int) -> None:
        """Close the innermost bracket, all of whose pieces have ended."""
        bracket = self._open[-1]
        bracket.arguments.append(bracket.pieces)
        values = self._made_by(bracket) if len(self._open) < _DEEPEST else []
        self._open.pop()
        if bracket.function in _DECIDING:
            self._end_piece(self._open[-1], end, end + 1, decides=True)
        else:
            self._add_term(bracket.begin, end, bracket.first, values)

    def _add_term(self, begin: int, end: int, first: int, values: list[Alternative]) -> None:
        """Add a term, and take the fields from it that are named behind it."""
        while values and self._text.startswith(".", end):
            fields = self._columns.fields_of(values)
            names = [name for name in fields if self._source.startswith(name, end + 1)]
            if not names:
                break
            name = max(names, key=len)
            end += 1 + len(name)
            values = self._take(values, name, first)
        self._read_to = end
        self._open[-1].term = _Term(begin, end, first, values)

    def _take(self, values: list[Alternative], name: str, first: int) -> list[Alternative]:
        """Take a field of a term, with all references but those before it."""
        taken = self._columns.taken(values, name)
        whole = {*_references(values)}
        others = [reference for reference in self._references[first:] if reference not in whole]
        self._references[first:] = [*others, *_references(taken)]
        return taken

    # -- values

    def _values(self, *arguments: list[_Piece]) -> list[Alternative]:
        """Return the alternatives of arguments."""
        pieces = [piece for argument in arguments for piece in argument]
        is_only = sum(not piece.decides for piece in pieces) == 1
        values: list[Alternative] = []
        for piece in pieces:
            plain = [Alternative(self._references[piece.references])]
            shown = piece.alternatives or plain
            values += shown if is_only else _changed(shown)
        return values

    def _text_of(self, argument: list[_Piece]) -> str:
        return self._source[argument[0].begin : argument[-1].end] if argument else ""

    def _bound_in(self, call: _Bracket) -> list[Alternative]:
        """Return what variables of a function stand for, which is an argument of a call."""
        number = len(self._references) - call.first + len(call.bound)
        return [*call.bound, *self._values(*call.arguments)] if number <= _MOST_BOUND else []

    def _made_by(self, bracket: _Bracket) -> list[Alternative]:
        """Return the alternatives of a call, if its fields can be followed."""
        function, arguments = bracket.function, bracket.arguments
        if fields := self._fields_made_by(function, arguments):
            return [Alternative(self._references[bracket.first :], fields=fields)]
        if function in _OF_ANY:
            is_shown = any(piece.alternatives for argument in arguments for piece in argument)
            return _changed(self._values(*arguments)) if is_shown else []
        if function == "cast":
            *pieces, of_type = arguments[0]
            return self._renamed(self._values(pieces), self._text_of([of_type]))
        if function == "transform" or (function == "lambdafunction" and bracket.bound):
            return _changed(self._values(arguments[-1 if function == "transform" else 0]))
        if function not in _OF_FIRST or not arguments[0]:
            return []
        values = _changed(self._values(arguments[0]))
        if function in _ELEMENTS and _VALUE in self._columns.fields_of(values):
            return _changed(self._take(values, _VALUE, bracket.first))
        others = self._references[arguments[0][-1].references.stop :]
        return [*values, Alternative([reference for reference in others if reference.decides])]

    def _fields_made_by(
        self, function: str, arguments: list[list[_Piece]]
    ) -> dict[str, list[Alternative]]:
        half, odd = divmod(len(arguments), 2)
        if odd or not half:
            return {}
        if function == "map":
            return {_KEY: self._values(*arguments[::2]), _VALUE: self._values(*arguments[1::2])}
        if function in _STRUCTS:
            names, values = arguments[::2], arguments[1::2]
        elif function == "arrays_zip":
            names, values = arguments[half:], arguments[:half]
        else:
            return {}
        return dict(zip(map(self._text_of, names), map(self._values, values), strict=True))

    def _renamed(self, values: list[Alternative], type_name: str) -> list[Alternative]:
        """Name the fields of structs as a type does, which has them in the same order."""
        names, depth = [], 0
        for mark in _IN_TYPE.finditer(type_name.partition("struct<")[2]):
            if mark["name"] and not depth:
                names.append(mark["name"])
            depth += (mark[0] == "<") - (mark[0] == ">")
        renamed = []
        for value in values:
            fields = {
                name: self._columns.taken([value], name)
                for name in self._columns.fields_of([value])
            }
            if len(fields) == len(names):
                fields = dict(zip(names, fields.values(), strict=True))
            renamed.append(Alternative(value.references, fields=fields))
        return renamed


def _changed(values: Iterable[Alternative]) -> list[Alternative]:
    return [value._replace(is_same=False) for value in values]


def _references(values: Iterable[Alternative]) -> list[Reference]:
    return [reference for value in values for reference in value.references]
