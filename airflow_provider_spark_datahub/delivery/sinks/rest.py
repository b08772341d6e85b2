"""The settings of the REST sink, read from a ``datahub-rest`` connection.

The REST sink: proposals to DataHub's metadata service (GMS), in batches.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args
from urllib.parse import SplitResult, urlsplit

from airflow_provider_spark_datahub.delivery.connection import (
    ConnectionParts,
    Reader,
    count,
    ill_typed,
    masked,
    read_extra,
    seconds,
    text,
    truth,
)
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import (
    FAILED_ATTEMPTS,
    Backoff,
    Failure,
    FailureKind,
    Suspects,
    one_line,
)
from airflow_provider_spark_datahub.delivery.sink import (
    DeliveryRecord,
    Finding,
    Numbered,
    Sink,
    SinkSettingsError,
    Verdict,
)

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.rest_transport import GmsClient

EmitModeName = Literal["SYNC_PRIMARY", "SYNC_WAIT", "ASYNC", "ASYNC_WAIT"]


@dataclass(frozen=True, slots=True)
class RestSettings:
    """How to reach DataHub's metadata service (GMS). Its ``repr`` holds no secret.

    :param server: GMS's URL, e.g. ``http://gms:8080`` or ``https://acme.example/api/gms``.
    :param token: the access token; None where the service wants none.
    :param timeout_sec: seconds one request may wait for its connection, and for the next bytes of its answer.
    :param extra_headers: HTTP headers of every request. They may hold credentials and are never logged.
    :param ca_certificate_path: a PEM file or folder of authorities to trust instead of the usual ones.
    :param client_certificate_path: a PEM file for mutual TLS.
    :param client_key_path: its key, where that is in a file of its own.
    :param disable_ssl_verification: trust any certificate.
    :param retry_max_times: how often one request is repeated at most; None where only the time limits it (the
        time does so in any case).
    :param emit_mode: DataHub's emit mode. The ASYNC ones answer before anything is stored; SYNC_WAIT and
        ASYNC_WAIT differ from their shorter forms only with ``openapi_ingestion``.
    :param openapi_ingestion: use GMS's OpenAPI end points instead of the Rest.li ones.
    """

    server: str
    token: str | None = field(default=None, repr=False)
    timeout_sec: float = 10.0
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_certificate_path: str | None = None
    client_certificate_path: str | None = None
    client_key_path: str | None = None
    disable_ssl_verification: bool = False
    retry_max_times: int | None = None
    emit_mode: EmitModeName = "SYNC_PRIMARY"
    openapi_ingestion: bool = False

    def __post_init__(self) -> None:
        if self.emit_mode == "ASYNC_WAIT" and not self.openapi_ingestion:
            raise SinkSettingsError(
                "emit_mode ASYNC_WAIT needs openapi_ingestion: true (GMS tells what became of a write only there)."
            )
        if self.client_key_path and not self.client_certificate_path:
            raise SinkSettingsError("client_key_path needs client_certificate_path: a key without its certificate.")

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> RestSettings:
        """The settings that an Airflow connection holds, as DataHub's own hook reads it.

        :param connection: ``host`` is GMS's URL (``http://gms:8080``) or its host name; ``port`` its port, where the
            host does not name it; ``schema`` is ``http`` (default) or ``https``, and used only where the host is no
            URL; ``password`` is the access token; ``extra`` has the names of this class's other fields. Values from a
            connection URI are text, so the text of a number or of a truth value will do; empty ones count as not given.
        :raises SinkSettingsError: where a part is missing, unknown or of the wrong type. Never holds a value that
            may be secret.
        """
        settings = read_extra(connection.extra, _EXTRA)
        server = _server(connection.host, connection.port, connection.schema)
        return cls(server=server, token=_token(connection.password), **settings)

    def headers(self) -> dict[str, str]:
        """The HTTP headers that may hold a secret."""
        authorisation = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**authorisation, **self.extra_headers}

    def redact(self, words: str) -> str:
        """``words`` without the token and the values of the extra headers, should a server repeat them."""
        return masked(words, [self.token or "", *self.extra_headers.values()])


def _headers(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ill_typed(key, "an object of header names and texts", value)
    headers = {}
    for name, content in value.items():
        if not (isinstance(name, str) and isinstance(content, str)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} must be text.")
        if not (_printable(name) and _printable(content)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} holds characters that HTTP does not allow.")
        headers[name] = content
    return headers


def _emit_mode(key: str, value: object) -> EmitModeName:
    modes = get_args(EmitModeName)
    mode = value.strip().upper() if isinstance(value, str) else value
    if mode not in modes:
        near = difflib.get_close_matches(str(mode), modes, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SinkSettingsError(f"{key!r} in the connection's extra must be one of {', '.join(modes)}.{hint}")
    return cast(EmitModeName, mode)


_EXTRA: dict[str, Reader] = {
    "timeout_sec": seconds,
    "extra_headers": _headers,
    "ca_certificate_path": text,
    "client_certificate_path": text,
    "client_key_path": text,
    "disable_ssl_verification": truth,
    "retry_max_times": count,
    "emit_mode": _emit_mode,
    "openapi_ingestion": truth,
}


def _printable(content: str) -> bool:
    return content.isascii() and content.isprintable()


def _token(password: str | None) -> str | None:
    token = (password or "").strip()  # a token that was pasted often brings its line's end
    if not _printable(token) or " " in token:
        raise SinkSettingsError("The connection's password (the access token) holds spaces or other such characters.")
    return token or None


def _server(host: str | None, port: int | None, schema: str | None) -> str:
    address = (host or "").strip()
    if not address:
        raise SinkSettingsError("The connection has no host: give the URL of DataHub's GMS, e.g. http://gms:8080.")
    url = _split(address if "://" in address else f"{schema or 'http'}://{address}")
    if url.scheme not in ("http", "https"):
        raise SinkSettingsError(f"The connection's schema must be http or https, not {url.scheme!r}.")
    if not url.hostname:
        raise SinkSettingsError("The connection's host names no machine: give a URL such as http://gms:8080.")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise SinkSettingsError(
            "The connection's host must be a plain URL: the access token belongs in the password, "
            "and a URL of GMS has no query."
        )
    in_host = url.port
    if in_host and port and in_host != port:
        raise SinkSettingsError(f"The connection's host names port {in_host}, its port field {port}: leave one out.")
    netloc = f"{url.netloc.rstrip(':')}:{port}" if port and not in_host else url.netloc
    return f"{url.scheme}://{netloc}{url.path.rstrip('/')}"


def _split(address: str) -> SplitResult:
    try:
        url = urlsplit(address)
        _ = url.port  # only reading it validates it
    except ValueError as error:
        raise SinkSettingsError("The connection's host is no URL: give one such as http://gms:8080.") from error
    return url


LARGEST_BATCH = 200
"""Proposals per request: acryl-datahub's own limit, so that one call of its emitter is one request."""

_REMEDY = "set a valid access token as its password"
_ADDRESS = "give GMS's own URL as the connection's host: http://gms:8080, or https://datahub.example/api/gms"


class RestSink(Sink):
    """Delivers to GMS with acryl-datahub's REST emitter.

    GMS takes a batch as a whole or not at all. One that it rejects is halved until the culprit stands alone; so is one
    that it fails on (HTTP 500, which is also its answer to an aspect that it cannot read), and there the culprit is
    rejected where GMS takes other proposals before and after it. Failures that may pass (no connection, no answer,
    408, 429, 502, 503, 504) are repeated until the deadline; the emitter's own repetitions, which know no deadline,
    are switched off.

    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "rest"

    def __init__(self, settings: RestSettings, *, backoff: Backoff | None = None) -> None:
        self._settings = settings
        self._backoff = backoff or Backoff()

    def describe(self) -> str:
        """``DataHub at URL``."""
        return f"DataHub at {self._settings.server}"

    def check(self, deadline: Deadline) -> list[Finding]:
        """Whether GMS answers, and takes the connection's credentials: its configuration is open to everyone, so an
        aspect is read as well."""
        from airflow_provider_spark_datahub.delivery.sinks.rest_transport import GmsClient

        with GmsClient(self._settings, deadline) as gms:
            config = gms.get("/config")
            if isinstance(config, Failure):
                return [Finding("DataHub", Verdict.BAD, f"{self.describe()} {config.verdict(_REMEDY)}", _ADDRESS)]
            if not isinstance(config, dict) or config.get("noCode") != "true":
                words = f"{self.describe()} answers, but is not DataHub's metadata service (GMS)"
                return [Finding("DataHub", Verdict.BAD, words, _ADDRESS)]
            found = [Finding("DataHub", Verdict.GOOD, f"{self.describe()} answers: {_version(config)}")]
            read = gms.get("/aspects/urn%3Ali%3AdataPlatform%3Aspark?aspect=dataPlatformInfo&version=0", may_miss=True)
        if isinstance(read, Failure):
            refused = read.kind is FailureKind.UNAUTHORISED
            verdict = Verdict.BAD if refused else Verdict.WARNING
            return [*found, Finding("credentials", verdict, f"{self.describe()} {read.verdict(_REMEDY)}")]
        return [*found, Finding("credentials", Verdict.GOOD, "DataHub lets us read")]

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send batch after batch. The connection is of this call alone, so a call left behind disturbs no other."""
        from airflow_provider_spark_datahub.delivery.sinks.rest_transport import GmsClient

        batches = deque(_batches(record.pending()))
        suspects = Suspects(record, "DataHub")
        with GmsClient(self._settings, deadline) as gms:
            while batches:
                batch = batches.popleft()
                answer, attempts = self._post(gms, record, batch, deadline)
                if isinstance(answer, bool):
                    record.confirm(batch, stored=answer)
                    suspects.convict(witness=batch[-1])
                elif answer.kind not in (FailureKind.REJECTED, FailureKind.FAILED) or self._is_over(deadline):
                    record.stop(self._problem(answer, attempts, deadline))
                    return
                elif len(batch) > 1:
                    middle = len(batch) // 2
                    batches.extendleft((batch[middle:], batch[:middle]))
                elif answer.kind is FailureKind.REJECTED:
                    record.reject(batch[0], answer.words)
                elif not suspects.add(batch[0], answer, lambda item: self._takes(gms, record, item, deadline)):
                    break
            if suspects.last is not None:
                record.stop(self._problem(suspects.last, FAILED_ATTEMPTS, deadline))

    def _is_over(self, deadline: Deadline) -> bool:
        """Whether too little time is left to find out which proposal is to blame."""
        return deadline.remaining() <= self._backoff.first

    def _takes(self, gms: GmsClient, record: DeliveryRecord, item: Numbered, deadline: Deadline) -> bool:
        """Whether GMS still takes what it took before."""
        answer, _ = self._post(gms, record, [item], deadline)
        return isinstance(answer, bool)

    def _post(
        self, gms: GmsClient, record: DeliveryRecord, batch: Sequence[Numbered], deadline: Deadline
    ) -> tuple[bool | Failure, int]:
        """The answer to one batch after as many attempts as it takes and the time allows, and their number."""
        most = self._settings.retry_max_times
        attempt, failed = 1, 0
        while True:
            answer = gms.post([proposal for _, proposal in batch])
            if isinstance(answer, bool) or not answer.kind.may_pass:
                return answer, attempt
            failed += answer.kind is FailureKind.FAILED
            wait = max(self._backoff.delay(attempt), answer.retry_after or 0.0)
            if wait >= deadline.remaining() or (most is not None and attempt > most):
                return answer, attempt
            if failed >= FAILED_ATTEMPTS:
                return answer, attempt
            record.attempt_failed(self._problem(answer, attempt, deadline))
            self._backoff.sleep(wait)
            attempt += 1

    def _problem(self, failure: Failure, attempts: int, deadline: Deadline) -> str:
        words = failure.words.rstrip(".")
        tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        if failure.kind is FailureKind.THROTTLED:
            asked = "" if failure.retry_after is None else f", wants a wait of {failure.retry_after:.0f} s"
            left = f"{deadline.remaining():.0f} s were left"
            return f"{self.describe()} takes no more for now ({words}{asked}, {left}, {tried})."
        if failure.kind in (FailureKind.FAILED, FailureKind.UNAVAILABLE):
            failure = replace(failure, words=f"{words}, {tried}")
        return f"{self.describe()} {failure.verdict(_REMEDY)}."


def _version(config: dict[str, Any]) -> str:
    """What GMS says of its version."""
    try:
        return f"version {one_line(str(config['versions']['acryldata/datahub']['version']))}"
    except (KeyError, TypeError):
        return "its version is not told"


def _batches(items: Sequence[Numbered]) -> list[Sequence[Numbered]]:
    return [items[start : start + LARGEST_BATCH] for start in range(0, len(items), LARGEST_BATCH)]
