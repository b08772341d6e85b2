"""Faults of Kafka, its schema registry and S3, which are real servers here, under each policy."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import failure
from tests.cases import cases
from tests.cli.commands import run as command
from tests.delivery.kafka_target import Target
from tests.patience import PATIENCE
from tests.reliability.catalogue import timeless
from tests.reliability.lineage_tries import POLICIES, FirstAttempt, connect, first_attempt, run_attempt
from tests.servers.kafka import Kafka
from tests.servers.s3 import S3
from tests.servers.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers


class Destination(Protocol):
    """A place of its own on a server that can fail."""

    def connect(self) -> None: ...

    def fail(self, fault: str) -> AbstractContextManager[object]: ...

    def stored(self) -> set[str]: ...


class KafkaDestination:
    def __init__(self, kafka: Kafka, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
        self._target = Target(kafka, registry)
        self._monkeypatch = monkeypatch

    def connect(self) -> None:
        extra = {
            "connection": {"schema_registry_url": self._target.registry.url},
            "topic_routes": {"MetadataChangeProposal": self._target.topic},
        }
        connect(self._monkeypatch.setenv, conn_type="datahub-kafka", host=self._target.kafka.bootstrap, extra=extra)

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
        self._monkeypatch = monkeypatch

    def connect(self) -> None:
        lake = self._name.replace("-", "_")  # Airflow keeps what it opened by a connection's id
        self._monkeypatch.setenv(f"AIRFLOW_CONN_{lake.upper()}", json.dumps(self._s3.connection()))
        uri, extra = f"s3://{self._name}/lineage", {"storage_conn_id": lake}
        connect(self._monkeypatch.setenv, conn_type="datahub-object-store", host=uri, extra=extra)

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
def destinations(request: pytest.FixtureRequest, fault: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Destination]:
    """Return a destination for each policy."""
    if "S3" in fault:
        return {policy: BucketDestination(request.getfixturevalue("s3"), monkeypatch) for policy in POLICIES}
    servers = request.getfixturevalue("kafka"), request.getfixturevalue("schema_registry")
    return {policy: KafkaDestination(*servers, monkeypatch) for policy in POLICIES}


@cases("server_faults")
def test_fault(
    fault: str,
    said: str,
    destinations: dict[str, Destination],
    undisturbed: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    attempts: dict[str, FirstAttempt] = {}
    with ExitStack() as faults:
        # A server fails once for all of them.
        for destination in list(destinations.values())[: None if "bucket" in fault else 1]:
            faults.enter_context(destination.fail(fault))
        for policy, destination in destinations.items():
            monkeypatch.setattr(failure, "_breakers", {})
            destination.connect()
            (tmp_path / policy).mkdir()
            first = first_attempt(tmp_path / policy, monkeypatch.setenv, policy, said)
            report = first.report
            assert report["pending"] == report["proposals"] > 0, policy
            assert report["reason"], policy
            assert said in first.words, policy
            record_property(f"share of the budget, {policy}", report["seconds"] / first.budget)
            assert report["seconds"] < first.budget + PATIENCE, policy
            assert first.succeeded is (policy == "warn"), policy
            attempts[policy] = first

    for policy, first in attempts.items():
        destination = destinations[policy]
        monkeypatch.setattr(failure, "_breakers", {})
        destination.connect()
        first.use(monkeypatch.setenv)
        if not first.succeeded:
            assert run_attempt(first.spark, policy, first.state, number=2)[0], policy
        assert command("emit", "--outbox", first.outbox).exit_code == 0, policy
        assert len(first.spark.runs) == 1, policy
        assert destination.stored() >= undisturbed, policy
        assert command("pending", "--outbox", first.outbox).exit_code == 0, policy
