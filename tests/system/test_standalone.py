"""Spark's standalone cluster: a master and two workers, and a path at which each of them sees another folder.

``make test-standalone`` runs this as root of Linux (mount namespaces). It starts nine Javas, so the suite skips it.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.operators.tries import configure_airflow, context_of, dag
from tests.servers.process import free_port
from tests.system.airflow_home import OPENLINEAGE_JAR, SPARK_ENV, spark_home
from tests.system.catalogue import Catalogue, edges, file_dataset, spark_job

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    # The provider's hook does not close the output of the processes that it asks for the driver's status.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif("STANDALONE" not in os.environ, reason="make test-standalone"),
]
_START_SECONDS = 600
_HOST = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
JOB = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.csv(sys.argv[1], header=True).selectExpr("id", "amount * 2 AS double").write.parquet(sys.argv[2])
spark.stop()
"""


@dataclass
class Cluster:
    """A master and two workers. :ivar folder: holds ``local``, which is another folder for each, and ``shared``."""

    folder: Path
    master: str
    processes: ExitStack
    log: Path

    def start(self, *command: str, host: str | None = None) -> None:
        """Start a process, in a mount namespace whose ``local`` is that of a host."""
        program = [str(spark_home() / "bin/spark-class"), *command]
        if host:
            (self.folder / host).mkdir()
            program = [
                "unshare",
                "-m",
                "bash",
                "-c",
                _HOST,
                "-",
                str(self.folder / host),
                str(self.folder / "local"),
                *program,
            ]
        output = self.processes.enter_context(self.log.open("ab"))
        process = subprocess.Popen(program, stdout=output, stderr=output)
        self.processes.callback(process.wait)
        self.processes.callback(process.kill)

    def wait_for(self, text: str, count: int = 1) -> None:
        end = time.monotonic() + _START_SECONDS
        while self.log.read_text(errors="replace").count(text) < count:
            assert time.monotonic() < end, self.log.read_text(errors="replace")[-3000:]
            time.sleep(0.5)

    def run(self, mode: str, events: str) -> Any:
        """Run the job by the operator. Return its report.

        :param events: folder of the events, in :attr:`folder`.
        """
        name = f"{mode}_{events}"
        job = [str(self.folder / "shared/orders.csv"), str(self.folder / f"shared/out_{name}")]
        script = str(self.folder / "shared/job.py")
        application: dict[str, Any] = {"application": script, "application_args": job}
        if mode == "cluster":
            # A Python application may not be submitted in this mode, the class that runs it may.
            core = next(spark_home().glob("jars/spark-core_*.jar")).as_uri()
            runner = "org.apache.spark.deploy.PythonRunner"
            application = {"application": core, "java_class": runner, "application_args": [script, "", *job]}
        connection = {"conn_type": "spark", "host": self.master, "extra": {"deploy-mode": mode}}
        os.environ["AIRFLOW_CONN_CLUSTER"] = json.dumps(connection)
        conf = {"spark.executor.cores": "1", "spark.cores.max": "1", "spark.executor.memory": "512m"}
        python = str(SPARK_ENV / "bin/python")
        operator = SparkSubmitDatahubOperator(
            task_id="build",
            dag=dag(),
            name=name,
            conn_id="cluster",
            conf={**conf, "spark.driver.memory": "512m", "spark.pyspark.python": python},
            datahub_conn_id="datahub_file",
            openlineage_jar=str(OPENLINEAGE_JAR.resolve()),
            events_location=str(self.folder / events / "events"),
            durable=False,
            **application,
        )
        context = context_of(operator)
        operator.execute(context)
        return context["ti"].xcoms["lineage_report"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("local", "shared"):
        (folder / name).mkdir()
    (folder / "shared/orders.csv").write_text("id,amount\n1,10\n2,3\n")
    (folder / "shared/job.py").write_text(JOB)
    port = free_port()
    with ExitStack() as processes:
        environment = processes.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("PATH", f"{SPARK_ENV / 'bin'}{os.pathsep}{os.environ['PATH']}")
        environment.setenv("PYSPARK_PYTHON", str(SPARK_ENV / "bin/python"))
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("SPARK_DAEMON_MEMORY", "256m")
        environment.setenv("AIRFLOW_CONN_CLUSTER", "{}")
        cluster = Cluster(folder, f"spark://127.0.0.1:{port}", processes, folder / "cluster.log")
        master = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        cluster.start("org.apache.spark.deploy.master.Master", *master)
        cluster.wait_for("I have been elected leader")
        for host in ("one", "two"):
            worker = ("--host", "127.0.0.1", "--cores", "2", "--memory", "2g", "--webui-port", str(free_port()))
            work = ("--work-dir", str(folder / f"work-{host}"))
            cluster.start("org.apache.spark.deploy.worker.Worker", *worker, *work, cluster.master, host=host)
        cluster.wait_for("Successfully registered with master", 2)
        yield cluster


@pytest.mark.parametrize(("mode", "events"), [("client", "local"), ("cluster", "shared"), ("cluster", "local")])
def test_a_job_on_a_standalone_cluster_has_lineage_if_its_events_are_shared(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, events: str
) -> None:
    configure_airflow(tmp_path, monkeypatch.setenv)
    report = cluster.run(mode, events)
    gc.collect()  # while the warnings of the provider's hook are ignored
    assert (cluster.folder / f"shared/out_{mode}_{events}/_SUCCESS").exists()
    if (mode, events) == ("cluster", "local"):
        # The events are on the host of the driver, under the same path.
        assert report["events"] == 0
        assert "the driver ran on another machine" in report["reason"]
        assert "a folder that both share" in report["reason"]
        assert len(list(cluster.folder.glob("[ot][nw][eo]/events/**/*.ndjson"))) == 1
        return
    assert (report["reason"], report["pending"]) == (None, 0)
    job = Catalogue.of_folder(tmp_path / "sink").one(
        spark_job("shop", "build", f"{mode}_{events}"), "dataJobInputOutput"
    )
    assert edges(job, "input") == {file_dataset(cluster.folder / "shared/orders.csv")}
    assert edges(job, "output") == {file_dataset(cluster.folder / f"shared/out_{mode}_{events}")}
    assert not list(cluster.folder.glob(f"{events}/events/**/*.ndjson"))
