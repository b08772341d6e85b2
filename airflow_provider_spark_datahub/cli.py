"""The command ``spark-datahub``: conversion without Airflow, pictures, and the outbox."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any, NoReturn

import typer

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.capture.collect import CollectionReport, EventSource, Outcome, collect_text
from airflow_provider_spark_datahub.capture.event_log import read_event_log
from airflow_provider_spark_datahub.conversion.aspects import unusable_domains
from airflow_provider_spark_datahub.conversion.coalesce import Ending
from airflow_provider_spark_datahub.conversion.convert import Converter, convert_run_event
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.proposals import Proposal, ProposalFormatError
from airflow_provider_spark_datahub.conversion.settings import LineageSettings, SettingsError

EXIT_INCOMPLETE = 1
"""Something could not be read, converted or delivered; the rest was."""
EXIT_USAGE = 2
"""Wrong arguments or options; nothing was done."""

app = typer.Typer(
    name="spark-datahub",
    help="Lineage of Spark jobs, from OpenLineage events to DataHub.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


_OutboxOption = Annotated[Path | None, typer.Option(help="The outbox; default: that of Airflow's configuration.")]


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


def app_main() -> None:
    """The console script's entry point."""
    try:
        app()
    except BrokenPipeError:
        # The reader of the pipe has seen enough; nothing may be written to it any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_INCOMPLETE)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
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
        _fail(f"cannot write {output or 'standard output'}: {error.strerror or error}", EXIT_INCOMPLETE)
    for domain in unusable_domains(settings):
        _say(f"domain {domain!r} is no URN of a domain, and left out")
    for problem in conversion.problems:
        _say(problem)
    _say(f"{conversion.converted} events, {count} proposals")
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
            _fail(f"--set {assignment}: want KEY=VALUE", EXIT_USAGE)
        layers.append({key.strip(): value.strip()})
    try:
        for note in LineageSettings.notes(*layers):
            _say(note)
        return LineageSettings.from_mapping(*layers)
    except SettingsError as error:
        _fail(str(error), EXIT_USAGE)


def _config_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        _fail(f"cannot read {path}: {error.strerror or error}", EXIT_USAGE)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        _fail(f"{path} is neither YAML nor JSON: {error}", EXIT_USAGE)
    if loaded is not None and not isinstance(loaded, dict):
        _fail(f"{path} holds no object of options", EXIT_USAGE)
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


@app.command()
def show(
    proposals: Annotated[list[Path], typer.Argument(help="Files of proposals: lines, or the array of `datahub`.")],
    columns: Annotated[bool, typer.Option(help="Show column lineage, too.")] = True,
) -> None:
    """Show the run tree and the lineage that proposals tell, in the terminal."""
    from rich.console import Console

    from airflow_provider_spark_datahub.picture.graph import fold
    from airflow_provider_spark_datahub.picture.terminal import render

    read: list[Proposal] = []
    for path in proposals:
        try:
            read.extend(_read_proposals(path))
        except OSError as error:
            _fail(f"cannot read {path}: {error.strerror or error}", EXIT_INCOMPLETE)
        except (ProposalFormatError, ValueError) as error:
            _fail(f"{path}: {error}", EXIT_INCOMPLETE)
    render(fold(read), Console(), columns=columns)


def _read_proposals(path: Path) -> Iterator[Proposal]:
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        yield from (Proposal.from_obj(obj) for obj in json.loads(text))
    else:
        yield from (Proposal.from_obj(json.loads(line)) for line in text.splitlines() if line.strip())


@app.command()
def pending(
    outbox: Annotated[
        Path | None, typer.Option(help="The outbox; default: the one of Airflow's configuration.")
    ] = None,
) -> None:
    """List the lineage that waits for its delivery. Exit status 1 where there is any."""
    from airflow_provider_spark_datahub.delivery.outbox import Outbox

    entries = Outbox(outbox or _configured_outbox()).all_entries()
    for entry in entries:
        key, manifest = entry.manifest.key, entry.manifest
        task = f"{key.task_id} try {key.try_number}" if key.task_id else "end of the DAG run"
        typer.echo(f"{key.dag_id}  {key.run_id}  {task}  {manifest.pending} proposals for {manifest.connection_id}")
    if entries:
        raise typer.Exit(EXIT_INCOMPLETE)


@app.command()
def emit(
    outbox: Annotated[
        Path | None, typer.Option(help="The outbox; default: the one of Airflow's configuration.")
    ] = None,
    connection: Annotated[
        str | None, typer.Option(help="Deliver through this connection, not the entry's own.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for each entry.")] = 60.0,
) -> None:
    """Deliver what waits in the outbox, through Airflow's connections. Exit status 1 where something stays."""
    from airflow_provider_spark_datahub.delivery.drain import drain
    from airflow_provider_spark_datahub.delivery.outbox import Outbox
    from airflow_provider_spark_datahub.hooks.datahub import open_sink

    entries = Outbox(outbox or _configured_outbox()).all_entries()
    drained = drain(entries, open_sink, connection=connection, seconds=seconds)
    for problem in drained.problems:
        _say(problem)
    _say(f"{drained.delivered} proposals delivered, {drained.rejected} rejected, {drained.pending} pending")
    if drained.pending:
        raise typer.Exit(EXIT_INCOMPLETE)


def _configured_outbox() -> Path:
    from airflow_provider_spark_datahub.operators.options import outbox_location

    return outbox_location()


def _say(message: str) -> None:
    typer.echo(message, err=True)


def _fail(message: str, status: int) -> NoReturn:
    _say(message)
    raise typer.Exit(status)
