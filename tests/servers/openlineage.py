"""A stand-in for an OpenLineage backend: takes events over HTTP as Marquez does."""

from __future__ import annotations

import json
from typing import Any

from tests.servers.loopback import Answer, AnsweringServer, Request


class Backend(AnsweringServer):
    """Takes ``POST /api/v1/lineage``.

    :param key: the API key; requests without it get 401.
    """

    def __init__(self, key: str | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self._key = key
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Keep an event, or refuse it."""
        if request.path != "/api/v1/lineage":
            return Answer(404, {"code": 404})
        if self._key and request.headers.get("Authorization") != f"Bearer {self._key}":
            return Answer(401, {"code": 401})
        self.events.append(json.loads(request.body))
        return Answer(201, {"code": 201})
