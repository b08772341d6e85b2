"""Versions, rows and bytes that a run read and wrote: properties of the run, one for each dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Converter, Ending
from airflow_provider_spark_datahub.conversion.runs.versions import DatasetUses
from tests.cases import cases
from tests.conversion.builders import (
    OTHER_QUERY,
    Json,
    file,
    find_all,
    only_job,
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
    """Return what the only run that is an application says of each dataset, by ``input:<urn>`` or
    ``output:<urn>``.
    """
    job = only_job(events)
    (written,) = (
        each
        for each in find_all(proposals(job), "dataProcessInstanceProperties")
        if each.entity_urn == job.run_urn
    )
    properties: dict[str, str] = written.to_obj()["aspect"]["json"]["customProperties"]
    return {
        name: json.loads(text) for name, text in properties.items() if "urn:li:dataset:" in name
    }


def table(
    version: str = "", *, rows: int | None = None, scan: float | None = None, **facets: Any
) -> Json:
    """Return the table ``db.t`` as an input or an output."""
    described = file("/wh/t", symlinks=symlink("hive://m", "db.t"), **facets)
    described["facets"] |= {"version": {"datasetVersion": version}} if version else {}
    described["inputFacets"] = (
        {"inputStatistics": {"rowCount": rows, "size": 7}} if rows is not None else {}
    )
    described["inputFacets"] |= (
        {"icebergScanReport": {"snapshotId": scan}} if scan is not None else {}
    )
    return described


TABLE = urn("hive", "db.t")


def test_a_read_in_the_past_has_the_snapshot_of_the_statement() -> None:
    # The job: SELECT amount FROM ice.db.sold VERSION AS OF 6889243202032918875, and a read of the
    # latest one.
    found = uses(lines_of(DATA / "hard_jobs" / "events" / "iceberg_writes-4.1.4.ndjson"))
    latest = found[f"output:{urn('hive', 'db.sold')}"]["version"]
    assert found[f"input:{urn('hive', 'db.sold')}"]["version"].split(", ") == [
        latest,
        "6889243202032918875",
    ]


def test_a_merge_in_delta_writes_the_version_after_the_one_that_it_read() -> None:
    # The job: CREATE OR REPLACE TABLE … AS SELECT is version 0, MERGE is version 1.
    found = uses(lines_of(DATA / "corpus" / "events" / "f_delta.ndjson"))
    written = found[f"output:{urn('hive', 'dl.customers')}"]
    assert (written["version"], written["earlier"]) == ("1", "0")
    assert found[f"input:{urn('hive', 'dl.customers')}"]["version"].startswith("0")


@pytest.mark.parametrize("version_at_the_end", ["11", ""])
def test_reads_have_the_version_of_the_start_and_writes_that_of_the_end(
    version_at_the_end: str,
) -> None:
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


@pytest.mark.parametrize(
    ("version", "written"), [("5", "6"), ("9" * 5000, "9" * 5000)], ids=["5", "5,000 digits"]
)
def test_numbers_without_limit_cost_only_themselves(version: str, written: str) -> None:
    # Only the beginning of the write within a replacement says that the table is one of Delta.
    delta, source = table(version, storage={"storageLayer": "delta"}), file("/a")
    source["inputFacets"] = {
        "icebergScanReport": {"snapshotId": 10**400},
        "inputStatistics": {"rowCount": 3},
    }
    around: Json = {
        "job": "app.atomic_replace_table_as_select.t",
        "inputs": [source],
        "outputs": [file("/b")],
    }
    begun = query("START", second=2, run_id=OTHER_QUERY, inputs=[source], outputs=[delta])
    ended = query(second=3, run_id=OTHER_QUERY, inputs=[source], outputs=[table(version)])
    found = uses(
        whole_application(
            query("START", second=1, **around), begun, ended, query(second=4, **around)
        )
    )
    assert found[f"output:{TABLE}"]["version"] == written
    assert found[f"input:{urn('file', '/a')}"] == {"rows": 3}


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
    failed = query(
        "FAIL", run_id=OTHER_QUERY, second=5, inputs=[table("1", rows=0)], outputs=[file("/y")]
    )
    good = query(inputs=[table("2", rows=1)], outputs=[file("/z")])
    assert uses(whole_application(good, failed))[f"input:{TABLE}"]["version"] == "2"


@cases("versions")
def test_a_dataset_of_which_no_row_was_read_is_a_gap(
    rows: list[int | None], written: str, warned: bool
) -> None:
    output = table() if written == "/wh/t" else file(written)
    queries = [
        query(run_id=run_id, second=second, inputs=[table(rows=count)], outputs=[output])
        for second, (run_id, count) in enumerate(
            zip((OTHER_QUERY[:-1] + "1", OTHER_QUERY), rows, strict=False)
        )
    ]
    job = only_job(whole_application(*queries))
    assert (f"read 0 rows of {TABLE}" in job.diagnostics.gaps) == warned


# A job of Spark 4.1.4 with Iceberg 1.12.0 and Delta 4.4.0: job.py says what it does, truth.json
# what the histories of its tables said at its end, and how long its files were.
LOGGED = DATA / "versions"
TRUTH: Json = json.loads((LOGGED / "truth.json").read_text(encoding="utf-8"))


def logged(
    with_events: str = "none", conf: Json | None = None, **options: Any
) -> tuple[dict[str, Json], set[str]]:
    """Return what the job's run says of each dataset by the log, and the outputs that it left with
    nothing else.
    """
    found = uses_of("job", with_events, conf, **options)
    properties = {name: json.loads(text) for name, text in found.properties().items()}
    return properties, {urn for urn, use in found.writes.items() if use.replaces}


def uses_of(name: str, with_events: str, conf: Json | None = None, **options: Any) -> DatasetUses:
    """Return the uses of datasets by a logged job.

    :param with_events: OpenLineage's, too: all of them, or only those of the application.
    :param conf: configuration of the session.
    """
    converter = Converter(settings(**options))
    for event in map(
        json.loads, lines_of(LOGGED / f"{name}.ndjson") if with_events != "none" else ()
    ):
        if with_events == "all" or event["job"]["facets"]["jobType"]["jobType"] == "APPLICATION":
            converter.add(event)
    for line in lines_of(LOGGED / f"{name}.log.ndjson"):
        event = json.loads(line)
        if conf is not None and event["Event"].endswith("SQLExecutionStart"):
            event["modifiedConfigs"] = conf
        converter.add_log_event(event)
    (job,) = converter.finish(Ending(succeeded=True)).jobs
    assert job.uses is not None
    return job.uses


def of_file(name: str) -> str:
    return urn("file", f"/lake/{name}")


@pytest.mark.parametrize("with_events", ["none", "application"])
def test_the_log_alone_has_versions_and_amounts(with_events: str) -> None:
    found, _ = logged(with_events)
    orders, report = TRUTH["ice/shop/orders"], TRUTH["ice/shop/report"]
    (first, _), (second, at_last) = orders
    read = found[f"input:{urn('hive', 'shop.orders')}"]
    assert sorted(read["version"].split(", ")) == sorted([first, second])
    assert read["bytes"] == at_last["total-files-size"]
    assert found[f"input:{urn('hive', 'shop.report')}"]["version"] == report[0][0]
    for table, commits in (("orders", orders), ("report", report)):
        written = found[f"output:{urn('hive', f'shop.{table}')}"]
        assert written["rows"] == sum(commit["added-records"] for _, commit in commits)
        assert written["bytes"] == sum(commit["added-files-size"] for _, commit in commits)
        assert written["inferred"]
    # What a MERGE reads of its own target does not count.
    assert found[f"input:{of_file('totals')}"]["version"].split(", ") == ["0", "2"]
    assert (
        found[f"input:{of_file('raw')}"]["bytes"]
        == found[f"output:{of_file('raw')}"]["bytes"]
        == TRUTH["raw"]
    )
    assert [found[f"output:{of_file(name)}"]["bytes"] for name in ("old", "by_order")] == [
        TRUTH["old"],
        TRUTH["by_order"],
    ]
    assert [found[f"output:{of_file(name)}"]["rows"] for name in ("raw", "old", "by_order")] == [
        3,
        4,
        8,
    ]


def test_the_log_adds_the_versions_of_delta_at_a_path() -> None:
    by_events = uses(lines_of(LOGGED / "job.ndjson"))
    assert "version" not in by_events[f"input:{of_file('totals')}"]
    found, _ = logged("all")
    assert found[f"input:{of_file('totals')}"]["version"].split(", ") == ["0", "1", "2"]
    # What events say stays.
    orders = f"input:{urn('hive', 'shop.orders')}"
    assert found[orders] == by_events[orders]


@pytest.mark.parametrize("with_events", ["none", "application", "all"])
def test_plans_show_which_overwrites_leave_nothing_else(with_events: str) -> None:
    # Iceberg's commits say it of tables that were empty; nothing says it of partitions (by_order),
    # or of a table of Delta without a version.
    of_iceberg = {urn("hive", "shop.orders"), urn("hive", "shop.report")}
    assert logged(with_events)[1] == of_iceberg | {of_file(name) for name in ("raw", "old")}
    dynamic = {"spark.sql.sources.partitionOverwriteMode": "DYNAMIC"}
    assert logged(with_events, dynamic)[1] == of_iceberg
    # One dataset of several folders.
    assert logged(with_events, file_partition_regexp="/(raw|old)$")[1] == of_iceberg


def test_a_table_that_is_replaced_has_no_version_of_the_one_before() -> None:
    # writeTo(...).createOrReplace() of an Iceberg table: before it, the table's metadata named the
    # snapshot 5860030435187186500 as the latest one. So does the event of the inner query, at its
    # end.
    written = uses_of("replaced", "all").writes[urn("hive", "shop.orders")]
    assert (list(written.written), written.replaces) == (["8085742077019164357"], True)


def test_a_table_of_delta_that_is_replaced_has_the_version_after_the_one_of_the_event() -> None:
    # The log of the table: 0 created it, 1 and 2 replaced it, this job as version 2. OpenLineage
    # says 1.
    written = uses_of("replaced_delta", "all").writes[urn("hive", "default.revenue")]
    assert (list(written.written), written.replaces) == (["2"], True)
