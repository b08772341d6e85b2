"""Generator: a seed gives an application of queries, each a list of genes; the genes give its
script and its truth.

A gene chooses its columns by its own seed from the frame before it, so that queries stay valid
without any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.generated_jobs.frames import DATA, Column, Frame, expression
from tests.generated_jobs.script import (
    PARTS,
    TYPES,
    Application,
    Item,
    Script,
    Written,
)
from tests.generated_jobs.steps import COMBINING, SHARED, STEPS

MODES = ("alone", "shared")
"""Applications of 30 queries without a common dataset, and of 1 to 30 that share frames, tables and
rows of the driver.
"""
_BY_NAME = {step.__name__: step for step in SHARED}
_SOURCES = {"source": 10, "constants": 1, "reuse": 6, "reread": 4, "rows_held": 2}
_SINKS = {"sink": 14, "insert_two": 2, "batches": 3, "append": 2}


@dataclass(frozen=True)
class Gene:
    """A source, a step or a sink. :param right: genes of the frame that a step combines its own
    with.
    """

    kind: str
    seed: int
    right: tuple[Gene, ...] = ()


@dataclass(frozen=True)
class Query:
    """Genes of one query. :param name: marks all of its datasets."""

    name: str
    genes: tuple[Gene, ...]

    def smaller(self) -> Iterator[Query]:
        """Yield the query without one of its genes, without one of a right side, or with nothing
        but that side.
        """
        for i, gene in enumerate(self.genes[1:-1], 1):
            yield replace(self, genes=self.genes[:i] + self.genes[i + 1 :])
            if gene.right:
                yield replace(self, genes=(*gene.right, self.genes[-1]))
            for k in range(1, len(gene.right)):
                fewer = replace(gene, right=gene.right[:k] + gene.right[k + 1 :])
                yield replace(self, genes=(*self.genes[:i], fewer, *self.genes[i + 1 :]))


def queries(seed: int, count: int = 30, mode: str = "alone") -> list[Query]:
    """Return the queries of a seed. :param count: how many, if they share nothing."""
    shared = mode == "shared"
    rng = Random(f"shared {seed}") if shared else Random(seed)
    if shared:
        count = rng.randint(1, 30)
    return [Query(f"q{number:03d}", _genes(rng, shared)) for number in range(1, count + 1)]


def _genes(rng: Random, shared: bool) -> tuple[Gene, ...]:
    steps = [_gene(rng, 0, shared) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 5]))]
    source, sink = _one_of(rng, _SOURCES, shared), _one_of(rng, _SINKS, shared)
    return Gene(source, rng.getrandbits(32)), *steps, Gene(sink, rng.getrandbits(32))


def _one_of(rng: Random, kinds: Mapping[str, int], shared: bool) -> str:
    """Draw a kind; queries that share nothing have the first."""
    return rng.choices(list(kinds), list(kinds.values()))[0] if shared else next(iter(kinds))


def _gene(rng: Random, depth: int, shared: bool) -> Gene:
    steps = SHARED if shared else STEPS
    step = rng.choices(list(steps), list(steps.values()))[0]
    right: tuple[Gene, ...] = ()
    if step in COMBINING and depth < 2 and rng.random() < 0.9:
        source = _one_of(rng, _SOURCES, shared)
        right = (
            Gene(source, rng.getrandbits(32)),
            *(_gene(rng, depth + 1, shared) for _ in range(rng.choice([0, 0, 1, 1, 2]))),
        )
    return Gene(step.__name__, rng.getrandbits(32), right)


def scripts_of(queries: Iterable[Query], database: str, *, hive: bool) -> list[Script]:
    """Return the scripts of an application's queries, each with its truth."""
    scripts: list[Script] = []
    application = Application()
    for query in queries:
        script = script_of(query, database, hive=hive, application=application)
        application = script.application
        scripts.append(script)
    return scripts


def script_of(
    query: Query, database: str, *, hive: bool, application: Application | None = None
) -> Script:
    """Return the query's script, with its truth. :param application: of the queries before it."""
    script = Script(query.name, database, hive, application or Application())
    frame = _frame(script, query.genes[:-1], None)
    sink = query.genes[-1]
    script.rng = Random(sink.seed)
    if sink.kind in _SHARED_SINKS and _SHARED_SINKS[sink.kind](script, script.rng, frame):
        return script
    _sink(script, script.rng, frame)
    if script.rng.random() < 0.15:
        _sink(script, script.rng, frame)
    return script


def _frame(script: Script, genes: Sequence[Gene], frame: Frame | None) -> Frame:
    for gene in genes:
        rng = script.rng = Random(gene.seed)
        before = deepcopy(script)
        if frame is None or gene.kind in _SOURCES:
            frame = _source(script, gene.kind)
            continue

        def other(
            genes: Sequence[Gene] = gene.right, own: Frame = frame, rng: Random = rng
        ) -> Frame:
            built = _frame(script, genes, own)
            script.rng = rng
            return built

        try:
            after = _BY_NAME[gene.kind](script, rng, frame, other)
        except IndexError:
            after = None
        if after is None:
            script.__dict__.update(before.__dict__)
        frame = after or frame
    assert frame is not None
    return frame


def _source(script: Script, kind: str) -> Frame:
    """Return a source's frame: one of its own if nothing is there to share."""
    application = script.application
    needed = {
        "reuse": application.frames,
        "reread": application.written,
        "rows_held": application.held,
    }
    if kind not in _SOURCES or needed.get(kind) == []:
        kind = "source"
    frame: Frame = getattr(script, kind)()
    return frame


def _sink(script: Script, rng: Random, frame: Frame) -> None:
    kinds = (
        ["to_files"] * 6
        + ["to_new_table"] * 4
        + ["to_old_table"] * 4
        + ["to_two_tables", "to_driver", "to_count"]
    )
    kind = rng.choice([*kinds, *(["to_hive_table"] * 2 * script.hive)])
    names = {one: one for one in frame.columns}
    more: dict[str, Any] = {}
    if kind in ("to_driver", "to_count"):
        script.add(rng.choice(PARTS[kind]), frame)
        wanted = names if kind == "to_driver" else {}
        return script.executed(frame, "", wanted, brought=True)
    if kind == "to_files":
        dataset = f"{script.name}/{script.fresh(rng.choice(['out', 'report', 'Result']))}"
        more = {"a": f'f"{{ROOT}}/{dataset}"', "d": dataset}
    elif kind in ("to_old_table", "to_two_tables"):
        dataset, more["t"], names = _old_table(script, rng, frame, list(names))
        listed = rng.sample(list(names), len(names))
        more |= {"names": ", ".join(listed), "targets": ", ".join(names[name] for name in listed)}
    else:
        dataset, more["t"] = script.new_table("o")
    if kind == "to_two_tables":
        second, more["u"], some = _old_table(
            script, rng, frame, rng.sample(list(names), rng.randint(1, len(names)))
        )
        more["some"] = ", ".join(some)
        script.executed(frame, second, some)
    templates = [one for one in PARTS[kind] if "partitionBy" not in one or len(names) > 1]
    script.add(rng.choice(templates), frame, **more)
    if "t" in more:
        is_old = kind in ("to_old_table", "to_two_tables")
        _leave_table(script, frame, names, dataset, more["t"], is_old=is_old)
    return script.executed(frame, dataset, names)


def _leave_table(
    script: Script,
    frame: Frame,
    targets: Mapping[str, str],
    dataset: str,
    name: str,
    *,
    is_old: bool = True,
) -> None:
    """Leave a table to later queries. :param is_old: the job may insert any rows into it."""
    kinds = {target: frame.columns[column].kind for column, target in targets.items()}
    table = name if is_old else ""
    script.application.written.append(Written(dataset, f'spark.table("{name}")', kinds, table))


def insert_two(script: Script, rng: Random, frame: Frame) -> bool:
    """Insert two selections of the frame's rows and columns into two tables, by one statement."""
    parts: dict[str, Any] = {}
    selected: list[Frame] = []
    for condition in ("one", "two"):
        drawn = expression(rng, "", frame, "conditions")
        if drawn is None:
            return False
        parts[condition], deciding = drawn
        selected.append(replace(frame.settled(), reads=frame.reads | deciding.reads))
    template = rng.choice(PARTS["insert_two"])
    if "@two" not in template:
        selected[1] = frame
    for rows, table, listed in zip(selected, "tu", ("first", "second"), strict=True):
        names = rng.sample(list(frame.columns), rng.randint(1, len(frame.columns)))
        dataset, parts[table], targets = _old_table(script, rng, frame, names)
        parts[listed] = ", ".join(targets)
        script.executed(rows, dataset, targets)
        _leave_table(script, frame, targets, dataset, parts[table])
    script.add(template, frame, **parts)
    return True


def batches(script: Script, rng: Random, frame: Frame) -> bool:
    """Write a stream's batches, and in the same function another frame, alone or joined with them."""
    feed = script.feed()
    first, second = (f"{script.name}/{script.fresh('sink')}" for _ in range(2))
    other, code = frame, frame.name
    if rng.random() < 0.5:
        name = script.fresh("b")
        code = f'rows.selectExpr("id AS {name}").crossJoin({frame.name})'
        columns = {name: feed.columns["id"], **frame.columns}
        other = replace(feed.beside(frame), columns=columns)
    names = {"b": f"{script.name}_{script.fresh('batch')}", "first": first, "second": second}
    for template in PARTS["batches"]:
        script.add(template, frame, feed, static=code, **names)
    script.executed(feed, first)
    script.executed(other, second)
    for dataset, written in ((first, feed), (second, other)):
        reader = f'spark.read.parquet(f"{{ROOT}}/{dataset}")'
        script.application.written.append(Written(dataset, reader, written.kinds()))
    return True


def _append(script: Script, rng: Random, frame: Frame) -> bool:
    """Insert rows into a table that an earlier query wrote."""
    tables = [written for written in script.application.written if written.table]
    if not tables:
        return False
    target = rng.choice(tables)
    items: list[Item] = []
    for name, kind in target.kinds.items():
        names = frame.names(kind)
        source = rng.choice(names) if names else {"n": "1D", "t": "'x'"}[kind]
        items.append((source, name, frame.columns.get(source, Column(kind))))
    rows = script.project(frame, items)
    script.add(f'spark.sql("INSERT INTO {target.table} SELECT * FROM @v")', rows)
    script.executed(rows, target.dataset)
    return True


_SHARED_SINKS = {"insert_two": insert_two, "batches": batches, "append": _append}
"""Sinks that only applications of queries that share something have. Each may find nothing to do."""


def _old_table(
    script: Script, rng: Random, frame: Frame, names: list[str]
) -> tuple[str, str, dict[str, str]]:
    """Create a table for columns, in an earlier application if its catalogue outlives it."""
    dataset, name = script.new_table("o")
    pairs = {column: f"v{number}" for number, column in enumerate(names, 1)}
    listed = ", ".join(
        f"{target} {TYPES[frame.columns[column].kind]}" for column, target in pairs.items()
    )
    statement = f"CREATE TABLE {name} ({listed}) {rng.choice(PARTS['tables'] + PARTS['hive_tables'] * script.hive)}"
    if script.hive:
        script.setup.append(statement)
    else:
        script.add(f'spark.sql("{statement}")')
    return dataset, name, pairs


def application(scripts: Sequence[Script]) -> str:
    """Return the text of the application that runs the scripts."""
    start = "" if scripts[0].hive else f'spark.sql("CREATE DATABASE {scripts[0].database}")\n'
    functions = (
        f"\n\ndef {one.name}():\n" + "".join(f"    {line}\n" for line in one.lines)
        for one in scripts
    )
    listed = f"\n\nQUERIES = [{', '.join(script.name for script in scripts)}]"
    return "".join(
        [
            (DATA / "preamble.py").read_text(),
            start,
            *functions,
            listed,
            (DATA / "main.py").read_text(),
        ]
    )
