"""Any answer of whatever stands in GMS's place: nothing lost, and nothing counted as delivered that was not."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import requests
from datahub.emitter import rest_emitter
from hypothesis import HealthCheck, example, given, settings, strategies as st
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from airflow_provider_spark_datahub.delivery import ConnectionParts, Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.delivery.conftest import let_deliveries_end
from tests.delivery.samples import job_urn, upserts

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
    entities = body if isinstance(body, list) else [None]
    return all(isinstance(each, dict) and str(each.get("urn")).startswith("urn:li:") for each in entities)


URN = job_urn("job0")
WORDS = st.sampled_from(["success", "urn", "urn:li", URN, "value", "noCode", "true", "error", "message", "status"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
).filter(lambda body: not is_gmss_own(body))
BODIES = JSON.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=40) | st.just(b"[" * 70_000)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.sampled_from(["application/json", "text/html", "text/plain; charset=nonsense"]),
        "Retry-After": st.sampled_from(["0", "-1", "9" * 400, "\u0663", "Wed, 99 Oct 0000 07:28:00 GMT", "soon", ""]),
        "Location": st.text(max_size=5),
        "Content-Encoding": st.sampled_from(["gzip", "br", "identity"]),
        "traceparent": st.sampled_from(["-", "00-x", f"00-{'0' * 32}-{'0' * 16}-01", "\u00e9"]),
    },
)
STATUSES = st.sampled_from([200, 200, 201, 202, 202, 204, 207, 299, 101, 103, 999]) | st.integers(300, 599)
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

        def send(adapter: HTTPAdapter, request: requests.PreparedRequest, *_: object, **__: object) -> Any:
            answer = self._answer(request)
            self.statuses.add(answer.status)
            body = io.BytesIO(answer.body) if answer.cut is None else Breaking(answer.body)
            raw = HTTPResponse(body, answer.headers, answer.status, preload_content=False, decode_content=False)
            return adapter.build_response(request, raw)

        with patch.object(HTTPAdapter, "send", send):
            yield

    def _answer(self, request: requests.PreparedRequest) -> Strange:
        if request.method == "GET":
            return Strange(200, json.dumps(self.config).encode())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            return answer
        content = json.loads(request.body if isinstance(request.body, bytes | str) else "")
        if "/aspects" in str(request.url):
            self.stored |= {each["entityUrn"] for each in content["proposals"]}
            return Strange(200, b'{"value": "success"}')
        self.stored |= {each["urn"] for each in content}
        return Strange(202 if "async=true" in str(request.url) else 200, json.dumps(content).encode())


@pytest.mark.slow
@pytest.mark.no_cover
@given(
    ANSWERS,
    st.booleans(),
    st.sampled_from([("SYNC_PRIMARY", False), ("ASYNC", False), ("SYNC_WAIT", True), ("ASYNC", True)]),
)
@example([Strange(202, b"")], False, ("ASYNC", True))
@example([Strange(200, b"[]")], False, ("SYNC_WAIT", True))
@example([Strange(200, b"[" * 60_000)], True, ("SYNC_PRIMARY", False))
@example([Strange(200, b'{"value": "success"}', cut=1)], True, ("SYNC_PRIMARY", False))
@example(
    [Strange(400, b"Client sent an HTTP request to an HTTPS server.\n", {"Content-Type": "text/plain"})],
    False,
    ("SYNC_PRIMARY", False),
)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_answers_lose_nothing(answers: list[Strange | None], config_is_gmss: bool, mode: tuple[str, bool]) -> None:
    extra = {"emit_mode": mode[0], "openapi_ingestion": mode[1], "retry_max_times": 2}
    sink = RestSink(
        RestSettings.from_connection(ConnectionParts("http://gms", extra=extra)),
        backoff=Backoff(sleep=lambda _: None),
    )
    # GMS acknowledges so what changed nothing, or a patch.
    named_nothing = [each for each in answers if each is not None and each.body in (b"", b"[]")]
    server = Server(
        [each for each in answers if each not in named_nothing or not config_is_gmss], config_is_gmss=config_is_gmss
    )
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


@pytest.mark.slow
@pytest.mark.no_cover
@given(st.lists(STRANGE | st.just(None), min_size=1, max_size=3))
@example([Strange(200, b'{"urn": null}')])
@example([Strange(200, json.dumps({URN: {"dataJobInfo": {"success": True}}}).encode())])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_report_on_an_asynchronous_write_loses_nothing(reports: list[Strange | None]) -> None:
    # GMS takes the proposals, and is then asked what became of them.

    class Reporting(Server):
        def _answer(self, request: requests.PreparedRequest) -> Strange:
            if "/trace/" not in str(request.url) and request.method != "GET":
                answer = Server([None], config_is_gmss=True)._answer(request)
                return Strange(answer.status, answer.body, {"traceparent": f"00-{'1' * 32}-{'1' * 16}-01"})
            return super()._answer(request)

    extra = {"emit_mode": "ASYNC_WAIT", "openapi_ingestion": True, "retry_max_times": 0}
    sink = RestSink(RestSettings.from_connection(ConnectionParts("http://gms", extra=extra)))
    server = Reporting([each or Strange(200, b"{}") for each in reports], config_is_gmss=True)
    server.config |= {"versions": {"acryldata/datahub": {"version": "v1.7.0"}}}  # type: ignore[dict-item]
    with server.answering(), patch.object(rest_emitter, "TRACE_INITIAL_BACKOFF", 0.05):
        delivery = sink.deliver(PROPOSALS, Deadline.after(0.3))
        # It draws random numbers, which Hypothesis refuses while it makes the next example.
        let_deliveries_end()
    assert (delivery.delivered, delivery.rejected) == (0, ())
    assert delivery.pending == tuple(PROPOSALS)
