"""Column lineage from facets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from datahub.metadata.schema_classes import FineGrainedLineageClass

from airflow_provider_spark_datahub.conversion import DatasetId
from airflow_provider_spark_datahub.conversion.columns.facet import DatasetColumns
from airflow_provider_spark_datahub.conversion.columns.fine_grained import (
    fine_grained_lineages,
)
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import (
    COLUMN_EDGES_LEFT_OUT,
    STATEMENTS_LEFT_OUT,
    TextLimit,
)
from airflow_provider_spark_datahub.conversion.events import EventDataset, Facets
from tests.cases import cases
from tests.conversion.builders import Json, column, column_lineage, schema, settings, urn

OUTPUT = urn("hive", "db.t")


def field(dataset: str, name: str) -> str:
    return f"urn:li:schemaField:({dataset},{name})"


def source(path: str, name: str) -> str:
    return field(urn("file", path), name)


def read(facet: Json, sql: str = "", **other_facets: Any) -> DatasetColumns | None:
    output = EventDataset(DatasetId("hive", "db.t"), Facets.of({"columnLineage": facet, **other_facets}))
    return DatasetColumns.read(output, Facets(), sql)


def lineages(
    *queries: DatasetColumns | None, output: str = OUTPUT, cuts: TextLimit | None = None, **options: Any
) -> list[Json]:
    namer = DatasetNamer(settings(), {DatasetId("file", "/wh/t"): DatasetId("hive", "db.source")})
    per_query = [(output, columns) for columns in queries if columns is not None]
    wanted = settings(**options)
    found = fine_grained_lineages(per_query, namer, wanted, cuts or TextLimit(wanted.max_string_length))
    assert json.loads(bytes(found.json)) == [*found]
    assert len(found) == len([*found])
    return [*found]


def test_a_column_has_one_fine_grained_lineage() -> None:
    facet = column_lineage({"z": [column("/b", "y", "DIRECT:IDENTITY"), column("/a", "x", "INDIRECT:FILTER")]})
    (lineage,) = lineages(read(facet))
    assert lineage == {
        "upstreamType": "FIELD_SET",
        "upstreams": [source("/a", "x"), source("/b", "y")],
        "downstreamType": "FIELD_SET",
        "downstreams": [field(OUTPUT, "z")],
        "transformOperation": "DIRECT:IDENTITY,INDIRECT:FILTER",
        "confidenceScore": 0.5,
    }
    assert FineGrainedLineageClass.from_obj(lineage).validate()


@cases("columns")
def test_transformations_are_written_as_text(transformations: list[str], sql: str, expected: str) -> None:
    (lineage,) = lineages(read(column_lineage({"z": [column("/a", "x", *transformations)]}), sql))
    assert lineage["transformOperation"] == expected


def test_a_transformation_may_have_no_subtype() -> None:
    item = {**column("/a", "x"), "transformations": [{"type": "DIRECT"}, {"subtype": "JOIN"}]}
    (lineage,) = lineages(read(column_lineage({"z": [item]})))
    assert lineage["transformOperation"] == "DIRECT:null,null:JOIN"


def test_masking_makes_no_second_transformation() -> None:
    # OpenLineage lists an input once with and once without ``masking``.
    item = column("/a", "x")
    item["transformations"] = [
        {"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": masking} for masking in (True, False)
    ]
    (lineage,) = lineages(read(column_lineage({"z": [item, item]})))
    assert (lineage["upstreams"], lineage["transformOperation"]) == ([source("/a", "x")], "DIRECT:TRANSFORMATION")


def test_a_column_may_have_indirect_inputs_only() -> None:
    (lineage,) = lineages(read(column_lineage({"z": [column("/a", "x", "INDIRECT:CONDITIONAL")]})))
    assert (lineage["upstreams"], lineage["transformOperation"]) == ([source("/a", "x")], "INDIRECT:CONDITIONAL")


def test_inputs_of_the_whole_dataset_act_on_all_its_columns() -> None:
    facet = column_lineage(
        {"z": [column("/a", "x", "DIRECT:IDENTITY")]},
        [
            column("/a", "day", "INDIRECT:FILTER"),
            column("/b", "id", "INDIRECT:JOIN"),
            column("/a", "id", "INDIRECT:JOIN"),
        ],
    )
    direct, *indirect = lineages(read(facet, schema=schema(("z", "int"), ("one", "int"))))
    assert direct["upstreams"] == [source("/a", "x")]
    days, ids = [source("/a", "day")], [source("/a", "id"), source("/b", "id")]
    assert [(each["downstreams"], each["upstreams"], each["transformOperation"]) for each in indirect] == [
        ([field(OUTPUT, "z")], days, "INDIRECT:FILTER"),
        ([field(OUTPUT, "one")], days, "INDIRECT:FILTER"),
        ([field(OUTPUT, "z")], ids, "INDIRECT:JOIN"),
        ([field(OUTPUT, "one")], ids, "INDIRECT:JOIN"),
    ]


def test_every_lineage_has_one_downstream() -> None:
    # GMS refuses to patch an aspect that holds one with several downstreams (``FineGrainedLineageTemplateHelper``).
    facet = column_lineage({"z": [column("/a", "x")], "y": []}, [column("/a", "day", "INDIRECT:FILTER")])
    assert [len(each["downstreams"]) for each in lineages(read(facet, schema=schema(("n", "int"))))] == [1] * 5


def test_the_same_input_of_a_column_and_of_all_rows_is_one_edge() -> None:
    day = column("/a", "day", "INDIRECT:FILTER")
    assert len(lineages(read(column_lineage({"z": [day]}, [day])))) == 1


def test_inputs_of_all_rows_apply_to_columns_without_inputs() -> None:
    # ``SELECT count(*) FROM a WHERE day = 1``.
    facet = column_lineage({}, [column("/a", "day", "INDIRECT:FILTER")])
    (lineage,) = lineages(read(facet, schema=schema(("count", "long"))))
    assert (lineage["downstreams"], lineage["upstreams"]) == ([field(OUTPUT, "count")], [source("/a", "day")])


def test_a_direct_input_of_the_whole_dataset_is_an_input_but_has_no_column_edges() -> None:
    facet = column_lineage({"z": [column("/a", "x")]}, [column("/b", "key", "DIRECT:TRANSFORMATION")])
    columns = read(facet)
    (lineage,) = lineages(columns)
    assert lineage["upstreams"] == [source("/a", "x")]
    assert columns is not None
    assert [dataset.name for dataset in columns.inputs] == ["/a", "/b"]


@cases("columns")
def test_empty_facets_give_no_lineage(facet: Json) -> None:
    assert read(facet) is None


@pytest.mark.parametrize("described", [None, {}, {"inputFields": None}, {"inputFields": [None, 1, {"field": None}]}])
def test_a_constant_column_has_no_upstreams(described: Any) -> None:
    # As the Java listener has it: the constant column is listed, without upstreams.
    (lineage,) = lineages(read({"fields": {"z": described}}))
    assert (lineage["downstreams"], lineage["upstreams"]) == ([field(OUTPUT, "z")], [])


def test_a_path_of_a_table_counts_as_the_table() -> None:
    (lineage,) = lineages(read(column_lineage({"z": [column("/wh/t", "x")]})))
    assert lineage["upstreams"] == [field(urn("hive", "db.source"), "x")]


def test_reserved_characters_in_column_names_are_encoded() -> None:
    # Deviation 21.
    (lineage,) = lineages(read(column_lineage({"sum(x)": [column("/a", "c,d")]})))
    assert (lineage["downstreams"], lineage["upstreams"]) == ([field(OUTPUT, "sum%28x%29")], [source("/a", "c%2Cd")])


def test_names_are_escaped_in_json() -> None:
    names = ['a","b', '"', "\\", "ü", "c"]
    facet = column_lineage({name: [column("/a", name, "DIRECT:IDENTITY")] for name in names}, [column("/b", "k")])
    found = lineages(read(facet))
    assert [one["downstreams"] for one in found] == 2 * [[field(OUTPUT, name.replace(",", "%2C"))] for name in names]
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


def test_secrets_in_statements_are_redacted() -> None:
    statement = "CREATE TABLE t USING jdbc OPTIONS (password 'hunter2') AS SELECT x FROM a"
    (lineage,) = lineages(read(column_lineage({"z": [column("/a", "x")]}), statement))
    assert "hunter2" not in lineage["transformOperation"]
    assert "SELECT x FROM a" in lineage["transformOperation"]


def test_inputs_of_column_lineage_are_listed() -> None:
    columns = read(column_lineage({"z": [column("/a", "x"), column("/b", "y")]}, [column("/c", "w", "INDIRECT:SORT")]))
    assert columns is not None
    assert {dataset.name for dataset in columns.inputs} == {"/a", "/b", "/c"}


def wide(columns: int, tables: int) -> DatasetColumns | None:
    """Return ``SELECT * FROM a UNION SELECT * FROM b UNION …``: all columns of all tables are grouping keys."""
    names = [f"c{number}" for number in range(columns)]
    paths = [f"/t{number}" for number in range(tables)]
    direct = {name: [column(path, name, "DIRECT:IDENTITY") for path in paths] for name in names}
    keys = [column(path, name, "INDIRECT:GROUP_BY") for path in paths for name in names]
    return read(column_lineage(direct, keys), "SELECT 1")


@pytest.mark.slow
def test_a_union_of_wide_tables_stays_as_long_as_its_direct_lineage() -> None:
    # 2.7 million pairs of columns and keys would be 270 MB, which GMS does not read; the 9,000 direct edges stay.
    cuts = TextLimit(16_000_000)
    found = lineages(wide(300, 30), cuts=cuts)
    assert {each["transformOperation"] for each in found} == {"-- DIRECT:IDENTITY\nSELECT 1"}
    assert sum(len(each["upstreams"]) for each in found) == 300 * 30
    assert cuts.counts == {COLUMN_EDGES_LEFT_OUT: 300 * 300 * 30}


@pytest.mark.parametrize("longest", [400, 1600, 16_000])
def test_direct_edges_are_kept_first(longest: int) -> None:
    # Edges of single columns come first: four with one input each. A lineage is kept as a whole or not at all.
    cuts = TextLimit(16_000_000)
    found = lineages(wide(4, 1), cuts=cuts, max_string_length=longest)
    direct = sum(len(each["upstreams"]) for each in found if "DIRECT:IDENTITY" in each["transformOperation"])
    assert direct == min(sum(len(each["upstreams"]) for each in found), 4)
    left_out = 4 + 16 - sum(len(each["upstreams"]) for each in found)
    assert cuts.counts.get(COLUMN_EDGES_LEFT_OUT, 0) == left_out
    assert (longest == 16_000) == (left_out == 0)


def test_statements_are_left_out_before_edges() -> None:
    cuts = TextLimit(16_000_000)
    facet = column_lineage({f"c{number}": [column("/a", "x", "DIRECT:IDENTITY")] for number in range(10)})
    found = lineages(read(facet, f"SELECT {'x' * 900}"), cuts=cuts, max_string_length=5_000)
    assert [each["transformOperation"] for each in found] == ["DIRECT:IDENTITY"] * 10
    assert cuts.counts == {STATEMENTS_LEFT_OUT: 1}
    assert len(json.dumps(found, separators=(",", ":"))) <= 5_000
