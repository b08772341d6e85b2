"""Events of one session of a Spark Connect server, out of the event file of the whole server.

All clients of a server share one Spark application, and so one listener. A client names its session
in its connection string (``sc://host:15002/;session_id=<uuid>``), and Spark describes each job with
it. The events of a session become those of an application of its own, whose run is the session.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlencode

import msgspec

from airflow_provider_spark_datahub.capture import event_lines
from airflow_provider_spark_datahub.capture.spark_submit import InjectionError

T = TypeVar("T")

SESSION_SCHEME = "spark-connect://"
"""Begins the text of :class:`SessionEvents`, as an outbox entry keeps it."""
_REMOTE = "sc://"
_SESSION_ID = "session_id"
_DESCRIPTION = re.compile(r'Spark Connect - session_id: "([^"]+)"')
_ENDS = frozenset({"COMPLETE", "FAIL", "ABORT"})
_SETTLE_SECONDS = 10.0
"""How long the server may take to write the end of what it did for the session."""
_PAUSE_SECONDS = 0.25
_QUIET_READS = 4
_UNKNOWN_RUNS = 1000
"""Unattributed runs whose events are kept, since nothing names their session yet."""


class SessionEvents(NamedTuple):
    """Place of the events of one session.

    :param path: event file of the server, which is only read.
    :param start: size of the file before the session began, in bytes.
    :param name: of the application that stands for the session.
    """

    path: Path
    session_id: str
    start: int
    name: str

    @classmethod
    def parse(cls, text: str) -> SessionEvents:
        """Return the place from its text.

        :raises ValueError: if it is something else.
        """
        path, _, query = text.removeprefix(SESSION_SCHEME).partition("?")
        values = {name: value[0] for name, value in parse_qs(query).items()}
        return cls(
            Path(unquote(path)),
            values.get("session", ""),
            int(values.get("start", 0)),
            values.get("name", ""),
        )

    @staticmethod
    def remote(remote: str, session_id: str) -> tuple[str, str]:
        """Return a connection string of Spark Connect with a session's id, and that id; a string's
        own id stays.

        :raises InjectionError: if it is another string.
        """
        if not remote.startswith(_REMOTE):
            raise InjectionError(
                f"SPARK_REMOTE is {remote.partition(';')[0]!r}: no Spark Connect server ({_REMOTE}…)"
            )
        address, _, parameters = remote.partition(";")
        for parameter in parameters.split(";"):
            name, _, value = parameter.partition("=")
            if name == _SESSION_ID and value:
                return remote, value
        slash = "" if "/" in address.removeprefix(_REMOTE) else "/"
        others = f"{parameters.rstrip(';')};" if parameters else ""
        return f"{address}{slash};{others}{_SESSION_ID}={session_id}", session_id

    def __str__(self) -> str:
        query = urlencode({"session": self.session_id, "start": self.start, "name": self.name})
        return f"{SESSION_SCHEME}{quote(str(self.path))}?{query}"

    def follow(self, parse: Callable[[bytes], T]) -> _SessionFollower[T]:
        """Return the reader of the events."""
        return _SessionFollower(self, parse)

    def sizes(self) -> dict[str, int]:
        """Return how many bytes the server has written since the session began, or raise OSError."""
        return {str(self.path): max(0, self.path.stat().st_size - self.start)}

    def last_ms(self) -> int | None:
        """Return the time of the session's last event, in ms since the epoch; ``None`` if there is
        none.
        """
        reader = _SessionFollower(self, event_lines.checked_text)
        times = [
            datetime.fromisoformat(json.loads(event)["eventTime"])
            for event in reader.new(lambda: False)
        ]
        return round(max(times).timestamp() * 1000) if times else None

    def remove(self) -> None:
        """Do nothing: the file is the server's."""


class _Facets(msgspec.Struct):
    spark_jobDetails: dict[str, Any] = {}  # noqa: N815 (OpenLineage's name)


class _Run(msgspec.Struct):
    runId: str = ""  # noqa: N815 (OpenLineage's name)
    facets: _Facets | None = None


class _Head(msgspec.Struct):
    """Keys that show whose an event is."""

    run: _Run
    eventType: str = ""  # noqa: N815 (OpenLineage's name)


_decode_head = msgspec.json.Decoder(_Head).decode


@dataclass
class _SessionFollower(event_lines.Follower[T]):
    """Reader of a session's events while the server writes them."""

    _place: SessionEvents
    _own: dict[str, bool] = field(default_factory=dict)
    _waiting: dict[str, list[bytes]] = field(default_factory=dict)
    _running: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._file = event_lines.FileFollower(
            self._place.path, event_lines.checked_text, offset=self._place.start
        )

    def new(self, stop: Callable[[], bool]) -> Iterator[T]:
        for text in self._file.new(stop):
            for own in self._of_session(text):
                event = self._parse(_as_application(own, self._place))
                self.report.lines += 1
                self.report.events += 1
                self.report.bytes_read += len(own)
                yield event

    def rest(self, deadline: Callable[[], bool]) -> Iterator[T]:
        # The server goes on writing after the client has its answer, so its file is read until each
        # query has an end.
        quiet, settled = 0, time.monotonic() + _SETTLE_SECONDS
        while quiet < _QUIET_READS or self._running or not self.report.events:
            known = self.report.events
            yield from self.new(deadline)
            quiet = 0 if self.report.events > known else quiet + 1
            if deadline() or time.monotonic() > settled or not self._place.path.exists():
                break
            time.sleep(_PAUSE_SECONDS)
        self._end(timed_out=deadline())

    def _end(self, *, timed_out: bool) -> None:
        report, bad = self.report, self._file.report
        report.quarantined, report.quarantined_count = bad.quarantined, bad.quarantined_count
        outcome = event_lines.Outcome.COMPLETE if report.events else event_lines.Outcome.EMPTY
        if timed_out or self._running:
            outcome = event_lines.Outcome.TIMED_OUT if timed_out else event_lines.Outcome.TORN
        list(self._file.rest(lambda: True))  # opens the file, and reads nothing of it
        place = str(self._place.path)
        if bad.outcome is not event_lines.Outcome.TIMED_OUT:
            outcome, place = bad.outcome, bad.detail
        report.end(outcome, f"session {self._place.session_id} in {place}")

    def _of_session(self, text: bytes) -> Iterator[bytes]:
        """Yield the events that are now known to be of this session: earlier ones of the same run,
        then this one.
        """
        try:
            head = _decode_head(text)
        except msgspec.DecodeError:
            return
        run, details = head.run.runId, head.run.facets.spark_jobDetails if head.run.facets else {}
        described = _DESCRIPTION.match(str(details.get("jobDescription") or ""))
        if described:
            self._own[run] = described[1] == self._place.session_id
        ended = head.eventType in _ENDS
        if run not in self._own:
            self._keep(run, text, ended=ended)
            return
        earlier = self._waiting.pop(run, [])
        if self._own[run]:
            yield from earlier
            yield text
        if ended:
            self._running.discard(run)
        elif self._own[run] and b'"SQL_JOB"' in text:
            # A job on an RDD has no end in OpenLineage's events.
            self._running.add(run)

    def _keep(self, run: str, text: bytes, *, ended: bool) -> None:
        if ended:
            # It started no Spark job, and nothing else names a session.
            self._waiting.pop(run, None)
            return
        self._waiting.setdefault(run, []).append(text)
        if len(self._waiting) > _UNKNOWN_RUNS:
            self._waiting.pop(next(iter(self._waiting)))


def _as_application(text: bytes, session: SessionEvents) -> bytes:
    """Return an event as one of an application of the session's name, whose run is the session."""
    event = json.loads(text)
    facets, job = event["run"].get("facets") or {}, event.get("job") or {}
    for facet, key in (("spark_applicationDetails", "appName"), ("properties", "spark.app.name")):
        found = (
            facets.get(facet)
            if facet in facets
            else (facets.get("spark_properties") or {}).get(facet)
        )
        if isinstance(found, dict) and key in found:
            found[key] = session.name
    parent = facets.get("parent")
    if isinstance(parent, dict):
        parent["run"] = {"runId": session.session_id}
        parent["job"] = {**(parent.get("job") or {}), "name": session.name}
        parent.pop("root", None)
    _, dot, rest = str(job.get("name") or "").partition(".")
    job["name"] = f"{session.name}{dot}{rest}"
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
