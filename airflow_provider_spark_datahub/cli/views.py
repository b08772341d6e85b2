"""``spark-datahub show`` and ``explain``: proposals or events as a view, or an explanation of one
dataset or column.

Tests: ``tests/cli/test_show.py`` and ``tests/cli/test_explain.py``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.cli.convert import read_sources
from airflow_provider_spark_datahub.cli.outbox import OutboxOption, opened_outbox
from airflow_provider_spark_datahub.conversion import LineageSettings, Proposal
from airflow_provider_spark_datahub.delivery.outbox import OutboxRecords

_SETTINGS = LineageSettings(capture_evidence=True)


class _View(StrEnum):
    TERMINAL = "terminal"
    HTML = "html"
    SVG = "svg"
    MERMAID = "mermaid"
    JSON = "json"


_BY_SUFFIX = {".html": _View.HTML, ".htm": _View.HTML, ".svg": _View.SVG, ".mmd": _View.MERMAID}
_BY_SUFFIX |= {
    ".mermaid": _View.MERMAID,
    ".json": _View.JSON,
    ".txt": _View.TERMINAL,
    "": _View.TERMINAL,
}


def show(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files of proposals, of OpenLineage events, or outbox entries, also .gz and .zst; - or a pipe for "
            "standard input.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        _View | None,
        typer.Option("--format", help="Default: by the suffix of the output, else terminal."),
    ] = None,
    dag: Annotated[
        str | None,
        typer.Option(help="In place of files: the newest run of this DAG in the outbox."),
    ] = None,
    run: Annotated[str | None, typer.Option(help="With --dag: this DAG run.")] = None,
    outbox: OutboxOption = None,
    output: console.OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    columns: Annotated[
        bool | None,
        typer.Option(help="Show column lineage, too; default: yes in the terminal, no in an SVG."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="TZ",
            help="Time zone of all times (terminal, html), such as Europe/Berlin, or local; default: UTC.",
        ),
    ] = None,
) -> None:
    """Show the run tree and the lineage of proposals or events: in the terminal, as a page, or as a
    drawing.

    Exit status: 0; 1 if something could not be read or converted (the rest is shown), or if the
    output could not be written; 2 for wrong options.
    """
    zone = _time_zone(timezone)
    view = _View.JSON if as_json else format_ or _view_of(output)
    proposals, problems = (
        (_of_run(outbox, dag, run), []) if dag else read_sources(sources, settings=_SETTINGS)[:2]
    )
    graph = visualization.Graph.of(proposals)
    with console.open_output(output) as file:
        if view is _View.TERMINAL:
            from rich.console import Console

            visualization.render_terminal(
                graph, Console(file=file), columns=columns is not False, zone=zone
            )
        else:
            graph = replace(graph, problems=(*problems, *graph.problems))
            file.write(_text(graph, view, zone, columns=bool(columns)))
    for problem in problems:
        console.say(problem)
    if problems:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def _of_run(outbox: str | None, dag: str, run: str | None) -> list[Proposal]:
    """Return what an outbox has of a DAG run, or of the newest one."""
    with opened_outbox(outbox, or_folder=True) as opened:
        records = OutboxRecords(opened)
        keys = [
            record.key for record in records.newest(None, {dag}) if run in (None, record.key.run_id)
        ]
        of_run = records.of(key for key in keys if key.run_id == keys[0].run_id)
    if not keys:
        console.fail(f"the outbox has no lineage of {dag} {run or ''}")
    return [proposal for record in of_run for proposal in record.proposals]


def _view_of(output: Path | None) -> _View:
    view = _BY_SUFFIX.get(output.suffix.lower() if output else "")
    if view is None:
        suffixes = ", ".join(suffix for suffix in _BY_SUFFIX if suffix)
        console.fail(
            f"--output {output}: no view has this suffix, want one of {suffixes}, or name it with --format"
        )
    return view


def _time_zone(name: str | None) -> tzinfo:
    """Return a time zone by its name (``Europe/Berlin``), ``local`` for that of this machine, UTC
    by default.
    """
    if name is None:
        return UTC
    from pendulum.tz import Timezone, get_local_timezone

    try:
        return get_local_timezone() if name == "local" else Timezone(name)
    except ValueError:
        console.fail(
            f"--timezone {name}: unknown time zone, want one such as Europe/Berlin, UTC or local"
        )


def _text(graph: visualization.Graph, view: _View, zone: tzinfo, *, columns: bool) -> str:
    if view is _View.JSON:
        return json.dumps(visualization.render_json(graph), indent=2) + "\n"
    if view is _View.HTML:
        return visualization.render_page(graph, zone)
    if view is _View.SVG:
        return visualization.render_svg(visualization.Network.of(graph, unfolded=columns))
    network = visualization.Network.of(graph)
    if len(network.links) > visualization.MOST_LINKS:
        console.say(
            f"{len(network.links)} edges: Mermaid draws {visualization.MOST_LINKS} at most; use --format svg or html"
        )
    return visualization.render_mermaid(network)


def explain(
    run: Annotated[
        Path,
        typer.Argument(
            help="The run: a file or folder of OpenLineage events, of proposals, or an outbox entry, also .gz and "
            ".zst; - for standard input."
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="DATASET[.COLUMN]",
            help="Its URN, its name, or the end of its name, such as orders or orders.id.",
        ),
    ],
    config: console.ConfigOption = None,
    set_: console.SetOption = None,
    event_log: Annotated[
        Path | None, typer.Option(exists=True, help="Folder of Spark's own event logs.")
    ] = None,
    exit_code: console.ExitCodeOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Explain a dataset or a column: which events, queries and statements lead to it, or why no
    edge does.

    Exit status: 0; 1 if something could not be read or converted (the rest is explained); 2 for
    wrong options, or if nothing has that name.
    """
    settings, _ = console.read_settings(config, set_ or [])
    # Schemas name the columns that have no lineage.
    settings = replace(settings, capture_evidence=True, datasets="schemas")
    proposals, problems, diagnostics = read_sources(
        [run], settings=settings, event_log=event_log, exit_code=exit_code
    )
    graph = visualization.Graph.of(proposals)
    for problem in (*problems, *graph.problems):
        console.say(problem)
    if not graph.read and not problems:
        console.say(f"Nothing to explain: {graph.why_nothing()}")
        return
    try:
        explanation = visualization.Explanation.of(graph, name, diagnostics)
    except visualization.UnknownNameError as error:
        console.fail(str(error))
    if as_json:
        console.show_json(explanation.document())
    else:
        for line in explanation.lines():
            console.show_line(line)
    if problems:
        raise typer.Exit(console.EXIT_INCOMPLETE)
