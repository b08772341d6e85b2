"""Sinks: DataHub over REST and Kafka, files, object stores, and OpenLineage backends for raw events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from .file import FileSink
    from .kafka import KafkaSettings, KafkaSink
    from .object_store import ObjectStoreSink
    from .openlineage import OpenLineageSettings, OpenLineageSink
    from .rest import RestSettings, RestSink
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "file": "FileSink",
            "kafka": "KafkaSettings KafkaSink",
            "object_store": "ObjectStoreSink",
            "openlineage": "OpenLineageSettings OpenLineageSink",
            "rest": "RestSettings RestSink",
        },
    )
