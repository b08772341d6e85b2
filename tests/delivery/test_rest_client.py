"""The client of GMS: its requests, whatever may be answered, TLS, and the proxies that the
environment names.
"""

from __future__ import annotations

import io
import json
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import certifi
import pytest
import requests
from datahub.emitter.rest_emitter import DataHubRestEmitter, EmitMode
from datahub.utilities.caller_context import identify_caller
from hypothesis import HealthCheck, example, given, settings, strategies as st
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import ConnectionParts, Deadline, Delivery
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from airflow_provider_spark_datahub.delivery.sinks.kafka_client import _to_mcp
from airflow_provider_spark_datahub.delivery.sinks.rest_client import (
    GmsClient,
    _batch_bodies,
    _system_metadata,
)
from tests.cases import cases
from tests.delivery.samples import job_urn, patch, upsert, upserts
from tests.servers.certificates import make_certificate
from tests.servers.loopback import Answer, AnsweringServer, Request

TOKEN = "token-of-datahub"


def acknowledged(_: Request) -> Answer:
    """Answer as GMS does."""
    return Answer(200, {"value": "success"})


def deliver(server: str, waits: list[float], **extra: Any) -> Delivery:
    settings = RestSettings.from_connection(ConnectionParts(server, password=TOKEN, extra=extra))
    return RestSink(settings, backoff=Backoff(sleep=waits.append)).deliver(
        upserts(2), Deadline.after(30)
    )


# -- requests, compared with those of acryl-datahub's emitter


HOSTILE = [
    upsert("a", title='broken \ud800 "name"\n\u2028'),
    upsert("\ud800"),
    upsert("ü€😀"),
    patch("b"),
]


class _Recorder(HTTPAdapter):
    """Server that answers every request as GMS does, and keeps its body."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str | None, Any]] = []
        self.sent: list[tuple[dict[str, str | bytes], object]] = []

    def send(self, request: PreparedRequest, *_: object, **options: object) -> Response:
        assert isinstance(request.body, str | bytes)
        self.requests.append((request.url, json.loads(request.body)))
        # The length depends on blanks in JSON, and only we refuse compressed answers.
        differing = ("Content-Length", "Accept-Encoding")
        headers = {name: value for name, value in request.headers.items() if name not in differing}
        self.sent.append((headers, options.get("cert")))
        answer = Response()
        answer.status_code = 200
        answer.raw = HTTPResponse(io.BytesIO(b'{"value": "success"}'), preload_content=False)
        return answer


def without_moment(body: Any) -> Any:
    for proposal in body["proposals"]:
        assert proposal["systemMetadata"].pop("lastObserved") > 1_700_000_000_000
    return body


def ours(
    proposals: list[Proposal], *, is_async: bool = False, largest: int = 1_000_000
) -> list[Any]:
    bodies = _batch_bodies(
        proposals, is_async=is_async, system_metadata=_system_metadata(), largest=largest
    )
    return [json.loads(body) for body in bodies]


@pytest.mark.parametrize("mode", list(EmitMode))
@pytest.mark.parametrize("proposals", [upserts(3), HOSTILE], ids=["plain", "hostile"])
def test_bodies_equal_those_of_datahubs_emitter(mode: EmitMode, proposals: list[Proposal]) -> None:
    recorder = _Recorder()
    emitter = DataHubRestEmitter("http://gms", openapi_ingestion=False)
    emitter._session.mount("http://", recorder)
    emitter.emit_mcps([_to_mcp(proposal) for proposal in proposals], emit_mode=mode)
    ((url, theirs),) = recorder.requests
    assert url == "http://gms/aspects?action=ingestProposalBatch"
    (body,) = ours(proposals, is_async=mode.name.startswith("ASYNC"))
    assert without_moment(body) == without_moment(theirs)


@cases("rest")
def test_the_session_equals_that_of_datahubs_emitter(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    theirs, ours = _Recorder(), _Recorder()
    identify_caller.cache_clear()
    # It reads DATAHUB_COMPONENT when it is imported.
    emitter = DataHubRestEmitter("http://gms", openapi_ingestion=False, datahub_component="workers")
    identify_caller.cache_clear()
    monkeypatch.setenv("DATAHUB_COMPONENT", "Workers")
    client = GmsClient(RestSettings("http://gms"), Deadline.after(60))
    for session, recorder in ((emitter._session, theirs), (client._session, ours)):
        session.mount("http://", recorder)
    emitter.emit_mcps([_to_mcp(upsert("a"))])
    assert client.post([upsert("a")]) is True
    assert ours.sent == theirs.sent


def test_bodies_stay_below_the_limit() -> None:
    proposals = upserts(100)
    (whole,) = _batch_bodies(proposals, is_async=False, system_metadata={})
    limit = len(whole) // 3
    bodies = list(_batch_bodies(proposals, is_async=False, system_metadata={}, largest=limit))
    assert all(len(body) <= limit + 2 for body in bodies)
    assert len(bodies) in (3, 4)
    urns = [sent["entityUrn"] for body in bodies for sent in json.loads(body)["proposals"]]
    assert urns == [proposal.entity_urn for proposal in proposals]


def test_a_proposal_that_is_too_large_goes_alone() -> None:
    proposals = [upsert("a"), upsert("b", title="x" * 1000), upsert("c")]
    bodies = ours(proposals, largest=900)
    assert [[sent["entityUrn"] for sent in body["proposals"]] for body in bodies] == [
        [proposal.entity_urn] for proposal in proposals
    ]


# -- any answer of whatever stands in GMS's place: nothing lost, and nothing counted as delivered
# that was not


PROPOSALS = upserts(5)


@dataclass(frozen=True)
class Strange:
    """An answer that GMS does not give to a write.

    :param cut: the connection breaks after so many bytes of the body.
    """

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


def is_gmss_own(body: object) -> bool:
    """Return whether GMS answers a write in this way."""
    if isinstance(body, dict):
        value = body.get("value")
        return value == "success" or (isinstance(value, str) and value.startswith("urn:li:"))
    return False


URN = job_urn("job0")
WORDS = st.sampled_from(
    ["success", "urn", "urn:li", URN, "value", "noCode", "true", "error", "message", "status"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
).filter(lambda body: not is_gmss_own(body))
BODIES = (
    JSON.map(lambda body: json.dumps(body).encode())
    | st.binary(max_size=40)
    | st.just(b"[" * 70_000)
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.sampled_from(
            ["application/json", "text/html", "text/plain; charset=nonsense"]
        ),
        "Retry-After": st.sampled_from(
            ["0", "-1", "9" * 400, "\u0663", "Wed, 99 Oct 0000 07:28:00 GMT", "soon", ""]
        ),
        "Location": st.text(max_size=5),
        "Content-Encoding": st.sampled_from(["gzip", "br", "identity"]),
    },
)
STATUSES = st.sampled_from([200, 200, 201, 202, 202, 204, 207, 299, 101, 103, 999]) | st.integers(
    300, 599
)
STRANGE = st.builds(Strange, STATUSES, BODIES, HEADERS, st.none() | st.integers(0, 3))
ANSWERS = st.lists(st.none() | STRANGE, max_size=6)
"""One for each request, ``None`` for what GMS would do; afterwards the last one."""


class Breaking(io.BytesIO):
    """A body whose connection breaks."""

    def read1(self, size: int | None = -1) -> bytes:
        raise ConnectionResetError(f"reset by peer, {size} bytes more were wanted")

    read = read1


class Server:
    """GMS, or any server in its place.

    :ivar stored: URNs of what GMS stored.
    """

    def __init__(self, answers: Sequence[Strange | None], *, config_is_gmss: bool) -> None:
        self.answers = list(answers) or [None]
        self.config: dict[str, str] = {"noCode": "true"} if config_is_gmss else {"appName": "shop"}
        self.statuses: set[int] = set()
        self.stored: set[str] = set()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer all requests, without a socket."""

        def send(
            adapter: HTTPAdapter, request: requests.PreparedRequest, *_: object, **__: object
        ) -> Any:
            answer = self._answer(request)
            self.statuses.add(answer.status)
            body = io.BytesIO(answer.body) if answer.cut is None else Breaking(answer.body)
            raw = HTTPResponse(
                body, answer.headers, answer.status, preload_content=False, decode_content=False
            )
            return adapter.build_response(request, raw)

        with mock.patch.object(HTTPAdapter, "send", send):
            yield

    def _answer(self, request: requests.PreparedRequest) -> Strange:
        if request.method == "GET":
            return Strange(200, json.dumps(self.config).encode())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            return answer
        content = json.loads(request.body if isinstance(request.body, bytes | str) else "")
        self.stored |= {each["entityUrn"] for each in content["proposals"]}
        return Strange(200, b'{"value": "success"}')


@pytest.mark.slow
@pytest.mark.no_cover
@given(ANSWERS, st.booleans(), st.sampled_from(["SYNC_PRIMARY", "ASYNC"]))
@example([Strange(202, b"")], False, "ASYNC")
@example([Strange(200, b"[" * 60_000)], True, "SYNC_PRIMARY")
@example([Strange(200, b'{"value": "success"}', cut=1)], True, "SYNC_PRIMARY")
@example(
    [
        Strange(
            400,
            b"Client sent an HTTP request to an HTTPS server.\n",
            {"Content-Type": "text/plain"},
        )
    ],
    False,
    "SYNC_PRIMARY",
)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_answers_lose_nothing(
    answers: list[Strange | None], config_is_gmss: bool, mode: str
) -> None:
    extra = {"emit_mode": mode, "retry_max_times": 2}
    sink = RestSink(
        RestSettings.from_connection(ConnectionParts("http://gms", extra=extra)),
        backoff=Backoff(sleep=lambda _: None),
    )
    server = Server(answers, config_is_gmss=config_is_gmss)
    with server.answering():
        delivery = sink.deliver(PROPOSALS, Deadline.after(30))
    kept = [*delivery.pending, *(rejection.item for rejection in delivery.rejected)]
    delivered = [proposal for proposal in PROPOSALS if proposal not in kept]
    assert delivery.delivered == len(delivered)
    assert len(kept) + len(delivered) == len(PROPOSALS)
    assert {proposal.entity_urn for proposal in delivered} <= server.stored
    assert not delivery.rejected or server.statuses & {400, 409, 413, 422, 500}
    assert not delivery.rejected or config_is_gmss or delivered
    assert bool(delivery.pending) is (delivery.problem is not None)


# -- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def tls_server(
    certificate: tuple[Path, Path], *, wants_certificate: bool = False
) -> AnsweringServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate[0])
    server = AnsweringServer(acknowledged)
    # The thread of a connection shakes hands, with its first read; the thread that accepts waits
    # for no client.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    return server


@pytest.fixture
def server(certificate: tuple[Path, Path], request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a TLS server. If the test's parameter is true, it wants the client's certificate, too."""
    with tls_server(certificate, wants_certificate=getattr(request, "param", False)) as server:
        yield server.url.replace("http:", "https:")


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
def test_the_client_can_show_a_certificate(
    server: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    pem, key = certificate
    both = tmp_path / "both.pem"
    both.write_bytes(pem.read_bytes() + key.read_bytes())
    trusted = {"ca_certificate_path": str(pem)}
    shown = {"client_certificate_path": str(pem), "client_key_path": str(key)}
    assert deliver(server, [], **trusted, **shown).delivered == 2
    assert deliver(server, [], **trusted, client_certificate_path=str(both)).delivered == 2
    assert deliver(server, [], **trusted, retry_max_times=0).delivered == 0


# -- proxies


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_dead_proxy_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://user:pa55word@127.0.0.1:{port}")
        delivery = deliver(f"{scheme}://gms.example.org:8080", [], retry_max_times=0)
    assert len(delivery.pending) == 2
    assert delivery.problem is not None
    assert re.search(
        r"the proxy of the environment .* refused: .*Connection refused, 1 request\)\.$",
        delivery.problem,
    )
    assert "pa55word" not in delivery.problem


def test_netrc_does_not_replace_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with AnsweringServer(acknowledged) as server:
        assert deliver(server.url, []).delivered == 2
    assert {one.headers["Authorization"] for one in server.requests if one.method == "POST"} == {
        f"Bearer {TOKEN}"
    }
