"""Runs that tell the same are one: what an application of a million micro-batches leaves in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.conversion.fold import DatasetState, RunState
from airflow_provider_spark_datahub.conversion.properties import PropertyLayers


def merged(runs: Mapping[str, RunState], before: int, most: int) -> dict[str, RunState]:
    """The runs without those queries that say nothing that an earlier one of the same application did not say.

    What a job is coalesced from stays the same: of what the two differ in, times are joined, the later schema and the
    earlier properties count (conversion rules, section 7). An event for a run that was merged begins it anew.

    :param runs: by run id, in the order of their first events.
    :param before: only runs whose last event has a lower index.
    :param most: only of applications with more queries than that.
    """
    several_names = _with_several_session_names(runs.values())
    queries = Counter(run.parent_run_id for run in runs.values())
    kept: dict[str, RunState] = {}
    firsts: dict[Hashable, _First] = {}
    for run_id, run in runs.items():
        may_merge = run.is_query and run.last_index < before and (run.ended or not run.outputs)
        may_merge = may_merge and queries[run.parent_run_id] > most
        told = _what_it_tells(run) if may_merge and run.parent_run_id not in several_names else None
        if told is None:
            kept[run_id] = run
        elif told in firsts:
            firsts[told].take(run)
        else:
            kept[run_id], firsts[told] = run, _First(run)
    return kept


def _with_several_session_names(runs: Iterable[RunState]) -> set[str]:
    """Applications whose name is told by the last session, which must stay the last."""
    names: dict[str, set[str]] = {}
    for run in runs:
        if run.session_name and run.parent_run_id:
            names.setdefault(run.parent_run_id, set()).add(run.session_name)
    return {run_id for run_id, told in names.items() if len(told) > 1}


def _what_it_tells(run: RunState) -> Hashable | None:
    """All but its times, schemas and properties; ``None`` where it has notes, of which each may be another one."""
    if any(state.notes for datasets in (run.inputs, run.outputs) for state in datasets.values()):
        return None
    return (
        (run.parent_run_id, run.job_type, run.job_name, run.flow, run.app_name, run.session_name),
        (run.description, run.sql, run.owners, repr(run.details), run.started, run.ended, run.failure),
        tuple((dataset, _changes(state)) for dataset, state in run.inputs.items()),
        tuple((dataset, _changes(state)) for dataset, state in run.outputs.items()),
    )


def _changes(state: DatasetState) -> Hashable:
    # Equal column lineages are one object in a fold.
    return state.lifecycle, state.previous, state.partitions, id(state.columns), state.statistics


@dataclass(slots=True)
class _First:
    """The first of the runs that are alike. :param keys: of the properties that it has."""

    run: RunState
    keys: tuple[set[str], set[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = (set(), set())
        for _, layers in self.run.properties:
            self._learn(layers)

    def take(self, other: RunState) -> None:
        """Take what another one says beside what is the same."""
        run = self.run
        if other.start_ms is not None:
            run.start_ms = other.start_ms if run.start_ms is None else min(run.start_ms, other.start_ms)
        if other.end_ms is not None:
            run.end_ms = other.end_ms if run.end_ms is None else max(run.end_ms, other.end_ms)
        run.last_index = max(run.last_index, other.last_index)
        for mine, theirs in ((run.inputs, other.inputs), (run.outputs, other.outputs)):
            for dataset, state in theirs.items():
                if state.schema is not None and state.schema_index >= mine[dataset].schema_index:
                    mine[dataset].schema, mine[dataset].schema_index = state.schema, state.schema_index
        for index, layers in other.properties:
            # Of one key's values the earliest counts: only new keys matter.
            if self._learn(layers):
                run.properties.append((index, layers))

    def _learn(self, layers: PropertyLayers) -> bool:
        """Whether there are keys that were not there before."""
        before = sum(map(len, self.keys))
        for known, told in zip(self.keys, (layers.job, layers.flow), strict=True):
            for layer in told:
                known.update(layer)
        return sum(map(len, self.keys)) > before
