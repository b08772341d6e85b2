"""The entry points: what they make of good events, and that no event can break them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from airflow_provider_spark_datahub.conversion.convert import (
    Converter,
    convert_events,
    convert_run_event,
)
from airflow_provider_spark_datahub.conversion.diagnostics import MAX_LISTED
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from tests.conversion.builders import (
    APP,
    OTHER_QUERY,
    QUERY,
    START_MS,
    Json,
    column,
    column_lineage,
    corpus_events,
    event,
    file,
    file_urns,
    find,
    find_all,
    query,
    schema,
    settings,
    spark_properties,
    symlink,
    whole_application,
)
from tests.oracles.strict import violations

ALL = settings(
    materialize_dataset=True,
    include_schema_metadata=True,
    capture_spark_plan=True,
    enhanced_merge_into_extraction=True,
    catalog_platforms={"iceberg": "iceberg"},
    path_specs={"file": ["/lake/{table}"]},
    file_partition_regexp="/dt=.*",
)


def test_a_single_event_is_converted_as_its_query() -> None:
    found = convert_run_event(query("COMPLETE", inputs=[file("/a")], outputs=[file("/z")]), settings())
    job = "urn:li:dataJob:(urn:li:dataFlow:(spark,shop,default),shop.insert)"
    info = find(found, "dataJobInfo")
    assert (info.entity_urn, info.aspect["name"]) == (job, "insert")
    assert info.aspect["customProperties"] == {}
    edges = find(found, "dataJobInputOutput").aspect
    assert [edge["destinationUrn"] for edge in edges["inputDatasetEdges"]] == file_urns("/a")
    # Deviation 4.
    assert find(found, "dataProcessInstanceRelationships").aspect == {
        "parentTemplate": job,
        "parentInstance": f"urn:li:dataProcessInstance:{APP}",
        "upstreamInstances": [],
    }
    assert find(found, "dataProcessInstanceProperties").entity_urn == f"urn:li:dataProcessInstance:{QUERY}"


@pytest.mark.parametrize(
    ("kind", "status", "result"),
    [
        ("START", "STARTED", None),
        ("RUNNING", "STARTED", None),
        ("COMPLETE", "COMPLETE", {"type": "SUCCESS", "nativeResultType": "COMPLETE"}),
        ("FAIL", "COMPLETE", {"type": "FAILURE", "nativeResultType": "FAIL"}),
        ("ABORT", "COMPLETE", {"type": "FAILURE", "nativeResultType": "ABORT"}),
    ],
)
def test_event_types_map_to_run_events(kind: str, status: str, result: Any) -> None:
    # The table of section 6.
    aspect = find(convert_run_event(event(kind), settings()), "dataProcessInstanceRunEvent").aspect
    assert (aspect["status"], aspect.get("result"), aspect["timestampMillis"]) == (status, result, START_MS)


@pytest.mark.parametrize("kind", ["OTHER", "something", None])
def test_an_event_of_type_other_has_no_run_event(kind: str | None) -> None:
    # Deviation 6.
    found = convert_run_event(event(kind, inputs=[file("/a")]), settings())
    assert find_all(found, "dataProcessInstanceRunEvent") == []
    assert find(found, "dataProcessInstanceInput").aspect == {"inputs": file_urns("/a")}


def test_tags_of_an_airflow_event_come_from_the_dag() -> None:
    # The settings' go first.
    airflow = event(run_facets={"airflow": {"dag": {"dag_id": "d", "tags": "['b', 'A']"}}})
    own = find(convert_run_event(airflow, settings()), "globalTags").aspect
    assert own == {"tags": [{"tag": "urn:li:tag:A"}, {"tag": "urn:li:tag:b"}]}
    configured = find(convert_run_event(airflow, settings(tags="x")), "globalTags").aspect
    assert configured == {"tags": [{"tag": "urn:li:tag:x"}]}


def test_a_rejected_event_affects_no_other() -> None:
    unknown = event(run_id="x", producer="https://example.com")
    events = whole_application(query(outputs=[file("/z")]))
    conversion = convert_events([None, *events, unknown, {"eventType": "COMPLETE"}], settings())
    diagnostics = conversion.diagnostics
    assert (conversion.events, diagnostics.rejected_events, len(diagnostics.rejections)) == (3, 3, 3)
    assert (conversion.inputs, conversion.outputs, diagnostics.unusable_datasets) == ([], file_urns("/z"), {})
    # The omitted text may have held an edge.
    assert conversion.jobs[0].patch_edges


def test_problems_are_listed_up_to_a_limit() -> None:
    conversion = convert_events([None] * (MAX_LISTED + 5), settings())
    diagnostics = conversion.diagnostics
    assert (diagnostics.rejected_events, len(diagnostics.rejections)) == (MAX_LISTED + 5, MAX_LISTED)
    assert diagnostics.messages()[MAX_LISTED:] == ["5 more events cannot be converted"]
    assert conversion.proposals(settings()) == []


def test_events_are_not_modified() -> None:
    events = whole_application(query(outputs=[file("/z", schema=schema(("a", "int")))]))
    before = copy.deepcopy(events)
    convert_events(events, ALL)
    assert events == before


@pytest.mark.parametrize("options", [{}, {"coalesce_jobs": False}, {"pipeline_name": "one", "max_string_length": 100}])
def test_proposals_job_by_job_equal_those_of_the_whole(options: Json) -> None:
    # Several applications, some of one name; the diagnostics are equal, too.
    unnamed = query(run_id="01900000-0000-7000-8000-000000000003", inputs=[file("/" + "x" * 600)])
    others = whole_application(
        query(run_id="01900000-0000-7000-8000-000000000004", parent=OTHER_QUERY, outputs=[file("/b")]),
        run_id=OTHER_QUERY,
    )
    events = [
        *whole_application(query(outputs=[file("/a")]), unnamed),
        *others,
        *corpus_events("b_multi_sql_hive"),
        None,
    ]
    whole, by_job = Converter(settings(**options)), Converter(settings(**options))
    for each in events:
        whole.add(each)
        by_job.add(each)
    finished = whole.finish(Ending(succeeded=False))
    assert list(by_job.proposals(Ending(succeeded=False))) == finished.proposals(settings(**options))
    diagnostics = by_job.conversion.diagnostics
    assert diagnostics == finished.diagnostics
    assert set(file_urns("/a", "/b")) < set(finished.outputs)
    assert diagnostics.rejected_events == 1
    assert diagnostics.unusable_datasets


def test_events_may_be_an_iterator() -> None:
    assert convert_events(iter(whole_application()), settings()).events == 2


RICH = query(
    inputs=[
        file(
            "/a", symlinks=symlink("hive://m", "db.a"), catalog={"framework": "iceberg"}, storage={"storageLayer": "x"}
        )
    ],
    outputs=[
        file(
            "/lake/z/dt=1",
            schema=schema(
                {
                    "name": "s",
                    "type": "array",
                    "fields": [{"name": "_element", "type": "struct", "fields": [{"name": "x", "type": "int"}]}],
                }
            ),
            columnLineage=column_lineage(
                {"s": [column("/a", "c", "DIRECT:IDENTITY")]}, [column("/b", "d", "INDIRECT:JOIN")]
            ),
            lifecycleStateChange={"lifecycleStateChange": "OVERWRITE"},
        )
    ],
    run_facets={
        **spark_properties(spark__app__name="Shop", spark__redaction__regex="pin"),
        "processing_engine": {"name": "spark", "version": "4"},
        "spark_applicationDetails": {"appName": "Shop", "applicationId": "x"},
        "spark_jobDetails": {"jobId": 1, "jobDescription": "d"},
        "spark.logicalPlan": {"plan": [{"class": "Scan"}]},
        "unknownSourceAttribute": {"unknownItems": [{"name": "x", "properties": {"y": 1}}]},
        "airflow": {"dag": {"tags": "['a']"}, "task": {"task_id": "t"}},
    },
    job="shop.execute_merge_into_command_edge",
    job_facets={
        "sql": {"query": "MERGE INTO t"},
        "documentation": {"description": "d"},
        "ownership": {"owners": [{"name": "jane"}]},
    },
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path of every value in the event."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = copy.copy(value)
    changed[path[0]] = with_value(value[path[0]], path[1:], new)
    return changed


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["0001-01-01T00:00:00+05:00", "://"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.sampled_from(["name", "type", "fields"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def converts_or_refuses(changed: Any) -> None:
    """Check that the event is converted to proposals that GMS accepts, or refused with an :class:`EventError`."""
    try:
        found = convert_run_event(changed, ALL)
    except EventError:
        found = []
    assert [violation for each in found for violation in violations(each.to_obj())] == [], changed
    convert_events(whole_application(changed), ALL).proposals(ALL)


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("wrong", [None, [], {}, "", 7, [None], {"x": None}], ids=json.dumps)
def test_a_wrong_value_anywhere_raises_nothing_but_event_errors(wrong: Any) -> None:
    # Producers send ``null`` where the spec says object, a list where it says text, and so on (Deviation 15).
    differing = []
    for path in places(RICH):
        changed = with_value(RICH, path, wrong)
        converts_or_refuses(changed)
        from_text, from_object = (
            convert_events([*whole_application(), event], ALL) for event in (json.dumps(changed).encode(), changed)
        )
        if from_text.proposals(ALL) != from_object.proposals(ALL):
            differing.append("/".join(map(str, path)))
    assert differing == []


@pytest.mark.no_cover
@pytest.mark.slow
@given(st.data())
@hypothesis_settings(max_examples=300, deadline=None)
def test_any_json_anywhere_raises_nothing_but_event_errors(data: st.DataObject) -> None:
    changed: Json = RICH
    for _ in range(data.draw(st.integers(1, 3))):
        changed = with_value(changed, data.draw(st.sampled_from(places(changed))), data.draw(json_values))
    converts_or_refuses(changed)


@pytest.mark.parametrize("as_text", [True, False])
def test_half_a_surrogate_pair_affects_at_most_its_event(as_text: bool) -> None:
    # JSON can spell one, UTF-8 cannot: proposals must be writable (to the outbox, the wire).
    broken = query(run_id=OTHER_QUERY, inputs=[file("/\ud800")])
    events = whole_application(query(inputs=[file("/a")]), broken)
    conversion = convert_events([json.dumps(one).encode() if as_text else one for one in events], settings())
    assert file_urns("/a")[0] in conversion.inputs
    assert "".join(proposal.to_json() for proposal in conversion.proposals(settings())).encode()


@pytest.mark.slow
@given(json_values)
def test_any_json_as_event_raises_nothing_but_event_errors(value: Any) -> None:
    converts_or_refuses(value)
