"""A stand-in for an OpenLineage backend: takes events over HTTP as Marquez does, and has faults on demand."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self

from tests.servers.loopback import LoopbackServer


class Backend:
    """Takes ``POST /api/v1/lineage``: 201, or the statuses of :attr:`statuses`, one per request.

    :param key: the API key; requests without it get 401.
    :ivar hangs: seconds until it answers.
    :ivar refuses: it answers 422 to events with this text in them, and 500 to those with :attr:`stumbles_over`.
    """

    def __init__(self, key: str | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.refuses = ""
        self.stumbles_over = ""
        self.hangs = 0.0
        self._closing = threading.Event()
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                backend._closing.wait(backend.hangs)
                status = backend.statuses.pop(0) if backend.statuses else 201
                if self.path != "/api/v1/lineage":
                    status = 404
                elif key and self.headers.get("Authorization") != f"Bearer {key}":
                    status = 401
                elif backend.refuses and backend.refuses in body:
                    status = 422
                elif backend.stumbles_over and backend.stumbles_over in body:
                    status = 500
                if status == 201:
                    backend.events.append(json.loads(body))
                answer = json.dumps({"code": status, "message": f"answer {self.headers.get('Authorization')}"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = LoopbackServer(Handler)
        self.url = self._server.url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.__exit__(kind, error, trace)
