from __future__ import annotations

from airflow_provider_spark_datahub.delivery.outbox import EntryFilter, Manifest
from tests.cases import cases
from tests.delivery.outboxes import key

MANIFEST = Manifest(key(), "datahub", 0)


@cases("outbox_filter")
def test_a_filter_selects_entries(selection: dict[str, list[str]], meant: bool) -> None:
    chosen = EntryFilter(**{name: tuple(ids) for name, ids in selection.items()})
    assert chosen(MANIFEST) is meant
    assert bool(chosen) is bool(selection)
