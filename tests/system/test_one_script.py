"""DAGs whose Spark applications have one name: each keeps its edges, whatever runs after it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.oracles.stored import stored_edges
from tests.system.airflow_home import AirflowHome, file_connection, sink_in
from tests.system.catalogue import Catalogue, file_dataset, spark_job, task_job
from tests.system.reports import JOBS

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    ("application", "dag_ids"), [("ingest", ("ingest_1", "ingest_2", "ingest_3")), ("main.py", ("main_1", "main_2"))]
)
def test_dags_that_run_one_script_keep_each_others_edges(
    airflow_home: AirflowHome, tmp_path: Path, application: str, dag_ids: tuple[str, ...]
) -> None:
    for dag_id in dag_ids:
        folder = tmp_path / dag_id
        folder.mkdir()
        (folder / "in.csv").write_text("id,name\n1,a\n")
        shutil.copyfile(JOBS / "copy_csv.py", folder / "main.py")
        connections, policy = {"datahub_file": file_connection(tmp_path)}, "SparkSubmitOperator"
        run = airflow_home.dags_test(dag_id, folder, connections, AIRFLOW__SPARK_DATAHUB__AUTO=policy)
        assert run.succeeded, run.output

    catalogue = Catalogue.of_folder(sink_in(tmp_path))
    catalogue.assert_strict()
    assert catalogue.have_both_sources == [True] * len(dag_ids)
    stored = stored_edges(catalogue.proposals)
    jobs = {dag_id: spark_job(dag_id, "load", application) for dag_id in dag_ids}
    assert {*jobs.values()} == {urn for urn in stored if ":(spark," in urn}
    for dag_id, job in jobs.items():
        source, target = (file_dataset(tmp_path / dag_id / name) for name in ("in.csv", "out"))
        columns = {
            (f"urn:li:schemaField:({target},{name})", f"urn:li:schemaField:({source},{name})")
            for name in ("id", "name")
        }
        assert stored[job].inputs == {source}
        assert stored[job].outputs == {target}
        assert stored[job].columns == columns
        assert stored[job].jobs == {task_job(dag_id, "load")}
        assert catalogue.one(job, "dataJobInfo")["name"] == application
