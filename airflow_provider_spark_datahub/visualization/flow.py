"""Flows of data as drawings of characters: datasets on the left, the jobs that read them, their outputs, and so on.

Jobs that share datasets form a flow. Its jobs get ranks, its datasets places between their writers and readers. As many
ranks as fit the width form a band. In a band, jobs and datasets get rows, and the lines between them get columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, count, groupby
from operator import itemgetter

from rich.cells import get_character_cell_size

from airflow_provider_spark_datahub.visualization.layout import connected_groups
from airflow_provider_spark_datahub.visualization.model import GraphJob
from airflow_provider_spark_datahub.visualization.names import ShortName

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
Piece = tuple[str, str]
"""A text and its style (the name of a style of rich, or empty)."""

_MOST_PER_SIDE = 12  # datasets on each side of a job; all others are folded into one
_MOST_PER_RANK = 6  # jobs below each other: each needs lines of its own, which need width
_READABLE_NAME, _READABLE_JOB = 18, 20  # columns of a name; if fewer fit, the flow is broken into bands
_BOX = 4  # borders and blanks of a job's box
_LEAST_RANK = 12  # columns of the narrowest rank: lines, a box, lines
_LEAST_NAME = 8  # columns of a dataset's name; the platform is dropped first
_UNITS = 4  # columns of a rank: the datasets before it, the lines to its jobs, its jobs, the lines from them


def cell_width(text: str) -> int:
    """Return the number of terminal columns that the text takes."""
    return sum(map(get_character_cell_size, text))


@dataclass(frozen=True, slots=True)
class _Glyphs:
    """Characters of a drawing.

    :param lines: by the sum of directions, the line that leaves a cell in these directions.
    :param goes: marks a dataset that continues in a band below, ``came`` one from a band above.
    """

    lines: str
    arrow: str
    back_arrow: str
    ellipsis: str
    goes: str
    came: str

    def branch(self, *, last: bool) -> tuple[str, str]:
        """Return the tree's lines in front of an item, and those in front of the items below it."""
        turn = self.lines[_UP | _RIGHT if last else _UP | _DOWN | _RIGHT]
        return f"{turn}{self.lines[_LEFT | _RIGHT]} ", f"{' ' if last else self.lines[_UP | _DOWN]}  "

    def shorten(self, text: str, width: int) -> str:
        """Cut the beginning of a text that is too wide: the end of a path or table name says more.

        The cut is before a ``/`` or after a ``.`` if that leaves at least half of the width in use.
        """
        if cell_width(text) <= width:
            return text
        if width <= len(self.ellipsis):
            return self.ellipsis[:width]
        room = width - len(self.ellipsis)
        end = text
        while cell_width(end) > room:
            end = end[1:]
        for cut in (end.find("/"), end.find(".") + 1):
            if cut > 0 and cell_width(end[cut:]) * 2 >= room:
                return self.ellipsis + end[cut:]
        return self.ellipsis + end


UNICODE = _Glyphs(" ╵╷│╴╯╮┤╶╰╭├─┴┬┼", arrow="▶", back_arrow="←", ellipsis="…", goes="↓", came="↳")
ASCII = _Glyphs(" |||-+++-+++-+++", arrow=">", back_arrow="<-", ellipsis="...", goes="[v]", came="[^]")


@dataclass(slots=True)
class _Drawing:
    """A drawn flow, as rows of styled text.

    :param width: in columns of the terminal.
    :param name_of: returns the name of a dataset by its key.
    :param shortened: the shortened names in the drawing, by full name.
    :param broken: whether the flow continues in a second band.
    """

    width: int
    glyphs: _Glyphs
    name_of: Callable[[str], ShortName]
    rows: list[list[Piece]] = field(default_factory=list)
    shortened: dict[str, str] = field(default_factory=dict)
    broken: bool = False

    def draw(self, jobs: Sequence[GraphJob]) -> None:
        stages = _ranked(jobs)
        rails = _rails(stages)
        first, top = 0, stages[-1].rank
        while first <= top:
            # As many ranks as are readable side by side, at least one.
            last_ranks = range(min(top, first + self.width // _LEAST_RANK), first - 1, -1)
            sheets = (_Sheet(_Band(stages, rails, first, last), self) for last in last_ranks)
            sheet = next(sheet for sheet in sheets if sheet.readable or sheet.band.last == first)
            if first:
                self.rows.append([])
                self.broken = True
            self.rows.extend(sheet.paint())
            first = sheet.band.last + 1


def draw_flows(
    jobs: Sequence[GraphJob], width: int, glyphs: _Glyphs, name_of: Callable[[str], ShortName]
) -> list[_Drawing]:
    """Draw jobs as flows: jobs that share datasets, directly or through other jobs, are in one drawing.

    A flow that is too wide is broken into bands below each other. A dataset that one band writes and another reads is
    in both, with a mark on the side where it continues.

    :param width: in columns of the terminal.
    :param name_of: returns the name of a dataset by its key.
    """
    first_user: dict[str, int] = {}
    shared = [
        (first_user.setdefault(dataset, index), index)
        for index, job in enumerate(jobs)
        for dataset in (*job.inputs, *job.outputs)
    ]
    drawings = []
    for group in connected_groups(range(len(jobs)), shared):
        drawings.append(_Drawing(width, glyphs, name_of))
        drawings[-1].draw([jobs[index] for index in group])
    return drawings


@dataclass(slots=True, eq=False)
class _Stage:
    """A job in a flow.

    :param rank: 0 for a job without upstream jobs, else higher than the ranks of all of them.
    """

    job: GraphJob
    rank: int
    row: int = 0

    @property
    def unit(self) -> int:
        """The unit of its box, between those of its lines."""
        return self.rank * _UNITS + 2


def _ranked(jobs: Sequence[GraphJob]) -> list[_Stage]:
    """Return the jobs sorted by rank; a cycle of jobs begins with the first of them."""
    writers: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        for dataset in job.outputs:
            writers.setdefault(dataset, []).append(index)
    waits_for = [
        {writer for dataset in job.inputs for writer in writers.get(dataset, ()) if writer != index}
        for index, job in enumerate(jobs)
    ]
    ranks: dict[int, int] = {}
    crowd: Counter[int] = Counter()
    while len(ranks) < len(jobs):
        left = [index for index in range(len(jobs)) if index not in ranks]
        ready = [index for index in left if waits_for[index] <= ranks.keys()] or left[:1]
        for index in ready:
            rank = 1 + max((ranks[other] for other in waits_for[index] if other in ranks), default=-1)
            while crowd[rank] == _MOST_PER_RANK:
                rank += 1
            ranks[index] = rank
            crowd[rank] += 1
    return [_Stage(jobs[index], ranks[index]) for index in sorted(ranks, key=lambda index: (ranks[index], index))]


@dataclass(eq=False)
class _Rail:
    """A dataset between its writers and its readers; a dataset that is written again after a read has several rails.

    :param dataset: its key; empty for folded datasets.
    :param folded: how many datasets are folded into this one; 0 for a single dataset.
    :param again: whether an earlier rail of the dataset is in the flow.
    :param came: whether its writer is in a band above.
    :param goes: whether a reader or another writer is in a band below.
    :param tracks: the vertical lines that it meets.
    """

    dataset: str
    folded: int = 0
    again: bool = False
    writers: list[_Stage] = field(default_factory=list)
    readers: list[_Stage] = field(default_factory=list)
    came: bool = False
    goes: bool = False
    tracks: list[_Track] = field(default_factory=list)
    row: int = 0

    def within(self, first: int, last: int) -> _Rail | None:
        """Return its part in these ranks; ``None`` if it has none there."""
        writers = [stage for stage in self.writers if first <= stage.rank <= last]
        readers = [stage for stage in self.readers if first <= stage.rank <= last]
        if not writers and not readers:
            return None
        return replace(
            self,
            writers=writers,
            readers=readers,
            came=any(stage.rank < first for stage in self.writers),
            goes=any(stage.rank > last for stage in (*self.writers, *self.readers)),
            tracks=[],
        )

    @cached_property
    def slot(self) -> int:
        """The unit of its name: after its writers, or else before its readers."""
        if self.writers:
            return (max(stage.rank for stage in self.writers) + 1) * _UNITS
        return min(stage.rank for stage in self.readers) * _UNITS

    @cached_property
    def units(self) -> range:
        """The units that its line passes."""
        units = [self.slot, *(track.unit for track in self.tracks)]
        return range(min(units), max(units) + 1)

    def only_user(self, unit: int) -> _Stage | None:
        """Return the job of this unit that the line ends at, if it meets no other job there."""
        users = [track.stage for track in self.tracks if track.unit == unit]
        return users[0] if len(users) == 1 and unit in (self.units[0], self.units[-1]) else None


def _rails(stages: Sequence[_Stage]) -> list[_Rail]:
    """Return the datasets between jobs that are sorted by rank."""
    uses = Counter(dataset for stage in stages for dataset in {*stage.job.inputs, *stage.job.outputs})
    rails: dict[_Rail, None] = {}
    current: dict[str, _Rail] = {}
    for _, same_rank in groupby(stages, key=lambda stage: stage.rank):
        level = list(same_rank)
        for stage in level:
            for fresh in _side(stage.job.inputs, uses):
                rail = fresh if fresh.folded else current.setdefault(fresh.dataset, fresh)
                rail.readers.append(stage)
                rails[rail] = None
        for stage in level:
            for fresh in _side(stage.job.outputs, uses):
                rail = fresh if fresh.folded else _written(fresh, current)
                rail.writers.append(stage)
                rails[rail] = None
    return list(rails)


def _written(fresh: _Rail, current: dict[str, _Rail]) -> _Rail:
    """Return the rail that a job writes to: a new one if the last one was read already."""
    old = current.get(fresh.dataset)
    if old is not None and not old.readers:
        return old
    fresh.again = old is not None
    current[fresh.dataset] = fresh
    return fresh


def _side(datasets: Collection[str], uses: Mapping[str, int]) -> list[_Rail]:
    if len(datasets) <= _MOST_PER_SIDE:
        return [_Rail(dataset) for dataset in datasets]
    joining_first = sorted(datasets, key=lambda dataset: uses[dataset] < 2)[:_MOST_PER_SIDE]
    shown = [dataset for dataset in datasets if dataset in set(joining_first)]
    return [*map(_Rail, shown), _Rail("", folded=len(datasets) - len(shown))]


@dataclass(slots=True)
class _Track:
    """The vertical line between a job and its datasets on one side.

    :param lane: its column among the vertical lines, from 0; lines that do not touch share one.
    """

    unit: int
    stage: _Stage
    rails: list[_Rail]
    lane: int = 0

    def rows(self) -> set[int]:
        """Return the rows of the job and the datasets."""
        return {self.stage.row, *(rail.row for rail in self.rails)}

    def joint(self, rail: _Rail) -> int:
        """Return the sides on which the line of a dataset meets this one.

        A line that continues to another job meets on one side only and then passes behind. Otherwise the first job's
        other datasets would seem to lead to that job, too.
        """
        if len(self.rails) == 1 or self.rows() == {rail.row}:
            return _LEFT | _RIGHT
        return _LEFT if self.unit < self.stage.unit else _RIGHT


class _Band:
    """Consecutive ranks of a flow, drawn side by side; jobs and datasets have rows, and no two lines overlap."""

    def __init__(self, flow: Sequence[_Stage], rails: Sequence[_Rail], first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.stages = [stage for stage in flow if first <= stage.rank <= last]
        self.rails = [part for rail in rails if (part := rail.within(first, last))]
        self.tracks: list[_Track] = []
        self._taken: dict[tuple[int, int], _Rail | _Stage] = {}
        self._placed: set[_Rail] = set()
        sides = [(self._track(stage, stage.unit - 1), self._track(stage, stage.unit + 1)) for stage in self.stages]
        for inputs, outputs in sides:
            self._place(inputs, outputs)
        top = min(row for _, row in self._taken)
        for rail in self.rails:
            rail.row -= top
        for stage in self.stages:
            stage.row -= top
        ends: dict[int, list[int]] = {}
        for track in sorted(self.tracks, key=lambda track: min(track.rows())):
            rows, lanes = track.rows(), ends.setdefault(track.unit, [])
            track.lane = next((lane for lane, end in enumerate(lanes) if end < min(rows)), len(lanes))
            lanes[track.lane : track.lane + 1] = [max(rows)]

    def _track(self, stage: _Stage, unit: int) -> _Track:
        """Return the line to the datasets on one side of a job; it is drawn if there are any."""
        rails = [rail for rail in self.rails if stage in (rail.readers if unit < stage.unit else rail.writers)]
        track = _Track(unit, stage, rails)
        for rail in rails:
            rail.tracks.append(track)
        self.tracks += [track] if rails else []
        return track

    def _place(self, inputs: _Track, outputs: _Track) -> None:
        stage, count = inputs.stage, len(inputs.rails)
        self._place_rails(inputs.rails, self._middle([*inputs.rails, *outputs.rails], count))
        middle = self._middle([rail for rail in inputs.rails if rail.writers] or inputs.rails, count)
        stage.row = next(row for row in _outwards(middle) if self._job_fits(stage, row))
        self._taken |= {(stage.unit, row): stage for row in (stage.row - 1, stage.row, stage.row + 1)}
        for track in (inputs, outputs):
            if track.rails:
                self._taken.setdefault((track.unit, stage.row), stage)
        self._place_rails(outputs.rails, stage.row)

    def _middle(self, rails: Sequence[_Rail], inputs: int) -> int:
        rows = sorted(rail.row for rail in rails if rail in self._placed)
        if rows:
            return (rows[0] + rows[-1]) // 2
        return max(row for _, row in self._taken) + 2 + max(3, inputs) // 2 if self._taken else 0

    def _place_rails(self, rails: Sequence[_Rail], middle: int) -> None:
        """Place what has no row yet below each other."""
        waiting = [rail for rail in rails if rail not in self._placed]
        lines = [[(unit, rail.only_user(unit) or rail) for unit in rail.units] for rail in waiting]
        start = next(
            start
            for start in _outwards(middle - (len(waiting) - 1) // 2)
            if all(self._taken.get((unit, start + n), on) is on for n, line in enumerate(lines) for unit, on in line)
        )
        for row, (rail, line) in enumerate(zip(waiting, lines, strict=True), start):
            rail.row = row
            self._placed.add(rail)
            for unit, on in line:
                self._taken.setdefault((unit, row), on)

    def _job_fits(self, stage: _Stage, row: int) -> bool:
        """Return whether the box fits: nothing is in its way, its lines meet its own only, and no box touches it."""
        around = [self._taken.get((stage.unit, beside)) for beside in range(row - 2, row + 3)]
        beside = [self._taken.get((unit, row), stage) for unit in (stage.unit - 1, stage.unit + 1)]
        return (
            not any(around[1:-1])
            and not any(isinstance(there, _Stage) for there in around)
            and all(there is stage for there in beside)
        )


def _outwards(middle: int) -> Iterator[int]:
    """Yield the row, the row after it, the row before it, and so on."""
    yield middle
    for distance in count(1):
        yield middle + distance
        yield middle - distance


class _Sheet:
    """A band with the columns of its units, ready to be painted."""

    def __init__(self, band: _Band, drawing: _Drawing) -> None:
        self.band = band
        self.drawing = drawing
        self.glyphs = drawing.glyphs
        self.canvas = _Canvas(drawing.glyphs)
        self.units = range(band.first * _UNITS, (band.last + 1) * _UNITS + 1)
        self.widths = {unit: self._natural(unit) for unit in self.units}
        self.readable = self._fit()
        self.lefts = dict(zip(self.units, accumulate(self.widths.values(), initial=0), strict=False))

    def _natural(self, unit: int) -> int:
        """Return the width at which nothing is shortened."""
        part = unit % _UNITS
        if part == 0:
            labels = [_width(self._label(rail)) for rail in self.band.rails if rail.slot == unit]
            return max(labels) + sum(self._pads(unit)) if labels else 0
        if part == 2:
            return _BOX + max(cell_width(stage.job.name) for stage in self.band.stages if stage.unit == unit)
        lanes = [track.lane for track in self.band.tracks if track.unit == unit]
        return 4 + 2 * max(lanes) if lanes else 0

    def _pads(self, unit: int) -> tuple[bool, bool]:
        """Return whether names in this unit have a blank on each side, for a line."""
        return unit != self.units[0], unit != self.units[-1]

    def _fit(self) -> bool:
        """Narrow the widest columns of names until all fit, and return whether they are still readable."""
        names, natural = self.units[::2], dict(self.widths)
        while sum(self.widths.values()) > self.drawing.width:
            widest = max(names, key=self.widths.__getitem__)
            if self.widths[widest] <= _BOX + 1:
                return False
            self.widths[widest] -= 1
        least = (_READABLE_NAME, 0, _READABLE_JOB)
        return all(self.widths[unit] >= min(natural[unit], least[unit % _UNITS]) for unit in names)

    def _right(self, unit: int) -> int:
        return self.lefts[unit] + self.widths[unit] - 1

    def paint(self) -> list[list[Piece]]:
        for track in self.band.tracks:
            self._paint_track(track)
        for rail in self.band.rails:
            self._paint_rail(rail)
        for stage in self.band.stages:
            self._paint_job(stage)
        return self.canvas.rows()

    def _x(self, track: _Track) -> int:
        return self.lefts[track.unit] + 1 + 2 * track.lane

    def _paint_track(self, track: _Track) -> None:
        """Paint the vertical line, and the line between it and the job's box."""
        x, row, rows = self._x(track), track.stage.row, track.rows()
        self.canvas.down(x, min(rows), max(rows))
        self.canvas.join(x, row, _LEFT | _RIGHT)
        if track.unit < track.stage.unit:
            self.canvas.across(x, self._right(track.unit), row, turns=(True, False))
            self.canvas.write(self._right(track.unit), row, self.glyphs.arrow, "dim")
        else:
            self.canvas.across(self.lefts[track.unit], x, row, turns=(False, True))

    def _paint_rail(self, rail: _Rail) -> None:
        """Paint a dataset: the line from its writers, its name, and the line to its readers."""
        left, (before, after) = self.lefts[rail.slot], self._pads(rail.slot)
        room = self.widths[rail.slot] - before - after
        pieces = self._label(rail)
        if _width(pieces) > room:
            pieces = self._short_label(rail, room)
            full = self.drawing.name_of(rail.dataset).text
            self.drawing.shortened[full] = "".join(text for text, _ in pieces[1:-1]).strip()
        x = left + before
        for text, style in pieces:
            x = self.canvas.write(x, rail.row, text, style)
        for track in rail.tracks:
            self.canvas.join(self._x(track), rail.row, track.joint(rail))
        lanes = [self._x(track) for track in rail.tracks]
        if rail.writers:
            self.canvas.across(min(lanes), left - 1, rail.row, turns=(True, False))
            self.canvas.write(left - 1, rail.row, self.glyphs.arrow, "dim")
        if rail.readers:
            self.canvas.across(x + 1, max(lanes), rail.row, turns=(False, True))

    def _label(self, rail: _Rail) -> list[Piece]:
        """Return mark, platform, name, note and mark of a dataset."""
        if rail.folded:
            return [("", ""), (f"{self.glyphs.ellipsis} {rail.folded} more", "dim italic"), ("", "")]
        name = self.drawing.name_of(rail.dataset)
        after = (f" {name.note}" if name.note else "") + (" (again)" if rail.again else "")
        return [
            (f"{self.glyphs.came} " if rail.came else "", "cyan"),
            (f"{name.platform} " if name.platform else "", "dim"),
            (name.name, ""),
            (after, "yellow"),
            (f" {self.glyphs.goes}" if rail.goes else "", "cyan"),
        ]

    def _short_label(self, rail: _Rail, room: int) -> list[Piece]:
        """Return the label with a shortened name, and without platform and note if they do not fit."""
        came, platform, name, after, goes = self._label(rail)
        room -= _width([came, goes])
        choices: list[list[Piece]] = [[platform, after], [after], []]
        kept = next(kept for kept in choices if not kept or room - _width(kept) >= _LEAST_NAME)
        short = (self.glyphs.shorten(name[0], max(room - _width(kept), 0)), name[1])
        return [came, *(p for p in kept if p is platform), short, *(p for p in kept if p is after), goes]

    def _paint_job(self, stage: _Stage) -> None:
        left, width = self.lefts[stage.unit], self.widths[stage.unit]
        label = self.glyphs.shorten(stage.job.name, width - _BOX)
        if label != stage.job.name:
            self.drawing.shortened[stage.job.name] = label
        self.canvas.box(left, stage.row, width, "green")
        self.canvas.write(left + 1 + (width - 2 - cell_width(label)) // 2, stage.row, label, "bold green")


def _width(pieces: Sequence[Piece]) -> int:
    return sum(cell_width(text) for text, _ in pieces)


@dataclass(slots=True)
class _Canvas:
    """Grid of characters with texts, lines and boxes; coordinates are column and row, from 0."""

    glyphs: _Glyphs
    _texts: dict[tuple[int, int], Piece] = field(default_factory=dict)
    _across: dict[tuple[int, int], int] = field(default_factory=dict)
    _down: dict[tuple[int, int], int] = field(default_factory=dict)
    _joints: dict[tuple[int, int], int] = field(default_factory=dict)

    def write(self, x: int, y: int, text: str, style: str = "") -> int:
        """Write a text, and return the column after it."""
        for character in text:
            taken = cell_width(character)
            if taken:
                self._texts[x, y] = (character, style)
            elif (x - 1, y) in self._texts:
                self._texts[x - 1, y] = (self._texts[x - 1, y][0] + character, style)
            for behind in range(1, taken):
                self._texts[x + behind, y] = ("", style)
            x += taken
        return x

    def across(self, start: int, end: int, y: int, *, turns: tuple[bool, bool]) -> None:
        """Draw a horizontal line.

        :param turns: whether its first and its last cell are corners.
        """
        for x in range(start, end + 1):
            sides = (0 if x == start and turns[0] else _LEFT) | (0 if x == end and turns[1] else _RIGHT)
            self._across[x, y] = self._across.get((x, y), 0) | sides

    def down(self, x: int, top: int, bottom: int) -> None:
        for y in range(top, bottom + 1):
            self._down[x, y] = (_UP if y > top else 0) | (_DOWN if y < bottom else 0)

    def join(self, x: int, y: int, sides: int) -> None:
        """Let a horizontal line meet the vertical one on these sides."""
        self._joints[x, y] = self._joints.get((x, y), 0) | sides

    def box(self, x: int, y: int, width: int, style: str) -> None:
        """Draw a box of three rows around row ``y``."""
        line = self.glyphs.lines
        edge = line[_LEFT | _RIGHT] * (width - 2)
        self.write(x, y - 1, line[_DOWN | _RIGHT] + edge + line[_DOWN | _LEFT], style)
        self.write(x, y, line[_UP | _DOWN], style)
        self.write(x + width - 1, y, line[_UP | _DOWN], style)
        self.write(x, y + 1, line[_UP | _RIGHT] + edge + line[_UP | _LEFT], style)

    def rows(self) -> list[list[Piece]]:
        """Return the drawing row by row, with neighbours of the same style in one piece."""
        drawn: dict[int, dict[int, Piece]] = {}
        for place in (*self._across, *self._down):
            sides, down = self._across.get(place, 0), self._down.get(place, 0)
            if down:  # if two lines cross without meeting, the horizontal one passes behind
                sides = down | (sides & self._joints.get(place, 0))
            drawn.setdefault(place[1], {})[place[0]] = (self.glyphs.lines[sides], "dim")
        for (x, y), piece in self._texts.items():
            drawn.setdefault(y, {})[x] = piece
        return [_pieces(drawn.get(y, {})) for y in range(max(drawn, default=-1) + 1)]


def _pieces(row: Mapping[int, Piece]) -> list[Piece]:
    cells = (row.get(x, (" ", "")) for x in range(max(row, default=-1) + 1))
    return [("".join(text for text, _ in same), style) for style, same in groupby(cells, key=itemgetter(1))]
