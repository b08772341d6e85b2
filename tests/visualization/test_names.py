from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from airflow_provider_spark_datahub.visualization.names import (
    _LONGEST_NAME,
    ShortNames,
    format_duration,
    format_time,
    harmless,
)

DATASET = "urn:li:dataset:(urn:li:dataPlatform:{},{},{})"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sales.orders", "sales.orders"),
        ("größe/日本", "größe/日本"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2J", r"\x9b2J"),
        ("two\nlines\r\tand", r"two\nlines\r\tand"),
        ("a\u202eb\u200bc\u2028d", r"a\u202eb\u200bc\u2028d"),
        ("lone \ud800", r"lone \ud800"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ],
)
def test_what_steers_a_terminal_is_made_visible(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_what_the_terminal_cannot_show_is_escaped() -> None:
    assert harmless("größe", "ascii") == r"gr\xf6\xdfe"


def test_an_endless_name_is_cut() -> None:
    assert len(harmless("x" * 10_000)) == _LONGEST_NAME


@pytest.mark.parametrize(
    ("urn", "text"),
    [
        (DATASET.format("hive", "sales.orders", "PROD"), "hive sales.orders"),
        (DATASET.format("hive", "sales.orders", "DEV"), "hive sales.orders (DEV)"),
        (DATASET.format("s3", "bucket/a%2Cb %28c%29 100%25", "PROD"), "s3 bucket/a,b (c) 100%"),
        (DATASET.format("s3", "bucket/a,b", "PROD"), "s3 bucket/a,b"),
        (DATASET.format("kafka", "eu.orders", "PROD"), "kafka orders (eu)"),
        (DATASET.format("kafka", "eu.orders", "QA"), "kafka orders (eu, QA)"),
        ("urn:li:dataset:odd", "odd"),
    ],
)
def test_a_dataset_is_named_by_platform_and_name(urn: str, text: str) -> None:
    instances = {DATASET.format("kafka", "eu.orders", env): "eu" for env in ("PROD", "QA")}
    assert ShortNames(instances).of(urn).text == text


@pytest.mark.parametrize(
    ("first", "second", "tails"),
    [
        (("s3", "b/raw/orders.csv"), ("s3", "b/raw/rates.csv"), ["orders.csv", "rates.csv"]),
        (("s3", "b/raw/orders"), ("s3", "b/clean/orders"), ["raw/orders", "clean/orders"]),
        (("s3", "orders"), ("hive", "orders"), ["s3 orders", "hive orders"]),
        (("s3", "orders"), ("s3", "raw/orders"), ["s3 orders", "raw/orders"]),
    ],
)
def test_the_shortest_end_of_a_name_that_no_other_has(
    first: tuple[str, str], second: tuple[str, str], tails: list[str]
) -> None:
    urns = [DATASET.format(*name, "PROD") for name in (first, second)]
    assert list(ShortNames().tails(urns).values()) == tails


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, ""),
        (0, "0.0 s"),
        (12_345, "12.3 s"),
        (59_999, "1 min 00 s"),
        (252_000, "4 min 12 s"),
        (3_599_900, "1 h 00 min"),
        (3_840_000, "1 h 04 min"),
    ],
)
def test_durations(milliseconds: int | None, text: str) -> None:
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(None, ""), (0, "1970-01-01 00:00:00"), (1_795_132_800_999, "2026-11-20 00:00:00"), (10**30, ""), (-(10**17), "")],
)
def test_moments_are_in_utc(milliseconds: int | None, text: str) -> None:
    assert format_time(milliseconds) == text


def test_times_in_another_zone() -> None:
    assert format_time(1_795_132_800_000, zone=ZoneInfo("Asia/Kolkata")) == "2026-11-20 05:30:00"
