"""What must be known of a run event to tell which others it belongs to, without decoding the rest of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion.events import RunEvent, parse_run_event, parse_time_ms
from airflow_provider_spark_datahub.conversion.hive_session_facet import hive_session_id
from airflow_provider_spark_datahub.conversion.hive_sessions import is_of_hive

NO_TIME = -1
"""The time of an event that tells none: before all others of its application."""


class EventHead(NamedTuple):
    """The parts of a run event by which events are grouped and ordered.

    :param time_ms: in ms since the epoch, or :data:`NO_TIME`.
    :param run_id: as in :class:`RunEvent`, likewise :attr:`job_type` and :attr:`parent_run_id`.
    :param session_id: of the ``hive_session`` facet, or empty.
    :param of_hive: Hive sent it.
    """

    time_ms: int
    run_id: str
    job_type: str
    parent_run_id: str
    session_id: str = ""
    of_hive: bool = False


class _Id(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    run_id: str = ""


class _Parent(msgspec.Struct, frozen=True, gc=False):
    run: _Id = _Id()


class _RunFacets(msgspec.Struct, frozen=True, gc=False):
    parent: _Parent = _Parent()
    hive_session: msgspec.Raw = msgspec.Raw()


class _Run(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    run_id: str
    facets: _RunFacets = _RunFacets()


class _JobType(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    job_type: str = ""


class _JobFacets(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    job_type: _JobType = _JobType()


class _Job(msgspec.Struct, frozen=True, gc=False):
    name: str
    facets: _JobFacets = _JobFacets()


class _Event(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    run: _Run
    job: _Job
    event_time: str = ""


_decode = msgspec.json.Decoder(_Event).decode
_SPARK = frozenset({"APPLICATION", "SQL_JOB", "RDD_JOB"})


def read_head(text: bytes) -> EventHead:
    """The head of one event.

    :param text: the event as JSON.
    :raises EventError: where it is no run event, or has no run id or no job name.
    """
    try:
        event = _decode(text)
    except (msgspec.MsgspecError, RecursionError):
        # A null or a number where the spec says otherwise costs only itself.
        return head_of(parse_run_event(text))
    run, job_type = event.run, event.job.facets.job_type.job_type
    # Events of Spark's, which most are, are told here; what else there may be is left to the full reading.
    if job_type not in _SPARK or run.facets.hive_session or not (run.run_id.strip() and event.job.name.strip(".")):
        return head_of(parse_run_event(text))
    time_ms = parse_time_ms(event.event_time)
    return EventHead(
        NO_TIME if time_ms is None else time_ms,
        run.run_id.strip().lower(),
        job_type,
        run.facets.parent.run.run_id.strip().lower(),
    )


def head_of(event: RunEvent) -> EventHead:
    """The head of an event that is decoded already."""
    return EventHead(
        NO_TIME if event.time_ms is None else event.time_ms,
        event.run_id,
        event.job_type,
        event.parent_run_id,
        hive_session_id(event),
        is_of_hive(event),
    )
