"""Column lineage from facets."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from airflow_provider_spark_datahub.conversion import DatasetId
from airflow_provider_spark_datahub.conversion.columns.facet import DatasetColumns
from airflow_provider_spark_datahub.conversion.columns.fine_grained import fine_grained_lineages
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import (
    COLUMN_EDGES_LEFT_OUT,
    STATEMENTS_LEFT_OUT,
    TextLimit,
)
from airflow_provider_spark_datahub.conversion.events import EventDataset, Facets
from tests.cases import cases
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    file,
    file_urns,
    only_job,
    query,
    schema,
    settings,
    urn,
    whole_application,
)

OUTPUT = urn("hive", "db.t")


def field(dataset: str, name: str) -> str:
    return f"urn:li:schemaField:({dataset},{name})"


def source(path: str, name: str) -> str:
    return field(urn("file", path), name)


def read(facet: Json, sql: str = "", **other_facets: Any) -> DatasetColumns | None:
    output = EventDataset(
        DatasetId("hive", "db.t"), Facets.of({"columnLineage": facet, **other_facets})
    )
    return DatasetColumns.read(output, Facets(), sql)


def lineages(
    *queries: DatasetColumns | None,
    output: str = OUTPUT,
    cuts: TextLimit | None = None,
    **options: Any,
) -> list[Json]:
    namer = DatasetNamer(settings(), {DatasetId("file", "/wh/t"): DatasetId("hive", "db.source")})
    per_query = [(output, columns) for columns in queries if columns is not None]
    wanted = settings(**options)
    found = fine_grained_lineages(
        per_query, namer, wanted, cuts or TextLimit(wanted.max_string_length)
    )
    assert json.loads(msgspec.json.encode(found)) == found
    return found


@cases("columns")
def test_transformations_are_written_as_text(
    transformations: list[str], sql: str, expected: list[str]
) -> None:
    found = lineages(read(column_lineage({"z": [column("/a", "x", *transformations)]}), sql))
    assert [lineage["transformOperation"] for lineage in found] == expected


def short(column: str) -> str:
    """Return a column's URN as the cases spell it: the name of its dataset and its own."""
    dataset, _, name = column.removeprefix("urn:li:schemaField:(").removesuffix(")").rpartition(",")
    return f"{dataset.split(',')[1]}.{name}"


def facet_of(fields: Json, of_dataset: dict[str, list[str]]) -> Json:
    """Return the facet of columns in short form: ``{z: {/a.x: [DIRECT:IDENTITY]}}``, or a field as
    it is in JSON.
    """

    def inputs(listed: dict[str, list[str]]) -> list[Json]:
        return [
            column(*name.rsplit(".", 1), *transformations)
            for name, transformations in listed.items()
        ]

    plain = {name: field for name, field in fields.items() if not field or "inputFields" in field}
    facet = column_lineage(
        {name: inputs(field) for name, field in fields.items() if name not in plain}
    )
    return {"fields": facet["fields"] | plain, "dataset": inputs(of_dataset)}


@cases("columns")
def test_column_lineage_is_read(
    fields: Json,
    of_dataset: dict[str, list[str]],
    names: list[str],
    expected: list[list[Any]],
    inputs: list[str],
) -> None:
    columns = read(facet_of(fields, of_dataset), schema=schema(*((name, "int") for name in names)))
    found = [
        [[short(name) for name in edge[side]] for side in ("downstreams", "upstreams")]
        + [edge["transformOperation"]]
        for edge in lineages(columns)
    ]
    assert found == [[[f"db.t.{name}"], *rest] for name, *rest in expected]
    assert columns is not None
    assert [dataset.name for dataset in columns.inputs] == inputs


def test_columns_that_give_no_value_are_left_out() -> None:
    """As with the Java listener's ``columnLineage.includeIndirect=false``: datahub#17594."""
    fields = {
        "z": [column("/a", "x", "DIRECT:IDENTITY"), column("/b", "id", "INDIRECT:JOIN")],
        "y": [
            column("/a", "both", "INDIRECT:FILTER", "DIRECT:AGGREGATION"),
            column("/a", "unknown"),
        ],
        "one": [column("/a", "x", "INDIRECT:CONDITIONAL")],
    }
    output = file(
        "/z", columnLineage=column_lineage(fields, [column("/b", "day", "INDIRECT:FILTER")])
    )
    application = whole_application(query(inputs=[file("/a"), file("/b")], outputs=[output]))
    written = only_job(application, capture_indirect_columns=False).lineage
    assert {
        short(edge["downstreams"][0]): [short(name) for name in edge["upstreams"]]
        for edge in written.fine_grained
    } == {
        "/z.z": ["/a.x"],
        "/z.y": ["/a.both", "/a.unknown"],
    }
    assert [edge["transformOperation"] for edge in written.fine_grained] == [
        "DIRECT:IDENTITY",
        "DIRECT:AGGREGATION",
    ]
    everything = only_job(application).lineage
    assert {*everything.inputs} == {*written.inputs} == {*file_urns("/a", "/b")}
    assert len(everything.fine_grained) == 8


@cases("columns")
def test_empty_facets_give_no_lineage(facet: Json) -> None:
    assert read(facet) is None


def test_quoted_columns_are_those_of_the_schema() -> None:
    # As databases quote them in a query that they run; sum(n) is computed there.
    fields = {"a": '"Order Id"', "b": "`n`", "c": "sum(n)", "d": '"No Such"'}
    inputs = {name: [column("/a", each, "DIRECT:IDENTITY")] for name, each in fields.items()}
    ran = query(
        inputs=[file("/a", schema=schema(("Order Id", "long"), ("n", "int")))],
        outputs=[file("/z", columnLineage=column_lineage(inputs))],
    )
    found = [each["upstreams"] for each in only_job(whole_application(ran)).lineage.fine_grained]
    assert found == [[source("/a", "Order Id")], [source("/a", "n")]]


def test_names_are_escaped_in_json() -> None:
    names = ['a","b', '"', "\\", "ü", "c"]
    facet = column_lineage(
        {name: [column("/a", name, "DIRECT:IDENTITY")] for name in names}, [column("/b", "k")]
    )
    found = lineages(read(facet))
    assert [one["downstreams"] for one in found] == 2 * [
        [field(OUTPUT, name.replace(",", "%2C"))] for name in names
    ]
    with pytest.raises(UnicodeEncodeError):
        lineages(read(column_lineage({"half \ud800": [column("/a", "x")]})))


def test_lineage_is_the_union_over_queries() -> None:
    # Deviation 2: per (downstream, upstreams, transform), each once.
    x, y = column("/a", "x", "DIRECT:IDENTITY"), column("/a", "y", "DIRECT:IDENTITY")
    first, again, second = (read(column_lineage({"z": [item]})) for item in (x, x, y))
    other_statement = read(column_lineage({"z": [x]}), "SELECT x AS z")
    found = lineages(first, again, second, other_statement)
    assert [(each["upstreams"], each["transformOperation"]) for each in found] == [
        ([source("/a", "x")], "DIRECT:IDENTITY"),
        ([source("/a", "y")], "DIRECT:IDENTITY"),
        ([source("/a", "x")], "-- DIRECT:IDENTITY\nSELECT x AS z"),
    ]


def wide(columns: int, tables: int) -> DatasetColumns | None:
    """Return ``SELECT * FROM a UNION SELECT * FROM b UNION …``: all columns of all tables are
    grouping keys.
    """
    names = [f"c{number}" for number in range(columns)]
    paths = [f"/t{number}" for number in range(tables)]
    direct = {name: [column(path, name, "DIRECT:IDENTITY") for path in paths] for name in names}
    keys = [column(path, name, "INDIRECT:GROUP_BY") for path in paths for name in names]
    return read(column_lineage(direct, keys), "SELECT 1")


@pytest.mark.parametrize("longest", [400, 1600, 16_000])
def test_direct_edges_are_kept_first(longest: int) -> None:
    # Edges of single columns come first: four with one input each. A lineage is kept as a whole or
    # not at all.
    cuts = TextLimit(16_000_000)
    found = lineages(wide(4, 1), cuts=cuts, max_string_length=longest)
    direct = sum(
        len(each["upstreams"]) for each in found if "DIRECT:IDENTITY" in each["transformOperation"]
    )
    assert direct == min(sum(len(each["upstreams"]) for each in found), 4)
    left_out = 4 + 16 - sum(len(each["upstreams"]) for each in found)
    assert cuts.counts.get(COLUMN_EDGES_LEFT_OUT, 0) == left_out
    assert (longest == 16_000) == (left_out == 0)


def test_edges_that_decide_on_a_column_are_left_out_before_its_values() -> None:
    both = [column("/a", "x", "INDIRECT:CONDITIONAL"), column("/a", "y", "DIRECT:IDENTITY")]
    found = lineages(
        read(column_lineage({f"c{number}": both for number in range(3)})), max_string_length=900
    )
    assert [each["transformOperation"] for each in found] == ["DIRECT:IDENTITY"] * 3


def test_statements_are_left_out_before_edges() -> None:
    cuts = TextLimit(16_000_000)
    facet = column_lineage(
        {f"c{number}": [column("/a", "x", "DIRECT:IDENTITY")] for number in range(10)}
    )
    found = lineages(read(facet, f"SELECT {'x' * 900}"), cuts=cuts, max_string_length=5_000)
    assert [each["transformOperation"] for each in found] == ["DIRECT:IDENTITY"] * 10
    assert cuts.counts == {STATEMENTS_LEFT_OUT: 1}
    assert len(json.dumps(found, separators=(",", ":"))) <= 5_000
