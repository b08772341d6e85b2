"""Cost of lineage for a task: seconds before, during and after Spark, beside plain
``SparkSubmitOperator``.

Each task runs in a new process, by ``airflow dags test``. The kinds take turns, so that all see the
same machine.

    plain        SparkSubmitOperator
    listener     the same, with OpenLineage's listener, whose events go to a file that nobody reads
    rest         SparkSubmitDatahubOperator, to a server that takes everything, in another process
    shared       the same, with the archive of Java classes that ``spark-datahub warm`` wrote

Jobs: ``demo`` is ``example_dags/jobs/build_orders.py``; ``tasks`` is a query of 20,000 of Spark's
tasks, of 1 ms each, whose event log mentions all of them.

    python benchmarks/task_cost.py [--runs N] [--kinds plain,rest] [JOB …]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
JAR = (ROOT / ".cache" / "jars" / "openlineage-spark_2.13-1.53.0.jar").resolve()
SPARK_ENV = (ROOT / ".venv-spark").resolve()
KINDS = ("plain", "listener", "rest", "shared")
FIGURES = ("before", "during", "after", "CPU of the task", "CPU of Spark")
WALLS = 3
_TASKS = """from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").appName("tasks").getOrCreate()
rows = spark.range(0, 20_000, 1, 20_000).selectExpr("java_method('java.lang.Thread', 'sleep', 1L) AS slept")
rows.selectExpr("count(slept) AS slept").write.mode("overwrite").parquet("{output}")
"""
_SERVER = """import threading
from tests.oracles.gms import GmsStandIn

with GmsStandIn() as gms:
    print(gms.url, flush=True)
    threading.Event().wait()
"""
_DAG_FILE = """from airflow.sdk import DAG
from benchmarks.task_cost import measured_dag

dag = measured_dag()
"""


# -- one task, in a process of its own


class Moment:
    """Wall and CPU seconds up to now: of this process, and of its children that have ended."""

    def __init__(self) -> None:
        own, children = (
            resource.getrusage(resource.RUSAGE_SELF),
            resource.getrusage(resource.RUSAGE_CHILDREN),
        )
        self.wall = time.perf_counter()
        self.own = own.ru_utime + own.ru_stime
        self.children = children.ru_utime + children.ru_stime


def measured_dag() -> Any:
    """The DAG of one task, of the kind and the job that the environment names; it leaves
    :data:`FIGURES` in a file.
    """
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import DAG

    folder = Path(os.environ["TASK_COST_FOLDER"])
    moments: list[Moment] = []
    with DAG("task_cost", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        operator = _operator(os.environ["TASK_COST_KIND"], os.environ["TASK_COST_JOB"], folder)
    _note_around(type(operator), "execute", moments, lambda: _leave(moments, folder / "figures"))
    _note_around(SparkSubmitHook, "submit", moments)
    return dag


def _leave(moments: list[Moment], path: Path) -> None:
    entered, submitted, ended, left = moments
    walls = [later.wall - earlier.wall for earlier, later in pairwise(moments)]
    path.write_text(
        json.dumps([*walls, left.own - entered.own, ended.children - submitted.children])
    )


def _operator(kind: str, job: str, folder: Path) -> Any:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator

    arguments: dict[str, Any] = {
        "task_id": "task",
        "name": f"task_cost_{job}",
        "application": str(
            folder / "tasks.py"
            if job == "tasks"
            else ROOT / "example_dags" / "jobs" / "build_orders.py"
        ),
        "application_args": [str(folder / "shop")],
    }
    conf = {"spark.ui.enabled": "false", "spark.log.level": "WARN"}
    if kind == "plain":
        return SparkSubmitOperator(**arguments, conf=conf)
    if kind == "listener":
        listener = {
            "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
            "spark.openlineage.transport.type": "file",
            "spark.openlineage.transport.location": str(folder / "listener.ndjson"),
            "spark.driver.extraJavaOptions": "--add-opens=java.base/java.security=ALL-UNNAMED",
        }
        return SparkSubmitOperator(**arguments, conf=conf | listener, jars=str(JAR))
    return SparkSubmitDatahubOperator(
        **arguments, conf=conf, datahub_conn_id="datahub_rest", openlineage_jar=str(JAR)
    )


def _note_around(
    holder: type, name: str, moments: list[Moment], afterwards: Callable[[], None] = lambda: None
) -> None:
    """Note the moments before and after each call of a method."""
    call = getattr(holder, name)

    def noted(*arguments: Any, **more: Any) -> Any:
        moments.append(Moment())
        result = call(*arguments, **more)
        moments.append(Moment())
        afterwards()
        return result

    setattr(holder, name, noted)


# -- all tasks in turn


def figures_of(
    kind: str, job: str, folder: Path, archives: Path, environment: Mapping[str, str]
) -> list[float]:
    """:data:`FIGURES` of one task, which runs in a new process."""
    given = {**environment, "TASK_COST_KIND": kind, "TASK_COST_JOB": job}
    used = Path(environment["AIRFLOW_HOME"]) / "spark_datahub" / "classes"
    used.unlink(missing_ok=True)
    if kind == "shared":
        used.parent.mkdir(exist_ok=True)
        used.symlink_to(archives)
    command = [_airflow(), "dags", "test", "task_cost"]
    done = subprocess.run(
        command, env=given, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"The {kind} task of {job} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    left = folder / "figures"
    figures: list[float] = json.loads(left.read_text())
    left.unlink()
    return figures


def _airflow() -> str:
    return str(Path(sys.executable).parent / "airflow")


@contextmanager
def gms() -> Iterator[str]:
    """Start a server that takes everything, in a process of its own, and yield its URL."""
    command, path = [sys.executable, "-c", _SERVER], {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=path, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip() if server.stdout else ""
        finally:
            server.kill()


def environment(folder: Path, url: str) -> dict[str, str]:
    """An Airflow of its own, with a migrated database."""
    connections = {
        "spark_default": {
            "conn_type": "spark",
            "host": "local[2]",
            "extra": {"deploy-mode": "client"},
        },
        "datahub_rest": {"conn_type": "datahub-rest", "host": url},
    }
    made = {
        **os.environ,
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(one) for name, one in connections.items()},
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{SPARK_ENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SPARK_HOME": str(next((SPARK_ENV / "lib").glob("python3*/site-packages/pyspark"))),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(SPARK_ENV / "bin" / "python"),
        "TASK_COST_FOLDER": str(folder),
    }
    (folder / "dags").mkdir()
    (folder / "dags" / "task_cost.py").write_text(_DAG_FILE)
    subprocess.run([_airflow(), "db", "migrate"], env=made, check=True, capture_output=True)
    return made


def lay_out(folder: Path) -> None:
    """Write what the jobs need."""
    raw = folder / "shop" / "raw"
    raw.mkdir(parents=True)
    customers = [
        f"{number},Customer {number},{['DE', 'FR', 'PT'][number % 3]}" for number in range(500)
    ]
    orders = [
        f"{one},{one % 500},{one % 97}.5,{'PAID' if one % 2 else 'OPEN'},2026-01-01"
        for one in range(20_000)
    ]
    (raw / "customers.csv").write_text("\n".join(["customer_id,name,country", *customers]) + "\n")
    (raw / "orders.csv").write_text(
        "\n".join(["order_id,customer_id,amount,status,order_date", *orders]) + "\n"
    )
    (folder / "tasks.py").write_text(_TASKS.format(output=folder / "slept"))


def print_costs(figures: Mapping[str, list[list[float]]]) -> None:
    """Print the medians of what each task adds to the plain one of the same turn, and of their
    ratio.
    """
    for kind, rows in list(figures.items())[1:]:
        pairs = list(zip(rows, figures["plain"], strict=True))
        added = [
            statistics.median(row[number] - plain[number] for row, plain in pairs)
            for number in range(len(FIGURES))
        ]
        walls = ([sum(row[:WALLS]) for row in pair] for pair in pairs)
        ratio = statistics.median(wall / of_plain for wall, of_plain in walls)
        costs = ", ".join(
            f"{name} {seconds:+.2f} s" for name, seconds in zip(FIGURES, added, strict=True)
        )
        print(f"{kind:<8} {ratio:.2f} of plain; {costs}", flush=True)


def main() -> None:
    """Print a table for each job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("jobs", nargs="*", default=["demo"])
    options = parser.parse_args()
    kinds = list(dict.fromkeys(["plain", *options.kinds.split(",")]))
    with tempfile.TemporaryDirectory() as place, gms() as url:
        folder = Path(place)
        archives, base = folder / "classes", environment(folder, url)
        lay_out(folder)
        if "shared" in kinds:
            warm = [
                str(Path(sys.executable).with_name("spark-datahub")),
                "warm",
                "--folder",
                str(archives),
            ]
            warm += [
                "--openlineage-jar",
                str(JAR),
                "--spark-submit",
                str(SPARK_ENV / "bin" / "spark-submit"),
            ]
            subprocess.run(warm, env=base, check=True, stdout=sys.stderr)
        for job in options.jobs:
            figures: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
            # One turn that does not count: it warms the machine's caches.
            for turn in range(options.runs + 1):
                for kind in kinds:
                    figures[kind].append(figures_of(kind, job, folder, archives, base))
                    print(
                        job,
                        turn,
                        kind,
                        *(f"{figure:.2f}" for figure in figures[kind][-1]),
                        file=sys.stderr,
                    )
            print(f"{job}, {options.runs} runs, added to the plain task of the turn (medians)")
            print_costs({kind: rows[1:] for kind, rows in figures.items()})


if __name__ == "__main__":
    main()
