"""Events folded into runs: what a fold keeps and gives back, and that its memory is bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import convert
from airflow_provider_spark_datahub.conversion.archive.grouping import EventHead
from airflow_provider_spark_datahub.conversion.archive.replay import (
    ArchivedEvent,
    ArchiveFacts,
    ArchiveFilter,
    AspectVersion,
    GroupConverter,
)
from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.runs.fold import Fold
from benchmarks import event_mix
from tests.conversion.builders import (
    APP,
    CORPUS,
    OTHER_QUERY,
    QUERY,
    Json,
    application,
    column,
    column_lineage,
    event,
    file,
    query,
    schema,
    settings,
    spark_properties,
    texts,
    whole_application,
)

# -- Events folded into runs: what a fold keeps, and what it gives back


def fold(*events: Json | bytes) -> Fold:
    result = Fold(settings())
    for each in events:
        result.add(RunEvent.parse(each))
    return result


def test_runs_belong_to_their_application() -> None:
    found = fold(query("START"), application("START", second=1), query("COMPLETE", second=2)).applications()
    assert [(each.run_id, [run.run_id for run in each.runs]) for each in found] == [(APP, [QUERY, APP])]
    assert found[0].own_run is not None


def test_an_application_may_send_no_event_of_its_own() -> None:
    (found,) = fold(query()).applications()
    assert (found.run_id, found.own_run) == (APP, None)


def test_the_same_columns_of_many_queries_are_kept_once() -> None:
    # Memory grows with distinct content, not with events: the queries of micro-batches repeat theirs.
    output = file("/z", columnLineage=column_lineage({"c": [column("/a", "c")]}))
    runs = [f"01900000-0000-7000-8000-00000000{number:04d}" for number in range(20)]
    texts = (json.dumps(query(run_id=run_id, outputs=[output])).encode() for run_id in runs)
    (found,) = fold(*texts).applications()
    assert len({id(state.columns) for run in found.runs for state in run.outputs.values()}) == 1


def test_a_job_without_type_belongs_to_no_application() -> None:
    # Parents from other producers are never Spark applications, whether or not they send events.
    dag = event(run_id=OTHER_QUERY, job_type=None, job="dag")
    task = event(run_id=QUERY, parent=OTHER_QUERY, job_type=None, job="dag.task")
    assert [found.run_id for found in fold(task).applications()] == [QUERY]
    assert [found.run_id for found in fold(dag, task).applications()] == [OTHER_QUERY, QUERY]


def test_an_event_that_repeats_the_datasets_of_a_discarded_run() -> None:
    """A run that the fold has forgotten begins again, with its datasets."""
    started, ended = (
        RunEvent.parse(json.dumps(query(kind, inputs=[file("/a")]), separators=(",", ":")).encode())
        for kind in ("START", "COMPLETE")
    )
    assert started.has_datasets_of(ended)
    folded = Fold(settings())
    folded.discard([folded.add(started)])
    assert [dataset.name for dataset in folded.add(ended).inputs] == ["/a"]


# -- Deduplication of runs with equal content saves memory and changes nothing else


CASES = sorted(path for path in (CORPUS / "events").glob("*.ndjson") if path.stem != "streaming_progress")
OPTIONS = {"datasets": "schemas"}
LATER = ArchiveFacts(until_ms=10**14)


def converted(lines: Iterable[bytes], **options: object) -> list[AspectVersion]:
    conversion = GroupConverter(settings(**{**OPTIONS, **options}), ArchiveFilter(run_history=True), LATER)
    events = [ArchivedEvent(EventHead.read(line).time_ms, "f", number, line) for number, line in enumerate(lines)]
    for one in sorted(events):
        conversion.add(one)
    return list(conversion.finish())


def runs_kept(lines: Iterable[bytes], **options: object) -> int:
    conversion = GroupConverter(settings(**options), ArchiveFilter(), LATER)
    for number, line in enumerate(lines):
        conversion.add(ArchivedEvent(number, "f", number, line))
    return conversion._converter.run_count


@pytest.fixture
def merging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge as often and as early as possible."""
    monkeypatch.setattr(convert, "DEDUPLICATED_RUNS", 1)
    monkeypatch.setattr(convert, "RECENT_EVENTS", 20)


def both(lines: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[list[AspectVersion], list[AspectVersion]]:
    """Return the results with merging and without."""
    with monkeypatch.context() as patch:
        patch.setattr(convert, "DEDUPLICATED_RUNS", 1)
        patch.setattr(convert, "RECENT_EVENTS", 0)
        merged = converted(lines)
    return merged, converted(lines)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("merging")
def test_real_jobs_give_the_same_proposals(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = path.read_bytes().splitlines()
    merged = converted(lines)
    monkeypatch.setattr(convert, "DEDUPLICATED_RUNS", 10**9)
    assert merged == converted(lines)


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.usefixtures("merging")
def test_a_long_application_gives_the_same_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_mix, "TABLE_SETS", 40)  # of 69 events each: the last third writes to known tables
    lines = list(islice(event_mix.MIXES["long"](), 4_000))
    merged = converted(lines)
    kept = runs_kept(lines)
    monkeypatch.setattr(convert, "DEDUPLICATED_RUNS", 10**9)
    assert merged == converted(lines)
    assert kept < runs_kept(lines)


def batches(count: int) -> list[Json]:
    """Return micro-batches that read and write the same."""
    queries = []
    for number in range(count):
        counted = file("/out", schema=schema((f"c{number % 7}", "string")))
        content: Json = {
            "run_id": f"batch-{number}",
            "second": number % 50,
            "inputs": [file("/in")],
            "outputs": [counted | {"outputFacets": {"outputStatistics": {"rowCount": number}}}],
            "run_facets": spark_properties(**{"spark__sql__batch": str(number), f"k{number % 3}": str(number)}),
        }
        queries += [query("START", **content), query("COMPLETE", **content)]
    return queries


@pytest.mark.slow
@pytest.mark.no_cover
def test_memory_does_not_grow_with_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "DEDUPLICATED_RUNS", 50)
    monkeypatch.setattr(convert, "RECENT_EVENTS", 10)
    assert runs_kept(texts([application("START"), *batches(2000)])) <= 50


def test_times_schemas_and_properties_of_all_runs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    merged, whole = both(texts(whole_application(*batches(40))), monkeypatch)
    assert merged == whole


@pytest.mark.parametrize(
    "other",
    [
        query("FAIL", run_id="b", second=9, outputs=[file("/out")]),
        query(run_id="b", second=9, outputs=[file("/other")]),
        query(run_id="b", second=9, inputs=[file("/other")], outputs=[file("/out")]),
        query(run_id="b", second=9, outputs=[file("/out")], job="shop.other"),
        query(run_id="b", second=9, outputs=[file("/out", lifecycleStateChange={"lifecycleStateChange": "DROP"})]),
        query(
            run_id="b",
            second=9,
            outputs=[file("/out", columnLineage=column_lineage({"a": [column("/x", "y", "DIRECT:IDENTITY")]}))],
        ),
        query(run_id="b", second=9, outputs=[file("/out")], run_facets=spark_properties(spark__app__name="second")),
    ],
)
def test_an_event_with_other_content_is_kept(other: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    first = query(run_id="a", second=8, outputs=[file("/out")], run_facets=spark_properties(spark__app__name="first"))
    again = {**first, "run": {**first["run"], "runId": "c"}, "eventTime": first["eventTime"].replace(":08", ":30")}
    merged, whole = both(texts(whole_application(first, other, again)), monkeypatch)
    assert merged == whole
    assert any(APP in version.entity_urn for version in whole)


def test_applications_with_few_queries_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    # Applications with few queries each are left alone, as nothing could be saved.
    monkeypatch.setattr(convert, "DEDUPLICATED_RUNS", 100)
    monkeypatch.setattr(convert, "RECENT_EVENTS", 0)
    few = [{**one, "run": {**one["run"], "runId": f"few-{number}"}} for number, one in enumerate(batches(4))]
    for one in few:
        one["run"]["facets"] = {**one["run"]["facets"], "parent": {"run": {"runId": "another-application"}}}
    lines = texts([application("START"), *few, *batches(200)])
    conversion = GroupConverter(settings(), ArchiveFilter(), LATER)
    for number, line in enumerate(lines):
        conversion.add(ArchivedEvent(number, "f", number, line))
    kept = conversion._converter._fold._runs
    assert {run_id for run_id in kept if run_id.startswith("few")} == {f"few-{number}" for number in range(8)}
    assert len(kept) < 200
