"""Tables that an application wrote and then renamed: its edges go to the names that are left (Deviation 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.fold import DROP, NOT_WRITTEN, RENAME, DatasetState, RunState

_Named = Callable[[DatasetId], DatasetId]


def under_last_names(runs: tuple[RunState, ...], namer: DatasetNamer) -> tuple[RunState, ...]:
    """The runs as if each table had the last of its names from the beginning.

    Only what the application itself wrote: a table that it only read and then renamed is known by the name under which
    it was read, since that is where the next run of the job finds one. What is dropped in the end keeps the name under
    which it was written.

    :param runs: in the order of their first events.
    """
    if not any(state.previous for run in runs for state in run.outputs.values()):
        return runs
    renames = _renames(runs, namer)
    if not renames:
        return runs

    def last_name(dataset: DatasetId, index: int) -> DatasetId:
        for renamed_index, new in renames.get(dataset, ()):
            if renamed_index > index:
                return last_name(new, renamed_index)
        return dataset

    return tuple(_renamed(run, partial(last_name, index=run.index)) for run in runs)


def _renames(runs: Iterable[RunState], namer: DatasetNamer) -> dict[DatasetId, list[tuple[int, DatasetId]]]:
    """By old name: when what the application wrote under it was renamed, and to what; in their order."""
    changes = [(run.index, dataset, state) for run in runs if not run.failure for dataset, state in run.changed]
    gone = _dropped_in_the_end(((dataset, state) for _, dataset, state in changes), namer)
    found: dict[DatasetId, list[tuple[int, DatasetId]]] = {}
    written: set[DatasetId] = set()
    for index, dataset, state in changes:
        if state.lifecycle not in NOT_WRITTEN:
            written.add(dataset)
        old = state.previous if state.lifecycle == RENAME else None
        # A table outside of the warehouse keeps its path, which is its name.
        if old in written and old not in (None, dataset) and namer.name(dataset) not in gone:
            written.remove(old)
            written.add(dataset)
            found.setdefault(old, []).append((index, dataset))
    return found


def _dropped_in_the_end(
    changes: Iterable[tuple[DatasetId, DatasetState]], namer: DatasetNamer
) -> set[DatasetName | None]:
    """Names of tables that are dropped and not made anew; OpenLineage has another path for a table that is dropped."""
    gone: set[DatasetName | None] = set()
    for dataset, state in changes:
        (gone.add if state.lifecycle == DROP else gone.discard)(namer.name(dataset))
    return gone


def _renamed(run: RunState, named: _Named) -> RunState:
    datasets = (*run.inputs, *run.outputs, *(one for state in run.outputs.values() for one in _column_inputs(state)))
    if all(named(dataset) == dataset for dataset in datasets):
        return run
    outputs = {
        named(dataset): replace(state, columns=state.columns and state.columns.renamed(named))
        for dataset, state in run.outputs.items()
    }
    return replace(run, inputs={named(dataset): state for dataset, state in run.inputs.items()}, outputs=outputs)


def _column_inputs(state: DatasetState) -> tuple[DatasetId, ...]:
    return state.columns.inputs if state.columns is not None else ()
