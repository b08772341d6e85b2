"""Tables that queries wrote and OpenLineage does not name."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.conversion.coalesce import Ending, JobLineage
from airflow_provider_spark_datahub.conversion.convert import MAX_LISTED_PROBLEMS, convert_events
from tests.conversion.builders import CORPUS, Json, corpus_events, file, query, settings, whole_application
from tests.conversion.test_more_jobs import RECORDINGS, converted, recorded

CASES = sorted(path.stem for path in (CORPUS / "events").glob("*.ndjson") if path.stem != "streaming_progress")


def write(number: int, node: str, *, kind: str = "COMPLETE", outputs: tuple[Json, ...] = ()) -> Json:
    """A query that writes a table, by its plan."""
    return query(kind, run_id=f"01900000-0000-7000-8000-{number:012}", job=f"shop.{node}", outputs=outputs)


def job_of(*queries: Json) -> JobLineage:
    (job,) = convert_events(whole_application(*queries), settings(), Ending(succeeded=True)).jobs
    return job


def test_tables_in_a_catalogue_that_openlineage_cannot_name() -> None:
    """Iceberg's in JDBC, with OpenLineage 1.53.0: it takes the database's address for that of a Hive metastore."""
    conversion = convert_events(recorded("events", "iceberg_jdbc-4.0.5"), settings(), Ending(succeeded=True))
    (job,) = conversion.jobs
    assert job.untold == (
        "atomic_create_table_as_select.sales_orders",
        "append_data.ice_sales_orders",
        "append_data.ice_sales_customers",
        "replace_data.ice_sales_orders",
        "atomic_replace_table_as_select.sales_revenue",
        "overwrite_by_expression.ice_sales_revenue",
    )
    assert job.adds_only
    (sentence,) = conversion.gaps
    assert "does not name the tables" in sentence
    assert "append_data.ice_sales_customers" in sentence


@pytest.mark.parametrize("recording", RECORDINGS)
def test_no_false_alarm_for_real_jobs(recording: str) -> None:
    assert [job.untold for job in converted(recording) if job.untold] == []


@pytest.mark.parametrize("case", CASES)
def test_no_false_alarm_for_the_corpus(case: str) -> None:
    assert [job.untold for job in convert_events(corpus_events(case), settings()).jobs if job.untold] == []


@pytest.mark.parametrize(
    "queries",
    [
        pytest.param([write(1, "append_data.ice_db_t", outputs=(file("/t"),))], id="it was told"),
        pytest.param([write(1, "append_data.ice_db_t", kind="FAIL")], id="it failed"),
        pytest.param([write(1, "append_data.ice_db_t", kind="RUNNING")], id="it did not end"),
        pytest.param([write(1, "create_table.db_t")], id="nothing was written"),
        pytest.param([write(1, "overwrite_by_expression_noop_table.noop-table")], id="a sink that is no table"),
        pytest.param([write(1, "append_data")], id="without its table"),
        pytest.param(
            [
                write(1, "atomic_create_table_as_select.db_t"),
                write(2, "append_data.ice_db_t", outputs=(file("/t"),)),
            ],
            id="the query within it was told",
        ),
        pytest.param(
            [
                write(1, "atomic_create_table_as_select.db_t", outputs=(file("/t"),)),
                write(2, "append_data.ice_db_t"),
            ],
            id="the query around it was told",
        ),
    ],
)
def test_what_is_not_called_untold(queries: list[Json]) -> None:
    job = job_of(*queries)
    assert job.untold == ()
    assert not job.adds_only


def test_a_table_that_is_not_told_beside_one_that_is() -> None:
    told = write(1, "append_data.ice_db_orders", outputs=(file("/orders"),))
    job = job_of(told, write(2, "append_data.ice_db_old_customers"))
    assert job.untold == ("append_data.ice_db_old_customers",)
    assert job.adds_only


def test_of_very_many_the_first_are_told() -> None:
    queries = [write(number, f"append_data.ice_db_t{number}") for number in range(MAX_LISTED_PROBLEMS + 5)]
    conversion = convert_events(whole_application(*queries), settings())
    assert len(conversion.jobs[0].untold) == MAX_LISTED_PROBLEMS + 5
    assert len(conversion.untold) == MAX_LISTED_PROBLEMS
