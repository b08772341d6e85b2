"""``spark-datahub pending`` and ``emit``: what waits in the outbox."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, say

_OutboxOption = Annotated[Path | None, typer.Option(help="The outbox; default: that of Airflow's configuration.")]


def pending(
    outbox: _OutboxOption = None,
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


def emit(
    outbox: _OutboxOption = None,
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
        say(problem)
    say(f"{drained.delivered} proposals delivered, {drained.rejected} rejected, {drained.pending} pending")
    if drained.pending:
        raise typer.Exit(EXIT_INCOMPLETE)


def _configured_outbox() -> Path:
    from airflow_provider_spark_datahub.operators.options import outbox_location

    return outbox_location()
