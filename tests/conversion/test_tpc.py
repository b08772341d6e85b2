"""TPC-DS and TPC-H: every query has exactly its datasets and direct columns, by default and from the log alone."""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from tests.conversion.builders import Json, settings
from tests.conversion.test_hard_jobs import direct_columns

FOLDER = Path(__file__).parents[1] / "data" / "tpc"
TRUTH: dict[str, Json] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
GROUPS = sorted({query["group"] for query in TRUTH.values()})
_PREFIX = "urn:li:dataset:(urn:li:dataPlatform:"


def converted(group: str, *, with_events: bool) -> Conversion:
    converter = Converter(settings())
    for line in lines(f"{group}.ndjson") if with_events else ():
        assert converter.add(line) is None
    for line in lines(f"{group}.log.ndjson"):
        converter.add_log_event(json.loads(line))
    return converter.finish(Ending(succeeded=True))


def lines(name: str) -> list[bytes]:
    return lzma.decompress((FOLDER / f"{name}.xz").read_bytes()).splitlines()


def named(urn: str) -> str:
    return urn.removeprefix(_PREFIX).removesuffix(",PROD)")


@pytest.mark.parametrize("with_events", [True, False], ids=["default", "log alone"])
@pytest.mark.parametrize("group", GROUPS)
def test_each_query_has_its_datasets_and_columns(group: str, with_events: bool) -> None:
    conversion = converted(group, with_events=with_events)
    queries = [query for query in TRUTH.values() if query["group"] == group]
    # Catalogues fold case, and so does the truth.
    assert {named(urn).lower() for urn in conversion.outputs} == {query["output"].lower() for query in queries}
    assert set(map(named, conversion.inputs)) == {dataset for query in queries for dataset in query["inputs"]}
    columns = defaultdict(set)
    for dataset, column, target, field in direct_columns(conversion):
        columns[named(target).lower()].add((named(dataset), column, field.lower()))
    for query in queries:
        assert columns[query["output"].lower()] == set(map(tuple, query["columns"])), query["output"]
