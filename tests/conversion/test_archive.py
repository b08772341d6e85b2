"""Archives of events: their groups, what compaction keeps, and what each task's own conversion
delivers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from airflow_provider_spark_datahub.conversion import Proposal, convert_events
from airflow_provider_spark_datahub.conversion.archive import (
    ADDED,
    LATEST,
    RUN,
    STILL_RUNNING_MS,
    ArchiveFilter,
    AspectVersion,
    EventHead,
    Link,
    _KeptProposal,
    compact_versions,
    merge_groups,
)
from airflow_provider_spark_datahub.conversion.aspects import input_output
from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.runs.fold import Fold
from airflow_provider_spark_datahub.conversion.runs.hive_sessions import HiveSessions
from tests.cases import cases
from tests.conversion.archive_in_memory import ArchiveConversion, convert_archive
from tests.conversion.builders import (
    APP,
    CORPUS,
    OTHER_APP,
    OTHER_QUERY,
    START_MS,
    Json,
    application,
    event,
    file,
    file_urns,
    json_lines,
    query,
    settings,
    texts,
    whole_application,
)
from tests.conversion.pairs import Catalog
from tests.oracles.strict import canonical_violations

# -- Groups never separate events that the converter joins


RUNS = ("a", "b", "c", "d", "e")


def urn(path: str) -> str:
    return file_urns(path)[0]


def groups(events: Iterable[Json]) -> dict[str, str]:
    """Map each run to the one group that all of its events are in."""
    heads = [EventHead.of(RunEvent.parse(json.dumps(one).encode())) for one in events]
    shared = merge_groups(link for head in heads for link in head.links())
    found: dict[str, str] = {}
    for head in heads:
        group = shared.get(head.group, head.group)
        # Events of one run are never apart.
        assert found.setdefault(head.run_id, group) == group
    return found


@cases("archive")
def test_runs_are_in_the_group_of_their_application(
    events: list[list[str | None]], expected: list[list[str]]
) -> None:
    found: dict[str, list[str]] = {}
    sent = [
        event(run_id=str(run), job_type=job_type, parent=parent) for run, job_type, parent in events
    ]
    for run, group in groups(sent).items():
        found.setdefault(group, []).append(run)
    assert sorted(map(sorted, found.values())) == expected


TYPES = st.fixed_dictionaries(
    dict.fromkeys(RUNS, st.sampled_from(("APPLICATION", "SQL_JOB", "RDD_JOB", "TASK", None)))
)
EVENTS = st.lists(
    st.tuples(st.sampled_from(RUNS), st.booleans(), st.sampled_from((*RUNS, None))), max_size=12
)


@pytest.mark.slow
@given(TYPES, EVENTS)
def test_runs_of_one_application_are_in_one_group(
    types: dict[str, str | None], drawn: list[tuple[str, bool, str | None]]
) -> None:
    # Whatever an event leaves out of its run's type and parent.
    events = [
        event(run_id=run_id, job_type=types[run_id] if typed else None, parent=parent)
        for run_id, typed, parent in drawn
    ]
    fold = Fold(settings())
    for one in events:
        fold.add(RunEvent.parse(json.dumps(one).encode()))
    group = groups(events)
    for found in fold.applications():
        assert len({group[run.run_id] for run in found.runs}) == 1


HIVE_EVENTS = st.builds(
    lambda run_id, parent, session, is_query: event(
        run_id=run_id,
        job_type=None,
        parent=parent,
        namespace="hive://metastore",
        inputs=[{"namespace": "hive", "name": "t"}] if is_query else [],
        run_facets={"hive_session": {"sessionId": session}} if session else {},
    ),
    st.sampled_from(RUNS),
    st.sampled_from((*RUNS, None)),
    st.sampled_from(("S1", "S2", "A", None)),
    st.booleans(),
)


@pytest.mark.slow
@given(st.lists(HIVE_EVENTS, max_size=12))
def test_events_that_decide_sessions_are_in_one_group(events: list[Json]) -> None:
    # Each run has the same parent whether its group alone is seen or the whole archive.

    def parents(of: Iterable[Json]) -> dict[str, str | None]:
        sessions, parsed = (
            HiveSessions(1000),
            [RunEvent.parse(json.dumps(one).encode()) for one in of],
        )
        for one in parsed:
            sessions.observe(one)
        return {one.run_id: sessions.parent_of(one.run_id) for one in parsed}

    group = groups(events)
    by_group: dict[str, list[Json]] = {}
    for one in events:
        by_group.setdefault(group[one["run"]["runId"]], []).append(one)
    apart = {run: parent for of in by_group.values() for run, parent in parents(of).items()}
    assert apart == parents(events)


@pytest.mark.parametrize(
    "path", sorted((CORPUS / "events").glob("*.ndjson")), ids=lambda path: path.stem
)
def test_real_applications_need_no_joining(path: Path) -> None:
    heads = [
        EventHead.of(RunEvent.parse(json.dumps(one).encode()))
        for one in json_lines(path)
        if "run" in one
    ]
    assert merge_groups(link for head in heads for link in head.links()) == {}


def test_names_of_joined_groups_do_not_depend_on_the_order() -> None:
    links = [Link("run", f"r{index // 2}", group) for index, group in enumerate("bcabdeca")]
    expected = {"a": "a", "b": "a", "c": "a", "d": "d", "e": "d"}
    assert merge_groups(links) == merge_groups(reversed(links)) == expected


# -- Compaction keeps of all versions of an aspect what DataHub would have kept


FLOW = "urn:li:dataFlow:(spark,shop,default)"
JOB = f"urn:li:dataJob:({FLOW},shop)"


def version(
    proposal: Proposal, time_ms: int, *, run_id: str = "", submission: str = "", place: str = ""
) -> AspectVersion:
    return AspectVersion(
        place or proposal.entity_urn,
        time_ms,
        run_id or f"run-{time_ms}",
        0,
        submission,
        proposal.entity_type,
        proposal.entity_urn,
        proposal.aspect_name,
        proposal.change_type,
        proposal.value.encode(),
    )


def edges_of_job(
    change: str, names: Iterable[str], time_ms: int, submission: str = ""
) -> AspectVersion:
    """Return a patch or replacement of a job's edges: the datasets that it read."""
    inputs: dict[str, dict[str, str]] = {urn(f"/{name}"): {} for name in names}
    more: Any = {"outputs": {}, "upstream_jobs": [], "time_ms": time_ms, "patch": change == "PATCH"}
    (proposal,) = input_output(JOB, inputs=inputs, **more)
    return version(proposal, time_ms, submission=submission)


def kept(versions: Iterable[AspectVersion], *, run_history: bool = False) -> list[_KeptProposal]:
    found = list(compact_versions(sorted(versions), run_history=run_history))
    assert [canonical_violations(json.loads(one.proposal.to_json())) for one in found] == [
        [] for _ in found
    ]
    return found


def contents(one: _KeptProposal) -> list[Any]:
    """Return the change type, the names of the read datasets, the time and the reason."""
    aspect = json.loads(one.proposal.value)
    listed = aspect["inputDatasetEdges"] if one.proposal.change_type == "UPSERT" else aspect
    urns = [edge.get("destinationUrn") or edge["value"]["destinationUrn"] for edge in listed]
    names = [urn.split(",")[1].removeprefix("/") for urn in urns]
    return [
        one.proposal.change_type,
        names,
        one.time_ms,
        {LATEST: "latest", ADDED: "added"}[one.reason],
    ]


def status(urn: str, *, removed: bool) -> Proposal:
    return Proposal(urn.split(":")[2], urn, "status", {"removed": removed})


def test_the_last_whole_version_wins_whatever_the_order() -> None:
    versions = [version(status(JOB, removed=number != 3), number) for number in (2, 3, 1)]
    (found,) = kept(versions)
    assert (found.time_ms, found.reason, json.loads(found.proposal.value)) == (
        3,
        LATEST,
        {"removed": False},
    )


@cases("archive")
def test_edges_of_all_runs_are_compacted(versions: list[Any], expected: list[Any]) -> None:
    assert [contents(one) for one in kept(edges_of_job(*one) for one in versions)] == expected


def test_a_long_history_ends_as_its_last_runs() -> None:
    versions = [
        edges_of_job("UPSERT", [str(number)], number, f"s{number}") for number in range(1000)
    ]
    found = kept([*versions, edges_of_job("PATCH", ["x"], 1000)])
    assert [contents(one)[:2] for one in found] == [["UPSERT", ["999"]], ["PATCH", ["x"]]]
    patches = kept(edges_of_job("PATCH", [str(number % 3)], number) for number in range(30))
    assert [contents(one)[:2] for one in patches] == [["PATCH", ["0", "1", "2"]]]


def test_patches_with_keys_of_arrays_are_joined() -> None:
    keys = {"tags": ["tag", "attribution␟source"]}

    def tagged(tag: str) -> Proposal:
        operation = {
            "op": "add",
            "path": f"/tags/urn:li:tag:{tag}/",
            "value": {"tag": f"urn:li:tag:{tag}"},
        }
        patch = {"arrayPrimaryKeys": keys, "patch": [operation]}
        return Proposal("dataFlow", FLOW, "globalTags", patch, "PATCH")

    (found,) = kept([version(tagged("a"), 1), version(tagged("b"), 2), version(tagged("a"), 3)])
    patch: dict[str, Any] = json.loads(found.proposal.value)
    assert patch["arrayPrimaryKeys"] == keys
    assert [operation["value"]["tag"] for operation in patch["patch"]] == [
        "urn:li:tag:b",
        "urn:li:tag:a",
    ]


def run(name: str, time_ms: int) -> list[AspectVersion]:
    urn = f"urn:li:dataProcessInstance:{name}"
    aspects: dict[str, dict[str, Any]] = {
        "dataProcessInstanceInput": {"inputs": []},
        "dataProcessInstanceOutput": {"outputs": []},
    }
    proposals = [
        Proposal("dataProcessInstance", urn, aspect, content) for aspect, content in aspects.items()
    ]
    return [
        version(one, time_ms, run_id=name, place=JOB)._replace(number=number)
        for number, one in enumerate(proposals)
    ]


def test_only_the_last_run_is_kept_with_all_its_aspects() -> None:
    found = kept([*run("a", 1), *run("b", 2)])
    assert [one.proposal.entity_urn[-1] for one in found] == ["b", "b"]


def test_with_history_every_run_is_kept() -> None:
    found = kept([*run("b", 2), *run("a", 1)], run_history=True)
    assert [(one.proposal.entity_urn[-1], one.reason) for one in found] == [("a", RUN)] * 2 + [
        ("b", RUN)
    ] * 2


@pytest.mark.parametrize(("run_history", "times"), [(False, [2]), (True, [1, 2])])
def test_operations_are_run_history(run_history: bool, times: list[int]) -> None:
    def operation(time_ms: int) -> AspectVersion:
        aspect = {
            "timestampMillis": time_ms,
            "partitionSpec": {"partition": "FULL_TABLE_SNAPSHOT", "type": "FULL_TABLE"},
            "operationType": "INSERT",
            "lastUpdatedTimestamp": time_ms,
        }
        return version(Proposal("dataset", urn("/a"), "operation", aspect), time_ms)

    found = kept([operation(1), operation(2)], run_history=run_history)
    assert [one.time_ms for one in found] == times


# -- Whole archives, against what each task's own conversion delivers


FILES = [
    path
    for path in sorted((CORPUS / "events").glob("*.ndjson"))
    if path.stem != "streaming_progress"
]
ALL = {
    "datasets": "schemas",
    "dataset_details": ["documentation", "owners", "tags"],
    "tags": "spark",
}
LATER: Json = {"second": 0, "run_id": "01900000-0000-7000-8000-0000000000ff", "job": "later"}


def archived(name: str, lines: Iterable[bytes]) -> Iterator[tuple[str, int, bytes]]:
    offset = 0
    for line in lines:
        yield name, offset, line
        offset += len(line) + 1


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
        archived(path.name, [*events, *later(path)]),
        settings(**ALL),
        ArchiveFilter(run_history=True),
    )
    ours = [line for line in lines(found) if "later" not in line and LATER["run_id"] not in line]
    theirs = [
        one.to_json() for one in convert_events(events, settings(**ALL)).proposals(settings(**ALL))
    ]
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
            for one in whole_application(
                query(outputs=[file("/second")], parent=OTHER_APP), run_id=OTHER_APP
            )
        ),
        *(
            at(2, one)
            for one in (
                application("START", run_id="c"),
                query(parent="c", outputs=[file("/third")]),
            )
        ),
        at(2, application("FAIL", run_id="c", second=50)),
    ]
    nights[4]["run"]["runId"] = OTHER_QUERY
    nights[7]["run"]["runId"] = "third-query"
    found = [one.proposal for one in convert_archive(archived("a", texts(nights)), settings()).kept]
    edges = [json.loads(one.value) for one in found if one.aspect_name == "dataJobInputOutput"]
    assert [edge["destinationUrn"] for edge in edges[0]["outputDatasetEdges"]] == [urn("/second")]
    assert [operation["value"]["destinationUrn"] for operation in edges[1]] == [urn("/third")]


def night(number: int, writes: Mapping[str, Sequence[str]], *, failed: bool = False) -> list[Json]:
    """Return the events of an application: its outputs, each with the inputs of its query."""
    run_id = f"01900000-0000-7000-9000-0000000000{number:02}"
    queries = [
        query(
            run_id=f"01900000-0000-7000-8{number:03}-{second:012}",
            parent=run_id,
            second=second,
            inputs=list(map(file, sources)),
            outputs=[file(output)],
        )
        for second, (output, sources) in enumerate(writes.items(), 1)
    ]
    events = [
        application("START", run_id=run_id),
        *queries,
        application("FAIL" if failed else "COMPLETE", run_id=run_id, second=59),
    ]
    return [at(number, one) for one in events]


def held(*nights: list[Json]) -> tuple[set[tuple[str, str]], set[str]]:
    """Return the paths of the pairs that DataHub holds after a backfill, and the removed jobs."""
    catalog = Catalog()
    events = [one for events in nights for one in events]
    found = convert_archive(archived("a", texts(events)), settings())
    catalog.apply(
        replace(one.proposal, aspect=json.loads(one.proposal.value)) for one in found.kept
    )
    pairs = {(source.split(",")[1], output.split(",")[1]) for source, output in catalog.pairs()}
    removed = {job.removeprefix(f"urn:li:dataJob:({FLOW},").strip(")") for job in catalog.removed}
    jobs = {
        one.proposal.entity_urn for one in found.kept if one.proposal.aspect_name == "dataJobInfo"
    }
    assert catalog.removed.isdisjoint(jobs)
    edges = {urn for urn, edges in catalog.jobs.items() if edges.inputs or edges.outputs}
    assert edges <= jobs
    return pairs, removed


TWO = {"/x": ["/a"], "/y": ["/b"]}
X, Y = "shop.file./x", "shop.file./y"


@pytest.mark.parametrize(
    ("nights", "pairs", "removed"),
    [
        ([TWO], "ax by", ()),
        # One output, then two, then one.
        ([{"/x": ["/a"]}, TWO], "ax by", ()),
        ([TWO, {"/x": ["/a"]}], "ax", (X, Y)),
        ([TWO, {"/x": ["/c"], "/z": ["/d"]}], "cx dz", (Y,)),
        # It comes back.
        ([TWO, {"/x": ["/a"]}, TWO], "ax by", ()),
        # Failed attempts between.
        ([TWO, "failed", {"/z": ["/d"]}], "ax by dz", ()),
        ([{"/x": ["/a"]}, "failed", {"/x": ["/a"]}], "ax", ()),
        ([{"/x": ["/a"]}, "failed", {"/x": ["/b"]}], "ax bx", ()),
        (["failed", {"/y": ["/b"]}, TWO], "ax by", ()),
        (["failed", {"/z": ["/d"]}, TWO], "ax by", ("shop.file./z",)),
        # Edges that were added to a job go with it.
        ([TWO, "failed", {"/y": ["/d"]}, {"/x": ["/a"]}, "failed", {"/y": ["/c"]}], "ax cy", (X,)),
    ],
)  # fmt: skip
def test_the_pairs_of_a_backfill_are_those_of_the_last_complete_run(
    nights: list[Any], pairs: str, removed: tuple[str, ...]
) -> None:
    events = [
        night(number, writes, failed=number > 0 and nights[number - 1] == "failed")
        for number, writes in enumerate(nights)
        if writes != "failed"
    ]
    expected = {(f"/{pair[0]}", f"/{pair[1]}") for pair in pairs.split()}
    assert held(*events) == (expected, {*removed})


def results(found: ArchiveConversion) -> list[str]:
    aspects = [
        json.loads(one.proposal.value)
        for one in found.kept
        if one.proposal.aspect_name == "dataProcessInstanceRunEvent"
        and APP in one.proposal.entity_urn
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
    return [
        one.proposal.change_type
        for one in found.kept
        if one.proposal.aspect_name == "dataJobInputOutput"
    ]


def test_runs_in_a_damaged_file_only_add_edges() -> None:
    # What could not be read may have been an edge of theirs.
    events = texts(whole_application(query(outputs=[file("/a")])))
    assert change_types(convert_archive(archived("a", events), settings())) == ["UPSERT"]
    found = convert_archive(archived("a", [b'{"eventType": "COMPL', *events]), settings())
    assert change_types(found) == ["PATCH"]
    assert [(one.file, one.offset) for one in found.quarantined] == [("a", 0)]
    assert change_types(convert_archive(archived("a", events), settings(), damaged=["a"])) == [
        "PATCH"
    ]
    assert change_types(convert_archive(archived("a", events), settings(), damaged=["b"])) == [
        "UPSERT"
    ]


def test_an_event_that_cannot_be_converted_affects_no_other() -> None:
    odd = event(run_id="odd", producer="https://example.org/x")
    found = convert_archive(archived("a", texts([*whole_application(query()), odd])), settings())
    assert (found.events, found.applications) == (4, 1)
    assert [
        "the platform that ran the job is unknown" in one.reason for one in found.quarantined
    ] == [True]


@cases("archive")
def test_a_filter_selects_runs_by_end_and_name(
    since: int | None, until: int | None, names: Any, expected: Any
) -> None:
    since_ms, until_ms = (START_MS + ms if ms is not None else None for ms in (since, until))
    wanted = ArchiveFilter(since_ms, until_ms, applications=tuple(names))
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
    found = convert_archive(
        archived("a", texts(queries)), settings(), ArchiveFilter(run_history=run_history)
    )
    parents = {
        json.loads(one.proposal.value).get("parentInstance")
        for one in found.kept
        if one.proposal.aspect_name == "dataProcessInstanceRelationships"
    }
    (session,) = parents - {None}
    names = [one.proposal.aspect_name for one in found.kept if one.proposal.entity_urn == session]
    # Without history it stands with each of the two jobs, whose files may be different ones.
    assert names.count("dataProcessInstanceProperties") == (1 if run_history else 2)
