"""Columns from statements, for columns without any from OpenLineage (conversion rules, section
4.2).
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, DatasetId, Ending, convert_events
from airflow_provider_spark_datahub.conversion.columns.facet import ColumnId
from airflow_provider_spark_datahub.conversion.columns.sql import (
    MAX_STATEMENT,
    Allowance,
    StatementError,
    Table,
    columns_of_statement,
)
from tests.cases import cases
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    corpus_events,
    dataset,
    proposals,
    query,
    schema,
    settings,
    symlink,
    whole_application,
)
from tests.conversion.recordings import (
    CORPUS_TRUTH,
    RECORDINGS,
    column_pairs,
    expected_columns,
    recorded,
    truth_of,
)
from tests.oracles.strict import canonical_violations

# -- Sources of columns by the text of statements: only certain ones


def table(name: str, *columns: str) -> Table:
    return Table(DatasetId("hive", name), columns)


TABLES = {
    "db.orders": table("db.orders", "order_id", "customer_id", "amount", "status"),
    "db.customers": table("db.customers", "customer_id", "Name", "country"),
    "db.twice": table("db.twice", "a", "A"),
    "db.out": table("db.out", "name", "total"),
    "db.parts": table("db.parts", "order_id", "amount", "status"),
    "delta./lake/orders": table("/lake/orders", "order_id", "amount"),
}


def parsed(statement: str) -> tuple[Table, dict[str, tuple[ColumnId, ...]]]:
    return columns_of_statement(statement, "spark", lambda name: TABLES.get(name.lower()))


def test_the_statements_of_a_job_have_a_limit_together() -> None:
    statement, allowance = "INSERT INTO db.out SELECT Name, 1 FROM db.customers", Allowance(100)
    columns_of_statement(statement, "spark", TABLES.get, allowance)
    with pytest.raises(StatementError, match="the job's statements are longer than"):
        columns_of_statement(statement, "spark", TABLES.get, allowance)


def sources(statement: str) -> dict[str, list[str]]:
    return {
        column: sorted(f"{dataset.name}.{field}" for dataset, field in made_of)
        for column, made_of in parsed(statement)[1].items()
    }


NESTED = (
    "JOIN (SELECT order_id, amount AS t FROM delta.`/lake/orders`) x ON x.order_id = o.order_id"
)
JOIN = "FROM db.orders o JOIN db.customers c ON o.customer_id = c.customer_id"


# By hand, from the statements.
@cases("sql")
def test_columns_are_followed_to_their_sources(
    statement: str, expected: dict[str, list[str]]
) -> None:
    assert sources(statement) == expected


@cases("sql")
def test_uncertain_statements_are_refused(statement: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parsed(statement)


def test_long_statements_are_refused() -> None:
    with pytest.raises(ValueError, match="longer than"):
        parsed("INSERT INTO db.out SELECT 'x', amount FROM db.orders -- " + "x" * MAX_STATEMENT)


# -- Column lineage from statements, for columns without any from OpenLineage


Columns = set[tuple[str, str]]


def events_of(recording: str) -> list[Json]:
    return [json.loads(line) for line in recorded("events", recording)]


CASES = {
    **{name: events_of(name) for name in RECORDINGS},
    **{name: corpus_events(name) for name in CORPUS_TRUTH},
}


def convert(events: Sequence[Json]) -> Conversion:
    return convert_events(events, settings(), Ending(succeeded=True))


def columns(conversion: Conversion, *, parsed: bool) -> Columns:
    """Return the pairs of columns that come from statements, or that are direct in OpenLineage."""

    def is_wanted(transform: str) -> bool:
        kinds = transform.partition("\n")[0].removeprefix("-- ").split(",")
        return ("DIRECT:PARSED_SQL" in kinds) == parsed and any(
            kind.startswith("DIRECT:") for kind in kinds
        )

    return column_pairs(conversion.jobs, is_wanted)


def without_column_lineage(events: Sequence[Json]) -> list[Json]:
    bare = copy.deepcopy(list(events))
    for event in bare:
        for output in event.get("outputs", ()):
            output.get("facets", {}).pop("columnLineage", None)
    return bare


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_statements_add_no_false_edge(case: str) -> None:
    # Real events without their column lineage: edges from statements are in it, or are known to be
    # missing there.
    missing = expected_columns(truth_of(case) if case in RECORDINGS else {}, "unreported_columns")
    from_statements = columns(convert(without_column_lineage(CASES[case])), parsed=True)
    assert from_statements <= columns(convert(CASES[case]), parsed=False) | missing


@pytest.mark.parametrize("recording", ["hive_tables-4.3.0", "hive_tables-3.5.9"])
def test_columns_of_a_scalar_subquery_come_from_the_statement(recording: str) -> None:
    # OpenLineage knows the source of ``name``, but not of ``spent``.
    spent = tuple(
        f"urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:hive,shop.{name},PROD),{field})"
        for name, field in (("orders", "amount"), ("big", "spent"))
    )
    events = CASES[recording]
    assert spent not in columns(convert(events), parsed=False)
    (job,) = convert(events).jobs
    (lineage,) = (edge for edge in job.lineage.fine_grained if edge["confidenceScore"] == 0.2)
    assert (lineage["upstreams"], lineage["downstreams"]) == ([spent[0]], [spent[1]])
    assert lineage["transformOperation"].startswith("-- DIRECT:PARSED_SQL\n")
    assert [wrong for each in proposals(job) for wrong in canonical_violations(each.to_obj())] == []


def hive(name: str, *fields: str, **facets: Json) -> Json:
    listed = schema(*((field, "string") for field in fields))
    return dataset("file", f"/w/{name}", schema=listed, symlinks=symlink("file:/w", name), **facets)


def statement(sql: str, *inputs: Json, output: Json) -> list[Json]:
    return whole_application(
        query(inputs=inputs, outputs=[output], job_facets={"sql": {"query": sql}})
    )


INSERT = "INSERT INTO db.out SELECT a, b FROM db.source"


def test_column_lineage_of_events_is_unchanged() -> None:
    known = column_lineage({"a": [column("/w/db.source", "b", "DIRECT:IDENTITY")]})
    found = convert(
        statement(
            INSERT,
            hive("db.source", "a", "b"),
            output=hive("db.out", "a", "b", columnLineage=known),
        )
    )
    edges = {
        (edge["downstreams"][0][-2], edge["upstreams"][0][-2], edge["confidenceScore"])
        for edge in found.jobs[0].lineage.fine_grained
    }
    assert edges == {("a", "b", 0.5), ("b", "b", 0.2)}


def test_a_table_that_is_only_in_the_statement_is_an_input() -> None:
    # As the source of Delta's MERGE: an application that knows it from elsewhere.
    elsewhere = query(run_id="run-2", outputs=[hive("db.limits", "most")])
    sql = "INSERT INTO db.out SELECT a, (SELECT max(most) FROM db.limits) FROM db.source"
    events = statement(sql, hive("db.source", "a"), output=hive("db.out", "a", "b"))
    found = convert([events[0], elsewhere, *events[1:]])
    assert found.inputs == [
        f"urn:li:dataset:(urn:li:dataPlatform:hive,db.{name},PROD)" for name in ("limits", "source")
    ]


def test_the_reason_for_a_gap_is_reported_once() -> None:
    sql = "INSERT INTO db.out SELECT * FROM a_view WHERE password = 'x'"
    events = statement(sql, hive("db.source", "a"), output=hive("db.out", "a"))
    (gap,) = convert([*events[:2], *events[1:]]).diagnostics.column_gaps
    assert gap.startswith("no column lineage from the statement 'INSERT INTO db.out")
    assert gap.endswith(": no dataset of the job matches a_view")


def test_sqlglot_logs_no_statement(caplog: pytest.LogCaptureFixture) -> None:
    sql = "CREATE TABLE db.out USING parquet AS SELECT a, 'canary' AS b FROM ${db.source}"
    events = statement(sql, hive("db.source", "a"), output=hive("db.out", "a", "b"))
    assert len(convert(events).diagnostics.column_gaps) == 1
    assert caplog.text == ""


def test_a_name_of_two_datasets_matches_neither() -> None:
    other = dataset("glue", "db.source", schema=schema(("a", "string"), ("b", "string")))
    found = convert(
        statement(INSERT, hive("db.source", "a", "b"), other, output=hive("db.out", "a", "b"))
    )
    assert columns(found, parsed=True) == set()
    assert len(found.diagnostics.column_gaps) == 1


def test_without_sqlglot_the_report_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    known = column_lineage({"a": [column("/w/db.source", "a", "DIRECT:IDENTITY")]})
    constant = hive("db.out", "a", "loaded_at", columnLineage=known)
    insert = "INSERT INTO db.out SELECT a, current_timestamp() FROM db.source"
    assert (
        convert(statement(insert, hive("db.source", "a"), output=constant)).diagnostics.column_gaps
        == ()
    )
    found = convert(statement(INSERT, hive("db.source", "a", "b"), output=hive("db.out", "a", "b")))
    assert list(found.outputs) == ["urn:li:dataset:(urn:li:dataPlatform:hive,db.out,PROD)"]
    assert list(found.diagnostics.column_gaps) == [
        "no column lineage from statements: sqlglot is not installed: pip install 'airflow-provider-spark-datahub[sql]'"
    ]


@cases("sql")
def test_sqlglot_is_imported_if_a_statement_may_add_columns(
    sql: str, fields: tuple[str, ...], imported: bool
) -> None:
    known = column_lineage({"a": [column("/w/db.source", "a", "DIRECT:IDENTITY")]})
    events = statement(
        sql, hive("db.source", "a", "b"), output=hive("db.out", *fields, columnLineage=known)
    )
    code = (
        "import sys\n"
        "from airflow_provider_spark_datahub.conversion import LineageSettings, convert_events\n"
        f"convert_events({events!r}, LineageSettings())\n"
        "sys.exit('sqlglot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == imported
