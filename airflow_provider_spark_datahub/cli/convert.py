"""``spark-datahub convert``: OpenLineage events to DataHub proposals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated

import typer

from airflow_provider_spark_datahub.capture import EventSource
from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, opened_output, option_layers, read_settings, say
from airflow_provider_spark_datahub.cli.sources import EventConversion, StandardInput
from airflow_provider_spark_datahub.conversion import Proposal, unusable_domains
from airflow_provider_spark_datahub.gc_tuning import gc_paused


class Format(StrEnum):
    """How proposals are written."""

    LINES = "lines"
    DATAHUB = "datahub"


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
    json_: Annotated[
        bool,
        typer.Option("--json", help="The summary as JSON: on standard output where that is not for the proposals."),
    ] = False,
) -> None:
    """Convert OpenLineage events to DataHub proposals, one DataJob per Spark application.

    Exit status: 0; 1 where an event or a file could not be read or converted (the rest was); 2 for wrong options.
    """
    settings = read_settings(option_layers(config, set_ or []))
    sources: list[EventSource] = [StandardInput() if str(path) == "-" else path for path in events]
    conversion = EventConversion(settings, sources, event_log)
    proposals = conversion.per_event() if per_event else conversion.coalesced(exit_code)
    with opened_output(output, failed=EXIT_INCOMPLETE) as file, gc_paused():
        count = _write_to(file, proposals, format_)
    problems = [f"domain {domain!r} is no URN of a domain, and left out" for domain in unusable_domains(settings)]
    problems += conversion.problems
    if json_:
        summary = {"events": conversion.converted, "proposals": count, "problems": problems}
        typer.echo(json.dumps(summary), err=output is None)
    else:
        for problem in problems:
            say(problem)
        say(f"{conversion.converted} events, {count} proposals")
    if conversion.problems:
        raise typer.Exit(EXIT_INCOMPLETE)


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
