"""``spark-datahub doctor``: whether everything that lineage needs is there, and what to do where it is not."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE
from airflow_provider_spark_datahub.delivery.finding import Finding, Verdict

_MARKS = {Verdict.GOOD: ("✓", "ok"), Verdict.WARNING: ("!", "! "), Verdict.BAD: ("✗", "NO")}
_COLOURS = {Verdict.GOOD: typer.colors.GREEN, Verdict.WARNING: typer.colors.YELLOW, Verdict.BAD: typer.colors.RED}


def doctor(
    connection: Annotated[
        str | None, typer.Option(help="The Airflow connection to check; default: that of Airflow's configuration.")
    ] = None,
    outbox: Annotated[
        str | None, typer.Option(help="The outbox to check; default: that of Airflow's configuration.")
    ] = None,
    spark_binary: Annotated[str, typer.Option("--spark-submit", help="The one that tasks call.")] = "spark-submit",
    write: Annotated[
        bool, typer.Option("--write", help="Deliver one harmless proposal, too: a DataFlow marked as removed.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Time for each thing that is asked.", min=0.1)] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")] = False,
) -> None:
    """Check what lineage needs, where tasks run: versions, configuration, plugin, connection, outbox, Spark, jar.

    Exit status: 0 where lineage can work (warnings included), 1 where something keeps it from working, 2 for wrong
    options.
    """
    from airflow_provider_spark_datahub.cli.checks import Patient, check_all

    found = []
    for finding in check_all(Patient(connection, outbox, spark_binary, seconds, write=write)):
        found.append(finding)
        if not as_json:
            _tell(finding)
    if as_json:
        bad = any(finding.verdict is Verdict.BAD for finding in found)
        typer.echo(json.dumps({"good": not bad, "findings": [finding.to_obj() for finding in found]}, indent=2))
    if any(finding.verdict is Verdict.BAD for finding in found):
        raise typer.Exit(EXIT_INCOMPLETE)


def _tell(finding: Finding) -> None:
    fancy = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    mark = _MARKS[finding.verdict][0 if fancy else 1]
    typer.echo(f"{typer.style(mark, fg=_COLOURS[finding.verdict])} {finding.subject}: {finding.words}")
    if finding.advice:
        typer.echo(f"    {'→' if fancy else '->'} {finding.advice}")
