"""What the runs of an application read and wrote: the edges of its job (conversion rules, sections 4 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.column_facet import DatasetColumns
from airflow_provider_spark_datahub.conversion.columns import ColumnLimits, fine_grained_lineages
from airflow_provider_spark_datahub.conversion.data_quality import results_by_test
from airflow_provider_spark_datahub.conversion.dataset_notes import (
    NO_NOTES,
    DatasetNotes,
    read_notes,
    with_field_tags,
    with_later_notes,
)
from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId, JsonObject
from airflow_provider_spark_datahub.conversion.fold import RDD_JOB, Application, DatasetState, RunState
from airflow_provider_spark_datahub.conversion.limits import Cuts
from airflow_provider_spark_datahub.conversion.operations import Operation, operations
from airflow_provider_spark_datahub.conversion.paths import is_parent_folder
from airflow_provider_spark_datahub.conversion.renames import under_last_names
from airflow_provider_spark_datahub.conversion.schema import schema_metadata
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.statement_lineage import with_columns_of_statements


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
