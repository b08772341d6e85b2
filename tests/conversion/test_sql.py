"""Columns and tables of queries that databases run for Spark (conversion rules, section 4.2)."""

from __future__ import annotations

import sys

import pytest

from airflow_provider_spark_datahub.conversion.columns.sql import (
    MAX_STATEMENT,
    Allowance,
    DatabaseTables,
    StatementError,
)
from airflow_provider_spark_datahub.conversion.events import DatasetId
from tests.cases import cases

TABLES = DatabaseTables(
    [
        DatasetId("postgres://db:5432", "shop.public.orders"),
        DatasetId("postgres://db:5432", "shop.public.customers"),
        DatasetId("postgres://db:5432", "shop.old.parts"),
        DatasetId("postgres://db:5432", "shop.new.parts"),
        DatasetId("file", "/lake/orders"),
    ]
)


def sources(relation: str, *wanted: str) -> dict[str, list[str]]:
    columns = TABLES.columns_of_query(relation, wanted, Allowance())
    return {
        column: sorted(f"{dataset.name.rpartition('.')[2]}.{field}" for dataset, field in made_of)
        for column, made_of in columns.items()
    }


# By hand, from the queries.
@cases("sql")
def test_columns_are_followed_to_their_sources(
    relation: str, expected: dict[str, list[str]]
) -> None:
    assert sources(relation, *expected) == expected


@cases("sql")
def test_uncertain_queries_are_refused(relation: str, reason: str) -> None:
    with pytest.raises(StatementError, match=reason):
        sources(relation, "a")


def test_parts_of_a_query_are_no_tables() -> None:
    relation = "(WITH Paid AS (SELECT * FROM orders) SELECT * FROM paid JOIN public.customers) q"
    parts, tables = TABLES.tables_of_query(relation, Allowance())
    assert (parts, set(tables)) == ({"paid"}, {"orders", "public.customers"})


def test_long_queries_are_refused() -> None:
    with pytest.raises(StatementError, match="longer than"):
        sources(f"(SELECT a FROM orders -- {'x' * MAX_STATEMENT}\n) q", "a")


def test_the_queries_of_a_job_have_a_limit_together() -> None:
    relation, allowance = "(SELECT order_id FROM orders WHERE amount > 100) q", Allowance(90)
    TABLES.columns_of_query(relation, ["order_id"], allowance)
    with pytest.raises(StatementError, match="the job's statements are longer than"):
        TABLES.columns_of_query(relation, ["order_id"], allowance)


def test_sqlglot_logs_no_query(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StatementError):
        sources("(SELECT a, 'canary' FROM ${orders}) q", "a")
    assert caplog.text == ""


def test_without_sqlglot_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(StatementError, match=r"airflow-provider-spark-datahub\[sql\]"):
        sources("(SELECT amount FROM orders) q", "amount")
