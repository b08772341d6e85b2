"""Cost of importing the operator in a DAG file, beside the plain SparkSubmitOperator.

Each import runs in a new interpreter; the two take turns, so that both see the same machine. CPU
seconds of the process are compared (wall time is shown, and is noisier).

    python benchmarks/import_cost.py [RUNS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

PLAIN = "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator"
OURS = (
    "from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator"
)
HEAVY = ("datahub", "pyspark", "pandas")


def cost(statement: str) -> tuple[float, float]:
    """CPU and wall seconds of a new interpreter that runs the statement."""
    before, started = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, capture_output=True)
    wall, after = time.perf_counter() - started, os.times()
    used = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    return used, wall


def heavy_modules() -> list[str]:
    """Which heavy packages the import of the operator brings that the plain one does not."""
    script = "import sys; {}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    loaded = [
        set(subprocess.run([sys.executable, "-c", script.format(one)], check=True, capture_output=True, text=True)
            .stdout.split("\n")[-2].split())
        for one in (PLAIN, OURS)
    ]  # fmt: skip
    return [name for name in HEAVY if name in loaded[1] - loaded[0]]


def main() -> None:
    """Print both costs and their ratio."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    for statement in (PLAIN, OURS):
        cost(statement)
    pairs = [(cost(PLAIN), cost(OURS)) for _ in range(runs)]
    for name, index in (("CPU", 0), ("wall", 1)):
        plain, ours = ([pair[which][index] for pair in pairs] for which in (0, 1))
        ratio = statistics.median(after / before for before, after in zip(plain, ours, strict=True))
        print(
            f"{name:<5} plain {statistics.median(plain):.3f} s, ours {statistics.median(ours):.3f} s "
            f"(medians of {runs}), ratio pair by pair {ratio:.3f}, of the minima {min(ours) / min(plain):.3f}"
        )
    print(f"heavy packages that only ours imports: {', '.join(heavy_modules()) or 'none'}")


if __name__ == "__main__":
    main()
