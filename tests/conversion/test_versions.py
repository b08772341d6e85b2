"""Versions, rows and bytes that a run read and wrote: properties of the run, one for each dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.runs.fold import Fold
from tests.conversion.builders import (
    APP,
    OTHER_QUERY,
    Json,
    file,
    find_all,
    only_job,
    parsed,
    proposals,
    query,
    schema,
    settings,
    symlink,
    urn,
    whole_application,
)
from tests.conversion.recordings import lines_of

DATA = Path(__file__).parents[1] / "data"


def uses(events: Iterable[object]) -> dict[str, Json]:
    """Return what the only run that is an application says of each dataset, by ``input:<urn>`` or ``output:<urn>``."""
    job = only_job(events)
    (written,) = (
        each for each in find_all(proposals(job), "dataProcessInstanceProperties") if each.entity_urn == job.run_urn
    )
    properties: dict[str, str] = written.to_obj()["aspect"]["json"]["customProperties"]
    return {name: json.loads(text) for name, text in properties.items() if "urn:li:dataset:" in name}


def table(version: str = "", *, rows: int | None = None, scan: float | None = None, **facets: Any) -> Json:
    """Return the table ``db.t`` as an input or an output."""
    described = file("/wh/t", symlinks=symlink("hive://m", "db.t"), **facets)
    described["facets"] |= {"version": {"datasetVersion": version}} if version else {}
    described["inputFacets"] = {"inputStatistics": {"rowCount": rows, "size": 7}} if rows is not None else {}
    described["inputFacets"] |= {"icebergScanReport": {"snapshotId": scan}} if scan is not None else {}
    return described


TABLE = urn("hive", "db.t")


def test_a_read_in_the_past_has_the_snapshot_of_the_statement() -> None:
    # The job: SELECT amount FROM ice.db.sold VERSION AS OF 6889243202032918875, and a read of the latest one.
    found = uses(lines_of(DATA / "hard_jobs" / "events" / "iceberg_writes-4.1.4.ndjson"))
    latest = found[f"output:{urn('hive', 'db.sold')}"]["version"]
    assert found[f"input:{urn('hive', 'db.sold')}"]["version"].split(", ") == [latest, "6889243202032918875"]


def test_a_merge_in_delta_writes_the_version_after_the_one_that_it_read() -> None:
    # The job: CREATE OR REPLACE TABLE … AS SELECT is version 0, MERGE is version 1.
    found = uses(lines_of(DATA / "corpus" / "events" / "f_delta.ndjson"))
    written = found[f"output:{urn('hive', 'dl.customers')}"]
    assert (written["version"], written["earlier"]) == ("1", "0")
    assert found[f"input:{urn('hive', 'dl.customers')}"]["version"].startswith("0")


@pytest.mark.parametrize("version_at_the_end", ["11", ""])
def test_reads_have_the_version_of_the_start_and_writes_that_of_the_end(version_at_the_end: str) -> None:
    events = whole_application(
        query("START", second=1, inputs=[table("10")], outputs=[table("10")]),
        query("COMPLETE", second=2, inputs=[table(version_at_the_end)], outputs=[table("11")]),
    )
    found = uses(events)
    assert (found[f"input:{TABLE}"]["version"], found[f"output:{TABLE}"]["version"]) == ("10", "11")


def test_a_read_without_a_version_beside_others_is_marked() -> None:
    both = [query(inputs=[table(version)], outputs=[file("/z")], run_id=run_id) for version, run_id in
            (("10", OTHER_QUERY), ("", "01900000-0000-7000-8000-000000000003"))]  # fmt: skip
    assert uses(whole_application(*both))[f"input:{TABLE}"]["version"] == "10, ?"


def test_a_snapshot_that_no_event_names_exactly_stays_rounded() -> None:
    scanned = query(inputs=[table("6889243202032918875", scan=4.5e18)], outputs=[file("/z")])
    assert uses(whole_application(scanned))[f"input:{TABLE}"]["version"] == "4.5e+18"


def test_counts_are_the_largest_read_and_the_sum_of_writes() -> None:
    written = file("/z") | {"outputFacets": {"outputStatistics": {"rowCount": 4, "size": 9}}}
    first = query(inputs=[table(rows=3)], outputs=[written])
    second = query(run_id=OTHER_QUERY, second=5, inputs=[table(rows=8)], outputs=[written])
    found = uses(whole_application(first, second))
    written_at = {"version": "2026-01-01T00:00:05Z", "inferred": True}
    assert found == {
        f"input:{TABLE}": {"rows": 8, "bytes": 7, "scans": [[3, 7], [8, 7]]},
        f"output:{urn('file', '/z')}": {**written_at, "rows": 8, "bytes": 18},
    }


def test_the_hash_of_a_schema_depends_on_names_and_types_alone() -> None:
    def hash_of(*fields: Any) -> str:
        read = query(inputs=[table("1", schema=schema(*fields))], outputs=[file("/z")])
        return str(uses(whole_application(read))[f"input:{TABLE}"]["schema"])

    nested = {"name": "b", "type": "struct", "fields": [{"name": "c", "type": "int"}]}
    same = hash_of(("a", "int"), nested)
    assert same == hash_of({"name": "a", "type": "int", "description": "of it"}, nested)
    assert same != hash_of(("a", "long"), nested)
    assert same != hash_of(("a", "int"), nested | {"fields": [{"name": "c", "type": "long"}]})


def test_a_failed_query_read_and_wrote_nothing() -> None:
    failed = query("FAIL", run_id=OTHER_QUERY, second=5, inputs=[table("1", rows=0)], outputs=[file("/y")])
    good = query(inputs=[table("2", rows=1)], outputs=[file("/z")])
    assert uses(whole_application(good, failed))[f"input:{TABLE}"]["version"] == "2"


@pytest.mark.parametrize(
    ("rows", "written", "warned"),
    [
        ([0], "/z", True),
        ([0, 0], "/z", True),
        ([0, 5], "/z", False),
        ([0, None], "/z", False),
        ([], "/z", False),
        # The target of a first MERGE is empty.
        ([0], "/wh/t", False),
    ],
)
def test_a_dataset_of_which_no_row_was_read_is_a_gap(rows: list[int | None], written: str, warned: bool) -> None:
    output = table() if written == "/wh/t" else file(written)
    queries = [
        query(run_id=run_id, second=second, inputs=[table(rows=count)], outputs=[output])
        for second, (run_id, count) in enumerate(zip((OTHER_QUERY[:-1] + "1", OTHER_QUERY), rows, strict=False))
    ]
    job = only_job(whole_application(*queries))
    assert (f"read 0 rows of {TABLE}" in job.diagnostics.gaps) == warned


def test_equal_queries_that_are_merged_keep_their_counts_and_the_last_version() -> None:
    fold = Fold(settings())
    for number in range(30):
        identity: Json = {"run_id": f"{OTHER_QUERY[:-2]}{number:02d}", "second": number}
        inputs, outputs = [table("1", rows=number, scan=number)], [table(str(number + 2))]
        fold.add(parsed(**identity, parent=APP, inputs=inputs, outputs=outputs))
    fold.deduplicate(keep_last=0, most=1)
    (application,) = fold.applications()
    (run,) = application.runs
    (read,), (state,) = run.inputs.values(), run.outputs.values()
    assert (read.statistics.rows, read.version, state.version) == (29, "1", "31")
    assert read.scans == tuple(range(10, 30)), "a stream reads a new snapshot with each batch"
