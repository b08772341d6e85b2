"""Events folded into runs and applications, and queries whose tables OpenLineage does not name."""

from __future__ import annotations

import json

from airflow_provider_spark_datahub.conversion.convert import convert_events
from airflow_provider_spark_datahub.conversion.events import EventReader
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending, JobLineage
from airflow_provider_spark_datahub.conversion.runs.fold import Fold
from tests.cases import cases
from tests.conversion.builders import (
    OTHER_QUERY,
    QUERY,
    Json,
    column,
    column_lineage,
    event,
    file,
    query,
    settings,
    whole_application,
)
from tests.conversion.recordings import recorded

# -- Runs and applications


def fold(*events: Json | bytes) -> Fold:
    result, reader = Fold(settings()), EventReader()
    for each in events:
        result.add(reader.read(each))
    return result


def test_the_same_columns_of_many_queries_are_kept_once() -> None:
    # Memory grows with distinct content, not with events: the queries of micro-batches repeat
    # theirs.
    output = file("/z", columnLineage=column_lineage({"c": [column("/a", "c")]}))
    runs = [f"01900000-0000-7000-8000-00000000{number:04d}" for number in range(20)]
    texts = (json.dumps(query(run_id=run_id, outputs=[output])).encode() for run_id in runs)
    (found,) = fold(*texts).applications()
    assert (
        len(
            {
                id(state.columns.edges)
                for run in found.runs
                for state in run.outputs.values()
                if state.columns
            }
        )
        == 1
    )


def test_a_job_without_type_belongs_to_no_application() -> None:
    # Parents from other producers are never Spark applications, whether or not they send events.
    dag = event(run_id=OTHER_QUERY, job_type=None, job="dag")
    task = event(run_id=QUERY, parent=OTHER_QUERY, job_type=None, job="dag.task")
    assert [found.run_id for found in fold(task).applications()] == [QUERY]
    assert [found.run_id for found in fold(dag, task).applications()] == [OTHER_QUERY, QUERY]


def test_an_event_that_repeats_the_datasets_of_a_discarded_run() -> None:
    """A run that the fold has forgotten begins again, with its datasets."""
    reader = EventReader()
    started, ended = (
        reader.read(json.dumps(query(kind, inputs=[file("/a")]), separators=(",", ":")).encode())
        for kind in ("START", "COMPLETE")
    )
    assert started.has_datasets_of(ended)
    folded = Fold(settings())
    folded.discard([folded.add(started)])
    assert [dataset.name for dataset in folded.add(ended).inputs] == ["/a"]


# -- Queries whose tables OpenLineage does not name


def write(
    number: int, node: str, *, kind: str = "COMPLETE", outputs: tuple[Json, ...] = ()
) -> Json:
    """Return a query that writes a table, with its plan."""
    return query(
        kind, run_id=f"01900000-0000-7000-8000-{number:012}", job=f"shop.{node}", outputs=outputs
    )


def job_of(*queries: Json) -> JobLineage:
    (job,) = convert_events(whole_application(*queries), settings(), Ending(succeeded=True)).jobs
    return job


def test_tables_in_a_catalogue_that_openlineage_cannot_name() -> None:
    # Iceberg's in JDBC, with OpenLineage 1.53.0: it takes the database's address for that of a Hive
    # metastore.
    conversion = convert_events(
        recorded("events", "iceberg_jdbc-4.0.5"), settings(), Ending(succeeded=True)
    )
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


@cases("fold")
def test_queries_with_reported_tables_are_not_listed(queries: list[tuple[str, str, bool]]) -> None:
    outputs = {True: (file("/t"),), False: ()}
    job = job_of(
        *(
            write(number, node, kind=kind, outputs=outputs[is_reported])
            for number, (node, kind, is_reported) in enumerate(queries, 1)
        )
    )
    assert job.diagnostics.unreported_queries == ()
    assert not job.patch_edges


def test_an_unreported_table_is_listed_beside_a_reported_one() -> None:
    reported = write(1, "append_data.ice_db_orders", outputs=(file("/orders"),))
    job = job_of(reported, write(2, "append_data.ice_db_old_customers"))
    assert job.diagnostics.unreported_queries == ("append_data.ice_db_old_customers",)
    assert job.patch_edges
