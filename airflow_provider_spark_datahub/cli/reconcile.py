"""``spark-datahub reconcile``: which datasets of DataHub are tables that our lineage names otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_provider_spark_datahub import delivery, visualization
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.cli.histories import datahub_settings, say_unread
from airflow_provider_spark_datahub.cli.outbox import OutboxOption, opened_outbox
from airflow_provider_spark_datahub.cli.sources import read_sources
from airflow_provider_spark_datahub.conversion import DailyTable, Fingerprint, LineageSettings
from airflow_provider_spark_datahub.delivery import Reconciliation, sinks
from airflow_provider_spark_datahub.delivery.outbox import Histories
from airflow_provider_spark_datahub.foundation.text import counted, printable


def reconcile(
    lineage: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files of proposals or of OpenLineage events, also .gz and .zst; - for standard input; default: what "
            "the outbox knows of all tasks.",
            show_default=False,
        ),
    ] = None,
    outbox: OutboxOption = None,
    connection: Annotated[str, typer.Option(help="Airflow connection of type datahub-rest.")] = "datahub_rest_default",
    config: console.ConfigOption = None,
    set_: console.SetOption = None,
    output: console.OutputOption = None,
) -> None:
    """Find the datasets of DataHub that are tables which our lineage names otherwise: in other case, with an instance,
    by their path, or under another catalogue's platform.

    Writes the setting dataset_urns as JSON, to review, commit and give to the tasks, and path_specs for the tables
    that tasks write to another path in each run. Nothing is guessed: a table with several candidates is listed and
    left out.

    Exit status: 0; 1 if DataHub or a file cannot be read; 2 for wrong options.
    """
    settings, _ = console.read_settings(config, set_ or [])
    ours, daily = _our_datasets(lineage, outbox, settings)
    server = datahub_settings(connection)
    try:
        found = delivery.reconcile(ours, sinks.read_datasets(server), settings, daily)
    except delivery.SinkSettingsError as error:
        console.fail(str(error), console.EXIT_INCOMPLETE)
    for line in _lines(found):
        console.say(printable(line))
    console.say(f"{counted(len(ours), 'dataset')}: {len(found.same)} named otherwise in DataHub, "
                f"{len(found.ambiguous)} ambiguous, {len(found.ghosts)} known by lineage alone, "
                f"{counted(len(found.daily), 'table')} with another path in each run")  # fmt: skip
    with console.open_output(output, failed=console.EXIT_INCOMPLETE) as file:
        file.write(json.dumps(_proposed(found, settings), indent=2) + "\n")


def _our_datasets(
    lineage: list[Path] | None, outbox: str | None, settings: LineageSettings
) -> tuple[dict[str, None], list[DailyTable]]:
    """Return the URNs of our lineage, and the tables that tasks write to another path in each run."""
    ours: dict[str, None] = {}
    records: list[Fingerprint] = []
    if lineage:
        proposals, problems, _ = read_sources(lineage, failed=console.EXIT_INCOMPLETE, settings=settings)
        for problem in problems:
            console.say(problem)
        jobs = visualization.build_graph(proposals).jobs
        ours = dict.fromkeys(urn for job in jobs for urn in (*job.inputs, *job.outputs))
    if outbox or not lineage:
        with opened_outbox(outbox, or_folder=True) as opened:
            histories = Histories(opened.storage)
            records = list(histories.all())
        say_unread(histories)
    ours |= dict.fromkeys(urn for record in records for urn in record.datasets)
    return ours, list(DailyTable.of_tasks(records))


def _lines(found: Reconciliation) -> Iterator[str]:
    for urn, others in found.ambiguous.items():
        yield f"{urn} may be any of {', '.join(others)}: left out"
    for table, problem in found.daily:
        but = f", but {problem}: left out" if problem else ""
        yield f"{counted(len(table.urns), 'dataset')} such as {table.urns[0]}: {table.setting}{but}"
    for urn, count in found.similar.items():
        yield f"{count} datasets may be one: they differ from {urn} only in digits, dates and UUIDs"
    for urn in found.ghosts:
        yield f"{urn} is known by lineage alone"


def _proposed(found: Reconciliation, settings: LineageSettings) -> dict[str, Any]:
    """Return the settings that name datasets as DataHub does, with what such settings already say."""
    same = {urn: found.same.get(other, other) for urn, other in settings.dataset_urns.items()} | found.same
    specs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for spec in settings.path_specs:
        parts = {name: getattr(spec, name) for name in ("path_spec_list", "env", "platform_instance")}
        of_platform = specs.setdefault(spec.platform, {})
        of_platform[spec.alias or f"spec{len(of_platform)}"] = {name: part for name, part in parts.items() if part}
    for table, problem in found.daily:
        if not problem:
            of_platform = specs.setdefault(table.platform, {})
            of_platform[f"spec{len(of_platform)}"] = table.spec
    return {"dataset_urns": dict(sorted(same.items()))} | ({"path_specs": specs} if specs else {})
