from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery.outbox import Entry, EntryFormatError, Outbox, OutboxError, OutboxKey
from airflow_provider_spark_datahub.delivery.sink import Delivery, Rejection
from tests.delivery.samples import patch, upsert, upserts

DAG, RUN, TASK = "shop", "scheduled__2026-01-01T00:00:00+00:00", "group.build"


def key(try_number: int = 1, task_id: str = TASK, map_index: int = -1) -> OutboxKey:
    return OutboxKey(DAG, RUN, task_id, map_index, try_number)


def put(root: Path, of: OutboxKey, count: int = 3) -> Entry:
    return Outbox(root).put(of, upserts(count), spark_succeeded=True, connection_id="datahub_rest_default")


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_round_trip(tmp_path: Path) -> None:
    proposals = [upsert("a"), patch("a"), upsert("b", title="half a pair \ud800\u2028\x85\n")]
    put_entry = Outbox(tmp_path / "outbox").put(key(), proposals, spark_succeeded=False, connection_id="c")
    (entry,) = Outbox(tmp_path / "outbox").entries(DAG, RUN, TASK)
    assert entry == put_entry
    assert entry.proposals() == tuple(proposals)


def test_the_manifest_is_the_first_line(tmp_path: Path) -> None:
    with put(tmp_path, key(2, map_index=4)).path.open() as file:
        manifest = json.loads(file.readline())
        assert sum(1 for _ in file) == 3
    assert manifest == {
        "format": "spark-datahub-outbox",
        "version": 1,
        "key": {"dag_id": DAG, "run_id": RUN, "task_id": TASK, "map_index": 4, "try_number": 2},
        "collected": 3,
        "pending": 3,
        "spark_succeeded": True,
        "awaits_retry": False,
        "connection_id": "datahub_rest_default",
        "created_by": "airflow-provider-spark-datahub",
    }


def test_the_same_proposals_make_the_same_bytes(tmp_path: Path) -> None:
    first, second = put(tmp_path, key()), put(tmp_path, key())
    assert first.path != second.path
    assert first.path.read_bytes() == second.path.read_bytes()


def test_oldest_try_first(tmp_path: Path) -> None:
    numbers = [10, 2, 1, 2, 11]
    paths = [put(tmp_path, key(number)).path for number in numbers]
    entries = Outbox(tmp_path).entries(DAG, RUN, TASK)
    assert [entry.path for entry in entries] == [paths[2], paths[1], paths[3], paths[0], paths[4]]


@pytest.mark.parametrize(
    ("task_id", "map_index"),
    [
        ("../../../escape", -1),
        ("a/b", -1),
        ("a-b", -1),
        ("..", -1),
        ("", 0),
        ("ünïcödé 任务", 3),
        ("x" * 250, -1),
        ("nul\x00byte \ud800", -1),
    ],
)
def test_hostile_ids(tmp_path: Path, task_id: str, map_index: int) -> None:
    root = tmp_path / "deep" / "outbox"
    others = [put(root, key(task_id="a b")), put(root, key(task_id=task_id, map_index=map_index + 1))]
    entry = put(root, key(task_id=task_id, map_index=map_index))
    assert entry.path.parent.parent == root
    assert max(len(name) for name in entry.path.parts) <= 255
    assert Outbox(root).entries(DAG, RUN, task_id, map_index) == [entry]
    assert files(tmp_path) == sorted([entry.path, *(other.path for other in others)])


def test_all_delivered_leaves_nothing(tmp_path: Path) -> None:
    assert put(tmp_path, key()).settle(Delivery(delivered=3, stored=True)) is None
    assert files(tmp_path) == []
    assert Outbox(tmp_path).entries(DAG, RUN, TASK) == []


def test_pending_stays_and_rejected_goes_to_the_quarantine(tmp_path: Path) -> None:
    entry = put(tmp_path, key(), count=4)
    first, second, third, _ = entry.proposals()
    rejected = (Rejection(second, "no such field: größe"),)
    rest = entry.settle(Delivery(1, rejected, (first, third), "not available"))
    assert rest is not None
    assert Outbox(tmp_path).entries(DAG, RUN, TASK) == [rest]
    assert rest.proposals() == (first, third)
    assert (rest.manifest.collected, rest.manifest.pending) == (4, 2)
    assert rest.manifest.key == entry.manifest.key
    (quarantined,) = files(tmp_path / "quarantined")
    head, line = quarantined.read_text(encoding="utf-8").splitlines()
    assert json.loads(head)["key"]["task_id"] == TASK
    assert json.loads(line) == {"reason": "no such field: größe", "proposal": second.to_obj()}

    rest.settle(Delivery(1, (Rejection(third, "nor this"),)))
    assert Outbox(tmp_path).entries(DAG, RUN, TASK) == []
    assert len(files(tmp_path)) == len(files(tmp_path / "quarantined")) == 2


def test_nothing_delivered_changes_nothing(tmp_path: Path) -> None:
    entry = put(tmp_path, key())
    before = (entry.path.read_bytes(), entry.path.stat().st_ino)
    assert entry.settle(Delivery(0, pending=entry.proposals(), problem="not available")) == entry
    assert (entry.path.read_bytes(), entry.path.stat().st_ino) == before


def test_a_delivery_that_forgets_a_proposal_settles_nothing(tmp_path: Path) -> None:
    entry = put(tmp_path, key())
    with pytest.raises(ValueError, match="2 proposals cannot settle"):
        entry.settle(Delivery(delivered=2))
    assert len(entry.proposals()) == 3


CRASH = """
import os, signal, sys
from pathlib import Path
from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxKey
from tests.delivery.samples import upserts
Path.replace = lambda self, target: os.kill(os.getpid(), signal.SIGKILL)
key = OutboxKey(*sys.argv[2:5], -1, 1)
Outbox(Path(sys.argv[1])).put(key, upserts(3), spark_succeeded=True, connection_id="c")
"""


def test_a_crash_before_the_rename_leaves_nothing_visible(tmp_path: Path) -> None:
    earlier = put(tmp_path, key(2))
    arguments = [sys.executable, "-c", CRASH, str(tmp_path), DAG, RUN, TASK]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.run(arguments, env=environment, check=False)
    assert process.returncode == -signal.SIGKILL
    assert len(files(tmp_path)) == 2  # the draft is there
    assert Outbox(tmp_path).entries(DAG, RUN, TASK) == [earlier]


def test_a_crash_while_settling_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = put(tmp_path, key())
    first, second, third = entry.proposals()
    result = Delivery(1, (Rejection(second, "no"),), (third,), "not available")
    replace = Path.replace

    def fail_on_the_entry(self: Path, target: Path) -> Path:
        if target == entry.path:
            raise OSError(5, "Input/output error")
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail_on_the_entry)
        with pytest.raises(OutboxError, match="Input/output error"):
            entry.settle(result)
    assert entry.proposals() == (first, second, third)
    entry.settle(result)
    assert len(files(tmp_path / "quarantined")) == 1  # the second time wrote the same file


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[:0], "no JSON"),
        (lambda content: content[:100], "no JSON"),
        (lambda content: content[:-1], "2 proposals where its manifest says 3"),
        (lambda content: content[: content.rstrip().rfind(b"\n") + 1], "2 proposals"),
        (lambda content: b"\x00" * len(content), "no JSON"),
        (lambda content: b"\xff\xfe" + content, "no JSON"),
        (lambda content: b"[]\n" + content, "no manifest"),
        (lambda content: content.replace(b'"dag_id"', b'"dag"', 1), "other fields"),
        (lambda content: content.replace(b'"entityUrn"', b'"urn"', 1), "not a stored proposal"),
    ],
)
def test_a_corrupt_entry_is_set_aside_with_the_reason(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    good, bad = put(tmp_path, key(2)), put(tmp_path, key(1))
    damaged = damage(bad.path.read_bytes())
    bad.path.write_bytes(damaged)
    with pytest.raises(EntryFormatError, match=reason):
        bad.proposals()
    assert Outbox(tmp_path).entries(DAG, RUN, TASK) == [good]
    aside, why = files(tmp_path / "corrupt")
    assert aside.read_bytes() == damaged
    assert reason in why.read_text()
    assert not bad.path.exists()


def test_an_entry_of_a_newer_version_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry = put(tmp_path, key())
    entry.path.write_bytes(entry.path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    assert Outbox(tmp_path).entries(DAG, RUN, TASK) == []
    assert entry.path.exists()
    assert "version 2" in caplog.text


def test_an_outbox_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutboxError, match=rf"Cannot write to the outbox {tmp_path}/file/shop\.group-build-\w+: "):
        put(tmp_path / "file", key())


def test_an_entry_that_cannot_be_read_or_moved_is_logged_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, bad, good = put(tmp_path, key(1)), put(tmp_path, key(2)), put(tmp_path, key(3))
    folder.path.unlink()
    folder.path.mkdir()
    bad.path.write_bytes(b"")
    (tmp_path / "corrupt").write_text("in the way")
    assert Outbox(tmp_path).entries(DAG, RUN, TASK) == [good]
    assert f"{folder.path} cannot be read: Is a directory" in caplog.text
    assert f"{bad.path} is corrupt" in caplog.text


def test_a_task_that_left_nothing_has_no_entries(tmp_path: Path) -> None:
    assert Outbox(tmp_path / "missing").entries(DAG, RUN, TASK) == []
