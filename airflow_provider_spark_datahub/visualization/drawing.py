"""A grid of characters on which boxes and lines are drawn, and the characters that a terminal has for them.

Draws flows of data: datasets on the left, the jobs that read them, the datasets that these write, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.visualization.flow import UNITS, Band, Flow, Rail, Stage, Track, arrange
from airflow_provider_spark_datahub.visualization.model import DatasetName

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


READABLE_NAME = 18
"""Columns that a dataset's name keeps at least before a flow is broken into bands."""

_READABLE_JOB = 20
_BOX = 4  # borders and blanks of a job's box
_LEAST_RANK = 12  # columns of the narrowest rank: lines, a box, lines
_LEAST_NAME = 8  # columns of a name's end that go before the platform does


@dataclass(slots=True)
class Drawing:
    """Rows of styled text.

    :param shortened: per full name that found no room the one that stands for it.
    :param broken: whether there is more than one band.
    """

    rows: list[list[Piece]] = field(default_factory=list)
    shortened: dict[str, str] = field(default_factory=dict)
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Pen:
    """How to draw.

    :param width: in columns of the terminal.
    :param name_of: the name of a dataset by its key.
    """

    width: int
    glyphs: Glyphs
    name_of: Callable[[str], DatasetName]


def draw(flow: Flow, pen: Pen) -> Drawing:
    """The flow, in one band where the width allows it, else in bands below each other.

    A dataset that one band writes and another reads stands in both, marked on the side where it goes on.
    """
    drawing = Drawing()
    first, top = 0, flow.stages[-1].rank
    while first <= top:
        sheet = _widest(flow, first, min(top, first + pen.width // _LEAST_RANK), pen)
        if first:
            drawing.rows.append([])
            drawing.broken = True
        drawing.rows.extend(sheet.paint(drawing.shortened))
        first += sheet.band.count
    return drawing


def _widest(flow: Flow, first: int, last: int, pen: Pen) -> _Sheet:
    """The most ranks from the first on that can be read side by side, one at least."""
    sheets = (_Sheet(arrange(flow, first, until), pen) for until in range(last, first - 1, -1))
    return next(sheet for sheet in sheets if sheet.readable or sheet.band.count == 1)


class _Sheet:
    """A band with columns."""

    def __init__(self, band: Band, pen: Pen) -> None:
        self.band = band
        self.pen = pen
        self.canvas = Canvas(pen.glyphs)
        units = band.count * UNITS + 1
        self.widths = [self._natural(unit) for unit in range(units)]
        self.readable = self._fit()
        self.lefts = [sum(self.widths[:unit]) for unit in range(units)]

    def _natural(self, unit: int) -> int:
        rank, part = divmod(unit, UNITS)
        if part == 0:
            labels = [_width(self._label(rail)) for rail in self.band.rails if rail.slot == rank]
            pads = (1 if unit else 0) + (1 if rank < self.band.count else 0)
            return max(labels) + pads if labels else 0
        if part == 2:
            return _BOX + max(cells(s.job.label) for s in self.band.stages if s.rank - self.band.first == rank)
        if unit not in self.band.tracks:
            return 0
        return 2 * self.band.lanes(unit) + 2

    def _fit(self) -> bool:
        """Narrows the widest columns of names until all fit; whether they are still readable then."""
        names = range(0, len(self.widths), 2)
        natural = list(self.widths)
        while sum(self.widths) > self.pen.width:
            widest = max(names, key=self.widths.__getitem__)
            if self.widths[widest] <= _BOX + 1:
                return False
            self.widths[widest] -= 1
        least = (READABLE_NAME, 0, _READABLE_JOB)
        return all(self.widths[unit] >= min(natural[unit], least[unit % UNITS]) for unit in names)

    def paint(self, names: dict[str, str]) -> list[list[Piece]]:
        for unit, tracks in self.band.tracks.items():
            for number, track in tracks.items():
                self._paint_track(unit, number, track)
        for rail in self.band.rails:
            self._paint_rail(rail)
        for rail in self.band.rails:
            self._paint_name(rail, names)
        for stage in self.band.stages:
            self._paint_job(stage, names)
        return self.canvas.rows()

    def _lane(self, unit: int, track: Track) -> int:
        return self.lefts[unit] + 1 + 2 * track.lane

    def _paint_track(self, unit: int, number: int, track: Track) -> None:
        """The line down, and the one between it and the job's box."""
        x, row = self._lane(unit, track), self.band.job_rows[number]
        self.canvas.down(x, min(track.rows), max(track.rows), track.net)
        net = {track.net: LEFT | RIGHT}
        if unit % UNITS == 1:
            end = self.lefts[unit] + self.widths[unit] - 1
            self.canvas.across(x, end, row, net, turns=(True, False))
            self.canvas.write(end, row, self.pen.glyphs.arrow, "dim")
        else:
            self.canvas.across(self.lefts[unit], x, row, net, turns=(False, True))

    def _paint_rail(self, rail: Rail) -> None:
        """The line of a dataset, but for the column in which its name stands."""
        for unit in range(rail.start, rail.end + 1):
            left, right = self.lefts[unit], self.lefts[unit] + self.widths[unit] - 1
            if unit % 2 == 0:
                if unit != rail.slot * UNITS:
                    self.canvas.across(left, right, rail.row, {})
                continue
            known = self.band.tracks.get(unit, {})
            stages = rail.readers if unit % UNITS == 1 else rail.writers
            met = [known[stage.number] for stage in stages if stage.number in known]
            lanes = [self._lane(unit, track) for track in met]
            ends = (unit == rail.start, unit == rail.end)
            start, end = (min(lanes) if ends[0] else left), (max(lanes) if ends[1] else right)
            nets = {track.net: self._meeting(unit, track, rail) for track in met}
            self.canvas.across(start, end, rail.row, nets, turns=ends)

    def _meeting(self, unit: int, track: Track, rail: Rail) -> int:
        """The sides on which a dataset's line meets the line down of a job.

        A line that goes on to another job meets on one side only, and goes on behind: else the job's other datasets
        would seem to go there too.
        """
        reads = unit % UNITS == 1
        alone = sum(track.net in {s.number for s in (r.readers if reads else r.writers)} for r in self.band.rails) == 1
        if alone or track.rows == {rail.row}:
            return LEFT | RIGHT
        return LEFT if reads else RIGHT

    def _paint_name(self, rail: Rail, names: dict[str, str]) -> None:
        unit = rail.slot * UNITS
        left, width = self.lefts[unit], self.widths[unit]
        if rail.start < unit:
            self.canvas.write(left - 1, rail.row, self.pen.glyphs.arrow, "dim")
        x = left + (1 if unit else 0)
        room = width - (1 if unit else 0) - (0 if unit == len(self.widths) - 1 else 1)
        pieces = self._label(rail)
        if _width(pieces) > room:
            full = self.pen.name_of(rail.version.dataset).text
            pieces = self._short_label(rail, room)
            names[full] = "".join(text for text, _ in pieces[1:-1]).strip()
        for text, style in pieces:
            x = self.canvas.write(x, rail.row, text, style)
        if rail.end > unit:
            self.canvas.across(x + 1, left + width - 1, rail.row, {})

    def _label(self, rail: Rail) -> list[Piece]:
        """Mark, platform, name, note and mark of a dataset."""
        glyphs, version = self.pen.glyphs, rail.version
        if version.folded:
            return [("", ""), (f"{glyphs.ellipsis} {version.folded} more", "dim italic"), ("", "")]
        name = self.pen.name_of(version.dataset)
        after = (f" {name.note}" if name.note else "") + (" (again)" if version.again else "")
        return [
            (f"{glyphs.came} " if rail.came else "", "cyan"),
            (f"{name.platform} " if name.platform else "", "dim"),
            (name.name, ""),
            (after, "yellow"),
            (f" {glyphs.goes}" if rail.goes else "", "cyan"),
        ]

    def _short_label(self, rail: Rail, room: int) -> list[Piece]:
        """The label with as much of the end of its name as there is room for, and without platform if need be."""
        came, platform, name, after, goes = self._label(rail)
        marks = _width([came, goes])
        choices: list[list[Piece]] = [[platform, after], [after], []]
        kept = next(kept for kept in choices if not kept or room - marks - _width(kept) >= _LEAST_NAME)
        short = (shortened(name[0], max(room - marks - _width(kept), 0), self.pen.glyphs.ellipsis), name[1])
        return [came, *(p for p in kept if p is platform), short, *(p for p in kept if p is after), goes]

    def _paint_job(self, stage: Stage, names: dict[str, str]) -> None:
        unit = (stage.rank - self.band.first) * UNITS + 2
        left, width, row = self.lefts[unit], self.widths[unit], self.band.job_rows[stage.number]
        label = shortened(stage.job.label, width - _BOX, self.pen.glyphs.ellipsis)
        if label != stage.job.label:
            names[stage.job.label] = label
        self.canvas.box(left, row, width, "green")
        self.canvas.write(left + 1 + (width - 2 - cells(label)) // 2, row, label, "bold green")


def _width(pieces: Sequence[Piece]) -> int:
    return sum(cells(text) for text, _ in pieces)
