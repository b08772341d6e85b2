"""``spark-datahub convert``: OpenLineage events to DataHub proposals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Annotated

import typer

from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.cli.sources import EventConversion, input_files
from airflow_provider_spark_datahub.conversion import LineageSettings, Proposal, json_lines
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.task import gc_paused


class _Format(StrEnum):
    LINES = "lines"
    DATAHUB = "datahub"


def convert(
    events: Annotated[
        list[Path] | None,
        typer.Argument(
            help="OpenLineage event files (JSON lines, also .gz and .zst); - or a pipe for standard input.",
            show_default=False,
        ),
    ] = None,
    output: console.OutputOption = None,
    format_: Annotated[
        _Format,
        typer.Option("--format", help="lines: one proposal a line; datahub: the array that `datahub ingest` reads."),
    ] = _Format.LINES,
    config: console.ConfigOption = None,
    set_: console.SetOption = None,
    per_event: Annotated[bool, typer.Option("--per-event", help="Convert each event on its own.")] = False,
    exit_code: console.ExitCodeOption = None,
    event_log: Annotated[
        Path | None,
        typer.Option(
            help="Folder of Spark's own event logs: for sinks of streaming queries; without EVENTS, for all lineage."
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Write the summary as JSON: to standard output if the proposals go elsewhere."),
    ] = False,
) -> None:
    """Convert OpenLineage events, or Spark's event logs alone, to DataHub proposals: one DataJob per application.

    Exit status: 0; 1 if an event or a file could not be read or converted (the rest was); 2 for wrong options.
    """
    settings, _ = console.read_settings(config, set_ or [])
    conversion, proposals = _conversion(settings, events, event_log, exit_code, alone=per_event)
    with console.open_output(output, failed=console.EXIT_INCOMPLETE) as file, gc_paused():
        count = _write_to(file, proposals, format_)
    problems = [*settings.domain_warnings(), *conversion.problems]
    if as_json:
        summary = {"events": conversion.converted, "proposals": count, "problems": problems, "notes": conversion.notes}
        typer.echo(json.dumps(summary), err=output is None)
    else:
        converted = counted(conversion.converted, "event")
        for message in (*conversion.notes, *problems, f"{converted}, {counted(count, 'proposal')}"):
            console.say(message)
    if conversion.problems:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def _conversion(
    settings: LineageSettings, events: list[Path] | None, event_log: Path | None, exit_code: int | None, *, alone: bool
) -> tuple[EventConversion, Iterator[Proposal]]:
    """Return the conversion of events, or of event logs if there are no events, and its proposals."""
    if event_log is not None and not events:
        conversion = EventConversion(settings, [])
        return conversion, conversion.from_event_log(event_log, exit_code)
    conversion = EventConversion(settings, input_files(events, failed=console.EXIT_INCOMPLETE), event_log)
    return conversion, conversion.per_event() if alone else conversion.coalesced(exit_code)


def _write_to(file: IO[str], proposals: Iterable[Proposal], format_: _Format) -> int:
    count, separator, remaining = 0, ",\n", iter(proposals)
    if format_ is _Format.DATAHUB:
        file.write("[\n")
        for proposal in remaining:
            file.write(f"{separator if count else ''}{proposal.to_json()}")
            count += 1
        file.write("\n]\n")
    while several := list(islice(remaining, _WRITTEN_AT_ONCE)):
        file.write(json_lines(several).decode())
        count += len(several)
    return count


_WRITTEN_AT_ONCE = 100
