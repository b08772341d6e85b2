"""Connections in the API server that people edit them with: what it shows and keeps."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.patience import HANGS
from tests.system.airflow_home import AirflowHome

pytestmark = pytest.mark.airflow

ADMIN = {"username": "admin", "password": "password of admin"}
SECRETS = {
    "basic.auth.user.info": "me:canary-1",
    "ssl.key.pem": "canary-2",
    "sasl.jaas.config": "canary-3",
    "sasl.oauthbearer.config": "canary-4",
}
# What `spark-datahub doctor` says to name: Airflow 3.3 compares keys with underscores for dots,
# older ones as they are.
NAMES = [name for key in SECRETS for name in (key, key.replace(".", "_"))]
KAFKA = {
    "connection": {"producer_config": {"acks": "all", **SECRETS}, "schema_registry_config": SECRETS}
}
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


@pytest.fixture(scope="module")
def api(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    settings = {"AIRFLOW__CORE__SENSITIVE_VAR_CONN_NAMES": ",".join(NAMES)}
    with airflow_home.api_server(
        tmp_path_factory.mktemp("api"), {"admin": "admin"}, {}, **settings
    ) as url:
        running = Api(url)
        status, answer = running.ask("POST", "auth/token", ADMIN)
        assert status == 201, answer
        running.token = answer["access_token"]
        yield running


@pytest.fixture(scope="module")
def stored(api: Api) -> str:
    """Save a Kafka connection with secrets in its JSON, as DataHub's own plugin wants them, and
    give its name.
    """
    body = {
        "connection_id": "stored",
        "conn_type": "datahub-kafka",
        "host": "broker:9092",
        "extra": json.dumps(KAFKA),
    }
    status, answer = api.ask("POST", "api/v2/connections", body)
    assert status == 201, answer
    assert json.loads(answer["extra"]) == HIDDEN
    return "stored"


def test_the_api_hides_the_secrets_whose_keys_are_configured(api: Api, stored: str) -> None:
    status, listed = api.ask("GET", "api/v2/connections")
    assert status == 200
    assert "canary" not in json.dumps(listed)
    _, one = api.ask("GET", f"api/v2/connections/{stored}")
    assert json.loads(one["extra"]) == HIDDEN


def test_saving_what_the_form_shows_keeps_the_real_secrets(
    api: Api, airflow_home: AirflowHome, stored: str
) -> None:
    """The form shows ``***``, and sends it back."""
    _, shown = api.ask("GET", f"api/v2/connections/{stored}")
    extra = json.loads(shown["extra"])
    extra["connection"]["producer_config"]["linger.ms"] = 5
    edited = {key: shown[key] for key in ("connection_id", "conn_type", "host")} | {
        "extra": json.dumps(extra)
    }
    status, answer = api.ask("PATCH", f"api/v2/connections/{stored}", edited)
    assert status == 200, answer
    assert "canary" not in json.dumps(answer)
    kept = json.loads(airflow_home.connection(stored)["extra"])
    assert kept["connection"]["producer_config"] == {
        **KAFKA["connection"]["producer_config"],
        "linger.ms": 5,
    }
    assert kept["connection"]["schema_registry_config"] == SECRETS


@pytest.mark.parametrize("names", [[], NAMES])
def test_doctor_names_the_secrets_that_the_api_shows(
    airflow_home: AirflowHome, stored: str, names: list[str]
) -> None:
    variables = {"AIRFLOW__CORE__SENSITIVE_VAR_CONN_NAMES": ",".join(names)}
    _, output = airflow_home.spark_datahub("doctor", "--connection", stored, "--json", **variables)
    findings = json.loads(output)[
        "findings"
    ]  # Airflow logs on standard output that "all" is too short a secret
    assert "connection" in {finding["subject"] for finding in findings}
    credentials = json.dumps(
        [finding for finding in findings if finding["subject"] == "credentials"]
    )
    named = {name for name in NAMES if name in credentials}
    # Airflow hides `sasl.oauthbearer.config` by a word of its own.
    assert named - {"sasl.oauthbearer.config", "sasl_oauthbearer_config"} == (
        set() if names else set(NAMES[:6])
    )
