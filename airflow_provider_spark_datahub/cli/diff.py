"""``spark-datahub diff``: the differences between two sets of proposals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.cli.console import open_output, say
from airflow_provider_spark_datahub.cli.sources import read_sources

EXIT_DIFFERENT, EXIT_TROUBLE = 1, 2
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_HEADINGS = {
    "run": "Runs",
    "edge": "Edges",
    "column edge": "Column edges",
    "schema": "Columns of schemas",
    "entity": "Entities",
    "aspect": "Other aspects",
}
_LONGEST_VALUE = 60


def diff(
    before: Annotated[
        Path,
        typer.Argument(help="Proposals, OpenLineage events or an outbox entry, also .gz, .zst; - for standard input."),
    ],
    after: Annotated[Path, typer.Argument(help="The same, to compare with.")],
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with status 1 if they differ.")] = False,
    ignore_run_ids: Annotated[
        bool,
        typer.Option("--ignore-run-ids", help="Compare different runs of the same jobs: first with first, and so on."),
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here, not to standard output.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")] = False,
) -> None:
    """Compare two sets of proposals: runs, edges, column edges, schemas, entities, other aspects.

    Exit status: 0; with --exit-code 1 if they differ; 2 for wrong options, or if something could not be read (the rest
    was compared) or written.
    """
    if str(before) == str(after) == "-":
        raise typer.BadParameter("only one of the two can be standard input")
    proposals, problems, _ = read_sources([before], failed=EXIT_TROUBLE)
    others, their_problems, _ = read_sources([after], failed=EXIT_TROUBLE)
    changes, unreadable = visualization.compare(proposals, others, ignore_run_ids=ignore_run_ids)
    problems += [*their_problems, *unreadable]
    with open_output(output, failed=EXIT_TROUBLE) as file:
        if as_json:
            file.write(json.dumps(_document(changes, problems), indent=2) + "\n")
        else:
            from rich.console import Console

            _print(changes, Console(file=file, soft_wrap=True, highlight=False))
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(EXIT_TROUBLE)
    if changes and exit_code:
        raise typer.Exit(EXIT_DIFFERENT)


def _document(changes: list[visualization.Change], problems: list[str]) -> dict[str, Any]:
    return {
        "same": not changes,
        "changes": [
            {
                "part": str(change.part),
                "change": change.kind,
                "urn": change.urn,
                "what": list(change.what),
                "before": change.before,
                "after": change.after,
            }
            for change in changes
        ],
        "problems": problems,
    }


def _print(changes: list[visualization.Change], console: Any) -> None:
    from rich.text import Text

    counts = Counter((change.part, change.kind) for change in changes)
    part = None
    for change in changes:
        if change.part is not part:
            part = change.part
            summary = ", ".join(f"{counts[part, kind]} {kind}" for kind in _SIGNS if counts[part, kind])
            console.print(Text(f"{_HEADINGS[part]}: {summary}", "bold"))
        sign, style = _SIGNS[change.kind]
        console.print(Text(f"{sign} {_sentence(change)}", style))


def _sentence(change: visualization.Change) -> str:
    """Describe a change in one line; control characters in names are escaped."""
    subject = visualization.short_name(change.urn)
    if change.part in (visualization.ChangedPart.ENTITY, visualization.ChangedPart.ASPECT):
        subject = f"{change.urn.split(':')[2]} {subject}" if change.urn.startswith("urn:li:") else subject
    if change.part is visualization.ChangedPart.COLUMN_EDGE:
        ends = change.what[:2], change.what[2:]
        columns = (f"{visualization.short_name(dataset)}.{path or '*'}" for dataset, path in ends)
        subject = f"{' to '.join(columns)} by {subject}"
    elif change.part is visualization.ChangedPart.SCHEMA:
        subject = f"{subject}.{change.what[1]}"
    elif change.part is visualization.ChangedPart.ASPECT:
        subject = f"{change.what[0]} of {subject}: {change.what[1]}"
    elif change.what:
        subject = " ".join([subject, *(visualization.short_name(word) for word in change.what)])
    values = [_value(value) for value in (change.before, change.after) if value is not None and value is not True]
    return visualization.harmless(subject) + (f": {' → '.join(values)}" if values else "")


def _value(value: Any) -> str:
    text = visualization.short_name(str(value))
    return visualization.harmless(text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…")
