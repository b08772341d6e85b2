"""Asset events: one for each dataset that a job really wrote, and none of an attempt that does not
succeed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_provider_spark_datahub.conversion import WrittenDataset
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite
from airflow_provider_spark_datahub.hooks.assets import _asset_uri
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError
from tests.airflow_versions import AIRFLOW
from tests.cases import cases
from tests.conversion.builders import file, query, urn, whole_application
from tests.operators import tries

# What the job of this case wrote: /lake/out/a/revenue_by_country (tests/data/corpus).
CASE, PATH = "a_csv_join_agg", "/lake/out/a/revenue_by_country"
URI = f"file://{PATH}"
TASK_RUN = AirflowSite().task_run_urn("shop", "build", tries.RUN_ID)


def attempt(
    spark: tries.FakeSpark, number: int = 1, state: tries.TaskState | None = None, **arguments: Any
) -> tuple[Any, dict[str, Any]]:
    """Return the events of one attempt, and its report."""
    spark.writes(CASE)
    operator = tries.operator_with_lineage(spark, **arguments)
    ti, events = tries.TaskInstance(try_number=number, max_tries=1), OutletEventAccessors()
    context = {**tries.context_of(operator, ti, state), "outlet_events": events}
    try:
        tries.execute(operator, context)
    except LineagePendingError:
        return None, ti.xcoms["lineage_report"]
    return events, ti.xcoms["lineage_report"]


def alias_events(events: Any, alias: str = "spark_datahub") -> list[tuple[str, dict[str, Any]]]:
    return [
        (event.dest_asset_key.uri, event.extra)
        for event in events[AssetAlias(alias)].asset_alias_events
    ]


def test_each_written_dataset_becomes_an_event_of_the_alias(spark: tries.FakeSpark) -> None:
    settings = {"datasets": "schemas"}
    events, report = attempt(spark, outlets=[AssetAlias("lake")], lineage=settings)
    ((uri, extra),) = alias_events(events, "lake")
    assert uri == URI
    assert extra["datahub_urn"] == urn("file", PATH)
    assert extra["datahub_task_run"] == TASK_RUN
    assert extra["datahub_spark_run"].startswith("urn:li:dataProcessInstance:")
    # The statistics that OpenLineage reports in these events.
    assert (extra["rows"], extra["bytes"]) == (48, 2303)
    assert len(extra["schema_hash"]) == 16
    assert (report["assets"], report["warnings"]) == ([URI], [])


@pytest.mark.slow
def test_emit_assets_needs_no_alias_in_the_dag(spark: tries.FakeSpark) -> None:
    events, _ = attempt(spark, emit_assets=True)
    assert [uri for uri, _ in alias_events(events)] == [URI]
    events, _ = attempt(spark, emit_assets={"file": "hive://lake{path}"})
    assert [uri for uri, _ in alias_events(events)] == [f"hive://lake{PATH}"]
    events, report = attempt(spark, emit_assets=False, outlets=[AssetAlias("lake")])
    assert (dict(events), report["assets"]) == ({}, [])
    with DAG("shop", schedule=None) as dag:
        SparkSubmitDatahubOperator.partial(
            task_id="mapped", application="job.py", emit_assets=True
        ).expand(application_args=[["x"]])
    assert dag.get_task("mapped").unmap({"application_args": ["x"]}).outlets == [
        AssetAlias("spark_datahub")
    ]


def test_declared_outlets_are_compared_with_what_was_written(spark: tries.FakeSpark) -> None:
    declared, other = Asset(name="revenue", uri=URI), Asset("file:///lake/other")
    events, report = attempt(spark, outlets=[declared, other])
    assert events[declared].extra["datahub_urn"] == urn("file", PATH)
    assert events[other].extra == {}
    assert report["warnings"] == ["the outlet file:///lake/other was not written by the job"]
    assert report["assets"] == [URI]

    _, report = attempt(spark, outlets=[other])
    assert report["warnings"] == [
        f"{urn('file', PATH)} was written, and no outlet of the task declares it ({URI})",
        "the outlet file:///lake/other was not written by the job",
    ]

    spark.writes(b"")
    report = tries.report_of(
        tries.operator_with_lineage(spark, outlets=[declared]), outlet_events=OutletEventAccessors()
    )
    assert "it is not known which outlets" in " ".join(report["warnings"])


def test_partitions_are_keys_of_a_declared_outlet(spark: tries.FakeSpark) -> None:
    """In OpenLineage's own form of a write of two partitions; the recorded job wrote none."""
    condition = {
        "type": "partition",
        "partitions": [{"dimensions": {"day": "2026-01-01"}}, {"identifier": "late"}],
    }
    written = file("/lake/daily") | {"outputFacets": {"subset": {"outputCondition": condition}}}
    application = whole_application(
        query("START"), query(inputs=[file("/lake/raw")], outputs=[written])
    )
    events_file = "".join(f"{json.dumps(event)}\n" for event in application).encode()
    declared = Asset("file:///lake/daily")

    def keys(**arguments: Any) -> tuple[set[str], list[str]]:
        spark.writes(events_file)
        operator, events = (
            tries.operator_with_lineage(spark, outlets=[declared], **arguments),
            OutletEventAccessors(),
        )
        report = tries.report_of(operator, outlet_events=events)
        assert report["assets"] == ["file:///lake/daily"]
        return getattr(events[declared], "partition_keys", set()), report["warnings"]

    assert keys() == (set(), [])
    if AIRFLOW < (3, 3):
        reason = "the event of file:///lake/daily has no partition keys: Airflow has them since 3.3"
        assert keys(emit_assets="partitions") == (set(), [reason])
        return
    assert keys(emit_assets="partitions") == ({"day=2026-01-01", "late"}, [])
    condition["partitions"] = [{"identifier": "x" * 251}]
    events_file = "".join(f"{json.dumps(event)}\n" for event in application).encode()
    found, (warning,) = keys(emit_assets="partitions")
    assert found == set()
    assert warning.startswith(
        "the event of file:///lake/daily has no partition keys: partition_key must be at most"
    )


@pytest.mark.parametrize("state", [tries.TaskState(), None])
def test_a_retry_that_only_delivers_emits_once(
    spark: tries.FakeSpark, tmp_path: Path, state: tries.TaskState | None
) -> None:
    (tmp_path / "sink").write_text("in the way")
    events, _ = attempt(spark, 1, state, emit_assets=True, lineage_on_failure="retry")
    assert events is None, "the task fails, and Airflow stores nothing of it"
    (tmp_path / "sink").unlink()
    events, report = attempt(spark, 2, state, emit_assets=True, lineage_on_failure="retry")
    assert len(spark.runs) == 1
    ((uri, extra),) = alias_events(events)
    assert (uri, extra["datahub_urn"], extra["datahub_task_run"]) == (
        URI,
        urn("file", PATH),
        TASK_RUN,
    )
    assert report["assets"] == [URI]


def test_a_failed_attempt_emits_nothing(spark: tries.FakeSpark) -> None:
    spark.exits(1)
    spark.writes(CASE)
    operator, events = tries.operator_with_lineage(spark, emit_assets=True), OutletEventAccessors()
    report = tries.report_of(operator, fails=AirflowException, outlet_events=events)
    assert (dict(events), report["assets"]) == ({}, [])


@cases("operators")
def test_the_uri_of_a_written_dataset(
    platform: str, name: str, templates: Mapping[str, str], uri: str
) -> None:
    assert _asset_uri(WrittenDataset("", platform, name, "PROD", ""), templates) == uri


def test_a_uri_that_airflow_refuses_is_a_warning_and_the_others_have_events(
    spark: tries.FakeSpark,
) -> None:
    # Airflow's database refuses what its SDK takes: it would fail the task that has succeeded.
    for template in (
        "airflow://{name}",
        "x-lake://caf\u00e9{name}",
        "x-lake://\0{name}",
        f"x-lake://{'a' * 1301}",
    ):
        _, report = attempt(spark, emit_assets={"file": template})
        assert report["assets"] == []
        (warning,) = report["warnings"]
        assert warning.startswith(f"no asset event for {urn('file', PATH)}: ")
    _, report = attempt(spark, emit_assets={"file": "x://{other}"})
    assert "has a field 'other'" in report["warnings"][0]
