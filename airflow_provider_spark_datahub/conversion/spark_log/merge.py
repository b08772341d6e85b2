"""Merges the queries that Spark's event log shows into those that OpenLineage reports.

The plan of a query leads, and its events fill in what plans lack: see section 8.5.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from msgspec import structs

from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer, Symlinks
from airflow_provider_spark_datahub.conversion.diagnostics import LostExecution
from airflow_provider_spark_datahub.conversion.events import LATEST_MS, RDD_JOB, DatasetId
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.effects import with_effects
from airflow_provider_spark_datahub.conversion.runs.fold import Application, Fold, RunState
from airflow_provider_spark_datahub.conversion.settings import OTHER_CATALOGS, LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    Moment,
    SqlExecution,
)
from airflow_provider_spark_datahub.conversion.spark_log.merge_query import QueryMerge
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plan_runs import (
    PlanRun,
    PlanRuns,
    wrote_data,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import PlanDatasets

_NO_PLAN = "no lineage"


class _MergedLogs(NamedTuple):
    """Applications with the queries that only their logs show, and without writes that never
    happened.

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
    logged = {
        id(found): log for log in logs if (found := log.match(applications, logs)) is not None
    }
    losses = {id(log): _lost_executions(log, applications) for log in logs} if final else {}
    merged, of_logs = [], dict[DatasetId, DatasetId]()
    for names in (PlanNames(log, settings=settings) for log in logs):
        # OpenLineage names a Delta table by its warehouse where it is written, also if that is
        # Glue's.
        if platform := "glue" if names.has_glue else settings.catalog_platforms.get("delta"):
            shown = names.delta_tables
            symlinks = {
                each: _of_format(table, platform, settings) if each in shown else table
                for each, table in symlinks.items()
            }
    for application in applications:
        log = logged.get(id(application))
        if log is None or not application.runs:
            merged.append(with_effects(application).without_columns_of_changes())
            continue
        if all(run.is_logged for run in application.runs):
            of_log = with_effects(application, *log.effects(application.runs))
            merged.append(replace(of_log, has_log=True))
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
    platforms, (own, separator, place) = (
        settings.catalog_platforms,
        table.namespace.partition("://"),
    )
    is_of_hive = own in (
        platforms.get(OTHER_CATALOGS, "hive"),
        platforms.get("hive"),
        platforms.get("delta"),
    )
    return table._replace(namespace=f"{platform}{separator}{place}") if is_of_hive else table


def _lost_executions(
    logged: LoggedApplication, applications: Sequence[Application]
) -> list[LostExecution]:
    """Return the executions of an application that wrote data and that OpenLineage did not report.

    Micro-batches, refused and failed executions and parts of a reported execution do not count; an
    execution and its parts count once.

    :param applications: reported applications, the logged one among them.
    """
    if not any(application.runs for application in applications):
        # The listener did not run: OpenLineage did not lose single executions.
        return []
    reported = logged.reported_executions(
        run for application in applications for run in application.runs
    )
    idle = logged.idle_roots()
    silent = (parts for parts in logged.root_executions() if parts[0].root_id not in idle)
    silent = (parts for parts in silent if reported.isdisjoint(part.id for part in parts))
    writers = (next((part for part in parts if wrote_data(part)), None) for parts in silent)
    return [
        LostExecution(part.id, part.description, _NO_PLAN) for part in writers if part is not None
    ]


class _Merge:
    """Merge of one application's log into its events.

    :param lost: the application's lost executions, whose reasons will say what their plans show;
        ``None`` while the application is running.
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
        self._names = PlanNames(logged, application.runs, symlinks.by_dataset, settings)
        self._namer = DatasetNamer(settings, dict(symlinks.by_dataset))
        self._plans = PlanRuns(logged, self._names, Fold(settings, symlinks), settings)
        self._queries = QueryMerge(self._names, self._namer, settings)
        self._by_id = {run.run_id: run for run in application.runs}
        self._by_moment = _runs_by_moment(application.runs)
        self._reported = logged.reported_executions(application.runs)

    def merged(self) -> Application:
        """Return the application with the lineage of its plans."""
        silent, paths = list[PlanRun](), dict[str, dict[str, None]]()
        for parts in self._logged.root_executions():
            plan = self._plans.of(parts)
            moments = (moment for part in parts for moment in part.moments)
            matched = sorted(
                {run_id for moment in moments for run_id in self._by_moment.get(moment, ())}
            )
            if matched:
                self._by_id |= self._queries.merged(
                    {run_id: self._by_id[run_id] for run_id in matched}, plan
                )
                for run_id in matched:
                    paths.setdefault(run_id, {}).update(SqlExecution.paths_of_rdds(parts))
            elif self._reported.isdisjoint(part.id for part in parts):
                silent.append(plan)
        first_write_ms = _first_writes(self._by_id.values())
        added = [
            run for plan in silent if (run := self._unreported(plan, first_write_ms)) is not None
        ]
        files, of_jobs = self._plans.files, self._logged.rdd_reads
        runs = [
            (self._by_id[run.run_id], of_jobs.get(run.start_ms or 0, {}))
            for run in self._application.runs
        ]
        named = [files.named_in(run, paths.get(run.run_id) or of_job) for run, of_job in runs]
        merged = _in_time(named, added)
        self._symlinks.by_dataset |= self._plans.tables
        counts = self._execution_counts(len(added)) if self._lost is not None else {}
        return replace(self._application, runs=merged, execution_counts=counts, has_log=True)

    def _execution_counts(self, recovered: int) -> dict[str, str]:
        """Return how many outermost executions Spark ran, OpenLineage reported, and only the log
        shows.
        """
        runs = self._application.runs
        ran, reported = self._logged.count_executions(run for run in runs if not run.is_logged)
        _, only_logged = self._logged.count_executions(run for run in runs if run.is_logged)
        recovered += only_logged
        counts = {
            "": ran,
            "_reported": reported,
            "_recovered": recovered,
            "_delivered": reported + recovered,
        }
        return {f"spark_executions{name}": str(count) for name, count in counts.items()}

    # -- queries that only the log shows

    def _unreported(
        self, plan: PlanRun, first_write_ms: Mapping[DatasetId, int]
    ) -> RunState | None:
        """Return the run of a lost execution, or of one whose rows the driver took: OpenLineage
        leaves many out.

        Reading back what the application has written does not count.
        """
        place = next(
            (
                self._places_of_lost[part.id]
                for part in plan.parts
                if part.id in self._places_of_lost
            ),
            None,
        )
        if self._lost is not None and place is not None:
            run, lost = self._logged_run(plan), self._lost[place]
            self._lost[place] = replace(lost, reason=self._shown(run, plan.parts))
            return run
        is_read = plan.only_reads and plan.ended_well and not plan.is_inference
        run, start_ms = self._logged_run(plan) if is_read else None, plan.parts[0].start_ms
        if run is None:
            return None
        inputs = {
            one: state
            for one, state in run.inputs.items()
            if start_ms < first_write_ms.get(one, LATEST_MS)
        }
        return structs.replace(run, inputs=inputs, outputs={}) if inputs else None

    def _logged_run(self, plan: PlanRun) -> RunState | None:
        run = self._plans.run_of(plan)
        if run is None:
            return None
        written = set(map(self._namer.name, run.outputs))
        return structs.replace(
            run,
            inputs={
                one: state
                for one, state in run.inputs.items()
                if self._namer.name(one) not in written
            },
            flow=self._application.runs[0].flow,
            parent_run_id=self._application.run_id,
            app_name="",
            session_name="",
            details=None,
            properties={},
        )

    def _shown(self, run: RunState | None, parts: Sequence[SqlExecution]) -> str:
        """Return what the plans of a lost execution show, for people."""
        datasets = PlanDatasets.of(part.plan for part in parts).all
        unknown = {
            one.table or one.path or one.relation: None
            for one in datasets
            if self._names.id_of(one) is None
        }
        shown = ["lineage comes from the plan"] if run is not None else []
        shown += (
            [f"the plan names tables that no event names: {', '.join(unknown)}"] if unknown else []
        )
        return redact_text("; ".join(shown)) or "no lineage: the plan names no file or table"


def _first_writes(runs: Iterable[RunState]) -> dict[DatasetId, int]:
    """Return when the application first wrote each dataset, in ms since the epoch."""
    first_ms: dict[DatasetId, int] = {}
    for run in runs:
        for dataset, _ in run.written if run.job_type != RDD_JOB else ():
            first_ms[dataset] = min(run.start_ms or 0, first_ms.get(dataset, LATEST_MS))
    return first_ms


def _in_time(runs: Sequence[RunState], added: Iterable[RunState]) -> tuple[RunState, ...]:
    """Return runs in the order of their events, with each of the added ones before the first that
    began later.
    """
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
