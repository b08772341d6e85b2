"""OpenLineage events of files, converted.

Proposals from whatever a person has at hand.

Files of proposals in either form, parts of a backfill, OpenLineage events (converted), entries of the outbox and of its
quarantine; each from a file or from standard input. Which of these a file is, its first bytes or object tell.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from airflow_provider_spark_datahub.capture import CollectionReport, EventSource, Outcome, collect_text, read_event_log
from airflow_provider_spark_datahub.cli.console import fail
from airflow_provider_spark_datahub.conversion import (
    Conversion,
    Converter,
    Ending,
    EventError,
    LineageSettings,
    Proposal,
    ProposalFormatError,
    convert_by_itself,
)
from airflow_provider_spark_datahub.delivery.outbox import FORMAT


class EventConversion:
    """Events of files to proposals, with what went wrong on the way."""

    def __init__(
        self, settings: LineageSettings, sources: Sequence[EventSource], event_log: Path | None = None
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._event_log = event_log
        self.converted = 0
        self.problems: list[str] = []

    def coalesced(self, exit_code: int | None) -> Iterator[Proposal]:
        """All events together."""
        converter = Converter(self._settings)
        report = self._read(converter)
        complete = report.outcome is Outcome.COMPLETE and not report.quarantined_count
        succeeded = None if exit_code is None else exit_code == 0
        log_complete = self._read_event_log(converter)
        yield from converter.proposals(Ending(succeeded, events_complete=complete), log_complete=log_complete)
        self._tell(converter.conversion)

    def _read_event_log(self, converter: Converter) -> bool:
        if self._event_log is None:
            return True
        log = read_event_log(self._event_log, application_ids=converter.application_ids)
        for event in log:
            converter.add_log_event(event)
        self.problems += log.report.problems
        return log.report.complete

    def per_event(self) -> Iterator[Proposal]:
        """Each event by itself."""
        collection = collect_text(self._sources)
        told = Conversion()
        for event in collection:
            try:
                conversion = convert_by_itself(event, self._settings)
            except EventError as error:
                told.reject(error)
            else:
                told.events += 1
                for job in conversion.jobs:
                    told.note(job)
                yield from conversion.proposals(self._settings)
        self._describe(collection.report)
        self._tell(told)

    def _read(self, converter: Converter) -> CollectionReport:
        collection = collect_text(self._sources)
        for event in collection:
            converter.add(event)
            if self._event_log is None:
                converter.keep_few()
        self._describe(collection.report)
        return collection.report

    def _describe(self, report: CollectionReport) -> None:
        self.problems += [f"{one.source}, line {one.line}: {one.reason}" for one in report.quarantined]
        if report.outcome is not Outcome.COMPLETE:
            self.problems.append(report.sentence)

    def _tell(self, conversion: Conversion) -> None:
        self.converted = conversion.events
        self.problems += conversion.problems
        if untold := conversion.rejected - len(conversion.problems):
            self.problems.append(f"{untold} more events cannot be converted")
        self.problems += [
            f"no lineage of SQL execution {one.id} ({one.description}): {one.reason}" for one in conversion.lost
        ]
        self.problems += [f"{one.namespace} {one.name}: {why}" for one, why in conversion.unusable.items()]
        self.problems += conversion.cut
        self.problems += [*conversion.table_gaps, *conversion.column_gaps]


_MOST_TOLD = 20
_PARQUET = b"PAR1"


class StandardInput:
    """Standard input as a file."""

    def open(self, mode: str, /) -> IO[Any]:  # noqa: ARG002 (the shape of a path)
        """The bytes of standard input."""
        return sys.stdin.buffer

    def __str__(self) -> str:
        return "standard input"


@dataclass(frozen=True, slots=True)
class _Held:
    """The content of a file that was read, as a file."""

    name: str
    content: bytes

    def open(self, mode: str, /) -> IO[Any]:  # noqa: ARG002 (the shape of a path)
        return io.BytesIO(self.content)

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Sources:
    """What was read.

    :param problems: one sentence for each thing that could not be read or converted.
    """

    proposals: list[Proposal] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_sources(paths: Sequence[Path], *, failed: int) -> Sources:
    """The proposals of all files, in their order; then those of all events, which are converted together.

    What cannot be read costs only itself.

    :param paths: ``-`` is standard input.
    :param failed: the exit status where a file cannot be read at all.
    :raises typer.Exit: there.
    """
    sources = Sources()
    events: list[_Held] = []
    for path in paths:
        source = StandardInput() if str(path) == "-" else path
        try:
            with source.open("rb") as file:
                content = file.read()
        except OSError as error:
            fail(f"cannot read {source}: {error.strerror or error}", failed)
        if content.startswith(_PARQUET):
            content = _lines_of(str(source), content, failed)
        objects = _Objects(str(source), content)
        if objects.are_events():
            events.append(_Held(str(source), objects.as_lines()))
        else:
            sources.proposals += objects.proposals()
            sources.problems += objects.problems()
    if events:
        conversion = EventConversion(LineageSettings(), events)
        sources.proposals += conversion.coalesced(exit_code=None)
        sources.problems += conversion.problems
    return sources


def _lines_of(name: str, content: bytes, failed: int) -> bytes:
    """What a part of a backfill holds."""
    from airflow_provider_spark_datahub.backfill.plan import PartError, proposals_of

    try:
        return "\n".join(proposals_of(io.BytesIO(content), name)).encode()
    except PartError as error:
        fail(str(error), failed)


class _Objects:
    """The JSON objects of a file: one a line, or the elements of an array."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.bad: list[str] = []
        self.is_array = content.lstrip()[:1] == b"["
        self.content = content
        self.unit = "element" if self.is_array else "line"

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Each object with its number, from 1; what is none is among the problems."""
        if self.is_array:
            yield from enumerate(self._elements(), 1)
            return
        for number, line in enumerate(self.content.split(b"\n"), 1):
            if line.strip():
                try:
                    obj = json.loads(line)
                except (ValueError, RecursionError):
                    self.bad.append(f"{self.name}, line {number}: no JSON")
                else:
                    yield number, obj

    def _elements(self) -> list[Any]:
        try:
            elements: list[Any] = json.loads(self.content)
        except (ValueError, RecursionError) as error:
            self.bad.append(f"{self.name} is no JSON array: {error}")
            return []
        return elements

    def are_events(self) -> bool:
        """Whether the first object, or the one behind an entry's manifest, is an OpenLineage event."""
        first = next((obj for _, obj in self if not _is_manifest(obj)), None)
        self.bad.clear()
        return isinstance(first, dict) and isinstance(first.get("run"), dict) and "entityUrn" not in first

    def as_lines(self) -> bytes:
        """The content without the manifest of an entry, one object a line."""
        if self.is_array:
            return b"".join(json.dumps(element).encode() + b"\n" for element in self._elements())
        first, _, rest = self.content.partition(b"\n")
        return rest if FORMAT.encode() in first and b'"format"' in first else self.content

    def proposals(self) -> Iterator[Proposal]:
        """Those of proposals; an entry of the quarantine holds each one with the reason why it is there."""
        for number, obj in self:
            if _is_manifest(obj):
                continue
            try:
                yield Proposal.from_obj(obj["proposal"] if isinstance(obj, dict) and "proposal" in obj else obj)
            except ProposalFormatError as error:
                self.bad.append(f"{self.name}, {self.unit} {number}: {error}")

    def problems(self) -> list[str]:
        """The first of what could not be read, and how much more there is."""
        more = len(self.bad) - _MOST_TOLD
        return [*self.bad[:_MOST_TOLD], *([f"{self.name}: {more} more like these"] if more > 0 else [])]


def _is_manifest(obj: Any) -> bool:
    return isinstance(obj, dict) and obj.get("format") == FORMAT
