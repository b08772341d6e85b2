"""A mapped task beside DataHub's own Airflow plugin, in a real Airflow; Spark is a script that
writes its events.

The plugin pins its sqlglot, which this repository's environment has newer. `make matrix
ROWS=datahub-plugin` runs these tests in an environment of their own.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.operators.copies import SPARK_JOB, datasets, write_events
from tests.operators.tries import FakeSpark
from tests.oracles.gms import GmsStandIn
from tests.oracles.stored import stored_edges
from tests.servers.process import closed_port
from tests.system.airflow_home import AirflowHome
from tests.system.catalogue import Catalogue, output_job, task_job

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.slow,
    pytest.mark.skipif(
        not find_spec("datahub_airflow_plugin"), reason="DataHub's Airflow plugin is not installed"
    ),
]

DAG = "siblings"
COPY, SPARK_COPY = task_job(DAG, "copy"), SPARK_JOB.format(f"{DAG}.copy")
OF_THE_PLUGIN = {"dataFlowInfo", "dataJobInfo", "ownership", "globalTags"}


@pytest.mark.parametrize("when", ["at the end of the task", "after the DAG run"])
def test_a_mapped_task_with_a_failed_attempt_keeps_all_its_edges_beside_the_plugin(
    airflow_home: AirflowHome, tmp_path: Path, when: str
) -> None:
    """Both orders of delivery; two DAG runs of three indexes, and one index fails at first."""
    environment: dict[str, Any] = {"SPARK_HOME": tmp_path / "spark", "NUMBERS": "1,2,3"}
    spark = FakeSpark(tmp_path, environment.__setitem__)
    for number in (1, 2, 3, 9):
        write_events(spark, number)
    environment |= {
        "AIRFLOW__DATAHUB__CAPTURE_OL_FILE_DATASETS": True,
        "AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR": spark.jar,
        "AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION": tmp_path / "outbox",
    }
    with GmsStandIn() as gms:
        gms_connection = {"conn_type": "datahub-rest", "host": gms.url}
        own = gms_connection
        if when == "after the DAG run":
            own = {**gms_connection, "host": f"http://127.0.0.1:{closed_port()}"}
        for number in (1, 2):
            spark.fails_once("2")
            before = len(gms.stored)
            connections = {"datahub_rest_default": gms_connection, "datahub_file": own}
            run = airflow_home.dags_test(
                DAG, tmp_path / f"run {number}", connections, fresh=True, **environment
            )
            assert run.succeeded, run.output
            if own is not gms_connection:
                by_plugin = len(gms.stored)
                connection = {"AIRFLOW_CONN_DATAHUB_FILE": json.dumps(gms_connection)}
                status, output = airflow_home.spark_datahub("emit", **{**environment, **connection})
                assert status == 0, output
                assert not OF_THE_PLUGIN.intersection(_aspects_of_airflow(gms.stored[by_plugin:]))
            assert OF_THE_PLUGIN.intersection(_aspects_of_airflow(gms.stored[before:])) >= {
                "dataFlowInfo",
                "dataJobInfo",
            }
            _check_edges(gms, before if number == 2 else None)
            _check_runs(Catalogue(gms.stored[before:]))
        assert gms.dropped == []


def _aspects_of_airflow(proposals: list[dict[str, Any]]) -> set[str]:
    return {
        one["aspectName"]
        for one in proposals
        if one["entityUrn"].startswith(("urn:li:dataFlow:(airflow", COPY))
    }


def _check_edges(gms: GmsStandIn, second_run: int | None) -> None:
    """Edges of the mapped task and of its Spark application.

    :param second_run: place of its first proposal, from which on no write may leave out an edge.
    """
    found, copied = stored_edges(gms.stored), range(1, 4)
    assert (found[COPY].inputs, found[COPY].outputs) == (set(), datasets("out", copied))
    for number in copied:
        sources, outputs = (datasets(side, [number]) for side in ("in", "out"))
        job = found[output_job(SPARK_COPY, *outputs)]
        assert (job.inputs, job.outputs, len(job.columns)) == (sources, outputs, 1)
    for end in range(second_run or len(gms.stored), len(gms.stored)):
        stored = gms.stored[end]
        if stored["aspectName"] == "dataJobInputOutput" and stored["entityUrn"] == COPY:
            edges = stored_edges(gms.stored[: end + 1])
            assert edges[COPY].outputs == datasets("out", copied)


def _check_runs(catalogue: Catalogue) -> None:
    """Check that the plugin's run of the mapped task is below the DAG run, and the runs of the
    indexes below it.
    """
    mapped = catalogue.task_run(DAG, "copy")
    indexes = [catalogue.task_run(DAG, "copy", index) for index in range(3)]
    assert mapped in catalogue.children(catalogue.dag_run(DAG))
    assert sorted(catalogue.children(mapped)) == sorted(indexes)
    for index, urn in enumerate(indexes):
        attempts = ["UP_FOR_RETRY", "SUCCESS"] if index == 1 else ["SUCCESS"]
        assert [result for _, _, result in catalogue.run_events(urn) if result] == attempts
