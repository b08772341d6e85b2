"""What a check of the REST sink finds out without writing."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.connection import ConnectionParts
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.sink import CheckResult, CheckStatus
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.oracles.gms import GmsStandIn
from tests.patience import HANGS
from tests.reliability.bad_servers import answering, serving
from tests.servers.loopback import LoopbackServer

TOKEN = "canary-token-0123456789"
STATUS = Proposal("dataFlow", "urn:li:dataFlow:(spark,probe,PROD)", "status", {"removed": True})


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


@pytest.mark.parametrize("body", ["[1]", '{"aspect": null}', '{"aspect": [1]}', '{"aspect": {"a.Status": 1}}', "5"])
def test_an_answer_of_another_shape_is_not_the_written_aspect(body: str) -> None:
    json = "Content-Type: application/json\r\n"
    with serving(answering(status="200 OK", headers=json, body=body.encode())) as address:
        sink = RestSink(RestSettings.from_connection(ConnectionParts(f"http://{address}")))
        result = sink.check_stored(STATUS, Deadline.after(HANGS))
    assert result.status is CheckStatus.BAD
    assert "DataHub acknowledged status of urn:li:dataFlow:(spark,probe,PROD), and" in result.message


class Other(BaseHTTPRequestHandler):
    """Another service than GMS, with its answer by path."""

    def do_GET(self) -> None:
        kind, body = {
            "/json/config": ("application/json", b'{"appName": "something"}'),
            "/list/config": ("application/json", b"[1]"),
            "/page/config": ("text/html", b"<html>"),
            "/text/config": ("text/plain", b"hello"),
        }[self.path]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def other() -> Iterator[str]:
    with LoopbackServer(Other) as server:
        yield server.url


@pytest.mark.parametrize("what", ["json", "list", "page", "text"])
def test_servers_other_than_gms_are_recognised(other: str, what: str) -> None:
    (finding,) = check(f"{other}/{what}")
    assert finding.status is CheckStatus.BAD
    assert "https://datahub.example/api/gms" in finding.advice
