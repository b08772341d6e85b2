"""Merges the queries that Spark's event log shows into those that OpenLineage reports.

Events are believed for the names of datasets, their schemas, and what a reported query read and wrote. Plans are
believed for the queries without an event, outputs that a query's events do not name, and columns that they lack.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from msgspec import structs

from airflow_provider_spark_datahub.conversion.datasets import (
    DatasetNamer,
    Symlinks,
    folders_around,
)
from airflow_provider_spark_datahub.conversion.diagnostics import LostExecution
from airflow_provider_spark_datahub.conversion.events import LATEST_MS, RDD_JOB, DatasetId, RunEvent
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.effects import with_effects, with_known_columns
from airflow_provider_spark_datahub.conversion.runs.fold import (
    Application,
    Fold,
    PlannedDatasets,
    RunState,
)
from airflow_provider_spark_datahub.conversion.settings import OTHER_CATALOGS, LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    Moment,
    SqlExecution,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import (
    NO_COLUMNS,
    SPLITS,
    ExecutionColumns,
    PlanColumns,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    CHECKPOINT,
    CLONE,
    MERGE,
    MERGE_ROWS,
    Plan,
    PlanDatasets,
)
from airflow_provider_spark_datahub.conversion.spark_log.reported_columns import ReportedColumns
from airflow_provider_spark_datahub.conversion.spark_log.run_events import LogEvents

# Roots and inner nodes of plans that write data. Nothing else counts as lost: OpenLineage leaves out plans that only
# read (collect, show, count) and some commands on purpose (its SparkNodesFilter, CreateViewFilter).
_WRITES = re.compile(
    r"\b(?:InsertInto\w*|Create\w*TableAsSelect\w*|Replace\w*TableAsSelect\w*|SaveIntoDataSourceCommand"
    r"|MergeInto\w*|MergeRows|AppendData\w*|Overwrite(?:ByExpression|PartitionsDynamic)\w*|ReplaceData|WriteDelta"
    r"|WriteIntoDelta\w*|DeleteFromTable\w*|DeleteCommand\w*|UpdateCommand\w*|UpdateTable\w*)\b"
)
# Commands are not queries whose rows the driver takes.
_NO_READS = re.compile(rf"{_WRITES.pattern}|\bExecute \w|^== Physical Plan ==\n(?:\* )?Call\b")
# Reported queries whose columns events may lack in part: see section 8.4.
_SHOWS_MORE = re.compile(rf"{MERGE}|{MERGE_ROWS}|{SPLITS.pattern}")
_REASON = "it wrote data, but OpenLineage sent no event for it"


class _MergedLogs(NamedTuple):
    """Applications with the queries that only their logs show, and without writes that never happened.

    :param lost: executions that wrote data, and that OpenLineage did not report.
    :param symlinks: tables behind paths: those of the events, and those that only the logs show.
    """

    applications: list[Application]
    lost: list[LostExecution]
    symlinks: Mapping[DatasetId, DatasetId]


def merge_logs(
    applications: Sequence[Application],
    logs: Sequence[LoggedApplication],
    symlinks: Mapping[DatasetId, DatasetId],
    settings: LineageSettings,
    *,
    final: bool = True,
) -> _MergedLogs:
    """Merge the queries of applications' logs into those that their events report.

    :param symlinks: tables behind paths, by the events.
    :param final: the applications have ended: executions without an event are lost.
    """
    logged = {id(found): log for log in logs if (found := log.match(applications, logs)) is not None}
    losses = {id(log): _lost_executions(log, applications) for log in logs} if final else {}
    merged, of_logs = [], dict[DatasetId, DatasetId]()
    if delta := settings.catalog_platforms.get("delta"):
        shown = {table for log in logs for table in PlanNames(log).delta_tables}
        symlinks = {
            each: _of_format(table, delta, settings) if each in shown else table for each, table in symlinks.items()
        }
    for application in applications:
        log = logged.get(id(application))
        if log is None or not application.runs:
            merged.append(with_effects(application).without_columns_of_changes())
            continue
        lost = losses.get(id(log))
        known = with_effects(application, *log.effects(application.runs))
        known = known.without_columns_of_changes(PlanNames(log).change_feeds())
        # What one log shows does not change the names in another.
        own = Symlinks(dict(symlinks))
        merged.append(_Merge(known, log, lost, own, settings).merged())
        of_logs |= own.by_dataset
    all_lost = [execution for lost in losses.values() for execution in lost]
    return _MergedLogs(merged, all_lost, {**of_logs, **symlinks})


def _of_format(table: DatasetId, platform: str, settings: LineageSettings) -> DatasetId:
    """Return a table on the platform of its format, if its events only say that a metastore has it."""
    platforms, (own, separator, place) = settings.catalog_platforms, table.namespace.partition("://")
    is_of_hive = own in (platforms.get(OTHER_CATALOGS, "hive"), platforms.get("hive"))
    return table._replace(namespace=f"{platform}{separator}{place}") if is_of_hive else table


def _lost_executions(logged: LoggedApplication, applications: Sequence[Application]) -> list[LostExecution]:
    """Return the executions of an application that wrote data and that OpenLineage did not report.

    Micro-batches, refused and failed executions and parts of a reported execution do not count; an execution and its
    parts count once.

    :param applications: reported applications, the logged one among them.
    """
    if not any(application.runs for application in applications):
        # The listener did not run: OpenLineage did not lose single executions.
        return []
    reported = logged.reported_executions(run for application in applications for run in application.runs)
    idle = logged.idle_roots()
    silent = (parts for parts in logged.root_executions() if parts[0].root_id not in idle)
    silent = (parts for parts in silent if reported.isdisjoint(part.id for part in parts))
    writers = (next((part for part in parts if _wrote_data(part)), None) for parts in silent)
    return [LostExecution(part.id, part.description, _REASON) for part in writers if part is not None]


def _wrote_data(execution: SqlExecution) -> bool:
    """Return whether it ended well, is not a micro-batch, and has a plan that writes data."""
    return execution.ended_well and not execution.query_run_id and execution.has_in_tree(_WRITES)


class _Merge:
    """Merge of one application's log into its events.

    :param lost: the application's lost executions, whose reasons will say what their plans show; ``None`` while the
        application is running.
    """

    def __init__(
        self,
        application: Application,
        logged: LoggedApplication,
        lost: list[LostExecution] | None,
        symlinks: Symlinks,
        settings: LineageSettings,
    ) -> None:
        self._application, self._logged, self._settings = application, logged, settings
        self._symlinks = symlinks
        self._lost = lost
        self._places_of_lost = {execution.id: place for place, execution in enumerate(lost or ())}
        self._names = PlanNames(logged, application.runs, symlinks.by_dataset, settings.catalog_platforms)
        self._namer = DatasetNamer(settings, dict(symlinks.by_dataset))
        self._columns = ReportedColumns(self._names, self._namer)
        self._events, self._fold = LogEvents(logged, self._names), Fold(settings, symlinks)
        self._plans = PlanColumns()
        self._has_checkpoints = any(CHECKPOINT in execution.plan for execution in logged.executions.values())
        self._by_id = {run.run_id: run for run in application.runs}
        self._by_moment = _runs_by_moment(application.runs)
        self._reported = logged.reported_executions(application.runs)
        self._reads = _ReadsOfDriver(application.runs)
        self._added: list[RunState] = []
        self._planned = {"": PlannedDatasets({}, {})}

    def merged(self) -> Application:
        """Return the application with the lineage of its plans."""
        recovered, read = 0, dict[str, dict[str, None]]()
        for parts in self._logged.root_executions():
            self._note_planned(parts)
            moments = (moment for part in parts for moment in part.moments)
            matched = sorted({run_id for moment in moments for run_id in self._by_moment.get(moment, ())})
            before = len(self._added)
            if matched:
                self._complete(matched, parts)
                for run_id in matched:
                    read.setdefault(run_id, {}).update(SqlExecution.paths_of_rdds(parts))
            elif self._reported.isdisjoint(part.id for part in parts):
                self._add_unreported(parts)
                recovered += len(self._added) - before
            elif self._has_checkpoints:
                self._columns_of(parts)
        files, of_jobs = self._events.files, self._logged.rdd_reads
        runs = [(self._by_id[run.run_id], of_jobs.get(run.start_ms or 0, {})) for run in self._application.runs]
        named = [files.named_in(run, read.get(run.run_id) or of_job) for run, of_job in runs]
        merged = _in_time(named, self._added)
        self._symlinks.by_dataset |= self._events.tables
        counts = self._execution_counts(recovered) if self._lost is not None else {}
        return replace(self._application, runs=merged, execution_counts=counts, planned=self._planned)

    def _note_planned(self, parts: Sequence[SqlExecution]) -> None:
        if not all(part.ended_well for part in parts):
            return
        planned = self._planned.setdefault(parts[0].query_run_id, PlannedDatasets({}, {}))
        for datasets, known in zip(PlanDatasets.of(part.plan for part in parts), planned, strict=True):
            for found in map(self._names.id_of, datasets):
                if found is not None:
                    known.setdefault(found, (parts[0].id, parts[0].description))
        for read in self._events.files.datasets(SqlExecution.paths_of_rdds(parts)):
            planned.inputs.setdefault(read, (parts[0].id, parts[0].description))

    def _execution_counts(self, recovered: int) -> dict[str, str]:
        """Return how many outermost executions Spark ran, OpenLineage reported, and only the log shows."""
        runs = self._application.runs
        ran, reported = self._logged.count_executions(run for run in runs if not run.is_logged)
        _, only_logged = self._logged.count_executions(run for run in runs if run.is_logged)
        recovered += only_logged
        counts = {"": ran, "_reported": reported, "_recovered": recovered, "_delivered": reported + recovered}
        return {f"spark_executions{name}": str(count) for name, count in counts.items()}

    # -- queries that events report

    def _complete(self, matched: Sequence[str], parts: Sequence[SqlExecution]) -> None:
        """Add the columns, and the outputs, that a reported execution has in its plans only."""
        self._add_uses(matched, parts)
        relations = [relation for part in parts for relation in Plan.queries_with_parts(part.plan)]
        for run_id in matched if relations else ():
            self._by_id[run_id] = self._columns.with_tables(self._by_id[run_id], relations)
        # Drop column lineage from columns that their table lacks: databases compute some columns.
        runs = {run_id: with_known_columns(self._by_id[run_id]) for run_id in matched}
        is_silent = not any(run.outputs for run in runs.values()) and any(
            _wrote_data(part) or CLONE in part.plan for part in parts
        )
        shows_more = self._has_checkpoints or any(_SHOWS_MORE.search(part.plan) for part in parts)
        if not (is_silent or shows_more or any(map(_lacks_columns, runs.values()))):
            return
        found = self._columns_of(parts)
        if not (is_silent and all(part.ended_well for part in parts)):
            of_rows = any(CHECKPOINT in part.plan for part in parts)
            self._by_id |= self._with_columns(runs, found, of_rows=of_rows)
        elif (run := self._logged_run(parts, found)) is not None and run.outputs:
            self._added.append(run)

    def _add_uses(self, matched: Sequence[str], parts: Sequence[SqlExecution]) -> None:
        """Fill in versions and full overwrites that the events lack."""
        reads = self._events.reads(parts)
        replaced = {self._namer.urn(dataset) for dataset in self._events.replaced(parts)}
        for run_id in matched if reads or replaced else ():
            run = self._by_id[run_id]
            inputs, outputs = dict(run.inputs), dict(run.outputs)
            for dataset, facets in reads.items():
                scans = tuple(one["icebergScanReport"]["snapshotId"] for one in facets if "icebergScanReport" in one)
                if scans and (state := inputs.get(dataset)) is not None and not (state.version or state.scans):
                    inputs[dataset] = structs.replace(state, scans=scans)
            for dataset, state in outputs.items() if replaced else ():
                # Without a version, nobody knows who reads an earlier one of a table.
                if self._namer.urn(dataset) in replaced and (state.version or not state.layer):
                    outputs[dataset] = structs.replace(state, replaces=True)
            self._by_id[run_id] = structs.replace(run, inputs=inputs, outputs=outputs)

    def _with_columns(
        self, runs: Mapping[str, RunState], found: ExecutionColumns, *, of_rows: bool = False
    ) -> dict[str, RunState]:
        if not self._settings.capture_column_level_lineage:
            return {}
        return self._columns.filled(runs, found, of_rows=of_rows)

    def _columns_of(self, parts: Sequence[SqlExecution]) -> ExecutionColumns:
        return self._plans.of([part.plan for part in parts], parts[0].description)

    # -- queries that only the log shows

    def _add_unreported(self, parts: Sequence[SqlExecution]) -> None:
        """Add a lost execution, or one whose rows the driver took."""
        place = next((self._places_of_lost[part.id] for part in parts if part.id in self._places_of_lost), None)
        found = self._columns_of(parts) if place is not None or self._has_checkpoints else NO_COLUMNS
        run = None
        if self._lost is not None and place is not None:
            run, lost = self._logged_run(parts, found), self._lost[place]
            self._lost[place] = replace(lost, reason=f"{lost.reason}; {self._shown(run, parts)}")
        elif self._reads.is_one(parts) and (read := self._logged_run(parts, found)) is not None:
            run = self._reads.new_of(read)
        if run is not None:
            self._added.append(run)

    def _logged_run(self, parts: Sequence[SqlExecution], found: ExecutionColumns) -> RunState | None:
        """Return the run of an execution as its plans show it; ``None`` if they name no dataset."""
        run: RunState | None = None
        for event in self._events.of_execution(parts, found):
            run = self._fold.add(RunEvent.parse(event))
        if run is None:
            return None
        # Commands that change rows read the rest of their target.
        written = {self._namer.name(dataset) for dataset in run.outputs}
        inputs = {dataset: state for dataset, state in run.inputs.items() if self._namer.name(dataset) not in written}
        run = structs.replace(
            run,
            inputs=inputs,
            flow=self._application.runs[0].flow,
            parent_run_id=self._application.run_id,
            app_name="",
            session_name="",
            details=None,
            properties={},
        )
        return self._with_columns({run.run_id: run}, found).get(run.run_id, run)

    def _shown(self, run: RunState | None, parts: Sequence[SqlExecution]) -> str:
        """Return what the plans of a lost execution show, for people."""
        datasets = PlanDatasets.of(part.plan for part in parts).all
        unknown = dict.fromkeys(
            named.table or named.path or named.relation for named in datasets if self._names.id_of(named) is None
        )
        shown = ["its lineage comes from its plan"] if run is not None else []
        shown += [f"its plan names tables that no event names: {', '.join(unknown)}"] if unknown else []
        return redact_text("; ".join(shown)) or "its plan names no file or table"


class _ReadsOfDriver:
    """Queries whose rows the driver took: OpenLineage leaves many out.

    Two kinds of reads do not count: reading back what the application has just written, and listing a file in a folder
    that events name.
    """

    def __init__(self, runs: Sequence[RunState]) -> None:
        queries = [run for run in runs if run.job_type != RDD_JOB]
        self._known = {dataset for run in queries for dataset in run.inputs}
        self._first_write_ms: dict[DatasetId, int] = {}
        for run in queries:
            for dataset, _ in run.written:
                first_ms = self._first_write_ms.get(dataset, LATEST_MS)
                self._first_write_ms[dataset] = min(run.start_ms or 0, first_ms)
        named = self._known | self._first_write_ms.keys()
        self._named = {(dataset.namespace, dataset.name.rstrip("/")) for dataset in named}

    @staticmethod
    def is_one(parts: Sequence[SqlExecution]) -> bool:
        """Return whether an execution ended well, is not a micro-batch, and neither wrote data nor ran a command."""
        return all(part.ended_well and not part.query_run_id and not part.has_in_tree(_NO_READS) for part in parts)

    def new_of(self, run: RunState) -> RunState | None:
        """Return the run with the datasets that no earlier query read; ``None`` if there are none."""
        inputs = {
            dataset: state
            for dataset, state in run.inputs.items()
            if dataset not in self._known
            and (run.start_ms or 0) < self._first_write_ms.get(dataset, LATEST_MS)
            and self._named.isdisjoint(folders_around(dataset))
        }
        self._known |= inputs.keys()
        return structs.replace(run, inputs=inputs, outputs={}) if inputs else None


def _in_time(runs: Sequence[RunState], added: Iterable[RunState]) -> tuple[RunState, ...]:
    """Return runs in the order of their events, with each of the added ones before the first that began later."""
    begun_ms = list(accumulate((run.start_ms or 0 for run in runs), max))
    before: dict[int, list[RunState]] = {}
    for run in added:
        place = bisect_right(begun_ms, run.start_ms or 0)
        # Before the first event of the run that follows, which may rename a table.
        index = runs[place].index - 1 if place < len(runs) else runs[-1].last_index + 1
        before.setdefault(place, []).append(structs.replace(run, index=index, last_index=index))
    if not before:
        return tuple(runs)
    merged = [item for place, run in enumerate(runs) for item in (*before.get(place, ()), run)]
    return (*merged, *before.get(len(runs), ()))


def _runs_by_moment(runs: Iterable[RunState]) -> dict[Moment, set[str]]:
    found: dict[Moment, set[str]] = {}
    for run in runs:
        for moment in run.moments if run.is_query and not run.failure and not run.refused else ():
            found.setdefault(moment, set()).add(run.run_id)
    return found


def _lacks_columns(run: RunState) -> bool:
    """Return whether a column of an output has no direct column lineage, as far as schemas are known."""
    return any(state.schema is None or state.missing_columns for _, state in run.written)
