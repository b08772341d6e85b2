"""Delivery to GMS through the proxies that the environment names, as requests reads it."""

from __future__ import annotations

import re
import select
import socket
import ssl
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_provider_spark_datahub.delivery import ConnectionParts, Deadline, Delivery
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.delivery.samples import upserts
from tests.servers.certificates import make_certificate
from tests.servers.loopback import Answer, AnsweringServer, LoopbackServer, Request

TOKEN = "token-of-datahub"


class Tunnel(BaseHTTPRequestHandler):
    """Proxy that joins client and server after ``CONNECT``."""

    asked: ClassVar[list[str]] = []

    def do_CONNECT(self) -> None:
        self.asked.append(f"{self.path} {self.headers}")
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as target:
            self.send_response(200)
            self.end_headers()
            other = {self.connection: target, target: self.connection}
            while ready := select.select([*other], [], [], 10)[0]:
                for end in ready:
                    if not (piece := end.recv(65_536)):
                        return
                    other[end].sendall(piece)

    def log_message(self, *_: object) -> None:
        """Say nothing: ``asked`` is the log."""


def gms(_: Request) -> Answer:
    return Answer(200, {"value": "success"})


def deliver(server: str, **extra: Any) -> Delivery:
    settings = RestSettings.from_connection(ConnectionParts(server, password=TOKEN, extra=extra))
    return RestSink(settings, backoff=Backoff(sleep=lambda _: None)).deliver(upserts(2), Deadline.after(30))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_proxy_for_https_sees_neither_token_nor_proposals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = AnsweringServer(gms)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    monkeypatch.setattr(Tunnel, "asked", [])
    with server, LoopbackServer(Tunnel) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        address = server.url.replace("http:", "https:")
        assert deliver(address, ca_certificate_path=str(certificate[0])).delivered == 2
        assert Tunnel.asked
        assert TOKEN not in "".join(Tunnel.asked)
        through_proxy = len(Tunnel.asked)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert deliver(address, ca_certificate_path=str(certificate[0])).delivered == 2
        assert len(Tunnel.asked) == through_proxy
    assert {one.headers["Authorization"] for one in server.requests if one.method == "POST"} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(407, "<html>Log in first</html>", {"Content-Type": "text/html"}),
        Answer(403, {"message": "denied by policy"}),
        Answer(400, {"status": "no"}),
        Answer(200, "<html>Welcome</html>", {"Content-Type": "text/html"}),
        Answer(502, "no route"),
        Answer(302, None, {"Location": "http://login.example.org/"}),
    ],
    ids=lambda answer: str(answer.status),
)
def test_nothing_is_lost_or_rejected_if_the_proxy_answers_itself(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AnsweringServer(lambda _: answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        delivery = deliver("http://gms.example.org:8080", retry_max_times=0)
    assert (delivery.delivered, len(delivery.pending), list(delivery.rejected)) == (0, 2, [])
    assert delivery.problem
    assert TOKEN not in delivery.problem


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_dead_proxy_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://user:pa55word@127.0.0.1:{port}")
        delivery = deliver(f"{scheme}://gms.example.org:8080", retry_max_times=0)
    assert len(delivery.pending) == 2
    assert delivery.problem is not None
    assert re.search(r"the proxy of the environment .* refused: .*Connection refused, 1 request\)\.$", delivery.problem)
    assert "pa55word" not in delivery.problem


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_refused_tunnel_is_named(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            self.send_error(status, "not you")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with LoopbackServer(Refusing) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        delivery = deliver("https://gms.example.org:8080", retry_max_times=0)
    assert (len(delivery.pending), list(delivery.rejected)) == (2, [])
    assert delivery.problem is not None
    assert f"the proxy of the environment (HTTP_PROXY, HTTPS_PROXY) refused: Tunnel connection failed: {status}" in (
        delivery.problem
    )


def test_netrc_does_not_replace_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with AnsweringServer(gms) as server:
        assert deliver(server.url).delivered == 2
    assert {one.headers["Authorization"] for one in server.requests if one.method == "POST"} == {f"Bearer {TOKEN}"}
