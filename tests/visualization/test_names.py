from __future__ import annotations

from airflow_provider_spark_datahub.visualization.names import (
    _LONGEST_NAME,
    Column,
    ShortNames,
    format_duration,
    format_time,
    harmless,
)
from tests.cases import cases

DATASET = "urn:li:dataset:(urn:li:dataPlatform:{},{},{})"


@cases("visualization")
def test_what_steers_a_terminal_is_made_visible(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_what_the_terminal_cannot_show_is_escaped() -> None:
    assert harmless("lone \ud800") == r"lone \ud800"


def test_an_endless_name_is_cut() -> None:
    assert len(harmless("x" * 10_000)) == _LONGEST_NAME


@cases("visualization")
def test_a_dataset_is_named_by_platform_and_name(urn: str, text: str) -> None:
    instances = {DATASET.format("kafka", "eu.orders", env): "eu" for env in ("PROD", "QA")}
    assert ShortNames(instances).of(urn).text == text


@cases("visualization")
def test_the_shortest_end_of_a_name_that_no_other_has(
    first: tuple[str, str], second: tuple[str, str], tails: list[str]
) -> None:
    urns = [DATASET.format(*name, "PROD") for name in (first, second)]
    assert list(ShortNames().tails(urns).values()) == tails


@cases("visualization")
def test_durations(milliseconds: int | None, text: str) -> None:
    assert format_duration(milliseconds) == text


@cases("visualization")
def test_moments_are_in_utc(milliseconds: int | None, text: str) -> None:
    assert format_time(milliseconds) == text


def test_the_path_of_a_column_has_no_types() -> None:
    path = "[version=2.0].[type=struct].[type=struct].address.[type=string].street"
    orders = DATASET.format("hive", "orders", "PROD")
    assert Column.of(f"urn:li:schemaField:({orders},{path})") == (orders, "address.street")
