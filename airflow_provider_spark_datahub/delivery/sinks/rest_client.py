"""HTTP client of one delivery to DataHub's GMS: each request in one attempt, with classified
failures.

Only GMS's own answer acknowledges a write: 200 with ``{"value": "success"}`` (1.x), or with the URN
of an entity as the value (0.8, 0.13). Its headers are not required: a proxy may drop
``X-RestLi-Protocol-Version``.

Requests to the Rest.li endpoint ``/aspects?action=ingestProposalBatch`` are made here, with the
headers and bodies of acryl-datahub's emitter (``tests/delivery/test_rest_client.py`` compares
them). The emitter would cost a task more than all its other lineage steps: its import loads 60,000
lines of generated classes, a new emitter starts ``ps`` several times to find its caller, and it
validates every proposal against an Avro schema.

An answer is read within the deadline and a size. This module imports requests; import it only to
send something.
"""

from __future__ import annotations

import email.utils
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import requests
import urllib3
from datahub._version import __package_name__, __version__

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind
from airflow_provider_spark_datahub.delivery.sinks.settings import RestSettings
from airflow_provider_spark_datahub.foundation.memory import batches_of
from airflow_provider_spark_datahub.foundation.text import encoded_json

log = logging.getLogger(__name__)

_PIECE = 16 * 1024
_LARGEST_ANSWER = 64 * 1024  # bytes of an answer that are read
_LARGEST_BODY = 15 * 1024 * 1024  # acryl-datahub's own limit, below GMS's of 16 MiB
_SEPARATOR = b","
_EXCERPT = 80  # bytes of a strange answer that are repeated
_CALLER = "airflow-provider-spark-datahub"
_LONGEST_CALLER = 64
_NO_RUN = "no-run-id-provided"
_NOT_GMS = "this is not a DataHub GMS: give GMS's own URL as the connection's host"


def _batch_bodies(
    proposals: Sequence[Proposal],
    *,
    is_async: bool,
    system_metadata: dict[str, Any],
    largest: int = _LARGEST_BODY,
) -> Iterator[bytes]:
    """Yield the bodies of the requests for proposals, in their order; usually one.

    :param largest: bytes of a body, exceeded only by a single larger proposal.
    """
    opening = b'{"async":"true","proposals":[' if is_async else b'{"async":"false","proposals":['
    texts = (
        encoded_json(
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
    for batch in batches_of(
        texts, lambda text: len(text) + between, largest - len(opening) + between
    ):
        yield opening + _SEPARATOR.join(batch) + b"]}"


class GmsClient:
    """Client that sends each request to GMS in one attempt, none after the deadline.

    Redirects and web pages are failures: a redirected POST becomes a GET, and a login page
    acknowledges nothing.
    """

    def __init__(self, settings: RestSettings, deadline: Deadline) -> None:
        self._settings = settings
        self._deadline = deadline
        self._session = _new_session()
        self._is_gms = False

    def post(self, proposals: Sequence[Proposal]) -> bool | Failure:
        """Send the proposals at once, in one request unless they are too large for it.

        After a failure, some of them may be stored nevertheless.
        """
        is_async = self._settings.emit_mode.startswith("ASYNC")
        for body in _batch_bodies(proposals, is_async=is_async, system_metadata=_system_metadata()):
            answer = self._request("POST", "/aspects?action=ingestProposalBatch", body)
            failure = (
                answer
                if isinstance(answer, Failure)
                else answer.failure(is_expected=answer.acknowledges)
            )
            if failure is not None:
                return self._checked(failure).for_log(self._settings.redact)
            self._is_gms = True
        return not is_async

    def _checked(self, failure: Failure) -> Failure:
        """Return a failure of a write; any server may reject a request, so that GMS's ``/config``
        is asked for once.
        """
        if self._is_gms or failure.kind is not FailureKind.REJECTED:
            return failure
        config = self.config()
        if isinstance(config, Failure):
            kind = config.kind if config.kind.may_pass else FailureKind.MISCONFIGURED
            return Failure(kind, f"{failure.text}; {config.text}")
        self._is_gms = True
        return failure

    def config(self) -> dict[str, Any] | Failure:
        """Return GMS's configuration, or why there is none."""
        config = self.get("/config")
        if isinstance(config, Failure) or (
            isinstance(config, dict) and config.get("noCode") == "true"
        ):
            return config
        return Failure(FailureKind.MISCONFIGURED, f"its /config is not that of GMS: {_NOT_GMS}")

    def get(self, path: str, *, may_miss: bool = False) -> Any | Failure:
        """Return the JSON that GMS answers to a GET, or why there is none; ``None`` for a 404 if it
        ``may_miss``.
        """
        answer = self._request("GET", path)
        if isinstance(answer, Failure):
            return answer.for_log(self._settings.redact)
        if may_miss and answer.status == 404:
            return None
        failure = answer.failure(is_expected=answer.json is not None)
        return answer.json if failure is None else failure.for_log(self._settings.redact)

    def _request(self, method: str, path: str, body: bytes | None = None) -> _Answer | Failure:
        """Send a request once, and return the answer, or why there is none."""
        settings, session = self._settings, self._session
        verify = False if settings.disable_ssl_verification else settings.ca_certificate_path
        certificate: Any = settings.client_certificate_path
        if certificate and settings.client_key_path:
            certificate = (certificate, settings.client_key_path)
        started = time.monotonic()
        try:
            if self._deadline.expired:
                raise requests.Timeout("no time is left for the request")
            url = f"{settings.server}{path}"
            request = session.prepare_request(requests.Request(method, url, data=body))
            request.headers.update(settings.headers())  # after those of a .netrc
            options = session.merge_environment_settings(url, {}, True, verify, certificate)
            timeout = min(settings.timeout_sec, self._deadline.remaining())
            # Session.send() would read the whole answer of a redirect.
            answer = self._read(session.get_adapter(url).send(request, timeout=timeout, **options))
        except OSError as error:
            return _failure_of(error)
        log.debug(
            "%s %s: %d bytes sent; HTTP %d, %d bytes in %.3f s",
            method,
            path,
            len(body or b""),
            answer.status,
            len(answer.content),
            time.monotonic() - started,
        )
        return answer

    def _read(self, response: requests.Response) -> _Answer:
        # Each byte as it comes. Versions of urllib3 before 2.2 wait for a whole piece.
        read = getattr(response.raw, "read1", response.raw.read)
        content = bytearray()
        ended = False
        try:
            while not ended and len(content) <= _LARGEST_ANSWER:
                if self._deadline.expired:
                    raise requests.Timeout(
                        "no time is left for the rest of the answer", response=response
                    )
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
        return _Answer(response, bytes(content[:_LARGEST_ANSWER]), ended)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


def _new_session() -> requests.Session:
    """Return a session as acryl-datahub's emitter makes one, with the ``DATAHUB_*`` variables of
    the environment.
    """
    session = requests.Session()
    component = os.environ.get("DATAHUB_COMPONENT", "datahub").lower()
    caller = (
        re.sub(r"[^\w./-]", "", os.environ.get("DATAHUB_CALLER", ""))[:_LONGEST_CALLER] or _CALLER
    )
    library = session.headers["User-Agent"]
    session.headers.update(
        {
            "Accept-Encoding": "identity",  # a few compressed bytes may become gigabytes
            "Content-Type": "application/json",
            "User-Agent": f"DataHub-Client/1.0 (sdk; {component}/{caller}; {__version__}) {library}",
            "X-DataHub-Client-Mode": "SDK",
            "X-DataHub-Py-Cli-Version": __version__,
            "X-RestLi-Protocol-Version": "2.0.0",
        }
    )
    client_id, secret = (
        os.environ.get(f"DATAHUB_SYSTEM_CLIENT_{part}") for part in ("ID", "SECRET")
    )
    if client_id is not None and secret is not None:
        session.headers["Authorization"] = f"Basic {client_id}:{secret}"
    certificate, key = (os.environ.get(f"DATAHUB_CLIENT_{part}_PATH") for part in ("CERT", "KEY"))
    if certificate:
        session.cert = (certificate, key) if key else certificate
    return session


def _system_metadata() -> dict[str, Any]:
    """Return the system metadata that acryl-datahub adds to an aspect: the time, and its own
    version.
    """
    return {
        "lastObserved": round(time.time() * 1000),
        "lastRunId": _NO_RUN,
        "runId": _NO_RUN,
        "properties": {"clientId": __package_name__, "clientVersion": __version__},
    }


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
    def json(self) -> Any:
        """The JSON in the body; ``None`` if it is something else, or nested too deep."""
        with suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return msgspec.json.decode(self.content)
        return None

    @property
    def acknowledges(self) -> bool:
        """Return whether it is GMS's acknowledgement of a write."""
        value = self.json.get("value") if isinstance(self.json, dict) else None
        return (
            self.status == 200
            and isinstance(value, str)
            and (value == "success" or value.startswith("urn:li:"))
        )

    def failure(self, *, is_expected: bool) -> Failure | None:
        """Return why this is not a success; ``None`` for one that ``is_expected`` of GMS."""
        status, is_page = (
            self.status,
            "text/html" in self.response.headers.get("Content-Type", "").lower(),
        )
        if status < 200:
            return Failure(FailureKind.MISCONFIGURED, f"HTTP {status} in place of a final answer")
        if status < 300:
            if self.whole and not is_page and is_expected:
                return None
            return Failure(
                FailureKind.MISCONFIGURED,
                f"HTTP {status} with {self._excerpt(is_page)}: {_NOT_GMS}",
            )
        if status < 400:
            target = self.response.headers.get("Location", "elsewhere")
            text = f"HTTP {status}, a redirect to {target}: connect to that address"
            return Failure(FailureKind.MISCONFIGURED, text)
        kind, text = (
            FailureKind.from_http_status(status),
            f"HTTP {status}: {self._explanation(is_page)}",
        )
        # GMS rejects in JSON. A web page comes from a proxy, which can only refuse a proposal for
        # its size (413).
        if is_page and kind is FailureKind.REJECTED and status != 413:
            kind = FailureKind.MISCONFIGURED
        elif is_page and kind is FailureKind.MISCONFIGURED:
            text = f"{text}: {_NOT_GMS}"
        return Failure(kind, text, _retry_after(self.response))

    def _excerpt(self, is_page: bool) -> str:
        if not self.whole:
            return f"more than {len(self.content)} bytes"
        if is_page:
            return "a web page"
        start = self.content[:_EXCERPT].decode(errors="replace").strip()
        return f"the text {start!r}" if start else "an empty answer"

    def _explanation(self, is_page: bool) -> str:
        """Return the server's explanation of a failure: the message of its JSON, else the text."""
        body, text = self.json, "" if is_page else self.content.decode(errors="replace")
        if isinstance(body, dict):
            text = str(body.get("message") or body.get("error") or text)
        return text.strip() or self.response.reason or "no explanation"


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
        case requests.exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return Failure(FailureKind.MISCONFIGURED, f"its TLS certificate is not trusted: {text}")
        case requests.exceptions.InvalidURL() | requests.exceptions.InvalidSchema():
            return Failure(FailureKind.MISCONFIGURED, str(error))
        case requests.ConnectionError() if isinstance(
            _reason(error), urllib3.exceptions.NewConnectionError
        ):
            return Failure(FailureKind.UNREACHABLE, text)
        case requests.Timeout():
            return Failure(FailureKind.UNAVAILABLE, f"no answer in time: {text}")
        case requests.RequestException():
            return Failure(FailureKind.UNAVAILABLE, text)
        case OSError() if not isinstance(error, ConnectionError | TimeoutError):
            return Failure(
                FailureKind.MISCONFIGURED, str(error)
            )  # a certificate file that is missing or unreadable
    return Failure(FailureKind.UNAVAILABLE, str(error))


def _reason(error: BaseException) -> BaseException:
    """Return the innermost error, without the layers around it."""
    while True:
        inner = getattr(error, "reason", None) or getattr(
            error, "original_error", None
        )  # the latter of a proxy
        if not isinstance(inner, BaseException):
            inner = error.args[0] if error.args else None
        if not isinstance(inner, BaseException):
            return error
        error = inner
