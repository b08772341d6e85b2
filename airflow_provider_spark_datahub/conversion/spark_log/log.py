"""What Spark's own event log tells of an application: its streaming queries and its SQL executions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_spark_datahub.conversion.events import JsonObject, as_object, as_objects, as_text, parse_time_ms
from airflow_provider_spark_datahub.conversion.redaction import redact_text

_STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
_SQL = "org.apache.spark.sql.execution.ui.SparkListener"
# StreamExecution.getBatchDescriptionString: the description of every execution and every job of a query.
_RUN_OF_QUERY = re.compile(r"^runId = ([0-9a-fA-F-]{36})$", re.MULTILINE)

_MAX_MS = 253_402_300_799_999  # the end of the year 9999, after which there is no ISO instant
_MAX_NUMBER = 1e18


@dataclass(slots=True)
class StreamingQuery:
    """One run of a streaming query. Times are in ms since the epoch.

    :param id: of the query, which its checkpoint keeps over all runs.
    :param run_id: of this run, a UUID in lower case.
    :param name: that the user gave it, or empty.
    :param progress: the latest ``StreamingQueryProgress``; empty before the first.
    :param sources: the descriptions of all sources, of every progress, each with the latest offset that it came to.
    :param sinks: the descriptions of its sink (one, normally).
    :param rows: read in all progresses.
    :param last_ms: the latest time that is known of it: an end, where it has ended.
    :param failure: the exception that ended it, or empty.
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

    def learn(self, progress: JsonObject) -> None:
        """Take one more ``StreamingQueryProgress``; the latest one wins."""
        self.progress = progress
        self.name = self.name or as_text(progress.get("name"))
        for source in as_objects(progress.get("sources")):
            description = as_text(source.get("description"))
            if description:
                # A batch that found nothing new may name no offset.
                self.sources[description] = source.get("endOffset") or self.sources.get(description)
            self.rows += int(number_of(source, "numInputRows"))
        sink = as_text(as_object(progress.get("sink")).get("description"))
        if sink:
            self.sinks[sink] = None
        begin_ms = parse_time_ms(progress.get("timestamp"))
        if begin_ms is not None:
            self.start_ms = begin_ms if self.start_ms is None else min(self.start_ms, begin_ms)
            self.lasts_until(begin_ms + int(number_of(progress, "batchDuration")))

    def lasts_until(self, time_ms: int | None) -> None:
        """It did something at this time."""
        if time_ms is not None and time_ms <= _MAX_MS:
            self.last_ms = time_ms if self.last_ms is None else max(self.last_ms, time_ms)


@dataclass(slots=True)
class SqlExecution:
    """One SQL execution. Times are in ms since the epoch.

    :param description: the call site, or what the user set as the job's description; without secrets.
    :param plan: the physical plan as text; empty for a query's micro-batch.
    :param root_id: the execution that it is part of, or itself.
    :param query_run_id: of the streaming query that it is a micro-batch of, or empty.
    :param end_ms: ``None`` where it has not ended.
    :param failed: it ended with an error.
    """

    id: int
    description: str
    plan: str
    root_id: int
    start_ms: int
    query_run_id: str = ""
    end_ms: int | None = None
    failed: bool = False


@dataclass(slots=True)
class LoggedApplication:
    """An application as its event log tells of it. Times are in ms since the epoch.

    :param id: Spark's application id, e.g. ``application_1700000000000_0001``.
    :param default_fs: Hadoop's ``fs.defaultFS``, e.g. ``file:///``; empty where it is not known.
    :param queries: runs of streaming queries by run id.
    :param executions: by their number.
    """

    id: str
    name: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    default_fs: str = ""
    queries: dict[str, StreamingQuery] = field(default_factory=dict)
    executions: dict[int, SqlExecution] = field(default_factory=dict)


class SparkLog:
    """Takes the events of event logs one by one; what it keeps does not grow with the progresses of a query.

    An application's events begin with its ``SparkListenerApplicationStart``. Events that are not known, or not as they
    should be, are passed over.
    """

    def __init__(self) -> None:
        self._applications: list[LoggedApplication] = []
        self._latest_ms: int | None = None
        self._default_fs = ""
        self._readers = {
            "SparkListenerApplicationStart": self._application_started,
            "SparkListenerApplicationEnd": self._application_ended,
            "SparkListenerEnvironmentUpdate": self._environment,
            f"{_SQL}SQLExecutionStart": self._execution_started,
            f"{_SQL}SQLExecutionEnd": self._execution_ended,
            f"{_STREAMING}QueryStartedEvent": self._query_started,
            f"{_STREAMING}QueryProgressEvent": self._query_progressed,
            f"{_STREAMING}QueryTerminatedEvent": self._query_terminated,
        }

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one more event: the decoded JSON of a line of the log."""
        reader = self._readers.get(as_text(event.get("Event")))
        if reader is not None:
            reader(event)

    @property
    def applications(self) -> list[LoggedApplication]:
        """The applications in the order of their logs."""
        return self._applications

    @property
    def latest_ms(self) -> int | None:
        """The latest time that the log told, in ms since the epoch."""
        return self._latest_ms

    def forget_executions(self, kept: int, told: Callable[[LoggedApplication], Collection[int]]) -> None:
        """Let go of executions that have ended.

        :param kept: how many of an application's latest ones are kept: OpenLineage may be late to tell of them.
        :param told: of which executions it has told, so that nothing is waited for: those go, once the one that they
            are part of has ended.
        """
        for application in self._applications:
            executions = application.executions
            latest, told_of = set(list(executions)[-kept:]), told(application)
            running = {one.id for one in executions.values() if one.end_ms is None}
            for one in list(executions.values()):
                is_settled = one.id in told_of and one.root_id not in running
                if one.id not in running and (is_settled or one.id not in latest):
                    del executions[one.id]

    @property
    def _application(self) -> LoggedApplication:
        if not self._applications:
            self._applications.append(LoggedApplication("", default_fs=self._default_fs))
        return self._applications[-1]

    def _application_started(self, event: JsonObject) -> None:
        start_ms = self._latest_ms = _time(event.get("Timestamp"))
        id_, name = as_text(event.get("App ID")), as_text(event.get("App Name"))
        self._applications.append(LoggedApplication(id_, name, start_ms, default_fs=self._default_fs))

    def _application_ended(self, event: JsonObject) -> None:
        self._application.end_ms = _time(event.get("Timestamp"))

    def _environment(self, event: JsonObject) -> None:
        # Spark logs it before the application's start.
        self._default_fs = as_text(as_object(event.get("Hadoop Properties")).get("fs.defaultFS"))

    def _execution_started(self, event: JsonObject) -> None:
        number, start_ms = event.get("executionId"), _time(event.get("time"))
        if not isinstance(number, int) or start_ms is None:
            return
        self._latest_ms = start_ms
        description = as_text(event.get("description"))
        matched = _RUN_OF_QUERY.search(description)
        root = event.get("rootExecutionId")
        self._application.executions[number] = SqlExecution(
            number,
            "" if matched else redact_text(description),
            "" if matched else redact_text(as_text(event.get("physicalPlanDescription"))),
            root if isinstance(root, int) else number,
            start_ms,
            matched[1].lower() if matched else "",
        )

    def _execution_ended(self, event: JsonObject) -> None:
        number, end_ms = event.get("executionId"), _time(event.get("time"))
        execution = self._application.executions.get(number) if isinstance(number, int) else None
        if execution is not None and end_ms is not None:
            self._latest_ms = end_ms
            execution.end_ms = end_ms
            execution.failed = bool(as_text(event.get("errorMessage")))

    def _query_started(self, event: JsonObject) -> None:
        query = self._query(event)
        if query is not None:
            query.name = as_text(event.get("name"))
            query.start_ms = self._latest_ms = parse_time_ms(event.get("timestamp"))

    def _query_progressed(self, event: JsonObject) -> None:
        progress = as_object(event.get("progress"))
        query = self._query(progress)
        if query is not None:
            query.learn(progress)

    def _query_terminated(self, event: JsonObject) -> None:
        query = self._query(event)
        if query is not None:
            query.ended = True
            query.failure = redact_text(as_text(event.get("exception")))
            # The event has no time of its own: it is not earlier than what the log told before.
            query.lasts_until(self._latest_ms)

    def _query(self, event: JsonObject) -> StreamingQuery | None:
        run_id = as_text(event.get("runId")).lower()
        if not run_id:
            return None
        queries = self._application.queries
        if run_id not in queries:
            queries[run_id] = StreamingQuery(as_text(event.get("id")), run_id)
        return queries[run_id]


def number_of(holder: JsonObject, key: str) -> float:
    """A number of a progress, 0 where there is none: a rate that is no number is a text."""
    value = holder.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    return value if -_MAX_NUMBER < value < _MAX_NUMBER else 0


def _time(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MAX_MS else None
