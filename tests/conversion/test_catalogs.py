"""Tables of Glue, of Iceberg's catalogues, of Delta and BigQuery: their names by Spark's event log
alone and by events.

The truth of ``tests/data/catalogs`` comes from its jobs.
"""

from __future__ import annotations

import json
import re

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from tests.cases import cases
from tests.conversion.builders import CORPUS, Json, settings, urn
from tests.conversion.recordings import (
    column_pairs,
    edges,
    expected_columns,
    expected_edges,
    lines_of,
)

FOLDER = CORPUS.parent / "catalogs"
TRUTH: dict[str, Json] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
REPORTED = [case for case in TRUTH if lines_of(FOLDER / "events" / f"{case}.ndjson")]
ACCOUNT = "arn:aws:glue:eu-west-1:123456789012"


def converted(case: str, *kinds: str, without: bytes = b"\0", **options: object) -> Conversion:
    """Convert a recording. :param without: text of lines that are left out."""
    converter = Converter(settings(**{**TRUTH[case].get("options", {}), **options}))
    for kind in kinds:
        add = converter.add if kind == "events" else converter.add_log_event
        for line in lines_of(FOLDER / kind / f"{case}.ndjson"):
            if without not in line:
                add(json.loads(line))
    return converter.finish(Ending(succeeded=True))


@pytest.mark.parametrize("case", TRUTH)
def test_the_log_alone_has_the_true_edges_and_names_what_it_hides(case: str) -> None:
    conversion = converted(case, "logs")
    assert edges(conversion.jobs) == expected_edges(TRUTH[case])
    assert expected_columns(TRUTH[case]) <= column_pairs(conversion.jobs)
    assert list(conversion.diagnostics.unnamed_sources) == TRUTH[case].get("unnamed", [])


@pytest.mark.parametrize("case", REPORTED)
def test_events_give_the_same_urns(case: str) -> None:
    true = {urn for _, urn in expected_edges(TRUTH[case])} | {*TRUTH[case].get("hidden", ())}
    assert {urn for _, urn in edges(converted(case, "events").jobs)} <= true
    both = converted(case, "events", "logs").jobs
    assert expected_edges(TRUTH[case]) <= edges(both)
    assert {urn for _, urn in edges(both)} <= true


@pytest.mark.parametrize(
    ("places", "instance"),
    [
        ([ACCOUNT], "prod."),
        ([f"{ACCOUNT[:-1]}3"], ""),
        # The log does not name the region.
        ([ACCOUNT, ACCOUNT.replace("west", "north")], None),
    ],
)
def test_tables_in_glue_have_the_instance_of_their_account(
    places: list[str], instance: str | None
) -> None:
    namespaces = {place: {"platform_instance": "prod"} for place in places}
    conversion = converted("iceberg_glue", "logs", namespaces=namespaces)
    names = ("orders", "daily") if instance is not None else ()
    assert {*conversion.inputs} == {
        f"urn:li:dataset:(urn:li:dataPlatform:glue,{instance}shop.{name},PROD)" for name in names
    }
    assert bool(conversion.diagnostics.unnamed_sources) is (instance is None)


@cases("catalogs")
def test_tables_are_named_by_the_catalogues_that_the_log_shows(
    was: str, now: str, unnamed: list[str]
) -> None:
    log = b"\n".join(lines_of(FOLDER / "logs" / "iceberg_catalogs.ndjson")).decode()
    log, number = re.subn(was, now, log)
    converter = Converter(settings())
    for line in log.splitlines():
        converter.add_log_event(json.loads(line))
    found = converter.finish(Ending(succeeded=True))
    assert number
    names = {one.rpartition(".")[2] for one in unnamed}
    assert {*found.outputs} == {
        urn("hive", f"shop.{name}") for name in {"daily", "orders", "unclear"} - names
    }
    assert {*found.diagnostics.unnamed_sources} == set(unnamed)


def test_tables_that_must_be_paths_have_no_name_where_the_log_lacks_them() -> None:
    conversion = converted("iceberg_glue", "logs", disable_symlink_resolution=True)
    assert not [*conversion.inputs, *conversion.outputs]
    assert "glue.shop.orders" in conversion.diagnostics.unnamed_sources
