"""Ordinary jobs of a few lines, each with what all three captures find: default, the listener alone, the log alone."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import Converter, Ending
from tests.conversion.builders import Json, settings
from tests.conversion.test_hard_jobs import direct_columns, indirect_columns

FOLDER = Path(__file__).parents[1] / "data" / "ordinary"
TRUTH: dict[str, Json] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))


def short(urn: str) -> str:
    """Return ``a`` for the folder ``/lake/a``, and ``hive db.t`` for a table."""
    return re.sub(r"urn:li:dataset:\(urn:li:dataPlatform:(?:file,/lake/)?(.*),PROD\)", r"\1", urn).replace(",", " ")


def deviations(case: str, capture: tuple[str, ...]) -> Json:
    """Return the datasets and direct columns that are false, and those that are missing."""
    converter = Converter(settings())
    for kind, add in (("events", converter.add), ("log", converter.add_log_event)):
        lines = lzma.decompress((FOLDER / f"{case}.{kind}.ndjson.xz").read_bytes()) if kind in capture else b""
        for line in lines.splitlines():
            add(json.loads(line))
    conversion = converter.finish(Ending(succeeded=True))
    columns, conditions = (
        [(short(source), field, short(target), to) for source, field, target, to in pairs]
        for pairs in (direct_columns(conversion), indirect_columns(conversion))
    )
    edges = {"inputs": map(short, conversion.inputs), "outputs": map(short, conversion.outputs), "columns": columns}
    edges |= {"conditions": conditions} if "conditions" in TRUTH[case] else {}
    wrong: Json = {}
    for kind, found in edges.items():
        got, true = (set(map(json.dumps, each)) for each in (found, TRUTH[case][kind]))
        wrong |= {f"false {kind}": got - true, f"missing {kind}": true - got}
    return {kind: [json.loads(each) for each in sorted(those)] for kind, those in wrong.items() if those}


@pytest.mark.parametrize("capture", [("events", "log"), ("events",), ("log",)], ids=" and ".join)
@pytest.mark.parametrize("case", TRUTH)
def test_only_the_known_deviations_are_left(case: str, capture: tuple[str, ...]) -> None:
    assert deviations(case, capture) == TRUTH[case].get("known", {}).get(" and ".join(capture), {})


def test_a_job_that_fails_after_it_read_a_header_has_not_read_the_columns_of_the_text() -> None:
    # What `spark-datahub changed` compares: select() of a renamed column fails before any other query.
    converter, runs = Converter(settings()), {"csv_one_file_py", "csv_one_file_py.collect_limit"}
    for kind, add in (("events", converter.add), ("log", converter.add_log_event)):
        lines = lzma.decompress((FOLDER / f"csv_one_file.{kind}.ndjson.xz").read_bytes()).splitlines()
        events = [json.loads(line) for line in lines]
        first = min((event["executionId"] for event in events if "executionId" in event), default=None)
        for event in events:
            if event.get("executionId", first) == first and (first is not None or event["job"]["name"] in runs):
                add(event)
    (job,) = converter.finish(Ending(succeeded=False)).jobs
    assert (job.lineage.inputs, job.uses and job.uses.reads) == ({}, {})
