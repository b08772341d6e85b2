"""Spark's own event log: the streaming queries and SQL executions of each application."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow_provider_spark_datahub.conversion.events import (
    LATEST_MS,
    JsonObject,
    as_object,
    as_objects,
    as_text,
    parse_time_ms,
)
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.fold import Application, RunState

_STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
_SQL = "org.apache.spark.sql.execution.ui.SparkListener"
# StreamExecution.getBatchDescriptionString: the description of every execution and every job of a
# query.
_RUN_OF_QUERY = re.compile(r"^runId = ([0-9a-fA-F-]{36})$", re.MULTILINE)
# Commands that run a Spark job for each write, also for one of no rows (SPARK-23271 in
# FileFormatWriter).
_RUNS_A_JOB = re.compile(
    r"^\(\d+\) (?:Execute )?(?:InsertInto(?:HadoopFsRelationCommand|HiveTable|HiveDirCommand|DataSourceDirCommand)"
    r"|Create(?:DataSource|Hive)TableAsSelectCommand|SaveAsV1TableCommand)\b",
    re.MULTILINE,
)

_LOCATION = re.compile(r"(?P<index>\w+)\((?P<count>\d{1,6}) paths\)\[(?P<paths>.*)\]")
_FILE_SOURCE = re.compile(r"FileStreamSource\[(?P<path>[^\]]+)\]")
_RDD_WRITE = re.compile(r"\bsaveAs\w+")
# The plans of a query's micro-batches differ in their files only.
_PLANS_OF_QUERY = 20
_MOST_PLAN_CHARS, _SHORT_PLAN_CHARS = 100_000_000, 16 * 1024
_MAX_NUMBER = 1e18
_OVERWRITES = "spark.sql.sources.partitionOverwriteMode"
_EXCLUDED = "spark.eventLog.excludedPatterns"
_MOST_MISSING = 10_000


@dataclass(slots=True)
class _LoggedIds:
    """Ids that Spark counts up, as far as a log has them.

    :param next: the id after the highest one; ``None`` before the first, if that may be any.
    :param missing: ids below it that the log lacks.
    """

    next: int | None = None
    missing: set[int] = field(default_factory=set)

    def add(self, number: object) -> None:
        """Record that the log has what has this id."""
        if isinstance(number, int):
            self.expect(number)
            self.missing.discard(number)

    def expect(self, number: int) -> None:
        """Record that Spark gave this id: what has it is missing until it is added."""
        start = number if self.next is None else self.next
        end = max(start, number + 1)
        room = _MOST_MISSING - len(self.missing)
        self.missing.update(range(start, min(end, start + room)))
        self.next = end

    def lack(self, name: str) -> str:
        """Return the first that is missing, such as ``execution 13 of 25``; empty if none is."""
        if not self.missing:
            return ""
        more = len(self.missing) - 1
        others = f" and {more} more" if more else ""
        return f"{name} {min(self.missing)}{others} of {self.next}"


@dataclass(slots=True)
class StreamingQuery:
    """One run of a streaming query. Times are in ms since the epoch.

    :param id: the query's id, which its checkpoint keeps over all runs.
    :param run_id: a UUID in lower case.
    :param name: the user's name of the query, or empty.
    :param progress: the latest ``StreamingQueryProgress``; empty before the first.
    :param sources: descriptions of the sources, each with its latest offset.
    :param sinks: descriptions of the sink (normally one).
    :param last_ms: the latest known time of the run; its end if it has ended.
    :param failure: the exception that ended the run, or empty.
    """

    id: str
    run_id: str
    name: str = ""
    start_ms: int | None = None
    last_ms: int | None = None
    progress: JsonObject = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    sinks: dict[str, None] = field(default_factory=dict)
    rows: int = 0
    ended: bool = False
    failure: str = ""

    def add_progress(self, progress: JsonObject) -> None:
        """Add a ``StreamingQueryProgress``; the latest one wins."""
        self.progress = progress
        self.name = self.name or redact_text(as_text(progress.get("name")))
        for source in as_objects(progress.get("sources")):
            description = as_text(source.get("description"))
            if description:
                # A batch without new data may have no offset.
                self.sources[description] = source.get("endOffset") or self.sources.get(description)
            self.rows += int(_number(source, "numInputRows"))
        sink = as_text(as_object(progress.get("sink")).get("description"))
        if sink:
            self.sinks[sink] = None
        begin_ms = parse_time_ms(progress.get("timestamp"))
        if begin_ms is not None:
            self.start_ms = begin_ms if self.start_ms is None else min(self.start_ms, begin_ms)
            self.extend_to(begin_ms + int(_number(progress, "batchDuration")))

    def extend_to(self, time_ms: int | None) -> None:
        """Record that the query was active at this time."""
        if time_ms is not None and time_ms <= LATEST_MS:
            self.last_ms = time_ms if self.last_ms is None else max(self.last_ms, time_ms)

    def metric(self, key: str) -> float:
        """Return a number of the latest progress.

        Event logs hold rates for each source only; Spark's own totals are their sums.
        """
        holders = (
            [self.progress] if key in self.progress else as_objects(self.progress.get("sources"))
        )
        return sum(_number(holder, key) for holder in holders)


Moment = tuple[str, int]
"""``start`` or ``end`` of an execution, and when it was."""


@dataclass(slots=True)
class SqlExecution:
    """One SQL execution. Times are in ms since the epoch.

    :param description: the call site or the user's description of the job, without secrets.
    :param plan: the physical plan as text; empty for later micro-batches of a streaming query.
    :param root_id: the outermost execution around this one, or this one.
    :param query_run_id: the run of the streaming query that this is a micro-batch of, or empty.
    :param failure: the error that it ended with, without secrets; empty if it succeeded.
    :param worked: Spark ran a job for it.
    :param rdd_paths: paths of files whose rows its jobs read through RDDs.
    :param parallelized: whether its jobs read rows of the driver through RDDs; ``None`` if the log
        does not show it.
    :param is_dynamic: an overwrite replaces only the partitions that it writes.
    :param counted: nodes whose metrics the driver counts: their heads, locations, and the metrics'
        ids by name.
    :param counts: the values of these metrics, by their ids.
    """

    id: int
    description: str
    plan: str
    root_id: int
    start_ms: int
    query_run_id: str = ""
    end_ms: int | None = None
    failure: str = ""
    worked: bool = False
    rdd_paths: dict[str, None] = field(default_factory=dict)
    parallelized: bool | None = None
    is_dynamic: bool = False
    counted: tuple[tuple[str, str, Mapping[str, int]], ...] = ()
    counts: dict[int, int] = field(default_factory=dict)

    @property
    def ended_well(self) -> bool:
        """Return whether it ended, without an error."""
        return self.end_ms is not None and not self.failure

    def has_in_tree(self, pattern: re.Pattern[str]) -> bool:
        """Return whether the tree of its plan has the pattern."""
        # "Formatted" plans begin with the tree; two empty lines and a description of each node
        # follow.
        return pattern.search(self.plan.partition("\n\n\n")[0]) is not None

    @property
    def moments(self) -> set[Moment]:
        """Return when it began and ended."""
        moments = {("start", self.start_ms)}
        if self.end_ms is not None:
            moments.add(("end", self.end_ms))
        return moments


@dataclass(slots=True)
class LoggedApplication:
    """An application as its event log describes it. Times are in ms since the epoch.

    :param default_fs: Hadoop's ``fs.defaultFS``, e.g. ``file:///``; empty if it is not known.
    :param properties: those of Spark's and Hadoop's properties that the log's reader kept.
    :param queries: runs of streaming queries by run id.
    :param executions: SQL executions by id.
    :param micro_batches: how many executions each run of a streaming query had.
    :param plan_chars: length of all plans that were kept.
    :param has_jobs: the log holds at least one of the application's Spark jobs.
    :param rdd_writes: methods by which RDDs were written, such as ``saveAsTextFile``; no event
        shows where.
    :param rdd_reads: paths of files that the jobs of RDDs read, by the job's start.
    :param forgotten: outermost executions without micro-batches that ``executions`` no longer has
        whole: whether OpenLineage reported them, by id.
    :param execution_ids: ids of all executions, forgotten ones too.
    :param job_ids: ids of all Spark jobs.
    """

    id: str
    name: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    default_fs: str = ""
    user: str = ""
    spark_version: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    queries: dict[str, StreamingQuery] = field(default_factory=dict)
    executions: dict[int, SqlExecution] = field(default_factory=dict)
    micro_batches: dict[str, int] = field(default_factory=dict)
    plan_chars: int = 0
    has_jobs: bool = False
    rdd_writes: dict[str, None] = field(default_factory=dict)
    rdd_reads: dict[int, dict[str, None]] = field(default_factory=dict)
    forgotten: dict[int, bool] = field(default_factory=dict)
    execution_ids: _LoggedIds = field(default_factory=_LoggedIds)
    job_ids: _LoggedIds = field(default_factory=partial(_LoggedIds, 0))

    def gaps(self) -> str:
        """Return a sentence on executions or jobs that the log lacks, or their ends; empty if none.

        Spark counts executions as long as its JVM lives, and jobs from 0 in each application.
        """
        excluded = self.properties.get(_EXCLUDED, "")
        lack = "" if "Job" in excluded else self.job_ids.lack("job")
        unended: list[int] = []
        if "SQLExecution" not in excluded:
            lack = self.execution_ids.lack("execution") or lack
            executions = self.executions.values() if self.end_ms is not None else ()
            unended = [execution.id for execution in executions if execution.end_ms is None]
        if lack:
            return f"Spark's log lacks {lack}: its event bus dropped events"
        end = f"Spark's log lacks the end of execution {unended[0]}" if unended else ""
        return end and f"{end}: its driver was stopped, or dropped events"

    @property
    def knows_jobs(self) -> bool:
        """Return whether the log would show a job of any execution. Spark can leave events out of a
        log.
        """
        excluded = self.properties.get(_EXCLUDED, "")
        return self.has_jobs or (
            self.properties.get("spark.eventLog.enabled", "").lower() == "true"
            and "JobStart" not in excluded
        )

    def kept_plan(self, plan: str, query_run_id: str) -> str:
        """Count an execution and return its plan: none after a query's first micro-batches, cut if
        all are too long.
        """
        if query_run_id:
            self.micro_batches[query_run_id] = self.micro_batches.get(query_run_id, 0) + 1
            if self.micro_batches[query_run_id] > _PLANS_OF_QUERY:
                return ""
        kept = plan if self.plan_chars < _MOST_PLAN_CHARS else plan[:_SHORT_PLAN_CHARS]
        self.plan_chars += len(kept)
        return kept

    def plans_of(self, parts: Iterable[SqlExecution]) -> list[str]:
        """Return the plans of an execution and its parts.

        The folder of a streaming source is in place of the files that a micro-batch read in it.
        """
        plans = [part.plan for part in parts]
        query = next(
            (self.queries.get(part.query_run_id) for part in parts if part.query_run_id), None
        )
        for source in map(_FILE_SOURCE.fullmatch, query.sources if query is not None else ()):
            if source is not None:
                path = source["path"].replace("\\", r"\\")
                files = re.compile(
                    rf"(\bLocation: \w+ ?)\[{re.escape(source['path'].rstrip('/'))}/[^\]\n]*\]"
                )
                plans = [files.sub(rf"\1[{path}]", plan) for plan in plans]
        return plans

    def root_executions(self, *, with_micro_batches: bool = True) -> list[list[SqlExecution]]:
        """Return the outermost executions in the order in which they began, each followed by its
        inner executions.
        """
        parts: dict[int, list[SqlExecution]] = {}
        for execution in self.executions.values():
            if with_micro_batches or not execution.query_run_id:
                parts.setdefault(execution.root_id, []).append(execution)
        return [sorted(group, key=lambda part: part.id) for group in parts.values()]

    def match(
        self, applications: Sequence[Application], logs: Sequence[LoggedApplication]
    ) -> Application | None:
        """Return the application that this log describes, or ``None`` if that is not clear."""
        by_id = {
            app_id: application
            for application in applications
            for run in application.runs
            if (app_id := run.flow_property("appId"))
        }
        if self.id in by_id:
            return by_id[self.id]
        # Not every event carries the id, nor does a log whose beginning is missing.
        is_only_one = len(applications) == len(logs) == 1
        return applications[0] if is_only_one and not (by_id and self.id) else None

    def reported_executions(self, runs: Iterable[RunState]) -> set[int]:
        """Return the ids of executions that runs report, with the executions around them and inside
        them.

        A CREATE TABLE AS SELECT is an execution around another, and events may report either.
        """
        moments = {moment for run in runs for moment in run.moments}
        executions = self.executions.values()
        roots = {
            execution.root_id
            for execution in executions
            if not moments.isdisjoint(execution.moments)
        }
        return {execution.id for execution in executions if execution.root_id in roots}

    def count_executions(self, runs: Iterable[RunState]) -> tuple[int, int]:
        """Return the number of outermost executions without micro-batches, and how many of them
        runs report.
        """
        executions = self.executions
        roots = {*self.forgotten}
        roots.update(
            execution.root_id for execution in executions.values() if not execution.query_run_id
        )
        reported = {executions[number].root_id for number in self.reported_executions(runs)}
        reported.update(root for root, was_reported in self.forgotten.items() if was_reported)
        return len(roots), len(roots & reported)

    def idle_roots(self) -> set[int]:
        """Return the outermost executions that ended well, without the Spark job that their command
        always runs.

        Spark refused to write: the target exists (save modes, ``IF NOT EXISTS``).
        """
        if not self.knows_jobs:
            return set()
        return {
            parts[0].root_id
            for parts in self.root_executions(with_micro_batches=False)
            if any(_RUNS_A_JOB.search(part.plan) for part in parts)
            and all(part.ended_well and not part.worked for part in parts)
        }


class SparkLog:
    """Reader of event logs, one event at a time. Its memory does not grow with the progresses of a
    query.

    An application's events begin with its ``SparkListenerApplicationStart``. Unknown and malformed
    events are ignored.

    :ivar latest_ms: the latest time in the log, in ms since the epoch.
    """

    def __init__(self) -> None:
        self.applications: list[LoggedApplication] = []
        self.latest_ms: int | None = None
        self._default_fs = ""
        self._spark_version = ""
        self._properties: dict[str, str] = {}
        self._readers = {
            "SparkListenerLogStart": self._log_started,
            "SparkListenerApplicationStart": self._application_started,
            "SparkListenerApplicationEnd": self._application_ended,
            "SparkListenerEnvironmentUpdate": self._environment,
            "SparkListenerJobStart": self._job_started,
            f"{_SQL}SQLExecutionStart": self._execution_started,
            f"{_SQL}SQLExecutionEnd": self._execution_ended,
            f"{_SQL}DriverAccumUpdates": self._counted,
            f"{_STREAMING}QueryStartedEvent": self._query_started,
            f"{_STREAMING}QueryProgressEvent": self._query_progressed,
            f"{_STREAMING}QueryTerminatedEvent": self._query_terminated,
        }

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event: the decoded JSON of one line of the log."""
        reader = self._readers.get(as_text(event.get("Event")))
        if reader is not None:
            reader(event)

    def forget_executions(self, kept: int, reported: Sequence[RunState]) -> None:
        """Remove executions that have ended, and reads of jobs of RDDs.

        :param kept: how many of an application's latest ones to keep: OpenLineage may report them
            late.
        :param reported: runs. Executions that they report are removed as soon as their outermost
            execution has ended.
        """
        for application in self.applications:
            executions = application.executions
            for start_ms in [*application.rdd_reads][:-kept]:
                del application.rdd_reads[start_ms]
            latest, reported_ids = (
                set(list(executions)[-kept:]),
                application.reported_executions(reported),
            )
            running = {
                execution.id for execution in executions.values() if execution.end_ms is None
            }
            for execution in list(executions.values()):
                is_settled = execution.id in reported_ids and execution.root_id not in running
                if execution.id not in running and (is_settled or execution.id not in latest):
                    del executions[execution.id]
                    if not execution.query_run_id:
                        known = application.forgotten.get(execution.root_id, False)
                        application.forgotten[execution.root_id] = (
                            known or execution.id in reported_ids
                        )

    @property
    def _application(self) -> LoggedApplication:
        if not self.applications:
            self.applications.append(LoggedApplication("", default_fs=self._default_fs))
        return self.applications[-1]

    def _application_started(self, event: JsonObject) -> None:
        start_ms = self.latest_ms = _time(event.get("Timestamp"))
        self.applications.append(
            LoggedApplication(
                as_text(event.get("App ID")),
                redact_text(as_text(event.get("App Name"))),
                start_ms,
                default_fs=self._default_fs,
                user=as_text(event.get("User")),
                spark_version=self._spark_version,
                properties=self._properties,
            )
        )

    def _log_started(self, event: JsonObject) -> None:
        self._spark_version = as_text(event.get("Spark Version"))

    def _application_ended(self, event: JsonObject) -> None:
        self._application.end_ms = _time(event.get("Timestamp"))

    def _environment(self, event: JsonObject) -> None:
        # Spark logs it before the application's start.
        hadoop = as_object(event.get("Hadoop Properties"))
        self._default_fs = as_text(hadoop.get("fs.defaultFS"))
        self._properties = {
            name: as_text(value)
            for properties in (
                event.get("System Properties"),
                hadoop,
                event.get("Spark Properties"),
            )
            for name, value in as_object(properties).items()
        }

    def _execution_started(self, event: JsonObject) -> None:
        number, start_ms = event.get("executionId"), _time(event.get("time"))
        if not isinstance(number, int) or start_ms is None:
            return
        self.latest_ms = start_ms
        self._application.execution_ids.add(number)
        description = as_text(event.get("description"))
        matched = _RUN_OF_QUERY.search(description)
        root = event.get("rootExecutionId")
        query_run_id = matched[1].lower() if matched else ""
        modes = (as_object(event.get("modifiedConfigs")), self._application.properties)
        # A session may have catalogues of its own.
        own = {
            name: as_text(value)
            for name, value in modes[0].items()
            if name.startswith("spark.sql.catalog.")
        }
        if not own.keys() <= modes[1].keys():
            self._application.properties = {**own, **modes[1]}
        mode = next(
            (as_text(settings[_OVERWRITES]) for settings in modes if _OVERWRITES in settings), ""
        )
        plan = _with_scans(
            as_text(event.get("physicalPlanDescription")), event.get("subqueryScans")
        )
        plan = _with_whole_lists(plan, event.get("scanLocations"))
        self._application.executions[number] = SqlExecution(
            number,
            "" if matched else redact_text(description),
            self._application.kept_plan(plan, query_run_id),
            root if isinstance(root, int) else number,
            start_ms,
            query_run_id,
            is_dynamic=mode.lower() == "dynamic",
            counted=tuple(_counted_nodes(event)) if plan else (),
        )

    def _counted(self, event: JsonObject) -> None:
        number, updates = event.get("executionId"), event.get("accumUpdates")
        execution = self._application.executions.get(number) if isinstance(number, int) else None
        if execution is not None and isinstance(updates, list):
            wanted = {number for _, _, ids in execution.counted for number in ids.values()}
            pairs = (
                pair
                for pair in updates
                if isinstance(pair, list) and [*map(type, pair)] == [int, int]
            )
            execution.counts |= {number: value for number, value in pairs if number in wanted}

    def _job_started(self, event: JsonObject) -> None:
        application = self._application
        application.has_jobs = True
        application.job_ids.add(event.get("Job ID"))
        properties = as_object(event.get("Properties"))
        number = as_text(properties.get("spark.sql.execution.id"))
        rdd_write = "" if number else _RDD_WRITE.search(as_text(properties.get("spark.rdd.scope")))
        if rdd_write:
            application.rdd_writes[rdd_write[0]] = None
        execution = None
        if number.isascii() and number.isdigit():
            application.execution_ids.expect(int(number))
            execution = application.executions.get(int(number))
        paths, start_ms = event.get("rddPaths"), _time(event.get("Submission Time"))
        read = dict.fromkeys(map(as_text, paths if isinstance(paths, list) else ()))
        if execution is not None:
            execution.worked = True
            execution.rdd_paths |= read
            if isinstance(event.get("parallelized"), bool):
                execution.parallelized = execution.parallelized or event["parallelized"]
        elif read and start_ms is not None:
            application.rdd_reads.setdefault(start_ms, {}).update(read)

    def _execution_ended(self, event: JsonObject) -> None:
        number, end_ms = event.get("executionId"), _time(event.get("time"))
        if not isinstance(number, int) or end_ms is None:
            return
        self._application.execution_ids.expect(number)
        execution = self._application.executions.get(number)
        if execution is not None:
            self.latest_ms = end_ms
            execution.end_ms = end_ms
            execution.failure = redact_text(as_text(event.get("errorMessage")))

    def _query_started(self, event: JsonObject) -> None:
        query = self._query(event)
        if query is not None:
            query.name = redact_text(as_text(event.get("name")))
            query.start_ms = self.latest_ms = parse_time_ms(event.get("timestamp"))

    def _query_progressed(self, event: JsonObject) -> None:
        progress = as_object(event.get("progress"))
        query = self._query(progress)
        if query is not None:
            query.add_progress(progress)

    def _query_terminated(self, event: JsonObject) -> None:
        query = self._query(event)
        if query is not None:
            query.ended = True
            query.failure = redact_text(as_text(event.get("exception")))
            # The event has no time of its own, but it is not earlier than the events before it.
            query.extend_to(self.latest_ms)

    def _query(self, event: JsonObject) -> StreamingQuery | None:
        run_id = as_text(event.get("runId")).lower()
        if not run_id:
            return None
        queries = self._application.queries
        if run_id not in queries:
            queries[run_id] = StreamingQuery(as_text(event.get("id")), run_id)
        return queries[run_id]


def _counted_nodes(event: JsonObject) -> Iterator[tuple[str, str, dict[str, int]]]:
    for node in as_objects(event.get("countedNodes")):
        metrics = as_object(node.get("metrics")).items()
        ids = {name: number for name, number in metrics if type(number) is int}
        yield as_text(node.get("node")), as_text(node.get("location")), ids


def _with_whole_lists(plan: str, locations: object) -> str:
    """Return a plan with lists of paths in full. Its text names the first path of each: ``[/a, ...
    2 entries]``.

    :param locations: lists in full, which Spark has elsewhere in the event: ``InMemoryFileIndex(2
        paths)[/a, /b]``.
    """
    whole: dict[str, str] = {}
    for location in locations if isinstance(locations, list) else ():
        found = _LOCATION.fullmatch(location) if isinstance(location, str) else None
        paths = found["paths"].split(", ") if found is not None else []
        if found is not None and len(paths) == int(found["count"]) and "..." not in found["paths"]:
            begin = f"Location: {found['index']} ["
            short = f"{begin}{paths[0]}, ... {len(paths) - 1} entries]"
            # If two lists have the same first path, it is not clear which is which.
            whole[short] = short if short in whole else f"{begin}{', '.join(paths)}]"
    for short, full in whole.items():
        plan = plan.replace(short, full)
    return plan


def _with_scans(plan: str, scans: object) -> str:
    """Return a plan with nodes for the scans of subqueries that its text lacks: those of cached
    queries.

    :param scans: names and locations of scans.
    """
    for number, scan in enumerate(scans if isinstance(scans, list) else (), 1_000_000):
        name, location = (
            map(as_text, scan) if isinstance(scan, list) and len(scan) == 2 else ("", "")
        )
        index, _, paths = location.partition("[")
        place = f"Location: {index.partition('(')[0]} [{paths}"
        if name and place not in plan:
            plan += f"\n({number}) {name}\n{place}\n\n"
    return plan


def _number(holder: JsonObject, key: str) -> float:
    """Return a number, or 0 if it is missing: JSON has no NaN, so Spark writes such a rate as text."""
    value = holder.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    return value if -_MAX_NUMBER < value < _MAX_NUMBER else 0


def _time(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LATEST_MS else None
