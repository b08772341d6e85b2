"""CPU seconds (user and system) of starting commands: the least of several runs, since other work on the machine adds.

Run it: ``python benchmarks/command_start.py``. The first line is Python alone, the second Python with typer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

RUNS = 7
MAIN = "from airflow_provider_spark_datahub.cli import app_main; app_main()"


def cpu_seconds(*arguments: str) -> float:
    """Return the CPU seconds of one call of Python."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-c", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print a line for each call."""
    with tempfile.TemporaryDirectory() as outbox:
        calls = {
            "(python)": ["pass"],
            "(python, typer)": ["import typer"],
            "--version": [MAIN, "--version"],
            "--help": [MAIN, "--help"],
            "show --help": [MAIN, "show", "--help"],
            "pending --outbox FOLDER": [MAIN, "pending", "--outbox", outbox],
        }
        for name, arguments in calls.items():
            print(f"{min(cpu_seconds(*arguments) for _ in range(RUNS)):.2f} s  {name}")


if __name__ == "__main__":
    main()
