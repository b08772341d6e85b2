"""Events that are made to break their reader: each costs only itself, on every way that events
take.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.task.job_events import JobEvents
from airflow_provider_spark_datahub.task.recovery import RecoveryError, recover_entry
from tests.cli.commands import run as command
from tests.delivery.outboxes import key, outbox_at
from tests.delivery.samples import delivered_lines
from tests.operators.tries import CORPUS, FakeSpark, operator_with_lineage, report_of
from tests.task.test_recovery import GONE, begun

CASE = (CORPUS / "a_csv_join_agg.ndjson").read_bytes()
LINES = CASE.splitlines(keepends=True)
EVIL = {
    **{f"{depth} lists": b"[" * depth + b"]" * depth for depth in (150, 600)},
    **{f"{depth} objects": b'{"a":' * depth + b"1" + b"}" * depth for depth in (150, 600)},
    "an integer of 5,000 digits": b"7" * 5000,
    "a number beyond any float": b"1e400",
    "half of a surrogate pair, 600 lists": b'["\\ud800",' + b"[" * 600 + b"]" * 601,
    "a key twice": b'{"a": 1, "a": {"a": 2}}',
}
"""Values that JSON allows."""
UNREADABLE = {
    "100,000 lists": b"[" * 100_000 + b"]" * 100_000,
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "half of a surrogate pair, 100,000 lists": b'["\\ud800",' + b"[" * 100_000 + b"]" * 100_001,
    "no number": b"NaN",
}


def with_facet(value: bytes) -> bytes:
    """Return the last event of the job once more, with one facet that nobody asks for."""
    event = json.loads(LINES[-1])
    event["run"]["facets"]["evil"] = "@evil@"
    return json.dumps(event).encode().replace(b'"@evil@"', value) + b"\n"


ATTACK = b"".join(
    [*LINES[:-1], *map(with_facet, [*EVIL.values(), *UNREADABLE.values()]), LINES[-1]]
)


def attacked(spark: FakeSpark, events: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return the report of an attempt, and the aspects of the Spark job that DataHub got."""
    spark.writes(events)
    operator = operator_with_lineage(spark, lineage_timeout=20)
    report = report_of(operator)
    sink = Path(json.loads(os.environ["AIRFLOW_CONN_DATAHUB_FILE"])["host"])
    lines = delivered_lines(sink)
    shutil.rmtree(sink)
    return report, sorted(line for line in lines if "dataJobInputOutput" in line)


@pytest.mark.slow
def test_an_attempt_with_hostile_events_delivers_its_good_ones(spark: FakeSpark) -> None:
    _, expected = attacked(spark, CASE)
    report, found = attacked(spark, ATTACK)
    # The attacked attempt only adds, and DataHub has the edges of its output already.
    assert len(found) == len(expected) > 0
    assert (report["pending"], report["rejected"], report["failed"]) == (0, 0, False)
    assert report["bad_events"] == len(UNREADABLE)
    assert (
        len(
            [
                line
                for line in report["warnings"]
                if "not valid JSON" in line or "nested too deeply" in line
            ]
        )
        == 4
    )


@pytest.mark.slow
def test_a_killed_attempt_with_hostile_events_is_recovered(tmp_path: Path) -> None:
    events = tmp_path / "events.ndjson"
    events.write_bytes(ATTACK)
    outbox = outbox_at(tmp_path / "outbox")
    record = replace(begun(events), process=GONE).to_obj()
    outbox.begin(key(), connection_id="datahub_file", events=str(events), redo=record)
    assert "1 entry settled" in command("emit", "--outbox", tmp_path / "outbox").output
    assert list(outbox.names()) == []


def test_an_attempt_that_cannot_be_converted_does_not_stop_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, evil = tmp_path / "good.ndjson", tmp_path / "evil.ndjson"
    outbox = outbox_at(tmp_path / "outbox")
    for run, events in (("a", evil), ("b", good)):
        events.write_bytes(CASE)
        record = replace(begun(events), process=GONE).to_obj()
        outbox.begin(key(run_id=run), connection_id="datahub_file", events=str(events), redo=record)
    finish = JobEvents.finish

    def fail(self: JobEvents, *arguments: Any) -> Any:
        if "evil" in str(getattr(self._file, "_place", "")):
            raise ZeroDivisionError("password=hunter2")
        return finish(self, *arguments)

    monkeypatch.setattr(JobEvents, "finish", fail)
    result = command("emit", "--outbox", tmp_path / "outbox")
    assert result.exit_code == 1, result.output
    assert "ZeroDivisionError" in result.output
    assert "hunter2" not in result.output
    (left,) = outbox.entries()
    assert (left.manifest.state, left.manifest.events) == ("unfinished", str(evil))
    with pytest.raises(RecoveryError, match="They stay in"):
        recover_entry(left, Deadline.after(60))


def test_a_drain_allows_more_time_for_a_large_file(tmp_path: Path) -> None:
    events = tmp_path / "events.ndjson"
    events.write_bytes(CASE)
    record = begun(events).ended(1, "SUCCESS", spark_succeeded=True)
    outbox_at(tmp_path / "outbox").begin(
        key(), connection_id="datahub", events=str(events), redo=record.to_obj()
    )
    (entry,) = outbox_at(tmp_path / "outbox").entries()
    now = iter(range(0, 10_000, 1))
    # A clock on which each event takes a second; the file is worth less than one more.
    assert recover_entry(entry, Deadline(5, lambda: next(now))) is None
    assert recover_entry(entry, Deadline(5, lambda: next(now)), patient=True) is None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "airflow_provider_spark_datahub.task.recovery._SLOWEST_BYTES_A_SECOND", len(CASE) / 1000
        )
        now = iter(range(10_000))
        assert recover_entry(entry, Deadline(5, lambda: next(now)), patient=True) is not None
