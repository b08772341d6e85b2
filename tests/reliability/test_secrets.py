"""Secrets in every place where a task can have one: lineage delivers, keeps and logs none of them."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Converter
from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError
from tests.cli.commands import run as command
from tests.operators.tries import CORPUS, FakeSpark, TaskInstance, TaskState, context_of, execute, operator_with_lineage
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


def events() -> bytes:
    """Return events whose datasets, statements and properties hold secrets."""
    return b"".join(json.dumps(event).encode() + b"\n" for event in _events())


def _events() -> Iterator[dict[str, Any]]:
    for line in (CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines():
        event = json.loads(line)
        event["run"]["facets"]["spark_properties"] = {"properties": CONF}
        event["job"]["facets"]["sql"] = {"query": f"SELECT * FROM t OPTIONS (password '{secret('sql')}')"}
        for dataset in [*event.get("inputs", ()), *event.get("outputs", ())]:
            facet = {"name": "jdbc", "uri": f"jdbc:mysql://u:{secret('facet')}@db:3306/shop"}
            dataset.setdefault("facets", {})["dataSource"] = facet
        if event.get("inputs"):
            event["inputs"].append(
                {"namespace": f"postgres://etl:{secret('dataset')}@db:5432", "name": "shop.public.orders"}
            )
        yield event


@pytest.fixture
def gms() -> Iterator[GmsStandIn]:
    with GmsStandIn(token=TOKEN) as gms:
        yield gms
    assert gms.dropped == []


@pytest.fixture(autouse=True)
def _connection(gms: GmsStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"extra_headers": {"X-Api-Key": secret("header")}}
    connection = {"conn_type": "datahub-rest", "host": gms.url, "password": TOKEN, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_GMS", json.dumps(connection))


def run_attempt(spark: FakeSpark, **arguments: Any) -> dict[str, Any]:
    """Return what the attempt pushed to XCom."""
    spark.writes(events())
    operator = operator_with_lineage(
        spark,
        datahub_conn_id="gms",
        conf=CONF,
        env_vars={"PGPASSWORD": secret("env")},
        lineage={"capture_spark_plan": True, "datasets": "schemas"},
        lineage_timeout=60,  # more than a busy machine needs: what fails here fails at once
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


def assert_nothing_leaked(tmp_path: Path, xcoms: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    outbox = files_below(tmp_path / "outbox")
    assert [path for path, text in outbox.items() if CANARY in text or CANARY in path] == []
    assert CANARY not in json.dumps(xcoms)
    ours = [record for record in caplog.records if not record.name.startswith("airflow.providers.apache.spark")]
    assert [record.getMessage() for record in ours if CANARY in record.getMessage()] == []
    assert [record.exc_text for record in ours if CANARY in (record.exc_text or "")] == []


def test_in_what_is_delivered(
    spark: FakeSpark, gms: GmsStandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    xcoms = run_attempt(spark)
    assert xcoms["lineage_report"]["pending"] == 0
    assert "shop.public.orders" in json.dumps(gms.stored)  # the dataset whose namespace holds one arrived
    assert CANARY not in json.dumps(gms.stored)
    assert_nothing_leaked(tmp_path, xcoms, caplog)


@pytest.mark.parametrize("policy", ["warn", "retry"])
def test_in_what_waits_and_why(
    policy: str, spark: FakeSpark, gms: GmsStandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"message": f"you sent {TOKEN} and {secret('header')}"}
    gms.fail_next(503, headers={"Retry-After": "3600"}, times=1000, body=body)
    xcoms = run_attempt(spark, lineage_on_failure=policy)
    assert "you sent *** and ***" in xcoms["lineage_report"]["reason"]
    assert [
        path for path, text in files_below(tmp_path / "outbox").items() if path.endswith(".gz") and "COMPLETE" in text
    ]
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
    spark: FakeSpark, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"jdbc:postgresql://etl:{secret('exception')}@db/shop?password={secret('exception')}")

    monkeypatch.setattr(Converter, "finish", fail)
    xcoms = run_attempt(spark)
    assert "RuntimeError" in xcoms["lineage_report"]["reason"]
    assert_nothing_leaked(tmp_path, xcoms, caplog)
