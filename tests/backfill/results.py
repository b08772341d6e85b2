"""A backfill's folder as the Spark job leaves it, made in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_spark_datahub.backfill.plan import (
    CONVERTED_FILE,
    PLAN_FILE,
    PROPOSAL_COLUMN,
    PROPOSALS,
    SUMMARY,
    BackfillPlan,
)
from airflow_provider_spark_datahub.conversion import Proposal
from tests.capture.installations import executable
from tests.conversion.archive_in_memory import convert_archive


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a ``spark-submit`` that carries plans out, and notes its calls."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("FAKE_SPARK_CALLS", str(folder / "calls"))
    script = f'#!/bin/sh\nexec {sys.executable} -m tests.backfill.fake_spark_submit "$@"\n'
    return executable(folder / "bin" / "spark-submit", script)


def calls(folder: Path) -> list[list[str]]:
    """Return the arguments of each call of the stand-in."""
    file = folder / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_parts(folder: Path, parts: Iterable[Sequence[Proposal]]) -> Path:
    """Write the folder of a complete conversion."""
    for number, proposals in enumerate(parts):
        part = folder / PROPOSALS / f"part-{number:05d}-x.parquet"
        part.parent.mkdir(parents=True, exist_ok=True)
        write_part(part, [proposal.to_json() for proposal in proposals])
    (folder / CONVERTED_FILE).parent.mkdir(parents=True, exist_ok=True)
    (folder / CONVERTED_FILE).write_text("{}")
    return folder


def write_part(part: Path, texts: Sequence[str]) -> None:
    """Write a part of these proposals, with few of them in a group of rows."""
    pq.write_table(
        pa.table({PROPOSAL_COLUMN: pa.array(texts, pa.string())}), part, row_group_size=150
    )


def carry_out(plan: BackfillPlan) -> None:
    """Write the results that the Spark job writes for a plan."""
    folder = Path(plan.out.removeprefix("file://"))
    events = [
        (str(path), 0, line)
        for source in plan.sources
        for path in sorted(Path(source).glob("*.ndjson"))
        for line in path.read_bytes().splitlines()
    ]
    found = convert_archive(events, plan.settings(), plan.archive_filter())
    aspects = [kept.proposal.aspect_name for kept in found.kept]
    summary = {
        "events": found.events,
        "runs": found.applications,
        "versions": found.versions,
        "proposals": len(found.kept),
        "proposals_by_aspect": {name: aspects.count(name) for name in sorted(set(aspects))},
        "quarantined": len(found.quarantined),
        "quarantined_by_reason": {problem.reason: 1 for problem in found.quarantined},
    }
    folder.mkdir(parents=True, exist_ok=True)
    if not plan.dry_run:
        write_parts(folder, [[kept.proposal for kept in found.kept]])
    (folder / PLAN_FILE).parent.mkdir(exist_ok=True)
    (folder / PLAN_FILE).write_text(plan.to_json())
    (folder / SUMMARY).write_text(json.dumps(summary))
