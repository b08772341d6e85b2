"""Measure the figures of docs/performance.md anew and write them into the page, with date and
machine.

    make figures                        # all of them: half an hour on two cores that do nothing
    else make figures ONLY=conversion.py     # those whose command contains the text

Each figure is the output of the command in the first line of its ``console`` block.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
_BLOCK = re.compile(
    r"^```console\n\$ (?P<command>python .*)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE
)


def measured(command: str) -> str:
    """Return what a command prints, below the day and the load it ran at."""
    print(command, flush=True)
    _, *arguments = shlex.split(command)
    load = os.getloadavg()[0]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True
    )
    return f"# {datetime.now(UTC):%Y-%m-%d}, load {load:.1f}, {_machine()}\n{run.stdout.decode().rstrip()}\n"


def _machine() -> str:
    facts = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    )
    model = re.search(r"^model name\s*: (.*)$", facts, re.MULTILINE)
    name = model[1].strip() if model else platform.processor()
    return f"{os.cpu_count()} cores ({name}), Python {platform.python_version()}"


def main(only: str) -> None:
    """Replace the output of each command that contains a text."""
    page = PAGE.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(page):
        if only in block["command"]:
            new = f"```console\n$ {block['command']}\n{measured(block['command'])}```"
            # The page is read again: somebody may have edited it meanwhile.
            PAGE.write_text(
                PAGE.read_text(encoding="utf-8").replace(block[0], new), encoding="utf-8"
            )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
