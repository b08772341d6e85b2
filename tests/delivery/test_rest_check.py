"""What a check of the REST sink finds out without writing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_spark_datahub.delivery import CheckResult, CheckStatus, ConnectionParts, Deadline
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.oracles.gms import GmsStandIn
from tests.reliability.bad_servers import answering, serving

TOKEN = "canary-token-0123456789"


def check(url: str, token: str = TOKEN) -> list[CheckResult]:
    return RestSink(RestSettings.from_connection(ConnectionParts(url, password=token))).check(Deadline.after(10))


@pytest.fixture
def gms() -> Iterator[GmsStandIn]:
    with GmsStandIn(token=TOKEN) as gms:
        yield gms


def test_a_check_reports_version_and_credentials(gms: GmsStandIn) -> None:
    assert check(gms.url) == [
        CheckResult("DataHub", CheckStatus.GOOD, f"DataHub at {gms.url} answers: version v1.7.0"),
        CheckResult("credentials", CheckStatus.GOOD, "DataHub lets us read"),
    ]
    assert {request.method for request in gms.requests} == {"GET"}
    assert gms.stored == []


def test_refused_credentials_are_reported(gms: GmsStandIn) -> None:
    server, credentials = check(gms.url, token="another-token")
    assert (server.status, credentials.status) == (CheckStatus.GOOD, CheckStatus.BAD)
    assert "set a valid access token as its password" in credentials.message
    assert "another-token" not in credentials.message


def test_an_unreachable_server_is_reported() -> None:
    (finding,) = check("http://127.0.0.1:9")
    assert (finding.subject, finding.status) == ("DataHub", CheckStatus.BAD)
    assert "is not available" in finding.message


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b'{"appName": "something"}'),
        ("application/json", b"[1]"),
        ("text/html", b"<html>"),
        ("text/plain", b"hello"),
    ],
)
def test_servers_other_than_gms_are_recognised(kind: str, body: bytes) -> None:
    with serving(answering(status="200 OK", headers=f"Content-Type: {kind}\r\n", body=body)) as address:
        (finding,) = check(f"http://{address}")
    assert finding.status is CheckStatus.BAD
    assert "https://datahub.example/api/gms" in finding.advice
