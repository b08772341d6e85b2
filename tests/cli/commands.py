"""Commands run as a person would, in this process."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from airflow_provider_spark_datahub.cli import app

EVENTS = Path(__file__).parents[1] / "data" / "corpus" / "events"
JOB = EVENTS / "a_csv_join_agg.ndjson"


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
