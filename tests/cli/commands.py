"""Commands run as a person would, in this process or in one of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner, Result

from airflow_provider_spark_datahub.cli import app

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "tests" / "data" / "corpus" / "events"
JOB = EVENTS / "a_csv_join_agg.ndjson"
PROGRAM = "from airflow_provider_spark_datahub.cli import app_main; app_main()"


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def run_apart(
    *arguments: object,
    flags: tuple[str, ...] = (),
    program: str = PROGRAM,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, or another program of Python, with nothing on its
    standard input.
    """
    return subprocess.run(
        [sys.executable, *flags, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
