"""A column that an upstream task drops is named first where a task fails, and the impact of a wrong
write is exact.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.delivery.samples import delivered_lines
from tests.oracles.gms import GmsStandIn
from tests.system.airflow_home import AirflowHome, DagTest, Json, sink_in

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

DAG = "changing_shop"
TASKS = ("orders", "revenue", "buyers", "report", "export", "partners")
EXPORT = "changing_shop.export"
RIGHT = "buyer,country,vat\n1,DE,10\n2,FR,20\n3,DE,30\n"
WRONG = RIGHT.replace("30", "99")
WITHOUT_VAT = "buyer,country,tax\n1,DE,10\n2,FR,20\n"


class Shop:
    """Shop whose DAG runs several times, each time with other orders."""

    def __init__(self, home: AirflowHome, folder: Path) -> None:
        self._home, self.folder = home, folder
        (folder / "lake/raw").mkdir(parents=True)

    def runs(self, name: str, orders: str) -> DagTest:
        (self.folder / "lake/raw/orders.csv").write_text(orders)
        places: dict[str, Any] = {
            "SHOP_LAKE": self.folder / "lake",
            "AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION": self.folder / "outbox",
        }
        return self._home.dags_test(DAG, self.folder / name, **places)

    def tables(self) -> dict[str, list[str]]:
        """Return the rows that each task wrote."""
        tables = {
            task: parquet.read_table(self.folder / "lake" / task).to_pylist() for task in TASKS
        }
        return {task: sorted(map(repr, rows)) for task, rows in tables.items()}

    def ask(self, *arguments: str, outbox: str = "outbox", **environment: str) -> Json:
        given = (*arguments, "--outbox", str(self.folder / outbox), "--json")
        code, output = self._home.spark_datahub(*given, **environment)
        assert code == 0
        return dict(json.loads(output))


def test_impact_is_what_changes_and_the_dropped_column_is_named_first(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    shop = Shop(airflow_home, tmp_path)
    first = shop.runs("first", RIGHT)
    assert first.succeeded, first.output[-20_000:]
    before = shop.tables()
    assert shop.runs("second", WRONG).succeeded
    changed = {task for task, table in shop.tables().items() if table != before[task]} - {"orders"}
    reached = shop.ask("impact", "lake/orders", "--column", "vat")["reached"]
    assert (
        {one["task_id"] for one in reached}
        == changed
        == {"revenue", "report", "export", "partners"}
    )
    assert len({one["run_id"] for one in reached}) == 1
    # Nobody knows what the export read.
    through = {one["task_id"]: one["through"] for one in reached}
    assert through == {
        **dict.fromkeys(("revenue", "report"), ""),
        **dict.fromkeys(("export", "partners"), EXPORT),
    }
    whole = shop.ask("impact", "lake/orders")
    order = [one["task_id"] for one in whole["reached"]]
    assert sorted(order) == ["buyers", "export", "partners", "report", "revenue"]
    assert order.index("export") < order.index("partners")

    # Another host knows the same by DataHub's runs.
    (tmp_path / "empty").mkdir()
    with GmsStandIn() as gms:
        for name in ("first", "second"):
            lines = delivered_lines(sink_in(tmp_path / name))
            proposals = [Proposal.from_obj(json.loads(line)) for line in lines]
            sink = RestSink(RestSettings(gms.url))
            assert sink.deliver(proposals, Deadline.after(60)).problem is None
        environment = {
            "AIRFLOW_CONN_GMS": json.dumps({"conn_type": "datahub-rest", "host": gms.url})
        }
        held = shop.ask(
            "impact", "lake/orders", "--connection", "gms", outbox="empty", **environment
        )
    assert held == whole

    third = shop.runs("third", WITHOUT_VAT)
    assert not third.succeeded
    line = f"{tmp_path}/lake/orders lost the column vat and has the new column tax"
    (named,) = third.reports["revenue try 1"]["changes"]
    assert named.partition(" UTC: ")[2] == line
    assert f"Lineage: {named}" in third.output
    assert shop.ask("changed", DAG, "revenue")["changes"] == [named]
    assert third.reports["orders try 1"]["changes"] != []
    assert first.reports["revenue try 1"]["changes"] == []
