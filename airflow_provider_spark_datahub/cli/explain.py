"""``spark-datahub explain``: which queries gave the edges of a dataset or a column, or why there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, EXIT_USAGE, fail, read_settings, say, show_line
from airflow_provider_spark_datahub.cli.sources import read_sources
from airflow_provider_spark_datahub.conversion import Diagnostics


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
            metavar="DATASET[.COLUMN]", help="Its URN, its name, or the end of its name, such as orders or orders.id."
        ),
    ],
    config: Annotated[Path | None, typer.Option(help="Settings of the converter, as YAML or JSON.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting of the converter; repeatable.")
    ] = None,
    event_log: Annotated[Path | None, typer.Option(help="Folder of Spark's own event logs.")] = None,
    exit_code: Annotated[
        int | None, typer.Option(help="Exit code of spark-submit, which decides the run's result.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")] = False,
) -> None:
    """Explain a dataset or a column: which events, queries and statements lead to it, or why there is no edge.

    Exit status: 0; 1 if something could not be read or converted (the rest is explained); 2 for wrong options, or if
    nothing has that name.
    """
    settings, _ = read_settings(config, set_ or [])
    # Schemas name the columns that have no lineage.
    settings = replace(settings, capture_evidence=True, materialize_dataset=True, include_schema_metadata=True)
    proposals, problems, diagnostics = read_sources(
        [run], failed=EXIT_INCOMPLETE, settings=settings, event_log=event_log, exit_code=exit_code
    )
    graph = visualization.build_graph(proposals)
    for problem in (*problems, *graph.problems):
        say(problem)
    if not graph.read and not problems:
        say(f"Nothing to explain: {graph.why_nothing()}")
        return
    explanation = _explanation(graph, name, diagnostics)
    if json_:
        typer.echo(json.dumps(explanation.document(), indent=2))
    else:
        for line in explanation.lines():
            show_line(line)
    if problems:
        raise typer.Exit(EXIT_INCOMPLETE)


def _explanation(graph: visualization.Graph, name: str, diagnostics: Diagnostics | None) -> visualization.Explanation:
    try:
        return visualization.Explanation.of(graph, name, diagnostics)
    except visualization.UnknownNameError as error:
        fail(str(error), EXIT_USAGE)
