"""Commands run as a person would, in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from airflow_provider_spark_datahub.cli import app


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
