"""Connections in the API server that people edit and test them with: what it shows, keeps and answers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.gms import GmsStandIn
from tests.patience import HANGS
from tests.servers.kafka import Kafka
from tests.servers.s3 import S3
from tests.servers.schema_registry import SchemaRegistry
from tests.system.airflow_home import AirflowHome

pytestmark = pytest.mark.airflow

ADMIN = {"username": "admin", "password": "password of admin"}
SECRETS = {
    "basic.auth.user.info": "me:canary-1",
    "ssl.key.pem": "canary-2",
    "sasl.jaas.config": "canary-3",
    "sasl.oauthbearer.config": "canary-4",
}
KAFKA = {"connection": {"producer_config": {"acks": "all", **SECRETS}, "schema_registry_config": SECRETS}}
HIDDEN = {"connection": {"producer_config": {"acks": "all", **dict.fromkeys(SECRETS, "***")},
                         "schema_registry_config": dict.fromkeys(SECRETS, "***")}}  # fmt: skip


@dataclass
class Api:
    """Airflow's REST API, as an administrator has it."""

    url: str
    token: str = ""

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the answer."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=HANGS) as answer:
                return int(answer.status), json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def test(self, conn_type: str, **fields: Any) -> tuple[bool, str]:
        """Press *Test* in the form of a connection that nobody has saved yet."""
        extra = json.dumps(fields.pop("extra", {}))
        body = {"connection_id": "unsaved", "conn_type": conn_type, "extra": extra, **fields}
        status, answer = self.ask("POST", "api/v2/connections/test", body)
        assert status == 200, answer
        return answer["status"], answer["message"]


@pytest.fixture(scope="module")
def api(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    settings = {"AIRFLOW__CORE__TEST_CONNECTION": "Enabled", "AWS_EC2_METADATA_DISABLED": "true"}
    with airflow_home.api_server(tmp_path_factory.mktemp("api"), {"admin": "admin"}, {}, **settings) as url:
        running = Api(url)
        status, answer = running.ask("POST", "auth/token", ADMIN)
        assert status == 201, answer
        running.token = answer["access_token"]
        yield running


@pytest.fixture(scope="module")
def stored(api: Api) -> str:
    """Save a Kafka connection with secrets in its JSON, as DataHub's own plugin wants them, and give its name."""
    body = {"connection_id": "stored", "conn_type": "datahub-kafka", "host": "broker:9092", "extra": json.dumps(KAFKA)}
    status, answer = api.ask("POST", "api/v2/connections", body)
    assert status == 201, answer
    assert json.loads(answer["extra"]) == HIDDEN
    return "stored"


def test_the_api_hides_the_secrets_in_a_connections_json(api: Api, stored: str) -> None:
    status, listed = api.ask("GET", "api/v2/connections")
    assert status == 200
    assert "canary" not in json.dumps(listed)
    _, one = api.ask("GET", f"api/v2/connections/{stored}")
    assert json.loads(one["extra"]) == HIDDEN


def test_saving_what_the_form_shows_keeps_the_real_secrets(api: Api, airflow_home: AirflowHome, stored: str) -> None:
    """The form shows ``***``, and sends it back."""
    _, shown = api.ask("GET", f"api/v2/connections/{stored}")
    extra = json.loads(shown["extra"])
    extra["connection"]["producer_config"]["linger.ms"] = 5
    edited = {key: shown[key] for key in ("connection_id", "conn_type", "host")} | {"extra": json.dumps(extra)}
    status, answer = api.ask("PATCH", f"api/v2/connections/{stored}", edited)
    assert status == 200, answer
    assert "canary" not in json.dumps(answer)
    kept = json.loads(airflow_home.connection(stored)["extra"])
    assert kept["connection"]["producer_config"] == {**KAFKA["connection"]["producer_config"], "linger.ms": 5}
    assert kept["connection"]["schema_registry_config"] == SECRETS


def test_doctor_has_nothing_to_say_about_secrets_that_the_api_hides(airflow_home: AirflowHome, stored: str) -> None:
    _, output = airflow_home.spark_datahub("doctor", "--connection", stored, "--json")
    findings = json.loads(output)["findings"]  # Airflow logs on standard output that "all" is too short a secret
    assert "connection" in {finding["subject"] for finding in findings}
    assert [finding for finding in findings if finding["subject"] == "credentials"] == []


def test_the_button_test_checks_a_rest_connection(api: Api) -> None:
    with GmsStandIn("token") as gms:
        works, message = api.test("datahub-rest", host=gms.url, password="wrong")
        assert not works
        assert "set a valid access token as its password" in message
        works, message = api.test("datahub-rest", host=gms.url, password="token")
        assert works, message
        assert message.startswith(f"DataHub at {gms.url} answers")
        assert gms.stored == []
    works, message = api.test("datahub-rest", host="http://127.0.0.1:9")
    assert not works
    assert "refused" in message


def test_the_button_test_checks_a_kafka_connection(api: Api, kafka: Kafka, schema_registry: SchemaRegistry) -> None:
    topic = kafka.make_topic()
    extra = {
        "connection": {"schema_registry_url": schema_registry.url, "producer_config": {"linger.ms": 5}},
        "topic_routes": {"MetadataChangeProposal": topic},
    }
    works, message = api.test("datahub-kafka", host=kafka.bootstrap, extra=extra)
    assert works, message
    assert f"(topic {topic}) answers, and so does the schema registry" in message
    assert list(kafka.messages(topic)) == []
    extra["topic_routes"] = {"MetadataChangeProposal": "no_such_topic"}
    works, message = api.test("datahub-kafka", host=kafka.bootstrap, extra=extra)
    assert not works
    assert "no_such_topic" in message


def test_the_button_test_checks_a_file_connection(api: Api, tmp_path: Path) -> None:
    works, message = api.test("datahub-file", host=str(tmp_path / "lineage.jsonl"))
    assert works, message
    assert "lineage.jsonl can be written" in message
    assert list(tmp_path.iterdir()) == []
    works, message = api.test("datahub-file", host=f"{__file__}/lineage.jsonl")
    assert not works
    assert "cannot be written" in message


def test_the_button_test_checks_an_object_store_connection(api: Api, s3: S3) -> None:
    bucket = s3.make_bucket("tested-by-airflow")
    for name, changes in (("lake", {}), ("locked_lake", {"password": "wrong"})):
        body = {"connection_id": name, **s3.connection(**changes)}
        status, answer = api.ask("POST", "api/v2/connections", {**body, "extra": json.dumps(body["extra"])})
        assert status == 201, answer
    works, message = api.test(
        "datahub-object-store", host=f"s3://{bucket.name}/lineage", extra={"storage_conn_id": "lake"}
    )
    assert works, message
    assert list(bucket.iterdir()) == []
    works, message = api.test(
        "datahub-object-store", host=f"s3://{bucket.name}/lineage", extra={"storage_conn_id": "locked_lake"}
    )
    assert works, "keys that may only write do not let us read"
    assert "does not let us read" in message
    assert "check the keys of the connection that storage_conn_id names" in message
    works, message = api.test("datahub-object-store", host="lake")
    assert not works
    assert "must be the URI of a bucket" in message
