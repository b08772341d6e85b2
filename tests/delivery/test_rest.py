from __future__ import annotations

import copy
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import (
    CheckResult,
    CheckStatus,
    ConnectionParts,
    Deadline,
    Delivery,
)
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.cases import cases
from tests.delivery.samples import (
    Content,
    contents,
    job_urn,
    patch,
    stored_content,
    upsert,
    upserts,
)
from tests.oracles.gms import GmsStandIn
from tests.patience import HANGS, join_threads
from tests.reliability.bad_servers import answering, endless, serving
from tests.servers.process import closed_port

TOKEN = "canary-token-0123456789"


@pytest.fixture
def gms() -> Iterator[GmsStandIn]:
    with GmsStandIn(token=TOKEN) as gms:
        yield gms
    assert gms.dropped == []


def sink_of(
    url: str, waits: list[float] | None = None, token: str = TOKEN, **extra: Any
) -> RestSink:
    """Return a sink that notes its waits instead of waiting, if it is given a list."""
    settings = RestSettings.from_connection(ConnectionParts(url, password=token, extra=extra))
    if waits is None:
        return RestSink(settings)
    return RestSink(settings, backoff=Backoff(jitter=lambda: 1.0, sleep=waits.append))


def stored_in(gms: GmsStandIn) -> list[Content]:
    return [stored_content(each) for each in gms.stored]


def test_patches_and_upserts_are_sent_together_and_unchanged(gms: GmsStandIn) -> None:
    proposals = [upsert("a"), patch("a"), upsert("b"), patch("b")]
    before = copy.deepcopy(proposals)
    delivery = sink_of(gms.url).deliver(proposals, Deadline.after(30))
    assert delivery == Delivery(delivered=4, stored=True)
    assert stored_in(gms) == contents(proposals)
    assert proposals == before


@pytest.mark.slow
def test_only_the_culprits_are_rejected(gms: GmsStandIn) -> None:
    proposals = upserts(100)
    gms.reject(job_urn("job17"))
    gms.reject(job_urn("job99"))
    delivery = sink_of(gms.url).deliver(proposals, Deadline.after(30))
    assert (delivery.delivered, delivery.pending, delivery.problem) == (98, (), None)
    assert [rejection.item for rejection in delivery.rejected] == [proposals[17], proposals[99]]
    assert f"{job_urn('job17')} was rejected" in delivery.rejected[0].reason
    assert stored_in(gms) == contents(
        [each for number, each in enumerate(proposals) if number not in (17, 99)]
    )
    assert len(gms.requests) < 30


@pytest.mark.slow
def test_poison_proposals_are_rejected(gms: GmsStandIn) -> None:
    proposals = upserts(450)
    culprits = (0, 17, 449)  # before anything was taken, between, and after the last that is taken
    for number in culprits:
        gms.stumble_over(job_urn(f"job{number}"))
    delivery = sink_of(gms.url, []).deliver(proposals, Deadline.after(30))
    assert (delivery.delivered, delivery.pending, delivery.problem) == (447, (), None)
    assert [rejection.item for rejection in delivery.rejected] == [
        proposals[number] for number in culprits
    ]
    assert delivery.rejected[0].reason == (
        f"DataHub failed on it alone, not on others: HTTP 500: Failed to deserialize DataMap of {job_urn('job0')}"
    )
    stored = {urn for urn, *_ in stored_in(gms)}
    assert stored == {
        each.entity_urn for number, each in enumerate(proposals) if number not in culprits
    }


@pytest.mark.slow
def test_failures_that_may_pass_are_retried(gms: GmsStandIn) -> None:
    gms.fail_next(503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, times=3)
    waits: list[float] = []
    delivery = sink_of(gms.url, waits).deliver(upserts(3), Deadline.after(30))
    assert delivery == Delivery(delivered=3, stored=True)
    assert waits == [0.5, 1.0, 2.0]
    assert len(gms.requests) == 4


def test_retry_after_is_respected(gms: GmsStandIn) -> None:
    gms.fail_next(429, headers={"Retry-After": "7"})
    waits: list[float] = []
    assert sink_of(gms.url, waits).deliver(upserts(3), Deadline.after(30)).delivered == 3
    assert waits == [7.0]


def test_a_wait_beyond_the_deadline_is_not_begun(gms: GmsStandIn) -> None:
    gms.fail_next(429, headers={"Retry-After": "120"})
    waits: list[float] = []
    proposals = upserts(3)
    delivery = sink_of(gms.url, waits).deliver(proposals, Deadline.after(30))
    assert (delivery.delivered, delivery.pending, waits) == (0, tuple(proposals), [])
    assert delivery.problem is not None
    assert "HTTP 429: injected 429, wants a wait of 120 s" in delivery.problem


def test_retry_max_times_limits_the_repetitions(gms: GmsStandIn) -> None:
    gms.fail_next(503, times=10)
    waits: list[float] = []
    delivery = sink_of(gms.url, waits, retry_max_times=2).deliver(upserts(3), Deadline.after(30))
    assert len(gms.requests) == 3
    assert (
        delivery.problem
        == f"DataHub at {gms.url} is not available (HTTP 503: injected 503, 3 requests)."
    )


@cases("rest")
def test_permanent_failures_are_not_retried_and_reject_nothing(
    gms: GmsStandIn, status: int, headers: dict[str, str], body: Any, words: str
) -> None:
    gms.fail_next(status, headers=headers, body=body)
    proposals = upserts(300)
    waits: list[float] = []
    delivery = sink_of(gms.url, waits).deliver(proposals, Deadline.after(30))
    assert (delivery.delivered, delivery.rejected, delivery.pending) == (0, (), tuple(proposals))
    assert (len(gms.requests), waits) == (1, [])
    assert delivery.problem is not None
    assert words in delivery.problem


def test_a_request_too_large_for_a_proxy_is_halved(gms: GmsStandIn) -> None:
    gms.fail_next(413, headers={"Content-Type": "text/html"}, body="<html>")
    assert sink_of(gms.url).deliver(upserts(4), Deadline.after(30)) == Delivery(
        delivered=4, stored=True
    )
    assert [request.method for request in gms.requests] == ["POST", "GET", "POST", "POST"]


def test_an_aspect_that_gms_cannot_read_is_rejected_before_it_is_sent(
    gms: GmsStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DataHub's own limit of 16,000,000 characters (Constants.MAX_JACKSON_STRING_SIZE), the JSON
    around it included.
    """
    around = len(upsert("a", title="é").value) - 1
    proposals = [
        upsert("a", title="é" * (16_000_000 - around)),
        upsert("b", title="é" * (16_000_001 - around)),
    ]
    assert [len(proposal.value) for proposal in proposals] == [16_000_000, 16_000_001]
    delivery = sink_of(gms.url).deliver(proposals, Deadline.after(60))
    (rejected,) = delivery.rejected
    assert (delivery.delivered, rejected.item, delivery.pending) == (1, proposals[1], ())
    assert "it has 16000001 characters" in rejected.reason
    monkeypatch.setenv("INGESTION_MAX_SERIALIZED_STRING_LENGTH", "20000000")
    assert sink_of(gms.url).deliver(proposals, Deadline.after(60)).delivered == 2


@cases("rest")
def test_an_accepted_write_does_not_count_as_stored(
    gms: GmsStandIn, mode: str, stored: bool
) -> None:
    sink = sink_of(gms.url, emit_mode=mode)
    assert sink.deliver(upserts(2), Deadline.after(30)) == Delivery(delivered=2, stored=stored)


@pytest.mark.slow
@cases("rest")
def test_only_gms_acknowledges(status: str, body: str) -> None:
    proposals, waits = upserts(3), list[float]()
    with serving(answering(status=status, body=body.encode("latin-1"))) as address:
        sink = sink_of(f"http://{address}", waits)
        delivery = sink.deliver(proposals, Deadline.after(30))
    assert (delivery.delivered, delivery.rejected, delivery.pending) == (0, (), tuple(proposals))
    assert "this is not a DataHub GMS: give GMS's own URL" in str(delivery.problem)
    assert waits == []


def test_an_interim_answer_acknowledges_nothing() -> None:
    # Nor does the final answer behind it, for which the next request on this connection must not
    # take it.
    status = "103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK"
    with serving(answering(status=status, body=b'{"value": "success"}')) as address:
        delivery = sink_of(f"http://{address}", []).deliver(upserts(2), Deadline.after(30))
    assert (delivery.delivered, len(delivery.pending)) == (0, 2)
    assert "HTTP 103 in place of a final answer" in str(delivery.problem)


@cases("rest")
def test_every_version_of_gms_is_recognised(gms: GmsStandIn, mode: str, value: str) -> None:
    # The answers carry no header of GMS: a proxy may drop them.
    gms.fail_next(200, body={"value": value})
    sink = sink_of(gms.url, emit_mode=mode)
    assert sink.deliver(upserts(2), Deadline.after(30)) == Delivery(
        delivered=2, stored=mode != "ASYNC"
    )


@pytest.mark.parametrize("status", ["200 OK", "500 Server Error", "400 Bad Request", "302 Found"])
def test_an_endless_answer_is_cut_off(status: str) -> None:
    # The server's thread ends only when the connection is closed; the test would hang otherwise.
    hung_up = threading.Event()
    flood = endless(f"HTTP/1.1 {status}\r\n\r\n".encode(), b'{"value": "success", ' + b" " * 4096)

    def behaviour(connection: socket.socket, closing: threading.Event) -> None:
        with suppress(OSError):
            flood(connection, closing)
        hung_up.set()

    with serving(behaviour) as address:
        delivery = sink_of(f"http://{address}", [], retry_max_times=0).deliver(
            upserts(1), Deadline.after(60)
        )
        assert hung_up.wait(HANGS)
    assert delivery.delivered == 0
    assert not delivery.rejected or status.startswith("400")
    if status == "200 OK":
        assert "HTTP 200 with more than 65536 bytes: this is not a DataHub GMS" in str(
            delivery.problem
        )


@pytest.mark.slow
def test_nothing_is_read_after_the_deadline() -> None:
    # Each byte of the body comes in time, the last one never; the thread ends nevertheless (see
    # conftest).
    with serving(endless(b"HTTP/1.1 200 OK\r\n\r\n", b".", pause=0.05)) as address:
        delivery = sink_of(f"http://{address}", []).deliver(upserts(1), Deadline.after(0.5))
        join_threads("lineage-delivery")
    assert len(delivery.pending) == 1


@pytest.mark.slow
def test_a_request_takes_at_most_timeout_sec(gms: GmsStandIn) -> None:
    gms.hang(1)
    waits: list[float] = []
    assert (
        sink_of(gms.url, waits, timeout_sec=0.3).deliver(upserts(1), Deadline.after(30)).delivered
        == 1
    )
    assert waits == [0.5]
    assert len(gms.requests) == 2


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "http://gms.invalid:{port}"])
def test_an_unreachable_server_is_tried_for_a_second(url: str) -> None:
    url = url.format(port=closed_port())
    proposals = upserts(2)
    waits: list[float] = []
    delivery = sink_of(url, waits).deliver(proposals, Deadline.after(30))
    assert (delivery.pending, delivery.outage, waits) == (tuple(proposals), True, [0.5])
    assert str(delivery.problem).startswith(f"DataHub at {url} is not available (")
    assert str(delivery.problem).endswith(", 2 requests).")
    # Nothing else keeps the proposals.
    waits.clear()
    delivery = sink_of(url, waits, retry_max_times=4).deliver(
        proposals, Deadline.after(30), patient=True
    )
    assert (delivery.outage, waits) == (True, [0.5, 1.0, 2.0, 4.0])


def test_unreachable_and_silent_servers_are_outages(gms: GmsStandIn) -> None:
    # Not what a server answers that is there, nor silence when there was hardly any time for an
    # answer.
    for status, seconds, outage in (
        (503, 30, True),
        (503, 3, False),
        (429, 30, False),
        (401, 30, False),
    ):
        gms.fail_next(status, headers={"Retry-After": "3600"})
        delivery = sink_of(gms.url, []).deliver(upserts(1), Deadline.after(seconds))
        assert (len(delivery.pending), delivery.outage) == (1, outage), status


def test_a_missing_certificate_file_is_reported_at_once() -> None:
    waits: list[float] = []
    sink = sink_of(
        f"https://127.0.0.1:{closed_port()}", waits, ca_certificate_path="/no/such/ca.pem"
    )
    delivery = sink.deliver(upserts(1), Deadline.after(30))
    assert waits == []
    assert delivery.problem is not None
    assert "cannot be used with this connection" in delivery.problem
    assert "/no/such/ca.pem" in delivery.problem


def test_nothing_is_sent_after_the_deadline(gms: GmsStandIn) -> None:
    delivery = sink_of(gms.url).deliver(upserts(2), Deadline.after(0))
    assert len(delivery.pending) == 2
    assert gms.requests == []


# -- what a check finds out without writing


def check(url: str, token: str = TOKEN) -> list[CheckResult]:
    return sink_of(url, token=token).check(Deadline.after(10))


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


@cases("rest")
def test_servers_other_than_gms_are_recognised(status: str, kind: str, body: str) -> None:
    with serving(
        answering(status=status, headers=f"Content-Type: {kind}\r\n", body=body.encode())
    ) as address:
        (finding,) = check(f"http://{address}")
    assert finding.status is CheckStatus.BAD
    assert "this is not a DataHub GMS" in finding.message
    assert "https://datahub.example/api/gms" in finding.advice
