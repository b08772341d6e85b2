"""Generated jobs have the lineage that is theirs by construction: recorded ones, and one that a
real Spark runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.generated_jobs.frames import DATA
from tests.generated_jobs.generator import queries, script_of
from tests.generated_jobs.judging import CAPTURES, judge
from tests.generated_jobs.recording import record

RECORDINGS = sorted(path.name for path in (DATA / "recorded").iterdir())
SHARED = sorted(path.name for path in (DATA / "shared").iterdir())
NOT_MENDED = yaml.safe_load((DATA / "not_mended.yaml").read_text()) or {}
"""By capture and recording: queries with wrong edges that are known."""


def wrong_edges(folder: Path, capture: str) -> dict[str, list[str]]:
    verdict = judge(folder, capture)
    assert verdict.counts["columns", "true"] > 30
    return {
        query: listed
        for query, wrong in verdict.wrong.items()
        if (listed := sorted(f"{what} {kind}" for kind, what in wrong if kind != "pairs"))
    }


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("recording", RECORDINGS)
def test_recorded_jobs_have_no_wrong_edges_but_known_ones(recording: str, capture: str) -> None:
    known = NOT_MENDED.get(capture, {}).get(int(recording), {})
    assert wrong_edges(DATA / "recorded" / recording, capture) == known


@pytest.mark.parametrize("capture", ["default", "log"])
@pytest.mark.parametrize("seed", SHARED)
def test_recorded_jobs_whose_queries_share_have_no_wrong_edges(seed: str, capture: str) -> None:
    known = NOT_MENDED.get(capture, {}).get(int(seed), {})
    assert wrong_edges(DATA / "shared" / seed, capture) == known


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_gives_the_same_jobs_and_all_smaller_ones(seed: int) -> None:
    for query, again in zip(queries(seed), queries(seed), strict=True):
        script = script_of(query, "db", hive=seed == 2)
        assert script.lines == script_of(again, "db", hive=seed == 2).lines
        for smaller in query.smaller():
            assert len(smaller.genes) < len(query.genes) or len(str(smaller)) < len(str(query))
            compile("\n".join(script_of(smaller, "db", hive=seed == 2).lines), "job", "exec")


@pytest.mark.spark
def test_a_real_spark_runs_generated_jobs(tmp_path: Path) -> None:
    scripts = [script_of(query, "shop", hive=False) for query in queries(11)[1:9]]
    assert record({"jobs": scripts}, tmp_path) == {"jobs": {}}
    assert wrong_edges(tmp_path / "jobs", "default") == {}
