"""What the cluster policy costs when DAGs are parsed: 100 DAGs of 10 Spark tasks each, in Airflow's DagBag.

Each parse runs in a new interpreter, without the policy's entry point, with it switched off, and with it switched on;
the three take turns. CPU seconds of the parse are compared, without the interpreter's start and Airflow's import.

    python benchmarks/policy_cost.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

DAGS, TASKS = 100, 10
DAG_FILE = """
from datetime import datetime
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG("shop_{number}", schedule=None, start_date=datetime(2026, 1, 1)):
    for task in range({tasks}):
        SparkSubmitOperator(task_id=f"task_{{task}}", application="job.py")
"""
PARSE = """
import json, sys, time
from airflow import settings
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
manager = settings.get_policy_plugin_manager()
for plugin in list(manager.get_plugins()):
    if getattr(plugin, "__name__", "") == "airflow_provider_spark_datahub.plugins.policy":
        manager.unregister(plugin)
if sys.argv[2] != "absent":
    from airflow_provider_spark_datahub.plugins import policy
    manager.register(policy)
before = time.process_time()
bag = DagBag(sys.argv[1])
cpu = time.process_time() - before
tasks = [task for dag in bag.dags.values() for task in dag.tasks]
ours = sum(any(base.__name__ == "SparkLineageOperator" for base in type(task).__mro__) for task in tasks)
print(json.dumps([cpu, len(tasks), ours]))
"""


def parse(folder: Path, mode: str) -> tuple[float, int, int]:
    """CPU seconds of a parse, its tasks, and how many of them have lineage."""
    env = {**os.environ, "AIRFLOW_HOME": str(folder / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    env["AIRFLOW__SPARK_DATAHUB__AUTO"] = "SparkSubmitOperator" if mode == "on" else ""
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(folder / "dags"), mode], env=env, check=True, capture_output=True, text=True
    )
    cpu, tasks, ours = json.loads(done.stdout.splitlines()[-1])
    return cpu, tasks, ours


def main() -> None:
    """Print the cost of each mode."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    modes = ("absent", "off", "on")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "dags").mkdir()
        for number in range(DAGS):
            (folder / "dags" / f"shop_{number}.py").write_text(DAG_FILE.format(number=number, tasks=TASKS))
        results = {mode: [] for mode in modes}  # type: dict[str, list[tuple[float, int, int]]]
        for _ in range(rounds):
            for mode in modes:
                results[mode].append(parse(folder, mode))
    for mode, parses in results.items():
        cpu = [one[0] for one in parses]
        print(
            f"{mode:<7} {statistics.median(cpu):.2f} s CPU (minimum {min(cpu):.2f}) for {DAGS} DAGs, "
            f"{parses[0][1]} tasks, {parses[0][2]} with lineage"
        )


if __name__ == "__main__":
    main()
