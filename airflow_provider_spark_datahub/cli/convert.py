"""``spark-datahub convert``, and the input of all commands: proposals, and OpenLineage events,
which are converted.

A file, or standard input, contains proposals in either form, a part of a backfill, events, or an
entry of the outbox or its quarantine, and may be compressed with gzip or zstd. The format is
detected from the first bytes or the first object.

Tests: ``tests/cli/test_convert.py``.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import typer

from airflow_provider_spark_datahub import backfill, capture
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.conversion import (
    Converter,
    Diagnostics,
    Ending,
    LineageSettings,
    Proposal,
    ProposalFormatError,
)
from airflow_provider_spark_datahub.delivery.outbox import FORMAT
from airflow_provider_spark_datahub.foundation.memory import gc_paused
from airflow_provider_spark_datahub.foundation.text import counted

_MOST_PROBLEMS = 20  # listed for each file
_PARQUET = b"PAR1"
_NO_INPUT = re.compile(
    r"(?:.*/)?\.|(?:edges|history|jobs|leases)/[^/]*-[0-9a-f]{20}|.*\.(?:part\.json|reason\.txt)$"
)
"""Hidden files, and what an outbox notes beside its entries."""


class _Format(StrEnum):
    LINES = "lines"
    DATAHUB = "datahub"


def convert(
    events: Annotated[
        list[Path] | None,
        typer.Argument(
            help="OpenLineage event files (JSON, also .gz and .zst); - or a pipe for standard input.",
            show_default=False,
        ),
    ] = None,
    output: console.OutputOption = None,
    format_: Annotated[
        _Format,
        typer.Option(
            "--format",
            help="lines: one proposal a line; datahub: the array that `datahub ingest` reads.",
        ),
    ] = _Format.LINES,
    config: console.ConfigOption = None,
    set_: console.SetOption = None,
    exit_code: console.ExitCodeOption = None,
    event_log: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="Folder of Spark's own event logs: for sinks of streaming queries; without EVENTS, for all lineage.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Write the summary as JSON: to standard output if the proposals go elsewhere.",
        ),
    ] = False,
) -> None:
    """Convert OpenLineage events, or Spark's event logs alone, to DataHub proposals: one DataJob
    per application.

    Exit status: 0; 1 if an event or a file could not be read or converted (the rest was); 2 for
    wrong options.
    """
    settings, _ = console.read_settings(config, set_ or [])
    conversion = _EventConversion(
        settings, [] if event_log and not events else _input_files(events), event_log
    )
    with console.open_output(output) as file, gc_paused():
        count = _write_to(file, conversion.proposals(exit_code), format_)
    problems = [*settings.domain_warnings(), *conversion.problems]
    if as_json:
        summary = {
            "events": conversion.converted,
            "proposals": count,
            "problems": problems,
            "notes": conversion.notes,
        }
        typer.echo(json.dumps(summary), err=output is None)
    else:
        converted = counted(conversion.converted, "event")
        for message in (*conversion.notes, *problems, f"{converted}, {counted(count, 'proposal')}"):
            console.say(message)
    if conversion.problems:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def _write_to(file: IO[str], proposals: Iterable[Proposal], format_: _Format) -> int:
    count = 0
    is_array = format_ is _Format.DATAHUB
    if is_array:
        file.write("[\n")
    for proposal in proposals:
        if is_array and count:
            file.write(",\n")
        file.write(proposal.to_json() if is_array else f"{proposal.to_json()}\n")
        count += 1
    if is_array:
        file.write("\n]\n")
    return count


class _EventConversion:
    """Conversion of event files to proposals.

    :ivar converted: number of events that were converted.
    :ivar problems: one sentence for each thing that could not be read or converted.
    :ivar notes: messages for the user about files without events, and about lineage that the events
        do not show.
    :ivar diagnostics: diagnostics of all conversions, from which the problems are made.
    """

    def __init__(
        self,
        settings: LineageSettings,
        sources: Sequence[capture.EventSource],
        event_log: Path | None = None,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._event_log = event_log
        self._places: dict[str, str] = {}
        self._complete = True
        self.converted = 0
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.diagnostics = Diagnostics()

    def proposals(self, exit_code: int | None) -> Iterator[Proposal]:
        """Convert all events together, or the event logs if there are no events."""
        if self._event_log is not None and not self._sources:
            yield from self._of_event_logs(self._event_log, exit_code)
            return
        converter = Converter(self._settings)
        for source in self._sources:
            collection = capture.CollectedEvents(source, capture.checked_text)
            for event in collection:
                if (error := converter.add(event)) is not None:
                    self._places.setdefault(str(error), f"{source}, line {collection.report.lines}")
            self._describe(collection.report)
        log_complete = True
        if self._event_log is not None:
            log = capture.EventLog(self._event_log, application_ids=converter.application_ids)
            for log_event in log:
                converter.add_log_event(log_event)
            self.problems += log.problems
            log_complete = log.complete
        yield from self._proposals(
            converter, exit_code, events_complete=self._complete, log_complete=log_complete
        )

    def _of_event_logs(self, folder: Path, exit_code: int | None) -> Iterator[Proposal]:
        """Convert the applications in a folder of Spark's event logs one by one, without
        OpenLineage's events.
        """
        log = capture.EventLog(folder)
        converter: Converter | None = None
        for event in log:
            # Every log begins with this event.
            if event["Event"] == "SparkListenerLogStart" and converter is not None:
                yield from self._proposals(converter, exit_code)
                converter = None
            converter = converter or Converter(self._settings)
            converter.add_log_event(event)
        if converter is not None:
            yield from self._proposals(converter, exit_code)
        self.problems += log.problems
        if not log.logs and not log.problems:
            self.problems.append(f"there is no Spark event log in {folder}")

    def _proposals(
        self,
        converter: Converter,
        exit_code: int | None,
        *,
        events_complete: bool = True,
        log_complete: bool = True,
    ) -> Iterator[Proposal]:
        succeeded = None if exit_code is None else exit_code == 0
        yield from converter.proposals(
            Ending(succeeded, events_complete=events_complete), log_complete=log_complete
        )
        conversion = converter.conversion
        self.converted += conversion.events
        self.diagnostics.merge(conversion.diagnostics)
        self.problems += conversion.diagnostics.problems(self._places)
        self.notes += [*conversion.diagnostics.unseen(), *conversion.diagnostics.gaps]

    def _describe(self, report: capture.CollectionReport) -> None:
        self._complete &= (
            report.outcome is capture.Outcome.COMPLETE and not report.quarantined_count
        )
        if report.quarantined:
            first, more = report.quarantined[0], report.quarantined_count - 1
            others = f" ({counted(more, 'more unusable line')} in this file)" if more else ""
            self.problems.append(f"{first.source}, line {first.line}: {first.reason}{others}")
        if report.outcome is capture.Outcome.EMPTY:
            self.notes.append(f"{report.detail} holds no event")
        elif report.outcome is not capture.Outcome.COMPLETE:
            self.problems.append(report.sentence)


@dataclass(frozen=True)
class _InputFile:
    """File of a command, or standard input: decompressed if it is compressed, and with one JSON
    value a line.

    :param file: open file of a source that can be read only once: standard input, or the content of
        a file.
    """

    name: str
    file: IO[bytes] | None = None

    def open(self, mode: str, /) -> IO[Any]:  # noqa: ARG002 (the shape of a path)
        file: IO[bytes] = Path(self.name).open("rb") if self.file is None else self.file  # noqa: SIM115 (returned open)
        try:
            return _in_lines(capture.decompressed(file))
        except OSError:
            file.close()
            raise

    def __str__(self) -> str:
        return self.name


_BETWEEN = re.compile(r"[\s,\[\]]*")
_decode_from = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode


def _in_lines(stream: io.BufferedReader) -> IO[bytes]:
    """Return JSON with one value a line: values of several lines, and of an array, are put on their
    first line.
    """
    first, newline, _ = stream.peek().lstrip().partition(b"\n")
    if not first.startswith(b"[") and not newline:
        return stream
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(first), dict):
            return stream
    with stream:
        content = stream.read()
    with suppress(ValueError, RecursionError):
        content = "".join(_values(content.decode())).encode()
    return io.BytesIO(content)


def _values(text: str) -> Iterator[str]:
    """Yield the values of a text as lines, and what follows the first malformed one as one line.

    :raises ValueError: if the very first value is malformed; RecursionError: if it is nested too
        deeply.
    """
    start, end = 0, 0
    while end < len(text):
        value, start = text[start:end], _BETWEEN.match(text, end).end()  # type: ignore[union-attr]
        yield value.replace("\n", " ") + "\n" * max(
            bool(value), text.count("\n", end - len(value), start)
        )
        try:
            end = _decode_from(text, start)[1] if start < len(text) else start
        except (ValueError, RecursionError):
            if not value:
                raise
            end = len(text)
    yield text[start:end].replace("\n", " ")


def _input_files(paths: Sequence[Path] | None) -> list[capture.EventSource]:
    """Return the files that the arguments of a command name; ``-``, or a pipe without arguments, is
    standard input.

    :raises typer.Exit: for wrong options, if a file cannot be opened or nothing is named.
    """
    if not paths and not _is_redirected(sys.stdin.buffer):
        console.fail("Name a file, or pipe one to standard input.")
    sources: list[capture.EventSource] = []
    for path in _files(paths or [Path("-")]):
        if str(path) == "-":
            sources.append(_InputFile("standard input", sys.stdin.buffer))
            continue
        try:
            with path.open("rb"):
                sources.append(_InputFile(str(path)))
        except OSError as error:
            console.fail(f"cannot read {path}: {error.strerror or error}")
    return sources


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the paths, and in place of a folder all files below it but hidden ones and an outbox's
    notes.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = (file for file in sorted(path.rglob("*")) if file.is_file())
        files = [file for file in inside if not _NO_INPUT.match(file.relative_to(path).as_posix())]
        if not files:
            console.fail(f"there is no file in {path}")
        yield from files


def _is_redirected(stream: IO[bytes]) -> bool:
    """Return whether standard input is a pipe or a file: a terminal or ``/dev/null`` has nothing to
    read.
    """
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return isinstance(stream, io.BytesIO)
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


class _Sources(NamedTuple):
    """Content of the files of a command.

    :param problems: one sentence for each thing that could not be read or converted.
    :param diagnostics: those of the events' conversion; ``None`` if there are no events.
    """

    proposals: list[Proposal]
    problems: list[str]
    diagnostics: Diagnostics | None


def read_sources(
    paths: Sequence[Path] | None,
    *,
    settings: LineageSettings | None = None,
    event_log: Path | None = None,
    exit_code: int | None = None,
) -> _Sources:
    """Read the proposals of all files, in their order; then convert all events together.

    Malformed lines are skipped and reported.

    :param paths: as for :func:`_input_files`.
    :param settings: settings of the conversion; ``None`` for the defaults.
    :param event_log: folder of Spark's own event logs.
    :param exit_code: exit code of ``spark-submit``, if it is known.
    """
    proposals: list[Proposal] = []
    problems: list[str] = []
    events: list[capture.EventSource] = []
    for source in _input_files(paths):
        with source.open("rb") as file:
            content = file.read()
        if content.startswith(_PARQUET):
            content = _lines_of(str(source), content)
        if _are_events(str(source), content):
            events.append(_InputFile(str(source), io.BytesIO(_without_manifest(content))))
        else:
            proposals += _proposals(str(source), content, problems)
    if events:
        conversion = _EventConversion(settings or LineageSettings(), events, event_log)
        proposals += conversion.proposals(exit_code)
        return _Sources(proposals, problems + conversion.problems, conversion.diagnostics)
    return _Sources(proposals, problems, None)


def _lines_of(name: str, content: bytes) -> bytes:
    """Return the proposals of a part of a backfill, one a line."""
    try:
        return "\n".join(backfill.read_part(io.BytesIO(content), name)).encode()
    except backfill.PlanError as error:
        console.fail(str(error), console.EXIT_INCOMPLETE)


def _objects(name: str, content: bytes, problems: list[str]) -> Iterator[tuple[int, Any]]:
    """Yield the JSON objects of a file, each with the number of its line; add malformed lines to
    the problems.
    """
    for number, text in enumerate(content.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            yield number, json.loads(text)
        except (ValueError, RecursionError):
            problems.append(f"{name}, line {number}: not valid JSON")


def _are_events(name: str, content: bytes) -> bool:
    """Return whether the first object (after the manifest of an outbox entry) is an OpenLineage
    event.
    """
    first = next((obj for _, obj in _objects(name, content, []) if not _is_manifest(obj)), None)
    return (
        isinstance(first, dict) and isinstance(first.get("run"), dict) and "entityUrn" not in first
    )


def _without_manifest(content: bytes) -> bytes:
    first, _, rest = content.partition(b"\n")
    return rest if FORMAT.encode() in first and b'"format"' in first else content


def _proposals(name: str, content: bytes, problems: list[str]) -> Iterator[Proposal]:
    """Yield the proposals; in a quarantine entry each one comes with its reason."""
    bad: list[str] = []
    for number, obj in _objects(name, content, bad):
        if _is_manifest(obj):
            continue
        try:
            yield Proposal.from_obj(
                obj["proposal"] if isinstance(obj, dict) and "proposal" in obj else obj
            )
        except ProposalFormatError as error:
            bad.append(f"{name}, line {number}: {error}")
    more = len(bad) - _MOST_PROBLEMS
    problems += [*bad[:_MOST_PROBLEMS], *([f"{name}: {more} more like these"] if more > 0 else [])]


def _is_manifest(obj: Any) -> bool:
    return isinstance(obj, dict) and obj.get("format") == FORMAT
