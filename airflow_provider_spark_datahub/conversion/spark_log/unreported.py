"""What OpenLineage did not report of an application: lost SQL executions, their edges, and tables without a name.

Lost executions are in Spark's own event log and in no OpenLineage event; the text of their physical plans names the
files and tables that they read and wrote. Unreported tables belong to catalogues that OpenLineage cannot name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer, table_and_selector
from airflow_provider_spark_datahub.conversion.diagnostics import LostExecution
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.runs.coalesce import JobLineage
from airflow_provider_spark_datahub.conversion.runs.evidence import SPARK_PLAN
from airflow_provider_spark_datahub.conversion.runs.fold import Application
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset, Lineage
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication, SqlExecution, location_of
from airflow_provider_spark_datahub.conversion.spark_log.plans import PlanDataset, PlanDatasets

# -- lost executions

# Roots and inner nodes of plans that write data. Nothing else counts as lost: OpenLineage leaves out plans that only
# read (collect, show, count) and some commands on purpose (its SparkNodesFilter, CreateViewFilter).
_WRITES = re.compile(
    r"\b(?:InsertInto\w*|Create\w*TableAsSelect\w*|Replace\w*TableAsSelect\w*|SaveIntoDataSourceCommand"
    r"|MergeInto\w*|MergeRows|AppendData\w*|Overwrite(?:ByExpression|PartitionsDynamic)\w*|ReplaceData|WriteDelta"
    r"|WriteIntoDelta\w*|DeleteFromTable\w*|DeleteCommand\w*|UpdateCommand\w*|UpdateTable\w*)\b"
)
_REASON = "it wrote data, but OpenLineage sent no event for it"
# "Formatted" plans begin with the tree; two empty lines and a description of each node follow.
_END_OF_TREE = "\n\n\n"


def _lost_executions(logged: LoggedApplication, applications: Sequence[Application]) -> list[LostExecution]:
    """Return the executions of an application that wrote data and that OpenLineage did not report.

    To give no false alarm, this leaves out micro-batches (their query's progress names source and sink), failed
    executions, and parts of a reported execution. An execution and its parts count once.

    :param applications: the reported applications; others than the logged one do no harm.
    """
    if not any(application.runs for application in applications):
        # The listener did not run: OpenLineage did not lose single executions.
        return []
    reported = logged.reported_executions(run for application in applications for run in application.runs)
    lost: dict[int, LostExecution] = {}
    for execution in logged.executions.values():
        if execution.id not in reported and execution.root_id not in lost and _wrote_data(execution):
            plans = tuple(part.plan for part in logged.executions.values() if part.root_id == execution.root_id)
            lost[execution.root_id] = LostExecution(execution.id, execution.description, _REASON, plans)
    return list(lost.values())


def _wrote_data(execution: SqlExecution) -> bool:
    """Return whether it ended well, is not a micro-batch, and has a plan that writes data."""
    if execution.query_run_id or execution.failed or execution.end_ms is None:
        return False
    return bool(_WRITES.search(execution.plan.partition(_END_OF_TREE)[0]))


# -- edges of lost executions


class LostLineage:
    """Lost executions of applications and, with ``capture_lost_executions``, the edges that their plans name.

    :param symlinks: the tables behind paths.
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
        for logged in logs:
            begin = len(self.executions)
            self.executions += _lost_executions(logged, applications)
            numbers = range(begin, len(self.executions))
            application = logged.match(applications, logs)
            if application is None:
                continue
            if not numbers:
                self.unreported_tables += _unreported_tables(logged, application, symlinks)
            elif settings.capture_lost_executions:
                names = _reported_names(application, DatasetNamer(settings, symlinks), symlinks, logged.default_fs)
                self._names[application.run_id] = numbers, names

    def add_edges(self, job: JobLineage) -> JobLineage:
        """Add the edges that the plans of the job's lost executions name, and return the job."""
        lineage = job.lineage
        if job.run.id in self._names:
            numbers, names = self._names[job.run.id]
            for number in numbers:
                self.executions[number] = _add_edges(lineage, self.executions[number], names)
            lineage.inputs = dict(sorted(lineage.inputs.items()))
            lineage.outputs = dict(sorted(lineage.outputs.items()))
        return job


def _add_edges(lineage: Lineage, execution: LostExecution, names: _ReportedNames) -> LostExecution:
    """Add the datasets of an execution to the job. Return the execution with a reason that says what was added."""
    datasets = PlanDatasets.of(execution.plans)
    sinks = [names.resolve(sink) for sink in datasets.sinks]
    written = {sink.urn for sink in sinks if isinstance(sink, DatasetName)}
    # An execution that replaces files of its target reads them first: they are not an input.
    sources = [source for source in map(names.resolve, datasets.sources) if source.urn not in written]
    added = _add(lineage.inputs, sources, execution.id) + _add(lineage.outputs, sinks, execution.id)
    unknown = dict.fromkeys(dataset.table for dataset in (*sources, *sinks) if isinstance(dataset, _Unknown))
    parts = [execution.reason]
    if added:
        parts.append(f"{added} of its edges come from its plan")
    if unknown:
        parts.append(f"its plan names tables that no event names: {', '.join(unknown)}")
    if not added and not unknown:
        parts.append("its plan names no file or table that the events lack")
    return replace(execution, reason="; ".join(parts))


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A table that plans name and events do not, so its dataset is not known."""

    table: str
    urn: None = None


def _add(known: dict[str, JobDataset], names: Sequence[DatasetName | _Unknown], execution: int) -> int:
    added = 0
    for name in names:
        if isinstance(name, _Unknown) or (
            name.urn in known and known[name.urn].edge_properties.get("source") != SPARK_PLAN
        ):
            continue
        dataset = known.setdefault(name.urn, JobDataset(name))
        executions = dataset.edge_properties.get("executions", "").split(", ") if dataset.edge_properties else []
        listed = ", ".join(dict.fromkeys([*executions, str(execution)]))
        dataset.edge_properties = {"source": SPARK_PLAN, "executions": listed}
        added += 1
    return added


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
    )


@dataclass(frozen=True, slots=True)
class _ReportedNames:
    """Names of datasets in the events of an application.

    :param tables: tables by name; empty if they are on several platforms.
    :param platform: the platform of all tables, or empty.
    :param paths: datasets that events name, tables or not.
    :param renamed: old names of tables.
    """

    namer: DatasetNamer
    default_fs: str
    tables: Mapping[str, DatasetId]
    platform: str
    paths: set[DatasetId]
    renamed: frozenset[DatasetId]

    def resolve(self, named: PlanDataset) -> DatasetName | _Unknown:
        dataset = self._dataset(named)
        name = self.namer.name(dataset) if dataset is not None else None
        return name or _Unknown(named.table or named.path)

    def _dataset(self, named: PlanDataset) -> DatasetId | None:
        path = location_of(named.path, self.default_fs) if named.path else None
        if path in self.renamed:
            return None
        if path is not None and (path in self.paths or not named.table):
            return path
        # Plans may or may not put the catalogue in front of the name of a table that is not in the session's catalogue.
        table = self.tables.get(named.table) or self.tables.get(named.table.partition(".")[2])
        if table is not None:
            return table
        database, _, name = named.table.partition(".")
        # OpenLineage names tables in the warehouse by their names; elsewhere that depends on the catalogue.
        if path is not None and self.platform and path.name.endswith(f"/{database}.db/{name}"):
            return DatasetId(self.platform, named.table)
        return None


# -- unreported tables

_SEPARATOR = re.compile(r"(?:\.db)?/|\.")


def _unreported_tables(
    logged: LoggedApplication, application: Application, symlinks: Mapping[DatasetId, DatasetId]
) -> tuple[str, ...]:
    """Return the tables that plans of writing executions name and no event of the application does.

    Only tables of other catalogues than the session's have names that show it. A table counts as known by its own name
    and that of its database: events spell the rest as the catalogue does.

    :param symlinks: the tables behind paths.
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
