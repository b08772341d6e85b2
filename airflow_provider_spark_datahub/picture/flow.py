"""Jobs in the order in which data flows through them, each dataset between those that write and those that read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
