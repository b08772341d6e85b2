"""``spark-datahub show``: proposals or events as a terminal view, page, drawing or JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, EXIT_USAGE, fail, open_output, say
from airflow_provider_spark_datahub.cli.sources import read_sources
from airflow_provider_spark_datahub.conversion import LineageSettings


class _View(StrEnum):
    TERMINAL = "terminal"
    HTML = "html"
    SVG = "svg"
    MERMAID = "mermaid"
    JSON = "json"


_BY_SUFFIX = {".html": _View.HTML, ".htm": _View.HTML, ".svg": _View.SVG, ".mmd": _View.MERMAID}
_BY_SUFFIX |= {".mermaid": _View.MERMAID, ".json": _View.JSON, ".txt": _View.TERMINAL, "": _View.TERMINAL}


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
        _View | None, typer.Option("--format", help="Default: by the suffix of the output, else terminal.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here, not to standard output.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    columns: Annotated[
        bool | None, typer.Option(help="Show column lineage, too; default: yes in the terminal, no in an SVG.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="TZ", help="Show times in this zone (terminal, html); local; default: UTC.")
    ] = None,
) -> None:
    """Show the run tree and the lineage of proposals or events: in the terminal, as a page, or as a drawing.

    Exit status: 0; 1 if something could not be read or converted (the rest is shown), or if the output could not
    be written; 2 for wrong options.
    """
    zone = _time_zone(timezone)
    view = _View.JSON if json_ else format_ or _view_of(output)
    settings = LineageSettings(capture_evidence=True)
    proposals, problems, _ = read_sources(sources, failed=EXIT_INCOMPLETE, settings=settings)
    graph = visualization.build_graph(proposals)
    with open_output(output, failed=EXIT_INCOMPLETE) as file:
        if view is _View.TERMINAL:
            from rich.console import Console

            visualization.render_terminal(graph, Console(file=file), columns=columns is not False, zone=zone)
        else:
            graph = replace(graph, problems=(*problems, *graph.problems))
            file.write(_text(graph, view, zone, columns=bool(columns)))
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(EXIT_INCOMPLETE)


def _view_of(output: Path | None) -> _View:
    view = _BY_SUFFIX.get(output.suffix.lower() if output else "")
    if view is None:
        known = ", ".join(suffix for suffix in _BY_SUFFIX if suffix)
        fail(f"--output {output}: no view has this suffix, want one of {known}, or name it with --format", EXIT_USAGE)
    return view


def _time_zone(name: str | None) -> tzinfo:
    """Return a time zone by its name (``Europe/Berlin``), ``local`` for that of this machine, UTC by default."""
    if name is None:
        return UTC
    from pendulum.tz import Timezone, get_local_timezone

    try:
        return get_local_timezone() if name == "local" else Timezone(name)
    except ValueError:
        fail(f"--timezone {name}: unknown time zone, want one such as Europe/Berlin, UTC or local", EXIT_USAGE)


def _text(graph: visualization.Graph, view: _View, zone: tzinfo, *, columns: bool) -> str:
    if view is _View.JSON:
        return json.dumps(visualization.render_json(graph), indent=2) + "\n"
    if view is _View.HTML:
        return visualization.render_page(graph, zone)
    if view is _View.SVG:
        return visualization.render_svg(visualization.build_network(graph, unfolded=columns))
    network = visualization.build_network(graph)
    if len(network.links) > visualization.MOST_LINKS:
        say(f"{len(network.links)} edges: Mermaid draws {visualization.MOST_LINKS} at most; use --format svg or html")
    return visualization.render_mermaid(network)
