"""Jobs in the order in which data flows through them, each dataset between those that write and those that read it.

Rows and columns for consecutive ranks of a flow, drawn side by side: which line runs where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

MOST_PER_SIDE = 12
"""Datasets that a job shows on each side; the others are folded into one."""

MOST_PER_RANK = 6
"""Jobs that stand below each other at most: each needs lines of its own, and these need width."""


@dataclass(frozen=True, slots=True)
class FlowJob:
    """A job in a flow; inputs and outputs are keys of datasets."""

    key: str
    label: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Stage:
    """A job with its place.

    :param rank: 0 for a job that waits for none, else one more than the last job that it waits for.
    """

    job: FlowJob
    rank: int
    number: int


@dataclass(slots=True, eq=False)
class Version:
    """A dataset between its writers and its readers; one that is read and then written again has several.

    :param dataset: the key of the dataset, or what stands for the folded ones.
    :param folded: how many datasets this stands for, 0 for a dataset.
    :param again: whether an earlier version of the dataset is in the flow.
    """

    dataset: str
    folded: int = 0
    again: bool = False
    writers: list[Stage] = field(default_factory=list)
    readers: list[Stage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Flow:
    """Jobs that share datasets: stages by rank, and the datasets between them."""

    stages: tuple[Stage, ...]
    versions: tuple[Version, ...]


def flows(jobs: Sequence[FlowJob]) -> list[Flow]:
    """The jobs, as flows: those that share a dataset, over however many others, are in one."""
    return [_flow(group) for group in _connected(jobs)]


def _connected(jobs: Sequence[FlowJob]) -> list[list[FlowJob]]:
    leaders = list(range(len(jobs)))

    def leader(index: int) -> int:
        while leaders[index] != index:
            leaders[index] = leaders[leaders[index]]
            index = leaders[index]
        return index

    first_user: dict[str, int] = {}
    for index, job in enumerate(jobs):
        for dataset in (*job.inputs, *job.outputs):
            one, other = sorted((leader(index), leader(first_user.setdefault(dataset, index))))
            leaders[other] = one
    groups: dict[int, list[FlowJob]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(leader(index), []).append(job)
    return list(groups.values())


def _flow(jobs: Sequence[FlowJob]) -> Flow:
    stages = _ranked(jobs)
    uses = Counter(dataset for job in jobs for dataset in {*job.inputs, *job.outputs})
    versions: dict[Version, None] = {}
    current: dict[str, Version] = {}
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
    return Flow(tuple(stages), tuple(versions))


def _written(fresh: Version, current: dict[str, Version]) -> Version:
    """The version that a job writes: a new one where the last was read already."""
    old = current.get(fresh.dataset)
    if old is not None and not old.readers:
        return old
    fresh.again = old is not None
    current[fresh.dataset] = fresh
    return fresh


def _side(datasets: Sequence[str], uses: Mapping[str, int]) -> list[Version]:
    if len(datasets) <= MOST_PER_SIDE:
        return [Version(dataset) for dataset in datasets]
    joining_first = sorted(datasets, key=lambda dataset: uses[dataset] < 2)[:MOST_PER_SIDE]
    shown = [dataset for dataset in datasets if dataset in set(joining_first)]
    return [*(Version(dataset) for dataset in shown), Version("", folded=len(datasets) - len(shown))]


def _ranked(jobs: Sequence[FlowJob]) -> list[Stage]:
    """The jobs by rank; where jobs wait for each other in a circle, the first of them goes first."""
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
            while crowd[rank] == MOST_PER_RANK:
                rank += 1
            ranks[index] = rank
            crowd[rank] += 1
    order = sorted(ranks, key=lambda index: (ranks[index], index))
    return [Stage(jobs[index], ranks[index], number) for number, index in enumerate(order)]


UNITS = 4
"""The columns of a rank: the datasets before it, the lines to its jobs, its jobs, the lines from them."""

_FREE = None


@dataclass(slots=True, eq=False)
class Rail:
    """A dataset in a band, on one row all along.

    :param slot: before which rank of the band its name stands, counted from 0.
    :param start: the first unit that its line takes, ``end`` the last.
    :param came: whether a band above has its writer.
    :param goes: whether a band below has a reader or another writer.
    """

    version: Version
    writers: list[Stage]
    readers: list[Stage]
    slot: int
    start: int
    end: int
    came: bool
    goes: bool
    row: int = 0


@dataclass(slots=True)
class Track:
    """The line down between a job and its datasets on one side.

    :param lane: which column of the lines it takes, from 0; jobs whose lines do not touch share one.
    """

    net: int
    rows: set[int]
    lane: int = 0


@dataclass(slots=True)
class Band:
    """The arranged ranks.

    :param first: the lowest rank, ``count`` how many there are.
    :param tracks: per unit that holds lines and per stage number the track.
    """

    first: int
    count: int
    stages: list[Stage]
    rails: list[Rail]
    job_rows: dict[int, int] = field(default_factory=dict)
    tracks: dict[int, dict[int, Track]] = field(default_factory=dict)

    def lanes(self, unit: int) -> int:
        """How many columns of lines a unit needs."""
        return 1 + max((track.lane for track in self.tracks.get(unit, {}).values()), default=0)


def arrange(flow: Flow, first: int, last: int) -> Band:
    """The ranks from the first to the last of a flow, with rows for jobs and datasets and lanes for the lines."""
    stages = [stage for stage in flow.stages if first <= stage.rank <= last]
    rails = [rail for version in flow.versions if (rail := _rail(version, first, last))]
    band = Band(first, last - first + 1, stages, rails)
    _Rows(band).assign()
    for stage in stages:
        _track(band, stage)
    for tracks in band.tracks.values():
        _lanes(list(tracks.values()))
    return band


def _rail(version: Version, first: int, last: int) -> Rail | None:
    writers = [stage for stage in version.writers if first <= stage.rank <= last]
    readers = [stage for stage in version.readers if first <= stage.rank <= last]
    if not writers and not readers:
        return None
    reads = [stage.rank - first for stage in readers]
    writes = [stage.rank - first for stage in writers]
    slot = max(writes) + 1 if writes else min(reads)
    return Rail(
        version,
        writers,
        readers,
        slot,
        start=min(writes) * UNITS + 3 if writes else slot * UNITS,
        end=max(reads) * UNITS + 1 if reads else slot * UNITS,
        came=any(stage.rank < first for stage in version.writers),
        goes=any(stage.rank > last for stage in (*version.writers, *version.readers)),
    )


class _Rows:
    """Gives rows to jobs and datasets, so that no two lines lie on each other."""

    def __init__(self, band: Band) -> None:
        self.band = band
        self.taken: dict[tuple[int, int], Rail | Stage] = {}
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

    def _middle(self, rails: Sequence[Rail], stage: Stage) -> int:
        rows = sorted(rail.row for rail in rails if id(rail) in self.placed)
        if rows:
            return (rows[0] + rows[-1]) // 2
        below = max((row for _, row in self.taken), default=-2)
        tallest = max(3, sum(stage in rail.readers for rail in self.band.rails))
        return below + 2 + tallest // 2 if self.taken else 0

    def _place_rails(self, rails: Sequence[Rail], middle: int) -> None:
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

    def _rail_fits(self, rail: Rail, row: int) -> bool:
        units = range(rail.start, rail.end + 1)
        return all(self._meets(self.taken.get((unit, row), _FREE), rail, unit) for unit in units)

    def _meets(self, there: Rail | Stage | None, rail: Rail, unit: int) -> bool:
        """Whether a line of the dataset may lie here: a free place, or the line of the only job that it belongs to."""
        if there is _FREE:
            return True
        if not isinstance(there, Stage):
            return False
        at = (there.rank - self.band.first) * UNITS
        reads_only = unit == at + 1 == rail.end and _of_rank(rail.readers, there.rank) == [there]
        writes_only = unit == at + 3 == rail.start and _of_rank(rail.writers, there.rank) == [there]
        return reads_only or writes_only

    def _place_job(self, stage: Stage, middle: int, inputs: Sequence[Rail], outputs: Sequence[Rail]) -> None:
        at = (stage.rank - self.band.first) * UNITS
        row = next(row for offset in _outwards() if self._job_fits(stage, at, row := middle + offset))
        self.band.job_rows[stage.number] = row
        for beside in (row - 1, row, row + 1):
            self.taken[at + 2, beside] = stage
        for unit, rails in ((at + 1, inputs), (at + 3, outputs)):
            if rails:
                self.taken.setdefault((unit, row), stage)

    def _job_fits(self, stage: Stage, at: int, row: int) -> bool:
        around = [self.taken.get((at + 2, beside), _FREE) for beside in range(row - 2, row + 3)]
        if any(there is not _FREE for there in around[1:-1]) or any(isinstance(there, Stage) for there in around):
            return False
        for unit in (at + 1, at + 3):
            there = self.taken.get((unit, row), _FREE)
            if isinstance(there, Stage):
                return False
            if there is not _FREE and not self._meets(stage, there, unit):
                return False
        return True


def _outwards() -> Iterator[int]:
    """0, 1, -1, 2, -2 and so on."""
    yield 0
    for distance in count(1):
        yield distance
        yield -distance


def _of_rank(stages: Sequence[Stage], rank: int) -> list[Stage]:
    return [stage for stage in stages if stage.rank == rank]


def _track(band: Band, stage: Stage) -> None:
    at = (stage.rank - band.first) * UNITS
    for unit, rows in (
        (at + 1, {rail.row for rail in band.rails if stage in rail.readers}),
        (at + 3, {rail.row for rail in band.rails if stage in rail.writers}),
    ):
        if rows:
            band.tracks.setdefault(unit, {})[stage.number] = Track(stage.number, rows | {band.job_rows[stage.number]})


def _lanes(tracks: Sequence[Track]) -> None:
    ends: list[int] = []
    for track in sorted(tracks, key=lambda track: min(track.rows)):
        lane = next((lane for lane, end in enumerate(ends) if end < min(track.rows)), len(ends))
        ends[lane : lane + 1] = [max(track.rows)]
        track.lane = lane
