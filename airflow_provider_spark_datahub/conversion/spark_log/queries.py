"""Queries of applications with a log: their plans make them, and events fill in what plans lack.

See the conversion rules, section 8.5.

Tests: ``tests/conversion/test_merge.py`` and ``tests/conversion/test_hard_jobs.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Literal

from msgspec import structs

from airflow_provider_spark_datahub.conversion.columns.sql import (
    Allowance,
    DatabaseTables,
    StatementError,
    verb_of,
)
from airflow_provider_spark_datahub.conversion.datasets import (
    DatasetNamer,
    Symlinks,
    folders_around,
)
from airflow_provider_spark_datahub.conversion.diagnostics import LostExecution
from airflow_provider_spark_datahub.conversion.events import LATEST_MS, RDD_JOB, DatasetId
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.effects import (
    QUERY_VERBS,
    with_effects,
    with_known_columns,
)
from airflow_provider_spark_datahub.conversion.runs.fold import (
    Application,
    DatasetState,
    RunState,
    Verdict,
)
from airflow_provider_spark_datahub.conversion.runs.lineage import holds_its_rows
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication, SqlExecution
from airflow_provider_spark_datahub.conversion.spark_log.plan_edges import PlanEdges
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plan_runs import (
    PlanRun,
    PlanRuns,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import Plan, PlanDatasets

# OpenLineage names a job by its RDDs, and may cut the name: ``map_partitions_file_scan``.
_ROWS_OF_FRAME = "_file_sc"
_Datasets = dict[DatasetId, DatasetState]
_Verdicts = dict[tuple[Literal["input", "output"], DatasetId], Verdict]


@dataclass(frozen=True, slots=True)
class _LoggedQueries:
    """Applications with the queries of their logs, and without writes that never happened.

    :param lost: executions that wrote data, and that OpenLineage did not report.
    :param unnamed: sources and targets in plans whose names do not lead to a dataset, of
        applications without events.
    :param symlinks: tables behind paths: those of the events, and those that only the logs show.
    """

    applications: list[Application] = field(default_factory=list)
    lost: list[LostExecution] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    symlinks: dict[DatasetId, DatasetId] = field(default_factory=dict)


def queries_of_logs(
    applications: Sequence[Application],
    logs: Sequence[LoggedApplication],
    symlinks: Mapping[DatasetId, DatasetId],
    settings: LineageSettings,
    *,
    final: bool = True,
) -> _LoggedQueries:
    """Return applications with the queries of their logs.

    :param symlinks: tables behind paths, by the events.
    :param final: the applications have ended: executions without an event are lost.
    """
    log_of = {id(match): log for log in logs if (match := log.match(applications, logs))}
    result = _LoggedQueries()
    for application in applications:
        log = log_of.get(id(application))
        if log is None or not application.runs:
            known = with_effects(application).without_columns_of_changes()
            result.applications.append(known)
            continue
        # What one log shows does not change the names in another.
        own_symlinks = Symlinks(dict(symlinks))
        queries = _Queries(application, log, own_symlinks, settings, is_final=final)
        result.applications.append(queries.application())
        result.lost.extend(queries.lost)
        result.unnamed.extend(queries.unnamed_sources())
        result.symlinks.update(own_symlinks.by_dataset)
    result.symlinks.update(symlinks)
    return result


class _Queries:
    """Queries of one application.

    :param is_final: it has ended: executions without an event are lost.
    :ivar lost: executions that wrote data, and that OpenLineage did not report.
    """

    def __init__(
        self,
        application: Application,
        logged: LoggedApplication,
        symlinks: Symlinks,
        settings: LineageSettings,
        *,
        is_final: bool,
    ) -> None:
        self._application, self._logged, self._is_final = application, logged, is_final
        self._symlinks = symlinks
        self._names = PlanNames(logged, application.runs, symlinks.by_dataset, settings)
        self._namer = DatasetNamer(settings, dict(symlinks.by_dataset))
        self._plans = PlanRuns(logged, self._names, symlinks, settings)
        self._edges = PlanEdges(self._names, self._namer, settings)
        self._allowance = Allowance()
        self._runs = {run.run_id: run for run in application.runs}
        self._decided: set[str] = set()
        self._idle = logged.idle_roots()
        self._read: set[DatasetId] = set()
        self._brought: dict[DatasetId, None] = {}
        self._unknown_nodes: dict[str, None] = {}
        self._cut_off: list[int] = []
        self._has_events = not all(run.is_logged for run in application.runs)
        self.lost: list[LostExecution] = []

    def application(self) -> Application:
        """Return the application with its queries."""
        roots = self._logged.root_executions()
        reporting = self._reporting_runs(roots)
        silent: list[tuple[PlanRun, RunState]] = []
        for parts in roots:
            plan = self._plans.of(parts)
            self._unknown_nodes.update(dict.fromkeys(plan.unknown_nodes))
            if not plan.is_whole and any(part.plan for part in parts):
                self._cut_off.append(parts[0].id)
            self._read.update(plan.inputs)
            runs = reporting.get(parts[0].root_id)
            if runs is None:
                silent.append((plan, self._query(plan, self._unreported_run(plan))))
            else:
                self._read_reported(plan, runs)
        added = self._silent_queries(silent)
        merged = _in_time([self._with_files(run) for run in self._runs.values()], added)
        self._symlinks.by_dataset |= self._plans.tables
        application = replace(self._application, runs=merged, has_log=True)
        known = with_effects(application, self._decided)
        known = known.without_columns_of_changes(self._names.change_feeds())
        counts = self._execution_counts(len(added)) if self._is_final else {}
        return replace(known, execution_counts=counts, doubts=tuple(self._doubts()))

    def _doubts(self) -> Iterator[str]:
        """Yield why the queries may not be all that the application did."""
        gaps = self._logged.gaps()
        if gaps:
            yield gaps
        for node in self._unknown_nodes:
            yield f"what {node!r} reads and writes is not known: edges are only added"
        if self._cut_off and not self._has_events:
            yield f"the plan of execution {self._cut_off[0]} is cut off: edges are only added"

    def unnamed_sources(self) -> list[str]:
        """Return the sources in plans that lead to no dataset, if events do not fill them in."""
        return [] if self._has_events else self._plans.unnamed_sources()

    # -- which runs report which execution

    def _reporting_runs(self, roots: Iterable[Sequence[SqlExecution]]) -> dict[int, list[RunState]]:
        """Return the runs that report each outermost execution, by its id.

        OpenLineage takes its times from Spark's events: a run reports an execution if it began or
        ended in the same millisecond as the execution or a part of it. Each run reports one.
        """
        roots_at: dict[tuple[str, int], dict[int, None]] = {}
        for parts in roots:
            for part in parts:
                for moment in part.moments:
                    roots_at.setdefault(moment, {})[part.root_id] = None
        reporting: dict[int, list[RunState]] = {}
        for run in self._application.runs:
            if not run.is_query or run.failure:
                continue
            moments = [roots_at[moment] for moment in run.moments if moment in roots_at]
            candidates = list(dict.fromkeys(chain.from_iterable(moments)))
            if candidates:
                of_all = [root for root in candidates if all(root in each for each in moments)]
                free = [root for root in of_all if root not in reporting]
                root_id = (free or of_all or candidates)[0]
                reporting.setdefault(root_id, []).append(run)
        return reporting

    # -- queries that events report

    def _read_reported(self, plan: PlanRun, runs: Sequence[RunState]) -> None:
        """Replace the runs that report an execution by its query, if its plan shows it."""
        root = plan.parts[0]
        wrote_nothing = root.root_id in self._idle or self._lacks_files(plan, runs)
        if wrote_nothing or root.failure:
            for run in runs:
                if run.outputs:
                    self._runs[run.run_id] = _refused(run, has_failed=bool(root.failure))
        elif plan.ended_well:
            first = next((run for run in runs if run.outputs), runs[0])
            if plan.is_whole:
                for run in runs:
                    self._runs[run.run_id] = structs.replace(run, inputs={}, outputs={})
                self._runs[first.run_id] = self._query(plan, _joined(first, runs))
            if any(part.worked for part in plan.parts):
                # Whether a command without any job was refused, only events say.
                self._decided.add(first.run_id)

    def _lacks_files(self, plan: PlanRun, runs: Iterable[RunState]) -> bool:
        """Return whether nothing wrote the files of a command: tables of databases have none."""
        outputs = [dataset for run in runs for dataset in run.outputs]
        are_paths = all(dataset.name.startswith("/") for dataset in outputs)
        return plan.lacks_its_write and bool(outputs) and are_paths

    def _query(self, plan: PlanRun, reported: RunState) -> RunState:
        """Return the query of a plan, with what the run that reports it fills in."""
        if not reported.is_logged:
            reported = with_known_columns(self._with_tables(reported, plan))
        if plan.is_write_of_frame and verb_of(reported.sql).split(" ")[0] not in QUERY_VERBS:
            # OpenLineage names the first statement that knew the table.
            reported = structs.replace(reported, sql="")
        verdicts: _Verdicts = {}
        inputs = self._inputs(plan, reported, verdicts)
        outputs = self._outputs(plan, reported, verdicts)
        query = structs.replace(reported, inputs=inputs, outputs=outputs, verdicts=verdicts)
        return self._with_reach(self._edges.added(query, plan), plan)

    def _inputs(self, plan: PlanRun, reported: RunState, verdicts: _Verdicts) -> _Datasets:
        """Return the inputs of a plan, and those that it hides, which events name.

        A folder is not an input beside its files, nor are its files beside it.
        """
        if plan.is_inference:
            verdicts |= {("input", dataset): Verdict.NOT_PLANNED for dataset in reported.inputs}
            return {}
        planned = self._planned_inputs(plan, reported)
        names = {self._namer.name(dataset) for dataset in (*planned, *plan.outputs)}
        hides_some = plan.hides_some or len(planned) < len(plan.inputs)
        around: set[DatasetId] = set()
        if hides_some and reported.inputs:
            around.update(chain.from_iterable(map(folders_around, planned)))
        folders = {dataset._replace(name=dataset.name.rstrip("/")) for dataset in planned}
        inputs: _Datasets = {}
        for dataset, state in reported.inputs.items():
            overlaps = dataset in around or not folders.isdisjoint(folders_around(dataset))
            verdict = Verdict.NOT_PLANNED
            if self._namer.name(dataset) in names:
                verdict = Verdict.CONFIRMED
            elif hides_some and not overlaps:
                verdict = Verdict.FILLED
            verdicts["input", dataset] = verdict
            if verdict is not Verdict.NOT_PLANNED:
                scans = planned[dataset].scans if dataset in planned else ()
                is_known = state.version or state.scans or not scans
                inputs[dataset] = state if is_known else structs.replace(state, scans=scans)
        known = {self._namer.name(dataset) for dataset in (*inputs, *plan.rest)}
        for dataset, state in planned.items():
            if self._namer.name(dataset) not in known:
                inputs[dataset] = state
                verdicts["input", dataset] = Verdict.PLANNED
        return inputs

    def _planned_inputs(self, plan: PlanRun, reported: RunState) -> _Datasets:
        """Return the inputs of a plan; without those whose place is a guess, if events name others."""
        names = {self._namer.name(dataset) for dataset in (*plan.inputs, *plan.outputs)}
        if all(self._namer.name(dataset) in names for dataset in reported.inputs):
            return plan.inputs
        return {one: state for one, state in plan.inputs.items() if one not in plan.guesses}

    def _outputs(self, plan: PlanRun, reported: RunState, verdicts: _Verdicts) -> _Datasets:
        """Return the outputs of a plan, and those that it does not show, which events name."""
        planned = {self._namer.name(dataset) for dataset in plan.outputs}
        replaced = set(map(self._namer.name, plan.replaced))
        outputs: _Datasets = {}
        for dataset, state in reported.outputs.items():
            name = self._namer.name(dataset)
            if plan.only_reads and not state.lifecycle:
                # OpenLineage takes the rows of a cache for a dataset that is written.
                verdicts["output", dataset] = Verdict.NOT_PLANNED
                continue
            verdicts["output", dataset] = Verdict.CONFIRMED if name in planned else Verdict.FILLED
            # Without a version, nobody knows who reads an earlier one of a table.
            is_clear = bool(state.version or not state.layer)
            is_replaced = state.replaces or (name in replaced and is_clear)
            outputs[dataset] = structs.replace(state, replaces=is_replaced)
        known = set(map(self._namer.name, outputs))
        adds_some = not outputs or bool(plan.unknown_nodes)
        for dataset, state in plan.outputs.items() if adds_some else ():
            if self._namer.name(dataset) not in known:
                outputs[dataset] = state
                verdicts["output", dataset] = Verdict.PLANNED
        return outputs

    def _with_tables(self, run: RunState, plan: PlanRun) -> RunState:
        """Return the run with the tables of queries in place of the parts that these name by WITH.

        OpenLineage takes a part that is named by the option ``prepareQuery`` for a table.
        """
        databases = DatabaseTables(run.inputs)
        for part in plan.parts:
            for relation in Plan.queries_with_parts(part.plan):
                with suppress(StatementError):
                    parts, tables = databases.tables_of_query(relation, self._allowance)
                    run = _without_parts(run, parts, tables)
        return run

    # -- which inputs reach which output

    def _with_reach(self, query: RunState, plan: PlanRun) -> RunState:
        """Return the query with the inputs that reach each of its outputs.

        Rows that the driver held may stem from all that earlier queries brought to it.
        """
        inputs, verdicts = dict(query.inputs), dict(query.verdicts)
        are_constants = not plan.has_driver_rows or holds_its_rows(query.sql)
        brought: list[DatasetId] = []
        if query.outputs and not are_constants:
            brought = [*self._brought, *self._read_by_rdds(before_ms=plan.parts[0].start_ms)]
        if plan.brings_rows:
            self._brought.update(dict.fromkeys(query.inputs))
        for dataset in brought:
            inputs.setdefault(dataset, DatasetState())
            verdicts.setdefault(("input", dataset), Verdict.OF_DRIVER)
        reach = {self._namer.name(dataset): each for dataset, each in plan.reach.items()}
        outputs = dict(query.outputs)
        for dataset, state in query.outputs.items() if len(outputs) > 1 else ():
            of_output = reach.get(self._namer.name(dataset))
            if of_output is None:
                continue
            names = set(map(self._namer.name, of_output.inputs))
            reached_by = set(brought if of_output.has_driver_rows else ())
            for one in query.inputs:
                is_hidden = verdicts.get(("input", one)) is Verdict.FILLED
                if is_hidden or self._namer.name(one) in names:
                    reached_by.add(one)
            outputs[dataset] = structs.replace(state, reached_by=frozenset(reached_by))
        return structs.replace(query, inputs=inputs, outputs=outputs, verdicts=verdicts)

    def _read_by_rdds(self, *, before_ms: int) -> Iterator[DatasetId]:
        """Yield what earlier jobs of RDDs read: their rows may have gone to the driver."""
        for run in self._application.runs:
            is_earlier = (run.start_ms or before_ms) < before_ms
            if run.job_type == RDD_JOB and is_earlier and not (run.outputs or run.is_listing):
                yield from self._with_files(run).inputs

    # -- queries that only the log shows

    def _unreported_run(self, plan: PlanRun) -> RunState:
        """Return the run of an execution that no event reports, without its datasets."""
        flow = self._application.runs[0].flow
        return self._plans.run_of(plan, flow, self._application.run_id)

    def _silent_queries(self, queries: Iterable[tuple[PlanRun, RunState]]) -> list[RunState]:
        """Return the runs of executions that no event reports, but those that are left out."""
        reported = self._logged.reported_executions(self._application.runs)
        first_write_ms = _first_writes(self._runs.values())
        kept: list[RunState] = []
        for plan, run in queries:
            part = plan.writing_part
            is_refused = plan.parts[0].root_id in self._idle
            if not self._has_events:
                query = self._unheard(plan, run)
            elif part is not None and not is_refused and self._is_final:
                query = run
                if reported.isdisjoint(each.id for each in plan.parts):
                    self.lost.append(self._lost(part, plan, run))
            elif plan.only_reads and plan.ended_well:
                query = _without_reads_back(run, first_write_ms)
            else:
                continue
            if query.inputs or query.outputs or query.refused:
                kept.append(query)
        if not self._has_events:
            flow = self._application.runs[0].flow
            kept += self._plans.runs_of_rdds(flow, self._application.run_id)
        return sorted(kept, key=lambda run: run.start_ms or 0)

    def _unheard(self, plan: PlanRun, run: RunState) -> RunState:
        """Return the run of an execution of an application that sent no events.

        Micro-batches are left out, unless a function of the job wrote their rows: their streaming
        queries have jobs of their own.
        """
        if plan.parts[0].query_run_id and not plan.outputs:
            return structs.replace(run, inputs={}, outputs={})
        if plan.parts[0].root_id in self._idle or self._lacks_files(plan, [run]):
            return _refused(run, has_failed=False)
        return run

    def _lost(self, part: SqlExecution, plan: PlanRun, run: RunState) -> LostExecution:
        """Return an execution that OpenLineage lost, with what its plans show, for people.

        :param part: the part of it that wrote data.
        """
        shown = ["lineage comes from the plan"] if run.inputs or run.outputs else []
        unknown: dict[str, None] = {}
        for dataset in PlanDatasets.of(part.plan for part in plan.parts).all:
            if self._names.id_of(dataset) is None:
                unknown[dataset.table or dataset.path or dataset.relation] = None
        if unknown:
            shown.append(f"the plan names tables that no event names: {', '.join(unknown)}")
        reason = redact_text("; ".join(shown)) or "no lineage: the plan names no file or table"
        return LostExecution(part.id, part.description, reason)

    def _with_files(self, run: RunState) -> RunState:
        """Return a run that events report with the files that its RDDs read.

        For the rows of a frame that go through an RDD, events name the folder of each file. The
        frame may read a folder around it.
        """
        paths = self._logged.rdd_reads.get(run.start_ms or 0, {})
        run = self._plans.files.named_in(run, paths)
        if run.job_type != RDD_JOB or _ROWS_OF_FRAME not in run.job_name:
            return run
        inputs: _Datasets = {}
        for dataset, state in run.inputs.items():
            around = (folder for folder in folders_around(dataset) if folder in self._read)
            inputs[next(around, dataset)] = state
        return structs.replace(run, inputs=inputs)

    def _execution_counts(self, recovered: int) -> dict[str, str]:
        """Return how many outermost executions Spark ran, OpenLineage reported, and only the log
        shows.
        """
        runs = [run for run in self._application.runs if not run.is_logged]
        ran, reported = self._logged.count_executions(runs)
        if not self._has_events:
            recovered -= len(self._logged.rdd_reads)
        counts = {
            "": ran,
            "_reported": reported,
            "_recovered": recovered,
            "_delivered": reported + recovered,
        }
        return {f"spark_executions{name}": str(count) for name, count in counts.items()}


def _joined(first: RunState, runs: Iterable[RunState]) -> RunState:
    """Return a run with the datasets of all runs that report the same execution."""
    inputs, outputs = dict(first.inputs), dict(first.outputs)
    for run in runs:
        if run is not first:
            for datasets, others in ((inputs, run.inputs), (outputs, run.outputs)):
                for dataset, state in others.items():
                    known = datasets.get(dataset)
                    datasets[dataset] = known.completed(state) if known else state
    return structs.replace(first, inputs=inputs, outputs=outputs)


def _refused(run: RunState, *, has_failed: bool) -> RunState:
    """Return a run that wrote nothing. What a failed one read stays."""
    inputs = run.inputs if has_failed else {}
    return structs.replace(run, inputs=inputs, outputs={}, refused=True, reported=run)


def _without_reads_back(run: RunState, first_write_ms: Mapping[DatasetId, int]) -> RunState:
    """Return a run without outputs, and without what the application had written itself."""
    start_ms, inputs = run.start_ms or 0, dict(run.inputs)
    for dataset in run.inputs:
        if start_ms >= first_write_ms.get(dataset, LATEST_MS):
            del inputs[dataset]
    return structs.replace(run, inputs=inputs, outputs={})


def _first_writes(runs: Iterable[RunState]) -> dict[DatasetId, int]:
    """Return when the application first wrote each dataset, in ms since the epoch."""
    first_ms: dict[DatasetId, int] = {}
    for run in runs:
        for dataset, _ in run.written if run.job_type != RDD_JOB else ():
            first_ms[dataset] = min(run.start_ms or 0, first_ms.get(dataset, LATEST_MS))
    return first_ms


def _in_time(runs: Sequence[RunState], added: Iterable[RunState]) -> tuple[RunState, ...]:
    """Return runs in the order of their events, with each of the added ones, which are in order,
    before the first that began later.
    """
    begun_ms = list(accumulate((run.start_ms or 0 for run in runs), max))
    before: dict[int, list[RunState]] = {}
    last_index = runs[-1].last_index
    for run in added:
        place = bisect_right(begun_ms, run.start_ms or 0)
        if place < len(runs):
            # Before the first event of the run that follows, which may rename a table.
            index = runs[place].index - 1
        else:
            index = last_index = last_index + 1
        before.setdefault(place, []).append(structs.replace(run, index=index, last_index=index))
    merged: list[RunState] = []
    for place, run in enumerate(runs):
        merged += (*before.get(place, ()), run)
    return (*merged, *before.get(len(runs), ()))


def _without_parts(run: RunState, parts: Collection[str], tables: Collection[str]) -> RunState:
    """Return the run with tables of a database in place of inputs with the names of a query's
    parts.

    :param parts: names in lower case.
    """
    wrong: dict[DatasetId, tuple[DatasetId, ...]] = {}
    for dataset in run.inputs:
        place, _, name = dataset.name.rpartition(".")
        is_table = any(f".{dataset.name}".lower().endswith(f".{one}".lower()) for one in tables)
        if "://" in dataset.namespace and name.lower() in parts and not is_table:
            wrong[dataset] = tuple(dataset._replace(name=f"{place}.{table}") for table in tables)
    if not wrong or not tables:
        return run
    outputs = {}
    for dataset, state in run.outputs.items():
        columns = state.columns and state.columns.within(dict.fromkeys(wrong, frozenset()))
        renamed = columns and columns.renamed(lambda one: wrong.get(one, (one,))[0])
        outputs[dataset] = structs.replace(state, columns=renamed)
    inputs = {table: DatasetState() for named in wrong.values() for table in named}
    inputs |= {dataset: state for dataset, state in run.inputs.items() if dataset not in wrong}
    return structs.replace(run, inputs=inputs, outputs=outputs)
