"""The servers of the tests end whatever their clients do: a test that fails must not hang as well."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from urllib.parse import urlsplit

import pytest

from tests.oracles.gms import GmsStandIn
from tests.reliability.bad_servers import answering, black_hole, endless, reset_amid_the_body, serving, slow_drip
from tests.servers.openlineage import Backend

SERVERS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "black hole": lambda: serving(black_hole),
    "slow drip": lambda: serving(slow_drip),
    "reset": lambda: serving(reset_amid_the_body),
    "answer": lambda: serving(answering(status="200 OK")),
    "endless": lambda: serving(endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x")),
    "GMS": GmsStandIn,
    "OpenLineage": Backend,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("serve", SERVERS.values(), ids=SERVERS)
def test_a_client_that_says_nothing_delays_no_end(serve: Callable[[], AbstractContextManager[object]]) -> None:
    with closing(socket.socket()) as silent:
        with serve() as server:
            address = urlsplit(f"//{server}" if isinstance(server, str) else getattr(server, "url"))  # noqa: B009
            silent.connect((address.hostname, address.port))
            silent.settimeout(0.2)
            with pytest.raises(TimeoutError):  # its connection is accepted by now, and open
                silent.recv(1)
        silent.settimeout(30)
        assert silent.recv(1) == b""
