"""An archive of events as versions of aspects: what each of its runs would have written, and when.

Every group of events that belong together (``grouping.py``) is converted by itself, in the order of its events' times,
as the task that ran it would have done. ``latest.py`` then keeps what a catalogue would have kept of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from airflow_provider_spark_datahub.conversion.archive.compaction import Kept, Version, kept_of
from airflow_provider_spark_datahub.conversion.archive.grouping import (
    NO_TIME,
    EventHead,
    group_of,
    joined,
    links_of,
    read_head,
    united,
)
from airflow_provider_spark_datahub.conversion.aspects import proposals_of
from airflow_provider_spark_datahub.conversion.convert import Conversion, Converter
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending, JobLineage
from airflow_provider_spark_datahub.conversion.runs.hive_sessions import HiveSession, session_proposals
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

STILL_RUNNING_MS = 24 * 3600 * 1000
"""An application without an end was killed if the archive goes on for so long after its last event; else it may run."""


class ArchivedEvent(NamedTuple):
    """An event and where it stands. The order of two is that of their times, then of their files and offsets.

    :param file: of the archive.
    :param offset: of the event in the file, decompressed, in bytes.
    :param text: its JSON in UTF-8.
    """

    time_ms: int
    file: str
    offset: int
    text: bytes


class Quarantined(NamedTuple):
    """Something of an archive that came to nothing, and why.

    :param file: where it stands; empty for a dataset.
    """

    file: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of an archive is wanted. A job's run counts by its end, so that it is never cut in two.

    :param since_ms: of runs that ended then or later, in ms since the epoch.
    :param until_ms: of runs that ended before.
    :param applications: names of flows, where ``*`` stands for any text; none for all.
    :param run_history: every run, not only the last one of each job.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    applications: tuple[str, ...] = ()
    run_history: bool = False

    def takes(self, job: JobLineage) -> bool:
        """Whether a job's run is wanted. One without any time is, unless times are asked for."""
        ended = job.end_ms
        if self.since_ms is not None and (ended is None or ended < self.since_ms):
            return False
        if self.until_ms is not None and (ended is None or ended >= self.until_ms):
            return False
        return not self.applications or any(fnmatchcase(job.flow.flow_id, name) for name in self.applications)


@dataclass(frozen=True, slots=True)
class ArchiveFacts:
    """What must be known of a whole archive before any part of it is converted.

    :param until_ms: the time of its last event.
    :param damaged: the files of which something could not be read: a run that is told of in one may lack edges.
    """

    until_ms: int = NO_TIME
    damaged: frozenset[str] = frozenset()


class GroupConversion:
    """Converts the events of one group, one by one; what it keeps grows with what they distinctly say."""

    def __init__(self, settings: LineageSettings, selection: Selection, facts: ArchiveFacts) -> None:
        self._settings = settings
        self._selection = selection
        self._facts = facts
        self._converter = Converter(settings)
        self._complete = True
        self._last_ms = NO_TIME
        self.quarantined: list[Quarantined] = []
        self.jobs = 0

    def add(self, event: ArchivedEvent) -> None:
        """Take one more event, in their order."""
        error = self._converter.add(event.text)
        if error is not None:
            self.quarantined.append(Quarantined(event.file, event.offset, str(error)))
        self._complete = self._complete and event.file not in self._facts.damaged
        self._last_ms = max(self._last_ms, event.time_ms)
        self._converter.keep_few()

    def finish(self) -> Iterator[Version]:
        """What the group's runs would have written."""
        silent = self._facts.until_ms - self._last_ms >= STILL_RUNNING_MS
        final = silent or self._converter.all_ended
        ending = Ending(events_complete=self._complete, final=final, one_submission=False)
        conversion = self._converter.finish(ending, known_until_ms=self._facts.until_ms)
        conversion.jobs = [job for job in conversion.jobs if self._selection.takes(job)]
        self.jobs = len(conversion.jobs)
        self.quarantined += [
            Quarantined("", 0, f"dataset {dataset.namespace} {dataset.name}: {reason}")
            for dataset, reason in conversion.unusable.items()
        ]
        yield from _versions(conversion, self._settings, run_history=self._selection.run_history)


def _versions(conversion: Conversion, settings: LineageSettings, *, run_history: bool) -> Iterator[Version]:
    parents = {job.parent_instance for job in conversion.jobs}
    sessions = {session.urn: session for session in conversion.sessions if session.urn in parents}
    for urn, session in sessions.items() if run_history else ():
        yield from _numbered(urn, _end_of(session), urn, "", session_proposals(session))
    for job in conversion.jobs:
        proposals = proposals_of(job, settings)
        if job.parent_instance in sessions and not run_history:
            # Of the runs only each job's last is kept, and with it what stands above it.
            proposals = [*session_proposals(sessions[job.parent_instance]), *proposals]
        time_ms = NO_TIME if job.end_ms is None else job.end_ms
        yield from _numbered(job.job_urn, time_ms, job.run_id, job.parent_instance or "", proposals)


def _end_of(session: HiveSession) -> int:
    return max((activity.end_ms for activity in session.activities), default=NO_TIME)


def _numbered(
    job_urn: str, time_ms: int, run_id: str, submission: str, proposals: Iterable[Proposal]
) -> Iterator[Version]:
    for number, one in enumerate(proposals):
        place = job_urn if one.entity_type == "dataProcessInstance" else one.entity_urn
        yield Version(
            place,
            time_ms,
            run_id,
            number,
            submission,
            one.entity_type,
            one.entity_urn,
            one.aspect_name,
            one.change_type,
            one.value.encode(),
        )


@dataclass
class ArchiveConversion:
    """What an archive came to.

    :param kept: what to write, by place (see :class:`Version`).
    """

    events: int = 0
    applications: int = 0
    versions: int = 0
    kept: list[Kept] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)


def convert_archive(
    events: Iterable[tuple[str, int, bytes]],
    settings: LineageSettings,
    selection: Selection | None = None,
    *,
    damaged: Iterable[str] = (),
) -> ArchiveConversion:
    """An archive that fits into memory, in this process: what Spark makes of one of any size, byte for byte.

    :param events: file, offset and text of each, in any order.
    :param damaged: files of which something could not be read.
    """
    selection = selection or Selection()
    found = ArchiveConversion()
    heads: list[EventHead] = []
    archived: list[ArchivedEvent] = []
    for file, offset, text in events:
        try:
            head = read_head(text)
        except EventError as error:
            found.quarantined.append(Quarantined(file, offset, str(error)))
            continue
        heads.append(head)
        archived.append(ArchivedEvent(head.time_ms, file, offset, text))
    until_ms = max((head.time_ms for head in heads), default=NO_TIME)
    broken = frozenset(damaged) | {one.file for one in found.quarantined}
    facts = ArchiveFacts(until_ms, broken)
    versions: list[Version] = []
    for group in _groups(heads, archived):
        conversion = GroupConversion(settings, selection, facts)
        for event in sorted(group):
            conversion.add(event)
        versions += conversion.finish()
        found.applications += conversion.jobs
        found.quarantined += conversion.quarantined
    found.events, found.versions = len(archived), len(versions)
    found.kept = list(kept_of(sorted(versions), run_history=selection.run_history))
    return found


def _groups(heads: list[EventHead], events: list[ArchivedEvent]) -> Iterator[list[ArchivedEvent]]:
    shared = united(joined(link for head in heads for link in links_of(head)))
    groups: dict[str, list[ArchivedEvent]] = {}
    for head, event in zip(heads, events, strict=True):
        group = group_of(head)
        groups.setdefault(shared.get(group, group), []).append(event)
    yield from groups.values()
