"""A model check of what lies beside the outbox, on disks whose steps are left behind and end at any later moment.

``OUTBOX_MODEL_EXAMPLES=5000 OVERFLOW_MODEL_STEPS=3 pytest tests/delivery/test_overflow_model.py`` explores more than CI
does.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.outbox import Entry, Outbox, Overflow, lease, storage
from airflow_provider_spark_datahub.delivery.outbox.processes import machine_digest
from tests.delivery.outboxes import MemoryStorage, key
from tests.delivery.samples import upserts

T = TypeVar("T")


class Crash(BaseException):
    """SIGKILL: the process stops, and no ``finally`` writes anything."""


class Step:
    """One step on a disk, in a thread that stops where the disk hangs."""

    def __init__(self, world: World, run: Callable[[], object], deadline: object) -> None:
        self._world = world
        self._run = run
        self.deadline = deadline
        self.ended = False
        self.is_left_behind = False
        self.is_killed = False
        self.moments_left = 0
        self.result: Any = None
        self.error: BaseException | None = None
        self._goes_on, self._stops = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.go_on()

    def go_on(self, moments: int = 0) -> None:
        """Let it run until its end, or until the disk hangs again.

        :param moments: it hangs before the so-many-th change from now; 0 for its end.
        """
        self.moments_left = moments
        with self._world.running(self):
            self._goes_on.release()
            self._stops.acquire()
        if self.ended:
            self._thread.join()

    def _work(self) -> None:
        self._goes_on.acquire()
        try:
            self.result = self._run()
        except BaseException as error:  # noqa: BLE001 (raised by the process that waits)
            self.error = error
        self.ended = True
        self._stops.release()

    def hang(self) -> None:
        self.is_left_behind = True
        self._stops.release()
        self._goes_on.acquire()
        if self.is_killed:
            raise Crash


class Store(MemoryStorage):
    """The outbox's disk, which may refuse new objects, or take them late."""

    def __init__(self, world: World) -> None:
        super().__init__(world.objects)
        self._world = world

    def now_ms(self) -> int:
        self._world.now_ms += 1
        return self._world.now_ms

    def write(self, name: str, chunks: Iterable[bytes], *, sync: bool = True, leaves: float = 0.0) -> None:
        content = b"".join(chunks)

        def put() -> None:
            self._world.moment()
            if self._world.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super(Store, self).write(name, [content], sync=sync, leaves=leaves)

        self._world.step_in_time("", self.deadline, put)


class Process:
    """A process, with two outboxes as threads of a task have."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.entries: list[Entry] = []
        self.left_behind: list[Step] = []
        self.outboxes = [Outbox(Store(world), None, Overflow(world.folder / "beside")) for _ in range(2)]
        for outbox in self.outboxes:
            outbox.check_room = lambda *_: None  # type: ignore[method-assign]
            outbox.deadline = Deadline.after(float("inf"))

    def go_on(self, moments: int) -> None:
        """Let the oldest step that was left behind go on."""
        if self.left_behind:
            self.left_behind[0].go_on(moments)
        self.left_behind = [step for step in self.left_behind if not step.ended]

    def die(self) -> None:
        for step in self.left_behind:
            step.is_killed = True
            step.go_on()


_STEPS = ("replace", "unlink", "rmdir", "fsync")


class World:
    """State that outlives a process, and the attempts that processes work on."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.objects: dict[str, bytes] = {}
        self.is_full = True
        self.now_ms = 1_800_000_000_000
        self.processes = [Process(self, number) for number in (1, 2, 3)]
        self.current = self.processes[0]
        self.events: dict[int, Callable[[], object] | str] = {}
        self.moments = 0
        self._step: Step | None = None
        for name in _STEPS:
            patched.setattr(os, name, self._slow(getattr(os, name) if name != "fsync" else lambda _: None))
        patched.setattr(storage, "step_in_time", self.step_in_time)
        patched.setattr(storage._Rename, "wait_for_older", _refuse_to_wait)
        this = classmethod(lambda cls: cls(machine_digest(), self.current.number, 1))
        patched.setattr(lease._Owner, "this", this)
        patched.setattr(lease, "is_gone", lambda _, number, *__: self.process(number) is None)

    def process(self, number: int) -> Process | None:
        return next((process for process in self.processes if process.number == number), None)

    def _slow(self, step: Callable[..., None]) -> Callable[..., None]:
        def slow(*paths: Any) -> None:
            self.moment()
            step(*paths)

        return slow

    @contextmanager
    def running(self, step: Step | None) -> Iterator[None]:
        before, self._step = self._step, step
        yield
        self._step = before

    def moment(self) -> None:
        """Let happen what happens before a change of a disk."""
        step = self._step
        if step is not None and step.is_killed:
            raise Crash
        if step is not None and step.is_left_behind:
            step.moments_left -= 1
            if step.moments_left == 0:
                step.hang()
            return
        self.moments += 1
        event = self.events.pop(self.moments, None)
        if event == "hang" and step is not None:
            step.hang()
        elif callable(event):
            event()

    def step_in_time(self, root: str, deadline: object, run: Callable[[], T]) -> T:  # noqa: ARG002 (as the real one)
        process = self.current
        if any(step.deadline is deadline for step in process.left_behind):
            raise TimeoutError(errno.ETIMEDOUT, "no answer")
        if "hang" not in self.events.values():
            return run()
        step = Step(self, run, deadline)
        step.start()
        if not step.ended:
            process.left_behind.append(step)
            raise TimeoutError(errno.ETIMEDOUT, "no answer")
        if step.error is not None:
            raise step.error
        return step.result  # type: ignore[no-any-return]

    def act(self, process: Process, call: Callable[[], object], events: dict[int, Any] | None = None) -> None:
        """Let a process do something. :param events: what happens before the so-many-th change of a disk."""
        before = self.current, self.events, self.moments
        self.current, self.events, self.moments = process, events or {}, 0
        try:
            with self.running(None), suppress(OSError):
                call()
        except Crash:
            if process is not self.current:
                raise
            self.replace(process)
        finally:
            self.current, self.events, self.moments = before

    def replace(self, process: Process) -> None:
        """Kill a process; another one begins."""
        process.die()
        self.processes[self.processes.index(process)] = Process(self, process.number + 3)


def _refuse_to_wait(rename: Any, path: str) -> None:
    """Leave a write behind that waits for an older rename. It then replaces nothing."""
    older = rename._begun.get(path)
    if older is not None and older.locked():
        raise TimeoutError


def _crash() -> None:
    raise Crash


WHO = st.integers(0, 2)
TAB = st.integers(0, 1)
EVENTS = st.dictionaries(
    st.integers(1, 7),
    st.just("hang")
    | st.sampled_from(["crash", "full", "room"])
    | st.tuples(st.sampled_from(["takes back", "goes on"]), WHO, TAB),
    max_size=3,
)


class OverflowModel(RuleBasedStateMachine):
    """Three processes at work on attempts that the outbox refuses or takes."""

    def __init__(self) -> None:
        super().__init__()
        self._patched = pytest.MonkeyPatch()
        self._folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: PTH112
        self.world = World(Path(self._folder.name), self._patched)
        self.promised: dict[str, Entry] = {}
        self.settled: set[str] = set()

    def events(self, drawn: dict[int, Any]) -> dict[int, Any]:
        return {number: self.event(what) for number, what in drawn.items()}

    def event(self, what: Any) -> Any:
        if isinstance(what, tuple):
            kind, who, tab = what
            return partial(self.take_back if kind == "takes back" else self.go_on, who, tab, {})
        full = {"full": True, "room": False}
        return {"hang": "hang", "crash": _crash}.get(what) or partial(setattr, self.world, "is_full", full.get(what))

    def act(self, who: int, call: Callable[[Process], object], drawn: dict[int, Any]) -> None:
        process = self.world.processes[who]
        self.world.act(process, lambda: call(process), self.events(drawn))

    @rule(who=WHO, tab=TAB, drawn=EVENTS)
    def keep(self, who: int, tab: int, drawn: dict[int, Any]) -> None:
        """Begin an attempt; beside the outbox if that refuses it."""

        def begin(process: Process) -> None:
            attempt = key(run_id=f"run{len(self.promised)}")
            outbox = process.outboxes[tab]
            entry, refusal = outbox.begin(attempt, connection_id="datahub", events="e", redo={})
            if refusal is None or entry.name in outbox.overflow:
                process.entries.append(entry)
                self.promised[entry.name.path] = entry

        self.act(who, begin, drawn)

    @rule(who=WHO, drawn=EVENTS, number=st.integers(0, 9))
    def update(self, who: int, drawn: dict[int, Any], number: int) -> None:
        """Record something of an attempt, in the outbox if that takes it by now."""

        def change(process: Process) -> None:
            if process.entries:
                process.entries[-1] = process.entries[-1].update(redo={"number": number})

        self.act(who, change, drawn)

    @rule(who=WHO, drawn=EVENTS)
    def finish(self, who: int, drawn: dict[int, Any]) -> None:
        """Write an attempt's proposals to the outbox, if that takes them."""

        def end(process: Process) -> None:
            if process.entries:
                process.entries[-1].finish(upserts(1), spark_succeeded=True)

        self.act(who, end, drawn)

    @rule(who=WHO, drawn=EVENTS)
    def give_up(self, who: int, drawn: dict[int, Any]) -> None:
        """End an attempt."""

        def release(process: Process) -> None:
            if process.entries:
                entry = process.entries.pop()
                entry.outbox.overflow.release(entry.name)

        self.act(who, release, drawn)

    @rule(who=WHO, tab=TAB, drawn=EVENTS)
    def take_back(self, who: int, tab: int, drawn: dict[int, Any]) -> None:
        """List the outbox in a process."""
        self.act(who, lambda process: process.outboxes[tab].names(), drawn)

    @rule(who=WHO, moments=st.integers(0, 3))
    def go_on(self, who: int, moments: int, _: object = None) -> None:
        """The disk goes on with a step that was left behind, to its end or until it hangs again."""
        self.world.processes[who].go_on(moments)

    @rule(who=WHO, tab=TAB)
    def begin_anew(self, who: int, tab: int) -> None:
        """Give a thread a new deadline, with which it tries the disk again."""
        self.world.processes[who].outboxes[tab].deadline = Deadline.after(float("inf"))

    @rule(who=WHO)
    def die(self, who: int) -> None:
        self.world.replace(self.world.processes[who])

    @rule()
    def fill(self) -> None:
        self.world.is_full = not self.world.is_full

    @rule()
    def drain(self) -> None:
        """Deliver everything in the outbox."""
        self.settled.update(name for name in self.world.objects if name.startswith("pending/"))
        self.world.objects.clear()

    @invariant()
    def nothing_is_lost(self) -> None:
        assert [
            name for name in self.promised if name not in self.settled | {*self.world.objects} | self.beside()
        ] == []

    def beside(self) -> set[str]:
        return {name.path for name in Overflow(self.world.folder / "beside").names()}

    def teardown(self) -> None:
        """Check that everything comes into the outbox once the disks are well, although no process ends."""
        try:
            for process in self.world.processes:
                while process.left_behind:
                    process.go_on(0)
            self.world.is_full = False
            for who, process in enumerate(self.world.processes):
                for tab in range(2):
                    self.begin_anew(who, tab)
                while process.entries:
                    self.give_up(who, {})
            for _ in range(2):
                for who in range(3):
                    self.take_back(who, 0, {})
            self.nothing_is_lost()
            assert self.beside() == set()
        finally:
            for process in self.world.processes:
                process.die()
            self._patched.undo()
            self._folder.cleanup()


# CI explores the same orders each time.
TestOverflowModel = pytest.mark.slow(pytest.mark.no_cover(OverflowModel.TestCase))
TestOverflowModel.settings = hypothesis_settings(
    max_examples=int(os.environ.get("OUTBOX_MODEL_EXAMPLES", "100")),
    stateful_step_count=25,
    deadline=None,
    derandomize="OUTBOX_MODEL_EXAMPLES" not in os.environ,
)


_DISTURBED: list[dict[int, Any]] = [
    {},
    *({moment: "hang"} for moment in range(1, 7)),
    *({moment: ("goes on", 0, 0)} for moment in (2, 4, 6)),
]
_STEPS_OF_ALL: list[Callable[[OverflowModel], object]] = [
    *(partial(OverflowModel.take_back, who=0, tab=1, drawn=drawn) for drawn in _DISTURBED),
    *(partial(OverflowModel.take_back, who=1, tab=0, drawn=drawn) for drawn in _DISTURBED),
    *(partial(OverflowModel.go_on, who=who, moments=moments) for who in range(2) for moments in range(2)),
    partial(OverflowModel.die, who=0),
]


@pytest.mark.slow
@pytest.mark.no_cover
def test_no_order_of_few_steps_loses_a_record() -> None:
    # All orders of some steps after a process gave up its record, perhaps on a disk that hung amid that.
    for hangs in range(1, 5):
        for steps in product(_STEPS_OF_ALL, repeat=int(os.environ.get("OVERFLOW_MODEL_STEPS", "2"))):
            model = OverflowModel()
            try:
                model.keep(who=0, tab=0, drawn={})
                model.give_up(who=0, drawn={hangs: "hang"})
                for step in steps:
                    step(model)
                model.nothing_is_lost()
            finally:
                model.teardown()
