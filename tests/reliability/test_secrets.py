"""Secrets in every place where a task can have one: lineage delivers, keeps and logs none of them."""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub import conversion
from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError
from tests.cases import tables
from tests.cli.commands import run as command
from tests.conversion.event_logs import (
    app_ended,
    app_started,
    environment,
    execution,
    query_progressed,
    query_started,
)
from tests.delivery.connections import connect_to_gms
from tests.operators.tries import (
    CORPUS,
    FakeSpark,
    TaskInstance,
    TaskState,
    context_of,
    execute,
    operator_with_lineage,
)
from tests.oracles.gms import GmsStandIn

CANARY = "canary-5e0c7a"
"""Each secret begins so."""
TOKEN = f"{CANARY}-token"


def secret(place: str) -> str:
    return f"{CANARY}-{place}"


CONF = {
    "spark.hadoop.fs.s3a.secret.key": secret("s3a"),
    "spark.hadoop.fs.s3a.access.key": secret("access"),
    "spark.ssl.keyPassword": secret("ssl"),
    "spark.app.jdbc": f"jdbc:postgresql://etl:{secret('conf-url')}@db/shop?password={secret('conf-parameter')}",
    "spark.my.vault": secret("own-pattern"),
    "spark.redaction.regex": "(?i)vault",
}
NAMES, _TEXTS = ([text for (text,) in tables("secrets")[table][1:]] for table in ("names", "texts"))
TEXTS = [*(f"{name}={{}}" for name in NAMES), *(f"'{name}' = '{{}}'" for name in NAMES), *_TEXTS]
QUERIES = [text.partition("?")[2] for text in TEXTS if text.startswith("https://")]


def texts_at(place: str) -> list[str]:
    """Return all texts, each with its own secret."""
    return [text.replace("{}", secret(f"{place}-{number}")) for number, text in enumerate(TEXTS)]


def all_texts(place: str) -> str:
    return "\n".join(texts_at(place))


def by_name(place: str) -> dict[str, str]:
    return {f"spark.{name}": secret(f"{place}-{name}") for name in NAMES}


def leaked(text: str) -> list[str]:
    return sorted(set(re.findall(rf"{CANARY}[\w.-]*", text)))


def everywhere(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event with all forms of secrets in all of its places."""
    run, job = event["run"]["facets"], event["job"]["facets"]
    texts = {f"spark.text.{number}": text for number, text in enumerate(texts_at("property"))}
    run["spark_properties"] = {"properties": {**CONF, **by_name("property"), **texts}}
    pairs = [{"name": name, "value": value} for name, value in by_name("environment").items()]
    run["environment-properties"] = {"environmentVariables": pairs, **by_name("facet")}
    run["spark.exception"] = {
        "message": all_texts("message"),
        "stackTrace": f"at\n{all_texts('trace')}",
    }
    run["spark_jobDetails"] = {"jobId": 1, "jobDescription": all_texts("job-description")}
    run["spark.logicalPlan"] = {
        "plan": [{"options": by_name("plan"), "simpleString": all_texts("plan")}]
    }
    run["unknownSourceAttribute"] = {
        "unknownItems": [{"name": "x", "properties": by_name("unknown")}]
    }
    tags = [{"key": name, "value": value} for name, value in by_name("tag").items()]
    run["tags"] = {"tags": [*tags, {"key": "note", "value": all_texts("tag")}]}
    job |= {
        "sql": {"query": all_texts("sql")},
        "documentation": {"description": all_texts("documentation")},
    }
    job["ownership"] = {"owners": [{"name": text} for text in texts_at("owner")]}
    for dataset in [*event.get("inputs", ()), *event.get("outputs", ())]:
        facets = dataset.setdefault("facets", {})
        facets["dataSource"] = {
            "name": "jdbc",
            "uri": f"jdbc:mysql://u:{secret('facet')}@db:3306/shop",
        }
        facets["documentation"] = {"description": all_texts("dataset-documentation")}
        facets["tags"] = {"tags": [*tags, *({"key": text} for text in texts_at("dataset-tag"))]}
        for field in facets.get("schema", {}).get("fields", ()):
            field["description"] = all_texts("column-description")
    if event.get("inputs"):
        plain: dict[str, Any] = {"facets": {}}
        event["inputs"] += [
            {
                "namespace": f"postgres://etl:{secret('dataset')}@db:5432",
                "name": "shop.public.orders",
                **plain,
            },
            {
                "namespace": f"sqlserver://h;password={secret('dataset')}",
                "name": "shop.dbo.orders",
                **plain,
            },
            *(
                {
                    "namespace": "wasbs://c@a",
                    "name": f"/orders/{number}?{query.replace('{}', secret('query'))}",
                    **plain,
                }
                for number, query in enumerate(QUERIES)
            ),
        ]
    return event


SETTINGS = {
    "capture_spark_plan": True,
    "datasets": "schemas",
    "dataset_details": "documentation,owners,tags",
}


def events() -> bytes:
    """Return events whose datasets, statements and properties hold secrets."""
    return b"".join(json.dumps(event).encode() + b"\n" for event in _events())


def _events() -> Iterator[dict[str, Any]]:
    for line in (CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines():
        yield everywhere(json.loads(line))


@pytest.fixture
def gms() -> Iterator[GmsStandIn]:
    with GmsStandIn(token=TOKEN) as gms:
        yield gms
    assert gms.dropped == []


@pytest.fixture(autouse=True)
def _connection(gms: GmsStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"extra_headers": {"X-Api-Key": secret("header")}}
    connect_to_gms(monkeypatch, "gms", gms.url, password=TOKEN, extra=extra)


def run_attempt(spark: FakeSpark, **arguments: Any) -> dict[str, Any]:
    """Return what the attempt pushed to XCom."""
    spark.writes(events())
    operator = operator_with_lineage(
        spark,
        datahub_conn_id="gms",
        conf=CONF,
        env_vars={"PGPASSWORD": secret("env")},
        lineage=SETTINGS,
        lineage_timeout=300,  # more than a busy machine needs: what fails here fails at once
        **arguments,
    )
    ti = TaskInstance(max_tries=1)
    failure = ""
    try:
        execute(operator, context_of(operator, ti, TaskState()))
    except LineagePendingError as error:
        failure = str(error)
    assert CANARY not in failure
    return ti.xcoms


def files_below(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): _content(path).decode("utf-8", "replace") for path in found}


def _content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def assert_nothing_leaked(
    tmp_path: Path, xcoms: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    outbox = files_below(tmp_path / "outbox")
    assert {path: leaked(path + text) for path, text in outbox.items() if leaked(path + text)} == {}
    assert leaked(json.dumps(xcoms)) == []
    ours = [
        record
        for record in caplog.records
        if not record.name.startswith("airflow.providers.apache.spark")
    ]
    assert [record.getMessage() for record in ours if CANARY in record.getMessage()] == []
    assert [record.exc_text for record in ours if CANARY in (record.exc_text or "")] == []


def test_in_what_is_delivered(
    spark: FakeSpark, gms: GmsStandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    xcoms = run_attempt(spark)
    assert xcoms["lineage_report"]["pending"] == 0
    assert "shop.public.orders" in json.dumps(
        gms.stored
    )  # the dataset whose namespace holds one arrived
    assert leaked(json.dumps(gms.stored)) == []
    assert {request.headers["X-Api-Key"] for request in gms.requests} == {secret("header")}
    assert_nothing_leaked(tmp_path, xcoms, caplog)


def test_in_what_sparks_own_log_shows() -> None:
    texts = all_texts("log").replace("canary-5e0c7a-log", secret("plan"))
    plan = f"Execute InsertIntoHadoopFsRelationCommand\n+- Scan JDBCRelation({texts}) [a#1]\n\n(1) {texts}"
    converter = conversion.Converter(conversion.LineageSettings.from_mapping(SETTINGS))
    for event in (
        app_started(name=texts),
        {**environment("file:///"), "Spark Properties": by_name("log")},
        *execution(1, 1, 2, plan, description=texts, errorMessage=texts),
        query_started(name=f"paid {texts}"),
        query_progressed(
            sources=[f"FileStreamSource[wasbs://c@a/in?{query}]" for query in QUERIES], sink=texts
        ),
        app_ended(),
    ):
        converter.add_log_event(event)
    converted = converter.finish(conversion.Ending())
    found = "".join(
        proposal.to_json() for proposal in converted.proposals(conversion.LineageSettings())
    )
    assert (
        leaked(found + repr(converted.diagnostics) + "".join(converted.diagnostics.messages()))
        == []
    )


@pytest.mark.parametrize("policy", ["warn", "retry"])
def test_in_what_waits_and_why(
    policy: str, spark: FakeSpark, gms: GmsStandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"message": f"you sent {TOKEN} and {secret('header')}"}
    gms.fail_next(503, headers={"Retry-After": "3600"}, times=1000, body=body)
    xcoms = run_attempt(spark, lineage_on_failure=policy)
    assert "you sent *** and ***" in xcoms["lineage_report"]["reason"]
    assert_nothing_leaked(tmp_path, xcoms, caplog)
    waiting = command("pending", "--outbox", tmp_path / "outbox")
    assert waiting.exit_code == 1
    assert CANARY not in waiting.output


def test_in_what_is_rejected(
    spark: FakeSpark, gms: GmsStandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    gms.fail_next(422, times=1000, body={"message": f"you sent {TOKEN} and {secret('header')}"})
    xcoms = run_attempt(spark)
    assert xcoms["lineage_report"]["rejected"] > 0
    assert_nothing_leaked(tmp_path, xcoms, caplog)


def test_in_what_a_bug_of_ours_says(
    spark: FakeSpark,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(
            f"jdbc:postgresql://etl:{secret('exception')}@db/shop?password={secret('exception')}"
        )

    monkeypatch.setattr(conversion.Converter, "finish", fail)
    xcoms = run_attempt(spark)
    assert "RuntimeError" in xcoms["lineage_report"]["reason"]
    assert_nothing_leaked(tmp_path, xcoms, caplog)
