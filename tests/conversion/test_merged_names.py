"""Names of tables that only Spark's event log shows, beside those that events give."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from tests.conversion.builders import Json, application, dataset, file, query, settings, symlink, urn
from tests.conversion.event_logs import app_ended, app_started, execution

GLUE, HIVE = "arn:aws:glue:eu-west-1:123456789012", "hive://meta:9083"
ENVIRONMENT = {
    "Event": "SparkListenerEnvironmentUpdate",
    "Spark Properties": {"spark.sql.warehouse.dir": "s3://lake/wh"},
}
ID = {"spark_applicationDetails": {"applicationId": "app-1", "appName": "shop"}}


def table(name: str, catalog: str = HIVE) -> Json:
    named = f"table/sales/{name}" if catalog == GLUE else f"sales.{name}"
    return dataset("s3://lake", f"/wh/sales.db/{name}", symlinks=symlink(catalog, named))


def read_of(name: str, sink: str = "CollectLimit (2)", *more: str) -> str:
    """Return the plan of a query that reads one partition of a table."""
    scan = (
        f"(1) Scan parquet spark_catalog.sales.{name}\nOutput [1]: [id#1]\n"
        f"Location: InMemoryFileIndex [s3://lake/wh/sales.db/{name}/dt=1]"
    )
    tree = f"== Physical Plan ==\n{sink}\n+- Scan parquet spark_catalog.sales.{name} (1)"
    return "\n\n\n".join((tree, "\n\n".join((scan, *more)))) + "\n\n"


def insert(source: str, target: str) -> str:
    command = (
        f"(2) Execute InsertIntoHadoopFsRelationCommand\nInput [1]: [id#1]\nArguments: s3://lake/wh/sales.db/{target}, "
        f"false, Parquet, [path=x], Append, `spark_catalog`.`sales`.`{target}`, Index(s3://x), [id]"
    )
    return read_of(source, "Execute InsertIntoHadoopFsRelationCommand (2)", command)


def converted(events: list[Json], plan: str, *, snapshots: int = 0, **options: Any) -> Conversion:
    """Convert one reported query, and one that only the log has."""
    converter = Converter(settings(**options))
    for event in (application("START", run_facets=ID), *events):
        assert converter.add(event) is None
    for event in (ENVIRONMENT, app_started("app-1"), *execution(1, 10, 12, plan)):
        converter.add_log_event(event)
    for _ in range(snapshots):
        converter.snapshot(with_log=True)
    converter.add(application("COMPLETE", second=59, run_facets=ID))
    converter.add_log_event(app_ended())
    return converter.finish(Ending(succeeded=True))


def reported(inputs: list[Json], outputs: list[Json]) -> list[Json]:
    return [query(kind, second=at, inputs=inputs, outputs=outputs) for kind, at in (("START", 5), ("COMPLETE", 8))]


@pytest.mark.parametrize("snapshots", [0, 1])
def test_a_table_that_events_name_keeps_their_name(snapshots: int) -> None:
    events = reported([table("src", GLUE)], [table("known")])
    assert converted(events, read_of("src"), snapshots=snapshots).inputs == [urn("glue", "sales.src")]


@pytest.mark.parametrize("snapshots", [0, 1])
def test_other_tables_are_on_the_one_platform_of_the_events(snapshots: int) -> None:
    events = reported([table("src", GLUE)], [file("/out")])
    assert converted(events, read_of("other"), snapshots=snapshots).inputs == [
        urn("glue", "sales.other"),
        urn("glue", "sales.src"),
    ]


def test_other_tables_have_no_name_if_events_show_several_platforms() -> None:
    events = reported([table("a", GLUE)], [table("known")])
    conversion = converted(events, insert("src", "new"))
    assert (conversion.inputs, conversion.outputs) == ([urn("glue", "sales.a")], [urn("hive", "sales.known")])
    (lost,) = conversion.diagnostics.lost_executions
    assert lost.reason.endswith("its plan names tables that no event names: sales.src, sales.new")


def test_the_partition_that_a_lost_write_reads_of_its_own_table_is_no_input() -> None:
    conversion = converted(reported([], [table("t")]), insert("t", "t"))
    assert (conversion.inputs, conversion.outputs) == ([], [urn("hive", "sales.t")])


def test_a_log_ahead_of_all_events_changes_nothing() -> None:
    converter = Converter(settings())
    converter.add(query("START", second=20, run_facets=ID, inputs=[file("/z")]))
    for event in (ENVIRONMENT, app_started("app-1"), *execution(1, 10, 12, read_of("src"))):
        converter.add_log_event(event)
    assert converter.snapshot(with_log=True).inputs == []
