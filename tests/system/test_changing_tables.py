"""With real tables of Iceberg and Delta, the impact of a wrong write is exact, and a dropped column is named first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as parquet
import pytest

from tests.connectors import SPARK_SUBMIT, spark_home, spark_path
from tests.system.airflow_home import AirflowHome
from tests.system.test_changing_shop import RIGHT, WITHOUT_VAT, WRONG, Shop

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAG = "changing_tables"
TABLES = {"orders": "shop/orders", "revenue": "revenue", "buyers": "buyers", "report": "shop/report"}


class TableShop(Shop):
    """Shop whose tables are Iceberg's (orders, report) and Delta's (revenue, buyers)."""

    dag_id = DAG
    environment: ClassVar[dict[str, object]] = {
        "PATH": spark_path(),
        "PYSPARK_PYTHON": SPARK_SUBMIT.with_name("python"),
        "SPARK_HOME": spark_home(),
    }

    def tables(self) -> dict[str, list[str]]:
        """Return the rows that each task wrote: a table is its newest file, the others are of older versions."""
        files = {task: [*(self.folder / "lake" / table).rglob("*.parquet")] for task, table in TABLES.items()}
        newest = {task: max(of, key=lambda file: file.stat().st_mtime_ns) for task, of in files.items()}
        return {task: sorted(map(repr, parquet.read_table(file).to_pylist())) for task, file in newest.items()}

    def snapshot(self, table: str) -> str:
        """Return the id of the latest snapshot of a table of Iceberg's, as its metadata has it."""
        metadata = self.folder / "lake/shop" / table / "metadata"
        latest = (metadata / "version-hint.text").read_text().strip()
        return str(json.loads((metadata / f"v{latest}.metadata.json").read_text())["current-snapshot-id"])

    def reached(self, *write: str, tasks: set[str]) -> list[str]:
        """Return the ids of the DAG runs in which a write reached these tasks, and no others."""
        runs = {(one["run_id"], one["task_id"]) for one in self.ask("impact", *write)["reached"]}
        assert {task for _, task in runs} == tasks
        return sorted({run_id for run_id, _ in runs})


def test_impact_is_what_changes_and_the_dropped_column_is_named_first(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    shop = TableShop(airflow_home, tmp_path)
    assert shop.runs("first", WRONG).succeeded
    before, wrong = shop.tables(), shop.snapshot("orders")
    second = shop.runs("second", RIGHT)
    assert second.succeeded
    changed = {task for task, rows in shop.tables().items() if rows != before[task]} - {"orders"}
    third = shop.runs("third", WITHOUT_VAT)
    assert not third.succeeded

    # The second run read the orders that replaced the wrong ones.
    assert changed == {"revenue", "report"}
    (run_id,) = shop.reached("shop.orders", "--version", wrong, "--column", "vat", tasks=changed)
    assert shop.reached("shop.orders", "--version", wrong, tasks={"revenue", "buyers", "report"}) == [run_id]
    # The last revenue, of Delta, is the second run's.
    assert shop.reached("default.revenue", tasks={"report"}) != [run_id]

    named, *_ = third.reports["revenue try 1"]["changes"]
    assert named.partition(" UTC: ")[2] == "shop.orders lost the column vat and has the new column tax"
    assert f"Lineage: {named}" in third.output
    assert shop.ask("changed", DAG, "revenue")["changes"][0] == named
    assert second.reports["revenue try 1"]["changes"] == []
