"""A model check of the outbox: any order of its steps, with crashes between any two, two hosts, and
clocks that jump.

``OUTBOX_MODEL_EXAMPLES=5000 pytest tests/delivery/test_outbox_model.py`` explores more than CI
does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from airflow_provider_spark_datahub.delivery import Deadline, Sink
from airflow_provider_spark_datahub.delivery.outbox import Drain, EntryName, Outbox, OutboxLimits
from airflow_provider_spark_datahub.delivery.outbox.format import unseal
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord
from tests.delivery.outboxes import MemoryStorage, key, put
from tests.delivery.samples import upsert

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


class Crash(BaseException):
    """SIGKILL: the process stops, and no ``finally`` writes anything."""


class World:
    """State that outlives a process: the objects of the storage, the clocks of two hosts, and
    DataHub.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.now_ms = START_MS
        self.skews_ms = [0, 0]
        self.datahub: dict[str, str] = {}
        self.arrived: set[str] = set()
        self.rejected: set[str] = set()


class HostStorage(MemoryStorage):
    """The storage as one process of one host sees it.

    :param steps: what happens before the so-many-th step that reads, lists or changes something.
    """

    def __init__(
        self, world: World, steps: dict[int, Callable[[], object]] | None = None, host: int = 0
    ) -> None:
        super().__init__(world.objects)
        self._world = world
        self._host = host
        self._steps = steps or {}
        self._step = 0
        self._dead = False

    def _do(self) -> None:
        if self._dead:
            raise Crash
        self._world.now_ms += 1
        self._step += 1
        if self._step in self._steps:
            try:
                self._steps[self._step]()
            except Crash:
                self._dead = True
                raise

    def now_ms(self) -> int:
        return self._world.now_ms + self._world.skews_ms[self._host]

    def stored(self, folder: str) -> dict[str, int]:
        self._do()
        return super().stored(folder)

    def read(self, name: str, *, most: int = 2**26) -> bytes:
        self._do()
        return super().read(name, most=most)

    def write(self, name: str, chunks: Iterable[bytes], *, sync: bool = True) -> None:
        self._do()
        super().write(name, chunks, sync=sync)

    def remove(self, name: str) -> None:
        self._do()
        super().remove(name)


class DataHub(Sink):
    """Sink that accepts the first items of each delivery, and rejects one of them."""

    name = "model"

    def __init__(self, world: World, takes: int, rejects: int | None) -> None:
        self._world = world
        self._takes = takes
        self._rejects = rejects

    def describe(self) -> str:
        return "a model of DataHub"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (as in Sink)
        items = record.pending()
        rejected = [items[self._rejects]] if self._rejects is not None and len(items) > 1 else []
        for numbered in rejected:
            record.reject(numbered, "no")
            self._world.rejected.add(numbered[1].aspect["name"])
        taken = [item for item in items if item not in rejected][: self._takes]
        for _, item in taken:
            self._world.datahub[item.entity_urn] = item.aspect["name"]
            self._world.arrived.add(item.entity_urn)
        record.confirm(taken, stored=True)
        record.stop("away")


MOMENTS = st.none() | st.integers(1, 60)
REJECTS = st.sampled_from([None, 0, -1])
"""The item of a delivery that is rejected: shared by the runs of a task, or of this run alone."""


class OutboxModel(RuleBasedStateMachine):
    """Runs of two tasks, each with several attempts, whose versions grow with time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.runs = {"a": (1, 0), "b": (1, 0)}
        self.version = 0
        self.promised: dict[str, tuple[str, int, str]] = {}

    def outbox(self, steps: dict[int, Callable[[], object]] | None = None) -> Outbox:
        return Outbox(HostStorage(self.world, steps))

    @rule(task=st.sampled_from("ab"), new_run=st.booleans(), crash=MOMENTS)
    def put(self, task: str, new_run: bool, crash: int | None) -> None:
        """End an attempt. Its entry is promised as soon as the write has returned."""
        run, number = self.runs[task]
        run, number = (run + 1, 1) if new_run else (run, number + 1)
        self.runs[task] = run, number
        self.version += 1
        own = f"{task}-own-{self.version}"
        items = [upsert(f"{task}-job", str(self.version)), upsert(own, own)]
        try:
            entry = put(self.outbox(steps_of(crash)), key(number, task, run_id=f"run{run}"), items)
        except Crash:
            return
        self.promised[entry.name.path] = task, self.version, items[1].entity_urn

    @rule(crash=MOMENTS, other=MOMENTS, takes=st.sampled_from([0, 1, 2, 9]), rejects=REJECTS)
    def drain(self, crash: int | None, other: int | None, takes: int, rejects: int | None) -> None:
        """Drain on one host. In the middle, another host drains everything that it may."""
        steps = steps_of(crash)
        if other is not None:
            steps.setdefault(other, self.drain_the_rest)
        self.run_drain(self.outbox(steps), takes=takes, rejects=rejects)

    @rule(task=st.sampled_from("ab"), other=st.integers(1, 12), takes=st.sampled_from([0, 1, 9]))
    def drain_one_run(self, task: str, other: int, takes: int) -> None:
        """Deliver only the oldest run, as a task's end does. In the middle, another host drains the
        rest.
        """
        outbox = self.outbox({other: self.drain_the_rest})
        runs = [
            name
            for name in outbox.names()
            if EntryName.parse(name.path) and f".{task}-" in name.instance
        ]
        self.run_drain(
            outbox, takes=takes, names=[name for name in runs if name.instance == runs[0].instance]
        )

    def drain_the_rest(self) -> None:
        outbox = self.outbox()
        held = {name for name in outbox.names() if self.is_held(name)}
        before = set(self.world.arrived)
        self.run_drain(outbox)
        for path, (_, _, own) in self.promised.items():
            assert (
                EntryName.parse(path) not in held or own in before or own not in self.world.arrived
            ), "delivered under somebody else's lease"

    def is_held(self, entry: EntryName) -> bool:
        """Return whether a lease of an entry is in force; that of a killed drainer is, too, until
        it expires.
        """
        for name in [name for name in self.world.objects if name.startswith("leases/")]:
            holder = unseal(self.world.objects[name], dict)[0]
            groups = [tuple(group) for group in holder.get("groups", [])]
            if self.world.now_ms < holder["expires_ms"] and (
                entry.group in groups or f"/{'.'.join(entry.group)}." in name
            ):
                return True
        return False

    def run_drain(
        self, outbox: Outbox, *, takes: int = 9, rejects: int | None = None, names: Any = None
    ) -> None:
        sink = DataHub(self.world, takes, rejects)
        drain = Drain(outbox, lambda _: (sink, None), sleep=lambda _: None)
        try:
            drained = drain.run(names)
        except Crash:
            return
        assert not [problem for problem in drained.problems if "trace" in problem], drained.problems

    @rule(crash=MOMENTS)
    def requeue(self, crash: int | None) -> None:
        outbox = self.outbox(steps_of(crash))
        try:
            for quarantined in list(outbox.quarantined()):
                outbox.requeue(quarantined)
        except Crash:
            return

    @rule(crash=MOMENTS)
    def disk_is_full(self, crash: int | None) -> None:
        """Remove receipts that protect nothing, as on a full disk."""
        outbox = self.outbox(steps_of(crash))
        outbox.limits = OutboxLimits(max_bytes=0)
        with suppress(Crash):
            outbox.expire_receipts()

    @rule(milliseconds=st.sampled_from([1_000, 200_000, 2 * HOUR_MS]))
    def wait(self, milliseconds: int) -> None:
        self.world.now_ms += milliseconds

    @invariant()
    def nothing_older_comes_back(self) -> None:
        """Check that no aspect becomes older than that of a settled entry."""
        for path, (task, version, _) in self.promised.items():
            if path not in self.world.objects and str(version) not in self.world.rejected:
                assert self.shown(task) >= version

    @invariant()
    def nothing_is_lost(self) -> None:
        """Check that everything promised is pending, delivered, or in the quarantine."""
        quarantined = b"".join(
            content
            for name, content in self.world.objects.items()
            if name.startswith("quarantined/")
        )
        pending = b"".join(
            content for name, content in self.world.objects.items() if name.startswith("pending/")
        )
        for path, (_, _, own) in self.promised.items():
            somewhere = (
                own in self.world.arrived or own.encode() in quarantined or own.encode() in pending
            )
            assert somewhere, f"{path} is lost"

    def shown(self, task: str) -> int:
        return int(self.world.datahub.get(upsert(f"{task}-job").entity_urn, "0"))

    def teardown(self) -> None:
        """Check that everything arrives once all works again, and that the newest stays."""
        self.world.now_ms += 2 * HOUR_MS
        self.requeue(None)
        for _ in range(2):
            self.run_drain(self.outbox())
        assert [
            name for name in self.world.objects if name.startswith(("pending/", "corrupt/"))
        ] == []
        for task, version, own in self.promised.values():
            assert self.shown(task) >= version
            assert own in self.world.arrived


def steps_of(crash: int | None) -> dict[int, Callable[[], object]]:
    def die() -> None:
        raise Crash

    return {} if crash is None else {crash: die}


# CI explores the same orders each time.
TestOutboxModel = pytest.mark.slow(OutboxModel.TestCase)
TestOutboxModel.settings = hypothesis_settings(
    max_examples=int(os.environ.get("OUTBOX_MODEL_EXAMPLES", "60")),
    stateful_step_count=25,
    deadline=None,
    derandomize="OUTBOX_MODEL_EXAMPLES" not in os.environ,
)


def test_a_requeued_entry_overwrites_nothing_although_receipts_gave_way() -> None:
    # Random orders seldom come to this one.
    model = OutboxModel()
    model.put("a", new_run=False, crash=None)
    model.drain(crash=None, other=None, takes=9, rejects=0)
    model.put("a", new_run=True, crash=None)
    model.drain(crash=None, other=None, takes=9, rejects=None)
    model.disk_is_full(crash=None)
    model.requeue(None)
    model.drain(crash=None, other=None, takes=9, rejects=None)
    model.nothing_older_comes_back()
    assert model.shown("a") == 2


def test_a_drain_remembers_a_run_that_is_delivered_in_part_for_all_older_ones() -> None:
    # Such a run has no receipt yet, only the part of one. Random orders come to it once in a
    # thousand times.
    model = OutboxModel()
    model.put("a", new_run=False, crash=None)
    model.put("a", new_run=True, crash=None)
    model.drain(crash=None, other=None, takes=0, rejects=0)
    model.put("a", new_run=True, crash=None)
    model.drain(crash=None, other=None, takes=1, rejects=None)
    model.disk_is_full(crash=None)
    model.teardown()
    assert model.shown("a") == 3


# -- clocks that jump


_YEAR_MS = 365 * 24 * HOUR_MS
_SKEWS = st.sampled_from(
    [0, HOUR_MS // 2, 2 * HOUR_MS, -2 * HOUR_MS, 10 * _YEAR_MS, -10 * _YEAR_MS]
)


class ClockModel(OutboxModel):
    """The same on two hosts whose clocks may jump at any moment. Older versions may then arrive
    late.
    """

    def __init__(self) -> None:
        super().__init__()
        self.host = 0

    @rule(host=st.integers(0, 1), skew_ms=_SKEWS)
    def jump(self, host: int, skew_ms: int) -> None:
        """Set the clock of a host, and go on there."""
        self.host = host
        self.world.skews_ms[host] = skew_ms

    @rule(at=st.integers(1, 20), skew_ms=_SKEWS)
    def drain_while_the_clock_jumps(self, at: int, skew_ms: int) -> None:
        self.run_drain(self.outbox({at: lambda: self.jump(self.host, skew_ms)}))

    def drain_the_rest(self) -> None:
        self.host = 1 - self.host
        self.run_drain(self.outbox())

    def outbox(self, steps: dict[int, Callable[[], object]] | None = None) -> Outbox:
        return Outbox(HostStorage(self.world, steps, self.host))

    def nothing_older_comes_back(self) -> None:
        """Check it at the end alone."""

    def teardown(self) -> None:
        """Check that hours later all has arrived, and that what comes then is not silenced by what
        came before.
        """
        self.world.skews_ms = [0, 0]
        self.requeue(None)
        # No lease is respected for longer than an hour. One that is dated ahead is at first
        # ignored, later respected.
        for _ in range(3):
            self.world.now_ms += HOUR_MS + 3_000
            self.run_drain(self.outbox())
        for task in self.runs:
            self.put(task, new_run=True, crash=None)
            self.run_drain(self.outbox())
            assert self.shown(task) == self.version
        assert not [
            name
            for name in self.world.objects
            if name.startswith(("pending/", "corrupt/", "quarantined/"))
        ]
        assert {own for _, _, own in self.promised.values()} <= self.world.arrived


TestClockModel = pytest.mark.slow(ClockModel.TestCase)
TestClockModel.settings = TestOutboxModel.settings
