"""How many drainers of one outbox lose nothing, and how often they deliver twice: processes on one folder.

    python benchmarks/outbox_drainers.py [--drainers 8] [--entries 5000] [--kill]
    python benchmarks/outbox_drainers.py --rates [--entries 50000] [--folder /dev/shm/outbox]

Every proposal has a name of its own; each drainer appends what it delivers to a file of its own, and some drainers are
killed in the middle (``--kill``) and started again. At the end it is counted what never arrived, what arrived more than
once, and the rest of the outbox.

With ``--rates``, one process measures an outbox of so many task instances with one entry each: what one more entry
costs, ``pending``, and one drain to a sink that does nothing. It prints seconds by the clock and of the processor.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.outbox.entries import Outbox, OutboxLimits
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Sink
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey

TRIES, PROPOSALS = 2, 20


class Appending(Sink):
    """Takes 2 ms for a delivery, as a fast server does, and remembers what it got."""

    name = "appending"

    def __init__(self, path: Path) -> None:
        self._path = path

    def describe(self) -> str:
        """The file."""
        return str(self._path)

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
        """Append the names."""
        time.sleep(0.002)
        items = record.pending()
        with self._path.open("a") as file:
            file.writelines(f"{proposal.entity_urn}\n" for _, proposal in items)
        record.confirm(items, stored=True)


class Null(Sink):
    """Takes everything and does nothing."""

    name = "null"

    def describe(self) -> str:
        """Nothing."""
        return "nothing"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
        """Confirm everything."""
        record.confirm(record.pending(), stored=True)


def outbox_at(folder: Path) -> Outbox:
    """The outbox of the measurement."""
    return Outbox(LocalStorage(folder / "outbox"), OutboxLimits(max_bytes=2**40))


def fill(folder: Path, entries: int, tries: int = TRIES) -> set[str]:
    """So many tries for each of many task instances; the names of all proposals."""
    storage, names = outbox_at(folder), set[str]()
    for number in range(entries // tries):
        for try_number in range(1, tries + 1):
            urns = [
                f"urn:li:dataJob:(urn:li:dataFlow:(spark,f,c),{number}.{try_number}.{one}" for one in range(PROPOSALS)
            ]
            names.update(urns)
            proposals = [Proposal("dataJob", urn, "dataJobInfo", {"name": urn}) for urn in urns]
            key = AttemptKey("dag", "run", f"task{number}", -1, try_number)
            storage.put(key, proposals, spark_succeeded=True, connection_id="c")
    return names


def work(folder: Path, number: int) -> None:
    """One drainer."""
    sink = Appending(folder / f"sink-{number}")
    drained = Drain(outbox_at(folder), lambda _: (sink, None)).run()
    (folder / f"done-{number}.json").write_text(json.dumps(drained.to_obj()))


def print_rates(folder: Path, entries: int) -> None:
    """Measure an outbox of one entry per task instance."""
    with patch("os.fsync"):
        fill(folder, entries, tries=1)
    outbox = outbox_at(folder)
    proposals = [Proposal("dataJob", f"urn:li:dataJob:{number}", "status", {"removed": False}) for number in range(20)]

    def put() -> None:
        for try_number in range(1, 101):
            outbox.put(
                AttemptKey("dag", "run", "one", -1, try_number), proposals, spark_succeeded=True, connection_id="c"
            )

    print_seconds("100 further entries, each synced", put)
    program = "from airflow_provider_spark_datahub.cli import app_main; app_main()"
    command = [sys.executable, "-c", program, "pending", "--outbox", str(folder / "outbox")]
    print_seconds("spark-datahub pending", lambda: subprocess.run(command, check=False, stdout=subprocess.DEVNULL))
    count = len(outbox.names())
    seconds = print_seconds("drained to a sink that does nothing", Drain(outbox, lambda _: (Null(), None)).run)
    print(f"{count / seconds:.0f} entries a second")


def print_seconds(what: str, call: Callable[[], object]) -> float:
    """Print and return the seconds that a call takes."""
    started, before = time.monotonic(), sum(os.times()[:4])
    call()
    seconds = time.monotonic() - started
    print(f"{what}: {seconds:.2f} s, of the processor {sum(os.times()[:4]) - before:.2f} s")
    return seconds


def main() -> None:
    """Fill, drain, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drainers", type=int, default=8)
    parser.add_argument("--entries", type=int, default=5000)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--folder", type=Path, help="parent of the outbox's folder")
    arguments = parser.parse_args()
    if arguments.rates:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            print_rates(Path(name), arguments.entries)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = fill(folder, arguments.entries)
        started = time.monotonic()
        running = [start(folder, number) for number in range(arguments.drainers)]
        if arguments.kill:
            for victim in range(arguments.drainers // 2):
                time.sleep(1.0)
                running[victim].kill()
                running.append(start(folder, arguments.drainers + victim))
        for process in running:
            process.join()
        seconds = time.monotonic() - started
        print(f"{arguments.entries} entries of {PROPOSALS} proposals, {len(running)} drainers, {seconds:.1f} s")
        print_arrivals(folder, names)


def start(folder: Path, number: int) -> multiprocessing.Process:
    """Start a drainer in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(folder, number))
    process.start()
    return process


def print_arrivals(folder: Path, names: set[str]) -> None:
    """Count what arrived."""
    arrived = Counter(line for path in folder.glob("sink-*") for line in path.read_text().splitlines())
    left = outbox_at(folder)
    print(f"never arrived: {len(names - arrived.keys())} of {len(names)} proposals")
    print(f"arrived more than once: {sum(count > 1 for count in arrived.values())}")
    print(f"still in the outbox: {len(left.names())} entries, {len(left.storage.stored('leases'))} leases")
    print(f"corrupt: {len(left.storage.stored('corrupt'))}")


if __name__ == "__main__":
    main()
