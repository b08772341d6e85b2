"""Flows of data as drawings of characters: datasets on the left, the jobs that read them, their outputs, and so on.

Jobs that share datasets form a flow. Its jobs get ranks, its datasets places between their writers and readers. As many
ranks as fit the width form a band. In a band, jobs and datasets get rows, and the lines between them get columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

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
class Glyphs:
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

    @staticmethod
    def of(*, fancy: bool) -> Glyphs:
        """Return lines of Unicode, or else of plain ASCII."""
        return _UNICODE if fancy else _ASCII

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


_UNICODE = Glyphs(" ╵╷│╴╯╮┤╶╰╭├─┴┬┼", arrow="▶", back_arrow="←", ellipsis="…", goes="↓", came="↳")
_ASCII = Glyphs(" |||-+++-+++-+++", arrow=">", back_arrow="<-", ellipsis="...", goes="[v]", came="[^]")


@dataclass(slots=True)
class _Drawing:
    """A drawn flow, as rows of styled text.

    :param shortened: the shortened names in the drawing, by full name.
    :param broken: whether the flow continues in a second band.
    """

    rows: list[list[Piece]] = field(default_factory=list)
    shortened: dict[str, str] = field(default_factory=dict)
    broken: bool = False


@dataclass(frozen=True, slots=True)
class _Pen:
    width: int
    glyphs: Glyphs
    name_of: Callable[[str], ShortName]


def draw_flows(
    jobs: Sequence[GraphJob], width: int, glyphs: Glyphs, name_of: Callable[[str], ShortName]
) -> list[_Drawing]:
    """Draw jobs as flows: jobs that share datasets, directly or through other jobs, are in one drawing.

    A flow that is too wide is broken into bands below each other. A dataset that one band writes and another reads is
    in both, with a mark on the side where it continues.

    :param width: in columns of the terminal.
    :param name_of: returns the name of a dataset by its key.
    """
    pen = _Pen(width, glyphs, name_of)
    first_user: dict[str, int] = {}
    shared = [
        (first_user.setdefault(dataset, index), index)
        for index, job in enumerate(jobs)
        for dataset in (*job.inputs, *job.outputs)
    ]
    groups = connected_groups(range(len(jobs)), shared)
    return [_draw(*_stages_and_versions([jobs[index] for index in group]), pen) for group in groups]


def _draw(stages: Sequence[_Stage], versions: Sequence[_DatasetVersion], pen: _Pen) -> _Drawing:
    drawing = _Drawing()
    first, top = 0, stages[-1].rank
    while first <= top:
        # As many ranks as are readable side by side, at least one.
        last_ranks = range(min(top, first + pen.width // _LEAST_RANK), first - 1, -1)
        sheets = (_Sheet(_arranged(stages, versions, first, last), pen) for last in last_ranks)
        sheet = next(sheet for sheet in sheets if sheet.readable or sheet.band.count == 1)
        if first:
            drawing.rows.append([])
            drawing.broken = True
        drawing.rows.extend(sheet.paint(drawing.shortened))
        first += sheet.band.count
    return drawing


@dataclass(slots=True, eq=False)
class _Stage:
    """A job in a flow.

    :param rank: 0 for a job without upstream jobs, else higher than the ranks of all of them.
    """

    job: GraphJob
    rank: int
    number: int


@dataclass(slots=True, eq=False)
class _DatasetVersion:
    """A dataset between its writers and its readers; a dataset that is written again after a read has several.

    :param dataset: its key; empty for folded datasets.
    :param folded: how many datasets are folded into this one; 0 for a single dataset.
    :param again: whether an earlier version of the dataset is in the flow.
    """

    dataset: str
    folded: int = 0
    again: bool = False
    writers: list[_Stage] = field(default_factory=list)
    readers: list[_Stage] = field(default_factory=list)


def _stages_and_versions(jobs: Sequence[GraphJob]) -> tuple[list[_Stage], list[_DatasetVersion]]:
    """Return the stages of jobs that share datasets, sorted by rank, and the datasets between them."""
    stages = _ranked(jobs)
    uses = Counter(dataset for job in jobs for dataset in {*job.inputs, *job.outputs})
    versions: dict[_DatasetVersion, None] = {}
    current: dict[str, _DatasetVersion] = {}
    for rank in range(stages[-1].rank + 1):
        level = [stage for stage in stages if stage.rank == rank]
        for stage in level:
            for fresh in _side(stage.job.inputs, uses):
                version = fresh if fresh.folded else current.setdefault(fresh.dataset, fresh)
                version.readers.append(stage)
                versions[version] = None
        for stage in level:
            for fresh in _side(stage.job.outputs, uses):
                version = fresh if fresh.folded else _written(fresh, current)
                version.writers.append(stage)
                versions[version] = None
    return stages, list(versions)


def _written(fresh: _DatasetVersion, current: dict[str, _DatasetVersion]) -> _DatasetVersion:
    """Return the version that a job writes: a new one if the last one was read already."""
    old = current.get(fresh.dataset)
    if old is not None and not old.readers:
        return old
    fresh.again = old is not None
    current[fresh.dataset] = fresh
    return fresh


def _side(datasets: Sequence[str], uses: Mapping[str, int]) -> list[_DatasetVersion]:
    if len(datasets) <= _MOST_PER_SIDE:
        return [_DatasetVersion(dataset) for dataset in datasets]
    joining_first = sorted(datasets, key=lambda dataset: uses[dataset] < 2)[:_MOST_PER_SIDE]
    shown = [dataset for dataset in datasets if dataset in set(joining_first)]
    return [*(_DatasetVersion(dataset) for dataset in shown), _DatasetVersion("", folded=len(datasets) - len(shown))]


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
    order = sorted(ranks, key=lambda index: (ranks[index], index))
    return [_Stage(jobs[index], ranks[index], number) for number, index in enumerate(order)]


@dataclass(slots=True, eq=False)
class _Rail:
    """The row of a dataset in a band.

    :param slot: the rank of the band, from 0, before which its name is placed.
    :param start: the first unit of its line, ``end`` the last.
    :param came: whether its writer is in a band above.
    :param goes: whether a reader or another writer is in a band below.
    """

    version: _DatasetVersion
    writers: list[_Stage]
    readers: list[_Stage]
    slot: int
    start: int
    end: int
    came: bool
    goes: bool
    row: int = 0


@dataclass(slots=True)
class _Track:
    """The vertical line between a job and its datasets on one side.

    :param net: the number of the job's stage.
    :param lane: its column among the vertical lines, from 0; lines that do not touch share one.
    """

    net: int
    rows: set[int]
    lane: int = 0


@dataclass(slots=True)
class _Band:
    """Consecutive ranks of a flow, drawn side by side.

    :param first: the lowest rank, ``count`` the number of ranks.
    :param tracks: by unit and stage number.
    """

    first: int
    count: int
    stages: list[_Stage]
    rails: list[_Rail]
    job_rows: dict[int, int] = field(default_factory=dict)
    tracks: dict[int, dict[int, _Track]] = field(default_factory=dict)


def _arranged(flow: Sequence[_Stage], versions: Sequence[_DatasetVersion], first: int, last: int) -> _Band:
    """Assign rows to the jobs and datasets of these ranks, and lanes to their lines."""
    stages = [stage for stage in flow if first <= stage.rank <= last]
    rails = [rail for version in versions if (rail := _rail(version, first, last))]
    band = _Band(first, last - first + 1, stages, rails)
    _Rows(band).assign()
    for stage in stages:
        at = (stage.rank - first) * _UNITS
        for unit, rows in (
            (at + 1, {rail.row for rail in rails if stage in rail.readers}),
            (at + 3, {rail.row for rail in rails if stage in rail.writers}),
        ):
            if rows:
                row = band.job_rows[stage.number]
                band.tracks.setdefault(unit, {})[stage.number] = _Track(stage.number, rows | {row})
    for tracks in band.tracks.values():
        ends: list[int] = []
        for track in sorted(tracks.values(), key=lambda track: min(track.rows)):
            lane = next((lane for lane, end in enumerate(ends) if end < min(track.rows)), len(ends))
            ends[lane : lane + 1] = [max(track.rows)]
            track.lane = lane
    return band


def _rail(version: _DatasetVersion, first: int, last: int) -> _Rail | None:
    writers = [stage for stage in version.writers if first <= stage.rank <= last]
    readers = [stage for stage in version.readers if first <= stage.rank <= last]
    if not writers and not readers:
        return None
    reads = [stage.rank - first for stage in readers]
    writes = [stage.rank - first for stage in writers]
    slot = max(writes) + 1 if writes else min(reads)
    return _Rail(
        version,
        writers,
        readers,
        slot,
        start=min(writes) * _UNITS + 3 if writes else slot * _UNITS,
        end=max(reads) * _UNITS + 1 if reads else slot * _UNITS,
        came=any(stage.rank < first for stage in version.writers),
        goes=any(stage.rank > last for stage in (*version.writers, *version.readers)),
    )


class _Rows:
    """Assignment of rows to jobs and datasets so that no two lines overlap."""

    def __init__(self, band: _Band) -> None:
        self.band = band
        self.taken: dict[tuple[int, int], _Rail | _Stage] = {}
        self.placed: set[int] = set()

    def assign(self) -> None:
        for stage in self.band.stages:
            inputs = [rail for rail in self.band.rails if stage in rail.readers]
            outputs = [rail for rail in self.band.rails if stage in rail.writers]
            self._place_rails(inputs, self._middle([*inputs, *outputs], stage))
            straight = [rail for rail in inputs if rail.writers] or inputs
            self._place_job(stage, self._middle(straight, stage), inputs, outputs)
            self._place_rails(outputs, self.band.job_rows[stage.number])
        top = min(row for _, row in self.taken)
        for rail in self.band.rails:
            rail.row -= top
        self.band.job_rows = {number: row - top for number, row in self.band.job_rows.items()}

    def _middle(self, rails: Sequence[_Rail], stage: _Stage) -> int:
        rows = sorted(rail.row for rail in rails if id(rail) in self.placed)
        if rows:
            return (rows[0] + rows[-1]) // 2
        below = max((row for _, row in self.taken), default=-2)
        tallest = max(3, sum(stage in rail.readers for rail in self.band.rails))
        return below + 2 + tallest // 2 if self.taken else 0

    def _place_rails(self, rails: Sequence[_Rail], middle: int) -> None:
        waiting = [rail for rail in rails if id(rail) not in self.placed]
        top = middle - (len(waiting) - 1) // 2
        start = next(
            start
            for start in (top + offset for offset in _outwards())
            if all(self._rail_fits(rail, row) for row, rail in enumerate(waiting, start))
        )
        for row, rail in enumerate(waiting, start):
            rail.row = row
            self.placed.add(id(rail))
            for unit in range(rail.start, rail.end + 1):
                self.taken.setdefault((unit, row), rail)

    def _rail_fits(self, rail: _Rail, row: int) -> bool:
        units = range(rail.start, rail.end + 1)
        return all(self._meets(self.taken.get((unit, row)), rail, unit) for unit in units)

    def _meets(self, there: _Rail | _Stage | None, rail: _Rail, unit: int) -> bool:
        """Return whether the dataset's line may be here: the place is free, or has the line of its only job."""
        if there is None:
            return True
        if not isinstance(there, _Stage):
            return False
        at = (there.rank - self.band.first) * _UNITS
        users = rail.readers if unit == at + 1 == rail.end else rail.writers if unit == at + 3 == rail.start else []
        return [stage for stage in users if stage.rank == there.rank] == [there]

    def _place_job(self, stage: _Stage, middle: int, inputs: Sequence[_Rail], outputs: Sequence[_Rail]) -> None:
        at = (stage.rank - self.band.first) * _UNITS
        row = next(row for offset in _outwards() if self._job_fits(stage, at, row := middle + offset))
        self.band.job_rows[stage.number] = row
        for beside in (row - 1, row, row + 1):
            self.taken[at + 2, beside] = stage
        for unit, rails in ((at + 1, inputs), (at + 3, outputs)):
            if rails:
                self.taken.setdefault((unit, row), stage)

    def _job_fits(self, stage: _Stage, at: int, row: int) -> bool:
        around = [self.taken.get((at + 2, beside)) for beside in range(row - 2, row + 3)]
        if any(around[1:-1]) or any(isinstance(there, _Stage) for there in around):
            return False
        for unit in (at + 1, at + 3):
            there = self.taken.get((unit, row))
            if isinstance(there, _Stage) or (there and not self._meets(stage, there, unit)):
                return False
        return True


def _outwards() -> Iterator[int]:
    """Yield 0, 1, -1, 2, -2 and so on."""
    yield 0
    for distance in count(1):
        yield distance
        yield -distance


class _Sheet:
    """A band with the columns of its units, ready to be painted."""

    def __init__(self, band: _Band, pen: _Pen) -> None:
        self.band = band
        self.pen = pen
        self.canvas = _Canvas(pen.glyphs)
        units = band.count * _UNITS + 1
        self.widths = [self._natural(unit) for unit in range(units)]
        self.readable = self._fit()
        self.lefts = [sum(self.widths[:unit]) for unit in range(units)]

    def _natural(self, unit: int) -> int:
        rank, part = divmod(unit, _UNITS)
        if part == 0:
            labels = [_width(self._label(rail)) for rail in self.band.rails if rail.slot == rank]
            pads = (1 if unit else 0) + (1 if rank < self.band.count else 0)
            return max(labels) + pads if labels else 0
        if part == 2:
            return _BOX + max(cell_width(s.job.name) for s in self.band.stages if s.rank - self.band.first == rank)
        tracks = self.band.tracks.get(unit)
        return 4 + 2 * max(track.lane for track in tracks.values()) if tracks else 0

    def _fit(self) -> bool:
        """Narrow the widest columns of names until all fit, and return whether they are still readable."""
        names = range(0, len(self.widths), 2)
        natural = list(self.widths)
        while sum(self.widths) > self.pen.width:
            widest = max(names, key=self.widths.__getitem__)
            if self.widths[widest] <= _BOX + 1:
                return False
            self.widths[widest] -= 1
        least = (_READABLE_NAME, 0, _READABLE_JOB)
        return all(self.widths[unit] >= min(natural[unit], least[unit % _UNITS]) for unit in names)

    def paint(self, names: dict[str, str]) -> list[list[Piece]]:
        for unit, tracks in self.band.tracks.items():
            for track in tracks.values():
                self._paint_track(unit, track)
        for rail in self.band.rails:
            self._paint_rail(rail)
        for rail in self.band.rails:
            self._paint_name(rail, names)
        for stage in self.band.stages:
            self._paint_job(stage, names)
        return self.canvas.rows()

    def _lane(self, unit: int, track: _Track) -> int:
        return self.lefts[unit] + 1 + 2 * track.lane

    def _paint_track(self, unit: int, track: _Track) -> None:
        """Paint the vertical line, and the line between it and the job's box."""
        x, row = self._lane(unit, track), self.band.job_rows[track.net]
        self.canvas.down(x, min(track.rows), max(track.rows), track.net)
        net = {track.net: _LEFT | _RIGHT}
        if unit % _UNITS == 1:
            end = self.lefts[unit] + self.widths[unit] - 1
            self.canvas.across(x, end, row, net, turns=(True, False))
            self.canvas.write(end, row, self.pen.glyphs.arrow, "dim")
        else:
            self.canvas.across(self.lefts[unit], x, row, net, turns=(False, True))

    def _paint_rail(self, rail: _Rail) -> None:
        """Paint the line of a dataset, except in the column of its name."""
        for unit in range(rail.start, rail.end + 1):
            left, right = self.lefts[unit], self.lefts[unit] + self.widths[unit] - 1
            if unit % 2 == 0:
                if unit != rail.slot * _UNITS:
                    self.canvas.across(left, right, rail.row, {})
                continue
            known = self.band.tracks.get(unit, {})
            stages = rail.readers if unit % _UNITS == 1 else rail.writers
            met = [known[stage.number] for stage in stages if stage.number in known]
            lanes = [self._lane(unit, track) for track in met]
            ends = (unit == rail.start, unit == rail.end)
            start, end = (min(lanes) if ends[0] else left), (max(lanes) if ends[1] else right)
            nets = {track.net: self._meeting(unit, track, rail) for track in met}
            self.canvas.across(start, end, rail.row, nets, turns=ends)

    def _meeting(self, unit: int, track: _Track, rail: _Rail) -> int:
        """Return the sides on which a dataset's line meets the vertical line of a job.

        A line that continues to another job meets on one side only and then passes behind. Otherwise the first job's
        other datasets would seem to lead to that job, too.
        """
        reads = unit % _UNITS == 1
        alone = sum(track.net in {s.number for s in (r.readers if reads else r.writers)} for r in self.band.rails) == 1
        if alone or track.rows == {rail.row}:
            return _LEFT | _RIGHT
        return _LEFT if reads else _RIGHT

    def _paint_name(self, rail: _Rail, names: dict[str, str]) -> None:
        unit = rail.slot * _UNITS
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

    def _label(self, rail: _Rail) -> list[Piece]:
        """Return mark, platform, name, note and mark of a dataset."""
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

    def _short_label(self, rail: _Rail, room: int) -> list[Piece]:
        """Return the label with a shortened name, and without platform and note if they do not fit."""
        came, platform, name, after, goes = self._label(rail)
        marks = _width([came, goes])
        choices: list[list[Piece]] = [[platform, after], [after], []]
        kept = next(kept for kept in choices if not kept or room - marks - _width(kept) >= _LEAST_NAME)
        short = (self.pen.glyphs.shorten(name[0], max(room - marks - _width(kept), 0)), name[1])
        return [came, *(p for p in kept if p is platform), short, *(p for p in kept if p is after), goes]

    def _paint_job(self, stage: _Stage, names: dict[str, str]) -> None:
        unit = (stage.rank - self.band.first) * _UNITS + 2
        left, width, row = self.lefts[unit], self.widths[unit], self.band.job_rows[stage.number]
        label = self.pen.glyphs.shorten(stage.job.name, width - _BOX)
        if label != stage.job.name:
            names[stage.job.name] = label
        self.canvas.box(left, row, width, "green")
        self.canvas.write(left + 1 + (width - 2 - cell_width(label)) // 2, row, label, "bold green")


def _width(pieces: Sequence[Piece]) -> int:
    return sum(cell_width(text) for text, _ in pieces)


@dataclass(slots=True)
class _Canvas:
    """Grid of characters with texts, lines and boxes; coordinates are column and row, from 0."""

    glyphs: Glyphs
    _texts: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    _across: dict[tuple[int, int], tuple[int, Mapping[int, int]]] = field(default_factory=dict)
    _down: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

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

    def across(
        self, start: int, end: int, y: int, nets: Mapping[int, int], *, turns: tuple[bool, bool] = (False, False)
    ) -> None:
        """Draw a horizontal line.

        :param nets: the nets whose vertical lines it meets, with the sides (left, right or both); others are crossed.
        :param turns: whether its first and its last cell are corners.
        """
        for x in range(start, end + 1):
            sides = (0 if x == start and turns[0] else _LEFT) | (0 if x == end and turns[1] else _RIGHT)
            old, met = self._across.get((x, y), (0, {}))
            joined = {net: met.get(net, 0) | nets.get(net, 0) for net in (*met, *nets)}
            self._across[x, y] = (old | sides, joined)

    def down(self, x: int, top: int, bottom: int, net: int) -> None:
        """Draw the vertical line of a net."""
        for y in range(top, bottom + 1):
            self._down[x, y] = ((_UP if y > top else 0) | (_DOWN if y < bottom else 0), net)

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
        for (x, y), piece in [*self._lines().items(), *self._texts.items()]:
            drawn.setdefault(y, {})[x] = piece
        return [_pieces(drawn.get(y, {})) for y in range(max(drawn, default=-1) + 1)]

    def _lines(self) -> dict[tuple[int, int], Piece]:
        lines: dict[tuple[int, int], Piece] = {}
        for place in [*self._across, *self._down]:
            across, met = self._across.get(place, (0, {}))
            down, net = self._down.get(place, (0, -1))
            # If two lines cross without meeting, the horizontal one passes behind.
            sides = down | (across & met.get(net, 0)) if down else across
            lines[place] = (self.glyphs.lines[sides], "dim")
        return lines


def _pieces(row: Mapping[int, Piece]) -> list[Piece]:
    pieces: list[Piece] = []
    for x in range(max(row, default=-1) + 1):
        text, style = row.get(x, (" ", ""))
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + text, style)
        else:
            pieces.append((text, style))
    return pieces
