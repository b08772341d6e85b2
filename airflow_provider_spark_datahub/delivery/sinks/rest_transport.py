"""Bodies of GMS's Rest.li endpoint ``/aspects?action=ingestProposalBatch``, each written once.

acryl-datahub's emitter validates every proposal against an Avro schema and writes it twice, to learn its size: most of
what a delivery cost. The bodies are the same, which the tests compare.

One HTTP exchange with DataHub's GMS: acryl-datahub's emitter as transport, and what its failures mean.

Imports requests at once; import this module where something is about to be sent.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import msgspec
import requests
from requests.adapters import HTTPAdapter

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind, kind_of_status, one_line
from airflow_provider_spark_datahub.delivery.sinks.mcp import to_mcp
from airflow_provider_spark_datahub.delivery.sinks.rest import RestSettings

LARGEST_BODY = 15 * 1024 * 1024
"""Bytes of one request: acryl-datahub's own limit, below GMS's of 16 MiB."""
_SEPARATOR = b","


def batch_bodies(
    proposals: Sequence[Proposal], *, is_async: bool, system_metadata: dict[str, Any], largest: int = LARGEST_BODY
) -> Iterator[bytes]:
    """The bodies in which the proposals go, in their order; one, unless they are too large.

    :param system_metadata: of each proposal, as JSON.
    :param largest: bytes of a body that none exceeds, but for one of a single larger proposal.
    """
    opening = b'{"async":"true","proposals":[' if is_async else b'{"async":"false","proposals":['
    batch: list[bytes] = []
    size = len(opening)
    for proposal in proposals:
        text = _encoded(_wire_form(proposal, system_metadata))
        if batch and size + len(text) > largest:
            yield opening + _SEPARATOR.join(batch) + b"]}"
            batch, size = [], len(opening)
        batch.append(text)
        size += len(text) + len(_SEPARATOR)
    if batch:
        yield opening + _SEPARATOR.join(batch) + b"]}"


def _wire_form(proposal: Proposal, system_metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "entityType": proposal.entity_type,
        "entityUrn": proposal.entity_urn,
        "changeType": proposal.change_type,
        "aspectName": proposal.aspect_name,
        "aspect": {"value": proposal.value, "contentType": proposal.content_type},
        "systemMetadata": system_metadata,
    }


def _encoded(obj: object) -> bytes:
    try:
        return msgspec.json.encode(obj)
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot write.
        return json.dumps(obj).encode()


class RefusedAnswer(requests.RequestException):
    """An answer that does not acknowledge the request."""

    def __init__(self, failure: Failure, response: requests.Response) -> None:
        super().__init__(failure.words, response=response)
        self.failure = failure


class GmsClient:
    """Posts batches to GMS, each in one attempt, none after the deadline.

    It keeps its credentials from acryl-datahub, whose ``repr`` shows a part of the token and whose debug log prints
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

        :returns: True where they are stored, False where they are only accepted, else why they are neither. After a
            failure some may be stored all the same.
        """
        from datahub.configuration.common import ConfigurationError, OperationalError

        self._adapter.traced = False
        try:
            if self._settings.openapi_ingestion:
                self._post_openapi(proposals)
            else:
                self._post_rest_li(proposals)
        except (OperationalError, ConfigurationError, OSError) as error:
            failure = _failure_of(error)
            return Failure(failure.kind, one_line(self._settings.redact(failure.words)), failure.retry_after)
        is_async = self._settings.emit_mode.startswith("ASYNC")
        return not is_async or self._adapter.traced

    def get(self, path: str, *, may_miss: bool = False) -> Any | Failure:
        """The JSON that GMS answers to a GET, or why there is none.

        :param may_miss: where GMS says that nothing is there (404), the answer is None and no failure.
        """
        try:
            return self._emitter._session.get(f"{self._settings.server}{path}").json()
        except RefusedAnswer as error:
            if may_miss and error.response is not None and error.response.status_code == 404:
                return None
            failure = error.failure
        except requests.exceptions.JSONDecodeError:
            failure = Failure(FailureKind.MISCONFIGURED, "its answer is no JSON: this is not the address of GMS")
        except OSError as error:
            failure = _failure_of(error)
        return Failure(failure.kind, one_line(self._settings.redact(failure.words)))

    def _post_rest_li(self, proposals: Sequence[Proposal]) -> None:
        is_async = self._settings.emit_mode.startswith("ASYNC")
        for body in batch_bodies(proposals, is_async=is_async, system_metadata=_system_metadata()):
            self._emitter._session.post(f"{self._settings.server}/aspects?action=ingestProposalBatch", data=body)

    def _post_openapi(self, proposals: Sequence[Proposal]) -> None:
        wait = timedelta(seconds=self._deadline.remaining())
        self._emitter.emit_mcps([to_mcp(one) for one in proposals], emit_mode=self._mode, wait_timeout=wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._emitter.close()


def _system_metadata() -> dict[str, Any]:
    """What acryl-datahub says of a proposal beside its aspect: when, and by which version."""
    from datahub import _version
    from datahub.metadata.schema_classes import SystemMetadataClass

    client = {"clientId": _version.__package_name__, "clientVersion": _version.__version__}
    metadata = SystemMetadataClass(lastObserved=round(time.time() * 1000), properties=client)
    as_json: dict[str, Any] = metadata.to_obj()
    return as_json


class _GmsAdapter(HTTPAdapter):
    """Sends a request once, within the deadline, with the credentials, and refuses answers that are not GMS's yes.

    Redirects are refused: requests would repeat a POST as GET, and take a login page for a yes.

    :ivar traced: whether GMS was asked what became of an asynchronous write. The emitter does so in the mode
        ASYNC_WAIT where GMS can tell, and else returns in the same way without having waited.
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
        timeout: object = None,  # noqa: ARG002 (the deadline's and the settings' instead)
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
        failure = _refusal(response)
        if failure is not None:
            raise RefusedAnswer(failure, response)
        if settings.emit_mode != "ASYNC_WAIT":
            # With it the emitter would read the body of its every answer, and stumble over one that it does not expect.
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
    kind = kind_of_status(status)
    # GMS rejects in JSON. Pages come from what stands before it, and say nothing of a proposal but its size (413).
    if kind is FailureKind.REJECTED and _is_page(response) and status != 413:
        kind = FailureKind.MISCONFIGURED
    return Failure(kind, f"HTTP {status}: {_server_words(response)}", _retry_after(response))


def _is_page(response: requests.Response) -> bool:
    return "text/html" in response.headers.get("Content-Type", "").lower()


def _server_words(response: requests.Response) -> str:
    """What the server says about a failure: the message of its JSON, else the text."""
    text = "" if _is_page(response) else response.text
    try:
        info = json.loads(text)
    except ValueError:
        info = None
    if isinstance(info, dict):
        text = str(info.get("message") or info.get("error") or text)
    return text.strip() or response.reason or "no explanation"


def _retry_after(response: requests.Response) -> float | None:
    """The header ``Retry-After`` in seconds: it holds seconds or a date (RFC 9110, 10.2.3)."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _failure_of(error: BaseException) -> Failure:
    """What an exception of the emitter means. The emitter hides the real one in ``__cause__``."""
    from datahub.configuration.common import ConfigurationError, TraceTimeoutError, TraceValidationError

    cause = error.__cause__ or error
    match cause:
        case RefusedAnswer():
            return cause.failure
        case TraceValidationError():
            return Failure(FailureKind.REJECTED, str(cause))
        case TraceTimeoutError():
            return Failure(FailureKind.UNAVAILABLE, str(cause))
        case requests.exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(cause):
            return Failure(FailureKind.MISCONFIGURED, f"its TLS certificate is not trusted: {_network_words(cause)}")
        case requests.exceptions.InvalidURL() | requests.exceptions.InvalidSchema() | ConfigurationError():
            return Failure(FailureKind.MISCONFIGURED, str(cause))
        case requests.Timeout():
            return Failure(FailureKind.UNAVAILABLE, f"no answer in time: {_network_words(cause)}")
        case requests.RequestException() | ConnectionError() | TimeoutError():
            return Failure(FailureKind.UNAVAILABLE, _network_words(cause))
        case OSError():  # a certificate's file that is missing or cannot be read
            return Failure(FailureKind.MISCONFIGURED, str(cause))
    return Failure(FailureKind.UNAVAILABLE, str(cause))


def _network_words(error: BaseException) -> str:
    """The innermost reason, without the names of the layers around it."""
    *_, innermost = _reasons(error)
    return str(innermost).split("): ", 1)[-1]


def _reasons(error: BaseException) -> Iterator[BaseException]:
    while True:
        yield error
        inner = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = error.args[0] if error.args else None
        if not isinstance(inner, BaseException):
            return
        error = inner
