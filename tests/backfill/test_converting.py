"""The steps of the job give the very bytes that the converter gives in one process."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from airflow_provider_spark_datahub.conversion.archive import ArchiveFilter
from tests.backfill.steps import converted, kept, reference
from tests.conversion.builders import CORPUS, settings

OPTIONS = {"datasets": "schemas", "capture_operations": True}
PATHS = [*sorted((CORPUS / "events").glob("*.ndjson")), CORPUS / "edge" / "events.ndjson"]


def by_entity(rows: Iterable[tuple[str, int, str, str]]) -> dict[str, list[tuple[str, int, str, str]]]:
    found: dict[str, list[tuple[str, int, str, str]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("run_history", [False, True])
@pytest.mark.parametrize("layout", ["one file per job", "one file per event", "parts in any order"])
def test_the_steps_give_what_the_converter_gives(layout: str, run_history: bool) -> None:
    files = [(path.name, path.read_bytes()) for path in PATHS]
    if layout != "one file per job":
        lines = [line for _, content in files for line in content.splitlines(keepends=True)]
        size = 1 if layout == "one file per event" else 13
        random.Random(1).shuffle(lines)
        starts = range(0, len(lines), size)
        files = [(f"{start:05d}", b"".join(lines[start : start + size])) for start in starts]
    wanted = ArchiveFilter(run_history=run_history)
    expected = reference(files, settings(**OPTIONS), wanted)
    rows = converted([files[::3], files[1::3], files[2::3]], settings(**OPTIONS), wanted)
    assert by_entity(
        (row["entity_urn"], row["time_ms"], row["proposal"], row["reason"]) for row in kept(rows, wanted)
    ) == by_entity((one.proposal.entity_urn, one.time_ms, one.proposal.to_json(), one.reason) for one in expected.kept)
    counts = {row["place"]: row["number"] for row in rows if row["kind"] == "count"}
    refused = sum(row["kind"] == "bad" for row in rows)
    assert counts == {"runs": expected.applications, "versions": expected.versions, "quarantined": refused}


@pytest.mark.slow
def test_an_event_that_cannot_be_converted_is_listed_with_its_position() -> None:
    content = b'{"run": {"runId": "r"}, "job": {"name": "x"}, "eventTime": "2026-01-01T00:00:00Z"}\n'
    (row,) = [row for row in converted([[("f", b"\n" + content)]], settings(), ArchiveFilter()) if row["kind"] == "bad"]
    assert (row["place"], row["number"]) == ("f", 1)
    assert "the platform that ran the job is unknown" in row["reason"]
