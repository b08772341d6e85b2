from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline, Delivery, SinkSettingsError
from airflow_provider_spark_datahub.hooks import datahub, open_sink, sink_of
from tests.cases import cases
from tests.delivery.connections import connect
from tests.servers.kafka import Kafka
from tests.servers.schema_registry import SchemaRegistry


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Defines a connection in the environment."""
    monkeypatch.setenv(
        "AWS_EC2_METADATA_DISABLED", "true"
    )  # nobody is asked for keys where a connection has none
    return partial(connect, monkeypatch)


@pytest.mark.slow
@cases("airflow")
def test_each_connection_type_has_its_sink(
    connection: Any, conn_type: str, host: str, sink: str
) -> None:
    connection("lineage", conn_type=conn_type, host=host)
    found = sink_of("lineage")
    assert type(found).__name__ == sink
    assert host in found.describe()


@pytest.mark.parametrize("conn_type", ["http", "kafka", "", "datahub"])
def test_a_connection_of_another_type_is_refused(connection: Any, conn_type: str) -> None:
    connection("lineage", conn_type=conn_type, host="x")
    with pytest.raises(
        SinkSettingsError, match=r"'lineage' is of type .* type 'datahub-rest' or 'datahub-kafka'"
    ):
        sink_of("lineage")
    assert open_sink("lineage")[0] is None


def test_a_missing_connection_is_named() -> None:
    with pytest.raises(AirflowException, match="missing"):
        sink_of("missing")
    sink, problem = open_sink("missing")
    assert sink is None
    assert str(problem).startswith("connection 'missing' cannot be used: ")


@cases("airflow")
def test_an_incomplete_connection_names_what_is_wrong(
    connection: Any, fields: dict[str, Any], reason: str
) -> None:
    connection("lineage", **fields)
    with pytest.raises(SinkSettingsError, match=reason):
        sink_of("lineage")
    sink, problem = open_sink("lineage")
    assert sink is None
    assert re.search(reason, str(problem))


def test_a_kafka_connection_of_datahubs_plugin_works(
    connection: Any, kafka: Kafka, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.make_topic()
    extra = {
        "connection": {
            "schema_registry_url": schema_registry.url,
            "producer_config": {"linger.ms": 5},
        },
        "topic_routes": {"MetadataChangeEvent": "unused", "MetadataChangeProposal": topic},
    }
    connection(
        "datahub_kafka_default", conn_type="datahub-kafka", host=kafka.bootstrap, extra=extra
    )
    proposal = Proposal(
        "dataFlow", "urn:li:dataFlow:(spark,shop,prod)", "status", {"removed": False}
    )
    sink = datahub.DatahubKafkaHook().get_conn()
    assert sink.deliver([proposal], Deadline.after(60)) == Delivery(delivered=1, stored=False)
    assert [each.key for each in kafka.messages(topic)] == [proposal.entity_urn]


def test_without_kafkas_client_the_extra_is_named(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "airflow_provider_spark_datahub.delivery.sinks.kafka.find_spec", lambda _name: None
    )
    connection("lineage", conn_type="datahub-kafka", host="broker:9092")
    assert "pip install 'airflow-provider-spark-datahub[kafka]'" in str(open_sink("lineage")[1])


@cases("airflow")
def test_the_test_of_a_connection_writes_nothing_and_says_what_it_found(
    connection: Any, tmp_path: Path, hook: str, fields: dict[str, Any], works: bool, words: str
) -> None:
    host, hook_class = fields["host"].format(folder=tmp_path, file=__file__), getattr(datahub, hook)
    connection("tested", conn_type=hook_class.conn_type, **{**fields, "host": host})
    found, message = hook_class("tested").test_connection()
    assert found is works, message
    assert re.search(words, message)
    assert list(tmp_path.iterdir()) == []
