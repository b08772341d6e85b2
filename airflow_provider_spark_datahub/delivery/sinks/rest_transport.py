"""HTTP client of one delivery to DataHub's GMS: acryl-datahub's emitter in one attempt, with classified failures.

Bodies of the Rest.li endpoint ``/aspects?action=ingestProposalBatch`` are written here, byte for byte as the emitter
writes them. The emitter validates every proposal against an Avro schema and writes it twice to learn its size, which
was most of the cost of a delivery.

It imports requests; import this module only when something is about to be sent.
"""

from __future__ import annotations

import email.utils
import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import requests
from requests.adapters import HTTPAdapter

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind
from airflow_provider_spark_datahub.delivery.sink import to_mcp
from airflow_provider_spark_datahub.delivery.sinks.rest import RestSettings

log = logging.getLogger(__name__)

_LARGEST_BODY = 15 * 1024 * 1024  # acryl-datahub's own limit, below GMS's of 16 MiB
_SEPARATOR = b","


def _batch_bodies(
    proposals: Sequence[Proposal], *, is_async: bool, system_metadata: dict[str, Any], largest: int = _LARGEST_BODY
) -> Iterator[bytes]:
    """Yield the bodies of the requests for proposals, in their order; usually one.

    :param largest: bytes of a body, exceeded only by a single larger proposal.
    """
    opening = b'{"async":"true","proposals":[' if is_async else b'{"async":"false","proposals":['
    batch: list[bytes] = []
    size = len(opening)
    for proposal in proposals:
        text = _encoded(
            {
                "entityType": proposal.entity_type,
                "entityUrn": proposal.entity_urn,
                "changeType": proposal.change_type,
                "aspectName": proposal.aspect_name,
                "aspect": {"value": proposal.value, "contentType": proposal.content_type},
                "systemMetadata": system_metadata,
            }
        )
        if batch and size + len(text) > largest:
            yield opening + _SEPARATOR.join(batch) + b"]}"
            batch, size = [], len(opening)
        batch.append(text)
        size += len(text) + len(_SEPARATOR)
    if batch:
        yield opening + _SEPARATOR.join(batch) + b"]}"


def _encoded(obj: object) -> bytes:
    try:
        return msgspec.json.encode(obj)
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot write.
        return json.dumps(obj).encode()


class _ErrorResponse(requests.RequestException):
    """Response that does not acknowledge the request."""

    def __init__(self, failure: Failure, response: requests.Response) -> None:
        super().__init__(failure.text, response=response)
        self.failure = failure


class GmsClient:
    """Client that posts batches to GMS, each in one attempt, none after the deadline.

    It hides the credentials from acryl-datahub, whose ``repr`` shows a part of the token and whose debug log prints
    requests as curl commands with all headers but ``Authorization``: :class:`_GmsAdapter` adds them on the wire.
    """

    def __init__(self, settings: RestSettings, deadline: Deadline) -> None:
        from datahub.emitter.rest_emitter import DataHubRestEmitter, EmitMode

        self._settings = settings
        self._deadline = deadline
        self._mode = EmitMode[settings.emit_mode]
        self._emitter = DataHubRestEmitter(
            settings.server,
            timeout_sec=settings.timeout_sec,
            retry_max_times=0,
            openapi_ingestion=settings.openapi_ingestion,
        )
        self._adapter = _GmsAdapter(settings, deadline)
        # The public property `session` exists only in newer versions.
        for prefix in ("http://", "https://"):
            self._emitter._session.mount(prefix, self._adapter)

    def post(self, proposals: Sequence[Proposal]) -> bool | Failure:
        """Send the proposals at once, in one request unless their size demands more.

        :returns: True if they are stored, False if they are only accepted, else why they are neither. Some may be
            stored even after a failure.
        """
        from datahub.configuration.common import ConfigurationError, OperationalError

        self._adapter.traced = False
        try:
            if self._settings.openapi_ingestion:
                self._post_openapi(proposals)
            else:
                self._post_rest_li(proposals)
        except (OperationalError, ConfigurationError, OSError) as error:
            return _failure_of(error).for_log(self._settings.redact)
        is_async = self._settings.emit_mode.startswith("ASYNC")
        return not is_async or self._adapter.traced

    def get(self, path: str, *, may_miss: bool = False) -> Any | Failure:
        """Return the JSON that GMS answers to a GET, or why there is none.

        :param may_miss: a 404 is not a failure; the answer is ``None``.
        """
        try:
            return self._emitter._session.get(f"{self._settings.server}{path}").json()
        except _ErrorResponse as error:
            if may_miss and error.response is not None and error.response.status_code == 404:
                return None
            failure = error.failure
        except requests.exceptions.JSONDecodeError:
            failure = Failure(FailureKind.MISCONFIGURED, "its answer is not JSON: this is not the address of GMS")
        except OSError as error:
            failure = _failure_of(error)
        return failure.for_log(self._settings.redact)

    def _post_rest_li(self, proposals: Sequence[Proposal]) -> None:
        is_async = self._settings.emit_mode.startswith("ASYNC")
        for body in _batch_bodies(proposals, is_async=is_async, system_metadata=_system_metadata()):
            log.debug("POST %d bytes to %s (Rest.li)", len(body), self._settings.server)
            self._emitter._session.post(f"{self._settings.server}/aspects?action=ingestProposalBatch", data=body)

    def _post_openapi(self, proposals: Sequence[Proposal]) -> None:
        wait = timedelta(seconds=self._deadline.remaining())
        log.debug("POST %d proposals to %s (OpenAPI, %s)", len(proposals), self._settings.server, self._mode.name)
        mcps = [to_mcp(proposal) for proposal in proposals]
        self._emitter.emit_mcps(mcps, emit_mode=self._mode, wait_timeout=wait)

    def close(self) -> None:
        """Close the connections."""
        self._emitter.close()


def _system_metadata() -> dict[str, Any]:
    """Return what acryl-datahub adds to an aspect: the time, and its own version."""
    from datahub import _version
    from datahub.metadata.schema_classes import SystemMetadataClass

    client = {"clientId": _version.__package_name__, "clientVersion": _version.__version__}
    metadata = SystemMetadataClass(lastObserved=round(time.time() * 1000), properties=client)
    as_json: dict[str, Any] = metadata.to_obj()
    return as_json


class _GmsAdapter(HTTPAdapter):
    """Adapter that sends a request once, within the deadline and with the credentials, and raises on any other answer
    than GMS's yes.

    Redirects are errors: requests would repeat a POST as GET, and take a login page for a yes.

    :ivar traced: whether GMS was asked for the outcome of an asynchronous write. In the mode ASYNC_WAIT the emitter
        asks if GMS supports it, else it returns without having waited.
    """

    def __init__(self, settings: RestSettings, deadline: Deadline) -> None:
        super().__init__(max_retries=0)
        self._settings = settings
        self._deadline = deadline
        self.traced = False

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: object = None,  # noqa: ARG002 (the deadline and the settings decide)
        verify: bool | str = True,
        cert: str | tuple[str, str] | None = None,
        proxies: dict[str, str] | None = None,
    ) -> requests.Response:
        settings = self._settings
        if self._deadline.expired:
            raise requests.Timeout("no time is left for the request", request=request)
        request.headers.update(settings.headers())
        self.traced = self.traced or "/openapi/v1/trace/write/" in (request.url or "")
        # Here and not on the session, where REQUESTS_CA_BUNDLE would override both.
        if settings.disable_ssl_verification:
            verify = False
        elif settings.ca_certificate_path:
            verify = settings.ca_certificate_path
        if settings.client_certificate_path:
            key = settings.client_key_path
            cert = (settings.client_certificate_path, key) if key else settings.client_certificate_path
        seconds = min(settings.timeout_sec, self._deadline.remaining())
        response = super().send(request, stream, timeout=seconds, verify=verify, cert=cert, proxies=proxies)
        seconds = response.elapsed.total_seconds()
        log.debug("%s %s: HTTP %d in %.3f s", request.method, request.path_url, response.status_code, seconds)
        failure = _refusal(response)
        if failure is not None:
            raise _ErrorResponse(failure, response)
        if settings.emit_mode != "ASYNC_WAIT":
            # With it the emitter would parse the body of every answer, and fail on one that it does not expect.
            response.headers.pop("traceparent", None)
        return response


def _refusal(response: requests.Response) -> Failure | None:
    status = response.status_code
    if 200 <= status < 300:
        if _is_page(response):
            return Failure(FailureKind.MISCONFIGURED, f"HTTP {status} with a web page: this is not the address of GMS")
        return None
    if 300 <= status < 400:
        target = response.headers.get("Location", "elsewhere")
        return Failure(FailureKind.MISCONFIGURED, f"HTTP {status}, a redirect to {target}: connect to that address")
    kind = FailureKind.from_http_status(status)
    # GMS rejects in JSON. Pages come from proxies before it, and are not about a proposal, except for its size (413).
    if kind is FailureKind.REJECTED and _is_page(response) and status != 413:
        kind = FailureKind.MISCONFIGURED
    return Failure(kind, f"HTTP {status}: {_server_message(response)}", _retry_after(response))


def _is_page(response: requests.Response) -> bool:
    return "text/html" in response.headers.get("Content-Type", "").lower()


def _server_message(response: requests.Response) -> str:
    """Return the server's explanation of a failure: the message of its JSON, else the text."""
    text = "" if _is_page(response) else response.text
    with suppress(ValueError):
        info = json.loads(text)
        if isinstance(info, dict):
            text = str(info.get("message") or info.get("error") or text)
    return text.strip() or response.reason or "no explanation"


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
    """Classify an exception of the emitter, which hides the real one in ``__cause__``."""
    from datahub.configuration.common import ConfigurationError, TraceTimeoutError, TraceValidationError

    cause = error.__cause__ or error
    match cause:
        case _ErrorResponse():
            return cause.failure
        case TraceValidationError():
            return Failure(FailureKind.REJECTED, str(cause))
        case TraceTimeoutError():
            return Failure(FailureKind.UNAVAILABLE, str(cause))
        case requests.exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(cause):
            return Failure(FailureKind.MISCONFIGURED, f"its TLS certificate is not trusted: {_network_message(cause)}")
        case requests.exceptions.InvalidURL() | requests.exceptions.InvalidSchema() | ConfigurationError():
            return Failure(FailureKind.MISCONFIGURED, str(cause))
        case requests.Timeout():
            return Failure(FailureKind.UNAVAILABLE, f"no answer in time: {_network_message(cause)}")
        case requests.RequestException() | ConnectionError() | TimeoutError():
            return Failure(FailureKind.UNAVAILABLE, _network_message(cause))
        case OSError():  # a certificate file that is missing or unreadable
            return Failure(FailureKind.MISCONFIGURED, str(cause))
    return Failure(FailureKind.UNAVAILABLE, str(cause))


def _network_message(error: BaseException) -> str:
    """Return the innermost reason, without the names of the layers around it."""
    while True:
        inner = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = error.args[0] if error.args else None
        if not isinstance(inner, BaseException):
            return str(error).split("): ", 1)[-1]
        error = inner
