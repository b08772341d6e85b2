"""Faults of Kafka, its schema registry and S3, which are real servers here, under each policy."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from tests.cli.commands import run as command
from tests.delivery.kafka_target import Target
from tests.patience import PATIENCE
from tests.reliability.catalogue import timeless
from tests.reliability.lineage_tries import POLICIES, connect, first_attempt, run_attempt
from tests.servers.kafka import Kafka
from tests.servers.s3 import S3
from tests.servers.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers


class Destination(Protocol):
    """A sink's server that can fail."""

    def fail(self, fault: str) -> AbstractContextManager[object]: ...

    def stored(self) -> set[str]: ...


class KafkaDestination:
    def __init__(self, kafka: Kafka, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
        self._target = Target(kafka, registry)
        extra = {
            "connection": {"schema_registry_url": registry.url},
            "topic_routes": {"MetadataChangeProposal": self._target.topic},
        }
        connect(monkeypatch.setenv, conn_type="datahub-kafka", host=kafka.bootstrap, extra=extra)

    def fail(self, fault: str) -> AbstractContextManager[object]:
        faults: dict[str, Callable[[], AbstractContextManager[object]]] = {
            "Kafka down": self._target.kafka.stopped,
            "registry down": self._target.registry.stopped,
        }
        return faults[fault]()

    def stored(self) -> set[str]:
        return {timeless(urn, name, change, aspect) for urn, name, change, aspect in self._target.stored()}


class BucketDestination:
    def __init__(self, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
        self._s3 = s3
        self._name = f"lineage-{uuid.uuid4().hex[:8]}"
        self._folder = s3.make_bucket(self._name)
        lake = self._name.replace("-", "_")  # Airflow keeps what it opened by a connection's id
        monkeypatch.setenv(f"AIRFLOW_CONN_{lake.upper()}", json.dumps(s3.connection()))
        uri, extra = f"s3://{self._name}/lineage", {"storage_conn_id": lake}
        connect(monkeypatch.setenv, conn_type="datahub-object-store", host=uri, extra=extra)

    def fail(self, fault: str) -> AbstractContextManager[object]:
        return self._s3.stopped() if fault == "S3 down" else self._s3.without_bucket(self._name)

    def stored(self) -> set[str]:
        objects = (path for path in self._folder.rglob("*") if path.is_file())
        proposals = (Proposal.from_obj(obj) for path in objects for obj in json.loads(path.read_text()))
        return {
            timeless(proposal.entity_urn, proposal.aspect_name, proposal.change_type, proposal.aspect)
            for proposal in proposals
        }


@pytest.fixture
def destination(request: pytest.FixtureRequest, fault: str, monkeypatch: pytest.MonkeyPatch) -> Destination:
    if "S3" in fault:
        return BucketDestination(request.getfixturevalue("s3"), monkeypatch)
    servers = request.getfixturevalue("kafka"), request.getfixturevalue("schema_registry")
    return KafkaDestination(*servers, monkeypatch)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fault", ["Kafka down", "registry down", "S3 down", "S3 bucket gone"])
def test_fault(
    fault: str,
    policy: str,
    destination: Destination,
    undisturbed: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    with destination.fail(fault):
        first = first_attempt(tmp_path, monkeypatch.setenv, policy, said="")
        report = first.report
        assert report["pending"] == report["proposals"] > 0
        assert report["reason"]
        record_property("share of the budget", report["seconds"] / first.budget)
        assert report["seconds"] < first.budget + PATIENCE
        assert first.succeeded is (policy == "warn")

    if not first.succeeded:
        assert run_attempt(first.spark, policy, first.state, number=2)[0]
    assert command("emit", "--outbox", first.outbox).exit_code == 0
    assert len(first.spark.runs) == 1
    assert destination.stored() >= undisturbed
    assert command("pending", "--outbox", first.outbox).exit_code == 0
