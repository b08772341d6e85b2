"""Texts, names and patterns that take too long or too much memory in a reader without bounds.

A hang is the failure; each case takes below a second with bounds, and minutes to years without.
"""

from __future__ import annotations

import re
import tracemalloc

import pytest

from airflow_provider_spark_datahub import conversion
from airflow_provider_spark_datahub.conversion.columns.sql import (
    Allowance,
    DatabaseTables,
    StatementError,
)
from airflow_provider_spark_datahub.conversion.events import without_partition_folders
from airflow_provider_spark_datahub.conversion.redaction import MAX_TEXT, REDACTED
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plans import Plan
from tests.conversion.event_logs import app_ended, app_started, environment, execution, read_log

pytestmark = pytest.mark.timeout(120)
SECRET = "hunter2"

LONG_TEXTS = {
    "URLs before as many @": "://a:" * 20_000 + "@" * 20_000,
    "a URL in a URL in a URL": "https://" + "a:b@/" * 20_000,
    "an assignment without its closing quote": 'password="' + "x" * 2_000_000,
    "quotes behind backslashes": "password='" + "\\'" * 500_000,
    "the word alone": "password" * 50_000,
    "spaces": ("pwd" + " " * 50) * 10_000,
    "words": "password " * 20_000,
    "parts of a name": "a." * 50_000 + "password",
    "spaces behind a word": "secret" + " " * 100_000 + "x",
    "doubled quotes": "password='" + "''" * 50_000,
    "backslashes": "pwd" + "\\" * 50_000,
    "users without hosts": "://u:" * 20_000,
    "users of users": "://" + "a:" * 50_000,
    "quotes of Oracle": "jdbc:oracle:thin:" + '"' * 50_000,
    "logins of Oracle": "jdbc:oracle:thin:a/" * 10_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_redaction_takes_linear_time_and_memory(text: str) -> None:
    tracemalloc.start()
    conversion.redact_text(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * len(text) + 1_000_000


@pytest.mark.parametrize("turns", [1, 3, 4, 50, 10_000])
def test_a_url_that_becomes_another_url_leaks_nothing(turns: int) -> None:
    """Each turn removes the login of what looked like one URL."""
    redacted = conversion.redact_text("see https://" + f"u:{SECRET}/@" * turns + "host")
    assert SECRET not in redacted
    assert ("host" in redacted) == (turns < 3)


def test_a_text_beyond_the_limit_is_cut() -> None:
    redacted = conversion.redact_text("x" * MAX_TEXT + f" password={SECRET}")
    assert len(redacted) == MAX_TEXT
    assert redacted.endswith("characters)")


EXPONENTIAL = [
    "(a+)+$",
    "(a|a)*$",
    "(a|aa)+$",
    "(.*a){20}",
    "(a*)*b",
    "a?" * 30 + "a" * 30,
    "(a|a)" * 30 + "b",
]
NOT_LINEAR = ["(?=a)a", "(?<name", "(" * 5000, "a" * 5000]


@pytest.mark.parametrize("pattern", [*EXPONENTIAL, *NOT_LINEAR])
def test_a_jobs_regular_expression_that_is_not_linear_redacts_everything(pattern: str) -> None:
    """If it cannot be applied in time, everything is redacted: it might have named the key."""
    keys = ("spark.my.vault", "a" * 200 + "!", "a" * 100_000 + "!")
    assert {conversion.redaction.redact(key, SECRET, pattern) for key in keys} == {REDACTED}


@pytest.mark.parametrize("pattern", ["(?i)vault", "(?i)(vault|pin)$", "[vV]a[u]lt", r"my\.Vault"])
def test_usual_regular_expressions_are_applied(pattern: str) -> None:
    found = [
        conversion.redaction.redact(key, SECRET, pattern) == REDACTED
        for key in ("spark.my.Vault", "spark.my.name")
    ]
    assert found == [True, False]


HOSTILE_PATHS = (
    "/a=a" * 2000 + "\n",
    "/" + "a" * 5000 + "!",
    "/dt=" * 2000 + "\nx",
    "/date=/hour=" * 500 + "/x",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern", ["/dt=.*", "/date=[^/]+/hour=[^/]+", "/date=[^/]*(/hour=[^/]*)?"]
)
def test_partition_patterns_take_little_time_on_hostile_paths(pattern: str) -> None:
    partition = conversion.LineageSettings.from_mapping(
        {"file_partition_regexp": pattern}
    ).partition_pattern
    assert partition is not None
    assert all(partition.sub("", path) in path for path in HOSTILE_PATHS)


@pytest.mark.parametrize("pattern", ["(/[a-z]+=[^/]+)+", "(/(a|a)*)*", "(a*){20}"])
def test_a_partition_pattern_with_a_repeated_group_is_refused(pattern: str) -> None:
    with pytest.raises(conversion.SettingsError, match="it repeats a group"):
        conversion.LineageSettings.from_mapping({"file_partition_regexp": pattern})


QUERIES = {
    "joins without conditions": "SELECT * FROM "
    + " JOIN ".join(f"orders o{number}" for number in range(3000)),
    "aliases that double": "SELECT c0 + c0 AS a0, "
    + ", ".join(f"a{number} + abs(a{number}) AS a{number + 1}" for number in range(40))
    + " FROM orders",
    "types in types": "SELECT CAST(c0 AS " + "map<int," * 200 + "int" + ">" * 200 + ") FROM orders",
    "a long sum": "SELECT " + "+".join(["c0"] * 6000) + " AS c FROM orders",
    "parentheses": "SELECT " + "(" * 9000 + "c0" + ")" * 9000 + " FROM orders",
    "parts that are read twice": "WITH t0 AS (SELECT c0 FROM orders)"
    + "".join(
        f", t{number + 1} AS (SELECT a.c0 + b.c0 AS c0 FROM t{number} a, t{number} b)"
        for number in range(30)
    )
    + " SELECT c0 FROM t30",
}


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_of_a_database_takes_bounded_time(query: str) -> None:
    tables = DatabaseTables([conversion.DatasetId("postgres://db:5432", "shop.orders")])
    with pytest.raises(StatementError, match=r"too deeply|too many|longer than|recursion"):
        tables.columns_of_query(f"({query}) q", ["c0"], Allowance())


LONG_PLANS = {
    "a literal beside Delta's names": "delta " + "a" * 400_000,
    "tables of Delta without an end": "DeltaTableV2(" * 30_000,
    "tables of Delta in a table of Delta": "DeltaCatalog@1, a, TableSpec(Map(" * 12_000
    + "),Some(delta),",
    "lists of files without an end": "TahoeLogFileIndex [" * 20_000,
    "a list of files without an end": "TahoeLogFileIndex [" + "a" * 400_000,
    "changes of changes": "_change_type Scan DeltaCDFRelation(" * 12_000,
    "a line of dashes": "-" * 400_000,
    "a name with spaces in it": f"\n\n\n(2) Filter{' ' * 400_000}x\n",
    "numbers of nodes": "(1) " * 100_000,
    "a node of nodes": "\n(2) " + "(1) " * 100_000 + "\n",
    "an option without an end": "\n\n(2) InsertIntoHadoopFsRelationCommand\nArguments: file:/o, "
    + "a" * 400_000,
    "options of options": "\n\n(2) Execute SaveIntoDataSourceCommand\nArguments: "
    + ".delta.a" * 50_000,
    "scans of caches": "\n\n(2) InMemoryRelation\n" + "FileScan a[" * 40_000 + "]",
    "partitions of partitions": "Location: InMemoryFileIndex [file:/t" + "/a=b" * 100_000 + "/c]",
}


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("plan", LONG_PLANS.values(), ids=LONG_PLANS)
def test_plans_in_sparks_event_log_are_read_in_linear_time(plan: str) -> None:
    whole = f"== Physical Plan ==\n{plan}\n\n\n(1) Scan parquet \nOutput [1]: [a#1]\n{plan}\n\n"
    log = [app_started(), environment("file:///"), *execution(1, 1, 2, whole), app_ended()]
    converter = conversion.Converter(conversion.LineageSettings())
    for event in log:
        converter.add_log_event(event)
    assert converter.finish(conversion.Ending(succeeded=True)).jobs
    (application,) = read_log(log)
    assert PlanNames(application).change_feeds() == set()
    assert len(Plan.of(whole).trees) <= 1


def test_folders_of_very_many_partitions_are_cut_in_linear_time() -> None:
    folder = re.compile(r"\w+=[^/]*")
    many = "/a=b" * 100_000
    assert without_partition_folders(f"/t{many}", folder) == "/t"
    assert without_partition_folders(f"/t{many}/c", folder) == f"/t{many}/c"
