"""The public API, what its entry points make of good events, and that no event can break them."""

from __future__ import annotations

import copy
import gzip
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub import conversion
from airflow_provider_spark_datahub.conversion import (
    Converter,
    Ending,
    EventError,
    LineageSettings,
    convert_events,
    convert_run_event,
)
from airflow_provider_spark_datahub.conversion.diagnostics import MAX_LISTED
from tests.cases import cases
from tests.conversion.builders import (
    OTHER_QUERY,
    START_MS,
    Json,
    corpus_events,
    dataset,
    event,
    file,
    file_urns,
    find,
    find_all,
    query,
    schema,
    settings,
    urn,
    whole_application,
)
from tests.oracles.strict import canonical_violations, violations
from tests.system.catalogue import Column, direct_columns

# -- The public API: its names, and the producers whose events it converts


def test_signatures_are_those_of_the_documentation() -> None:
    # What the stability promise is about.
    signatures = {
        name: list(inspect.signature(getattr(conversion, name)).parameters)
        for name in ("convert_run_event", "convert_events")
    }
    assert signatures == {
        "convert_run_event": ["event", "settings"],
        "convert_events": ["events", "settings", "ending"],
    }


@cases("convert")
def test_events_of_other_producers_are_converted(
    producer: str, job: str, facets: Json, flow: str
) -> None:
    orders, topic = (
        dataset("postgres://db:5432", "shop.public.orders"),
        dataset("kafka://broker:9092", "orders"),
    )
    sent = event(
        producer=producer,
        job=job,
        job_type=None,
        run_facets=facets,
        inputs=[orders],
        outputs=[topic],
    )
    found = conversion.convert_run_event(text := json.dumps(sent), LineageSettings())
    assert found == conversion.convert_run_event(text.encode(), LineageSettings())
    assert convert_events([text], LineageSettings()).events == 1
    assert find(found, "dataFlowInfo").entity_urn == flow
    assert find(found, "dataJobInfo").entity_urn == f"urn:li:dataJob:({flow},{job})"
    assert find(found, "dataProcessInstanceInput").aspect == {
        "inputs": [urn("postgres", "shop.public.orders")]
    }
    assert find(found, "dataProcessInstanceOutput").aspect == {"outputs": [urn("kafka", "orders")]}
    assert [problem for one in found for problem in canonical_violations(one.to_obj())] == []


# -- The entry points: what they make of good events, and that no event can break them


ALL = settings(
    datasets="schemas",
    capture_spark_plan=True,
    enhanced_merge_into_extraction=True,
    catalog_platforms={"iceberg": "iceberg"},
    path_specs={"file": ["/lake/{table}"]},
    file_partition_regexp="/dt=.*",
)


@cases("convert")
def test_event_types_map_to_run_events(kind: str | None, status: str | None, result: Any) -> None:
    # The table of section 6, and Deviation 6.
    found = convert_run_event(event(kind, inputs=[file("/a")]), settings())
    aspects = [each.aspect for each in find_all(found, "dataProcessInstanceRunEvent")]
    events = [
        (aspect["status"], aspect.get("result"), aspect["timestampMillis"]) for aspect in aspects
    ]
    assert events == ([(status, result, START_MS)] if status else [])
    assert find(found, "dataProcessInstanceInput").aspect == {"inputs": file_urns("/a")}


def test_tags_of_an_airflow_event_come_from_the_dag() -> None:
    # The settings' go first.
    airflow = event(run_facets={"airflow": {"dag": {"dag_id": "d", "tags": """['b', "A's"]"""}}})
    own = find(convert_run_event(airflow, settings()), "globalTags").aspect
    assert own == {"tags": [{"tag": "urn:li:tag:A's"}, {"tag": "urn:li:tag:b"}]}
    configured = find(convert_run_event(airflow, settings(tags="x")), "globalTags").aspect
    assert configured == {"tags": [{"tag": "urn:li:tag:x"}]}


def test_a_rejected_event_affects_no_other() -> None:
    unknown = event(run_id="x", producer="https://example.com")
    events = whole_application(query(outputs=[file("/z")]))
    conversion = convert_events([None, *events, unknown, {"eventType": "COMPLETE"}], settings())
    diagnostics = conversion.diagnostics
    assert (conversion.events, diagnostics.rejected_events, len(diagnostics.rejections)) == (
        3,
        3,
        3,
    )
    assert (conversion.inputs, conversion.outputs, diagnostics.unusable_datasets) == (
        [],
        file_urns("/z"),
        {},
    )
    # The omitted text may have held an edge.
    assert conversion.jobs[0].patch_edges


def test_problems_are_listed_up_to_a_limit() -> None:
    unknown = [
        event(run_id="x", producer=f"https://example.com/{number}")
        for number in range(MAX_LISTED + 5)
    ]
    conversion = convert_events([*unknown, *unknown[:1]], settings())
    diagnostics = conversion.diagnostics
    assert (diagnostics.rejected_events, len(diagnostics.rejections)) == (
        MAX_LISTED + 6,
        MAX_LISTED,
    )
    assert diagnostics.messages()[0].endswith(" (1 more event like it)")
    assert diagnostics.messages()[MAX_LISTED:] == ["5 more events cannot be converted"]
    assert conversion.proposals(settings()) == []


def test_events_are_not_modified() -> None:
    events = whole_application(query(outputs=[file("/z", schema=schema(("a", "int")))]))
    before = copy.deepcopy(events)
    convert_events(events, ALL)
    assert events == before


@pytest.mark.parametrize(
    "options", [{}, {"coalesce_jobs": False}, {"pipeline_name": "one", "max_string_length": 100}]
)
def test_proposals_job_by_job_equal_those_of_the_whole(options: Json) -> None:
    # Several applications, some of one name; the diagnostics are equal, too.
    unnamed = query(run_id="01900000-0000-7000-8000-000000000003", inputs=[file("/" + "x" * 600)])
    others = whole_application(
        query(
            run_id="01900000-0000-7000-8000-000000000004", parent=OTHER_QUERY, outputs=[file("/b")]
        ),
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
    assert list(by_job.proposals(Ending(succeeded=False))) == finished.proposals(
        settings(**options)
    )
    diagnostics = by_job.conversion.diagnostics
    assert diagnostics == finished.diagnostics
    assert set(file_urns("/a", "/b")) < set(finished.outputs)
    assert diagnostics.rejected_events == 1
    assert diagnostics.unusable_datasets


RICH: Json = json.loads(
    (Path(__file__).parents[1] / "data" / "rich_event.json").read_text(encoding="utf-8")
)
"""An event with most of the facets that the converter reads."""


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path of every value in the event."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = copy.copy(value)
    changed[path[0]] = with_value(value[path[0]], path[1:], new)
    return changed


def converts_or_refuses(changed: Any) -> None:
    """Check that the event is converted to proposals that GMS accepts, or refused with an
    :class:`EventError`.
    """
    try:
        found = convert_run_event(changed, ALL)
    except EventError:
        found = []
    assert [violation for each in found for violation in violations(each.to_obj())] == [], changed
    convert_events(whole_application(changed), ALL).proposals(ALL)


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("wrong", [None, [], {}, "", 7, 10**400, [None], {"x": None}], ids=str)
def test_a_wrong_value_anywhere_raises_nothing_but_event_errors(wrong: Any) -> None:
    # Producers send ``null`` where the spec says object, a list where it says text, and so on
    # (Deviation 15).
    differing = []
    for path in places(RICH):
        changed = with_value(RICH, path, wrong)
        converts_or_refuses(changed)
        from_text, from_object = (
            convert_events([*whole_application(), event], ALL)
            for event in (json.dumps(changed).encode(), changed)
        )
        if from_text.proposals(ALL) != from_object.proposals(ALL):
            differing.append("/".join(map(str, path)))
    assert differing == []


@pytest.mark.parametrize("as_text", [True, False])
def test_half_a_surrogate_pair_affects_at_most_its_event(as_text: bool) -> None:
    # JSON can spell one, UTF-8 cannot: proposals must be writable (to the outbox, the wire).
    broken = query(run_id=OTHER_QUERY, inputs=[file("/\ud800")])
    events = whole_application(query(inputs=[file("/a")]), broken)
    conversion = convert_events(
        [json.dumps(one).encode() if as_text else one for one in events], settings()
    )
    assert file_urns("/a")[0] in conversion.inputs
    assert "".join(proposal.to_json() for proposal in conversion.proposals(settings())).encode()


# -- A real dbt below one Bash command: see ``tests/data/child_sparks``


RECORDED = Path(__file__).parents[1] / "data" / "child_sparks"


def test_each_model_of_dbt_has_its_true_edges() -> None:
    truth = json.loads((RECORDED / "truth.json").read_bytes())
    commands = (
        gzip.decompress((RECORDED / f"dbt_{name}.ndjson.gz").read_bytes())
        for name in ("seed", "run", "again")
    )
    events = [line for command in commands for line in command.splitlines()]
    conversion = convert_events(
        events, LineageSettings(unnamed_as="shop_dbt"), Ending(True, events_complete=True)
    )
    assert len(conversion.jobs) == 3, "each command is a run"
    assert {job.job_urn for job in conversion.jobs} == {truth["job"]}
    assert (conversion.inputs, conversion.outputs) == (truth["inputs"], truth["outputs"])
    columns = {
        pair
        for job in conversion.jobs
        for pair in direct_columns({"fineGrainedLineages": job.lineage.fine_grained})
    }
    assert columns == {(Column(*source), Column(*target)) for source, target in truth["columns"]}
    assert conversion.diagnostics.gaps == (), "rows that a statement holds have no input"
