"""HTTP client of one delivery to DataHub's GMS: each request in one attempt, with classified failures.

Only an answer that GMS gives acknowledges a request. Read from the sources of GMS and Rest.li:

====================================  =====================  ========================================================
endpoint                              GMS                    answer
====================================  =====================  ========================================================
``/aspects?action=ingestProposal…``   0.8, 0.13              200, ``{"value": URN}``
(Rest.li, all emit modes)             1.x                    200, ``{"value": "success"}``
``POST /openapi/v3/entity/{type}``    synchronous            200, a list of entities, each with its ``urn``
                                      ``async=true``         202, the same list
``PATCH`` of the same                 synchronous            200, the same list
                                      ``async=true``         202, no body
====================================  =====================  ========================================================

The headers of these answers are not required: a proxy may drop ``X-RestLi-Protocol-Version``. An answer that names no
entity (an empty list or body) counts if ``/config`` answers as GMS does.

Requests to the Rest.li endpoint ``/aspects?action=ingestProposalBatch`` are made here, with the headers and bodies of
acryl-datahub's emitter (``tests/delivery/test_rest_client.py`` compares them). The emitter would cost a task more than
all its other lineage steps: its import loads 60,000 lines of generated classes, a new emitter starts ``ps`` several
times to find its caller, and it validates every proposal against an Avro schema. It is only used for the OpenAPI
endpoints.

Each request is one attempt, and its answer is read within the deadline and a size. This module imports requests; import
it only when something is about to be sent.
"""

from __future__ import annotations

import email.utils
import io
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import requests
import urllib3
from datahub._version import __package_name__, __version__
from requests.adapters import HTTPAdapter

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind, LibraryError, call_library
from airflow_provider_spark_datahub.delivery.sink import to_mcp
from airflow_provider_spark_datahub.delivery.sinks.settings import RestSettings
from airflow_provider_spark_datahub.foundation.batches import batches_of
from airflow_provider_spark_datahub.foundation.text import counted

if TYPE_CHECKING:
    from datahub.emitter.rest_emitter import DataHubRestEmitter

log = logging.getLogger(__name__)

_PIECE = 16 * 1024
_LARGEST_ANSWER = 64 * 1024  # bytes of an answer that are read
_LARGEST_BODY = 15 * 1024 * 1024  # acryl-datahub's own limit, below GMS's of 16 MiB
_SEPARATOR = b","
_EXCERPT = 80  # bytes of a strange answer that are repeated
_ENTITIES = "/openapi/v3/entity/"
_TRACES = "/openapi/v1/trace/write/"
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_CALLER = "airflow-provider-spark-datahub"
_LONGEST_CALLER = 64
_NO_RUN = "no-run-id-provided"
_NOT_GMS = "this is not a DataHub GMS: give GMS's own URL as the connection's host"


def _batch_bodies(
    proposals: Sequence[Proposal], *, is_async: bool, system_metadata: dict[str, Any], largest: int = _LARGEST_BODY
) -> Iterator[bytes]:
    """Yield the bodies of the requests for proposals, in their order; usually one.

    :param largest: bytes of a body, exceeded only by a single larger proposal.
    """
    opening = b'{"async":"true","proposals":[' if is_async else b'{"async":"false","proposals":['
    texts = (
        _encoded(
            {
                "entityType": proposal.entity_type,
                "entityUrn": proposal.entity_urn,
                "changeType": proposal.change_type,
                "aspectName": proposal.aspect_name,
                "aspect": {"value": proposal.value, "contentType": proposal.content_type},
                "systemMetadata": system_metadata,
            }
        )
        for proposal in proposals
    )
    between = len(_SEPARATOR)
    for batch in batches_of(texts, lambda text: len(text) + between, largest - len(opening) + between):
        yield opening + _SEPARATOR.join(batch) + b"]}"


def _encoded(obj: object) -> bytes:
    try:
        return msgspec.json.encode(obj)
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot write.
        return json.dumps(obj).encode()


class GmsClient:
    """Client that posts batches to GMS, each in one attempt, none after the deadline.

    It hides the credentials from acryl-datahub, which may log them: :class:`_GmsAdapter` adds them on the wire.
    """

    def __init__(self, settings: RestSettings, deadline: Deadline) -> None:
        self._settings = settings
        self._deadline = deadline
        self._adapter = _GmsAdapter(settings, deadline)
        self._session = _new_session()
        for prefix in ("http://", "https://"):
            self._session.mount(prefix, self._adapter)
        self._emitter: DataHubRestEmitter | None = None
        self._is_gms = False

    def post(self, proposals: Sequence[Proposal]) -> bool | Failure:
        """Send the proposals at once, in one request unless they are too large for it.

        After a failure, some of them may be stored nevertheless.
        """
        adapter = self._adapter
        adapter.traced = adapter.acknowledged_without_urn = False
        failure = self._post_openapi(proposals) if self._settings.openapi_ingestion else self._post_rest_li(proposals)
        # Any server may refuse a request, or acknowledge one with an empty answer.
        is_of_any_server = adapter.acknowledged_without_urn if failure is None else failure.kind is FailureKind.REJECTED
        if is_of_any_server and not self._is_gms and isinstance(config := self.config(), Failure):
            return self._not_gms(failure, config)
        self._is_gms = self._is_gms or failure is None or is_of_any_server
        if failure is not None:
            return failure.for_log(self._settings.redact)
        return adapter.traced or not self._settings.emit_mode.startswith("ASYNC")

    def _not_gms(self, failure: Failure | None, config: Failure) -> Failure:
        """Return why a server is not GMS; ``failure`` is its answer to a request that it refused."""
        if failure is None:
            return config
        kind = config.kind if config.kind.may_pass else FailureKind.MISCONFIGURED
        return Failure(kind, f"{failure.text}; {config.text}").for_log(self._settings.redact)

    def config(self) -> dict[str, Any] | Failure:
        """Return GMS's configuration, or why there is none."""
        config = self.get("/config")
        if isinstance(config, Failure) or (isinstance(config, dict) and config.get("noCode") == "true"):
            return config
        return Failure(FailureKind.MISCONFIGURED, f"its /config is not that of GMS: {_NOT_GMS}")

    def get(self, path: str, *, may_miss: bool = False) -> Any | Failure:
        """Return the JSON that GMS answers to a GET, or why there is none; ``None`` for a 404 if it ``may_miss``."""
        try:
            content = self._session.get(f"{self._settings.server}{path}").content
        except _AnswerError as error:
            if may_miss and error.response is not None and error.response.status_code == 404:
                return None
            failure = error.failure
        except OSError as error:
            failure = _failure_of(error)
        else:
            answer = _decoded(content)
            if answer is not None:
                return answer
            failure = Failure(FailureKind.MISCONFIGURED, f"its answer is not JSON: {_NOT_GMS}")
        return failure.for_log(self._settings.redact)

    def _post_rest_li(self, proposals: Sequence[Proposal]) -> Failure | None:
        is_async = self._settings.emit_mode.startswith("ASYNC")
        try:
            for body in _batch_bodies(proposals, is_async=is_async, system_metadata=_system_metadata()):
                log.debug("POST %d bytes to %s (Rest.li)", len(body), self._settings.server)
                self._session.post(f"{self._settings.server}/aspects?action=ingestProposalBatch", data=body)
        except OSError as error:
            return _failure_of(error)
        return None

    def _post_openapi(self, proposals: Sequence[Proposal]) -> Failure | None:
        from datahub.configuration.common import ConfigurationError, OperationalError
        from datahub.emitter.rest_emitter import DataHubRestEmitter, EmitMode

        settings = self._settings
        if self._emitter is None:
            self._emitter = DataHubRestEmitter(settings.server, retry_max_times=0, openapi_ingestion=True)
            # The public property `session` exists only in newer versions, and cannot be set.
            self._emitter._session = self._session
        emitter, errors = self._emitter, (OperationalError, ConfigurationError, OSError)
        wait = timedelta(seconds=self._deadline.remaining())
        log.debug(
            "POST %s to %s (OpenAPI, %s)", counted(len(proposals), "proposal"), settings.server, settings.emit_mode
        )
        mcps = [to_mcp(proposal) for proposal in proposals]
        mode = EmitMode[settings.emit_mode]
        try:
            # The emitter also fails on answers that it does not expect.
            call_library(lambda: emitter.emit_mcps(mcps, emit_mode=mode, wait_timeout=wait), *errors)
        except errors as error:
            return _failure_of_emitter(error)
        except LibraryError as error:
            return Failure(FailureKind.UNAVAILABLE, f"acryl-datahub cannot read its answer: {error}")
        return None

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


def _new_session() -> requests.Session:
    """Return a session as acryl-datahub's emitter makes one, with the ``DATAHUB_*`` variables of the environment."""
    session = requests.Session()
    component = os.environ.get("DATAHUB_COMPONENT", "datahub").lower()
    caller = re.sub(r"[^\w./-]", "", os.environ.get("DATAHUB_CALLER", ""))[:_LONGEST_CALLER] or _CALLER
    library = session.headers["User-Agent"]
    session.headers.update(
        {
            "Content-Type": "application/json",
            "User-Agent": f"DataHub-Client/1.0 (sdk; {component}/{caller}; {__version__}) {library}",
            "X-DataHub-Client-Mode": "SDK",
            "X-DataHub-Py-Cli-Version": __version__,
            "X-RestLi-Protocol-Version": "2.0.0",
        }
    )
    client_id, secret = (os.environ.get(f"DATAHUB_SYSTEM_CLIENT_{part}") for part in ("ID", "SECRET"))
    if client_id is not None and secret is not None:
        session.headers["Authorization"] = f"Basic {client_id}:{secret}"
    certificate, key = (os.environ.get(f"DATAHUB_CLIENT_{part}_PATH") for part in ("CERT", "KEY"))
    if certificate:
        session.cert = (certificate, key) if key else certificate
    return session


def _system_metadata() -> dict[str, Any]:
    """Return the system metadata that acryl-datahub adds to an aspect: the time, and its own version."""
    return {
        "lastObserved": round(time.time() * 1000),
        "lastRunId": _NO_RUN,
        "runId": _NO_RUN,
        "properties": {"clientId": __package_name__, "clientVersion": __version__},
    }


class _GmsAdapter(HTTPAdapter):
    """Adapter that sends a request once, with the credentials, and accepts only GMS's own answers as acknowledgements.

    Redirects and web pages are errors: requests would repeat a POST as GET and take a login page for a yes.

    :ivar traced: whether GMS was asked for the outcome of an asynchronous write, which it may not support.
    :ivar acknowledged_without_urn: whether an answer acknowledged a write without naming an entity, as any server may.
    """

    def __init__(self, settings: RestSettings, deadline: Deadline) -> None:
        super().__init__(max_retries=0)
        self._settings = settings
        self._deadline = deadline
        self.traced = False
        self.acknowledged_without_urn = False

    def send(self, request: requests.PreparedRequest, *_: object, **options: Any) -> requests.Response:
        """Send a request, and return its answer with the body read.

        :raises _AnswerError: if the answer does not acknowledge the request.
        :raises requests.RequestException: if there is no answer, or the deadline passes.
        """
        if self._deadline.expired:
            raise requests.Timeout("no time is left for the request", request=request)
        request.headers.update(self._settings.headers())
        request.headers["Accept-Encoding"] = "identity"  # a few compressed bytes may become gigabytes
        self.traced = self.traced or _TRACES in (request.url or "")
        started = time.monotonic()
        response = super().send(request, **{**options, **self._options(), "stream": True})
        answer = self._read(response, _largest_answer(request))
        log.debug(
            "%s %s: HTTP %d, %d bytes in %.3f s",
            *(request.method, request.path_url, answer.status, len(answer.content), time.monotonic() - started),
        )
        failure = self._failure(request, answer)
        if failure is not None:
            raise _AnswerError(failure, response)
        is_traced = _TRACE_PARENT.fullmatch(response.headers.get("traceparent", ""))
        if self._settings.emit_mode != "ASYNC_WAIT" or not is_traced:
            # Without this header, the emitter does not parse the body, and cannot fail on an unexpected one.
            response.headers.pop("traceparent", None)
        return response

    def _options(self) -> dict[str, Any]:
        """Return the options of a request: on the session, REQUESTS_CA_BUNDLE would override those of TLS."""
        settings = self._settings
        options: dict[str, Any] = {"timeout": min(settings.timeout_sec, self._deadline.remaining())}
        if settings.disable_ssl_verification:
            options["verify"] = False
        elif settings.ca_certificate_path:
            options["verify"] = settings.ca_certificate_path
        if settings.client_certificate_path:
            key = settings.client_key_path
            options["cert"] = (settings.client_certificate_path, key) if key else settings.client_certificate_path
        return options

    def _read(self, response: requests.Response, largest: int) -> _Answer:
        # Each byte as it comes. Versions of urllib3 before 2.2 wait for a whole piece.
        read = getattr(response.raw, "read1", response.raw.read)
        content = bytearray()
        ended = False
        try:
            while not ended and len(content) <= largest:
                if self._deadline.expired:
                    raise requests.Timeout("no time is left for the rest of the answer", response=response)
                piece = read(_PIECE)
                content += piece
                ended = not piece
        except urllib3.exceptions.ReadTimeoutError as error:
            raise requests.ReadTimeout(error, response=response) from error
        except urllib3.exceptions.HTTPError as error:
            raise requests.ConnectionError(error, response=response) from error
        finally:
            if ended and response.status_code >= 200:  # else another answer may follow
                response.raw.release_conn()
            else:
                response.raw.close()
        body = bytes(content[:largest])
        response.raw = io.BytesIO(body)  # for whoever reads the response later
        return _Answer(response, body, ended)

    def _failure(self, request: requests.PreparedRequest, answer: _Answer) -> Failure | None:
        """Return why an answer is not GMS's acknowledgement; ``None`` if it is."""
        status = answer.status
        if status < 200:
            return Failure(FailureKind.MISCONFIGURED, f"HTTP {status} in place of a final answer")
        if status < 300:
            is_yes = answer.whole and not answer.is_page
            if is_yes and (request.method == "GET" or self._acknowledges(request, answer)):
                return None
            return Failure(FailureKind.MISCONFIGURED, f"HTTP {status} with {_excerpt(answer)}: {_NOT_GMS}")
        if status < 400:
            target = answer.response.headers.get("Location", "elsewhere")
            text = f"HTTP {status}, a redirect to {target}: connect to that address"
            return Failure(FailureKind.MISCONFIGURED, text)
        failure = _refusal(answer)
        # GMS rejects in JSON. A web page comes from a proxy, which can only refuse a proposal for its size (413).
        if failure.kind is FailureKind.REJECTED and answer.is_page and status != 413:
            return replace(failure, kind=FailureKind.MISCONFIGURED)
        is_elsewhere = failure.kind is FailureKind.MISCONFIGURED and answer.is_page
        return replace(failure, text=f"{failure.text}: {_NOT_GMS}") if is_elsewhere else failure

    def _acknowledges(self, request: requests.PreparedRequest, answer: _Answer) -> bool:
        """Return whether a write was acknowledged; the module's docstring lists the answers of GMS."""
        url, body = request.url or "", _decoded(answer.content)
        if _ENTITIES in url:
            entities = [] if answer.status == 202 and not answer.content else body
            self.acknowledged_without_urn = self.acknowledged_without_urn or entities == []
            return answer.status in (200, 202) and isinstance(entities, list) and all(map(_has_urn, entities))
        if answer.status != 200 or not isinstance(body, dict):
            return False
        return _TRACES in url or body.get("value") == "success" or _is_urn(body.get("value"))


def _largest_answer(request: requests.PreparedRequest) -> int:
    """Return the number of bytes to read of an answer: more from OpenAPI endpoints, which repeat the proposals."""
    repeated = 2 * int(request.headers.get("Content-Length") or 0) if _ENTITIES in (request.url or "") else 0
    return _LARGEST_ANSWER + repeated


class _AnswerError(requests.RequestException):
    """Answer that does not acknowledge the request."""

    def __init__(self, failure: Failure, response: requests.Response) -> None:
        super().__init__(failure.text, response=response)
        self.failure = failure


class _Answer(msgspec.Struct, frozen=True):
    """Answer to a request, with the bytes of its body.

    :param whole: whether the body was read to its end.
    """

    response: requests.Response
    content: bytes
    whole: bool

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status_code

    @property
    def is_page(self) -> bool:
        """Return whether it is a web page, e.g. the login page of a proxy."""
        return "text/html" in self.response.headers.get("Content-Type", "").lower()


def _excerpt(answer: _Answer) -> str:
    if not answer.whole:
        return f"more than {len(answer.content)} bytes"
    if answer.is_page:
        return "a web page"
    start = answer.content[:_EXCERPT].decode(errors="replace").strip()
    return f"the text {start!r}" if start else "an empty answer"


def _has_urn(entity: object) -> bool:
    return isinstance(entity, dict) and _is_urn(entity.get("urn"))


def _is_urn(value: object) -> bool:
    return isinstance(value, str) and value.startswith("urn:li:")


def _failure_of_emitter(error: BaseException) -> Failure:
    """Classify an exception of acryl-datahub's emitter, which hides the original one in ``__cause__``."""
    from datahub.configuration.common import ConfigurationError, TraceTimeoutError, TraceValidationError

    cause = error.__cause__ or error
    match cause:
        case TraceValidationError():
            return Failure(FailureKind.REJECTED, str(cause))
        case TraceTimeoutError():
            return Failure(FailureKind.UNAVAILABLE, str(cause))
        case ConfigurationError():
            return Failure(FailureKind.MISCONFIGURED, str(cause))
    return _failure_of(cause)


def _refusal(answer: _Answer) -> Failure:
    """Return the failure that an answer with an HTTP status from 400 stands for."""
    text = f"HTTP {answer.status}: {_explanation(answer)}"
    return Failure(FailureKind.from_http_status(answer.status), text, _retry_after(answer.response))


def _explanation(answer: _Answer) -> str:
    """Return the server's explanation of a failure: the message of its JSON, else the text."""
    text = "" if answer.is_page else answer.content.decode(errors="replace")
    body = _decoded(answer.content)
    if isinstance(body, dict):
        text = str(body.get("message") or body.get("error") or text)
    return text.strip() or answer.response.reason or "no explanation"


def _decoded(content: bytes) -> Any:
    """Return the JSON in a body; ``None`` if it is something else, or nested too deep."""
    with suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return msgspec.json.decode(content)
    return None


def _retry_after(response: requests.Response) -> float | None:
    """Return the header ``Retry-After`` in seconds; it holds seconds or a date (RFC 9110, 10.2.3)."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _failure_of(error: BaseException) -> Failure:
    """Return the failure that an exception of a request stands for."""
    text = str(_reason(error)).split("): ", 1)[-1]  # without the names of the layers around it
    if isinstance(error, requests.exceptions.ProxyError):
        text = f"the proxy of the environment (HTTP_PROXY, HTTPS_PROXY) refused: {text}"
    match error:
        case _AnswerError():
            return error.failure
        case requests.exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return Failure(FailureKind.MISCONFIGURED, f"its TLS certificate is not trusted: {text}")
        case requests.exceptions.InvalidURL() | requests.exceptions.InvalidSchema():
            return Failure(FailureKind.MISCONFIGURED, str(error))
        case requests.ConnectionError() if isinstance(_reason(error), urllib3.exceptions.NewConnectionError):
            return Failure(FailureKind.UNREACHABLE, text)
        case requests.Timeout():
            return Failure(FailureKind.UNAVAILABLE, f"no answer in time: {text}")
        case requests.RequestException():
            return Failure(FailureKind.UNAVAILABLE, text)
        case OSError() if not isinstance(error, ConnectionError | TimeoutError):
            return Failure(FailureKind.MISCONFIGURED, str(error))  # a certificate file that is missing or unreadable
    return Failure(FailureKind.UNAVAILABLE, str(error))


def _reason(error: BaseException) -> BaseException:
    """Return the innermost error, without the layers around it."""
    while True:
        inner = getattr(error, "reason", None) or getattr(error, "original_error", None)  # the latter of a proxy
        if not isinstance(inner, BaseException):
            inner = error.args[0] if error.args else None
        if not isinstance(inner, BaseException):
            return error
        error = inner
