"""The command ``spark-datahub`` as a whole: its subcommands, its version, its behaviour in a pipe."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.cli.backfill import backfill
from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE
from airflow_provider_spark_datahub.cli.convert import convert
from airflow_provider_spark_datahub.cli.diff import diff
from airflow_provider_spark_datahub.cli.doctor import doctor
from airflow_provider_spark_datahub.cli.outbox import emit, pending, requeue
from airflow_provider_spark_datahub.cli.show import show

app = typer.Typer(
    name="spark-datahub",
    help="Lineage of Spark jobs, from OpenLineage events to DataHub.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (convert, show, diff, doctor, backfill, pending, emit, requeue):
    app.command()(command)


def app_main() -> None:
    """The console script's entry point."""
    try:
        app()
    except BrokenPipeError:
        # The reader of the pipe has seen enough; nothing may be written to it any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_INCOMPLETE)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
