"""REST sink: proposals to DataHub's metadata service (GMS) in batches, and its ``datahub-rest`` connection."""

from __future__ import annotations

import difflib
import logging
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args
from urllib.parse import quote, urlsplit

from airflow_provider_spark_datahub.conversion import Proposal, as_object
from airflow_provider_spark_datahub.delivery.connection import ConnectionParts, Read, Reader, mask_secrets
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff, Failure, FailureKind, PoisonFilter, shorten
from airflow_provider_spark_datahub.delivery.sink import (
    CheckResult,
    CheckStatus,
    DeliveryRecord,
    NumberedProposal,
    Sink,
    SinkSettingsError,
)
from airflow_provider_spark_datahub.printable import counted

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.rest_transport import GmsClient

log = logging.getLogger(__name__)

_GMS_PORT, _WEB_PORT = 8080, 9002
"""Of DataHub's containers."""
_EmitMode = Literal["SYNC_PRIMARY", "SYNC_WAIT", "ASYNC", "ASYNC_WAIT"]


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Settings to reach DataHub's metadata service (GMS). Their ``repr`` holds no secret.

    :param server: GMS's URL, e.g. ``http://gms:8080`` or ``https://acme.example/api/gms``.
    :param token: the access token; ``None`` if the service wants none.
    :param timeout_sec: seconds one request may wait for its connection, and for the next bytes of its answer.
    :param extra_headers: HTTP headers of every request. They may hold credentials and are never logged.
    :param ca_certificate_path: a PEM file or folder of authorities to trust instead of the usual ones.
    :param client_certificate_path: a PEM file for mutual TLS.
    :param client_key_path: its key, if that is in a file of its own.
    :param disable_ssl_verification: trust any certificate.
    :param retry_max_times: how often one request is repeated at most; ``None`` if only the deadline limits it.
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
    emit_mode: _EmitMode = "SYNC_PRIMARY"
    openapi_ingestion: bool = False

    def __post_init__(self) -> None:
        if self.emit_mode == "ASYNC_WAIT" and not self.openapi_ingestion:
            raise SinkSettingsError(
                "emit_mode ASYNC_WAIT needs openapi_ingestion: true (only there GMS reports the outcome of a write)."
            )
        if self.client_key_path and not self.client_certificate_path:
            raise SinkSettingsError("client_key_path needs client_certificate_path: a key without its certificate.")

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> RestSettings:
        """Read the settings from an Airflow connection, as DataHub's own hook does.

        :param connection: ``host`` is GMS's URL (``http://gms:8080``) or its host name; ``port`` its port, if the host
            does not name it; ``schema`` is ``http`` (default) or ``https``, and used only if the host is not a URL;
            ``password`` is the access token; ``extra`` has the names of this class's other fields.
        :raises SinkSettingsError: if a part is missing, unknown or of the wrong type. It never holds a secret.
        """
        settings = Read.extra(connection.extra, _EXTRA)
        server = _server(connection.host, connection.port, connection.schema)
        return cls(server=server, token=_token(connection.password), **settings)

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that may hold a secret."""
        authorisation = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**authorisation, **self.extra_headers}

    def redact(self, text: str) -> str:
        """Return ``text`` without the token, the values of the extra headers and the secret in the environment.

        A server may repeat them.
        """
        in_environment = os.environ.get("DATAHUB_SYSTEM_CLIENT_SECRET", "")
        return mask_secrets(text, [self.token or "", in_environment, *self.extra_headers.values()])


def _headers(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SinkSettingsError.wrong_type(key, "an object of header names and texts", value)
    headers = {}
    for name, content in value.items():
        if not (isinstance(name, str) and isinstance(content, str)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} must be text.")
        if not (_printable(name) and _printable(content)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} holds characters that HTTP does not allow.")
        headers[name] = content
    return headers


def _emit_mode(key: str, value: object) -> _EmitMode:
    modes = get_args(_EmitMode)
    mode = value.strip().upper() if isinstance(value, str) else value
    if mode not in modes:
        near = difflib.get_close_matches(str(mode), modes, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SinkSettingsError(f"{key!r} in the connection's extra must be one of {', '.join(modes)}.{hint}")
    return cast(_EmitMode, mode)


_EXTRA: dict[str, Reader] = {
    "timeout_sec": Read.seconds,
    "extra_headers": _headers,
    "ca_certificate_path": Read.text,
    "client_certificate_path": Read.text,
    "client_key_path": Read.text,
    "disable_ssl_verification": Read.boolean,
    "retry_max_times": Read.count,
    "emit_mode": _emit_mode,
    "openapi_ingestion": Read.boolean,
}


def _printable(content: str) -> bool:
    return content.isascii() and content.isprintable()


def _token(password: str | None) -> str | None:
    token = (password or "").strip()  # a pasted token often has a line break at its end
    if not _printable(token) or " " in token:
        raise SinkSettingsError("The connection's password (the access token) holds spaces or other such characters.")
    return token or None


def _server(host: str | None, port: int | None, schema: str | None) -> str:
    address = (host or "").strip()
    if not address:
        raise SinkSettingsError("The connection has no host: give the URL of DataHub's GMS, e.g. http://gms:8080.")
    try:
        url = urlsplit(address if "://" in address else f"{schema or 'http'}://{address}")
        in_host = url.port  # reading it validates it
    except ValueError as error:
        raise SinkSettingsError("The connection's host is not a URL: give one such as http://gms:8080.") from error
    if url.scheme not in ("http", "https"):
        raise SinkSettingsError(f"The connection's schema must be http or https, not {url.scheme!r}.")
    if not url.hostname:
        raise SinkSettingsError("The connection's host names no machine: give a URL such as http://gms:8080.")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise SinkSettingsError(
            "The connection's host must be a plain URL: the access token belongs in the password, "
            "and a URL of GMS has no query."
        )
    if in_host and port and in_host != port:
        raise SinkSettingsError(f"The connection's host names port {in_host}, its port field {port}: leave one out.")
    netloc = f"{url.netloc.rstrip(':')}:{port}" if port and not in_host else url.netloc
    return f"{url.scheme}://{netloc}{url.path.rstrip('/')}"


_LARGEST_BATCH = 200  # acryl-datahub's own limit, so that one call of its emitter is one request

_READ_AGAIN_SECONDS = 0.5
_REMEDY = "set a valid access token as its password"
_ADDRESS = (
    "if DataHub runs, give GMS's own URL as the connection's host: http://gms:8080, or "
    "https://datahub.example/api/gms. While it is down, tasks keep their lineage in the outbox"
)


class RestSink(Sink):
    """Sink that delivers to GMS, with the requests of acryl-datahub's REST emitter.

    GMS takes a batch as a whole or not at all. A batch that GMS rejects is halved until the bad proposal is alone. A
    batch that GMS fails on (HTTP 500, which is also its answer to an aspect that it cannot read) is halved as well; the
    proposal that is left is rejected if GMS takes other proposals before and after it. Failures that may pass (no
    connection, no answer, 408, 429, 502, 503, 504) are retried until the deadline.

    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "rest"

    def __init__(self, settings: RestSettings, *, backoff: Backoff | None = None) -> None:
        self._settings = settings
        self._backoff = backoff or Backoff()

    def describe(self) -> str:
        """Return ``DataHub at URL``."""
        return f"DataHub at {self._settings.server}"

    @property
    def web_address(self) -> str:
        """Address of DataHub's UI behind the same host: at port 9002 for 8080, or where GMS is below a path.

        A host that is named after GMS serves nothing else, so the UI is elsewhere.
        """
        parts = urlsplit(self._settings.server)
        host, below = parts.netloc, parts.path
        if parts.port == _GMS_PORT and not below and "gms" not in host:
            return f"{parts.scheme}://{host.rpartition(':')[0]}:{_WEB_PORT}"
        found = next((path for path in ("/api/gms", "/gms") if below.endswith(path)), "")
        return f"{parts.scheme}://{host}{below.removesuffix(found)}" if found else ""

    def check(self, deadline: Deadline) -> list[CheckResult]:
        """Check that GMS answers and takes the credentials, by reading an aspect, since ``/config`` needs none."""
        from airflow_provider_spark_datahub.delivery.sinks.rest_transport import GmsClient

        with closing(GmsClient(self._settings, deadline)) as gms:
            config = gms.config()
            if isinstance(config, Failure):
                text = f"{self.describe()} {config.predicate(_REMEDY)}"
                return [CheckResult("DataHub", CheckStatus.BAD, text, _ADDRESS)]
            answers = CheckResult("DataHub", CheckStatus.GOOD, f"{self.describe()} answers: {_version(config)}")
            read = gms.get("/aspects/urn%3Ali%3AdataPlatform%3Aspark?aspect=dataPlatformInfo&version=0", may_miss=True)
        if isinstance(read, Failure):
            status = CheckStatus.BAD if read.kind is FailureKind.UNAUTHORISED else CheckStatus.WARNING
            return [answers, CheckResult("credentials", status, f"{self.describe()} {read.predicate(_REMEDY)}")]
        return [answers, CheckResult("credentials", CheckStatus.GOOD, "DataHub lets us read")]

    def check_stored(self, proposal: Proposal, deadline: Deadline) -> CheckResult:
        """Check that GMS returns an aspect as the proposal wrote it; in the ASYNC modes, that it does so in time.

        GMS may add fields with defaults of its own.
        """
        from airflow_provider_spark_datahub.delivery.sinks.rest_transport import GmsClient

        what = f"{proposal.aspect_name} of {proposal.entity_urn}"
        path = f"/aspects/{quote(proposal.entity_urn, safe='')}?aspect={proposal.aspect_name}&version=0"
        with closing(GmsClient(self._settings, deadline)) as gms:
            while True:
                read = gms.get(path, may_miss=True)
                if isinstance(read, Failure):
                    text = f"{self.describe()} {read.predicate(_REMEDY)}"
                    return CheckResult("reading", CheckStatus.BAD, text)
                # Rest.li names the aspect by its class.
                held = next(iter(as_object(as_object(read).get("aspect")).values()), None)
                if isinstance(held, dict) and proposal.aspect.items() <= held.items():
                    return CheckResult("reading", CheckStatus.GOOD, f"DataHub returns {what} as it was written")
                if not self._settings.emit_mode.startswith("ASYNC") or deadline.remaining() <= _READ_AGAIN_SECONDS:
                    break
                time.sleep(_READ_AGAIN_SECONDS)
        found = "does not have it" if held is None else f"has another content: {shorten(str(held))}"
        advice = "is another GMS, or an outdated replica of its database, behind this address?"
        return CheckResult("reading", CheckStatus.BAD, f"DataHub acknowledged {what}, and {found}", advice)

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send batch after batch. The connection is used by this call only, so one left behind disturbs no other."""
        from airflow_provider_spark_datahub.delivery.sinks.rest_transport import GmsClient

        pending = record.pending(Proposal)
        batches = deque(pending[start : start + _LARGEST_BATCH] for start in range(0, len(pending), _LARGEST_BATCH))
        least = self._backoff.first  # seconds; with less time, the bad proposal of a batch cannot be found
        with closing(GmsClient(self._settings, deadline)) as gms:

            def resend(numbered: NumberedProposal) -> bool | Failure:
                return self._post(gms, record, [numbered], deadline)[0]

            poison = PoisonFilter[Proposal](record, "DataHub", resend)
            while batches:
                batch = batches.popleft()
                answer, attempts = self._post(gms, record, batch, deadline)
                if isinstance(answer, bool):
                    record.confirm(batch, stored=answer)
                    poison.judge(taken=batch[-1])
                elif answer.kind not in (FailureKind.REJECTED, FailureKind.FAILED) or deadline.remaining() <= least:
                    record.stop(self._problem(answer, attempts, deadline), answer.kind.outage_after)
                    return
                elif len(batch) > 1:
                    middle = len(batch) // 2
                    batches.extendleft((batch[middle:], batch[:middle]))
                elif answer.kind is FailureKind.REJECTED:
                    record.reject(batch[0], answer.text)
                elif not poison.add(batch[0], answer):
                    break
            if poison.last is not None:
                record.stop(self._problem(poison.last, PoisonFilter.ATTEMPTS, deadline))

    def _post(
        self, gms: GmsClient, record: DeliveryRecord, batch: Sequence[NumberedProposal], deadline: Deadline
    ) -> tuple[bool | Failure, int]:
        """Post one batch, in as many attempts as the time allows; return the last answer and their number."""
        proposals = [proposal for _, proposal in batch]
        posted = counted(len(batch), "proposal")
        answer, attempts = self._backoff.retry(
            f"post {posted}",
            lambda: gms.post(proposals),
            deadline,
            lambda failure, attempt: record.attempt_failed(self._problem(failure, attempt, deadline)),
            self._settings.retry_max_times,
            patient=record.patient,
        )
        if isinstance(answer, bool):
            log.debug("Request %d to post %s succeeded (stored: %s)", attempts, posted, answer)
        return answer, attempts

    def _problem(self, failure: Failure, attempts: int, deadline: Deadline) -> str:
        text = failure.text.rstrip(".")
        tried = counted(attempts, "request")
        if failure.kind is FailureKind.THROTTLED:
            asked = "" if failure.retry_after is None else f", wants a wait of {failure.retry_after:.0f} s"
            left = f"{deadline.remaining():.0f} s were left"
            return f"{self.describe()} takes no more for now ({text}{asked}, {left}, {tried})."
        if failure.kind in (FailureKind.FAILED, FailureKind.UNAVAILABLE, FailureKind.UNREACHABLE):
            failure = replace(failure, text=f"{text}, {tried}")
        return f"{self.describe()} {failure.predicate(_REMEDY)}."


def _version(config: dict[str, Any]) -> str:
    try:
        return f"version {shorten(str(config['versions']['acryldata/datahub']['version']))}"
    except (KeyError, TypeError):
        return "its version is unknown"
