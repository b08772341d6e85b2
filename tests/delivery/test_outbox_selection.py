from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.delivery.outbox.format import Manifest, Selection
from tests.delivery.outboxes import DAG, RUN, TASK, key

MANIFEST = Manifest(key(), "datahub", 0)


@pytest.mark.parametrize(
    ("selection", "meant"),
    [
        (Selection(), True),
        (Selection(dag_ids=("other", DAG)), True),
        (Selection(dag_ids=("other",)), False),
        (Selection(run_ids=(RUN,), task_ids=(TASK,), connection_ids=("datahub",)), True),
        (Selection(run_ids=("other",), task_ids=(TASK,)), False),
        (Selection(task_ids=("buil",)), False),
        (Selection(connection_ids=("other",)), False),
    ],
)
def test_what_is_meant(selection: Selection, meant: bool) -> None:
    assert selection(MANIFEST) is meant
    assert bool(selection) is (selection != Selection())
