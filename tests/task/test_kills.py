"""An attempt that is killed at any moment of its end loses nothing; a drain delivers the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
STRIDE = int(os.environ.get("KILL_STRIDE", "2"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_attempts_lose_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.task.kills", str(tmp_path), str(STRIDE)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(kills))  # noqa: T201 (the figures, with pytest -s)
    assert kills["lost"] == []
    assert (kills["corrupt"], kills["left"]) == (0, 0)
    assert kills["killed"]["finish"] >= 60 / STRIDE
    assert kills["killed"]["drain"] >= 30 / STRIDE
    assert kills["repeated"] > 0, "some must have been killed after they had delivered"
