"""Sources of columns by the text of statements: only certain ones."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.conversion.columns.facet import ColumnId
from airflow_provider_spark_datahub.conversion.columns.sql import (
    MAX_STATEMENT,
    Table,
    columns_of_statement,
)
from airflow_provider_spark_datahub.conversion.events import DatasetId


def table(name: str, *columns: str) -> Table:
    return Table(DatasetId("hive", name), columns)


TABLES = {
    "db.orders": table("db.orders", "order_id", "customer_id", "amount", "status"),
    "db.customers": table("db.customers", "customer_id", "Name", "country"),
    "db.twice": table("db.twice", "a", "A"),
    "db.out": table("db.out", "name", "total"),
    "db.parts": table("db.parts", "order_id", "amount", "status"),
    "delta./lake/orders": table("/lake/orders", "order_id", "amount"),
}


def parsed(statement: str) -> tuple[Table, dict[str, tuple[ColumnId, ...]]]:
    return columns_of_statement(statement, "spark", lambda name: TABLES.get(name.lower()))


def sources(statement: str) -> dict[str, list[str]]:
    return {
        column: sorted(f"{dataset.name}.{field}" for dataset, field in made_of)
        for column, made_of in parsed(statement)[1].items()
    }


SUMS = "WITH s AS (SELECT customer_id, sum(amount) AS total FROM db.orders GROUP BY customer_id)"
NESTED = "JOIN (SELECT order_id, amount AS t FROM delta.`/lake/orders`) x ON x.order_id = o.order_id"
JOIN = "FROM db.orders o JOIN db.customers c ON o.customer_id = c.customer_id"


# By hand, from the statements.
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (f"INSERT INTO db.out SELECT c.name, sum(o.amount) {JOIN} GROUP BY c.name",
         {"name": ["db.customers.Name"], "total": ["db.orders.amount"]}),
        ("INSERT OVERWRITE TABLE db.out SELECT 'all', count(*) FROM db.orders", {"name": [], "total": []}),
        ("INSERT INTO db.out SELECT name, (SELECT max(amount) FROM db.orders) FROM db.customers WHERE country = 'PT'",
         {"name": ["db.customers.Name"], "total": ["db.orders.amount"]}),
        ("INSERT INTO db.out (total, name) SELECT amount, status FROM db.orders",
         {"total": ["db.orders.amount"], "name": ["db.orders.status"]}),
        ("INSERT OVERWRITE db.out BY NAME SELECT amount AS total, status AS name FROM db.orders",
         {"total": ["db.orders.amount"], "name": ["db.orders.status"]}),
        ("INSERT OVERWRITE db.parts PARTITION (status = 'PAID') SELECT order_id, amount FROM db.orders",
         {"order_id": ["db.orders.order_id"], "amount": ["db.orders.amount"]}),
        ("INSERT OVERWRITE db.parts PARTITION (status) SELECT order_id, amount, status FROM db.orders",
         {"order_id": ["db.orders.order_id"], "amount": ["db.orders.amount"], "status": ["db.orders.status"]}),
        (f"CREATE TABLE db.out AS {SUMS} SELECT total + 1 AS total, name FROM s JOIN db.customers USING (customer_id)",
         {"total": ["db.orders.amount"], "name": ["db.customers.Name"]}),
        ("CREATE OR REPLACE TABLE db.parts AS SELECT * EXCEPT (customer_id) FROM db.orders",
         {"order_id": ["db.orders.order_id"], "amount": ["db.orders.amount"], "status": ["db.orders.status"]}),
        ("INSERT INTO db.out SELECT status, amount FROM db.orders UNION ALL SELECT country, 0 FROM db.customers",
         {"name": ["db.customers.country", "db.orders.status"], "total": ["db.orders.amount"]}),
        (f"INSERT INTO db.out SELECT CASE WHEN o.amount > 9 THEN o.status END, x.t FROM db.orders o {NESTED}",
         {"name": ["db.orders.amount", "db.orders.status"], "total": ["/lake/orders.amount"]}),
    ],
)  # fmt: skip
def test_columns_are_followed_to_their_sources(statement: str, expected: dict[str, list[str]]) -> None:
    assert sources(statement) == expected


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT name FROM db.customers", "a query, whose result the job may have changed"),
        ("INSERT INTO db.out SELECT * FROM a_view", "no dataset of the job matches a_view"),
        ("INSERT INTO db.unknown SELECT amount FROM db.orders", "no dataset of the job matches db.unknown"),
        ("INSERT INTO db.out SELECT status, amount, 1 FROM db.orders", "not the target's columns"),
        ("CREATE TABLE db.out AS SELECT amount FROM db.orders", "not the target's columns"),
        ("INSERT INTO db.out SELECT nonsense, amount FROM db.orders", "sqlglot failed"),
        ("INSERT INTO db.out SELECT a, 1 AS b FROM db.twice", "differ in upper and lower case only"),
        ("INSERT INTO db.out SELECT item, amount FROM db.orders LATERAL VIEW explode(split(status, 'x')) e AS item",
         "columns that no table has"),
        ("INSERT INTO db.out SELECT b, a FROM db.orders AS o(a, b, c, d)", "columns of a table other names"),
        ("INSERT INTO db.out SELECT amount AS x, status AS x FROM db.orders", "no unique names"),
        ("CREATE VIEW db.out AS SELECT status AS name, amount AS total FROM db.orders", "neither INSERT"),
        ("MERGE INTO db.out t USING (SELECT * FROM db.orders) s ON t.name = s.status WHEN MATCHED THEN DELETE",
         "neither INSERT"),
        ("INSERT INTO (((", "sqlglot failed"),
        ("INSERT INTO db.out SELECT 'x', amount FROM db.orders -- " + "x" * MAX_STATEMENT, "longer than"),
    ],
)  # fmt: skip
def test_uncertain_statements_are_refused(statement: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parsed(statement)
