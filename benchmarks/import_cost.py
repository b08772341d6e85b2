"""Cost of importing the operator in a DAG file beside plain SparkSubmitOperator, and of an attempt's own imports.

Each import of an operator runs in a new interpreter; the two take turns, so that both see the same machine. CPU seconds
of the process are compared (wall time is shown, and is noisier). The modules of this package that an attempt with
default options imports are imported RUNS times in one process, so that no other package's are counted.

    python benchmarks/import_cost.py [RUNS]
    python benchmarks/import_cost.py attempt [RUNS]
"""

from __future__ import annotations

import dataclasses
import gc
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

PLAIN = "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator"
OURS = "from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator"
HEAVY = ("datahub", "pyspark", "pandas")
PACKAGE = "airflow_provider_spark_datahub"
OF_AIRFLOW = ("hooks", "operators", "plugins")


def cost(statement: str) -> tuple[float, float]:
    """CPU and wall seconds of a new interpreter that runs the statement."""
    before, started = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, capture_output=True)
    wall, after = time.perf_counter() - started, os.times()
    used = after.children_user - before.children_user + after.children_system - before.children_system
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


def modules_of_an_attempt() -> list[str]:
    """Return the modules of this package that an attempt imports, without those that know Airflow."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.task.test_running import imports_of_an_attempt

    with tempfile.TemporaryDirectory() as folder:
        used, _ = imports_of_an_attempt(Path(folder), "announced")
    own = [name for name in used if name.startswith(f"{PACKAGE}.")]
    return [name for name in own if name.split(".")[1] not in OF_AIRFLOW]


def cost_of_an_attempt(runs: int) -> None:
    """Print the CPU of importing the modules of an attempt, their number, and that of their dataclasses."""
    names = modules_of_an_attempt()

    def import_all() -> float:
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        re.purge()
        before = time.process_time()
        for name in names:
            import_module(name)
        return (time.process_time() - before) * 1000

    # A task imports them while the collector pauses.
    gc.disable()
    import_all()
    costs = [import_all() for _ in range(runs)]
    classes = {one for name in names for one in vars(sys.modules[name]).values() if isinstance(one, type)}
    made = sum(dataclasses.is_dataclass(one) and one.__module__ in names for one in classes)
    print(
        f"{len(names)} modules, {made} dataclasses: {min(costs):.1f} ms of CPU at least, "
        f"{statistics.median(costs):.1f} ms in the median of {runs}"
    )


def main() -> None:
    """Print both costs and their ratio, or the cost of an attempt."""
    if sys.argv[1:2] == ["attempt"]:
        cost_of_an_attempt(int(sys.argv[2]) if len(sys.argv) > 2 else 15)
        return
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
