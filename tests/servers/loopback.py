"""HTTP servers of the tests' own process on free loopback ports, whose end no client delays."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.patience import join


class LoopbackServer(ThreadingHTTPServer):
    """Server for a ``with`` block; when it ends, so do its threads and connections, whatever the clients do.

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
            target=self.serve_forever, name=f"server at {self.url}", kwargs={"poll_interval": 0.02}, daemon=True
        )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer the requests of a connection in a thread of its own."""
        name = f"connection from {client_address} to {self.url}"
        thread = threading.Thread(
            target=self.process_request_thread, name=name, args=(request, client_address), daemon=True
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


@dataclass(frozen=True)
class Request:
    """HTTP request with its whole body."""

    method: str
    path: str
    headers: Message
    body: bytes


class AnsweringServer(LoopbackServer):
    """Server that answers each request as a function says.

    :param route: returns the status and the content, which is JSON.
    """

    def __init__(self, route: Callable[[Request], tuple[int, bytes]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, content = route(Request(self.command, self.path, self.headers, body))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = answer  # noqa: N815 (http.server's names)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)
