"""Does anything get lost? Tasks, a GMS of changing mood, drainers and tasks that are killed, and a
disk that fills.

    PYTHONPATH=. python benchmarks/soak.py [--minutes 10] [--seed 1]

Eight tasks at a time (processes without Airflow) write a recorded job's events, each with run ids
of its own, and end within a budget of 6 s. GMS changes its mood every few seconds: it stores,
refuses connections, answers 429 or 503, hangs, resets, or stores and loses the answer. Two drainers
work beside them. Every few seconds a drainer or a task is killed (SIGKILL). The outbox is on a
tmpfs that something else fills (root only; otherwise it has a small quota). At the end GMS is well,
the outbox is drained, and each task's lineage is made once more, into a file: whatever is in it
must have been stored.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import socketserver
import subprocess
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub import task
from airflow_provider_spark_datahub.capture import ParentRun, SparkSubmit, Submission
from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.delivery import ConnectionParts, Deadline, Sink
from airflow_provider_spark_datahub.delivery.outbox import (
    Drain,
    DrainLimits,
    Entry,
    LocalStorage,
    Outbox,
    OutboxLimits,
)
from airflow_provider_spark_datahub.delivery.sinks import FileSink, RestSettings, RestSink
from tests.capture.installations import executable, openlineage_jar, spark_at

TASKS, DRAINERS = 8, 2
BUDGET = 6.0
START_MS = 1_767_225_900_000
EVENTS = (
    Path(__file__).parents[1] / "tests" / "data" / "corpus" / "events" / "a_csv_join_agg.ndjson"
)
RUN_ID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOODS = ("well", "well", "well", "refused", "429", "503", "hangs", "resets", "deaf")
"""``deaf``: it stores, and its answer is lost."""
MOST_RUNS = 1_000_000
MOST_FUTILE_DRAINS = 3
"""After as many drains that settle nothing, the rest counts as left: a busy machine may keep one
from its work.
"""


@dataclass
class Gms:
    """A GMS with moods, which remembers what it stored: aspects by entity and name."""

    stored: Counter[tuple[str, str]] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    mood: str = "refused"
    port: int = 0
    _server: socketserver.ThreadingTCPServer | None = None

    def become(self, mood: str) -> None:
        """Change the mood; ``refused`` closes the port."""
        self.mood = mood
        if mood == "refused" and self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        elif mood != "refused" and self._server is None:
            self._server = _Server(("127.0.0.1", self.port), _handler(self))
            self.port = self._server.server_address[1]
            threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a write as the mood demands."""
        mood, body = self.mood, handler.rfile.read(int(handler.headers["Content-Length"] or 0))
        self.requests[mood] += 1
        if mood in ("well", "deaf"):
            for proposal in json.loads(body)["proposals"]:
                self.stored[proposal["entityUrn"], proposal["aspectName"]] += 1
        while mood == "hangs" and self.mood == "hangs":
            time.sleep(0.1)
        if mood in ("resets", "deaf", "hangs"):
            return
        status, content = (
            (200, b'{"value": "success"}')
            if mood == "well"
            else (int(mood), b'{"message": "not now"}')
        )
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of it."""


def _handler(gms: Gms) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            gms.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    return Handler


@dataclass(frozen=True)
class Place:
    """Folders of the soak, and GMS's address.

    :param quota: bytes of the outbox.
    """

    root: Path
    url: str
    quota: int

    @property
    def outbox(self) -> Path:
        """The outbox, on the disk that fills."""
        return self.root / "disk" / "outbox"

    def report(self, number: int) -> Path:
        """What an attempt says of itself."""
        return self.root / "reports" / f"{number}.json"

    def open_outbox(self, location: str = "", limits: OutboxLimits | None = None) -> Outbox:
        """The outbox at a location; by default the one of the soak."""
        storage, limits = (
            LocalStorage(Path(location or self.outbox)),
            limits or OutboxLimits(max_bytes=self.quota),
        )
        return Outbox(storage, limits, self.root / "events" / "task")

    def left(self) -> int:
        """How many entries are in the outbox."""
        return len(self.open_outbox().names())

    def open_sink(self, _: str) -> tuple[Sink | None, str | None]:
        """GMS."""
        return RestSink(
            RestSettings.from_connection(ConnectionParts(self.url, extra={"timeout_sec": 3}))
        ), None


def attempt(place: Place, number: int, sink: Sink | None = None) -> None:
    """Run one attempt's lineage, as a task does, and leave its report.

    :param sink: instead of GMS, with an outbox of its own.
    """
    home = place.root / "spark"
    outbox = str(place.outbox if sink is None else place.root / "again" / str(number))
    options = task.LineageOptions(
        connection="gms",
        settings=LineageSettings(),
        on_failure="warn",
        events_location=place.root / "events" / ("task" if sink is None else "again"),
        outbox_location=outbox,
        outbox_limits=OutboxLimits(max_bytes=place.quota),
        timeout=BUDGET,
        openlineage_jar=str(place.root / "openlineage-spark_2.13-1.53.0.jar"),
    )
    run = DagRun(AirflowSite(), "soak", f"run{number}")
    connections = task.Connections(
        place.open_sink if sink is None else lambda _: (sink, None), place.open_outbox
    )
    lineage = task.AttemptLineage(
        options, TaskAttempt(run, "build", 1, start_ms=START_MS), connections
    )
    spark = SparkSubmit(
        "spark-submit", {"PATH": "/usr/bin:/bin", "SPARK_HOME": str(home)}, local_driver=True
    )
    parents = (
        ParentRun("default", name, str(uuid.uuid5(uuid.NAMESPACE_URL, f"{number}{name}")))
        for name in "ab"
    )
    properties = lineage.inject(Submission(), spark, *parents).submission.effective_properties()
    events = Path(properties["spark.openlineage.transport.location"])
    events.parent.mkdir(parents=True, exist_ok=True)
    events.write_bytes(RUN_ID.sub(lambda old: _own_run_id(number, old[0]), EVENTS.read_bytes()))
    report: dict[str, Any] = {"kept": lineage.report.outbox_entry is not None}
    if sink is None:
        place.report(number).write_text(json.dumps(report))
    started = time.monotonic()
    try:
        end = task.AttemptEnd(True, "SUCCESS", START_MS + 60_000, BUDGET if sink is None else 120.0)
        done = task.EndedAttempt(lineage, end).finish()
    except OSError as error:
        report |= {"error": str(error), "kept": report["kept"]}
    else:
        report |= {
            "kept": done.outbox_entry is not None, "complete": done.is_complete, "seconds": time.monotonic() - started,
            "reason": done.reason, "warnings": done.warnings,
        }  # fmt: skip
    if sink is None:
        place.report(number).write_text(json.dumps(report))


def _own_run_id(number: int, run_id: bytes) -> bytes:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{number} {run_id.decode()}")).encode()


def run_tasks(place: Place, first: int) -> None:
    """Run attempts one after another until there is a file that says to stop."""
    os.nice(10)
    for number in range(first, MOST_RUNS, TASKS):
        if (place.root / "stop").exists():
            return
        if not place.report(number).exists():
            attempt(place, number)


def drain(place: Place, *, over: bool = False) -> None:
    """Drain the outbox until there is a file that says to stop; at least once."""

    def finish(entry: Entry, followed: bool) -> Entry | None:
        return task.recover_entry(entry, Deadline.after(30), over=over or followed)

    if not over:
        os.nice(10)
    while True:
        with contextlib.suppress(OSError):
            Drain(
                place.open_outbox(),
                place.open_sink,
                DrainLimits(seconds=20, entry_seconds=5),
                finish=finish,
            ).run()
        if over or (place.root / "stop").exists():
            return
        time.sleep(1)


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[Callable[[bool], None]]:
    """Yield a function that fills the disk at ``folder``, and empties it again. Without root it
    does nothing.
    """
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)],
            check=False,
            capture_output=True,
        ).returncode
    )
    print("the outbox is on a tmpfs of 16 MB" if mounted else "the outbox has a quota of 4 MB")

    def fill(full: bool) -> None:
        filler = folder / "filler"
        if full and mounted:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        else:
            filler.unlink(missing_ok=True)

    try:
        yield fill
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=False)


def soak(
    place: Place, gms: Gms, fill: Callable[[bool], None], seconds: float, dice: random.Random
) -> Counter[str]:
    """Run tasks and drainers for a time, and return how often what happened."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["benchmarks.soak"])
    happened: Counter[str] = Counter()

    def start(role: int) -> BaseProcess:
        work, arguments = (run_tasks, (place, role)) if role < TASKS else (drain, (place,))
        process = processes.Process(target=work, args=arguments)
        process.start()
        return process

    running = [start(role) for role in range(TASKS + DRAINERS)]
    until, full_until, mood_until = time.monotonic() + seconds, 0.0, 0.0
    next_kill, next_full = time.monotonic() + 5, time.monotonic() + 15
    while (now := time.monotonic()) < until:
        if now > mood_until:
            gms.become(dice.choice(MOODS))
            happened[f"mood {gms.mood}"] += 1
            mood_until = now + dice.uniform(2, 6)
        if now > next_kill:
            role = dice.randrange(TASKS + DRAINERS)
            running[role].kill()
            running[role].join()
            running[role] = start(role)
            happened["killed task" if role < TASKS else "killed drainer"] += 1
            next_kill = now + dice.uniform(1, 4)
        if now > next_full:
            fill(True)
            happened["disk full"] += 1
            full_until, next_full = now + dice.uniform(3, 8), now + dice.uniform(20, 40)
        elif full_until and now > full_until:
            fill(False)
            full_until = 0.0
        time.sleep(0.2)
    fill(False)
    (place.root / "stop").touch()
    gms.become("well")
    for process in running:
        process.join(120)
        happened["hung"] += process.is_alive()
        process.kill()
    return happened


def expected_aspects(place: Place, number: int) -> set[tuple[str, str]]:
    """Make an attempt's lineage again, into a folder, and return the entities and names of its
    aspects.
    """
    folder = place.root / f"again-{number}"
    attempt(place, number, FileSink(folder))
    written = [each for file in folder.iterdir() for each in json.loads(file.read_text())]
    expected = {(each["entityUrn"], each["aspectName"]) for each in written}
    shutil.rmtree(folder)
    return expected


def count_losses(place: Place, gms: Gms) -> None:
    """Make each attempt's lineage again, and compare it with what GMS stored."""
    reports = {
        int(path.stem): json.loads(path.read_text() or "{}")
        for path in (place.root / "reports").iterdir()
    }
    lost, reported, missing = 0, 0, Counter[str]()
    expected_pairs = 0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("forkserver")) as processes:
        again = processes.map(
            expected_aspects, itertools.repeat(place), sorted(reports), chunksize=64
        )
        expectations = dict(zip(sorted(reports), again, strict=True))
    for number, report in sorted(reports.items()):
        expected_pairs += len(expectations[number])
        absent = {aspect for aspect in expectations[number] if aspect not in gms.stored}
        if absent and not report.get("kept", False) and not report.get("complete"):
            reported += 1
        elif absent:
            lost += 1
            missing.update(
                f"attempt {number}: {aspect} {json.dumps(report)[:1500]}" for _, aspect in absent
            )
    left = place.open_outbox()
    seconds = sorted(report["seconds"] for report in reports.values() if "seconds" in report)
    print(f"attempts: {len(reports)}, ended: {len(seconds)}, aspects expected: {expected_pairs}")
    print(
        f"lost: {lost}; neither delivered nor kept, and reported so (disk full, then killed or GMS out): {reported}"
    )
    print(
        f"stored more than once: {sum(count > 1 for count in gms.stored.values())} of {len(gms.stored)}"
    )
    print(f"left: {place.left()} in the outbox, {len(list(left.quarantined()))} quarantined, "
          f"{len(left.storage.stored('corrupt'))} corrupt, {len(left.storage.stored('leases'))} leases")  # fmt: skip
    for quarantined in left.quarantined():
        print(f"QUARANTINED {quarantined.name}: {quarantined.reasons}")
    print(
        f"lineage took {seconds[len(seconds) // 2]:.1f} s (median), {seconds[-1]:.1f} s (longest), budget {BUDGET} s"
    )
    for sentence, count in missing.most_common(10):
        print(f"LOST {count}: {sentence}")


def main() -> None:
    """Soak, drain, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    gms = Gms()
    gms.become("well")
    with tempfile.TemporaryDirectory() as name, disk(Path(name) / "disk") as fill:
        quota = 2**30 if os.path.ismount(Path(name) / "disk") else 4 * 2**20
        place = Place(Path(name), f"http://127.0.0.1:{gms.port}", quota)
        (place.root / "reports").mkdir()
        executable(spark_at(place.root / "spark") / "bin/spark-submit")
        openlineage_jar(place.root / "openlineage-spark_2.13-1.53.0.jar")
        happened = soak(place, gms, fill, arguments.minutes * 60, random.Random(arguments.seed))
        print(
            ", ".join(
                f"{what}: {count}"
                for what, count in sorted(happened.items())
                if count or what == "hung"
            )
        )
        print("requests:", dict(gms.requests))
        left, futile = place.left(), 0
        print("left when the tasks had ended:", left)
        while left and futile < MOST_FUTILE_DRAINS:
            # Each drain has its limit of time.
            drain(place, over=True)
            left, before = place.left(), left
            futile = futile + 1 if left == before else 0
        count_losses(place, gms)
        shutil.rmtree(place.root / "events", ignore_errors=True)


if __name__ == "__main__":
    main()
