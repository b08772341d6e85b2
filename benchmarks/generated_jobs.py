"""Precision and recall of lineage on generated jobs: run, judged, and shrunk to a few lines where
it is wrong.

    python benchmarks/generated_jobs.py --seeds 1-20 [--mode shared] [--folder FOLDER] [--judge]
        [--shrink] [-v]

Needs `make setup`. A seed is an application of 30 queries (``tests/generated_jobs``), or with
--mode shared, of 1 to 30 that share frames, tables and rows of the driver; tables of even ones are
in Hive's catalogue. Prints the failing queries of each capture, precision and recall.
--judge converts what an earlier run left in the folder again, without Spark. --shrink runs all that
is smaller than a failing query, and prints what still fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.generated_jobs.generator import MODES, Query, queries, script_of, scripts_of
from tests.generated_jobs.judging import CAPTURES, KINDS, Failure, judge
from tests.generated_jobs.recording import record
from tests.generated_jobs.script import Script

_MOST = 60
"""Queries of an application of smaller ones."""


@dataclass(frozen=True)
class Task:
    """A query to shrink, and the failure of a capture that has to stay."""

    query: Query
    hive: bool
    capture: str
    failure: Failure


def scripts_of_seed(seed: int, mode: str) -> list[Script]:
    """Return the scripts of a seed's queries."""
    return scripts_of(queries(seed, mode=mode), f"s{seed}", hive=seed % 2 == 0)


def judged(folder: Path, seeds: Iterable[int], mode: str, *, verbose: bool) -> list[Task]:
    """Print the verdict on recordings, and return the failures, each of the first capture that has
    it.
    """
    tasks: dict[tuple[int, str, Failure], Task] = {}
    for capture in CAPTURES:
        counts: Counter[Failure] = Counter()
        for seed in seeds:
            verdict = judge(folder / str(seed), capture)
            counts += verdict.counts
            genes = {query.name: query for query in queries(seed, mode=mode)}
            for query, failures in sorted(verdict.wrong.items()):
                for failure, edges in failures.items():
                    print(
                        f"{capture:8} seed {seed} {query}: {len(edges)} {failure[1]} {failure[0]}"
                    )
                    if verbose:
                        print(*(f"    {edge}" for edge in sorted(edges)), sep="\n")
                    if query in genes:
                        task = Task(genes[query], seed % 2 == 0, capture, failure)
                        tasks.setdefault((seed, query, failure), task)
        for kind in KINDS:
            true, false, missing = (counts[kind, what] for what in ("true", "false", "missing"))
            score = f"{true / (true + false or 1):.4f} / {true / (true + missing or 1):.4f}"
            print(f"{capture:8} {kind:8} {score} ({true} true, {false} false, {missing} missing)")
    return list(tasks.values())


def shrink(tasks: Iterable[Task], folder: Path) -> list[Task]:
    """Drop genes of queries as long as their failures stay."""
    current, smallest = list(tasks), list[Task]()
    while current:
        failing, smaller = _failures(current, folder), list[Task]()
        for task in current:
            wanted = (task.capture, task.failure)
            fitting = [
                query for query in task.query.smaller() if wanted in failing[task.hive, query.genes]
            ]
            if fitting:
                smaller.append(replace(task, query=min(fitting, key=_size)))
            else:
                smallest.append(task)
        current, folder = smaller, folder.with_name(f"{folder.name}_")
    return smallest


def _size(query: Query) -> int:
    return len(script_of(query, "db", hive=True).lines)


def _failures(
    tasks: Sequence[Task], folder: Path
) -> dict[tuple[bool, object], set[tuple[str, Failure]]]:
    """Run everything that is smaller than the tasks' queries by one gene, and return its failures."""
    wanted = list(
        dict.fromkeys((task.hive, query.genes) for task in tasks for query in task.query.smaller())
    )
    named: dict[str, list[tuple[bool, Query]]] = {}
    for hive in (False, True):
        genes = [one for of_hive, one in wanted if of_hive == hive]
        for start in range(0, len(genes), _MOST):
            chosen = enumerate(genes[start : start + _MOST])
            named[f"hive{start}" if hive else f"spark{start}"] = [
                (hive, Query(f"q{i:03d}", one)) for i, one in chosen
            ]
    if named:
        scripts = {
            name: scripts_of([query for _, query in of], name, hive=of[0][0])
            for name, of in named.items()
        }
        record(scripts, folder)
    failures: dict[tuple[bool, object], set[tuple[str, Failure]]] = {}
    for name, of_name in named.items():
        verdicts = {capture: judge(folder / name, capture).wrong for capture in CAPTURES}
        for hive, query in of_name:
            failures[hive, query.genes] = {
                (capture, failure)
                for capture, wrong in verdicts.items()
                for failure in wrong.get(query.name, ())
            }
    return failures


def main() -> None:
    """Run, judge, and shrink."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-3", help="from-to")
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help="of the applications")
    parser.add_argument("--folder", type=Path, help="of the recordings; by default a temporary one")
    parser.add_argument(
        "--judge", action="store_true", help="convert earlier recordings, without Spark"
    )
    parser.add_argument("--shrink", action="store_true", help="shrink what fails")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each wrong edge")
    options = parser.parse_args()
    if options.shrink and options.mode != MODES[0]:
        parser.error("--shrink runs each query without the others: it needs --mode alone")
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="generated-jobs-"))
    if not options.judge:
        for seed, refused in record(
            {str(seed): scripts_of_seed(seed, options.mode) for seed in seeds}, folder
        ).items():
            for query, error in refused.items():
                print(
                    f"Spark refused {query} of seed {seed}: {error[error.rfind('Exception: ') :][:300]}"
                )
    tasks = judged(folder, seeds, options.mode, verbose=options.verbose)
    shown = set()
    for task in shrink(tasks, folder / "smaller") if options.shrink else ():
        lines = "\n".join(script_of(replace(task.query, name="q1"), "db", hive=task.hive).lines)
        if lines not in shown:
            shown.add(lines)
            print(
                f"\n# {task.capture}: {' '.join(reversed(task.failure))}{' (Hive)' if task.hive else ''}\n{lines}"
            )


if __name__ == "__main__":
    main()
