"""A backfill's folder as the Spark job leaves it, made in this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from airflow_provider_spark_datahub.backfill.plan import CONVERTED_FILE, PLAN_FILE, PROPOSALS, SUMMARY, BackfillPlan
from airflow_provider_spark_datahub.conversion.archive import convert_archive
from airflow_provider_spark_datahub.conversion.proposals import Proposal, to_json_lines


def write_parts(folder: Path, parts: Iterable[Sequence[Proposal]]) -> Path:
    """A folder of some parts, complete."""
    for number, proposals in enumerate(parts):
        part = folder / PROPOSALS / f"part-{number:05d}-x.txt"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("".join(to_json_lines(proposals)), encoding="utf-8")
    (folder / CONVERTED_FILE).parent.mkdir(parents=True, exist_ok=True)
    (folder / CONVERTED_FILE).write_text("{}")
    return folder


def carry_out(plan: BackfillPlan) -> None:
    """What the Spark job makes of a plan."""
    folder = Path(plan.out.removeprefix("file://"))
    events = [
        (str(path), 0, line)
        for source in plan.sources
        for path in sorted(Path(source).glob("*.ndjson"))
        for line in path.read_bytes().splitlines()
    ]
    found = convert_archive(events, plan.settings(), plan.selection())
    aspects = [one.proposal.aspect_name for one in found.kept]
    summary = {
        "events": found.events,
        "runs": found.applications,
        "versions": found.versions,
        "proposals": len(found.kept),
        "proposals_by_aspect": {name: aspects.count(name) for name in sorted(set(aspects))},
        "quarantined": len(found.quarantined),
        "quarantined_by_reason": {one.reason: 1 for one in found.quarantined},
    }
    folder.mkdir(parents=True, exist_ok=True)
    if not plan.dry_run:
        write_parts(folder, [[one.proposal for one in found.kept]])
    (folder / PLAN_FILE).parent.mkdir(exist_ok=True)
    (folder / PLAN_FILE).write_text(plan.to_json())
    (folder / SUMMARY).write_text(json.dumps(summary))
