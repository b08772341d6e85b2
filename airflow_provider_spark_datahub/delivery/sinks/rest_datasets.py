"""The datasets that DataHub has, read in bulk with acryl-datahub's client.

It imports that client; import this module only to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice

from datahub.ingestion.graph.client import DatahubClientConfig, DataHubGraph
from datahub.metadata.schema_classes import DataPlatformInstanceClass, DatasetPropertiesClass

from airflow_provider_spark_datahub.delivery.failure import LibraryError, call_library
from airflow_provider_spark_datahub.delivery.reconciliation import HeldDataset
from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError
from airflow_provider_spark_datahub.delivery.sinks.rest_settings import RestSettings

_BATCH = 500
_PROPERTIES, _INSTANCE = "datasetProperties", "dataPlatformInstance"
# Ingestion sources write at least one of these; the edge of a job, none.
_ASPECTS = [_PROPERTIES, "subTypes", "container", "viewProperties"]
_LOCATIONS = ("Location", "location", "storage_location")
"""Custom properties in which the sources for Hive and Glue, Iceberg, and Unity Catalog name the place of a table."""


def read_datasets(settings: RestSettings) -> Iterator[HeldDataset]:
    """Yield the datasets that are not removed.

    :raises SinkSettingsError: if DataHub does not answer as it should.
    """
    with opened_graph(settings) as graph:
        urns = iter(call_library(lambda: list(graph.get_urns_by_filter(entity_types=["dataset"], batch_size=5000))))
        while batch := list(islice(urns, _BATCH)):
            found = call_library(partial(graph.get_entities, "dataset", batch, [*_ASPECTS, _INSTANCE]))
            for urn in batch:
                aspects = dict(found.get(urn, {}))
                # GMS writes it of every dataset.
                of_instance = aspects.pop(_INSTANCE, (None,))[0]
                instance = of_instance.instance or "" if isinstance(of_instance, DataPlatformInstanceClass) else ""
                properties = aspects[_PROPERTIES][0] if _PROPERTIES in aspects else None
                custom = properties.customProperties if isinstance(properties, DatasetPropertiesClass) else {}
                location = next((custom[name] for name in _LOCATIONS if custom.get(name)), "")
                yield HeldDataset(urn, not aspects, location, instance.rpartition(",")[2].removesuffix(")"))


@contextmanager
def opened_graph(settings: RestSettings) -> Iterator[DataHubGraph]:
    """Open acryl-datahub's client. :raises SinkSettingsError: for an error of the library inside the block."""
    try:
        yield call_library(lambda: DataHubGraph(_config(settings)))
    except LibraryError as error:
        raise SinkSettingsError(settings.redact(f"DataHub at {settings.server} cannot be read: {error}")) from None


def _config(settings: RestSettings) -> DatahubClientConfig:
    return DatahubClientConfig(
        server=settings.server,
        token=settings.token,
        timeout_sec=settings.timeout_sec,
        extra_headers=dict(settings.extra_headers),
        ca_certificate_path=settings.ca_certificate_path,
        client_certificate_path=settings.client_certificate_path,
        client_key_path=settings.client_key_path,
        disable_ssl_verification=settings.disable_ssl_verification,
    )
