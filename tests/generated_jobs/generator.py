"""Generator: a seed gives an application of queries, each a list of genes; the genes give its
script and its truth.

A gene chooses its columns by its own seed from the frame before it, so that queries stay valid
without any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.generated_jobs.frames import DATA, Frame
from tests.generated_jobs.script import PARTS, TYPES, Script
from tests.generated_jobs.steps import COMBINING, STEPS

_BY_NAME = {step.__name__: step for step in STEPS}


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


def queries(seed: int, count: int = 30) -> list[Query]:
    rng = Random(seed)
    return [Query(f"q{number:03d}", _genes(rng)) for number in range(1, count + 1)]


def _genes(rng: Random) -> tuple[Gene, ...]:
    steps = [_gene(rng, 0) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 5]))]
    return Gene("source", rng.getrandbits(32)), *steps, Gene("sink", rng.getrandbits(32))


def _gene(rng: Random, depth: int) -> Gene:
    step = rng.choices(list(STEPS), list(STEPS.values()))[0]
    right: tuple[Gene, ...] = ()
    if step in COMBINING and depth < 2 and rng.random() < 0.9:
        right = (
            Gene("source", rng.getrandbits(32)),
            *(_gene(rng, depth + 1) for _ in range(rng.choice([0, 0, 1, 1, 2]))),
        )
    return Gene(step.__name__, rng.getrandbits(32), right)


def script_of(query: Query, database: str, *, hive: bool) -> Script:
    """Return the query's script, with its truth."""
    script = Script(query.name, database, hive)
    frame = _frame(script, query.genes[:-1], None)
    script.rng = Random(query.genes[-1].seed)
    _sink(script, script.rng, frame)
    if script.rng.random() < 0.15:
        _sink(script, script.rng, frame)
    return script


def _frame(script: Script, genes: Sequence[Gene], frame: Frame | None) -> Frame:
    for gene in genes:
        rng = script.rng = Random(gene.seed)
        before = deepcopy(script)
        if frame is None or gene.kind == "source":
            frame = script.source()
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
        return script.executed(frame, "", names if kind == "to_driver" else {})
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
    return script.executed(frame, dataset, names)


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
