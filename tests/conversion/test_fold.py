"""Events folded into runs: what a fold keeps and gives back, and that its memory is bounded."""

from __future__ import annotations

import json

from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.runs.fold import Fold
from tests.conversion.builders import (
    APP,
    OTHER_QUERY,
    QUERY,
    Json,
    application,
    column,
    column_lineage,
    event,
    file,
    query,
    settings,
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
