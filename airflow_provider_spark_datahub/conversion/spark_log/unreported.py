"""Lineage that physical plans show and OpenLineage did not report: lost SQL executions, columns, and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product

from msgspec import structs

from airflow_provider_spark_datahub.conversion.columns.facet import (
    PARSED_PLAN,
    ColumnEdge,
    ColumnId,
    DatasetColumns,
)
from airflow_provider_spark_datahub.conversion.columns.sql import (
    DatabaseTables,
    StatementError,
    Steps,
    columns_of_query,
    direct_columns,
    short_statement,
)
from airflow_provider_spark_datahub.conversion.datasets import (
    DatasetName,
    DatasetNamer,
    parent_folders,
    table_and_selector,
)
from airflow_provider_spark_datahub.conversion.diagnostics import LostExecution
from airflow_provider_spark_datahub.conversion.events import LATEST_MS, RDD_JOB, SQL_JOB, DatasetId
from airflow_provider_spark_datahub.conversion.facets.dataset import field_names
from airflow_provider_spark_datahub.conversion.runs.coalesce import JobLineage
from airflow_provider_spark_datahub.conversion.runs.effects import with_known_columns
from airflow_provider_spark_datahub.conversion.runs.evidence import SPARK_PLAN
from airflow_provider_spark_datahub.conversion.runs.fold import Application, DatasetState, RunState
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import ColumnSource
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    Moment,
    SqlExecution,
    dataset_of,
    location_of,
    moments_of,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import (
    SPLITS,
    ExecutionColumns,
    PlanColumns,
    WrittenColumns,
    with_cloned,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    CHECKPOINT,
    CLONE,
    KAFKA,
    MERGE,
    MERGE_ROWS,
    PlanDataset,
    PlanDatasets,
)

# -- lost executions

# Roots and inner nodes of plans that write data. Nothing else counts as lost: OpenLineage leaves out plans that only
# read (collect, show, count) and some commands on purpose (its SparkNodesFilter, CreateViewFilter).
_WRITES = re.compile(
    r"\b(?:InsertInto\w*|Create\w*TableAsSelect\w*|Replace\w*TableAsSelect\w*|SaveIntoDataSourceCommand"
    r"|MergeInto\w*|MergeRows|AppendData\w*|Overwrite(?:ByExpression|PartitionsDynamic)\w*|ReplaceData|WriteDelta"
    r"|WriteIntoDelta\w*|DeleteFromTable\w*|DeleteCommand\w*|UpdateCommand\w*|UpdateTable\w*)\b"
)
# Commands are not queries whose rows the driver takes.
_NO_READS = re.compile(rf"{_WRITES.pattern}|\bExecute \w|^== Physical Plan ==\n(?:\* )?Call\b")
_REASON = "it wrote data, but OpenLineage sent no event for it"
# "Formatted" plans begin with the tree; two empty lines and a description of each node follow.
_END_OF_TREE = "\n\n\n"


def _lost_executions(logged: LoggedApplication, applications: Sequence[Application]) -> list[LostExecution]:
    """Return the executions of an application that wrote data and that OpenLineage did not report.

    Micro-batches, failed executions and parts of a reported execution do not count; an execution and its parts count
    once.

    :param applications: reported applications, the logged one among them.
    """
    if not any(application.runs for application in applications):
        # The listener did not run: OpenLineage did not lose single executions.
        return []
    reported = logged.reported_executions(run for application in applications for run in application.runs)
    lost: dict[int, LostExecution] = {}
    plans: dict[int, list[str]] = {}
    for part in logged.executions.values():
        plans.setdefault(part.root_id, []).append(part.plan)
    for execution in logged.executions.values():
        if execution.id not in reported and execution.root_id not in lost and _wrote_data(execution):
            parts = tuple(plans[execution.root_id])
            lost[execution.root_id] = LostExecution(execution.id, execution.description, _REASON, parts)
    return list(lost.values())


def _wrote_data(execution: SqlExecution) -> bool:
    """Return whether it ended well, is not a micro-batch, and has a plan that writes data."""
    if execution.query_run_id or execution.failed or execution.end_ms is None:
        return False
    return bool(_WRITES.search(execution.plan.partition(_END_OF_TREE)[0]))


# -- edges of lost executions


class LostLineage:
    """Lost executions of applications and, with ``capture_lost_executions``, the edges that their plans name.

    :ivar executions: the lost executions. Once :meth:`add_edges` has seen their jobs, their reasons name the edges.
    :ivar unreported_tables: tables that other executions read or wrote, and that no event names.
    """

    def __init__(
        self,
        applications: Sequence[Application],
        logs: Sequence[LoggedApplication],
        symlinks: Mapping[DatasetId, DatasetId],
        settings: LineageSettings,
    ) -> None:
        self.executions: list[LostExecution] = []
        self.unreported_tables: list[str] = []
        self._names: dict[str, tuple[range, _ReportedNames]] = {}
        # How many outermost executions Spark ran, OpenLineage reported, and only the log shows.
        self._counts: dict[str, tuple[int, int, int]] = {}
        for logged in logs:
            begin = len(self.executions)
            self.executions += _lost_executions(logged, applications)
            numbers = range(begin, len(self.executions))
            application = logged.match(applications, logs)
            if application is None:
                continue
            ran, reported = logged.count_executions(run for run in application.runs if not run.is_logged)
            _, only_logged = logged.count_executions(run for run in application.runs if run.is_logged)
            self._counts[application.run_id] = ran, reported, only_logged
            if not numbers:
                self.unreported_tables += _unreported_tables(logged, application, symlinks)
            elif settings.capture_lost_executions:
                names = _reported_names(application, DatasetNamer(settings, symlinks), symlinks, logged.default_fs)
                self._names[application.run_id] = numbers, names

    def add_edges(self, job: JobLineage) -> JobLineage:
        """Add the edges that the plans of the job's lost executions name, and return the job.

        Its run says how many executions it had, and how many of them have lineage.
        """
        recovered = 0
        if job.run.id in self._names:
            # Other jobs may share the lineage.
            lineage = job.lineage = structs.replace(
                job.lineage, inputs=dict(job.lineage.inputs), outputs=dict(job.lineage.outputs), made=None
            )
            numbers, names = self._names[job.run.id]
            inputs, outputs = _PlanEdges(lineage.inputs), _PlanEdges(lineage.outputs)
            for number in numbers:
                self.executions[number], added = _add_edges(inputs, outputs, self.executions[number], names)
                recovered += added > 0
            inputs.name_executions()
            outputs.name_executions()
            lineage.inputs = dict(sorted(lineage.inputs.items()))
            lineage.outputs = dict(sorted(lineage.outputs.items()))
        if job.run.id in self._counts:
            ran, reported, only_logged = self._counts[job.run.id]
            recovered += only_logged
            counts = {"": ran, "_reported": reported, "_recovered": recovered, "_delivered": reported + recovered}
            job.run.execution_counts = {f"spark_executions{name}": str(count) for name, count in counts.items()}
        return job


def _add_edges(
    inputs: _PlanEdges, outputs: _PlanEdges, execution: LostExecution, names: _ReportedNames
) -> tuple[LostExecution, int]:
    """Add the datasets of an execution to its job.

    :returns: the execution, with a reason that names the added edges and their number.
    """
    datasets = PlanDatasets.of(execution.plans)
    sinks = [names.resolve(sink) for sink in datasets.sinks]
    # An execution that replaces files of its target reads them first: they are not an input.
    written = {sink.urn for sink in sinks if isinstance(sink, DatasetName)}
    sources = [
        source
        for source in map(names.resolve, datasets.sources)
        if isinstance(source, str) or source.urn not in written
    ]
    added = inputs.add(execution.id, sources) + outputs.add(execution.id, sinks)
    unknown = dict.fromkeys(table for table in (*sources, *sinks) if isinstance(table, str))
    parts = [execution.reason]
    if added:
        parts.append(f"{added} of its edges come from its plan")
    if unknown:
        parts.append(f"its plan names tables that no event names: {', '.join(unknown)}")
    if not added and not unknown:
        parts.append("its plan names no file or table that the events lack")
    return replace(execution, reason="; ".join(parts)), added


_MOST_EXECUTIONS = 20


class _PlanEdges:
    """Edges of one job, in one direction, that only the plans of its lost executions name.

    :param known: all edges of this direction, to which these are added.
    """

    def __init__(self, known: dict[str, JobDataset]) -> None:
        self._known = known
        self._executions: dict[str, dict[int, None]] = {}

    def add(self, execution: int, names: Iterable[DatasetName | str]) -> int:
        """Add those of one execution that no event names; return how many they are."""
        added = 0
        for name in names:
            if isinstance(name, str):
                continue
            if name.urn not in self._executions:
                dataset = self._known.setdefault(name.urn, JobDataset(name, edge_properties={"source": SPARK_PLAN}))
                if dataset.edge_properties.get("source") != SPARK_PLAN:
                    continue
            self._executions.setdefault(name.urn, {})[execution] = None
            added += 1
        return added

    def name_executions(self) -> None:
        """Write the executions of each edge into the edge's properties."""
        for urn, executions in self._executions.items():
            listed = {"source": SPARK_PLAN, "executions": ", ".join(map(str, [*executions][:_MOST_EXECUTIONS]))}
            more = len(executions) - _MOST_EXECUTIONS
            self._known[urn].edge_properties = listed | ({"moreExecutions": str(more)} if more > 0 else {})


def _reported_names(
    application: Application, namer: DatasetNamer, symlinks: Mapping[DatasetId, DatasetId], default_fs: str
) -> _ReportedNames:
    platforms = {table.namespace for table in symlinks.values()}
    states = [item for run in application.runs for item in (*run.inputs.items(), *run.outputs.items())]
    return _ReportedNames(
        namer,
        default_fs,
        tables={table.name: table for table in symlinks.values()} if len(platforms) == 1 else {},
        platform=platforms.pop() if len(platforms) == 1 else "",
        paths={*symlinks, *(dataset for dataset, _ in states)},
        renamed=frozenset(state.previous for _, state in states if state.previous),
        states=states,
    )


@dataclass(frozen=True)
class _ReportedNames:
    """Names of datasets in the events of an application.

    :param tables: tables by name; empty if they are on several platforms.
    :param platform: the platform of all tables, or empty.
    :param paths: datasets that events name, tables or not.
    :param renamed: old names of tables.
    :param states: all datasets of its runs.
    """

    namer: DatasetNamer
    default_fs: str
    tables: Mapping[str, DatasetId]
    platform: str
    paths: set[DatasetId]
    renamed: frozenset[DatasetId]
    states: Sequence[tuple[DatasetId, DatasetState]]

    def columns(self, table: PlanDataset) -> tuple[str, ...]:
        """Return the columns of a dataset, by the latest schema in events."""
        name = self.resolve(table)
        return field_names(self._schemas.get(name) if isinstance(name, DatasetName) else None)

    @cached_property
    def _schemas(self) -> Mapping[DatasetName | None, bytes]:
        return {self.namer.name(dataset): state.schema for dataset, state in self.states if state.schema is not None}

    @cached_property
    def _tables_of_databases(self) -> DatabaseTables:
        return DatabaseTables(self.paths)

    def resolve(self, named: PlanDataset) -> DatasetName | str:
        """Return the dataset of a plan's table; the table's name if events do not name it."""
        dataset = self.dataset(named)
        name = self.namer.name(dataset) if dataset is not None else None
        return name or named.table or named.path or named.relation

    def dataset(self, named: PlanDataset) -> DatasetId | None:
        if named.topic:
            return DatasetId(KAFKA, named.topic)
        path = location_of(named.path, self.default_fs) if named.path else None
        if path in self.renamed:
            return None
        if path is not None and path in self.paths:
            return path
        if not named.table:
            return dataset_of(named.path, self.default_fs) if named.path else None
        # Plans may or may not put the catalogue in front of the name of a table that is not in the session's catalogue.
        table = self.tables.get(named.table) or self.tables.get(named.table.partition(".")[2])
        if table is not None:
            return table
        catalog_table = named.table.partition(".")[2]
        if "." in catalog_table:
            # A catalogue may be a database.
            return self._tables_of_databases.find(catalog_table)
        database, _, name = named.table.partition(".")
        # OpenLineage uses a table's name if the table is in the warehouse; elsewhere, the catalogue decides.
        if path is not None and self.platform and path.name.endswith(f"/{database}.db/{name}"):
            return DatasetId(self.platform, named.table)
        return None


# -- columns of reported executions


def with_lineage_of_plans(
    application: Application,
    logged: LoggedApplication,
    settings: LineageSettings,
    symlinks: Mapping[DatasetId, DatasetId],
) -> Application:
    """Return the application with lineage that plans of reported executions show and OpenLineage does not report.

    Plans add columns of outputs without column lineage, outputs of queries without outputs (an INSERT into several
    tables), and the inputs of queries that only returned rows to the driver.
    """
    namer = DatasetNamer(settings, symlinks)
    names = _reported_names(application, namer, symlinks, logged.default_fs)
    columns = _ReportedColumns(names, namer)
    by_id = {run.run_id: run for run in application.runs}
    by_moment = _runs_by_moment(application.runs)
    has_checkpoints = any(CHECKPOINT in execution.plan for execution in logged.executions.values())
    plans = PlanColumns()
    filled: dict[str, RunState] = {}
    added: dict[str, RunState] = {}
    for parts in logged.root_executions():
        matched = {run_id for part in parts for moment in part.moments for run_id in by_moment.get(moment, ())}
        # Drop column lineage from columns that their table lacks: databases compute some columns.
        runs = {run_id: filled.get(run_id) or with_known_columns(by_id[run_id]) for run_id in sorted(matched)}
        is_silent = (
            bool(runs)
            and not any(run.outputs for run in runs.values())
            and any(_wrote_data(part) or CLONE in part.plan for part in parts)
        )
        is_merge = any(MERGE in part.plan or MERGE_ROWS in part.plan for part in parts)
        is_split = any(SPLITS.search(part.plan) for part in parts)
        if not (has_checkpoints or is_silent or is_merge or is_split or any(map(_lacks_columns, runs.values()))):
            continue
        found = plans.of([part.plan for part in parts], parts[0].description)
        if is_silent and not any(part.failed or part.end_ms is None for part in parts):
            run = columns.with_outputs(next(iter(runs.values())), parts)
            if run.outputs:
                added[run.run_id] = columns.filled({run.run_id: run}, found).get(run.run_id, run)
            continue
        filled |= columns.filled(runs, found, of_rows=any(CHECKPOINT in part.plan for part in parts))
    reads = list(_reads_of_driver(application, logged, names))
    if not filled and not added and not reads:
        return application
    runs_of_plans = (
        (filled.get(run.run_id, run), *([added[run.run_id]] if run.run_id in added else ())) for run in application.runs
    )
    return replace(application, runs=(*chain.from_iterable(runs_of_plans), *reads))


def _reads_of_driver(application: Application, logged: LoggedApplication, names: _ReportedNames) -> Iterator[RunState]:
    """Yield a run for each query whose rows the driver took, and that no event reports: OpenLineage leaves many out.

    Two kinds of reads do not count: reading back what the application has just written, and listing a file in a folder
    that events name.
    """
    queries = [run for run in application.runs if run.job_type != RDD_JOB]
    known = {dataset for run in queries for dataset in run.inputs}
    first_write_ms: dict[DatasetId, int] = {}
    for run in queries:
        for dataset, _ in run.written:
            first_write_ms[dataset] = min(run.start_ms or 0, first_write_ms.get(dataset, LATEST_MS))
    named = {(dataset.namespace, dataset.name.rstrip("/")) for dataset in known | first_write_ms.keys()}
    reported = logged.reported_executions(application.runs)
    for parts in logged.root_executions(with_micro_batches=False):
        trees = (part.plan.partition(_END_OF_TREE)[0] for part in parts)
        is_known = any(part.id in reported or part.failed or part.end_ms is None for part in parts)
        if is_known or any(map(_NO_READS.search, trees)):
            continue
        inputs = {
            source: DatasetState()
            for source in map(names.dataset, PlanDatasets.of(part.plan for part in parts).sources)
            if source is not None
            and source not in known
            and parts[0].start_ms < first_write_ms.get(source, LATEST_MS)
            and named.isdisjoint((source.namespace, folder) for folder in parent_folders(source.name))
        }
        if inputs:
            known |= inputs.keys()
            own = application.runs[0]
            yield RunState(
                f"{application.run_id}-{parts[0].id}",
                own.index,
                f"{own.job_name.partition('.')[0]}.{parts[0].description or f'execution_{parts[0].id}'}",
                own.flow,
                SQL_JOB,
                application.run_id,
                last_index=own.last_index,
                start_ms=parts[0].start_ms,
                end_ms=parts[0].end_ms,
                started=True,
                ended=True,
                is_logged=True,
                inputs=inputs,
            )


def _runs_by_moment(runs: Iterable[RunState]) -> dict[Moment, set[str]]:
    found: dict[Moment, set[str]] = {}
    for run in runs:
        for moment in moments_of(run) if run.is_query and not run.failure and not run.refused else ():
            found.setdefault(moment, set()).add(run.run_id)
    return found


def _lacks_columns(run: RunState) -> bool:
    """Return whether a column of an output has no direct column lineage, as far as schemas are known."""
    return any(
        state.schema is None or not direct_columns(state).issuperset(field_names(state.schema))
        for _, state in run.written
    )


def _with_files(inputs: Mapping[DatasetId, DatasetState], edges: Iterable[ColumnEdge]) -> dict[DatasetId, DatasetState]:
    """Return the inputs with the files that a plan names, in place of the folders around them.

    OpenLineage names the folder of a file that an RDD reads, such as one behind a checkpoint.
    """
    upstreams = dict.fromkeys(column.dataset for edge in edges for column in edge.upstreams)
    files = [dataset for dataset in upstreams if dataset not in inputs]
    folders = {file._replace(name=file.name.rpartition("/")[0]) for file in files}
    known = {dataset: state for dataset, state in inputs.items() if dataset not in folders}
    return known | {file: DatasetState() for file in files if "/" in file.name}


@dataclass(frozen=True, slots=True)
class _ReportedColumns:
    """Columns of plans under the names that events give the datasets."""

    names: _ReportedNames
    namer: DatasetNamer
    steps: Steps = field(default_factory=Steps)

    def with_outputs(self, run: RunState, parts: Sequence[SqlExecution]) -> RunState:
        """Return the run with the outputs in the plans of its execution, if they have names of datasets."""
        plans = [part.plan for part in parts]
        found = PlanDatasets.of(plans)
        cloned = found.sources if any(CLONE in plan for plan in plans) else ()
        inputs, outputs = (
            {dataset: DatasetState() for named in listed if (dataset := self.names.dataset(named)) is not None}
            for listed in (cloned, found.sinks)
        )
        return structs.replace(run, inputs=inputs, outputs=outputs, properties={}, is_logged=True)

    def filled(
        self, runs: Mapping[str, RunState], found: ExecutionColumns, *, of_rows: bool = False
    ) -> dict[str, RunState]:
        """Return the runs that wrote the sinks of an execution, with the columns that none of them has.

        :param of_rows: the execution read the rows of a checkpoint.
        """
        written: dict[PlanDataset, WrittenColumns] = {}
        for sink, columns_of_sink in found.written if runs else ():
            written.setdefault(sink, {}).update(with_cloned(columns_of_sink, self.names.columns))
        outputs = _Outputs(runs, self.namer)
        for sink, columns_of_sink in written.items():
            self._fill(outputs, sink, columns_of_sink, found, of_rows=of_rows)
        return outputs.filled(of_rows=of_rows)

    def _fill(
        self, outputs: _Outputs, sink: PlanDataset, written: WrittenColumns, found: ExecutionColumns, *, of_rows: bool
    ) -> None:
        target = self.names.resolve(sink)
        # A folder may be made of itself by way of a checkpoint.
        own = None if of_rows else target
        exact = frozenset(map(str.lower, found.exact.get(sink, ())))
        states = [
            (
                run,
                dataset,
                structs.replace(state, columns=state.columns.without(exact)) if exact and state.columns else state,
            )
            for run, dataset, state in outputs.of(sink, target)
        ]
        known = {column.lower() for _, _, state in states for column in direct_columns(state)}
        is_new = self._is_new(sink, found, [state for _, _, state in states])
        for run, dataset, state in states:
            queries = self._of_databases(written, outputs.tables_of_databases(run))
            names = {name.lower(): name for name in reversed(field_names(state.schema))}
            edges = [
                ColumnEdge((names.get(column.lower(), column),), upstreams, PARSED_PLAN)
                for column, sources in written.items()
                for upstreams in [
                    tuple(
                        source
                        for source in dict.fromkeys(self._upstreams(sources, queries, own))
                        if column.lower() not in known or is_new(column, source)
                    )
                ]
                if upstreams
            ]
            if edges or exact:
                columns = state.columns or DatasetColumns.of((), run.sql)
                outputs.change(run, dataset, structs.replace(state, columns=columns.with_edges(edges)), edges)
            elif found.ends and not known:
                gap = short_statement(", and ".join(found.ends), 200)
                outputs.change(run, dataset, structs.replace(state, gap=gap))

    def _is_new(
        self, sink: PlanDataset, found: ExecutionColumns, states: Sequence[DatasetState]
    ) -> Callable[[str, ColumnId], bool]:
        """Return whether events may lack a source of a column that they have others of.

        OpenLineage may report one clause of a MERGE, or one part of a union. Parts of a union count by their datasets,
        since events may name a field of a column.
        """
        of_union = sink not in found.merged
        if of_union and not found.has_union:
            return lambda *_: False

        def pair(column: str, source: ColumnId) -> tuple[str, DatasetName | None, str]:
            return column.lower(), self.namer.name(source.dataset), "" if of_union else source.field.lower()

        edges = (edge for state in states if state.columns is not None for edge in state.columns.direct_edges())
        reported = {pair(*named) for edge in edges for named in product(edge.downstreams, edge.upstreams)}
        return lambda column, source: pair(column, source) not in reported

    def _upstreams(
        self, sources: Iterable[ColumnSource], queries: Mapping[str, Mapping[str, tuple[ColumnId, ...]]], target: object
    ) -> Iterator[ColumnId]:
        for source in sources:
            if source.dataset.relation:
                yield from queries[source.dataset.relation].get(source.column, ())
                continue
            dataset = self.names.dataset(source.dataset)
            # Commands that change rows read the rest of their target.
            if dataset is not None and self.namer.name(dataset) != target:
                yield ColumnId(dataset, source.column)

    def _of_databases(
        self, written: WrittenColumns, tables: Callable[[], DatabaseTables]
    ) -> Mapping[str, Mapping[str, tuple[ColumnId, ...]]]:
        """Return the table columns behind each column of a query that a database runs, by the query."""
        wanted: dict[str, set[str]] = {}
        for source in chain.from_iterable(written.values()):
            if source.dataset.relation:
                wanted.setdefault(source.dataset.relation, set()).add(source.column)
        found: dict[str, Mapping[str, tuple[ColumnId, ...]]] = {}
        for relation, columns in wanted.items():
            found[relation] = {}
            with suppress(StatementError):
                found[relation] = columns_of_query(relation, columns, tables(), self.steps)
        return found


class _Outputs:
    """Outputs of the runs of one execution, by the sinks of its plans, and what changes in them."""

    def __init__(self, runs: Mapping[str, RunState], namer: DatasetNamer) -> None:
        self._runs = runs
        self._namer = namer
        written = [(run_id, dataset) for run_id, run in runs.items() for dataset, _ in run.written]
        self._by_name: dict[object, list[tuple[str, DatasetId]]] = {}
        self._runs_of: dict[DatasetId, list[str]] = {}
        for run_id, dataset in written:
            self._by_name.setdefault(namer.name(dataset), []).append((run_id, dataset))
            self._runs_of.setdefault(dataset, []).append(run_id)
        self._databases = DatabaseTables(self._runs_of)
        self._read_tables: dict[str, DatabaseTables] = {}
        self._changed: dict[str, dict[DatasetId, DatasetState]] = {}
        self._edges: dict[str, list[ColumnEdge]] = {}

    def of(self, sink: PlanDataset, target: object) -> list[tuple[RunState, DatasetId, DatasetState]]:
        """Return the runs that wrote a sink, with their outputs of that name, as they are by now.

        :param target: the name of the sink.
        """
        found = dict.fromkeys(self._by_name.get(target, ()))
        for table in self._databases.named(sink.relation) if sink.relation else ():
            found |= dict.fromkeys((run_id, table) for run_id in self._runs_of[table])
        return [
            (run, dataset, self._changed.get(run_id, run.outputs).get(dataset) or run.outputs[dataset])
            for run_id, dataset in found
            for run in [self._runs[run_id]]
        ]

    def tables_of_databases(self, run: RunState) -> Callable[[], DatabaseTables]:
        """Return a function that returns the tables of databases that a run read."""

        def tables() -> DatabaseTables:
            if run.run_id not in self._read_tables:
                self._read_tables[run.run_id] = DatabaseTables(run.inputs)
            return self._read_tables[run.run_id]

        return tables

    def change(self, run: RunState, dataset: DatasetId, state: DatasetState, edges: Sequence[ColumnEdge] = ()) -> None:
        """Replace the state of an output. :param edges: those that are new in it."""
        self._changed.setdefault(run.run_id, {})[dataset] = state
        self._edges.setdefault(run.run_id, []).extend(edges)

    def filled(self, *, of_rows: bool) -> dict[str, RunState]:
        """Return the runs with changed outputs. :param of_rows: their execution read the rows of a checkpoint."""
        filled = {}
        for run_id, changed in self._changed.items():
            run = self._runs[run_id]
            inputs = _with_files(run.inputs, self._edges[run_id]) if of_rows else run.inputs
            filled[run_id] = structs.replace(run, inputs=inputs, outputs={**run.outputs, **changed})
        return filled


# -- unreported tables

_SEPARATOR = re.compile(r"(?:\.db)?/|\.")


def _unreported_tables(
    logged: LoggedApplication, application: Application, symlinks: Mapping[DatasetId, DatasetId]
) -> tuple[str, ...]:
    """Return the tables that plans of writing executions name but no event of the application does.

    Only tables outside the session's catalogue are compared, by table and database: events spell the rest as the
    catalogue does.
    """
    datasets = {dataset for run in application.runs for dataset in (*run.inputs, *run.outputs)}
    datasets |= {symlinks[dataset] for dataset in datasets if dataset in symlinks}
    known = {tail for dataset in datasets for tail in _tails(dataset.name)}
    named = PlanDatasets.of(execution.plan for execution in logged.executions.values() if _wrote_data(execution))
    tables = {dataset.table for dataset in (*named.sources, *named.sinks) if dataset.table.count(".") > 1}
    return tuple(table for table in sorted(tables) if known.isdisjoint(_tails(table)))


def _tails(name: str) -> set[str]:
    """Return ``database/table`` of a name or path, and that of the table behind an Iceberg metadata table.

    ``db.orders.snapshots``, for example, may be a table or metadata of ``db.orders``.
    """
    spellings = (name, table_and_selector(name, "")[0])
    return {"/".join(_SEPARATOR.split(spelling.lower().rstrip("/"))[-2:]) for spelling in spellings}
