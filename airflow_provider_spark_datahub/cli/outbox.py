"""``spark-datahub pending`` and ``emit``: what waits in the outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, say

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import Outbox

_OutboxOption = Annotated[str | None, typer.Option(help="The outbox; default: that of Airflow's configuration.")]


def pending(
    outbox: _OutboxOption = None,
) -> None:
    """List the lineage that waits for its delivery. Exit status 1 where there is any."""
    entries = list(_open(outbox).entries())
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
    from airflow_provider_spark_datahub.delivery.drain import Drain, DrainLimits
    from airflow_provider_spark_datahub.hooks.datahub import open_sink

    drained = Drain(_open(outbox), open_sink, DrainLimits(entry_seconds=seconds), connection).run()
    for problem in drained.problems:
        say(problem)
    say(drained.sentence)
    if drained.waiting or drained.elsewhere:
        raise typer.Exit(EXIT_INCOMPLETE)


def _open(location: str | None) -> Outbox:
    from airflow_provider_spark_datahub.hooks.outbox import open_outbox
    from airflow_provider_spark_datahub.operators.options import outbox_limits, resolve_outbox_location

    return open_outbox(resolve_outbox_location(location), outbox_limits())
