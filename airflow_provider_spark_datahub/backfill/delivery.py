"""A limit on how many proposals are sent in a second, so that a backfill leaves DataHub time for everybody else.

The delivery of a backfill's parts, which goes on where it was interrupted.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol, Self, TypeVar

from airflow_provider_spark_datahub.backfill.plan import CONVERTED_FILE, PROPOSALS, STATE, PlanError, proposals_of
from airflow_provider_spark_datahub.conversion import Proposal, ProposalFormatError
from airflow_provider_spark_datahub.delivery import Deadline, Delivery, Rejection, Sink, write_durably


class Rate:
    """A token bucket that any number of threads share.

    :param per_second: how many may pass in a second, on average; ``None`` for no limit.
    :param clock: a clock that never goes back.
    """

    def __init__(
        self,
        per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if per_second is not None and per_second <= 0:
            raise ValueError(f"the rate is {per_second} proposals a second, want more than 0")
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = clock()

    @property
    def burst(self) -> int | None:
        """How many may be sent at once: those of one second; ``None`` for any number."""
        return None if self._per_second is None else max(1, int(self._per_second))

    def take(self, count: int) -> None:
        """Wait until so many may pass."""
        if self._per_second is None:
            return
        with self._lock:
            now = self._clock()
            start = max(now, self._free_at)
            self._free_at = start + count / self._per_second
        if start > now:
            self._sleep(start - now)


BATCH = 500
"""Proposals that are handed to the sink at once."""
BATCH_CHARACTERS = 8 * 1024 * 1024
"""Of their JSON: a job with hundreds of wide tables has megabytes of edges."""
BATCH_SECONDS = 120.0
"""Time for the delivery of a batch, in which the sink tries again by itself."""

Folder = TypeVar("Folder", bound="ResultFolder")


class ResultFolder(Protocol):
    """The folder of a backfill: a ``pathlib.Path``, or a path of an object store of the same shape."""

    @property
    def name(self) -> str:
        """Its last part."""

    def __truediv__(self, name: str, /) -> Self: ...

    def iterdir(self) -> Iterable[Self]:
        """What is in it."""

    def exists(self) -> bool:
        """Whether there is such a file or folder."""

    def open(self, mode: str, /) -> IO[Any]:
        """Open a file."""

    def read_text(self) -> str:
        """A file's text."""

    def write_bytes(self, content: bytes, /) -> Any:
        """Make it a file that holds this."""


@dataclass(slots=True)
class PartState:
    """How far the delivery of a part has come. :param settled: rows of it that are delivered or rejected."""

    settled: int = 0
    delivered: int = 0
    rejected: int = 0
    complete: bool = False


@dataclass
class Delivered:
    """What became of the proposals of a backfill, in this and in earlier deliveries.

    :param parts: how many there are, of which :attr:`complete` are.
    :param problems: why some of them stay, each told once.
    """

    parts: int = 0
    complete: int = 0
    delivered: int = 0
    rejected: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """The counts, for people."""
        return (
            f"{self.delivered} proposals delivered, {self.rejected} rejected; "
            f"{self.complete} of {self.parts} parts are complete"
        )


class BackfillDelivery:
    """Delivers the parts of a backfill.

    All proposals of an entity are in one part, and a part is sent in its order, by one thread. What a batch came to is
    on the disk before the next one is sent: after a crash, at most one batch of each thread is sent again, which is
    harmless.

    :param folder: of the backfill.
    :param open_sink: a sink of one's own for each thread.
    :param threads: how many parts are sent at the same time.
    :param tell: takes the name of a part and its state, after each batch.
    """

    def __init__(
        self,
        folder: ResultFolder,
        open_sink: Callable[[], Sink],
        rate: Rate,
        *,
        threads: int = 1,
        tell: Callable[[str, PartState], None] = lambda _name, _state: None,
    ) -> None:
        self._folder = folder
        self._open_sink = open_sink
        self._rate = rate
        self._threads = threads
        self._tell = tell
        self._stop = threading.Event()

    def run(self) -> Delivered:
        """Deliver what has not been; where something stays pending, nothing more is sent.

        :raises PlanError: the folder holds no complete conversion.
        :raises OSError: a part or its state cannot be read or written.
        :raises PartError: a part is damaged.
        :raises ProposalFormatError: a row of a part is no proposal.
        """
        if not (self._folder / CONVERTED_FILE).exists():
            raise PlanError(f"{self._folder} holds no complete conversion to be delivered")
        parts = sorted(
            (one for one in (self._folder / PROPOSALS).iterdir() if one.name.startswith("part-")),
            key=lambda one: one.name,
        )
        found = Delivered(len(parts))
        with ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix="backfill") as pool:
            for state, problem in pool.map(self._deliver_part, parts):
                found.complete += state.complete
                found.delivered += state.delivered
                found.rejected += state.rejected
                if problem and problem not in found.problems:
                    found.problems.append(problem)
        return found

    def _deliver_part(self, part: ResultFolder) -> tuple[PartState, str | None]:
        state = self._state_of(part)
        problem = None
        if not state.complete and not self._stop.is_set():
            with closing(self._open_sink()) as sink:
                try:
                    problem = self._send(part, state, sink)
                finally:
                    if not state.complete:
                        self._stop.set()
        return state, problem

    def _send(self, part: ResultFolder, state: PartState, sink: Sink) -> str | None:
        """Send what is left of a part; why something of it stays pending, where it does."""
        with part.open("rb") as file:
            rest = proposals_of(file, str(part), state.settled)
            while batch := _batch(rest, min(BATCH, self._rate.burst or BATCH)):
                proposals = [_proposal(text, part, state.settled + number) for number, text in enumerate(batch)]
                self._rate.take(len(proposals))
                if self._stop.is_set():
                    return None
                delivery = sink.deliver(proposals, Deadline.after(BATCH_SECONDS))
                if delivery.pending:
                    return delivery.problem
                self._settle(part, state, delivery)
        state.complete = True
        self._write_state(part, state)
        return None

    def _settle(self, part: ResultFolder, state: PartState, delivery: Delivery) -> None:
        if delivery.rejected:
            # Named by its place: the same batch, sent again after a crash, is written over.
            name = f"{part.name}-{state.settled:09d}.jsonl"
            self._write(f"{STATE}/rejected/{name}", [_rejected(one) for one in delivery.rejected])
        state.settled += delivery.delivered + len(delivery.rejected)
        state.delivered += delivery.delivered
        state.rejected += len(delivery.rejected)
        self._write_state(part, state)
        self._tell(part.name, state)

    def _state_of(self, part: ResultFolder) -> PartState:
        file = self._folder / f"{STATE}/delivered/{part.name}.json"
        return PartState(**json.loads(file.read_text())) if file.exists() else PartState()

    def _write_state(self, part: ResultFolder, state: PartState) -> None:
        self._write(f"{STATE}/delivered/{part.name}.json", [json.dumps(asdict(state)).encode()])

    def _write(self, name: str, lines: Iterable[bytes]) -> None:
        file = self._folder / name
        if isinstance(file, Path):
            write_durably(file, lines)
        else:
            # An object is there whole or not at all.
            file.write_bytes(b"".join(lines))


def _batch(texts: Iterator[str], most: int) -> list[str]:
    """The next ones, one at least: not more than so many, and no more once they are long together."""
    batch: list[str] = []
    size = 0
    for text in islice(texts, most):
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARACTERS:
            break
    return batch


def _proposal(text: str, part: ResultFolder, number: int) -> Proposal:
    try:
        return Proposal.from_obj(json.loads(text))
    except (ProposalFormatError, ValueError) as error:
        raise ProposalFormatError(f"{part}, row {number + 1}: {error}") from error


def _rejected(one: Rejection) -> bytes:
    return json.dumps({"reason": one.reason, "proposal": one.proposal.to_obj()}, ensure_ascii=False).encode() + b"\n"
