"""Kill attempts while they collect, convert, store and deliver; then drain the outbox, and check
the deliveries.

A process of its own, since it forks: everything is imported once, and each try is a fork of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.outbox.format import Folder
from airflow_provider_spark_datahub.delivery.sinks.files import FileSink
from airflow_provider_spark_datahub.task.attempt import AttemptLineage
from airflow_provider_spark_datahub.task.ended import AttemptEnd, EndedAttempt
from airflow_provider_spark_datahub.task.options import Connections, LineageOptions
from airflow_provider_spark_datahub.task.recovery import recover_entry
from airflow_provider_spark_datahub.task.submitted import SubmittedJob, UnfinishedAttempt
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered

EVENTS = Path(__file__).parents[1] / "data/corpus/events/a_csv_join_agg.ndjson"
START_MS = 1_767_225_900_000
# What reaches the disk or asks it: between two of these, nothing changes that a killed process
# leaves behind.
STEPS = frozenset(
    {
        "open",
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.scandir",
        "os.listdir",
        "os.truncate",
    }
)

State = dict[str, Any]


@dataclass
class Kills:
    """Outcome of all attempts. :param repeated: number of proposals that were delivered more than
    once.
    """

    tries: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    corrupt: int = 0
    left: int = 0
    delivered: int = 0
    repeated: int = 0

    def to_obj(self) -> dict[str, Any]:
        return {**vars(self), "killed": dict(self.killed)}


def lineage_of(folder: Path) -> AttemptLineage:
    """Return an attempt whose job was submitted: its events are there, and its outbox entry, too."""
    options = LineageOptions(
        connection="datahub",
        settings=LineageSettings(),
        on_failure="warn",
        events_location=folder / "events",
        outbox_location=str(folder / "outbox"),
        timeout=30.0,
        openlineage_jar="",
    )
    task_try = TaskAttempt(DagRun(AirflowSite(), "shop", "run"), "build", 1, start_ms=START_MS)
    sink = FileSink(folder / "sink")
    connections = Connections(
        lambda _: (sink, None), lambda location, limits: outbox_at(Path(location), limits)
    )
    lineage = AttemptLineage(options, task_try, connections)
    events_file = folder / "events/shop/try1.ndjson"
    events_file.parent.mkdir(parents=True)
    lineage.begin(SubmittedJob(options.settings, events_file))
    events_file.write_bytes(EVENTS.read_bytes())
    os.utime(events_file, (START_MS / 1000 + 50, START_MS / 1000 + 50))
    return lineage


def run_try(folder: Path, armed: Callable[[], None]) -> None:
    lineage = lineage_of(folder)
    armed()
    EndedAttempt(lineage, AttemptEnd(True, "SUCCESS", START_MS + 60_000, 30.0)).finish()


def drain(folder: Path, armed: Callable[[], None]) -> None:
    armed()
    Drain(
        outbox_at(folder / "outbox"),
        lambda _: (FileSink(folder / "sink"), None),
        finish=lambda entry, followed: recover_entry(entry, Deadline.after(60.0), over=followed),
    ).run()


def forked(work: Callable[[Callable[[], None]], None], *, at_step: int | None = None) -> bool:
    """Do ``work`` in a fork, and kill it. :returns: whether it was killed before it was done.

    :param at_step: kill it before this step, counted from where it says that it is armed.
    """
    child = os.fork()
    if child == 0:
        try:
            work(lambda: _arm(at_step))
        except BaseException as error:  # noqa: BLE001 (a fork ends here, whatever happens)
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the try ended with {code}")
    return code != 0


def _arm(at_step: int | None) -> None:
    if at_step is None:
        return
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in STEPS and arguments and isinstance(arguments[0], str | Path):
            seen += 1
            if seen == at_step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def state_of(folder: Path) -> tuple[State, int]:
    """Return the state of a catalogue after all proposals of the sink, and the number of proposals."""
    state: State = {}
    proposals = delivered(folder / "sink")
    for one in proposals:
        name = f"{one['entityUrn']} {one['aspectName']}"
        if one["changeType"] == "PATCH" or "RunEvent" in one["aspectName"]:
            state.setdefault(name, {})[json.dumps(one["aspect"], sort_keys=True)] = True
        else:
            state[name] = one["aspect"]
    return state, len(proposals)


def undisturbed(folder: Path, *, ended: bool) -> tuple[State, int]:
    """Return the state after an attempt that is not killed, or killed before it recorded its end,
    and a drain.
    """
    if ended:
        forked(lambda armed: run_try(folder, armed))
    else:
        forked(lambda armed: run_try(folder, armed), at_step=1)
        forked(lambda armed: drain(folder, armed))
    state, count = state_of(folder)
    if not count:
        raise RuntimeError("an undisturbed try delivered nothing")
    return state, count


class Runner:
    """Killer of one attempt after the other, each in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.kills = Kills()
        self._expected = {
            ended: undisturbed(root / f"undisturbed-{ended}", ended=ended)
            for ended in (False, True)
        }

    def at_steps(self, stride: int) -> None:
        """Kill before each ``stride``-th step in turn, until an attempt reaches its end; then the
        drain likewise.
        """
        step = 1
        while self._try(step):
            step += stride
        step = 1
        while self._try(2 + step % 40, drain_at_step=step):
            step += stride

    def _try(self, at_step: int, drain_at_step: int | None = None) -> bool:
        """Return whether the last kill hit its process."""
        kills = self.kills
        kills.tries += 1
        folder = self._root / f"{kills.tries:05d}"
        killed = forked(lambda armed: run_try(folder, armed), at_step=at_step)
        kills.killed["finish" if killed else "finish, too late"] += 1
        unfinished = [
            one
            for one in outbox_at(folder / "outbox").entries()
            if one.manifest.state == "unfinished"
        ]
        ended = all(
            UnfinishedAttempt.from_obj(one.manifest.redo).spark_succeeded is not None
            for one in unfinished
        )
        if drain_at_step is not None:
            killed = forked(lambda armed: drain(folder, armed), at_step=drain_at_step)
            kills.killed["drain" if killed else "drain, too late"] += 1
        forked(lambda armed: drain(folder, armed))
        self._look(folder, ended=ended)
        return killed

    def _look(self, folder: Path, *, ended: bool) -> None:
        expected, count = self._expected[ended]
        state, arrived = state_of(folder)
        if state != expected:
            differing = [
                name
                for name in expected.keys() | state.keys()
                if expected.get(name) != state.get(name)
            ]
            self.kills.lost.append(f"{folder.name}: {sorted(differing)}")
        outbox = outbox_at(folder / "outbox")
        self.kills.corrupt += len(outbox.storage.stored(Folder.CORRUPT))
        self.kills.left += len(outbox.names())
        self.kills.delivered += arrived
        self.kills.repeated += arrived - count


if __name__ == "__main__":
    runner = Runner(Path(sys.argv[1]))
    runner.at_steps(int(sys.argv[2]))
    print(json.dumps(runner.kills.to_obj()))  # noqa: T201 (its result)
