"""Calls with wrong options or unusable files: the exit status, and what standard error says."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cases import cases
from tests.cli.commands import JOB, run

FILES = {
    "list.yaml": "- env\n",
    "torn.yaml": "{env: [\n",
    "other.ndjson": '{"no": "event"}\n',
    "text.ndjson": "no json\n",
    "cut.ndjson": '{"eventType": "STA',
    "empty.ndjson": "",
    "array.json": "[1, 2",
    "numbers.json": "[1, 2]",
    "null.bin": "\x00",
}


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "job.ndjson").symlink_to(JOB)
    (tmp_path / "gap.ndjson.gz").symlink_to(JOB.parents[2] / "hard_jobs" / "events" / "ddl-3.5.9.ndjson.gz")
    (tmp_path / "outbox").mkdir()
    monkeypatch.chdir(tmp_path)


@cases("cli")
def test_a_call(command: str, status: int, said: str) -> None:
    result = run(*shlex.split(command))
    assert (result.exit_code, said in result.stderr) == (status, True), result.stderr
    assert not result.stdout or status != 2
    assert "Traceback" not in result.stderr
