"""Delivery of a backfill's parts to a sink, at a limited rate. After an interruption it continues
where it stopped.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from airflow_provider_spark_datahub.backfill import plan
from airflow_provider_spark_datahub.conversion import Proposal, ProposalFormatError
from airflow_provider_spark_datahub.delivery import Deadline, Delivery, Rejection, Sink
from airflow_provider_spark_datahub.foundation.files import write_durably
from airflow_provider_spark_datahub.foundation.memory import batches_of
from airflow_provider_spark_datahub.foundation.text import counted


class Rate:
    """Limit on proposals per second for all threads, as a token bucket. It leaves DataHub time for
    other clients.

    :param per_second: the average rate; 0 for no limit.
    """

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._per_second = per_second or math.inf
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = clock()

    @property
    def burst(self) -> int:
        """Return the number of proposals that may be sent at once: those of a second, and no more
        than a batch.
        """
        return max(1, int(min(self._per_second, _BATCH)))

    def take(self, count: int) -> None:
        """Wait until this many proposals may be sent."""
        with self._lock:
            now = self._clock()
            start = max(now, self._free_at)
            self._free_at = start + count / self._per_second
        if start > now:
            self._sleep(start - now)


_BATCH = 500
"""Number of proposals that are handed to the sink at once."""
_BATCH_CHARACTERS = 8 * 1024 * 1024
"""Size of a batch in JSON: a job with hundreds of wide tables has megabytes of edges."""
_BATCH_SECONDS = 120.0
"""Time for the delivery of a batch, including the sink's own retries."""


@dataclass
class _PartState:
    """Progress of the delivery of a part.

    :param settled: rows that are delivered or rejected.
    """

    settled: int = 0
    delivered: int = 0
    rejected: int = 0
    complete: bool = False


@dataclass
class _Totals:
    """Totals of a backfill's delivery, including earlier deliveries.

    :param complete: number of parts that are completely delivered.
    :param problems: distinct reasons why proposals are still pending.
    """

    parts: int = 0
    complete: int = 0
    delivered: int = 0
    rejected: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """Return the counts as a sentence."""
        return (
            f"{counted(self.delivered, 'proposal')} delivered, {self.rejected} rejected; "
            f"complete: {self.complete} of {counted(self.parts, 'part')}"
        )


@dataclass
class BackfillDelivery:
    """Delivery of the parts of a backfill.

    All proposals of an entity are in one part, and one thread sends a part in its order. The
    outcome of a batch is on the disk before the next one is sent. After a crash, at most one batch
    of each thread is sent again, which is harmless.

    :param open_sink: opens a sink for each part.
    :param threads: number of parts that are sent at the same time.
    :param on_progress: called with the name of a part and its state after each batch.
    """

    folder: plan.ResultFolder
    open_sink: Callable[[], Sink]
    rate: Rate
    threads: int = 1
    on_progress: Callable[[str, _PartState], None] = lambda _name, _state: None
    _stop: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self) -> _Totals:
        """Deliver everything that is not delivered yet. Stop if something stays pending.

        :raises PlanError: if the folder holds no complete conversion.
        :raises OSError: if a part or its state cannot be read or written.
        :raises PlanError: if a part is damaged.
        :raises ProposalFormatError: if a row of a part is not a proposal.
        """
        if not (self.folder / plan.CONVERTED_FILE).exists():
            raise plan.PlanError(
                f"{self.folder} holds no complete conversion: convert the archive first"
            )
        files = (
            file
            for file in (self.folder / plan.PROPOSALS).iterdir()
            if file.name.startswith("part-")
        )
        parts = sorted(files, key=lambda file: file.name)
        totals = _Totals(len(parts))
        with ThreadPoolExecutor(max_workers=self.threads, thread_name_prefix="backfill") as pool:
            for state, problem in pool.map(self._deliver_part, parts):
                totals.complete += state.complete
                totals.delivered += state.delivered
                totals.rejected += state.rejected
                if problem and problem not in totals.problems:
                    totals.problems.append(problem)
        return totals

    def _deliver_part(self, part: plan.ResultFolder) -> tuple[_PartState, str | None]:
        state = self._state_of(part)
        problem = None
        if not state.complete and not self._stop.is_set():
            try:
                problem = self._send(part, state, self.open_sink())
            finally:
                if not state.complete:
                    self._stop.set()
        return state, problem

    def _send(self, part: plan.ResultFolder, state: _PartState, sink: Sink) -> str | None:
        """Send the rest of a part. Return why something stays pending, or ``None``."""
        with part.open("rb") as file:
            rest = plan.read_part(file, str(part), state.settled)
            for batch in batches_of(rest, len, _BATCH_CHARACTERS, self.rate.burst):
                proposals = [
                    _proposal(text, part, state.settled + number)
                    for number, text in enumerate(batch)
                ]
                self.rate.take(len(proposals))
                if self._stop.is_set():
                    return None
                delivery = sink.deliver(proposals, Deadline.after(_BATCH_SECONDS))
                if delivery.pending:
                    return delivery.problem
                self._settle(part, state, delivery)
        state.complete = True
        self._write_state(part, state)
        return None

    def _settle(self, part: plan.ResultFolder, state: _PartState, delivery: Delivery) -> None:
        if delivery.rejected:
            # The position is part of the name, so that a batch that is sent again after a crash
            # overwrites its file.
            name = f"{part.name}-{state.settled:09d}.jsonl"
            self._write(f"{plan.STATE}/rejected/{name}", map(_rejected, delivery.rejected))
        state.settled += delivery.delivered + len(delivery.rejected)
        state.delivered += delivery.delivered
        state.rejected += len(delivery.rejected)
        self._write_state(part, state)
        self.on_progress(part.name, state)

    def _state_of(self, part: plan.ResultFolder) -> _PartState:
        file = self.folder / f"{plan.STATE}/delivered/{part.name}.json"
        return _PartState(**json.loads(file.read_text())) if file.exists() else _PartState()

    def _write_state(self, part: plan.ResultFolder, state: _PartState) -> None:
        self._write(
            f"{plan.STATE}/delivered/{part.name}.json", [json.dumps(asdict(state)).encode()]
        )

    def _write(self, name: str, lines: Iterable[bytes]) -> None:
        file = self.folder / name
        if isinstance(file, Path):
            write_durably(file, lines)
        else:
            # Object stores write a whole object or none.
            file.write_bytes(b"".join(lines))


def _proposal(text: str, part: plan.ResultFolder, number: int) -> Proposal:
    try:
        return Proposal.from_obj(json.loads(text))
    except (ProposalFormatError, ValueError) as error:
        raise ProposalFormatError(f"{part}, row {number + 1}: {error}") from error


def _rejected(rejection: Rejection) -> bytes:
    record = {"reason": rejection.reason, "proposal": rejection.item.to_obj()}
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"
