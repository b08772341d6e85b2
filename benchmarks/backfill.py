"""What a backfill costs on Spark: seconds and memory by size, shape and cores.

Archives are written once and kept. Each line is one ``spark-submit`` of the job that
``spark-datahub backfill`` starts.

    python benchmarks/backfill.py                                  # a million events, on one core
    and two python benchmarks/backfill.py --shape wide --events 1000 12000 48000 --cores 2 python
    benchmarks/backfill.py --shape objects --events 20000   # one object for each event
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import zstandard
from event_mix import mixed_application, wide_application

from airflow_provider_spark_datahub.backfill import BackfillPlan, write_package

REPOSITORY = Path(__file__).resolve().parent.parent
SPARK = Path(os.environ.get("SPARK_BIN") or REPOSITORY / ".venv-spark" / "bin")
APPLICATION = {"mixed": mixed_application, "objects": mixed_application, "wide": wide_application}
APPLICATIONS_PER_FILE = {"mixed": 100, "wide": 4}
EVENTS_PER_APPLICATION = {"mixed": 271 / 9, "wide": 122.0}


def archive(folder: Path, shape: str, events: int) -> Path:
    """Return an archive of about this many events, which is written if it is not there."""
    root = folder / f"{shape}-{events}"
    if (root / "_COMPLETE").exists():
        return root
    root.mkdir(parents=True, exist_ok=True)
    if shape == "objects":
        _write_objects(root, islice(_events(shape, count()), events))
    else:
        size = APPLICATIONS_PER_FILE[shape]
        applications = max(1, round(events / EVENTS_PER_APPLICATION[shape]))
        with ProcessPoolExecutor() as pool:
            starts = range(0, applications, size)
            ends = [min(start + size, applications) for start in starts]
            list(pool.map(partial(_write_file, root, shape), starts, ends))
    (root / "_COMPLETE").touch()
    return root


def _events(shape: str, applications: Iterable[int]) -> Iterator[bytes]:
    return chain.from_iterable(map(APPLICATION[shape], applications))


def _write_file(root: Path, shape: str, start: int, end: int) -> None:
    path = root / f"{start:07d}.ndjson.zst"
    with path.open("wb") as file, zstandard.ZstdCompressor(1).stream_writer(file) as stream:
        for event in _events(shape, range(start, end)):
            stream.write(event)


def _write_objects(root: Path, events: Iterable[bytes]) -> None:
    for number, event in enumerate(events):
        path = root / f"{number // 1000:05d}" / f"{number:07d}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(event)


def backfill(folder: Path, source: Path, cores: int) -> str:
    """Run the job once, and return its figures."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    options = [
        "--master",
        f"local[{cores}]",
        "--driver-memory",
        "2g",
        "--conf",
        "spark.ui.enabled=false",
    ]
    plan = BackfillPlan((str(source),), f"file://{out}")
    command = plan.command(write_package(folder), str(SPARK / "spark-submit"), options)
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SPARK_HOME", "PYTHONPATH")
    }
    env |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(SPARK / "python"),
        "SPARK_LOCAL_DIRS": str(folder),
    }
    started = time.monotonic()
    with (folder / "spark.log").open("w") as log:
        # Workers would import the package from the current folder, if it is there.
        status = subprocess.run(
            command, env=env, cwd=folder, stdout=log, stderr=log, check=False
        ).returncode
    if status:
        raise SystemExit(f"spark-submit ended with status {status}: see {folder / 'spark.log'}")
    summary = json.loads((out / "summary.json").read_text())
    seconds = sum(summary["seconds"].values())
    steps = ", ".join(f"{step} {lasted}" for step, lasted in summary["seconds"].items())
    return (
        f"{summary['events']:>9} events, {seconds:6.1f} s ({steps}), {summary['events'] / seconds:7.0f} events/s; "
        f"with Spark's start {time.monotonic() - started:6.1f} s; "
        f"largest process {getrusage(RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB"
    )


def main() -> None:
    """Print the figures of each archive on each number of cores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=sorted(APPLICATION), default="mixed")
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/backfill-benchmark"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for events in options.events:
        source = archive(options.folder, options.shape, events)
        for cores in options.cores:
            print(
                f"{options.shape:<8} local[{cores}] {backfill(options.folder, source, cores)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
