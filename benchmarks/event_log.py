"""Speed and memory of reading an event log of Spark that mentions many tasks, plain and with zstd.

The log has a start and an end for each task, of the sizes that Spark 4.3 writes, and an execution for every hundred.

    python benchmarks/event_log.py [TASKS]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zstandard

from airflow_provider_spark_datahub.capture import EventLog

ACCUMULABLES = 21


def lines(tasks: int) -> list[bytes]:
    """Return the lines of a log."""
    sql = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
    found: list[dict[str, Any]] = [{"Event": "SparkListenerApplicationStart", "App ID": "local-1", "App Name": "many"}]
    for task in range(tasks):
        if task % 100 == 0:
            found.append({"Event": f"{sql}Start", "executionId": task, "physicalPlanDescription": "Scan json " * 300})
        info = {"Task ID": task, "Index": task, "Host": "worker", "Launch Time": 1_764_000_000_000 + task}
        updates = [{"ID": id_, "Name": f"internal.metrics.{id_}", "Update": task, "Value": task, "Internal": True}
                   for id_ in range(ACCUMULABLES)]  # fmt: skip
        found.append({"Event": "SparkListenerTaskStart", "Stage ID": 1, "Task Info": info})
        found.append({"Event": "SparkListenerTaskEnd", "Stage ID": 1, "Task Info": info | {"Accumulables": updates},
                      "Task Metrics": {f"metric {number}": task for number in range(50)}})  # fmt: skip
    return [json.dumps(event).encode() for event in found]


def read(folder: Path, size: int) -> None:
    """Read a log, and print how fast."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    events = sum(1 for _ in EventLog(folder))
    seconds = time.perf_counter() - began
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    speed = f"{size / 1e6:.0f} MB in {seconds:.2f} s, {size / 1e6 / seconds:.0f} MB/s"
    print(f"{folder.name:<6} {events} events of {speed}, {more:.0f} MB more memory")


def main() -> None:
    """Measure each log in a process of its own."""
    if len(sys.argv) > 2:
        read(Path(sys.argv[1]), int(sys.argv[2]))
        return
    content = b"\n".join(lines(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
    with tempfile.TemporaryDirectory() as place:
        for kind, name, data in (
            ("plain", "local-1", content),
            ("zstd", "local-1.zstd", zstandard.compress(content)),
        ):
            (folder := Path(place) / kind).mkdir()
            (folder / name).write_bytes(data)
            subprocess.run([sys.executable, __file__, str(folder), str(len(content))], check=True)


if __name__ == "__main__":
    main()
