"""How many drainers of one outbox lose nothing, and how often they deliver twice: processes on one folder.

    python benchmarks/outbox_drainers.py [--drainers 8] [--entries 5000] [--kill]

Every proposal has a name of its own; each drainer appends what it delivers to a file of its own, and some drainers are
killed in the middle (``--kill``) and started again. At the end it is counted what never arrived, what arrived more than
once, and what is still in the outbox.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from pathlib import Path

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.outbox.entries import Outbox, OutboxLimits
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Sink

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
        items = record.pending(Proposal)
        with self._path.open("a") as file:
            file.writelines(f"{proposal.entity_urn}\n" for _, proposal in items)
        record.confirm(items, stored=True)


def outbox_at(folder: Path) -> Outbox:
    """The outbox of the measurement."""
    return Outbox(LocalStorage(folder / "outbox"), OutboxLimits(max_bytes=2**40))


def fill(folder: Path, entries: int) -> set[str]:
    """Two tries for each of many task instances; the names of all proposals."""
    storage, names = outbox_at(folder), set[str]()
    # The quota is not what is measured: it lists the outbox for each entry.
    vars(storage)["check_room"] = lambda _: None
    for number in range(entries // TRIES):
        for try_number in range(1, TRIES + 1):
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


def main() -> None:
    """Fill, drain, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drainers", type=int, default=8)
    parser.add_argument("--entries", type=int, default=5000)
    parser.add_argument("--kill", action="store_true")
    arguments = parser.parse_args()
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
