"""Archives of events, against what each task's own conversion delivers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import convert_events
from airflow_provider_spark_datahub.conversion.archive.replay import STILL_RUNNING_MS, ArchiveFilter
from benchmarks.archive_in_memory import ArchiveConversion, convert_archive
from tests.conversion.builders import (
    APP,
    CORPUS,
    OTHER_QUERY,
    START_MS,
    Json,
    application,
    event,
    file,
    query,
    settings,
    whole_application,
)
from tests.oracles.strict import canonical_violations

FILES = [path for path in sorted((CORPUS / "events").glob("*.ndjson")) if path.stem != "streaming_progress"]
OTHER_APP = "01900000-0000-7000-8000-0000000000bb"
ALL = {
    "datasets": "schemas",
    "capture_operations": True,
    "dataset_details": ["documentation", "owners", "tags"],
    "tags": "spark",
}
LATER: Json = {"second": 0, "run_id": "01900000-0000-7000-8000-0000000000ff", "job": "later"}


def archived(name: str, lines: Iterable[bytes]) -> Iterator[tuple[str, int, bytes]]:
    offset = 0
    for line in lines:
        yield name, offset, line
        offset += len(line) + 1


def texts(events: Iterable[Json]) -> list[bytes]:
    return [json.dumps(one).encode() for one in events]


def lines(found: ArchiveConversion) -> list[str]:
    return [one.proposal.to_json() for one in found.kept]


def at(days: int, one: Json) -> Json:
    """Return an event so many days later."""
    return {**one, "eventTime": one["eventTime"].replace("2026-01-01", f"2026-01-{days + 1:02d}")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_archive_of_one_job_gives_what_its_task_delivers(path: Path) -> None:
    # Except for the order of entities, and for aspects that one delivery repeats.
    events = path.read_bytes().splitlines()
    found = convert_archive(
        archived(path.name, [*events, *later(path)]), settings(**ALL), ArchiveFilter(run_history=True)
    )
    ours = [line for line in lines(found) if "later" not in line and LATER["run_id"] not in line]
    theirs = [one.to_json() for one in convert_events(events, settings(**ALL)).proposals(settings(**ALL))]
    # A delivery repeats a dataset that is read and written, once with its metadata.
    assert set(ours) <= set(theirs)
    assert {key_of(line) for line in ours} == {key_of(line) for line in theirs}


def later(path: Path) -> list[bytes]:
    """Return an event long after the others, so that none of them is still running."""
    last = json.loads(path.read_bytes().splitlines()[-1])
    moment = f"{int(last['eventTime'][:4]) + 1}{last['eventTime'][4:]}"
    return texts([{**application("START", **LATER), "eventTime": moment}])


def key_of(line: str) -> tuple[str, str, object]:
    obj = json.loads(line)
    times = obj["aspect"].get("json", {}).get("timestampMillis")
    return obj["entityUrn"], obj["aspectName"], times


@pytest.mark.slow
@pytest.mark.parametrize("run_history", [False, True])
def test_the_layout_of_an_archive_does_not_matter(run_history: bool) -> None:
    # One file per job, one object per event, all in one file in any order: the same bytes.
    events = [line for path in FILES for line in path.read_bytes().splitlines()]
    shuffled = [(f"{number:05d}", 0, line) for number, line in enumerate(events)]
    random.Random(7).shuffle(shuffled)
    per_job = [one for path in FILES for one in archived(path.name, path.read_bytes().splitlines())]
    wanted = ArchiveFilter(run_history=run_history)
    expected = lines(convert_archive(per_job, settings(**ALL), wanted))
    assert lines(convert_archive(shuffled, settings(**ALL), wanted)) == expected
    assert [canonical_violations(json.loads(line)) for line in expected] == [[] for _ in expected]


def test_a_replay_ends_where_the_runs_themselves_ended() -> None:
    # The second night's edges replace the first one's; the third failed, and only adds.
    nights = [
        *whole_application(query(outputs=[file("/first")])),
        *(
            at(1, one)
            for one in whole_application(query(outputs=[file("/second")], parent=OTHER_APP), run_id=OTHER_APP)
        ),
        *(at(2, one) for one in (application("START", run_id="c"), query(parent="c", outputs=[file("/third")]))),
        at(2, application("FAIL", run_id="c", second=50)),
    ]
    nights[4]["run"]["runId"] = OTHER_QUERY
    nights[7]["run"]["runId"] = "third-query"
    found = [one.proposal for one in convert_archive(archived("a", texts(nights)), settings()).kept]
    edges = [json.loads(one.value) for one in found if one.aspect_name == "dataJobInputOutput"]
    assert [edge["destinationUrn"] for edge in edges[0]["outputDatasetEdges"]] == [urn("/second")]
    assert [operation["value"]["destinationUrn"] for operation in edges[1]] == [urn("/third")]


def urn(path: str) -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:file,{path},PROD)"


def results(found: ArchiveConversion) -> list[str]:
    aspects = [
        json.loads(one.proposal.value)
        for one in found.kept
        if one.proposal.aspect_name == "dataProcessInstanceRunEvent" and APP in one.proposal.entity_urn
    ]
    return [aspect["result"]["type"] for aspect in aspects if "result" in aspect]


def test_an_application_at_the_end_of_the_archive_may_still_run() -> None:
    events = [application("START"), query()]
    assert results(convert_archive(archived("a", texts(events)), settings())) == []


def test_an_application_without_an_end_long_ago_was_killed() -> None:
    assert STILL_RUNNING_MS <= 24 * 3600 * 1000
    events = [application("START"), query(), at(2, application("START", **LATER))]
    assert results(convert_archive(archived("a", texts(events)), settings())) == ["FAILURE"]


def change_types(found: ArchiveConversion) -> list[str]:
    return [one.proposal.change_type for one in found.kept if one.proposal.aspect_name == "dataJobInputOutput"]


def test_runs_in_a_damaged_file_only_add_edges() -> None:
    # What could not be read may have been an edge of theirs.
    events = texts(whole_application(query(outputs=[file("/a")])))
    assert change_types(convert_archive(archived("a", events), settings())) == ["UPSERT"]
    found = convert_archive(archived("a", [b'{"eventType": "COMPL', *events]), settings())
    assert change_types(found) == ["PATCH"]
    assert [(one.file, one.offset) for one in found.quarantined] == [("a", 0)]
    assert change_types(convert_archive(archived("a", events), settings(), damaged=["a"])) == ["PATCH"]
    assert change_types(convert_archive(archived("a", events), settings(), damaged=["b"])) == ["UPSERT"]


def test_an_event_that_cannot_be_converted_affects_no_other() -> None:
    odd = event(run_id="odd", producer="https://example.org/x")
    found = convert_archive(archived("a", texts([*whole_application(query()), odd])), settings())
    assert (found.events, found.applications) == (4, 1)
    assert ["the platform that ran the job is unknown" in one.reason for one in found.quarantined] == [True]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ArchiveFilter(), ["one", "two"]),
        (ArchiveFilter(since_ms=START_MS + 60_000), ["two"]),
        (ArchiveFilter(until_ms=START_MS + 60_000), ["one"]),
        (ArchiveFilter(since_ms=START_MS + 59_000, until_ms=START_MS + 59_001), ["one"]),
        (ArchiveFilter(applications=("o*",)), ["one"]),
        (ArchiveFilter(applications=("three", "two")), ["two"]),
        (ArchiveFilter(applications=("TWO",)), []),
    ],
)
def test_a_filter_selects_runs_by_end_and_name(wanted: ArchiveFilter, expected: list[str]) -> None:
    events = [
        *whole_application(query(job="one.insert"), job="one"),
        *(at(1, one) for one in whole_application(job="two", run_id=OTHER_APP)),
    ]
    found = convert_archive(archived("a", texts(events)), settings(), wanted)
    flows = [one.proposal for one in found.kept if one.proposal.aspect_name == "dataFlowInfo"]
    assert [json.loads(one.value)["name"] for one in flows] == expected


@pytest.mark.parametrize("run_history", [False, True])
def test_a_hive_query_is_kept_with_its_session(run_history: bool) -> None:
    facets = {"hive_session": {"sessionId": "S1", "username": "jane"}}
    producer = "https://github.com/OpenLineage/OpenLineage/tree/1.53.0/integration/hive"
    queries = [
        event(
            run_id=f"q{number}",
            job=f"q{number}",
            job_type=None,
            run_facets=facets,
            producer=producer,
            inputs=[file("/a")],
        )
        for number in range(2)
    ]
    found = convert_archive(archived("a", texts(queries)), settings(), ArchiveFilter(run_history=run_history))
    parents = {
        json.loads(one.proposal.value).get("parentInstance")
        for one in found.kept
        if one.proposal.aspect_name == "dataProcessInstanceRelationships"
    }
    (session,) = parents - {None}
    names = [one.proposal.aspect_name for one in found.kept if one.proposal.entity_urn == session]
    # Without history it stands with each of the two jobs, whose files may be different ones.
    assert names.count("dataProcessInstanceProperties") == (1 if run_history else 2)
