"""DataHub derives the pairs of datasets that are true by construction, from generated jobs.

The truth of a pair is that of the query that writes: a dataset that the application writes and
reads again passes nothing on.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.generated_jobs.frames import DATA, Column, Frame
from tests.generated_jobs.generator import (
    application,
    queries,
    scripts_of,
)
from tests.generated_jobs.judging import judge
from tests.generated_jobs.script import Application, Script
from tests.generated_jobs.steps import bring, show

RECORDINGS = sorted(
    f"{folder}/{path.name}"
    for folder in ("recorded", "shared")
    for path in (DATA / folder).iterdir()
)

# `.rdd` of a cached frame brought rows to the driver, without an execution in the log.
NOT_MENDED = {
    ("shared/8", "log"): {"q013": ["missing"], "q024": ["missing"]},
    ("shared/410", "log"): {"q022": ["missing"]},
    ("shared/424", "log"): {"q018": ["missing"]},
}
"""By recording and capture: queries with wrong pairs that are known."""


@pytest.mark.parametrize("capture", ["default", "log"])
@pytest.mark.parametrize("recording", RECORDINGS)
def test_recorded_jobs_have_their_pairs_alone(recording: str, capture: str) -> None:
    verdict = judge(DATA / recording, capture)
    assert verdict.counts["pairs", "true"] > 10
    wrong: dict[str, list[str]] = {}
    for query, failures in verdict.wrong.items():
        results = sorted(result for kind, result in failures if kind == "pairs")
        if results:
            wrong[query] = results
    assert wrong == NOT_MENDED.get((recording, capture), {})


def script(application: Application, name: str) -> Script:
    """Return an empty query of an application whose next one it is."""
    return Script(name, "db", False, application, Random(1))


def source(dataset: str) -> Frame:
    column = Column("n", frozenset({(dataset, "id")}), plain=True, firm=True)
    return Frame("f", {"id": column}, frozenset({dataset}))


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_the_driver_come_from_all_that_reached_it_before(seed: int) -> None:
    first = script(Application(), "q001")
    show(first, Random(seed), source("shown"), lambda: Frame("", {}))
    first.executed(source("written"), "out")
    bring(first, Random(seed), source("brought"), lambda: Frame("", {}))
    second = script(first.application, "q002")
    rows = second.rows_held()
    second.executed(source("later"), "", brought=True)
    second.executed(rows, "x")
    # What reached the driver after it made the frame looks the same in Spark's plans.
    assert second.pairs == {("brought", "x")}
    assert second.either_pairs - second.pairs == {("later", "x")}


@pytest.mark.parametrize("seed", range(8))
def test_constants_come_from_nothing_but_may_look_like_rows_of_the_driver(seed: int) -> None:
    query = script(Application(), "q001")
    query.executed(query.literal(), "first")
    query.executed(source("a"), "", brought=True)
    query.rng = Random(seed)
    query.executed(query.constants(), "x")
    query.executed(query.literal(), "y")
    either = {("a", "y")}
    if any("VALUES" in line for line in query.lines):
        either.add(("a", "x"))
    assert (query.pairs, query.either_pairs) == (set(), either)


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_seed_of_queries_that_share_gives_the_same_jobs(seed: int) -> None:
    texts = {
        application(scripts_of(queries(seed, mode="shared"), "db", hive=seed % 2 == 0))
        for _ in range(2)
    }
    assert len(texts) == 1
    compile(texts.pop(), "job", "exec")
