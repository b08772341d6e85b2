from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest

from airflow_provider_spark_datahub.delivery import ConnectionParts, Deadline, Delivery
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.delivery.samples import upserts
from tests.servers.certificates import make_certificate
from tests.servers.loopback import Answer, AnsweringServer


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(certificate: tuple[Path, Path], request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a TLS server. If the test's parameter is true, it wants the client's certificate, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if getattr(request, "param", False):
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate[0])
    server = AnsweringServer(lambda _: Answer(200, {"value": "success"}))  # as GMS does
    # The thread of a connection shakes hands, with its first read; the thread that accepts waits for no client.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with server:
        yield server.url.replace("http:", "https:")


def deliver(server: str, waits: list[float], **extra: Any) -> Delivery:
    settings = RestSettings.from_connection(ConnectionParts(server, extra=extra))
    return RestSink(settings, backoff=Backoff(sleep=waits.append)).deliver(upserts(2), Deadline.after(30))


def test_an_untrusted_certificate_is_reported_at_once(server: str) -> None:
    waits: list[float] = []
    delivery = deliver(server, waits)
    assert (len(delivery.pending), waits) == (2, [])
    assert delivery.problem is not None
    assert "its TLS certificate is not trusted" in delivery.problem


def test_an_authority_can_be_trusted(
    server: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    assert deliver(server, [], ca_certificate_path=str(certificate[0])).delivered == 2


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_verification_can_be_switched_off(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    assert deliver(server, [], disable_ssl_verification=True).delivered == 2


@pytest.mark.parametrize("server", [True], indirect=True)
def test_the_client_can_show_a_certificate(server: str, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    pem, key = certificate
    both = tmp_path / "both.pem"
    both.write_bytes(pem.read_bytes() + key.read_bytes())
    trusted = {"ca_certificate_path": str(pem)}
    shown = {"client_certificate_path": str(pem), "client_key_path": str(key)}
    assert deliver(server, [], **trusted, **shown).delivered == 2
    assert deliver(server, [], **trusted, client_certificate_path=str(both)).delivered == 2
    assert deliver(server, [], **trusted, retry_max_times=0).delivered == 0
