from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest

from airflow_provider_spark_datahub.delivery import ConnectionParts, Deadline, Delivery
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.delivery.samples import upserts
from tests.patience import PATIENCE
from tests.reliability.bad_servers import serving
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


class Dripping:
    """Server that sends a header byte by byte, without end."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._begun, self._closed = threading.Event(), threading.Event()

    def __call__(self, connection: socket.socket, closing: threading.Event) -> None:
        stream = self._context.wrap_socket(connection, server_side=True) if self._context else connection
        with stream:
            stream.recv(65536)
            self._begun.set()
            stream.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            try:
                while not closing.wait(0.02):
                    stream.sendall(b".")
            except OSError:
                self._closed.set()

    def was_left(self) -> bool:
        """Return whether the client closed the connection, or never came."""
        return self._closed.wait(PATIENCE) or not self._begun.is_set()


@pytest.mark.slow
def test_a_proxy_that_drips_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its answer to CONNECT comes before any request, and outlasts any timeout of the socket.
    proxy = Dripping()
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(proxy) as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        sink = RestSink(RestSettings.from_connection(ConnectionParts("https://gms.example.com")))
        delivery = sink.deliver(upserts(1), Deadline.after(1.5))
        assert proxy.was_left()
    assert delivery.delivered == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_connection_whose_headers_drip_is_closed_at_the_deadline(scheme: str, certificate: tuple[Path, Path]) -> None:
    # Otherwise its thread and its socket stay for as long as the server likes.
    import datahub.emitter.rest_emitter  # noqa: F401 (takes a second, which would count)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = Dripping(context if scheme == "https" else None)
    with serving(server) as address:
        extra = {"ca_certificate_path": str(certificate[0])} if scheme == "https" else {}
        sink = RestSink(RestSettings.from_connection(ConnectionParts(f"{scheme}://{address}", extra=extra)))
        delivery = sink.deliver(upserts(1), Deadline.after(1.5))
        assert server.was_left()
    assert delivery.delivered == 0
