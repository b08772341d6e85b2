"""The command ``spark-datahub``: one module per command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.cli.backfill import backfill as _backfill
from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE
from airflow_provider_spark_datahub.cli.convert import convert as _convert
from airflow_provider_spark_datahub.cli.diff import diff as _diff
from airflow_provider_spark_datahub.cli.doctor import doctor as _doctor
from airflow_provider_spark_datahub.cli.outbox import emit, pending, requeue
from airflow_provider_spark_datahub.cli.show import show as _show

app = typer.Typer(
    name="spark-datahub",
    help="Deliver the lineage of Spark jobs to DataHub, from their OpenLineage events.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _command in (_convert, _show, _diff, _doctor, _backfill, pending, emit, requeue):
    app.command()(_command)


def app_main() -> None:
    """Run the command; the entry point of the console script."""
    try:
        app()
    except BrokenPipeError:
        # The reader of the pipe is gone. Nothing may be written to it any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_INCOMPLETE)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    # The hooks of object stores look up their connections themselves. As in Airflow's own commands, this lets the task
    # SDK (since Airflow 3.1) read the database, too.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    if version:
        typer.echo(__version__)
        raise typer.Exit
