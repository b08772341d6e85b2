"""The faults of the matrix in ``docs/reliability.md``: what goes wrong, and the expected end of the
lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

from tests.cases import tables
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


def _status(status: int, headers: Mapping[str, str]) -> Callable[[], AbstractContextManager[str]]:
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
    *(
        Fault(name, _status(status, headers), lineage, said)
        for name, status, headers, lineage, said in tables("faults")["statuses"][1:]
    ),
)
