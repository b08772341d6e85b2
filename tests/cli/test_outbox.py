"""The outbox from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxKey
from tests.cli.commands import run

STATUS = Proposal("dataset", "urn:li:dataset:(urn:li:dataPlatform:file,/a,PROD)", "status", {"removed": False})


def put(outbox: Path, connection: str) -> None:
    key = OutboxKey("shop", "manual__1", "build", -1, 2)
    Outbox(outbox).put(key, [STATUS], spark_succeeded=True, connection_id=connection)


def test_pending(tmp_path: Path) -> None:
    assert run("pending", "--outbox", tmp_path).exit_code == 0
    put(tmp_path, "datahub")
    result = run("pending", "--outbox", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "shop  manual__1  build try 2  1 proposals for datahub\n")


def test_emit_delivers_through_the_entrys_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, sink = tmp_path / "outbox", tmp_path / "sink.jsonl"
    put(outbox, "lineage_sink")
    monkeypatch.setenv("AIRFLOW_CONN_LINEAGE_SINK", json.dumps({"conn_type": "datahub-file", "host": str(sink)}))
    result = run("emit", "--outbox", outbox)
    assert (result.exit_code, result.stderr) == (0, "1 proposals delivered, 0 rejected, 0 pending\n")
    assert [json.loads(line) for line in sink.read_text().splitlines()] == [STATUS.to_obj()]
    assert run("pending", "--outbox", outbox).exit_code == 0


def test_emit_tells_why_something_stays(tmp_path: Path) -> None:
    put(tmp_path, "lineage_nowhere")
    result = run("emit", "--outbox", tmp_path)
    assert result.exit_code == 1
    assert "connection 'lineage_nowhere' cannot be used" in result.stderr
    assert "0 proposals delivered, 0 rejected, 1 pending" in result.stderr
    assert run("pending", "--outbox", tmp_path).exit_code == 1
