"""Apache Kafka: one broker in KRaft mode, with a plain listener and one that wants TLS and a
password.
"""

from __future__ import annotations

import io
import json
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from datahub.metadata.schemas import getMetadataChangeProposalSchema

from tests.servers.certificates import make_certificate
from tests.servers.process import Server, ServerError, files_of, free_port, java

USER, PASSWORD = "lineage", "canary-kafka-password"
_JVM = [
    "-Xmx256m",
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]
_ALWAYS = Path(__file__).parent.parent / "data" / "kafka.properties"
_MARK = b"mark of the end"
_FRAME = 5  # bytes before the Avro: a zero, and the schema's id (Confluent's wire format)


@dataclass(frozen=True)
class Message:
    """A proposal as a topic holds it."""

    key: str
    proposal: dict[str, Any]


class Kafka(Server):
    """A broker whose topics are made by tests.

    :ivar bootstrap: the address without TLS and password.
    :ivar secure_bootstrap: the address with both (SASL_SSL, mechanism PLAIN).
    :ivar ca: the PEM file of the authority that signed its certificate.
    """

    def __init__(self, folder: Path) -> None:
        ports = free_port(), free_port(), free_port()
        self.bootstrap, self.secure_bootstrap = (f"127.0.0.1:{port}" for port in ports[:2])
        self.ca, key = make_certificate(folder)
        self._properties = folder / "server.properties"
        self._properties.write_text(_configuration(folder, ports, self.ca, key))
        # Its own client logs every failed attempt to reach a broker that is still starting.
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        command = [
            java(),
            *_JVM,
            "-cp",
            f"{files_of('kafka')}/*",
            "kafka.Kafka",
            str(self._properties),
        ]
        super().__init__(command, self._answering, folder / "kafka.log")
        self._format()

    def make_topic(self, **configuration: str) -> str:
        """Make a topic of two partitions, and return its name."""
        name = f"proposals-{uuid.uuid4().hex[:8]}"
        topic = NewTopic(name, num_partitions=2, replication_factor=1, config=configuration)
        self._admin.create_topics([topic], operation_timeout=20)[name].result(20)
        self.messages(
            name
        )  # until it can be read, its partitions have no leader that takes anything
        return name

    def messages(self, topic: str) -> list[Message]:
        """Return the proposals that a topic holds, each partition in its order."""
        return [_decoded(key, value) for key, value in self.contents(topic)]

    def contents(self, topic: str) -> list[tuple[bytes, bytes]]:
        """Return the keys and values of a topic's messages, each partition in its order.

        A mark behind the last message shows where the end is, rather than the high watermark: after
        a kill, a broker begins with the checkpoint of it, which may be zero.
        """
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex, "log_level": 0}
        )
        until = time.monotonic() + 20
        try:
            while True:
                try:
                    return [
                        one
                        for partition in (0, 1)
                        for one in self._partition(consumer, topic, partition)
                    ]
                except KafkaException:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)
        finally:
            consumer.close()

    def _partition(
        self, consumer: Consumer, topic: str, partition: int
    ) -> list[tuple[bytes, bytes]]:
        end = self._mark_end(topic, partition)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found: list[tuple[bytes, bytes]] = []
        while True:
            message = consumer.poll(20)
            if message is None:
                raise ServerError(f"{topic} answers no more: {len(found)} messages before {end}")
            if (error := message.error()) is not None:
                raise KafkaException(error)
            if message.key() != _MARK:
                found.append((message.key() or b"", message.value() or b""))
            elif message.offset() == end:
                return found

    def _mark_end(self, topic: str, partition: int) -> int:
        """Append a mark to a partition, and return its offset."""
        ends: list[Any] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "message.timeout.ms": 20_000, "log_level": 0}
        )
        producer.produce(
            topic, key=_MARK, partition=partition, on_delivery=lambda *report: ends.append(report)
        )
        producer.flush(20)
        if not ends or ends[0][0] is not None:
            raise KafkaException(ends[0][0] if ends else KafkaError(KafkaError._MSG_TIMED_OUT))
        return int(ends[0][1].offset())

    def _answering(self) -> bool:
        try:
            return bool(self._admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _format(self) -> None:
        command = [
            java(),
            *_JVM,
            "-cp",
            f"{files_of('kafka')}/*",
            "kafka.tools.StorageTool",
            "format",
        ]
        command += ["-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._properties)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise ServerError(f"Kafka's storage cannot be formatted:\n{run.stdout}{run.stderr}")


def _decoded(key: bytes, value: bytes) -> Message:
    written = fastavro.schemaless_reader(io.BytesIO(value[_FRAME:]), _SCHEMA, None)
    return Message(key.decode(), dict(written) if isinstance(written, dict) else {})


_SCHEMA = fastavro.parse_schema(json.loads(getMetadataChangeProposalSchema()))


def _configuration(folder: Path, ports: tuple[int, int, int], certificate: Path, key: Path) -> str:
    plain, secure, controller = ports
    keystore = folder / "keystore.pem"
    keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{jaas} user_{USER}="{PASSWORD}";',
        "ssl.keystore.location": str(keystore),
        "log.dirs": str(folder / "data"),
    }
    own = "".join(f"{name}={value}\n" for name, value in settings.items())
    return _ALWAYS.read_text() + own
