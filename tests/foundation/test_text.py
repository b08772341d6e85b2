"""Words of messages."""

from __future__ import annotations

from airflow_provider_spark_datahub.foundation.text import counted


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [counted(number, "proposal") for number in range(3)] == [
        "0 proposals",
        "1 proposal",
        "2 proposals",
    ]
    assert [counted(number, "entry") for number in range(3)] == [
        "0 entries",
        "1 entry",
        "2 entries",
    ]
    assert [counted(number, "event is", "events are") for number in (1, 2)] == [
        "1 event is",
        "2 events are",
    ]
