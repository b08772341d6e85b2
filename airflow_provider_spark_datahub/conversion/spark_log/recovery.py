"""Edges of the SQL executions that OpenLineage lost, from the plans in Spark's own event log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.runs.coalesce import JobLineage
from airflow_provider_spark_datahub.conversion.runs.fold import Application
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication
from airflow_provider_spark_datahub.conversion.spark_log.streaming import application_of, location_of
from airflow_provider_spark_datahub.conversion.spark_log.unreported import (
    LostExecution,
    PlanDataset,
    datasets_of_plans,
    lost_executions,
    untold_tables,
)

SOURCE = "SPARK_PLAN"
"""What the property ``source`` of an edge says where no event tells of it. DataHub's own UI writes ``UI`` there."""


class LostLineage:
    """The executions that OpenLineage lost and, with ``capture_lost_executions``, the edges that their plans name.

    :param symlinks: the tables behind paths.
    :ivar executions: their reasons tell which edges were added, once their jobs were seen.
    :ivar untold_tables: that their other executions read or wrote.
    """

    def __init__(
        self,
        applications: Sequence[Application],
        logs: Sequence[LoggedApplication],
        symlinks: Mapping[DatasetId, DatasetId],
        settings: LineageSettings,
    ) -> None:
        self.executions: list[LostExecution] = []
        self.untold_tables: list[str] = []
        self._names: dict[str, tuple[range, _ToldNames]] = {}
        for logged in logs:
            begin = len(self.executions)
            self.executions += lost_executions(logged, applications)
            found = range(begin, len(self.executions))
            application = application_of(logged, applications, logs)
            if application is None:
                continue
            if not found:
                self.untold_tables += untold_tables(logged, application, symlinks)
            elif settings.capture_lost_executions:
                names = _told_names(application, DatasetNamer(settings, symlinks), symlinks, logged.default_fs)
                self._names[application.run_id] = found, names

    def add_edges(self, job: JobLineage) -> JobLineage:
        """The job with what the plans of its lost executions name: edges that say where they come from."""
        if job.run_id in self._names:
            found, names = self._names[job.run_id]
            for number in found:
                self.executions[number] = _add_edges(job, self.executions[number], names)
            job.inputs, job.outputs = dict(sorted(job.inputs.items())), dict(sorted(job.outputs.items()))
        return job


def _add_edges(job: JobLineage, execution: LostExecution, names: _ToldNames) -> LostExecution:
    """Add what the plans of an execution name to the job; the reason then tells what could be added, and what not."""
    datasets = datasets_of_plans(execution.plans)
    sinks = [names.resolve(one) for one in datasets.sinks]
    written = {one.urn for one in sinks if isinstance(one, DatasetName)}
    # What an execution reads of its own target, to replace files of it, is no input.
    sources = [one for one in map(names.resolve, datasets.sources) if one.urn not in written]
    added = _add(job.inputs, sources, execution.id) + _add(job.outputs, sinks, execution.id)
    return _with_reason(execution, added, [one for one in (*sources, *sinks) if isinstance(one, _Unknown)])


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A table that plans name, and events do not: which dataset it is cannot be told."""

    table: str
    urn: None = None


def _add(known: dict[str, JobDataset], found: Sequence[DatasetName | _Unknown], execution: int) -> int:
    added = 0
    for name in found:
        if isinstance(name, _Unknown) or (name.urn in known and not known[name.urn].edge_properties):
            continue
        dataset = known.setdefault(name.urn, JobDataset(name))
        executions = dataset.edge_properties.get("executions", "").split(", ") if dataset.edge_properties else []
        listed = ", ".join(dict.fromkeys([*executions, str(execution)]))
        dataset.edge_properties = {"source": SOURCE, "executions": listed}
        added += 1
    return added


def _with_reason(execution: LostExecution, added: int, unknown: Sequence[_Unknown]) -> LostExecution:
    tables = ", ".join(dict.fromkeys(one.table for one in unknown))
    parts = [execution.reason]
    if added:
        parts.append(f"{added} of its edges come from its plan")
    if tables:
        parts.append(f"its plan names tables that no event tells of: {tables}")
    if not added and not tables:
        parts.append("its plan names no file or table that the events lack")
    return replace(execution, reason="; ".join(parts))


def _told_names(
    application: Application, namer: DatasetNamer, symlinks: Mapping[DatasetId, DatasetId], default_fs: str
) -> _ToldNames:
    platforms = {table.namespace for table in symlinks.values()}
    states = [(one, state) for run in application.runs for one, state in (*run.inputs.items(), *run.outputs.items())]
    return _ToldNames(
        namer,
        default_fs,
        tables={table.name: table for table in symlinks.values()} if len(platforms) == 1 else {},
        platform=platforms.pop() if len(platforms) == 1 else "",
        paths={*symlinks, *(one for one, _ in states)},
        renamed=frozenset(state.previous for _, state in states if state.previous),
    )


@dataclass(frozen=True, slots=True)
class _ToldNames:
    """What the events of an application tell of names.

    :param tables: by their names; none where they are on several platforms.
    :param platform: of all its tables, or empty.
    :param paths: of datasets that events name, tables or not.
    :param renamed: old names of tables.
    """

    namer: DatasetNamer
    default_fs: str
    tables: Mapping[str, DatasetId]
    platform: str
    paths: set[DatasetId]
    renamed: frozenset[DatasetId]

    def resolve(self, named: PlanDataset) -> DatasetName | _Unknown:
        """The dataset, or what is not known."""
        dataset = self._dataset(named)
        name = self.namer.name(dataset) if dataset is not None else None
        return name or _Unknown(named.table or named.path)

    def _dataset(self, named: PlanDataset) -> DatasetId | None:
        path = location_of(named.path, self.default_fs) if named.path else None
        if path in self.renamed:
            return None
        if path is not None and (path in self.paths or not named.table):
            return path
        # A table of another catalogue than the session's has that one's name in front, or not, where it is written.
        table = self.tables.get(named.table) or self.tables.get(named.table.partition(".")[2])
        if table is not None:
            return table
        database, _, name = named.table.partition(".")
        # In the warehouse, OpenLineage names the table; elsewhere that depends on the catalogue.
        if path is not None and self.platform and path.name.endswith(f"/{database}.db/{name}"):
            return DatasetId(self.platform, named.table)
        return None
