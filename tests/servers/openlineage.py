"""A stand-in for an OpenLineage backend: takes events over HTTP as Marquez does, and has faults on demand."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Any, Self

from tests.servers.loopback import AnsweringServer, Request


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
        self._key = key
        self._server = AnsweringServer(self._answer)
        self.url = self._server.url

    def _answer(self, request: Request) -> tuple[int, bytes]:
        body, authorization = request.body.decode(), request.headers.get("Authorization")
        self._closing.wait(self.hangs)
        status = self.statuses.pop(0) if self.statuses else 201
        if request.path != "/api/v1/lineage":
            status = 404
        elif self._key and authorization != f"Bearer {self._key}":
            status = 401
        elif self.refuses and self.refuses in body:
            status = 422
        elif self.stumbles_over and self.stumbles_over in body:
            status = 500
        if status == 201:
            self.events.append(json.loads(body))
        return status, json.dumps({"code": status, "message": f"answer {authorization}"}).encode()

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.__exit__(kind, error, trace)
