"""A grid of characters on which boxes and lines are drawn, and the characters that a terminal has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8

_ROUNDED = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"
_PLAIN = " |||-+++-+++-+++"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a picture.

    :param lines: for each sum of UP, DOWN, LEFT and RIGHT the line that leaves a cell in these directions.
    :param goes: marks what goes on further down, ``came`` what comes from further up.
    """

    lines: str
    arrow: str
    back_arrow: str
    ellipsis: str
    bullet: str
    goes: str
    came: str


UNICODE = Glyphs(lines=_ROUNDED, arrow="▶", back_arrow="←", ellipsis="…", bullet="●", goes="↓", came="↳")
ASCII = Glyphs(lines=_PLAIN, arrow=">", back_arrow="<-", ellipsis="...", bullet="*", goes="[v]", came="[^]")

Piece = tuple[str, str]
"""A text and its style (the name of a style of rich's, or empty)."""


def cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    from rich.cells import get_character_cell_size

    return sum(map(get_character_cell_size, text))


def shortened(text: str, width: int, ellipsis: str) -> str:
    """The text with its beginning left out where it is wider than this: the end of a path or table tells more.

    It is cut before a ``/``, or after a ``.``, where one of these leaves at least half of the room in use.
    """
    if cells(text) <= width:
        return text
    if width <= len(ellipsis):
        return ellipsis[:width]
    room = width - len(ellipsis)
    end = text
    while cells(end) > room:
        end = end[1:]
    for cut in (end.find("/"), end.find(".") + 1):
        if cut > 0 and cells(end[cut:]) * 2 >= room:
            return ellipsis + end[cut:]
    return ellipsis + end


@dataclass(slots=True)
class Canvas:
    """Texts at places, and lines between them; coordinates are column and row from 0."""

    glyphs: Glyphs
    _texts: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    _across: dict[tuple[int, int], tuple[int, Mapping[int, int]]] = field(default_factory=dict)
    _down: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def write(self, x: int, y: int, text: str, style: str = "") -> int:
        """Puts a text at a place, and returns the column after it."""
        for character in text:
            taken = cells(character)
            if taken:
                self._texts[x, y] = (character, style)
            elif (x - 1, y) in self._texts:
                self._texts[x - 1, y] = (self._texts[x - 1, y][0] + character, style)
            for behind in range(1, taken):
                self._texts[x + behind, y] = ("", style)
            x += taken
        return x

    def across(
        self, start: int, end: int, y: int, nets: Mapping[int, int], *, turns: tuple[bool, bool] = (False, False)
    ) -> None:
        """Draws a line to the right, from column to column.

        :param nets: per line down that it meets on which sides of it (LEFT, RIGHT or both); all others it crosses.
        :param turns: whether its first and its last cell are a corner, where it only comes to the middle.
        """
        for x in range(start, end + 1):
            sides = (0 if x == start and turns[0] else LEFT) | (0 if x == end and turns[1] else RIGHT)
            old, met = self._across.get((x, y), (0, {}))
            joined = {net: met.get(net, 0) | nets.get(net, 0) for net in (*met, *nets)}
            self._across[x, y] = (old | sides, joined)

    def down(self, x: int, top: int, bottom: int, net: int) -> None:
        """Draws the line down of a net, from row to row."""
        for y in range(top, bottom + 1):
            self._down[x, y] = ((UP if y > top else 0) | (DOWN if y < bottom else 0), net)

    def box(self, x: int, y: int, width: int, style: str) -> None:
        """Draws a box of three rows around row ``y``."""
        line = self.glyphs.lines
        edge = line[LEFT | RIGHT] * (width - 2)
        self.write(x, y - 1, line[DOWN | RIGHT] + edge + line[DOWN | LEFT], style)
        self.write(x, y, line[UP | DOWN], style)
        self.write(x + width - 1, y, line[UP | DOWN], style)
        self.write(x, y + 1, line[UP | RIGHT] + edge + line[UP | LEFT], style)

    def rows(self) -> list[list[Piece]]:
        """The drawing, row by row, neighbours of one style together."""
        drawn: dict[int, dict[int, Piece]] = {}
        for (x, y), piece in [*self._lines().items(), *self._texts.items()]:
            drawn.setdefault(y, {})[x] = piece
        return [_pieces(drawn.get(y, {})) for y in range(max(drawn, default=-1) + 1)]

    def _lines(self) -> dict[tuple[int, int], Piece]:
        found: dict[tuple[int, int], Piece] = {}
        for place in [*self._across, *self._down]:
            across, met = self._across.get(place, (0, {}))
            down, net = self._down.get(place, (0, -1))
            # Where two lines cross without meeting, the one across passes behind.
            sides = down | (across & met.get(net, 0)) if down else across
            found[place] = (self.glyphs.lines[sides], "dim")
        return found


def _pieces(row: Mapping[int, Piece]) -> list[Piece]:
    pieces: list[Piece] = []
    for x in range(max(row, default=-1) + 1):
        text, style = row.get(x, (" ", ""))
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + text, style)
        else:
            pieces.append((text, style))
    return pieces
