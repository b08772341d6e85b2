"""Ordinary jobs of a few lines, each with what all three captures find: default, the listener
alone, the log alone.
"""

from __future__ import annotations

import json
import lzma
import re
from collections import defaultdict
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from tests.conversion.builders import Json, settings
from tests.conversion.pairs import derived_pairs
from tests.conversion.test_hard_jobs import direct_columns, indirect_columns

FOLDER = Path(__file__).parents[1] / "data" / "ordinary"
TRUTH: dict[str, Json] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))


def short(urn: str) -> str:
    """Return ``a`` for the folder ``/lake/a``, and ``hive db.t`` for a table."""
    return re.sub(
        r"urn:li:dataset:\(urn:li:dataPlatform:(?:file,/lake/)?(.*),PROD\)", r"\1", urn
    ).replace(",", " ")


def deviations(case: str, capture: tuple[str, ...]) -> Json:
    """Return the datasets and direct columns that are false, and those that are missing."""
    converter = Converter(settings())
    for kind, add in (("events", converter.add), ("log", converter.add_log_event)):
        lines = (
            lzma.decompress((FOLDER / f"{case}.{kind}.ndjson.xz").read_bytes())
            if kind in capture
            else b""
        )
        for line in lines.splitlines():
            add(json.loads(line))
    conversion = converter.finish(Ending(succeeded=True))
    columns, conditions = (
        [(short(source), field, short(target), to) for source, field, target, to in pairs]
        for pairs in (direct_columns(conversion), indirect_columns(conversion))
    )
    edges = {
        "inputs": map(short, conversion.inputs),
        "outputs": map(short, conversion.outputs),
        "columns": columns,
    }
    edges |= {"conditions": conditions} if "conditions" in TRUTH[case] else {}
    wrong: Json = {}
    for kind, found in edges.items():
        got, true = (set(map(json.dumps, each)) for each in (found, TRUTH[case][kind]))
        wrong |= {f"false {kind}": got - true, f"missing {kind}": true - got}
    return {
        kind: [json.loads(each) for each in sorted(those)] for kind, those in wrong.items() if those
    }


@pytest.mark.parametrize("capture", [("events", "log"), ("events",), ("log",)], ids=" and ".join)
@pytest.mark.parametrize("case", TRUTH)
def test_only_the_known_deviations_are_left(case: str, capture: tuple[str, ...]) -> None:
    assert deviations(case, capture) == TRUTH[case].get("known", {}).get(" and ".join(capture), {})


def test_a_job_that_fails_after_it_read_a_header_has_not_read_the_columns_of_the_text() -> None:
    # What `spark-datahub changed` compares: select() of a renamed column fails before any other
    # query.
    converter, runs = Converter(settings()), {"csv_one_file_py", "csv_one_file_py.collect_limit"}
    for kind, add in (("events", converter.add), ("log", converter.add_log_event)):
        lines = lzma.decompress(
            (FOLDER / f"csv_one_file.{kind}.ndjson.xz").read_bytes()
        ).splitlines()
        events = [json.loads(line) for line in lines]
        first = min(
            (event["executionId"] for event in events if "executionId" in event), default=None
        )
        for event in events:
            if event.get("executionId", first) == first and (
                first is not None or event["job"]["name"] in runs
            ):
                add(event)
    (job,) = converter.finish(Ending(succeeded=False)).jobs
    assert (job.lineage.inputs, job.uses and job.uses.reads) == ({}, {})


# -- TPC-DS and TPC-H: every query has exactly its datasets and direct columns, by default and from
# the log alone


TPC_FOLDER = Path(__file__).parents[1] / "data" / "tpc"
TPC: dict[str, Json] = json.loads((TPC_FOLDER / "truth.json").read_text(encoding="utf-8"))
GROUPS = sorted({query["group"] for query in TPC.values()})
_PREFIX = "urn:li:dataset:(urn:li:dataPlatform:"


def converted(group: str, *, with_events: bool) -> Conversion:
    converter = Converter(settings())
    for line in lines(f"{group}.ndjson") if with_events else ():
        assert converter.add(line) is None
    for line in lines(f"{group}.log.ndjson"):
        converter.add_log_event(json.loads(line))
    return converter.finish(Ending(succeeded=True))


def lines(name: str) -> list[bytes]:
    return lzma.decompress((TPC_FOLDER / f"{name}.xz").read_bytes()).splitlines()


def named(urn: str) -> str:
    return urn.removeprefix(_PREFIX).removesuffix(",PROD)")


@pytest.mark.parametrize("with_events", [True, False], ids=["default", "log alone"])
@pytest.mark.parametrize("group", GROUPS)
def test_each_query_has_its_datasets_pairs_and_columns(group: str, with_events: bool) -> None:
    conversion = converted(group, with_events=with_events)
    queries = [query for query in TPC.values() if query["group"] == group]
    # Catalogues fold case, and so does the truth.
    assert {named(urn).lower() for urn in conversion.outputs} == {
        query["output"].lower() for query in queries
    }
    assert set(map(named, conversion.inputs)) == {
        dataset for query in queries for dataset in query["inputs"]
    }
    derived = derived_pairs(conversion.proposals(settings()))
    assert {(named(source), named(output).lower()) for source, output in derived} == {
        (dataset, query["output"].lower()) for query in queries for dataset in query["inputs"]
    }
    columns = defaultdict(set)
    for dataset, column, target, field in direct_columns(conversion):
        columns[named(target).lower()].add((named(dataset), column, field.lower()))
    for query in queries:
        assert columns[query["output"].lower()] == set(map(tuple, query["columns"])), query[
            "output"
        ]
