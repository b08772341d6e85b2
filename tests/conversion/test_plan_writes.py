"""Writes of hand-written plans: each sink, with what reaches it."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.conversion.spark_log.log import SqlExecution
from airflow_provider_spark_datahub.conversion.spark_log.plan_writes import (
    _PlanWrite,
    has_driver_rows,
    writes_of,
)
from tests.conversion.event_logs import app_started, execution, read_log


def parts_of(*plans: str) -> list[SqlExecution]:
    """Return an execution with the first plan, and its inner ones with the others."""
    events = [app_started()]
    for number, plan in enumerate(plans):
        events += execution(number, 10, 12, plan, root=0)
    (application,) = read_log(events)
    return [*application.executions.values()]


def plan(tree: str, *nodes: str) -> str:
    return f"== Physical Plan ==\n{tree}\n\n\n" + "\n".join(f"{node}\n" for node in nodes) + "\n"


def scan(number: int, name: str) -> str:
    location = f"Location: InMemoryFileIndex [file:/lake/{name}]"
    return f"({number}) Scan parquet \nOutput [1]: [id#1]\n{location}\n"


def insert(number: int, name: str) -> str:
    command = f"({number}) Execute InsertIntoHadoopFsRelationCommand\nInput [1]: [id#1]\n"
    return f"{command}Arguments: file:/lake/{name}, false, Parquet, [path=x], Append, [id]\n"


def reaching(writes: list[_PlanWrite]) -> dict[str, list[str]]:
    """Return the paths that reach each sink."""
    return {
        write.sink.path.rpartition("/")[2]: sorted(
            source.path.rpartition("/")[2] for source in write.sources
        )
        for write in writes
    }


def written(*plans: str) -> dict[str, list[str]]:
    return reaching([*writes_of(parts_of(*plans))])


SINK = "Execute InsertIntoHadoopFsRelationCommand"
ONE_SCAN = plan(f"{SINK} (2)\n+- Scan parquet  (1)", scan(1, "a"), insert(2, "x"))


TWO_SINKS = (
    f"Union (5)\n:- {SINK} (2)\n:  +- Scan parquet  (1)\n+- {SINK} (4)\n   +- Scan parquet  (3)"
)
OF_TWO = scan(1, "a"), insert(2, "x"), scan(3, "b"), insert(4, "y"), "(5) Union\n"


def test_the_sinks_of_a_plan_have_what_stands_below_each() -> None:
    assert written(plan(TWO_SINKS, *OF_TWO)) == {"x": ["a"], "y": ["b"]}


def test_a_scan_that_a_plan_draws_nowhere_reaches_each_of_its_sinks() -> None:
    of_cache = plan(TWO_SINKS, *OF_TWO, scan(1_000_000, "limits"))
    assert written(of_cache) == {"x": ["a", "limits"], "y": ["b", "limits"]}


def test_the_parts_of_an_execution_write_what_each_reads() -> None:
    # Two writes of a function of foreachBatch.
    other = plan(f"{SINK} (2)\n+- Scan parquet  (1)", scan(1, "b"), insert(2, "y"))
    assert written("", ONE_SCAN, other) == {"x": ["a"], "y": ["b"]}


def test_the_source_of_a_subquery_reaches_the_sink_that_hosts_it() -> None:
    hosted = plan(
        f"{SINK} (3)\n+- Filter (2)\n   +- Scan parquet  (1)",
        scan(1, "a"),
        "(2) Filter\nInput [1]: [id#1]\nCondition : (id#1 > Subquery scalar-subquery#9, [id=#10])\n",
        insert(3, "x"),
        "===== Subqueries =====\n",
        "Subquery:1 Hosting operator id = 2 Hosting Expression = Subquery scalar-subquery#9, [id=#10]\n"
        "Scan parquet  (4)\n\n",
        scan(4, "limits"),
    )
    assert written(hosted) == {"x": ["a", "limits"]}


def test_what_a_reused_exchange_repeats_reaches_the_sink() -> None:
    tree = (
        f"Union (7)\n:- {SINK} (3)\n:  +- Exchange (2)\n:     +- Scan parquet  (1)\n"
        f"+- {SINK} (6)\n   +- Union (8)\n      :- ReusedExchange (4)\n      +- Scan parquet  (5)"
    )
    nodes = (
        scan(1, "a"),
        "(2) Exchange\nInput [1]: [id#1]\n",
        insert(3, "x"),
        "(4) ReusedExchange [Reuses operator id: 2]\nOutput [1]: [id#1]\n",
        scan(5, "b"),
        insert(6, "y"),
        "(7) Union\n",
        "(8) Union\n",
    )
    assert written(plan(tree, *nodes)) == {"x": ["a"], "y": ["a", "b"]}


def write_of(leaf: str, body: str) -> str:
    """Return a plan that writes the rows of a leaf."""
    return plan(f"{SINK} (2)\n+- {leaf} (1)", f"(1) {leaf}\n{body}\n", insert(2, "x"))


RDD = "Scan ExistingRDD"


@pytest.mark.parametrize(
    ("leaf", "body", "is_of_driver", "is_checkpoint"),
    [
        ("LocalTableScan", "Output [1]: [id#1]\nArguments: [id#1]", True, False),
        ("LocalTableScan", "Output [1]: [id#1]\nArguments: <empty>, [id#1]", False, False),
        (RDD, "Arguments: [id#1], MapPartitionsRDD[4] at map at X.java:0", True, False),
        (RDD, "Arguments: [id#1], MapPartitionsRDD[4] at localCheckpoint at X.java:0", False, True),
        (RDD, "Arguments: [txn#1, add#2], MapPartitionsRDD[4] at X.java:0", False, False),
        ("Range", "Output [1]: [id#1]\nArguments: Range (0, 9, step=1)", False, False),
    ],
)
def test_rows_of_the_driver_and_of_checkpoints_reach_a_sink(
    leaf: str, body: str, is_of_driver: bool, is_checkpoint: bool
) -> None:
    parts = parts_of(write_of(leaf, body))
    (write,) = writes_of(parts)
    assert (write.has_driver_rows, write.reads_checkpoint) == (is_of_driver, is_checkpoint)
    assert has_driver_rows(parts) == is_of_driver


def test_rows_of_the_driver_reach_only_the_sink_above_them() -> None:
    first, second = writes_of(parts_of("", ONE_SCAN, write_of("LocalTableScan", "Output: [id#1]")))
    assert (first.has_driver_rows, second.has_driver_rows) == (False, True)


def test_a_write_of_a_micro_batchs_rows_has_what_the_batch_reads() -> None:
    batch = plan("Scan parquet  (1)", scan(1, "arrivals"))
    rows = write_of(RDD, "Arguments: [id#1], SQLExecutionRDD[7] at foreachBatch at X.java:0")
    assert written(batch, rows) == {"x": ["arrivals"]}
