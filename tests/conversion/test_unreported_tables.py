"""Tables that OpenLineage does not name."""

from __future__ import annotations

import json

import pytest

from airflow_provider_spark_datahub.conversion.convert import Conversion, Converter, convert_events
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending, JobLineage
from tests.conversion.builders import (
    CORPUS,
    Json,
    file,
    query,
    settings,
    whole_application,
)
from tests.conversion.recordings import RECORDINGS, recorded

CASES = sorted(path.stem for path in (CORPUS / "events").glob("*.ndjson") if path.stem != "streaming_progress")


def write(number: int, node: str, *, kind: str = "COMPLETE", outputs: tuple[Json, ...] = ()) -> Json:
    """Return a query that writes a table, with its plan."""
    return query(kind, run_id=f"01900000-0000-7000-8000-{number:012}", job=f"shop.{node}", outputs=outputs)


def with_log(recording: str) -> Conversion:
    """Return the result for a recording's events, and for its log if there is one."""
    converter = Converter(settings())
    for line in recorded("events", recording):
        converter.add(line)
    for line in recorded("logs", recording):
        converter.add_log_event(json.loads(line))
    return converter.finish(Ending(succeeded=True))


def job_of(*queries: Json) -> JobLineage:
    (job,) = convert_events(whole_application(*queries), settings(), Ending(succeeded=True)).jobs
    return job


def test_tables_in_a_catalogue_that_openlineage_cannot_name() -> None:
    # Iceberg's in JDBC, with OpenLineage 1.53.0: it takes the database's address for that of a Hive metastore.
    conversion = convert_events(recorded("events", "iceberg_jdbc-4.0.5"), settings(), Ending(succeeded=True))
    (job,) = conversion.jobs
    assert job.diagnostics.unreported_queries == (
        "atomic_create_table_as_select.sales_orders",
        "append_data.ice_sales_orders",
        "append_data.ice_sales_customers",
        "replace_data.ice_sales_orders",
        "atomic_replace_table_as_select.sales_revenue",
        "overwrite_by_expression.ice_sales_revenue",
    )
    assert job.patch_edges
    (sentence,) = conversion.diagnostics.unreported_messages()
    assert "does not name the tables" in sentence
    assert "append_data.ice_sales_customers" in sentence


@pytest.mark.parametrize("recording", RECORDINGS)
def test_no_false_alarm_for_real_jobs(recording: str) -> None:
    assert with_log(recording).diagnostics.unreported_messages() == []


@pytest.mark.parametrize(
    "queries",
    [
        pytest.param([write(1, "append_data.ice_db_t", outputs=(file("/t"),))], id="it was reported"),
        pytest.param([write(1, "append_data.ice_db_t", kind="FAIL")], id="it failed"),
        pytest.param([write(1, "append_data.ice_db_t", kind="RUNNING")], id="it did not end"),
        pytest.param([write(1, "create_table.db_t")], id="nothing was written"),
        pytest.param([write(1, "overwrite_by_expression_noop_table.noop-table")], id="a sink that is not a table"),
        pytest.param([write(1, "append_data")], id="without its table"),
        pytest.param(
            [
                write(1, "atomic_create_table_as_select.db_t"),
                write(2, "append_data.ice_db_t", outputs=(file("/t"),)),
            ],
            id="the query within it was reported",
        ),
        pytest.param(
            [
                write(1, "atomic_create_table_as_select.db_t", outputs=(file("/t"),)),
                write(2, "append_data.ice_db_t"),
            ],
            id="the query around it was reported",
        ),
    ],
)
def test_queries_with_reported_tables_are_not_listed(queries: list[Json]) -> None:
    job = job_of(*queries)
    assert job.diagnostics.unreported_queries == ()
    assert not job.patch_edges


def test_an_unreported_table_is_listed_beside_a_reported_one() -> None:
    reported = write(1, "append_data.ice_db_orders", outputs=(file("/orders"),))
    job = job_of(reported, write(2, "append_data.ice_db_old_customers"))
    assert job.diagnostics.unreported_queries == ("append_data.ice_db_old_customers",)
    assert job.patch_edges
