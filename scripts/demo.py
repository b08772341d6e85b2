"""Runs the example DAG in a real Airflow with real Spark jobs, and shows the lineage that came of
it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Other versions run in places of their own (scripts/matrix.py).
DEMO = Path(os.environ.get("DEMO_FOLDER", ROOT / ".cache" / "demo"))
LAKE = DEMO / "shop"
SINK = DEMO / "lineage"
PAGE = DEMO / "lineage.html"
LOG = DEMO / "airflow.log"
SPARK_VENV = Path(os.environ.get("DEMO_SPARK_VENV", ROOT / ".venv-spark"))
# Empty: the coordinate that the operator takes by itself.
JAR = os.environ.get(
    "DEMO_JAR", str(ROOT / ".cache" / "jars" / "openlineage-spark_2.13-1.53.0.jar")
)
DAG = "shop_lineage"
# Lines of Airflow's log that show its progress.
MILESTONES = {
    "running task <": "Task runs",
    " Lineage: ": "Lineage: ",
    "The job runs without lineage": "No lineage",
}
ORDERS, CUSTOMERS = 20_000, 500


def main() -> int:
    """Run the demo; 0 where the DAG succeeded."""
    started = time.monotonic()
    for needed in (SPARK_VENV / "bin" / "spark-submit", *([Path(JAR)] if JAR else [])):
        if not needed.exists():
            print(f"{needed} is missing: run `make setup`.", file=sys.stderr)
            return 1
    DEMO.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(SINK, ignore_errors=True)
    PAGE.unlink(missing_ok=True)
    _say(started, f"Shop data: {ORDERS} orders of {CUSTOMERS} customers")
    _write_shop()
    environment = _environment()
    if not (DEMO / "airflow" / ".migrated").exists():
        _say(started, "Airflow's database (once)")
        _run([_tool("airflow"), "db", "migrate"], environment)
        (DEMO / "airflow" / ".migrated").touch()
    _say(started, f"Airflow runs the DAG {DAG}: two Spark jobs")
    status = _run_dag(environment, started)
    _say(
        started, "The DAG run succeeded" if status == 0 else f"The DAG run failed (status {status})"
    )
    _show(status)
    return status


def _environment() -> dict[str, str]:
    spark = next((SPARK_VENV / "lib").glob("python3*/site-packages/pyspark"))
    connections = {
        "SPARK_DEFAULT": {
            "conn_type": "spark",
            "host": "local[2]",
            "extra": {"deploy-mode": "client"},
        },
        "DATAHUB_DEFAULT": {"conn_type": "datahub-file", "host": str(SINK)},
    }
    return {
        **os.environ,
        **{
            f"AIRFLOW_CONN_{name}": json.dumps(connection)
            for name, connection in connections.items()
        },
        "AIRFLOW_HOME": str(DEMO / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "example_dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        **({"AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR": JAR} if JAR else {}),
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(SPARK_VENV / "bin" / "python"),
        "PATH": f"{SPARK_VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SHOP_LAKE": str(LAKE),
    }


def _write_shop() -> None:
    """The same shop every time."""
    dice = random.Random(2026)
    (LAKE / "raw").mkdir(parents=True, exist_ok=True)
    customers = (
        f"{number},Customer {number},{dice.choice(['DE', 'FR', 'PT'])}"
        for number in range(1, CUSTOMERS + 1)
    )
    _write_csv("customers", "customer_id,name,country", customers)
    orders = (
        f"{number},{dice.randint(1, CUSTOMERS)},{dice.uniform(1, 500):.2f},{dice.choice(['PAID', 'OPEN'])},"
        f"2026-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}"
        for number in range(1, ORDERS + 1)
    )
    renamed = os.environ.get(
        "DEMO_RENAME", "-"
    )  # a column that the second task needs (docs/history.md)
    header = "order_id,customer_id,amount,status,order_date".replace(renamed, f"new_{renamed}")
    _write_csv("orders", header, orders)


def _write_csv(name: str, header: str, rows: Iterable[str]) -> None:
    lines = [header, *rows]
    (LAKE / "raw" / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _run(command: list[str], environment: dict[str, str]) -> None:
    with LOG.open("w") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)


def _run_dag(environment: dict[str, str], started: float) -> int:
    command = [_tool("airflow"), "dags", "test", DAG]
    with (
        LOG.open("w") as log,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as airflow,
    ):
        for line in airflow.stdout or ():
            log.write(line)
            for mark, milestone in MILESTONES.items():
                if mark in line:
                    rest = line.split(mark, 1)[1].split(" [", 1)[0].strip()
                    _say(started, f"  {milestone} {rest}".replace("TaskInstance: ", ""))
        return airflow.wait()


def _show(status: int) -> None:
    if SINK.exists():
        print()
        subprocess.run([_tool("spark-datahub"), "show", str(SINK)], check=False)
        subprocess.run([_tool("spark-datahub"), "show", str(SINK), "-o", str(PAGE)], check=False)
    print("\nWhere everything is:")
    for what, path in (
        ("picture", PAGE),
        ("proposals", SINK),
        ("Airflow's log", LOG),
        ("data", LAKE),
        ("Airflow's home", DEMO / "airflow"),
    ):
        print(f"  {what:<15} {path}")
    if status != 0:
        print(
            f"The end of Airflow's log:\n{''.join(LOG.read_text().splitlines(keepends=True)[-30:])}"
        )


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _say(started: float, message: str) -> None:
    print(f"==> {time.monotonic() - started:5.1f} s  {message}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
