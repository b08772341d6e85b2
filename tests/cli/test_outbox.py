"""The outbox from the command line."""

from __future__ import annotations

import json
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from airflow_provider_spark_datahub.cli.outbox import _progress
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.outbox import Entry
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.task.submitted import UnfinishedAttempt
from tests.cases import cases
from tests.cli.commands import run, run_apart
from tests.delivery.connections import connect_to_files, connect_to_gms
from tests.delivery.outboxes import key, outbox_at
from tests.delivery.samples import delivered
from tests.operators.tries import unfinished_attempt
from tests.oracles.gms import GmsStandIn
from tests.reliability.bad_servers import answering, serving

STATUS = Proposal(
    "dataset", "urn:li:dataset:(urn:li:dataPlatform:file,/a,PROD)", "status", {"removed": False}
)


def put(folder: Path, connection: str = "lineage_sink", **ids: Any) -> Entry:
    of = replace(key(2, "build", run_id="r1"), **ids)
    return outbox_at(folder / "outbox").put(
        of, [STATUS], spark_succeeded=True, connection_id=connection
    )


def begin(
    folder: Path,
    task_id: str = "build",
    record: UnfinishedAttempt | None = None,
    run_id: str = "r1",
) -> Entry:
    """Write the entry of an attempt that has begun; without a record, nothing says whether it runs."""
    redo = record.to_obj() if record else {}
    return outbox_at(folder / "outbox").begin(
        key(1, task_id, run_id=run_id), connection_id="lineage_sink", events=None, redo=redo
    )[0]


def running(folder: Path) -> UnfinishedAttempt:
    """Return the record of an attempt of this process."""
    return unfinished_attempt(folder / "none", "r1")


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that the connection ``lineage_sink`` writes."""
    path = tmp_path / "sink"
    connect_to_files(monkeypatch, "lineage_sink", path)
    return path


@pytest.fixture
def outbox(tmp_path: Path) -> tuple[str, Path]:
    """Return the option that names the outbox."""
    return "--outbox", tmp_path / "outbox"


def waiting(folder: Path) -> list[AttemptKey]:
    return [entry.manifest.key for entry in outbox_at(folder / "outbox").entries()]


# -- words from elsewhere

STEERING = "\x1b]52;c;cm0gLXJmIC8=\x07\x9b2J\u202e\u200b\r"
"""Writes the clipboard, rings, clears the screen, turns the text around, hides, and returns to the
line's beginning.
"""


@pytest.mark.slow
def test_nothing_from_elsewhere_steers_the_terminal(
    tmp_path: Path, outbox: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with GmsStandIn() as gms:
        gms.fail_next(422, body={"message": f"no {STEERING}"})
        gms.fail_next(401, body={"message": f"go away {STEERING}"}, times=100)
        connect_to_gms(monkeypatch, "rest", gms.url)
        put(tmp_path, "rest", dag_id=f"rejected{STEERING}")
        put(tmp_path, "rest", dag_id=f"waits{STEERING}")
        put(tmp_path, f"conn{STEERING}", run_id=f"run{STEERING}")
        results = [run("emit", *outbox), run("emit", *outbox), run("pending", *outbox)]
        results += [run("doctor", "--connection", f"conn{STEERING}")]
    with serving(answering(status="403 No", body=f"stay out {STEERING}".encode())) as address:
        connect_to_gms(monkeypatch, "rest", f"http://{address}")
        results += [run("doctor", "--connection", "rest")]
    output = "".join(result.stdout + result.stderr for result in results)
    for word in ("go away", "stay out", "rejected", "waits", "run", "conn"):
        assert f"{word}\\x1b]52;c;" in output.replace(" \\x1b", "\\x1b"), word
    assert "quarantined: HTTP 422: no \\x1b]52;c;" in output
    assert {character for character in output if not character.isprintable()} <= {"\n"}


# -- pending


@pytest.mark.slow
def test_pending_imports_no_airflow_if_it_names_a_folder(
    tmp_path: Path, outbox: tuple[str, Path]
) -> None:
    put(tmp_path)
    program = (
        "import sys; from airflow_provider_spark_datahub.cli import app; app(standalone_mode=False)"
    )
    check = f"try:\n    {program}\nexcept SystemExit: pass\nassert not {{'airflow', 'datahub'}} & set(sys.modules)"
    done = run_apart("pending", *outbox, program=check)
    assert (done.returncode, "shop  r1" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("mode", [0o700, 0o2770])
def test_a_group_keeps_its_access_to_what_pending_sets_aside(
    mode: int, tmp_path: Path, outbox: tuple[str, Path]
) -> None:
    damaged = put(tmp_path)
    outbox[1].chmod(mode)
    (outbox[1] / damaged.name.path).write_text("torn")
    assert run("pending", *outbox).exit_code == 3
    corrupt = outbox[1] / "corrupt"
    assert [path.stat().st_mode & 0o2770 for path in (corrupt, *corrupt.glob("*"))] == [mode] * 2
    (reason,) = corrupt.glob("*/*.reason.txt")
    assert reason.stat().st_mode & 0o770 == mode & 0o660


def test_pending(tmp_path: Path, outbox: tuple[str, Path]) -> None:
    put(tmp_path)
    put(tmp_path, task_id="load", map_index=3)
    put(tmp_path, task_id="", try_number=1)
    put(tmp_path, run_id="r2").quarantine("no such aspect")
    begin(tmp_path, run_id="r3")
    result = run("pending", *outbox)
    assert result.exit_code == 3
    assert sorted(result.stdout.splitlines()) == [
        "shop  r1  build try 2  1 proposal for lineage_sink",
        "shop  r1  end of the DAG run  1 proposal for lineage_sink",
        "shop  r1  load[3] try 2  1 proposal for lineage_sink",
        "shop  r2  build try 2  1 proposal quarantined: no such aspect",
        "shop  r3  build try 1  events that are not converted for lineage_sink",
    ]
    again = f"spark-datahub requeue --reason 'no such aspect' --outbox {outbox[1]}"
    emit, the_same = (
        f"spark-datahub emit --outbox {outbox[1]}",
        "; the next run of each DAG does the same.",
    )
    assert result.stderr.splitlines() == [
        "4 entries pending, 1 quarantined, 0 corrupt",
        f"3 for lineage_sink: nothing tried to deliver them since their attempts ended. Next: {emit}{the_same}",
        f"1 whose attempt was killed, or had no time to convert its events: {emit} converts and delivers.",
        f"1 quarantined: no such aspect. Remove the cause, then run {again}, then {emit}.",
    ]


def test_each_next_step_of_pending_is_one_that_helps(
    tmp_path: Path, outbox: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(beginning: str, command: str) -> None:
        """Run a command that a line with this beginning names."""
        (line,) = (
            line
            for line in run("pending", *outbox).stderr.splitlines()
            if line.startswith(beginning)
        )
        (found,) = re.findall(rf"(?:run|Next:) spark-datahub ({command} .*?)(?:;|, then )", line)
        assert run(*shlex.split(found)).exit_code == 0, line

    put(tmp_path, run_id="r0")
    run("emit", *outbox)
    assert "1 for lineage_sink: connection 'lineage_sink' cannot be used" in (
        missing := run("pending", *outbox).stderr
    )
    assert "airflow connections add lineage_sink --conn-type datahub-rest" in missing
    connect_to_files(monkeypatch, "lineage_sink", tmp_path / "sink")
    step("1 for lineage_sink: ", "emit")
    assert run("pending", *outbox).exit_code == 0
    put(tmp_path, run_id="r2").quarantine("no such aspect")
    step("1 quarantined: ", "requeue")
    step("1 for lineage_sink: ", "emit")
    assert run("pending", *outbox).exit_code == 0
    assert len(delivered(tmp_path / "sink")) == 2


@pytest.mark.parametrize("command", ["pending", "emit"])
def test_event_files_that_no_entry_awaits_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A Spark that outlived its task writes its file anew if the lineage was delivered in the
    meantime.
    """
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION", str(tmp_path / "outbox"))
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION", str(tmp_path / "events"))
    folder = tmp_path / "events/shop/r1/build"
    folder.mkdir(parents=True)
    for name in ("awaited.ndjson", "late.ndjson", ".late.ndjson.reserved", "kept.ndjson"):
        (folder / name).write_text("{}\n")
    begin(tmp_path, record=replace(running(tmp_path), events_file=str(folder / "awaited.ndjson")))
    put(tmp_path).update(events=str(folder / "kept.ndjson")).quarantine("wrong")
    message = run(command).stderr
    assert f"1 event file without an entry, the first {folder / 'late.ndjson'}" in message
    (folder / "late.ndjson").unlink()
    assert "event file" not in run(command).stderr


def test_pending_for_scripts(tmp_path: Path, outbox: tuple[str, Path]) -> None:
    entry = put(tmp_path)
    put(tmp_path, run_id="r2").quarantine("no such aspect")
    summary = json.loads(run("pending", *outbox, "--json").stdout)
    common = {
        "dag": "shop",
        "task": "build",
        "map_index": -1,
        "try": 2,
        "connection": "lineage_sink",
        "proposals": 1,
    }
    pending = {
        "run": "r1",
        "state": "pending",
        "created_ms": entry.name.created_ms,
        "entry": str(entry),
    }
    common["reason"] = None
    assert summary["pending"] == [{**common, **pending}]
    (held,) = summary["quarantined"]
    assert held.items() >= {**common, "run": "r2", "state": "quarantined"}.items()
    assert held["reasons"] == ["no such aspect"]
    assert summary["corrupt"] == 0


@cases("cli")
def test_pending_of_some(
    tmp_path: Path, outbox: tuple[str, Path], options: list[str], found: int
) -> None:
    put(tmp_path, task_id="load")
    put(tmp_path, "elsewhere", dag_id="bank")
    result = run("pending", *outbox, *options)
    assert (len(result.stdout.splitlines()), result.exit_code) == (found, 1 if found else 0)


# -- emit


def test_emit_delivers_through_the_entrys_connection(
    tmp_path: Path, outbox: tuple[str, Path], sink: Path
) -> None:
    put(tmp_path)
    result = run("emit", *outbox)
    assert result.stderr == "1 entry settled (1 proposal delivered, 0 rejected), 0 pending\n"
    assert (result.exit_code, result.stdout) == (0, "")
    assert delivered(sink) == [STATUS.to_obj()]
    assert run("pending", *outbox).exit_code == 0


def test_emit_says_why_something_stays(tmp_path: Path, outbox: tuple[str, Path]) -> None:
    put(tmp_path, "lineage_nowhere")
    result = run("emit", *outbox)
    assert result.exit_code == 1
    assert "connection 'lineage_nowhere' cannot be used" in result.stderr
    assert "0 entries settled (0 proposals delivered, 0 rejected), 1 pending" in result.stderr
    assert run("pending", *outbox).exit_code == 1


def test_emit_for_scripts(tmp_path: Path, outbox: tuple[str, Path], sink: Path) -> None:
    put(tmp_path)
    put(tmp_path, "lineage_nowhere", task_id="load")
    summary = json.loads(run("emit", *outbox, "--json").stdout)
    assert (
        summary["settled"],
        summary["delivered"],
        summary["waiting"],
        len(summary["problems"]),
    ) == (1, 1, 1, 1)
    assert sink.exists()


@pytest.mark.slow
def test_only_json_is_on_standard_output_when_airflow_logs(
    tmp_path: Path, outbox: tuple[str, Path]
) -> None:
    """Airflow warns of a secret that is too short to be masked, on standard output."""
    put(tmp_path)
    connection = {
        "conn_type": "datahub-file",
        "host": str(tmp_path / "sink"),
        "extra": {"password": "all"},
    }
    done = run_apart(
        "emit", *outbox, "--json", env={"AIRFLOW_CONN_LINEAGE_SINK": json.dumps(connection)}
    )
    assert json.loads(done.stdout)["delivered"] == 1
    assert "too short" in done.stderr


def test_a_person_sees_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    with _progress("Delivering", 3) as step:
        step(2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Delivering" in shown.err
    assert "2/3" in shown.err


def test_emit_through_another_connection(
    tmp_path: Path, outbox: tuple[str, Path], sink: Path
) -> None:
    put(tmp_path, "lineage_nowhere")
    assert run("emit", *outbox, "--connection", "lineage_sink").exit_code == 0
    assert sink.exists()


def test_emit_some(tmp_path: Path, outbox: tuple[str, Path], sink: Path) -> None:
    for dag_id in ("shop", "bank", "zoo"):
        put(tmp_path, dag_id=dag_id)
    assert run("emit", *outbox, "--dag", "bank").exit_code == 0
    assert run("emit", *outbox, "--max-seconds", "0").exit_code == 1
    assert len(waiting(tmp_path)) == 2
    assert len(delivered(sink)) == 1


def test_a_wrong_limit(outbox: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_MAX_BYTES", "a week")
    outbox[1].mkdir()
    result = run("emit", *outbox)
    assert result.exit_code == 2
    assert "outbox_max_bytes is 'a week', want a number above 0" in result.stderr


@pytest.mark.usefixtures("sink")
@cases("cli")
def test_emit_recovers_an_attempt_without_a_recorded_end(
    tmp_path: Path, outbox: tuple[str, Path], options: list[str], status: int
) -> None:
    begin(tmp_path, record=running(tmp_path))
    time.sleep(0.002)
    listed = run("pending", *outbox, *options)
    assert listed.exit_code == status
    assert ("its attempt may still run" in listed.stdout) is not status
    assert run("emit", *outbox, *options).exit_code == 0
    assert len(waiting(tmp_path)) == (0 if status else 1)


def test_statuses_for_alarms(tmp_path: Path, outbox: tuple[str, Path]) -> None:
    # Running attempts do not count, pending entries may be delivered without help, and the rest
    # needs somebody.
    record = running(tmp_path)
    begin(tmp_path, "runs", record)
    begin(tmp_path, "elsewhere", replace(record, machine="another"))
    assert run("pending", *outbox).exit_code == 0
    assert status_of(outbox) == ((["elsewhere", "runs"], []), 0)
    begin(tmp_path, "killed", replace(record, process=2**22 + 1))
    begin(tmp_path, "ended", record.ended(1, "SUCCESS", spark_succeeded=True))
    assert status_of(outbox) == ((["elsewhere", "runs"], ["ended", "killed"]), 1)
    put(tmp_path, task_id="rejected").quarantine("no such aspect")
    assert status_of(outbox)[1] == 3
    assert run("pending", *outbox, "--task", "runs").exit_code == 0


def status_of(outbox: tuple[str, Path]) -> tuple[tuple[list[str], list[str]], int]:
    result = run("pending", *outbox, "--json")
    found = json.loads(result.stdout)
    running, pending = (
        sorted(entry["task"] for entry in found[kind]) for kind in ("running", "pending")
    )
    return (running, pending), result.exit_code


# -- requeue


@cases("cli")
def test_requeue(
    tmp_path: Path, outbox: tuple[str, Path], options: list[str], runs: list[str]
) -> None:
    put(tmp_path, "elsewhere", run_id="r1").quarantine("no such aspect")
    put(tmp_path, run_id="r2").quarantine("no such entity")
    put(tmp_path, run_id="r3").quarantine("too old")
    result = run("requeue", *outbox, *options, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        {"entries": len(runs), "proposals": len(runs)},
    )
    counts = (
        "1 entry with 1 proposal"
        if len(runs) == 1
        else f"{len(runs)} entries with {len(runs)} proposals"
    )
    assert f"Pending again: {counts}" in result.stderr
    assert sorted(key.run_id for key in waiting(tmp_path)) == runs
