"""What a backfill costs on Spark: events per second by cores and by size, memory, and the price beside one process.

Archives are written once (zstd, a hundred applications a file) and kept; every measurement is one ``spark-submit`` of
the job that ``spark-datahub backfill`` submits. Seconds are those of its steps, from its own summary; CPU and memory
are those of all of its processes, sampled five times a second.

    PYTHONPATH=. python benchmarks/backfill.py cores [EVENTS] [FOLDER]     # 1000000 events, /tmp/backfill-benchmark
    PYTHONPATH=. python benchmarks/backfill.py growth 10000000             # from ten thousand events to so many
    PYTHONPATH=. python benchmarks/backfill.py shapes                      # wide events, and one object per event

``cores``: one core and two, of one process and of a real standalone cluster, where each worker is held on a core of
its own. Spark's Java and Python work at the same time, so ``local[1]`` takes more than one core where there are
several: ``one core`` is the same, held on one of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import zstandard

from airflow_provider_spark_datahub.backfill.plan import BackfillPlan, Cluster, write_package
from benchmarks.event_mix import mixed_application, wide_application

REPOSITORY = Path(__file__).resolve().parent.parent
SPARK = Path(os.environ.get("SPARK_BIN") or REPOSITORY / ".venv-spark" / "bin")
PER_FILE = {"mixed": 100, "wide": 4}
PER_APPLICATION = {"mixed": 271 / 9, "wide": 122.0}
APPLICATION = {"mixed": mixed_application, "wide": wide_application}
EVENTS = 1_000_000
SMALL_FILES = 20_000
WIDE_EVENTS = 1_000, 12_000, 48_000
KINDS = ("driver", "executor", "python")
"""What processes are: ``driver`` is the whole of Spark's Java where there is no cluster."""


@dataclass
class Usage:
    """What some processes used, by what they are (``driver``, ``executor``, ``python``).

    :param cpu: seconds of each process, by its number, those that are over included.
    :param memory: peak of all processes of a kind together, in MiB.
    """

    cpu: dict[str, dict[int, float]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    memory: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    @property
    def cpu_seconds(self) -> float:
        """Of all processes."""
        return sum(map(self.seconds_of, KINDS))

    def seconds_of(self, kind: str) -> float:
        """Of all processes of a kind."""
        return sum(self.cpu[kind].values())

    def sample(self, roots: Sequence[int]) -> None:
        """Look at the processes below some others, as they are now."""
        memory = dict.fromkeys(KINDS, 0.0)
        for process in (below for root in roots for below in _children(root)):
            with suppress(psutil.Error), process.oneshot():
                if kind := _kind(process):
                    times = process.cpu_times()
                    self.cpu[kind][process.pid] = times.user + times.system
                    memory[kind] += process.memory_info().rss / 2**20
        self.memory = {kind: max(self.memory[kind], memory[kind]) for kind in KINDS}


def _children(root: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(root).children(recursive=True)
    return []


def _kind(process: psutil.Process) -> str:
    """Return what a process is; empty if it is ending, or about to become another one."""
    command = process.cmdline()
    if command and process.name() == "java":
        return "executor" if any("CoarseGrainedExecutorBackend" in part for part in command) else "driver"
    return "python" if command and process.name().startswith("python") else ""


@contextmanager
def measured(roots: Sequence[int]) -> Iterator[Usage]:
    """Sample for as long as the block runs."""
    usage, done = Usage(), threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            usage.sample(roots)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield usage
    finally:
        done.set()
        thread.join()


def archive(folder: Path, mix: str, events: int) -> Path:
    """An archive of about so many events, written if it is not there."""
    root = folder / f"{mix}-{events}"
    if (root / "_COMPLETE").exists():
        return root
    root.mkdir(parents=True, exist_ok=True)
    applications, size = max(1, round(events / PER_APPLICATION[mix])), PER_FILE[mix]
    started = time.monotonic()
    with ProcessPoolExecutor() as pool:
        starts = range(0, applications, size)
        list(pool.map(_write, [(root, mix, start, min(start + size, applications)) for start in starts], chunksize=1))
    (root / "_COMPLETE").touch()
    size = sum(path.stat().st_size for path in root.iterdir())
    print(f"wrote {root.name}: {size / 1e6:.0f} MB compressed, {time.monotonic() - started:.0f} s", flush=True)
    return root


def _write(job: tuple[Path, str, int, int]) -> None:
    root, mix, start, end = job
    path = root / f"{start:07d}.ndjson.zst"
    with path.open("wb") as file, zstandard.ZstdCompressor(1).stream_writer(file) as stream:
        for number in range(start, end):
            stream.write(b"".join(APPLICATION[mix](number)))


def single_files(folder: Path, events: int) -> Path:
    """The same events as those of :func:`archive`, one object each."""
    root = folder / f"objects-{events}"
    if not (root / "_COMPLETE").exists():
        number = 0
        for application in range(round(events / PER_APPLICATION["mixed"])):
            for event in mixed_application(application):
                path = root / f"{number // 1000:05d}" / f"{number:07d}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(event)
                number += 1
        (root / "_COMPLETE").touch()
    return root


@dataclass
class Run:
    """One backfill. :param seconds: of its steps, without the start of Spark."""

    events: int
    seconds: float
    wall: float
    usage: Usage

    def __str__(self) -> str:
        usage = self.usage
        return (
            f"{self.events:>9} events, {self.seconds:6.1f} s, {self.events / self.seconds:7.0f} events/s; "
            f"with Spark's start {self.wall:6.1f} s, CPU {usage.cpu_seconds:6.1f} s; "
            + ", ".join(f"{kind} {usage.seconds_of(kind):.1f} s {usage.memory[kind]:.0f} MiB" for kind in KINDS)
        )


def backfill(
    folder: Path, source: Path, cluster: Cluster, more: Sequence[int] = (), *, prefix: Sequence[str] = ()
) -> Run:
    """Run the job once.

    :param more: processes whose executors are part of it.
    :param prefix: a command that starts the job's.
    """
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    plan = BackfillPlan((str(source),), f"file://{out}")
    command = [*prefix, *cluster.command(plan, write_package(folder))]
    env = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(SPARK / "python"), "SPARK_LOCAL_DIRS": str(folder)}
    started = time.monotonic()
    with (
        (folder / "spark.log").open("w") as log,
        subprocess.Popen(command, env=env, stdout=log, stderr=log) as process,
        measured([process.pid, *more]) as usage,
    ):
        status = process.wait()
    if status:
        raise SystemExit(f"spark-submit ended with status {status}: see {folder / 'spark.log'}")
    summary = json.loads((out / "summary.json").read_text())
    return Run(summary["events"], sum(summary["seconds"].values()), time.monotonic() - started, usage)


def local(cores: int) -> Cluster:
    """Spark in one process."""
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}
    return Cluster(f"local[{cores}]", conf=conf, binary=str(SPARK / "spark-submit"))


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[tuple[Cluster, list[int]]]:
    """A real cluster of workers with one core and one executor of 1 GB each, each held on a core of its own."""
    home = subprocess.run(
        [str(SPARK / "python"), "-c", "import pyspark, os; print(os.path.dirname(pyspark.__file__))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    env = os.environ | {"SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    env |= {"PYSPARK_PYTHON": str(SPARK / "python"), "SPARK_LOCAL_DIRS": str(folder)}
    host, master = ["--host", "127.0.0.1"], _free_port()
    package = "org.apache.spark.deploy"
    spark_class = f"{home}/bin/spark-class"
    commands = [[spark_class, f"{package}.master.Master", *host, "--port", str(master), "--webui-port", "0"]]
    worker = [f"{package}.worker.Worker", *host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    address = f"spark://127.0.0.1:{master}"
    commands += [
        ["taskset", "-c", str(n), spark_class, *worker, "--work-dir", str(folder / f"worker{n}"), address]
        for n in range(workers)
    ]
    started = []
    try:
        with (folder / "cluster.log").open("w") as log:
            for command in commands:
                started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
                time.sleep(15)
        conf = {"spark.ui.enabled": "false", "spark.executor.memory": "1g", "spark.driver.memory": "1g"}
        yield (
            Cluster(address, conf=conf, binary=str(SPARK / "spark-submit")),
            [process.pid for process in started[1:]],
        )
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


ONE_PROCESS = """
import gc, glob, sys, time
from airflow_provider_spark_datahub.capture.stored_files import read_lines
from airflow_provider_spark_datahub.capture.event_lines import checked_text
from benchmarks.archive_in_memory import convert_archive
from airflow_provider_spark_datahub.conversion.convert import convert_events
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
settings = LineageSettings()

def archive(path, stream):
    events = ((path, offset, line.strip()) for offset, line in read_lines(path, stream))
    found = convert_archive(events, settings)
    return found.events, [one.proposal for one in found.kept]

def task(path, stream):
    found = convert_events((checked_text(line) for _, line in read_lines(path, stream)), settings)
    return found.events, found.proposals(settings)

gc.disable()
for convert in (task, archive):
    started, events, size = time.process_time(), 0, 0
    for path in sorted(glob.glob(sys.argv[1] + "/*.zst"))[: int(sys.argv[2])]:
        with open(path, "rb") as stream:
            count, proposals = convert(path, stream)
            events, size = events + count, size + sum(len(proposal.to_json()) for proposal in proposals)
    print((time.process_time() - started) / events)
"""


@dataclass(frozen=True)
class Alone:
    """CPU seconds of an event in one process, file by file.

    :param task: as the events of a task are converted: those of a file together, each once.
    :param archive: as those of an archive are: grouped, and of each aspect what a catalogue would keep.
    """

    task: float
    archive: float


def one_process(source: Path, files: int) -> Alone:
    """The converter without Spark, without the garbage collector, which the command does without as well."""
    command = [str(SPARK / "python"), "-c", ONE_PROCESS, str(source), str(files)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}
    )
    return Alone(*map(float, done.stdout.split()))


def cores_and_price(folder: Path, events: int) -> None:
    """One core and two, in one process and on a cluster; and what an event costs beside the converter alone."""
    source, little = archive(folder, "mixed", events), archive(folder, "mixed", 10_000)
    start = backfill(folder, little, local(1))
    print(f"{'local[1]':<12} {start}", flush=True)
    runs = {"one core": backfill(folder, source, local(1), prefix=("taskset", "-c", "0"))}
    for cores in (1, 2):
        runs[f"local[{cores}]"] = backfill(folder, source, local(cores))
    for workers in (1, 2):
        with standalone(folder, workers) as (cluster, processes):
            runs[f"{workers} worker(s)"] = backfill(folder, source, cluster, processes)
    for name, run in runs.items():
        print(f"{name:<12} {run}", flush=True)
    for one, two in (("one core", "local[2]"), ("local[1]", "local[2]"), ("1 worker(s)", "2 worker(s)")):
        print(f"one core to two, {one} to {two}: {runs[one].seconds / runs[two].seconds:.2f}", flush=True)
    _price(start, runs["one core"], one_process(source, 60))


def _price(small: Run, large: Run, alone: Alone) -> None:
    """Print what each further event costs."""
    each = (large.usage.cpu_seconds - small.usage.cpu_seconds) / (large.events - small.events)
    print(
        f"an event: {each * 1e6:.0f} us CPU on Spark; without, {alone.archive * 1e6:.0f} us as an archive's "
        f"({each / alone.archive:.2f}), {alone.task * 1e6:.0f} us as a task's ({each / alone.task:.2f})",
        flush=True,
    )


def growth(folder: Path, events: int) -> None:
    """Ten times as many events, again and again, on two cores."""
    _growing(folder, "mixed", [size for power in range(4, 10) if (size := 10**power) <= events], files=60)


def _growing(folder: Path, mix: str, sizes: Sequence[int], files: int) -> None:
    """Archives of one mix. :param files: how many of each the converter alone is given."""
    before: Run | None = None
    for size in sizes:
        source = archive(folder, mix, size)
        run = backfill(folder, source, local(2))
        print(f"{mix:<12} {run}", flush=True)
        if before is not None:
            _price(before, run, one_process(source, files))
        before = run


def other_shapes(folder: Path) -> None:
    """Wide events, and one object per event."""
    _growing(folder, "wide", WIDE_EVENTS, files=20)
    print(f"{'objects':<12} {backfill(folder, single_files(folder, SMALL_FILES), local(2))}", flush=True)
    print(f"{'the same':<12} {backfill(folder, archive(folder, 'mixed', SMALL_FILES), local(2))}", flush=True)


PARTS = {"cores": cores_and_price, "growth": growth, "shapes": lambda folder, _: other_shapes(folder)}


def main() -> None:
    """Print the figures of one part."""
    # The cluster's processes end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    part, *rest = sys.argv[1:]
    events = int(rest[0]) if rest else EVENTS
    folder = Path(rest[1] if len(rest) > 1 else "/tmp/backfill-benchmark")
    folder.mkdir(parents=True, exist_ok=True)
    print("load:", *os.getloadavg(), flush=True)
    PARTS[part](folder, events)
    print("load:", *os.getloadavg(), flush=True)


if __name__ == "__main__":
    main()
