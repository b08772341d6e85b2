"""A topic of its own on a real Kafka, and sinks for it."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import ConnectionParts
from airflow_provider_spark_datahub.delivery.sinks import KafkaSettings, KafkaSink
from tests.servers.kafka import Kafka
from tests.servers.schema_registry import SchemaRegistry

Content = tuple[str, str, str, Any]


class Target:
    """:param configuration: of the topic."""

    def __init__(self, kafka: Kafka, registry: SchemaRegistry, **configuration: str) -> None:
        self.kafka, self.registry = kafka, registry
        self.topic = kafka.make_topic(**configuration)

    def sink(
        self,
        host: str | None = None,
        login: str | None = None,
        password: str | None = None,
        topic: str | None = None,
        **fields: Any,
    ) -> KafkaSink:
        """:param fields: of the object ``connection`` in the connection's extra."""
        extra = {
            "connection": {"schema_registry_url": self.registry.url, **fields},
            "topic_routes": {"MetadataChangeProposal": topic or self.topic},
        }
        connection = ConnectionParts(host or self.kafka.bootstrap, login=login, password=password, extra=extra)
        return KafkaSink(KafkaSettings.from_connection(connection))

    def stored(self) -> list[Content]:
        found = [each.proposal for each in self.kafka.messages(self.topic)]
        return [
            (each["entityUrn"], each["aspectName"], each["changeType"], json.loads(each["aspect"]["value"]))
            for each in found
        ]


def contents(proposals: list[Proposal]) -> list[Content]:
    return [(each.entity_urn, each.aspect_name, each.change_type, each.aspect) for each in proposals]


def by_entity(items: list[Content]) -> dict[str, list[Content]]:
    """Group messages by entity: Kafka keeps the order only within one."""
    found: dict[str, list[Content]] = {}
    for each in items:
        found.setdefault(each[0], []).append(each)
    return found
