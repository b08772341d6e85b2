from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.delivery.outbox import EntryFilter, Manifest
from tests.delivery.outboxes import DAG, RUN, TASK, key

MANIFEST = Manifest(key(), "datahub", 0)


@pytest.mark.parametrize(
    ("selection", "meant"),
    [
        (EntryFilter(), True),
        (EntryFilter(dag_ids=("other", DAG)), True),
        (EntryFilter(dag_ids=("other",)), False),
        (EntryFilter(run_ids=(RUN,), task_ids=(TASK,), connection_ids=("datahub",)), True),
        (EntryFilter(run_ids=("other",), task_ids=(TASK,)), False),
        (EntryFilter(task_ids=("buil",)), False),
        (EntryFilter(connection_ids=("other",)), False),
    ],
)
def test_a_filter_selects_entries(selection: EntryFilter, meant: bool) -> None:
    assert selection(MANIFEST) is meant
    assert bool(selection) is (selection != EntryFilter())
