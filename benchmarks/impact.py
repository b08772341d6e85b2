"""Recall and precision of ``spark-datahub impact``, against the truth: a corrupted write, and
everything run again.

    python benchmarks/impact.py [WORLDS]

A world is a month of 20 tables in three layers and 60 tasks in three DAGs, with late runs, retries
and backfills: 20 tasks write the tables, 40 write a report each. Some tasks without lineage may
hand on what one task wrote to another. Tables hold a hash per column, so that running everything
again with one corrupted write shows exactly whose outputs change.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import NamedTuple

from msgspec import structs

from airflow_provider_spark_datahub.conversion import (
    Fingerprint,
    HeldRun,
    Impact,
    Records,
    SilentTasks,
    Use,
)
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey

TABLES, TASKS, DAYS, DAGS = 20, 60, 30, 3
COLUMNS = tuple(f"c{number}" for number in range(4))
KINDS = ("iceberg", "delta", "files")
MODES = (*4 * ("replace",), *2 * ("partition",), "append", "merge")
Content = dict[str, int]
Instance = tuple[str, str, str, int]


def _digest(content: object) -> int:
    return zlib.crc32(repr(content).encode())


@dataclass
class Table:
    """Table: its parts, each with a hash per column and a size."""

    urn: str
    kind: str
    mode: str
    parts: dict[str, Content] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    version: int = 0

    def read(self, day: str, *, of_day: bool) -> Content:
        """Return the hashes of what a scan sees: all, or a day."""
        parts = [
            (name, content)
            for name, content in sorted(self.parts.items())
            if not of_day or name == day
        ]
        return {
            column: _digest(tuple((name, content[column]) for name, content in parts))
            for column in COLUMNS
        }

    def write(self, content: Content, day: str, number: int) -> None:
        """Write a part, as the table's mode says."""
        if self.mode in ("replace", "merge"):
            self.parts, self.sizes = {}, {}
        part = {"append": f"{number}", "partition": day}.get(self.mode, "")
        # Some writes are of equal size, by chance.
        self.parts[part], self.sizes[part] = content, 1000 + content["size"] % 5_000
        self.version += 1


class Task(NamedTuple):
    """Task: its inputs, with whether it reads only its day; per output, the inputs of each column
    and the filters.

    :param before: DAG and name of tasks whose writes tasks without lineage hand to it, with these
        tasks' names.
    """

    dag: str
    name: str
    inputs: dict[int, bool]
    outputs: dict[int, dict[str, tuple[tuple[int, str], ...]]]
    hidden: frozenset[int]
    before: tuple[tuple[str, str, str], ...] = ()
    after: tuple[str, ...] = ()


class Run(NamedTuple):
    """Execution of a task: by its DAG run's day, its try, when it reads and writes (ms), and how
    far it comes.
    """

    task: Task
    day: str
    number: int
    at_ms: int
    window: tuple[int, int]
    fails: str


def world(
    seed: int, kinds: Sequence[str] = KINDS, silent: int = 0
) -> tuple[list[tuple[str, str]], list[Run]]:
    """Return the tables, as kinds and modes, and the executions, in order. :param silent: tasks
    without lineage.
    """
    dice = random.Random(seed)
    tables = [(dice.choice(kinds), dice.choice(MODES)) for _ in range(TASKS)]
    tasks = []
    for number in range(TASKS):
        written = [number] if number % 6 else [number, (number + 1) % TABLES]
        layer = min(number, TABLES) * 3 // TABLES
        read = dice.sample(range(TABLES * layer // 3), dice.choice((1, 2, 3))) if layer else []
        read += [table for table in written if tables[table][1] == "merge" and table not in read]
        inputs = {table: tables[table][1] == "partition" and dice.random() < 0.7 for table in read}
        outputs = {}
        for table in written:
            sources = [(used, column) for used in inputs for column in COLUMNS] or [(-1, "")]
            filters = dice.sample(sources, dice.choice((0, 0, 1)))
            columns = {
                column: {*dice.sample(sources, 1), *dice.choices(sources, k=2), *filters}
                for column in COLUMNS
            }
            outputs[table] = {
                column: tuple(sorted(of - {(-1, "")})) for column, of in columns.items()
            }
        hidden = frozenset(used for used in inputs if dice.random() < 0.15)
        tasks.append(Task(f"dag{number * DAGS // TASKS}", f"task{number}", inputs, outputs, hidden))
    others = random.Random(-1 - seed)
    for place in range(silent):
        first, last = sorted(others.sample(range(TASKS), 2))
        step, before = f"step{place}", tasks[last].before
        tasks[last] = tasks[last]._replace(
            before=(*before, (tasks[first].dag, tasks[first].name, step))
        )
        tasks[first] = tasks[first]._replace(after=(*tasks[first].after, step))
    planned = []
    for day in range(DAYS):
        for task in tasks:
            # A late run follows runs of the next days; a backfill repeats one.
            delay = dice.choice((0.0,) * 12 + (1.5,)) + dice.random() * 0.3
            planned.append((day + delay, dice.random(), task, day, 1))
            if dice.random() < 0.02:
                planned.append((day + dice.choice((1.2, 3.4)), dice.random(), task, day, 5))
    runs, at_ms = [], 1_790_000_000_000
    for _, _, task, day, number in sorted(planned, key=lambda plan: plan[:2]):
        tries = (dice.choice(("before", "after")), "") if dice.random() < 0.05 else ("",)
        for place, fails in enumerate(tries):
            at_ms += dice.randrange(10_000, 400_000)
            window = at_ms - dice.randrange(2_000, 200_000), at_ms + dice.randrange(3_000, 200_000)
            runs.append(Run(task, f"2026-11-{day + 1:02}", number + place, at_ms, window, fails))
    return tables, runs


def replay(
    tables: Sequence[tuple[str, str]],
    runs: Sequence[Run],
    wrong: tuple[int, int, str] | None = None,
) -> Iterator[tuple[Fingerprint, list[Content]]]:
    """Yield the fingerprint of each execution, and what it wrote.

    :param wrong: number of the execution, and table and column of the write to corrupt; no column
        for all of them.
    """
    urn = "urn:li:dataset:(urn:li:dataPlatform:{},shop.t{},PROD)"
    state = [
        Table(urn.format(kind, number), kind, mode) for number, (kind, mode) in enumerate(tables)
    ]
    handed = dict[tuple[str, str], int]()
    for number, run in enumerate(runs):
        task, day = run.task, run.day
        given = [handed.get((name, day)) for _, name, _ in task.before]
        inputs = {state[table].urn: Use(_version(state[table])) for table in task.inputs}
        outputs, written, edges = (
            dict[str, Use](),
            list[Content](),
            dict[tuple[str, str], list[tuple[str, str]]](),
        )
        seen = {used: state[used].read(day, of_day=of_day) for used, of_day in task.inputs.items()}
        for table, columns in task.outputs.items() if run.fails != "before" else ():
            content = {
                column: _digest(
                    (
                        task.name,
                        day,
                        column,
                        *(seen[used][source] for used, source in sources),
                        *given,
                    )
                )
                for column, sources in columns.items()
            }
            if wrong is not None and (number, table) == wrong[:2]:
                content |= {
                    column: _digest((content[column], 1))
                    for column in COLUMNS
                    if wrong[2] in ("", column)
                }
            target = state[table]
            target.write(
                {**content, "size": _digest((task.name, day, table)) * 7919 + run.number % 3},
                day,
                number,
            )
            outputs[target.urn] = _written(target, run)
            written.append(content)
            for column, sources in columns.items():
                for used, source in sources:
                    edges.setdefault((target.urn, state[used].urn), []).append((column, source))
        names = list(inputs | outputs)
        numbered = tuple(
            (names.index(output), names.index(used), tuple(of))
            for (output, used), of in edges.items()
        )
        hidden = tuple(state[used].urn for used in task.hidden)
        key = AttemptKey(task.dag, f"scheduled__{day}", task.name, -1, run.number)
        known = Fingerprint(key, *run.window, not run.fails, "", inputs, outputs, numbered, hidden)
        handed |= {} if run.fails else {(task.name, day): _digest(written)}
        yield structs.replace(known, silent=_silent(task, key.run_id)), written


def _silent(task: Task, run_id: str) -> SilentTasks:
    before = tuple(step for dag, _, step in task.before if dag == task.dag)
    return SilentTasks(
        before,
        task.after,
        tuple((dag, run_id, step) for dag, _, step in task.before if dag != task.dag),
    )


def _written(table: Table, run: Run) -> Use:
    size = (
        table.sizes.get({"append": "", "partition": run.day}.get(table.mode, ""))
        or [*table.sizes.values()][-1]
    )
    jitter = random.Random(run.at_ms).randrange(-900, 900)
    start_ms, end_ms = run.at_ms + jitter, run.at_ms + 1000 + jitter
    known = size if table.kind != "delta" else None
    replaces = len(table.parts) == 1 and (
        table.kind == "iceberg" or (table.kind == "files" and table.mode == "replace")
    )
    return Use(_version(table), None, known, start_ms=start_ms, end_ms=end_ms, replaces=replaces)


def _version(table: Table) -> tuple[str, ...]:
    if table.kind == "files" or not table.version:
        return ()
    snapshot = 10**17 + _digest((table.urn, table.version)) * 10**7
    return (str(table.version if table.kind == "delta" else snapshot),)


class Outcome(NamedTuple):
    """What ``impact`` found of one corrupted write, and the truth."""

    found: Impact
    reached: set[Instance]
    changed: set[Instance]


def held(records: Iterable[Fingerprint]) -> Iterator[Fingerprint]:
    """Return what DataHub says of the same attempts."""
    runs: dict[str, HeldRun] = {}
    for number, record in enumerate(records):
        key, times = record.key, (record.start_ms, record.end_ms)
        job = f"urn:li:dataJob:(urn:li:dataFlow:(airflow,{key.dag_id},prod),{key.task_id})"
        used = {f"input:{urn}": use for urn, use in record.inputs.items()}
        used |= {f"output:{urn}": use for urn, use in record.outputs.items()}
        texts = {name: _text(use) for name, use in used.items()}
        datasets, of_task = (tuple(record.inputs), tuple(record.outputs)), f"{job}{key.run_id}"
        properties = {"run_id": key.run_id, **record.silent.properties}
        runs[f"{number}"] = HeldRun(f"{number}", "", of_task, texts, *datasets, *times)
        ended = key.try_number, record.succeeded
        runs[of_task] = HeldRun(of_task, job, "", properties, *datasets, *times, *ended)
    yield from HeldRun.fingerprints(runs).values()


def _text(use: Use) -> str:
    version = {"version": ", ".join(use.versions)} if use.versions else {}
    return json.dumps({"bytes": use.size, "replaces": use.replaces, **version})


def outcomes(
    seed: int, most: int, kinds: Sequence[str] = KINDS, silent: int = 0, *, by_datahub: bool = False
) -> Iterator[Outcome]:
    """Yield the outcomes of corrupted writes in one world."""
    tables, runs = world(seed, kinds, silent)
    original = list(replay(tables, runs))
    known = [record for record, _ in original]
    records, dice = Records(held(known) if by_datahub else known), random.Random(seed)
    writes = [
        (number, table)
        for number, run in enumerate(runs)
        if run.fails != "before"
        for table in run.task.outputs
    ]
    for number, table in dice.sample(writes, most):
        column, origin = dice.choice(("", *COLUMNS)), original[number][0]
        again = replay(tables, runs, (number, table, column))
        pairs = zip(original, again, strict=True)
        wrong = [record for (record, before), (_, after) in pairs if before != after]
        changed = {_instance(record) for record in wrong}
        # These did not run after an attempt that failed.
        changed |= {
            (*_instance(of)[:2], step, -1)
            for of in wrong
            if of.succeeded
            for step in of.silent.after
        }
        urn = f"shop.t{table}"
        write = [
            write for write in records.writes_of(urn, since_ms=0)
            if write.record is origin or (by_datahub and write.record and _instance(write.record) == _instance(origin))
        ]  # fmt: skip
        found = records.impact(write, column or None)
        reached = {(of.dag_id, of.run_id, of.task_id, of.map_index) for of in found.reached}
        yield Outcome(found, reached, changed - {_instance(origin)})


def _instance(record: Fingerprint) -> Instance:
    key = record.key
    return key.dag_id, key.run_id, key.task_id, key.map_index


def _shares(found: Iterable[Outcome]) -> str:
    known = list(found)
    right = sum(len(one.reached & one.changed) for one in known)
    recall = right / sum(len(one.changed) for one in known)
    reached, downstream = (
        sum(len(one.reached) for one in known),
        sum(one.found.downstream for one in known),
    )
    saved = mean(
        1 - len(one.reached) / one.found.downstream for one in known if one.found.downstream
    )
    return (
        f"recall {recall:.3f}, precision {right / reached:.3f}, "
        f"reached {reached / len(known):.0f} of {downstream / len(known):.0f}, saved {saved:.0%}"
    )


if __name__ == "__main__":
    worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    silent = (one for seed in range(worlds) for one in outcomes(seed, 20, silent=10))
    print(f"with 10 tasks without lineage: {_shares(silent)}")
    known = (
        one for seed in range(worlds) for one in outcomes(seed, 20, silent=10, by_datahub=True)
    )
    print(f"the same, by DataHub's runs: {_shares(known)}")
    print(
        f"all tasks with lineage: {_shares(one for seed in range(worlds) for one in outcomes(seed, 20))}"
    )
