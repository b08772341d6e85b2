"""What an outbox of many task instances costs, each with one entry.

    python benchmarks/outbox_rates.py [--entries 50000] [--folder /dev/shm]

One process measures what one more entry costs, ``pending``, and one drain to a sink that does
nothing. It prints seconds by the clock and of the processor.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
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

PROPOSALS = 20


class Null(Sink):
    """Takes everything and does nothing."""

    name = "null"

    def describe(self) -> str:
        """Nothing."""
        return "nothing"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
        """Confirm everything."""
        record.confirm(record.pending(), stored=True)


def fill(outbox: Outbox, entries: int) -> None:
    """Put one entry for each of many task instances."""
    for number in range(entries):
        urns = [
            f"urn:li:dataJob:(urn:li:dataFlow:(spark,f,c),{number}.{one}"
            for one in range(PROPOSALS)
        ]
        proposals = [Proposal("dataJob", urn, "dataJobInfo", {"name": urn}) for urn in urns]
        key = AttemptKey("dag", "run", f"task{number}", -1, 1)
        outbox.put(key, proposals, spark_succeeded=True, connection_id="c")


def print_rates(folder: Path, entries: int) -> None:
    """Measure an outbox of one entry per task instance."""
    outbox = Outbox(LocalStorage(folder / "outbox"), OutboxLimits(max_bytes=2**40))
    with patch("os.fsync"):
        fill(outbox, entries)
    proposals = [
        Proposal("dataJob", f"urn:li:dataJob:{number}", "status", {"removed": False})
        for number in range(20)
    ]

    def put() -> None:
        for try_number in range(1, 101):
            outbox.put(
                AttemptKey("dag", "run", "one", -1, try_number),
                proposals,
                spark_succeeded=True,
                connection_id="c",
            )

    print_seconds("100 further entries, each synced", put)
    program = "from airflow_provider_spark_datahub.cli import app_main; app_main()"
    command = [sys.executable, "-c", program, "pending", "--outbox", str(folder / "outbox")]
    print_seconds(
        "spark-datahub pending",
        lambda: subprocess.run(command, check=False, stdout=subprocess.DEVNULL),
    )
    count = len(outbox.names())
    seconds = print_seconds(
        "drained to a sink that does nothing", Drain(outbox, lambda _: (Null(), None)).run
    )
    print(f"{count / seconds:.0f} entries a second")


def print_seconds(what: str, call: Callable[[], object]) -> float:
    """Print and return the seconds that a call takes."""
    started, before = time.monotonic(), sum(os.times()[:4])
    call()
    seconds = time.monotonic() - started
    print(f"{what}: {seconds:.2f} s, of the processor {sum(os.times()[:4]) - before:.2f} s")
    return seconds


def main() -> None:
    """Fill, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5000)
    parser.add_argument("--folder", type=Path, help="parent of the outbox's folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        print_rates(Path(name), arguments.entries)


if __name__ == "__main__":
    main()
