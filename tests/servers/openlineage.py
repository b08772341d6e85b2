"""A stand-in for an OpenLineage backend: takes events over HTTP as Marquez does, and has faults on demand."""

from __future__ import annotations

import json
from typing import Any

from tests.servers.loopback import Answer, AnsweringServer, Request


class Backend(AnsweringServer):
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
        self._key = key
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Keep an event, or refuse it."""
        body, authorization = request.body.decode(), request.headers.get("Authorization")
        self.closing.wait(self.hangs)
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
        return Answer(status, {"code": status, "message": f"answer {authorization}"})
