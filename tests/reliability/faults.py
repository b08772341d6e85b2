"""The faults of the matrix in ``docs/reliability.md``: what goes wrong, and the expected end of the
lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

from tests.oracles.gms import GmsStandIn
from tests.reliability.bad_servers import (
    Behaviour,
    answering,
    black_hole,
    no_tls,
    reset_amid_the_body,
    serving,
    slow_drip,
)
from tests.servers.process import closed_port

Whereabouts = Literal["delivered", "pending", "quarantined"]


@dataclass(frozen=True)
class Fault:
    """A fault of the server.

    :param name: as in the matrix.
    :param serve: for a ``with`` block; the URL to connect to.
    :param lineage: where the task's lineage is to be when the task has ended.
    :param said: what the report is to say of it.
    """

    name: str
    serve: Callable[[], AbstractContextManager[str]]
    lineage: Whereabouts
    said: str


def _url(url: str) -> Callable[[], AbstractContextManager[str]]:
    @contextmanager
    def serve() -> Iterator[str]:
        yield url

    return serve


def _server(
    behaviour: Behaviour, scheme: str = "http"
) -> Callable[[], AbstractContextManager[str]]:
    @contextmanager
    def serve() -> Iterator[str]:
        with serving(behaviour) as address:
            yield f"{scheme}://{address}"

    return serve


def _status(
    status: int, headers: Mapping[str, str] | None = None
) -> Callable[[], AbstractContextManager[str]]:
    @contextmanager
    def serve() -> Iterator[str]:
        with GmsStandIn() as gms:
            gms.fail_next(status, headers=headers, times=10_000)
            yield gms.url

    return serve


FAULTS = (
    Fault(
        "connection refused",
        _url(f"http://127.0.0.1:{closed_port()}"),
        "pending",
        "Connection refused",
    ),
    Fault("unknown host", _url("http://gms.invalid:8080"), "pending", "gms.invalid"),
    Fault("black hole: takes all, never answers", _server(black_hole), "pending", "time"),
    Fault("slow drip: a byte at a time", _server(slow_drip), "pending", "time"),
    Fault("reset amid the request", _server(reset_amid_the_body), "pending", "is not available"),
    Fault("no TLS where TLS is expected", _server(no_tls, "https"), "pending", "SSL"),
    Fault(
        "redirect loop",
        _server(answering(status="302 Found", headers="Location: /again\r\n")),
        "pending",
        "a redirect to /again",
    ),
    Fault(
        "garbage: a web page",
        _server(
            answering(
                status="200 OK", headers="Content-Type: text/html\r\n", body=b"\x00<html>\xff"
            )
        ),
        "pending",
        "this is not a DataHub GMS",
    ),
    Fault(
        "garbage: JSON of another server",
        _server(
            answering(
                status="200 OK",
                headers="Content-Type: application/json\r\n",
                body=b'{"status": "ok"}',
            )
        ),
        "pending",
        "this is not a DataHub GMS",
    ),
    Fault(
        "garbage: no HTTP",
        _server(lambda one, _: one.sendall(b"\x00\xff\x00 hello\r\n\r\n")),
        "pending",
        "available",
    ),
    Fault("400", _status(400), "quarantined", "injected 400"),
    Fault("401", _status(401), "pending", "refuses the connection's credentials"),
    Fault("403", _status(403), "pending", "refuses the connection's credentials"),
    Fault("404", _status(404), "pending", "cannot be used with this connection"),
    Fault("409", _status(409), "quarantined", "injected 409"),
    Fault("413", _status(413), "quarantined", "injected 413"),
    Fault("422", _status(422), "quarantined", "injected 422"),
    Fault("429 without Retry-After", _status(429), "pending", "takes no more for now"),
    Fault(
        "429, Retry-After: 3600",
        _status(429, {"Retry-After": "3600"}),
        "pending",
        "wants a wait of 3600 s",
    ),
    Fault("500 to everything", _status(500), "pending", "fails (HTTP 500"),
    Fault("503", _status(503), "pending", "is not available (HTTP 503"),
)
