"""Events of one session of a Spark Connect server, out of those of all clients.

``tests/data/connect_server.ndjson`` is the event file of a real server (Spark 4.3.0, listener
1.53.0): at the same time, two clients each wrote a CSV file to Parquet (``out_one``, ``out_two``)
and counted its rows.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture.connect_session import _SessionFollower
from airflow_provider_spark_datahub.conversion import Converter, Ending, LineageSettings
from tests.cases import cases

RECORDED = Path(__file__).parents[1] / "data" / "connect_server.ndjson"
ONE, TWO = "b57528e8-3c6f-4c48-94a0-aaf38e2a640e", "494bf289-f7cb-4547-9147-176b0260a078"
OURS = "01990000-0000-7000-8000-000000000001"
FILE = "urn:li:dataset:(urn:li:dataPlatform:file,/warehouse/{},PROD)"


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture.connect_session, "_PAUSE_SECONDS", 0.0)


def never() -> bool:
    return False


def _parents(place: capture.SessionEvents) -> list[dict[str, str]]:
    reader: _SessionFollower[bytes] = place.follow(capture.checked_text)
    return [json.loads(event)["run"]["facets"]["parent"]["run"] for event in reader.rest(never)]


@cases("capture")
def test_a_session_has_the_attempts_id_unless_it_has_its_own(
    remote: str, expected: str, session: str
) -> None:
    assert capture.SessionEvents.remote(remote, OURS) == (expected, session)
    with pytest.raises(
        capture.InjectionError, match=r"SPARK_REMOTE is 'local\[2\]': no Spark Connect server"
    ):
        capture.SessionEvents.remote("local[2]", OURS)


@pytest.mark.parametrize(("session", "output"), [(ONE, "out_one"), (TWO, "out_two")])
def test_each_session_has_only_its_own_operations(session: str, output: str) -> None:
    place = capture.SessionEvents(RECORDED, session, 0, "shop_build")
    reader: _SessionFollower[bytes] = place.follow(capture.checked_text)
    converter = Converter(LineageSettings())
    for event in reader.rest(never):
        converter.add(event)
    assert (reader.report.outcome, reader.report.quarantined_count) == (capture.Outcome.COMPLETE, 0)
    conversion = converter.finish(Ending(True, events_complete=True))
    (job,) = conversion.jobs
    assert job.job_urn == "urn:li:dataJob:(urn:li:dataFlow:(spark,shop_build,default),shop_build)"
    # OpenLineage sent no event of the queries that counted the rows, only of Spark jobs that listed
    # the files.
    assert (conversion.inputs, conversion.outputs) == (
        [FILE.format("data/in.csv")],
        [FILE.format(output)],
    )
    assert {run["runId"] for run in _parents(place)} == {session}
    assert capture.SessionEvents.parse(str(place)) == place
    assert place.last_ms() is not None


def test_a_session_reads_from_its_beginning_while_others_go_on(tmp_path: Path) -> None:
    lines = RECORDED.read_bytes().splitlines(keepends=True)
    path = tmp_path / "a b.ndjson"
    path.write_bytes(b"".join(lines[:3]))
    place = capture.SessionEvents.parse(
        str(capture.SessionEvents(path, ONE, path.stat().st_size, "x"))
    )
    assert place.path == path
    reader: _SessionFollower[bytes] = place.follow(capture.checked_text)
    assert list(reader.new(never)) == []
    with path.open("ab") as stream:
        stream.write(b"".join(lines[3:10]))
    first = list(reader.new(never))
    with path.open("ab") as stream:
        stream.write(b"".join(lines[10:]))
    later = list(reader.rest(never))
    runs = {json.loads(event)["run"]["runId"] for event in first + later}
    whole: _SessionFollower[bytes] = capture.SessionEvents(RECORDED, ONE, 0, "x").follow(
        capture.checked_text
    )
    assert runs == {json.loads(event)["run"]["runId"] for event in whole.rest(never)}
    place.remove()
    assert path.exists()


def test_a_session_without_events_is_empty_and_one_without_a_file_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture.connect_session, "_SETTLE_SECONDS", 0.0)
    for path, outcome in (
        (RECORDED, capture.Outcome.EMPTY),
        (tmp_path / "missing", capture.Outcome.MISSING),
    ):
        reader: _SessionFollower[bytes] = capture.SessionEvents(path, OURS, 0, "x").follow(
            capture.checked_text
        )
        assert list(reader.rest(never)) == []
        assert reader.report.outcome is outcome
        assert OURS in reader.report.sentence
