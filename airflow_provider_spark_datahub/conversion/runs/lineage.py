"""Lineage of an application: datasets that its runs read and wrote, column lineage and operations.

See the conversion rules, sections 4 and 7.

Tests: ``tests/conversion/test_coalesce.py`` and ``tests/conversion/test_operations.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, reduce
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.columns.facet import DatasetColumns
from airflow_provider_spark_datahub.conversion.columns.fine_grained import fine_grained_lineages
from airflow_provider_spark_datahub.conversion.columns.sql import (
    short_statement,
    verb_of,
)
from airflow_provider_spark_datahub.conversion.datasets import (
    DatasetName,
    DatasetNamer,
    folders_around,
)
from airflow_provider_spark_datahub.conversion.diagnostics import (
    LEFT_OUT,
    MAX_LISTED,
    MOST_FIELDS,
    SCHEMAS_LEFT_OUT,
    Diagnostics,
    RejectedEdge,
    TextLimit,
)
from airflow_provider_spark_datahub.conversion.events import RDD_JOB, DatasetId, JsonObject
from airflow_provider_spark_datahub.conversion.facets.dataset import (
    NO_METADATA,
    NOT_COUNTED,
    DatasetMetadata,
    OutputStatistics,
    field_names,
    schema_metadata,
)
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.runs.effects import (
    outer_runs,
    under_last_names,
    with_statements,
)
from airflow_provider_spark_datahub.conversion.runs.evidence import (
    EVENT,
    Evidence,
    rejected_edges,
)
from airflow_provider_spark_datahub.conversion.runs.fold import DatasetState, RunState, Verdict
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.foundation.memory import grouped_by

# DataHub's ``OperationType`` by OpenLineage's lifecycle.
_BY_LIFECYCLE = {
    "ALTER": "ALTER",
    "CREATE": "CREATE",
    "DROP": "DROP",
    "OVERWRITE": "UPDATE",
    "RENAME": "ALTER",
    "TRUNCATE": "DELETE",
}
# Likewise by the first words of a statement, as in acryl-datahub's ``QueryTypeProps`` and its Delta
# source.
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


class Operation(msgspec.Struct, frozen=True):
    """Operation of a job's queries of one kind on one dataset. Times are in ms since the epoch.

    :param run_id: the first query's.
    :param kind: one of DataHub's ``OperationType``.
    :param statistics: the sums.
    :param previous: former names of the dataset.
    :param partitions: the affected partitions, if they are known.
    """

    dataset: str
    run_id: str
    kind: str
    start_ms: int
    time_ms: int
    statistics: OutputStatistics
    previous: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()

    @classmethod
    def joined(cls, same: Sequence[Operation]) -> Operation:
        """Return operations of one kind on one dataset as one."""
        if len(same) == 1:
            return same[0]
        return structs.replace(
            same[0],
            time_ms=max(operation.time_ms for operation in same),
            statistics=reduce(OutputStatistics.plus, (operation.statistics for operation in same)),
            previous=tuple(
                dict.fromkeys(chain.from_iterable(operation.previous for operation in same))
            ),
            partitions=tuple(
                dict.fromkeys(chain.from_iterable(operation.partitions for operation in same))
            ),
        )


def operations_of(runs: Collection[RunState], namer: DatasetNamer) -> list[Operation]:
    """Return the operations of the runs that ended well, by dataset and time: one for each dataset
    and kind.
    """
    by_run: dict[tuple[str, str], Operation] = {}
    surrounding = outer_runs(runs)
    for run in runs:
        for operation in _of_run(run, namer):
            if run.run_id in surrounding and operation.kind != "CREATE":
                continue
            key = operation.dataset, operation.run_id
            if key not in by_run or by_run[key].statistics == NOT_COUNTED:
                by_run[key] = operation
    equal = grouped_by(
        by_run.values(), lambda operation: (operation.dataset, operation.statistics)
    ).values()
    del by_run  # each of these steps takes as much memory as what it returns
    outer = list(chain.from_iterable(map(_without_inner, equal)))
    del equal
    outer.sort(key=lambda operation: (operation.start_ms, operation.run_id))
    by_kind = grouped_by(outer, lambda operation: (operation.dataset, operation.kind))
    joined = map(Operation.joined, by_kind.values())
    return sorted(
        joined, key=lambda operation: (operation.dataset, operation.time_ms, operation.run_id)
    )


def _of_run(run: RunState, namer: DatasetNamer) -> Iterator[Operation]:
    if run.failure or not run.ended or run.start_ms is None or run.end_ms is None:
        return
    for dataset, state in in_time(run.changed):
        if (urn := namer.urn(dataset)) is None:
            continue
        yield Operation(
            dataset=urn,
            run_id=run.run_id,
            kind=_kind(run, state),
            start_ms=run.start_ms,
            time_ms=run.end_ms,
            statistics=state.statistics,
            previous=(former,)
            if state.previous is not None and (former := namer.urn(state.previous))
            else (),
            partitions=state.partitions,
        )


def _kind(run: RunState, state: DatasetState) -> str:
    """Return the type that the output's lifecycle stands for, else the statement's type, else
    ``INSERT``.
    """
    if state.lifecycle:
        return _BY_LIFECYCLE.get(state.lifecycle, "UNKNOWN")
    verb = verb_of(run.sql)
    return _BY_STATEMENT.get(verb) or _BY_STATEMENT.get(verb.partition(" ")[0], _WRITTEN)


def _without_inner(same: list[Operation]) -> Iterator[Operation]:
    """Yield the operations that are not part of another.

    Spark runs a CREATE TABLE AS SELECT as a query around the query that writes, and both count the
    same rows.

    :param same: operations on one dataset with the same statistics.
    """
    covered_ms = -1
    for operation in sorted(
        same, key=lambda other: (other.start_ms, other.kind != "CREATE", -other.time_ms)
    ):
        if operation.statistics != NOT_COUNTED and operation.time_ms <= covered_ms:
            continue
        if operation.kind == "CREATE":
            covered_ms = max(covered_ms, operation.time_ms)
        yield operation


class JobDataset(msgspec.Struct, gc=False):
    """Dataset of a job, with the content of its aspects.

    :param ids: OpenLineage's names of it, each once.
    :param schema: the ``schemaMetadata`` aspect.
    """

    name: DatasetName
    ids: tuple[DatasetId, ...] = ()
    schema: dict[str, Any] | None = None
    metadata: DatasetMetadata = NO_METADATA
    edge_properties: Mapping[str, str] = {}


class Lineage(msgspec.Struct, gc=False):
    """Datasets that runs read and wrote, by URN.

    :param writes: for each output, the datasets that reach it in one query, with the properties of
        these edges.
    :param partitions: the written partitions, if producers report them.
    :param statements: statements of the queries, by the id under which edges name them as evidence.
    """

    inputs: dict[str, JobDataset]
    outputs: dict[str, JobDataset]
    fine_grained: Sequence[dict[str, Any]]
    writes: Mapping[str, Mapping[str, Mapping[str, str]]] = {}
    partitions: tuple[str, ...] = ()
    statements: Mapping[str, str] = {}

    @classmethod
    def of(
        cls,
        reported: tuple[RunState, ...],
        namer: DatasetNamer,
        settings: LineageSettings,
        diagnostics: Diagnostics,
        *,
        in_flight: Collection[str] = (),
        succeeded: bool = False,
        with_gaps: bool = False,
        has_log: bool = False,
    ) -> Lineage:
        """Return the lineage of an application's runs.

        :param reported: the runs as their events describe them.
        :param in_flight: job types of the queries that were running when the driver died if they
            have no end.
        :param succeeded: the application did. The job caught the failures of its queries.
        :param with_gaps: find the missing edges, and with ``capture_evidence`` why. A single event
            does not show them.
        :param has_log: Spark's event log was read, too.
        """
        limit = TextLimit(settings.max_string_length, diagnostics.truncations)
        runs = with_statements(under_last_names(reported, namer))
        edges = _Edges(
            runs, namer, in_flight=in_flight, succeeded=succeeded, settings=settings, limit=limit
        )
        lineage = cls(
            inputs=edges.inputs(),
            outputs=edges.outputs(),
            fine_grained=fine_grained_lineages(edges.columns(), namer, settings, limit),
            writes=edges.writes(),
            partitions=edges.partitions(),
        )
        diagnostics.unusable_datasets = namer.unusable
        evidence = Evidence(with_queries=with_gaps and settings.capture_evidence)
        if has_log or evidence.with_queries:
            edges.add_evidence(lineage, evidence)
        if evidence.with_queries:
            diagnostics.rejected_edges = tuple(dict.fromkeys(edges.rejected(reported, lineage)))
        if has_log:
            diagnostics.sources = edges.sources(reported, lineage)
        if with_gaps:
            because = "not written, as Spark refused or failed to do it"
            refused = (f"{because}: {_query(run)}" for run in reported if run.refused)
            gaps = chain(refused, edges.gaps(with_columns=settings.capture_column_level_lineage))
            diagnostics.gaps = tuple(islice(dict.fromkeys(gaps), MAX_LISTED))
        return lineage


def _query(run: RunState) -> str:
    """Return a query for people: its statement, else its name in OpenLineage's events."""
    return (
        repr(short_statement(run.sql))
        if run.sql
        else run.job_name.partition(".")[2] or run.job_name
    )


_INSERT = re.compile(r"\binsert\s+(?:into|overwrite)\b", re.IGNORECASE)
_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
_VALUES = re.compile(r"\bvalues\s*\(", re.IGNORECASE)
_READS = re.compile(r"\b(?:select|from|table\s*\()", re.IGNORECASE)


@lru_cache(maxsize=4)  # the outputs of a query share its statement
def holds_its_rows(statement: str) -> bool:
    """Return whether a statement inserts literal rows (``VALUES``), so that it has no input."""
    plain = _TEXT.sub("", statement)
    insert = _INSERT.search(plain)
    return bool(insert and _VALUES.search(plain, insert.end())) and not _READS.search(plain)


_Touched = list[tuple[DatasetId, DatasetState]]
_ONLY_IN_COLUMNS = DatasetState()


class _Write(NamedTuple):
    """Write of an output by a run.

    :param read: datasets that reach it, each with its URN.
    """

    run: RunState
    state: DatasetState
    read: list[tuple[DatasetId, str]]

    @property
    def named(self) -> tuple[DatasetId, ...]:
        """Datasets that may reach it, whether or not the job has them as inputs."""
        return (*self.run.inputs, *self.state.column_inputs)


class _Edges:
    """Datasets of an application's runs that are edges of its job."""

    def __init__(
        self,
        runs: Iterable[RunState],
        namer: DatasetNamer,
        *,
        in_flight: Collection[str],
        succeeded: bool,
        settings: LineageSettings,
        limit: TextLimit,
    ) -> None:
        self._limit, self._succeeded = limit, succeeded
        self._schemas = settings.datasets
        self._with_descriptions = "documentation" in settings.dataset_details
        self._fields = 0
        # Datasets of an application often have the same schema.
        self._aspects: dict[tuple[bytes, str], dict[str, Any]] = {}
        self._namer = namer
        self._in_flight = in_flight
        self._written: list[tuple[RunState, _Touched]] = []
        for run in runs:
            is_lost = run.failure or (run.job_type in in_flight and not run.ended)
            self._written.append((run, [] if is_lost else run.written))
        self._find_reads()

    def outputs(self) -> dict[str, JobDataset]:
        """Return the written datasets, by URN."""
        with_schemas = self._schemas in ("schemas", "written")
        return self._by_urn(
            [touched for _, written in self._written for touched in written],
            with_schemas=with_schemas,
        )

    def inputs(self) -> dict[str, JobDataset]:
        """Return the read datasets, by URN, with those that only column lineage names (Deviation
        8).
        """
        read = [touched for _, read in self._reads for touched in read]
        return self._by_urn(read, with_schemas=self._schemas == "schemas")

    def _find_reads(self) -> None:
        """Find what each run read, without phantoms."""
        reads = [(run, self._read(run, written)) for run, written in self._written]
        self._phantoms = self._phantom_reads(reads) | _folders_of_files(reads)
        self._reads: list[tuple[RunState, _Touched]] = []
        for run, read in reads:
            kept = [] if self._is_caught(run) else read
            self._reads.append((run, [item for item in kept if item[0] not in self._phantoms]))

    def _is_caught(self, run: RunState) -> bool:
        """Return whether the query failed, and the job went on without it."""
        return self._succeeded and bool(run.failure or run.refused)

    def add_evidence(self, lineage: Lineage, evidence: Evidence) -> None:
        """Add to the edges which queries gave them."""
        reading = ((run, self._named(items)) for run, items in self._reads)
        for urn, properties in evidence.properties("input", reading).items():
            lineage.inputs[urn].edge_properties = properties
        writing = ((run, self._named(items)) for run, items in self._written)
        for urn, properties in evidence.properties("output", writing).items():
            lineage.outputs[urn].edge_properties = properties
        lineage.writes = {
            output: evidence.properties("input", ((write.run, write.read) for write in writes))
            for output, writes in self._by_output.items()
        }
        lineage.statements = evidence.statements

    def writes(self) -> dict[str, dict[str, Mapping[str, str]]]:
        """Return the inputs that reach each output in one query, without properties."""
        return {
            output: {urn: {} for write in writes for _, urn in write.read}
            for output, writes in self._by_output.items()
        }

    @cached_property
    def _by_output(self) -> dict[str, list[_Write]]:
        """The writes of each output."""
        by_output: dict[str, list[_Write]] = {}
        for (run, written), (_, read) in zip(self._written, self._reads, strict=True):
            named = list(self._named(read))
            for dataset, state in written:
                urn = self._namer.urn(dataset)
                if urn is None:
                    continue
                of_run = run.inputs if state.reached_by is None else state.reached_by
                reaching = {*of_run, *state.column_inputs}
                write = _Write(run, state, [item for item in named if item[0] in reaching])
                by_output.setdefault(urn, []).append(write)
        return by_output

    def rejected(self, reported: Sequence[RunState], lineage: Lineage) -> Iterator[RejectedEdge]:
        """Yield the datasets of the reported runs that are not edges, with the reasons."""
        runs = [run for run, _ in self._written]
        for edge in rejected_edges(
            reported, runs, self._namer.urn, in_flight=self._in_flight, phantoms=self._phantoms
        ):
            if edge.urn not in (lineage.inputs if edge.kind == "input" else lineage.outputs):
                yield edge

    def sources(self, reported: Iterable[RunState], lineage: Lineage) -> dict[str, int]:
        """Return the number of edges by their source, and of datasets whose queries' plans do not
        name them.
        """
        datasets = (*lineage.inputs.values(), *lineage.outputs.values())
        counts = Counter(dataset.edge_properties.get("source", EVENT) for dataset in datasets)
        left_out: set[str | None] = set()
        for run in reported:
            for (_, dataset), verdict in run.verdicts.items():
                if verdict is Verdict.NOT_PLANNED:
                    left_out.add(self._namer.urn(dataset))
        return {
            **counts,
            LEFT_OUT: len(left_out - lineage.inputs.keys() - lineage.outputs.keys() - {None}),
        }

    def _named(self, touched: _Touched) -> Iterator[tuple[DatasetId, str]]:
        return (
            (dataset, urn)
            for dataset, _ in touched
            if (urn := self._namer.urn(dataset)) is not None
        )

    def gaps(self, *, with_columns: bool) -> Iterator[str]:
        """Yield a sentence for each output without any input, or without direct column lineage if
        it is wanted.
        """
        for urn, writes in in_time(sorted(self._by_output.items())):
            states = [write.state for write in writes]
            named = {dataset for write in writes for dataset in write.named}
            has_inputs = not named <= self._phantoms
            has_columns = any(state.direct_columns for state in states)
            # A plan shows that there are no more: constants, and counts of rows.
            is_known = all(state.is_resolved and not state.gap for state in states)
            if is_known or (has_inputs and (has_columns or not with_columns)):
                continue
            if not named and all(holds_its_rows(write.run.sql) for write in writes):
                continue
            last = writes[-1].run
            source = "Spark's event log" if last.is_logged else "OpenLineage"
            missing, reported = "column lineage", "reports none"
            if not has_inputs:
                folders = ", ".join(sorted({dataset.name for dataset in named}))
                names = f"only a folder around the file ({folders})" if folders else "none"
                missing, reported = "input", f"names {names}"
            reasons = "; ".join(dict.fromkeys(state.gap for state in states if state.gap))
            reason = f". In Spark's plan, {reasons}" if reasons else ""
            yield f"no {missing} of {urn} is known: {source} {reported} for {_query(last)}{reason}"

    def partitions(self) -> tuple[str, ...]:
        """Return the written partitions, if producers report them."""
        partitions = {
            name
            for _, written in self._written
            for _, state in written
            for name in state.partitions
        }
        return tuple(sorted(partitions))

    def columns(self) -> list[tuple[str, DatasetColumns]]:
        """Return the column lineage of written datasets: each output's URN with the columns that
        one query reports.
        """
        return [
            (urn, state.columns)
            for _, written in self._written
            for dataset, state in in_time(written)
            if state.columns is not None and (urn := self._namer.urn(dataset)) is not None
        ]

    def _read(self, run: RunState, written: _Touched) -> _Touched:
        read, name = list(run.inputs.items()), self._namer.name
        for output, state in in_time(written):
            read += [
                (dataset, _ONLY_IN_COLUMNS)
                for dataset in state.column_inputs
                if dataset not in run.inputs and name(dataset) != name(output)
            ]
        return read

    def _phantom_reads(self, reads: Sequence[tuple[RunState, _Touched]]) -> set[DatasetId]:
        """Return the datasets that only RDD jobs read, if a query's dataset is the same or lies
        below (Deviation 5).

        These are file listings, schema inference, and reading back the application's own output
        after its first write.
        """
        listed = {dataset for run, read in reads if run.job_type == RDD_JOB for dataset, _ in read}
        if not listed:
            return set()
        queries = [(run, read) for run, read in reads if run.job_type != RDD_JOB]
        by_queries = {
            dataset for run, read in queries if not self._is_caught(run) for dataset, _ in read
        }
        touched = by_queries.union(*(chain(run.inputs, run.outputs) for run, _ in queries))
        first_write_ms = {
            dataset: run.start_ms or 0 for run, _ in reversed(queries) for dataset in run.outputs
        }
        of_rdds = ((run.start_ms or 0, read) for run, read in reads if run.job_type == RDD_JOB)
        before = {
            dataset
            for ms, read in of_rdds
            for dataset, _ in read
            if ms < first_write_ms.get(dataset, 0)
        }
        around = set(chain.from_iterable(map(folders_around, touched)))
        return {
            dataset
            for dataset in listed - by_queries - before
            if dataset in touched or (dataset.namespace, dataset.name.rstrip("/")) in around
        }

    def _by_urn(self, datasets: _Touched, *, with_schemas: bool) -> dict[str, JobDataset]:
        found: dict[str, JobDataset] = {}
        ids: dict[str, dict[DatasetId, None]] = {}
        schemas: dict[str, tuple[int, bytes]] = {}
        metadata: dict[str, Mapping[str, tuple[int, JsonObject]]] = {}
        for dataset, state in in_time(datasets):
            name = self._namer.name(dataset)
            if name is None:
                continue
            urn = name.urn
            entry = found.get(urn)
            if entry is None:
                found[urn] = JobDataset(name, (dataset,))
            elif dataset != entry.ids[0]:
                ids.setdefault(urn, dict.fromkeys(entry.ids))[dataset] = None
            if with_schemas and state.schema is not None and _replaces(state, schemas.get(urn)):
                schemas[urn] = (state.schema_index, state.schema)
            if state.metadata:
                metadata[urn] = DatasetMetadata.merge(metadata.get(urn, {}), state.metadata)
        for urn, facets in metadata.items():
            found[urn].metadata = self._metadata(facets)
        for urn, several in ids.items():
            found[urn].ids = tuple(several)
        for urn, (_, schema) in in_time(schemas.items()):
            self._describe(found[urn], schema)
        return dict(sorted(found.items())) if len(found) > 1 else found

    def _metadata(self, facets: Mapping[str, tuple[int, JsonObject]]) -> DatasetMetadata:
        read = DatasetMetadata.read({name: facet for name, (_, facet) in facets.items()})
        return replace(read, description=self._limit.text(read.description))

    def _is_file(self, dataset: JobDataset) -> bool:
        """Return whether it is a file or folder that only its writers describe, and no part of a
        table.
        """
        is_path, tables = self._namer.is_whole_path, self._catalogued
        return all(
            is_path(name) and tables.isdisjoint((name, *folders_around(name)))
            for name in dataset.ids
        )

    @cached_property
    def _catalogued(self) -> set[DatasetId]:
        """The datasets of tables."""
        touched = (
            item
            for run, _ in self._written
            for items in (run.inputs, run.outputs)
            for item in items.items()
        )
        return {dataset for dataset, state in touched if state.in_catalog}

    def _describe(self, dataset: JobDataset, facet: bytes) -> None:
        if self._schemas == "written" and not self._is_file(dataset):
            return
        if self._fields >= MOST_FIELDS:
            self._limit.count(SCHEMAS_LEFT_OUT)
            return
        key = facet, urns.platform_urn(dataset.name.platform)
        if key not in self._aspects:
            self._aspects[key] = schema_metadata(*key, with_descriptions=self._with_descriptions)
        schema = self._aspects[key]
        self._fields += len(schema["fields"])
        dataset.schema = dataset.metadata.tag_fields(self._limit.schema(schema))


def _folders_of_files(reads: Sequence[tuple[RunState, _Touched]]) -> set[DatasetId]:
    """Return the folders that queries name in place of a file in them, as OpenLineage does for the
    rows of an RDD.

    No event has a schema of such a folder, and a query reads a file in the folder with its schema.
    """
    queries = [(run, read) for run, read in reads if run.job_type != RDD_JOB and not run.is_logged]
    bare = {
        dataset
        for run, _ in queries
        for dataset, state in run.inputs.items()
        if state.schema is None
    }
    if not bare:
        return set()
    described = [
        (run, dataset)
        for run, read in queries
        for dataset, state in read
        if state.schema is not None
    ]
    around = {
        dataset._replace(name=dataset.name.rpartition("/")[0])
        for run, dataset in described
        if "." in dataset.name.rpartition("/")[2] and not run.is_streaming
    }
    return (bare & around).difference(
        (dataset for _, dataset in described), *(run.outputs for run, _ in queries)
    )


def _replaces(state: DatasetState, known: tuple[int, bytes] | None) -> bool:
    """Return whether the schema of a dataset replaces the known one. The later one wins, unless it
    has fewer columns.

    A query of a database reads some columns of a table, and OpenLineage reports them as the table's
    schema.
    """
    if known is None:
        return True
    index, schema = known
    if state.schema is schema or state.schema == schema:
        return False
    ours, theirs = set(field_names(state.schema)), set(field_names(schema))
    if ours < theirs or theirs < ours:
        return theirs < ours
    return state.schema_index >= index
