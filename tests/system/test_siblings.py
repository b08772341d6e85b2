"""The runs of a mapped task in a real Airflow; the Spark below them is a script that writes their
events.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.airflow_versions import AIRFLOW
from tests.conversion.builders import urn
from tests.operators.copies import datasets, write_events
from tests.operators.tries import FakeSpark
from tests.oracles.stored import stored_edges
from tests.system.airflow_home import AirflowHome, Json, file_connection, sink_in
from tests.system.catalogue import Catalogue, task_job
from tests.system.test_tables import pairs_of

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAG = "siblings"


def received(metrics: socket.socket) -> Counter[str]:
    """Return what came by StatsD's protocol, and how often."""
    metrics.setblocking(False)
    found: Counter[str] = Counter()
    with suppress(BlockingIOError):
        while True:
            found.update(metrics.recv(65_536).decode().splitlines())
    return found


def test_edges_of_a_mapped_task_are_those_of_its_last_dag_run(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    environment = {"SPARK_HOME": str(tmp_path / "spark")}
    spark = FakeSpark(tmp_path, environment.__setitem__)
    for number in (1, 2, 3, 9):
        write_events(spark, number)

    metrics = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    metrics.bind(("127.0.0.1", 0))
    metrics.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    statsd = {"ON": True, "HOST": "127.0.0.1", "PORT": metrics.getsockname()[1]}

    def run(numbers: str) -> list[Json]:
        run = airflow_home.dags_test(
            DAG,
            tmp_path / f"run of {numbers}",
            {"datahub_file": file_connection(tmp_path)},
            fresh=AIRFLOW < (3, 3),  # a warm one cannot send metrics anywhere else
            NUMBERS=numbers,
            AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION=tmp_path / "outbox",
            AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR=spark.jar,
            **{f"AIRFLOW__METRICS__STATSD_{name}": value for name, value in statsd.items()},
            **environment,
        )
        assert run.succeeded, run.output
        return Catalogue.of_folder(sink_in(tmp_path)).proposals

    def check(proposals: list[Json], copied: range) -> None:
        task = stored_edges(proposals)[task_job(DAG, "copy")]
        assert (task.inputs, task.outputs) == (set(), datasets("out", copied))
        # The code of the last task's application gives it the name of the others.
        tables = (*copied, 9)
        assert pairs_of(proposals) == {
            (urn("file", f"/in/{number}"), urn("file", f"/out/{number}")) for number in tables
        }

    check(run("1,2,3"), range(1, 4))
    counted = received(metrics)
    metrics.close()
    assert counted["airflow.spark_datahub.tasks.with_lineage:1|c"] == 4
    assert (
        sum(
            count
            for name, count in counted.items()
            if name.startswith("airflow.spark_datahub.added:")
        )
        == 4
    )
    delivered = "airflow.spark_datahub.proposals.delivered:"
    assert (
        sum(
            int(name.removeprefix(delivered)[:-2]) for name in counted if name.startswith(delivered)
        )
        > 0
    )

    catalogue = Catalogue.of_folder(sink_in(tmp_path))
    catalogue.assert_strict()
    relationships = catalogue.one(
        catalogue.task_run(DAG, "last"), "dataProcessInstanceRelationships"
    )
    # Airflow knows which indexes ran.
    assert relationships["upstreamInstances"] == [
        catalogue.task_run(DAG, "copy", index) for index in range(3)
    ]

    check(run("2"), range(2, 3))
