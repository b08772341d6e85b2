"""HTTP servers of the tests' own process on free loopback ports, whose end no client delays."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast

from tests.patience import join


class LoopbackServer(ThreadingHTTPServer):
    """Server for a ``with`` block; when it ends, so do its threads and connections, whatever the
    clients do.

    :ivar url: its address, without a slash at its end.
    """

    block_on_close = False
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._connections: dict[Any, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(
            target=self.serve_forever,
            name=f"server at {self.url}",
            kwargs={"poll_interval": 0.02},
            daemon=True,
        )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer the requests of a connection in a thread of its own."""
        name = f"connection from {client_address} to {self.url}"
        thread = threading.Thread(
            target=self.process_request_thread,
            name=name,
            args=(request, client_address),
            daemon=True,
        )
        with self._lock:
            self._connections[request] = thread
        thread.start()

    def close_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._connections.pop(request, None)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show errors, but not those of clients that break off, as those of many tests do."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        join(self._thread)
        with self._lock:
            threads = list(self._connections.values())
            # Their threads then read the end of the stream.
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            join(thread)
        self.server_close()


@dataclass(frozen=True, slots=True)
class Request:
    """HTTP request with its whole body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a request; a ``body`` that is not bytes is written as JSON, None as nothing."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class AnsweringServer(LoopbackServer):
    """Server that answers each request as :meth:`answer` or a function says.

    :ivar requests: all requests, in their order.
    :ivar closing: set when the server ends.
    """

    def __init__(self, route: Callable[[Request], Answer] | None = None) -> None:
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._route = route
        super().__init__(_Handler)

    def answer(self, request: Request) -> Answer | None:
        """Return the answer; ``None`` to close the connection without one."""
        assert self._route is not None
        return self._route(request)

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        super().__exit__(*error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: AnsweringServer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # The names of headers are compared without their case.
        request = Request(self.command, self.path, cast(Mapping[str, str], self.headers), body)
        self.server.requests.append(request)
        answer = self.server.answer(request)
        if answer is None:
            self.close_connection = True
            return
        try:
            self._send(answer)
        except ConnectionError:
            # The client gave up waiting, as a test of its timeout wants it to.
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_PUT = do_HEAD = do_DELETE = _serve  # noqa: N815 (http.server's names)

    def log_message(self, *_: object) -> None:
        """Say nothing: ``AnsweringServer.requests`` is the log."""

    def _send(self, answer: Answer) -> None:
        body = b"" if answer.body is None else answer.body
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
