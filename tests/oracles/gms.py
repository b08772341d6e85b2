"""A stand-in for DataHub's GMS on a free loopback port: its endpoints, status codes and strictness,
faults on demand.

What it answers was read from GMS's sources: rest.li's ``/aspects``. It is stricter in one thing: a
field that the aspect does not have is refused, where GMS leaves it out. It deletes nothing, and of
patches applies those of the edges of DataJobs. What it keeps can be read back by rest.li, OpenAPI
(``batchGet``) and, as for the neighbours in the lineage graph, GraphQL.
"""

from __future__ import annotations

import json
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from datahub.metadata.schema_classes import ASPECT_NAME_MAP

from tests.oracles.stored import stored_edges
from tests.oracles.strict import dropping_violations, violations
from tests.servers.loopback import Answer, AnsweringServer, Request

Proposal = dict[str, Any]

_REST_LI_HEADERS = {"X-RestLi-Protocol-Version": "2.0.0"}
_ENTITY_PATH = "/openapi/v3/entity/"
_RUN_ASPECTS = ("Input", "Output", "Relationships", "Properties")
_OPEN_TO_EVERYONE = ("/config", "/health")
_CONFIG = json.loads((Path(__file__).parents[1] / "data" / "gms_config.json").read_bytes())


class _RefusedError(Exception):
    """GMS would refuse the batch; the message says why."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))


class _StumbledError(Exception):
    """GMS would fail on the batch; the message is what it would say."""


class GmsStandIn(AnsweringServer):
    """A GMS for a ``with`` block; when it ends, so do its threads and connections.

    :param token: the personal access token that writes need, None for a server without
        authentication.
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.stored: list[Proposal] = []
        """The proposals GMS would keep, in wire form, in the order they came."""
        self.dropped: list[tuple[Proposal, list[str]]] = []
        """Those it would answer 200 for and not keep, with the reasons: a test must look here."""
        self._faults: deque[Answer | float] = deque()
        self._rejections: list[Callable[[Proposal], bool]] = []
        self._stumbling_blocks: set[str] = set()
        super().__init__()

    def fail_next(
        self,
        status: int,
        headers: Mapping[str, str] | None = None,
        times: int = 1,
        body: Any = None,
    ) -> None:
        """Answer the next writes with this status, after the faults asked for before.

        :param headers: e.g. ``{"Retry-After": "1"}``.
        :param body: the JSON in the answer, by default an error as GMS writes it.
        """
        error = {"message": f"injected {status}", "status": status} if body is None else body
        with self._lock:
            self._faults.extend([Answer(status, error, headers or {})] * times)

    def hang(self, seconds: float) -> None:
        """Accept the next write and answer it only after that many seconds, as usual then."""
        with self._lock:
            self._faults.append(seconds)

    def reject(self, urn_or_predicate: str | Callable[[Proposal], bool]) -> None:
        """Refuse, from now on, every batch with a proposal for this entity URN or that this
        predicate accepts.
        """
        if isinstance(urn_or_predicate, str):
            self._rejections.append(lambda proposal: proposal.get("entityUrn") == urn_or_predicate)
        else:
            self._rejections.append(urn_or_predicate)

    def stumble_over(self, urn: str) -> None:
        """Fail, from now on, with HTTP 500 on every batch with a proposal for this entity URN, as
        GMS does where it cannot read an aspect.
        """
        self._stumbling_blocks.add(urn)

    def answer(self, request: Request) -> Answer | None:
        """Return GMS's answer; ``None`` to close the connection without one, because the stand-in
        ends.
        """
        is_write = request.method != "GET"
        with self._lock:
            fault = self._faults.popleft() if is_write and self._faults else None
        if isinstance(fault, Answer):
            return fault
        if fault is not None and self.closing.wait(fault):
            return None
        if request.path in _OPEN_TO_EVERYONE:
            return self._read(request)
        if (
            self.token is not None
            and request.headers.get("Authorization") != f"Bearer {self.token}"
        ):
            return Answer(401, {"message": "Unauthorized to perform this action.", "status": "401"})
        return self._write(request) if is_write else self._read(request)

    def _write(self, request: Request) -> Answer:
        url = urllib.parse.urlsplit(request.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        try:
            content = json.loads(request.body)
        except ValueError as error:
            return _rest_li_error(400, f"Cannot parse request entity: {error}")
        if url.path == "/aspects" and request.method == "POST":
            return self._ingest_rest_li(query.get("action"), content)
        if url.path.startswith(_ENTITY_PATH) and url.path.endswith("/batchGet"):
            return Answer(200, list(self._batch(content)))
        if url.path == "/api/graphql":
            return self._graphql(content)
        return _not_found(request)

    def _ingest_rest_li(self, action: str | None, content: Any) -> Answer:
        if action not in ("ingestProposal", "ingestProposalBatch") or not isinstance(content, dict):
            return _rest_li_error(400, f"Action {action!r} is not supported")
        proposals = (
            content.get("proposals")
            if action == "ingestProposalBatch"
            else [content.get("proposal")]
        )
        if not isinstance(proposals, list) or not all(isinstance(each, dict) for each in proposals):
            return _rest_li_error(400, "Parameter 'proposal' or 'proposals' is required")
        if content.get("async") not in (None, "true", "false", "UNSET"):
            return _rest_li_error(400, f"Parameter 'async' is invalid: {content['async']!r}")
        try:
            self._ingest(proposals)
        except _RefusedError as refused:
            return _rest_li_error(422, f"Failed to validate MCP: {refused}")
        except _StumbledError as stumbled:
            return _rest_li_error(500, str(stumbled))
        return Answer(200, {"value": "success"}, _REST_LI_HEADERS)

    def _ingest(self, proposals: Iterable[Proposal]) -> None:
        """Keep all of a batch, or nothing.

        :raises _RefusedError: where one of them is not valid.
        :raises _StumbledError: where one of them is to be stumbled over.
        """
        kept: list[Proposal] = []
        dropped: list[tuple[Proposal, list[str]]] = []
        for proposal in proposals:
            if proposal.get("entityUrn") in self._stumbling_blocks:
                raise _StumbledError(f"Failed to deserialize DataMap of {proposal['entityUrn']}")
            reasons = violations(proposal)
            if any(is_rejected(proposal) for is_rejected in self._rejections):
                reasons.append(f"{proposal.get('entityUrn')} was rejected")
            if not reasons:
                kept.append(proposal)
            elif reasons == dropping_violations(proposal):
                dropped.append((proposal, reasons))
            else:
                raise _RefusedError(reasons)
        with self._lock:
            self.stored += kept
            self.dropped += dropped

    def _held(self, urn: str, aspect_name: str) -> dict[str, Any] | None:
        """Return the latest version of an aspect, after the patches of edges; ``None`` if there is
        none.
        """
        with self._lock:
            found = [
                each
                for each in self.stored
                if (each["entityUrn"], each["aspectName"]) == (urn, aspect_name)
            ]
        if aspect_name == "dataJobInputOutput" and found:
            return stored_edges(found)[urn].aspect()
        upserts = [each for each in found if each["changeType"] == "UPSERT"]
        values: list[dict[str, Any]] = [json.loads(each["aspect"]["value"]) for each in upserts]
        if values and "timestampMillis" in values[0]:  # a time series
            return max(values, key=lambda value: value["timestampMillis"])
        return values[-1] if values else None

    def _batch(self, content: Any) -> Iterable[dict[str, Any]]:
        for wanted in content:
            urn = wanted["urn"]
            held = {name: self._held(urn, name) for name in wanted if name != "urn"}
            aspects = {name: {"value": value} for name, value in held.items() if value is not None}
            if aspects:
                yield {"urn": urn, **aspects}

    def _graphql(self, content: Any) -> Answer:
        """Answer ``scrollAcrossEntities``, and ``scrollAcrossLineage`` with the neighbours of a
        job.
        """
        if "scrollAcrossEntities(" in content.get("query", ""):
            return self._search(content["variables"])
        wanted = content.get("variables", {}).get("input", {})
        if "scrollAcrossLineage(input: $input)" not in content.get("query", ""):
            return Answer(
                200, {"errors": [{"message": "the stand-in knows scrollAcrossLineage alone"}]}
            )
        edges = self._held(wanted["urn"], "dataJobInputOutput") or {}
        side = "inputDatasetEdges" if wanted["direction"] == "UPSTREAM" else "outputDatasetEdges"
        found = [
            {"degree": 1, "entity": {"urn": edge["destinationUrn"], "type": "DATASET"}, "paths": []}
            for edge in edges.get(side, ())
        ]
        return Answer(
            200, {"data": {"scrollAcrossLineage": {"nextScrollId": None, "searchResults": found}}}
        )

    def _search(self, variables: Any) -> Answer:
        kinds = {"DATASET": "dataset", "DATA_PROCESS_INSTANCE": "dataProcessInstance"}
        wanted = {kinds[kind] for kind in variables["types"]}
        with self._lock:
            urns = [
                *dict.fromkeys(
                    each["entityUrn"] for each in self.stored if each["entityType"] in wanted
                )
            ]
        urns = [urn for urn in urns if self._is_found(urn, variables["orFilters"])]
        begin = int(variables["scrollId"] or 0)
        end = begin + variables["batchSize"]
        found = [{"entity": {"urn": urn}, "extraProperties": []} for urn in urns[begin:end]]
        page = {"nextScrollId": str(end) if end < len(urns) else None, "searchResults": found}
        return Answer(200, {"data": {"scrollAcrossEntities": page}})

    def _is_found(self, urn: str, filters: Any) -> bool:
        """Return whether a filter finds an entity by the fields that GMS indexes as keywords."""
        kind = "dataProcessInstance"
        aspects = {part: self._held(urn, f"{kind}{part}") or {} for part in _RUN_ASPECTS}
        fields = {
            "urn": [urn],
            "removed": [str((self._held(urn, "status") or {}).get("removed", False)).lower()],
            "inputs": aspects["Input"].get("inputs", []),
            "outputs": aspects["Output"].get("outputs", []),
            "parentInstance": [aspects["Relationships"].get("parentInstance")],
            "customProperties": [
                f"{key}={text}"
                for key, text in aspects["Properties"].get("customProperties", {}).items()
            ],
        }

        def matches(rule: Any) -> bool:
            found, values = fields[rule["field"]], rule["values"]
            if rule.get("condition") == "CONTAIN":
                return any(value in text for value in values for text in found)
            return bool({*found} & {*values}) != bool(rule.get("negated"))

        return any(all(map(matches, each["and"])) for each in filters)

    def _read(self, request: Request) -> Answer:
        url = urllib.parse.urlsplit(request.path)
        match url.path:
            case "/config":
                return Answer(200, _CONFIG)
            case "/health":
                return Answer(200)
            case "/aspects/urn%3Ali%3AdataPlatform%3Aspark":
                return Answer(
                    200,
                    {"aspect": {"com.linkedin.dataplatform.DataPlatformInfo": {"name": "spark"}}},
                )
        if url.path.startswith("/aspects/"):
            name = dict(urllib.parse.parse_qsl(url.query)).get("aspect", "")
            held = self._held(urllib.parse.unquote(url.path.removeprefix("/aspects/")), name)
            if held is not None:
                kind = ASPECT_NAME_MAP[name].RECORD_SCHEMA.fullname.replace(".pegasus2avro", "")
                return Answer(200, {"version": 0, "aspect": {kind: held}}, _REST_LI_HEADERS)
            return _rest_li_error(404, "not found")
        return _not_found(request)


def _not_found(request: Request) -> Answer:
    return Answer(404, {"error": f"No endpoint {request.method} {request.path}."})


def _rest_li_error(status: int, message: str) -> Answer:
    name = "com.linkedin.restli.server.RestLiServiceException"
    body = {
        "exceptionClass": name,
        "message": message,
        "status": status,
        "stackTrace": f"{name}: {message}",
    }
    return Answer(status, body, {**_REST_LI_HEADERS, "X-RestLi-Error-Response": "true"})
