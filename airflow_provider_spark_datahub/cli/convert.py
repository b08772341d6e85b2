"""``spark-datahub convert``: OpenLineage events to DataHub proposals."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from airflow_provider_spark_datahub.capture.collect import CollectionReport, EventSource, Outcome, collect_text
from airflow_provider_spark_datahub.capture.event_log import read_event_log
from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, EXIT_USAGE, fail, say
from airflow_provider_spark_datahub.conversion.aspects import unusable_domains
from airflow_provider_spark_datahub.conversion.coalesce import Ending
from airflow_provider_spark_datahub.conversion.convert import Converter, convert_run_event
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.settings import LineageSettings, SettingsError, settings_of_environment


class Format(StrEnum):
    """How proposals are written."""

    LINES = "lines"
    DATAHUB = "datahub"


class _StandardInput:
    """Standard input as an event file."""

    def open(self, mode: str, /) -> IO[Any]:  # noqa: ARG002 (the shape of a path)
        return sys.stdin.buffer

    def __str__(self) -> str:
        return "standard input"


def convert(
    events: Annotated[list[Path], typer.Argument(help="OpenLineage event files (JSON lines); - for standard input.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here, not to standard output.")] = None,
    format_: Annotated[
        Format,
        typer.Option("--format", help="lines: one proposal a line; datahub: the array that `datahub ingest` reads."),
    ] = Format.LINES,
    config: Annotated[Path | None, typer.Option(help="Options of the converter, as YAML or JSON.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One option of the converter; repeatable.")
    ] = None,
    per_event: Annotated[bool, typer.Option("--per-event", help="Each event by itself, not coalesced.")] = False,
    exit_code: Annotated[
        int | None, typer.Option(help="What spark-submit returned: it decides the run's result.")
    ] = None,
    event_log: Annotated[
        Path | None, typer.Option(help="Folder of Spark's own event logs, for the sinks of streaming queries.")
    ] = None,
) -> None:
    """Convert OpenLineage events to DataHub proposals, one DataJob per Spark application.

    Exit status: 0; 1 where an event or a file could not be read or converted (the rest was); 2 for wrong options.
    """
    settings = _settings(config, set_ or [])
    sources: list[EventSource] = [_StandardInput() if str(path) == "-" else path for path in events]
    conversion = _EventConversion(settings, sources, event_log)
    proposals = conversion.per_event() if per_event else conversion.coalesced(exit_code)
    try:
        count = _write(proposals, output, format_)
    except OSError as error:
        fail(f"cannot write {output or 'standard output'}: {error.strerror or error}", EXIT_INCOMPLETE)
    for domain in unusable_domains(settings):
        say(f"domain {domain!r} is no URN of a domain, and left out")
    for problem in conversion.problems:
        say(problem)
    say(f"{conversion.converted} events, {count} proposals")
    if conversion.problems:
        raise typer.Exit(EXIT_INCOMPLETE)


class _EventConversion:
    """Events of files to proposals, with what went wrong on the way."""

    def __init__(self, settings: LineageSettings, sources: list[EventSource], event_log: Path | None) -> None:
        self._settings = settings
        self._sources = sources
        self._event_log = event_log
        self.converted = 0
        self.problems: list[str] = []

    def coalesced(self, exit_code: int | None) -> Iterator[Proposal]:
        """All events together."""
        converter = Converter(self._settings)
        report = self._read(converter.add)
        complete = report.outcome is Outcome.COMPLETE and not report.quarantined_count
        succeeded = None if exit_code is None else exit_code == 0
        log_complete = self._read_event_log(converter)
        conversion = converter.finish(Ending(succeeded, events_complete=complete), log_complete=log_complete)
        self.converted = conversion.events
        self.problems += conversion.problems
        self.problems += [
            f"no lineage of SQL execution {one.id} ({one.description}): {one.reason}" for one in conversion.lost
        ]
        self.problems += [f"{one.namespace} {one.name}: {why}" for one, why in conversion.unusable.items()]
        self.problems += conversion.cut
        yield from conversion.proposals(self._settings)

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
        for event in collection:
            try:
                proposals = convert_run_event(event, self._settings)
            except EventError as error:
                self.problems.append(str(error))
            else:
                self.converted += 1
                yield from proposals
        self._describe(collection.report)

    def _read(self, add: Callable[[object], None]) -> CollectionReport:
        collection = collect_text(self._sources)
        for event in collection:
            add(event)
        self._describe(collection.report)
        return collection.report

    def _describe(self, report: CollectionReport) -> None:
        self.problems += [f"{one.source}, line {one.line}: {one.reason}" for one in report.quarantined]
        if report.outcome is not Outcome.COMPLETE:
            self.problems.append(report.sentence)


def _settings(config: Path | None, assignments: list[str]) -> LineageSettings:
    layers: list[dict[str, Any]] = [_config_file(config)] if config else []
    for assignment in assignments:
        key, found, value = assignment.partition("=")
        if not found:
            fail(f"--set {assignment}: want KEY=VALUE", EXIT_USAGE)
        layers.append({key.strip(): value.strip()})
    try:
        for note in LineageSettings.notes(*layers):
            say(note)
        return LineageSettings.from_mapping(settings_of_environment(os.environ), *layers)
    except SettingsError as error:
        fail(str(error), EXIT_USAGE)


def _config_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}", EXIT_USAGE)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{path} is neither YAML nor JSON: {error}", EXIT_USAGE)
    if loaded is not None and not isinstance(loaded, dict):
        fail(f"{path} holds no object of options", EXIT_USAGE)
    return loaded or {}


def _write(proposals: Iterable[Proposal], output: Path | None, format_: Format) -> int:
    if output is None:
        return _write_to(sys.stdout, proposals, format_)
    # Nobody is to find half a file: written beside, and moved into place whole.
    draft = output.with_name(f".{output.name}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            count = _write_to(file, proposals, format_)
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)
    return count


def _write_to(file: IO[str], proposals: Iterable[Proposal], format_: Format) -> int:
    opening, separator, closing = ("[\n", ",\n", "\n]\n") if format_ is Format.DATAHUB else ("", "\n", "\n")
    count = 0
    file.write(opening)
    for proposal in proposals:
        file.write(f"{separator if count else ''}{proposal.to_json()}")
        count += 1
    if count or format_ is Format.DATAHUB:
        file.write(closing)
    return count
