"""``spark-datahub reconcile``: which datasets of DataHub are tables that our lineage names otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub import delivery, hooks, visualization
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.cli.sources import read_sources
from airflow_provider_spark_datahub.delivery import sinks
from airflow_provider_spark_datahub.printable import counted, printable


def reconcile(
    lineage: Annotated[
        list[Path] | None,
        typer.Argument(help="Files of proposals or of OpenLineage events, also .gz and .zst.", show_default=False),
    ] = None,
    connection: Annotated[str, typer.Option(help="Airflow connection of type datahub-rest.")] = "datahub_rest_default",
    config: console.ConfigOption = None,
    set_: console.SetOption = None,
    output: console.OutputOption = None,
) -> None:
    """Find the datasets of DataHub that are tables which our lineage names otherwise: in other case, with an instance,
    by their path, or under another catalogue's platform.

    Writes the setting dataset_urns as JSON, to review, commit and give to the tasks. Nothing is guessed: a table with
    several candidates is listed and left out.

    Exit status: 0; 1 if DataHub or a file cannot be read; 2 for wrong options.
    """
    settings, _ = console.read_settings(config, set_ or [])
    proposals, problems, _ = read_sources(lineage, failed=console.EXIT_INCOMPLETE, settings=settings)
    for problem in problems:
        console.say(problem)
    jobs = visualization.build_graph(proposals).jobs
    ours = dict.fromkeys(urn for job in jobs for urn in (*job.inputs, *job.outputs))
    with console.airflow_logs_to_stderr():
        sink, problem_of_sink = hooks.open_sink(connection)
    if not isinstance(sink, sinks.RestSink):
        console.fail(problem_of_sink or f"connection {connection!r} is not of type datahub-rest")
    try:
        found = delivery.reconcile(ours, sink.datasets(), settings)
    except delivery.SinkSettingsError as error:
        console.fail(str(error), console.EXIT_INCOMPLETE)
    for urn, others in found.ambiguous.items():
        console.say(printable(f"{urn} may be any of {', '.join(others)}: left out"))
    for urn in found.ghosts:
        console.say(printable(f"{urn} is known by lineage alone"))
    console.say(f"{counted(len(ours), 'dataset')}: {len(found.same)} named otherwise in DataHub, "
                f"{len(found.ambiguous)} ambiguous, {len(found.ghosts)} known by lineage alone")  # fmt: skip
    with console.open_output(output, failed=console.EXIT_INCOMPLETE) as file:
        file.write(json.dumps({"dataset_urns": dict(sorted(found.same.items()))}, indent=2) + "\n")
