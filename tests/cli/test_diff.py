"""Differences from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import JOB, run

RUN = "01a1fd1b-94e9-7970-a79b-dcaa0afe2356"


@pytest.fixture
def before(tmp_path: Path) -> Path:
    out = tmp_path / "before.jsonl"
    run("convert", JOB, "--exit-code", 0, "-o", out)
    return out


@pytest.fixture
def after(tmp_path: Path) -> Path:
    out = tmp_path / "after.jsonl"
    run("convert", JOB, "--exit-code", 1, "--set", "datasets=none", "--format", "datahub", "-o", out)
    return out


def test_what_is_the_same_needs_no_words(before: Path) -> None:
    result = run("diff", before, JOB, "--exit-code")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_a_change_is_a_line_with_its_sign(before: Path, after: Path) -> None:
    result = run("diff", before, after)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == ["Runs: 1 changed", f"~ run {RUN} result: SUCCESS → FAILURE"]


def test_the_exit_status_shows_a_difference_on_request(before: Path, after: Path) -> None:
    assert run("diff", before, after, "--exit-code").exit_code == 1


def test_json(before: Path, after: Path, tmp_path: Path) -> None:
    out = tmp_path / "diff.json"
    assert run("diff", before, after, "--json", "-o", out).stdout == ""
    found = json.loads(out.read_text())
    assert (found["same"], found["problems"]) == (False, [])
    assert found["changes"][0] == {
        "part": "run",
        "change": "changed",
        "urn": f"urn:li:dataProcessInstance:{RUN}",
        "what": ["result"],
        "before": "SUCCESS",
        "after": "FAILURE",
    }
    assert json.loads(run("diff", before, before, "--json").stdout) == {"same": True, "changes": [], "problems": []}


def test_trouble_has_its_own_status(before: Path, tmp_path: Path) -> None:
    assert run("diff", before, tmp_path / "missing").exit_code == 2
    torn = tmp_path / "torn"
    torn.write_text(before.read_text() + "{")
    result = run("diff", before, torn, "--exit-code")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "not valid JSON" in result.stderr
    assert run("diff", "-", "-").exit_code == 2


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    urn = "urn:li:dataset:(urn:li:dataPlatform:hive,\x1b[31m\u202ex,PROD)"
    proposal = {"entityType": "dataset", "entityUrn": urn, "changeType": "UPSERT", "aspectName": "status"}
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text("")
    after.write_text(json.dumps({**proposal, "aspect": {"json": {"removed": False}}}))
    text = run("diff", before, after).stdout
    assert "\\x1b[31m\\u202ex" in text
    assert not {"\x1b", "\u202e"} & set(text)
