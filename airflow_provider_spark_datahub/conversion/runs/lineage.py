"""Tables that an application wrote and then renamed: its edges go to the names that are left (Deviation 9).

What an application's runs did to datasets, as DataHub's operations (Deviation 18).

What the runs of an application read and wrote: the edges of its job (conversion rules, sections 4 and 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.columns.facet import DatasetColumns
from airflow_provider_spark_datahub.conversion.columns.fine_grained import (
    ColumnLimits,
    fine_grained_lineages,
)
from airflow_provider_spark_datahub.conversion.columns.sql import with_columns_of_statements
from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId, JsonObject
from airflow_provider_spark_datahub.conversion.facets.dataset import (
    NO_NOTES,
    NOT_COUNTED,
    DatasetNotes,
    OutputStatistics,
    read_notes,
    results_by_test,
    schema_metadata,
    with_field_tags,
    with_later_notes,
)
from airflow_provider_spark_datahub.conversion.limits import Cuts
from airflow_provider_spark_datahub.conversion.paths import is_parent_folder
from airflow_provider_spark_datahub.conversion.runs.fold import (
    DROP,
    NOT_WRITTEN,
    RDD_JOB,
    RENAME,
    Application,
    DatasetState,
    RunState,
)
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

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
        named(dataset): structs.replace(state, columns=state.columns and state.columns.renamed(named))
        for dataset, state in run.outputs.items()
    }
    return structs.replace(
        run, inputs={named(dataset): state for dataset, state in run.inputs.items()}, outputs=outputs
    )


def _column_inputs(state: DatasetState) -> tuple[DatasetId, ...]:
    return state.columns.inputs if state.columns is not None else ()


# What OpenLineage's lifecycle says, in DataHub's words (``OperationType``).
_BY_LIFECYCLE = {
    "ALTER": "ALTER",
    "CREATE": "CREATE",
    "DROP": "DROP",
    "OVERWRITE": "UPDATE",
    "RENAME": "ALTER",
    "TRUNCATE": "DELETE",
}
# Likewise the first words of a statement, as acryl-datahub's ``QueryTypeProps`` and its Delta source have them.
_BY_STATEMENT = {
    "CREATE": "CREATE",
    "DELETE": "DELETE",
    "INSERT": "INSERT",
    "INSERT OVERWRITE": "UPDATE",
    "MERGE": "UPDATE",
    "TRUNCATE": "DELETE",
    "UPDATE": "UPDATE",
}
_WRITTEN = "INSERT"


@dataclass(frozen=True, slots=True)
class Operation:
    """What one run did to one dataset. Times are in ms since the epoch.

    :param dataset: its URN.
    :param kind: one of DataHub's ``OperationType``.
    :param time_ms: when the run ended.
    :param previous: the URN that a renamed dataset had, or empty.
    :param partitions: of the dataset that it was about; empty where it was all of it, or nobody told.
    """

    dataset: str
    run_id: str
    kind: str
    start_ms: int
    time_ms: int
    statistics: OutputStatistics
    previous: str = ""
    partitions: tuple[str, ...] = ()


def operations(runs: Iterable[RunState], namer: DatasetNamer) -> list[Operation]:
    """Operations of the runs that are known to have ended well, by dataset and time.

    A dataset that a run names twice, such as a table by two paths, is one operation.
    """
    found: dict[tuple[str, str], Operation] = {}
    for run in runs:
        for one in _operations_of(run, namer):
            key = one.dataset, one.run_id
            if key not in found or found[key].statistics == NOT_COUNTED:
                found[key] = one
    by_dataset: dict[tuple[str, OutputStatistics], list[Operation]] = {}
    for one in found.values():
        by_dataset.setdefault((one.dataset, one.statistics), []).append(one)
    outer = [one for same in by_dataset.values() for one in _without_inner(same)]
    return sorted(outer, key=lambda one: (one.dataset, one.time_ms, one.run_id))


def _operations_of(run: RunState, namer: DatasetNamer) -> Iterator[Operation]:
    if run.failure or not run.ended or run.start_ms is None or run.end_ms is None:
        return
    for dataset, state in run.changed:
        name = namer.name(dataset)
        if name is None:
            continue
        previous = namer.name(state.previous) if state.previous is not None else None
        yield Operation(
            dataset=name.urn,
            run_id=run.run_id,
            kind=_kind(run, state),
            start_ms=run.start_ms,
            time_ms=run.end_ms,
            statistics=state.statistics,
            previous=previous.urn if previous is not None else "",
            partitions=state.partitions,
        )


def _kind(run: RunState, state: DatasetState) -> str:
    """By the output's lifecycle, else by the statement; a producer that tells neither has written rows."""
    if state.lifecycle:
        return _BY_LIFECYCLE.get(state.lifecycle, "UNKNOWN")
    words = run.sql.upper().split(maxsplit=2)[:2]
    return _BY_STATEMENT.get(" ".join(words)) or _BY_STATEMENT.get(" ".join(words[:1]), _WRITTEN)


def _without_inner(same: list[Operation]) -> Iterator[Operation]:
    """Spark runs a CREATE TABLE AS SELECT as a query around the one that writes, and both count the same rows.

    :param same: operations on one dataset with the same statistics.
    """
    covered_ms = -1
    for one in sorted(same, key=lambda one: (one.start_ms, one.kind != "CREATE", -one.time_ms)):
        if one.statistics != NOT_COUNTED and one.time_ms <= covered_ms:
            continue
        if one.kind == "CREATE":
            covered_ms = max(covered_ms, one.time_ms)
        yield one


class JobDataset(msgspec.Struct):
    """A dataset of a job with what is to be written of it."""

    name: DatasetName
    ids: list[DatasetId] = []
    schema: dict[str, Any] | None = None
    notes: DatasetNotes = NO_NOTES
    edge_properties: Mapping[str, str] = {}


class RunLineage(msgspec.Struct, frozen=True):
    """What runs read and wrote, by the URNs of the datasets.

    :param unusable: datasets that no URN can be made of, and why.
    :param column_gaps: why statements tell nothing of columns, for people.
    :param partitions: those that were written, where producers tell.
    :param tests: data-quality checks, and whether each was passed.
    """

    inputs: dict[str, JobDataset]
    outputs: dict[str, JobDataset]
    fine_grained: list[dict[str, Any]]
    operations: Sequence[Operation]
    unusable: dict[DatasetId, str]
    column_gaps: tuple[str, ...]
    partitions: tuple[str, ...]
    tests: dict[str, bool]


def lineage_of(
    application: Application,
    namer: DatasetNamer,
    settings: LineageSettings,
    cuts: Cuts,
    *,
    lost_in_flight: bool = False,
) -> RunLineage:
    """The lineage of an application's runs.

    :param cuts: takes how much was left out.
    :param lost_in_flight: queries without end were still running when the driver died.
    """
    runs, gaps = application.runs, tuple[str, ...]()
    if settings.capture_columns_from_sql and settings.capture_column_level_lineage:
        runs, gaps = with_columns_of_statements(runs, namer)
    edges = _Edges(under_last_names(runs, namer), namer, lost_in_flight=lost_in_flight, settings=settings, cuts=cuts)
    return RunLineage(
        inputs=edges.inputs(),
        outputs=edges.outputs(),
        fine_grained=fine_grained_lineages(edges.columns(), namer, ColumnLimits.of(settings), cuts),
        operations=operations(application.runs, namer) if settings.capture_operations else (),
        unusable=namer.unusable,
        column_gaps=gaps,
        partitions=edges.partitions(),
        tests=results_by_test((run.checks for run in application.runs if run.checks), namer),
    )


_Touched = list[tuple[DatasetId, DatasetState]]
_UNTOLD = DatasetState()


class _Edges:
    """The datasets of an application's runs that are edges of its job."""

    def __init__(
        self,
        runs: Iterable[RunState],
        namer: DatasetNamer,
        *,
        lost_in_flight: bool,
        settings: LineageSettings,
        cuts: Cuts,
    ) -> None:
        self._cuts = cuts
        self._with_schemas = settings.materialize_dataset and settings.include_schema_metadata
        self._with_descriptions = settings.capture_dataset_documentation
        self._namer = namer
        self._written: list[tuple[RunState, _Touched]] = [
            (run, [] if run.failure or (lost_in_flight and not run.ended) else run.written) for run in runs
        ]

    def outputs(self) -> dict[str, JobDataset]:
        """What was written, by URN."""
        return self._by_urn(one for _, written in self._written for one in written)

    def inputs(self) -> dict[str, JobDataset]:
        """What was read, by URN: inputs of queries, and what only column lineage names (Deviation 8)."""
        reads = [(run, self._read(run, written)) for run, written in self._written]
        phantoms = self._phantom_reads(reads)
        return self._by_urn(one for _, read in reads for one in read if one[0] not in phantoms)

    def partitions(self) -> tuple[str, ...]:
        """Those that were written, where producers tell."""
        found = {one for _, written in self._written for _, state in written for one in state.partitions}
        return tuple(sorted(found)) if found else ()

    def columns(self) -> list[tuple[str, DatasetColumns]]:
        """Column lineage of what was written: the output's URN with what one query says of it."""
        return [
            (name.urn, state.columns)
            for _, written in self._written
            for dataset, state in written
            if state.columns is not None and (name := self._namer.name(dataset)) is not None
        ]

    def _read(self, run: RunState, written: _Touched) -> _Touched:
        read, name = list(run.inputs.items()), self._namer.name
        for output, state in written:
            if state.columns is not None:
                more = [one for one in state.columns.inputs if one not in run.inputs and name(one) != name(output)]
                read += [(dataset, _UNTOLD) for dataset in more]
        return read

    @staticmethod
    def _phantom_reads(reads: Sequence[tuple[RunState, _Touched]]) -> set[DatasetId]:
        """Deviation 5: what only RDD jobs of an application with queries read, where a query's dataset is the same
        or lies below: file listing, schema inference, reading back the own output.

        :param reads: what each run read.
        """
        listed = {dataset for run, _ in reads if run.job_type == RDD_JOB for dataset in run.inputs}
        if not listed:
            return set()
        queries = [(run, read) for run, read in reads if run.job_type != RDD_JOB]
        by_queries = {dataset for _, read in queries for dataset, _ in read}
        touched = by_queries.union(*(run.outputs for run, _ in queries))
        paths: dict[str, list[str]] = {}
        for dataset in touched:
            paths.setdefault(dataset.namespace, []).append(dataset.name)
        return {
            dataset
            for dataset in listed - by_queries
            if dataset in touched
            or any(is_parent_folder(dataset.name, path) for path in paths.get(dataset.namespace, ()))
        }

    def _by_urn(self, datasets: Iterable[tuple[DatasetId, DatasetState]]) -> dict[str, JobDataset]:
        found: dict[str, JobDataset] = {}
        schemas: dict[str, tuple[int, JsonObject | bytes]] = {}
        notes: dict[str, Mapping[str, tuple[int, JsonObject]]] = {}
        for dataset, state in datasets:
            name = self._namer.name(dataset)
            if name is None:
                continue
            urn = name.urn
            entry = found.get(urn)
            if entry is None:
                found[urn] = JobDataset(name, [dataset])
            elif dataset not in entry.ids:
                entry.ids.append(dataset)
            if state.schema is not None and (urn not in schemas or state.schema_index >= schemas[urn][0]):
                schemas[urn] = (state.schema_index, state.schema)
            if state.notes:
                notes[urn] = with_later_notes(notes.get(urn, {}), state.notes)
        for urn, facets in notes.items():
            read = read_notes({facet_name: facet for facet_name, (_, facet) in facets.items()})
            found[urn].notes = replace(read, description=self._cuts.text(read.description))
        if self._with_schemas:
            for urn, (_, schema) in schemas.items():
                self._describe(found[urn], schema)
        return dict(sorted(found.items())) if len(found) > 1 else found

    def _describe(self, dataset: JobDataset, facet: JsonObject | bytes) -> None:
        platform = urns.platform_urn(dataset.name.platform)
        schema = schema_metadata(facet, platform, with_descriptions=self._with_descriptions)
        if schema is not None:
            dataset.schema = with_field_tags(self._cuts.schema(schema), dataset.notes)
