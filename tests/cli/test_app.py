"""The command as a whole: its documentation, its completion, its behaviour in a pipe."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from airflow_provider_spark_datahub.cli import _load_command, app
from tests.cases import cases, tables
from tests.cli.commands import JOB, PROGRAM, ROOT, run, run_apart

DOCUMENT = (ROOT / "docs" / "command-line.md").read_text()
GROUP = get_command(app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = {name: _load_command(name) for name in GROUP.commands}

each_command = pytest.mark.parametrize("name", sorted(COMMANDS))


def section(name: str) -> str:
    """Return the section of the document about a command."""
    match = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert match, f"docs/command-line.md has no section {name}"
    return match[1]


def options(name: str) -> set[str]:
    params = [param for param in COMMANDS[name].params if param.param_type_name == "option"]
    return {opt for param in params for opt in (*param.opts, *param.secondary_opts)}


@each_command
def test_examples_use_options_that_exist(name: str) -> None:
    for block in re.findall(r"^```bash$(.*?)^```$", section(name), re.MULTILINE | re.DOTALL):
        for called, rest in re.findall(r"spark-datahub (\w+)([^|&#\n]*)", block):
            assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", rest)) <= options(called), (
                f"{called}{rest}"
            )


def test_the_list_of_commands_imports_none_of_them_and_cuts_no_line() -> None:
    done = run_apart("--help", flags=("-X", "importtime"))
    listed = done.stdout.split("Commands:")[1].split("\n")
    assert {line.split()[0] for line in listed if line.strip()} == set(COMMANDS)
    assert not any(line.endswith("...") for line in listed)
    assert not re.search(r"spark_datahub\.(cli\.|conversion|delivery|hooks)|\brich\b", done.stderr)


@each_command
def test_its_exit_statuses_are_documented(name: str) -> None:
    assert "Exit status: 0" in (COMMANDS[name].help or "")


def test_every_section_is_of_a_command() -> None:
    sections = set(re.findall(r"^## (\w+)$", DOCUMENT, re.MULTILINE))
    assert sections - {"Completion", "JSON"} == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["show", JOB], ["show", JOB, "--json"], ["convert", JOB]])
def test_a_reader_that_goes_away_causes_no_crash(arguments: list[object]) -> None:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    assert process.returncode == 1


@pytest.mark.slow
@cases("cli")
def test_completion(words: str, position: int, expected: list[str]) -> None:
    environment = {
        "_SPARK_DATAHUB_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(position),
    }
    program = "from airflow_provider_spark_datahub.cli import app; app(prog_name='spark-datahub')"
    completed = run_apart(program=program, env=environment).stdout
    assert set(completed.split()) == set(expected or COMMANDS)


# -- calls with wrong options or unusable files


@pytest.fixture
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in tables("cli")["files"][1:]:
        (tmp_path / name).write_text(content)
    (tmp_path / "job.ndjson").symlink_to(JOB)
    (tmp_path / "gap.ndjson.gz").symlink_to(
        JOB.parents[2] / "hard_jobs" / "events" / "ddl-3.5.9.ndjson.gz"
    )
    (tmp_path / "outbox").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_workplace")
@cases("cli")
def test_a_call(command: str, status: int, said: str) -> None:
    result = run(*shlex.split(command))
    assert (result.exit_code, said in result.stderr) == (status, True), result.stderr
    assert not result.stdout or status != 2
    assert "Traceback" not in result.stderr
