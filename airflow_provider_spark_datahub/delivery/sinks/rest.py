"""REST sink: proposals to DataHub's metadata service (GMS) in batches."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff, Failure, FailureKind, shorten
from airflow_provider_spark_datahub.delivery.sink import CheckResult, CheckStatus, DeliveryRecord
from airflow_provider_spark_datahub.delivery.sinks.batches import BatchSink
from airflow_provider_spark_datahub.delivery.sinks.settings import RestSettings

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.rest_client import GmsClient

_GMS_PORT, _WEB_PORT = 8080, 9002
"""Of DataHub's containers."""
_LONGEST_ASPECT = 16_000_000
"""Characters of a text in JSON that GMS reads, unless the variable below raises it, there and here.
"""
_LONGEST_VARIABLE = "INGESTION_MAX_SERIALIZED_STRING_LENGTH"
_ADDRESS = (
    "if DataHub runs, give GMS's own URL as the connection's host: http://gms:8080, or "
    "https://datahub.example/api/gms. While it is down, tasks keep their lineage in the outbox"
)


class RestSink(BatchSink):
    """Sink that delivers to GMS, with the requests of acryl-datahub's REST emitter.

    GMS takes a batch as a whole or not at all. It also answers HTTP 500 to an aspect that it cannot
    read.

    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "rest"
    largest_batch = 200  # acryl-datahub's own limit, so that one call of its emitter is one request
    server = "DataHub"
    remedy = "set a valid access token as its password"

    def __init__(self, settings: RestSettings, *, backoff: Backoff | None = None) -> None:
        super().__init__(backoff, settings.retry_max_times)
        self.settings = settings

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send batch after batch, without aspects that GMS cannot read, or could not read back from
        its database.
        """
        variable = os.environ.get(_LONGEST_VARIABLE, "")
        most = max(_LONGEST_ASPECT, int(variable) if variable.isdecimal() else 0)
        for number, item in record.pending():
            if (size := len(item.value)) > most:
                reason = f"it has {size} characters, and DataHub reads {most} ({_LONGEST_VARIABLE})"
                record.reject((number, item), reason)
        super().send(record, deadline)

    def describe(self) -> str:
        """Return ``DataHub at URL``."""
        return f"DataHub at {self.settings.server}"

    @property
    def web_address(self) -> str:
        """Address of DataHub's UI behind the same host: at port 9002 for 8080, or where GMS is
        below a path.

        A host that is named after GMS serves nothing else, so the UI is elsewhere.
        """
        parts = urlsplit(self.settings.server)
        host, below = parts.netloc, parts.path
        if parts.port == _GMS_PORT and not below and "gms" not in host:
            return f"{parts.scheme}://{host.rpartition(':')[0]}:{_WEB_PORT}"
        path_of_gms = next((path for path in ("/api/gms", "/gms") if below.endswith(path)), "")
        return f"{parts.scheme}://{host}{below.removesuffix(path_of_gms)}" if path_of_gms else ""

    def check(self, deadline: Deadline) -> list[CheckResult]:
        """Check that GMS answers and takes the credentials, by reading an aspect, since ``/config``
        needs none.
        """
        with closing(self.open_client(deadline)) as gms:
            config = gms.config()
            if isinstance(config, Failure):
                text = f"{self.describe()} {config.predicate(self.remedy)}"
                return [CheckResult("DataHub", CheckStatus.BAD, text, _ADDRESS)]
            answers = CheckResult(
                "DataHub", CheckStatus.GOOD, f"{self.describe()} answers: {_version(config)}"
            )
            read = gms.get(
                "/aspects/urn%3Ali%3AdataPlatform%3Aspark?aspect=dataPlatformInfo&version=0",
                may_miss=True,
            )
        if isinstance(read, Failure):
            status = (
                CheckStatus.BAD if read.kind is FailureKind.UNAUTHORISED else CheckStatus.WARNING
            )
            return [
                answers,
                CheckResult(
                    "credentials", status, f"{self.describe()} {read.predicate(self.remedy)}"
                ),
            ]
        return [answers, CheckResult("credentials", CheckStatus.GOOD, "DataHub lets us read")]

    def open_client(self, deadline: Deadline) -> GmsClient:
        """Return a client of GMS."""
        from airflow_provider_spark_datahub.delivery.sinks.rest_client import GmsClient

        return GmsClient(self.settings, deadline)


def _version(config: dict[str, Any]) -> str:
    try:
        return f"version {shorten(str(config['versions']['acryldata/datahub']['version']))}"
    except (KeyError, TypeError):
        return "its version is unknown"
