"""``spark-datahub show``: proposals or events as a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, opened_output, say
from airflow_provider_spark_datahub.cli.sources import read_sources

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.visualization import Graph


class Picture(StrEnum):
    """How a graph is shown."""

    TERMINAL = "terminal"
    HTML = "html"
    SVG = "svg"
    MERMAID = "mermaid"
    JSON = "json"


_BY_SUFFIX = {".html": Picture.HTML, ".htm": Picture.HTML, ".svg": Picture.SVG, ".mmd": Picture.MERMAID}
_BY_SUFFIX |= {".mermaid": Picture.MERMAID, ".json": Picture.JSON}


def show(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Files of proposals, of OpenLineage events, or entries of the outbox; - for standard input."
        ),
    ],
    format_: Annotated[
        Picture | None,
        typer.Option("--format", help="Default: what the name of the output says, else terminal."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here, not to standard output.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    columns: Annotated[bool, typer.Option(help="Show column lineage, too (terminal).")] = True,
) -> None:
    """Show the run tree and the lineage that proposals or events tell: in the terminal, as a page, or as a drawing.

    Exit status: 0; 1 where something could not be read or converted (the rest is shown), or the output not written; 2
    for wrong options.
    """
    from airflow_provider_spark_datahub.visualization import build_graph

    read = read_sources(sources, failed=EXIT_INCOMPLETE)
    graph = build_graph(read.proposals)
    by_name = _BY_SUFFIX.get(output.suffix.lower()) if output else None
    picture = Picture.JSON if json_ else format_ or by_name or Picture.TERMINAL
    with opened_output(output, failed=EXIT_INCOMPLETE) as file:
        if picture is Picture.TERMINAL:
            _draw(graph, file, columns=columns)
        else:
            file.write(_text(replace(graph, problems=(*read.problems, *graph.problems)), picture))
    for problem in read.problems:
        say(problem)
    if read.problems:
        raise typer.Exit(EXIT_INCOMPLETE)


def _draw(graph: Graph, file: TextIO, *, columns: bool) -> None:
    from rich.console import Console

    from airflow_provider_spark_datahub.visualization import render_terminal

    render_terminal(graph, Console(file=file), columns=columns)


def _text(graph: Graph, picture: Picture) -> str:
    from airflow_provider_spark_datahub.visualization import (
        MOST_LINKS,
        build_network,
        render_json,
        render_mermaid,
        render_page,
        render_svg,
    )

    if picture is Picture.JSON:
        return json.dumps(render_json(graph), indent=2) + "\n"
    if picture is Picture.HTML:
        return render_page(graph)
    lineage = build_network(graph)
    if picture is Picture.SVG:
        return render_svg(lineage)
    if len(lineage.links) > MOST_LINKS:
        say(f"{len(lineage.links)} edges: Mermaid draws {MOST_LINKS} at most; take --format svg or html")
    return render_mermaid(lineage)
