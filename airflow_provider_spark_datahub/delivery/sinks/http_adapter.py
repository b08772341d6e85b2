"""HTTP adapter of the sinks: one attempt per request, and answers that are read within a deadline and a size.

It imports requests; import this module only when something is about to be sent.
"""

from __future__ import annotations

import email.utils
import io
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind

log = logging.getLogger(__name__)

_PIECE = 16 * 1024
_CUT = "The deadline passed before the headers of an answer were complete"


class AnswerError(requests.RequestException):
    """Answer that does not acknowledge the request."""

    def __init__(self, failure: Failure, response: requests.Response) -> None:
        super().__init__(failure.text, response=response)
        self.failure = failure


class Answer(msgspec.Struct, frozen=True):
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


class _FinalAnswer(HTTPResponse):
    """Answer without the interim ones before it (1xx; RFC 9110, 15.2). http.client skips only 100."""

    def begin(self) -> None:
        """Read status lines and headers up to those of the final answer."""
        super().begin()
        while 100 <= self.status < 200 and self.status != HTTPStatus.SWITCHING_PROTOCOLS:
            # Else http.client takes the answer for begun.
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()


class _Connection(HTTPConnection):
    """Connection that is closed at the deadline, if the status and the headers of an answer have not come by then.

    A timeout of the socket bounds the wait for the next byte only, also of a proxy's answer to CONNECT.
    """

    response_class = _FinalAnswer

    def __init__(self, *args: Any, deadline: Deadline, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline = deadline

    def _tunnel(self) -> None:
        """Wait for the answer of a proxy until the deadline: http.client takes the end of the stream for its end.

        :raises TimeoutError: if the deadline passes.
        """
        with _cut(self, self._deadline):
            super()._tunnel()
        if self._deadline.expired:
            raise TimeoutError(_CUT)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3 does
        """Wait for an answer until the deadline.

        :raises TimeoutError: if the deadline passes.
        """
        with _cut(self, self._deadline):
            try:
                return super().getresponse()
            except (HTTPException, OSError) as error:
                if self._deadline.expired:
                    # The beginning of an answer that was cut off looks like that of a broken server.
                    raise TimeoutError(_CUT) from error
                raise


class _TlsConnection(_Connection, HTTPSConnection):
    """The same with TLS."""


@contextmanager
def _cut(connection: HTTPConnection, deadline: Deadline) -> Iterator[None]:
    def close() -> None:
        log.debug("%s: the connection is closed", _CUT)
        with suppress(OSError):
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)  # a thread that waits for bytes wakes up

    timer = threading.Timer(min(deadline.remaining(), threading.TIMEOUT_MAX), close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class BoundedAdapter(HTTPAdapter):
    """Adapter that sends a request once, and reads the answer until the deadline and up to a size.

    Redirects and web pages are errors: requests would repeat a POST as GET and take a login page for a yes.
    """

    LARGEST_ANSWER = 64 * 1024
    """Bytes of an answer that are read."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(max_retries=0)
        self._deadline = deadline

    def send(self, request: requests.PreparedRequest, *_: object, **options: Any) -> requests.Response:
        """Send a request, and return its answer with the body read.

        :raises AnswerError: if the answer does not acknowledge the request.
        :raises requests.RequestException: if there is no answer, or the deadline passes.
        """
        if self._deadline.expired:
            raise requests.Timeout("no time is left for the request", request=request)
        request.headers["Accept-Encoding"] = "identity"  # a few compressed bytes may become gigabytes
        started = time.monotonic()
        response = super().send(request, **{**options, "stream": True})
        answer = self._read(response, self.largest_answer(request))
        log.debug(
            "%s %s: HTTP %d, %d bytes in %.3f s",
            *(request.method, request.path_url, answer.status, len(answer.content), time.monotonic() - started),
        )
        failure = self.failure(request, answer)
        if failure is not None:
            raise AnswerError(failure, response)
        return response

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> HTTPConnectionPool:
        """Return the pool for a request, whose connections end with the deadline."""
        pool = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = _TlsConnection if isinstance(pool, HTTPSConnectionPool) else _Connection
        pool.conn_kw["deadline"] = self._deadline
        return pool

    def largest_answer(self, request: requests.PreparedRequest) -> int:  # noqa: ARG002 (for subclasses)
        """Return the number of bytes to read of the answer to a request."""
        return self.LARGEST_ANSWER

    def failure(self, request: requests.PreparedRequest, answer: Answer) -> Failure | None:  # noqa: ARG002
        """Return why an answer is not from the intended server; ``None`` if it may be."""
        if answer.status < 200:
            text = f"HTTP {answer.status}, an interim answer, and no final one: this is another server"
            return Failure(FailureKind.MISCONFIGURED, text)
        if 300 <= answer.status < 400:
            target = answer.response.headers.get("Location", "elsewhere")
            text = f"HTTP {answer.status}, a redirect to {target}: connect to that address"
            return Failure(FailureKind.MISCONFIGURED, text)
        if answer.is_page and answer.status < 300:
            return Failure(FailureKind.MISCONFIGURED, f"HTTP {answer.status} with a web page: this is another server")
        return refusal(answer) if answer.status >= 400 else None

    def _read(self, response: requests.Response, largest: int) -> Answer:
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
            if ended and response.status_code >= 200:
                response.raw.release_conn()
            else:
                response.raw.close()
        body = bytes(content[:largest])
        response.raw = io.BytesIO(body)  # for whoever reads the response later
        return Answer(response, body, ended)


def refusal(answer: Answer) -> Failure:
    """Return the failure that an answer with an HTTP status from 400 stands for."""
    text = f"HTTP {answer.status}: {_explanation(answer)}"
    return Failure(FailureKind.from_http_status(answer.status), text, _retry_after(answer.response))


def _explanation(answer: Answer) -> str:
    """Return the server's explanation of a failure: the message of its JSON, else the text."""
    text = "" if answer.is_page else answer.content.decode(errors="replace")
    body = decoded(answer.content)
    if isinstance(body, dict):
        text = str(body.get("message") or body.get("error") or text)
    return text.strip() or answer.response.reason or "no explanation"


def decoded(content: bytes) -> Any:
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


def failure_of(error: BaseException) -> Failure:
    """Return the failure that an exception of a request stands for."""
    text = _innermost(error)
    if isinstance(error, requests.exceptions.ProxyError):
        text = f"the proxy of the environment (HTTP_PROXY, HTTPS_PROXY) refused: {text}"
    match error:
        case AnswerError():
            return error.failure
        case requests.HTTPError(response=requests.Response() as response):
            return refusal(Answer(response, response.content, whole=True))
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


def _innermost(error: BaseException) -> str:
    """Return the innermost reason, without the names of the layers around it."""
    return str(_reason(error)).split("): ", 1)[-1]
