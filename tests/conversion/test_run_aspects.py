"""Aspects of a DataProcessInstance, as GMS indexes them and acryl-datahub writes them."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.conversion.facets.run import (
    NOT_PARTITIONED,
    DataInterval,
    partition_spec,
    run_event,
    run_properties,
)
from tests.conversion.builders import START_MS
from tests.oracles.strict import canonical_violations

RUN = "urn:li:dataProcessInstance:r"
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("length_ms", "unit", "multiple"),
    [
        (SECOND, "SECOND", 1),
        (90 * SECOND, "SECOND", 90),
        (15 * MINUTE, "MINUTE", 15),
        (HOUR, "HOUR", 1),
        (36 * HOUR, "HOUR", 36),
        (DAY, "DAY", 1),
        (7 * DAY, "WEEK", 1),
        # A month has no length of its own: January is 31 days.
        (31 * DAY, "DAY", 31),
    ],
)
def test_granularity_is_in_the_coarsest_unit(length_ms: int, unit: str, multiple: int) -> None:
    assert DataInterval(START_MS, START_MS + length_ms).granularity == {"unit": unit, "multiple": multiple}


@pytest.mark.parametrize("length_ms", [0, -DAY, 1, 1_500])
def test_a_moment_has_no_partition(length_ms: int) -> None:
    # Airflow gives a manual run an interval of length zero.
    interval = DataInterval(START_MS, START_MS + length_ms)
    assert interval.granularity is None
    assert partition_spec(interval) == NOT_PARTITIONED


def test_a_partition_has_no_time_beside_its_name() -> None:
    # GMS fails to index a time-series aspect that has both (``TimeseriesAspectTransformer``).
    assert partition_spec(DataInterval(START_MS, START_MS + DAY)) == {
        "partition": "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z",
        "type": "PARTITION",
    }


def test_partitions_that_the_producer_names_count_before_the_interval() -> None:
    spec = partition_spec(DataInterval(START_MS, START_MS + DAY), ("day=2", "day=1"))
    assert spec == {"partition": "day=1,day=2", "type": "PARTITION"}


def test_aspects_equal_those_of_the_sdk() -> None:
    events = [
        run_event(RUN, START_MS, "STARTED", interval=DataInterval(START_MS, START_MS + HOUR), attempt=1),
        run_event(
            RUN,
            START_MS + 1,
            "COMPLETE",
            result={"type": "FAILURE", "nativeResultType": "ABORT"},
            kind="ABORT",
            partitions=("p",),
            durationMillis=1,
            externalUrl="http://af/log",
        ),
    ]
    properties = run_properties(
        RUN, name="r", created_ms=None, custom={"a": "b"}, url="http://x/", run_type="STREAMING"
    )
    assert [problem for each in (*events, *properties) for problem in canonical_violations(each.to_obj())] == []
    assert [event.aspect["messageId"] for event in events] == ["STARTED 1", "ABORT"]
