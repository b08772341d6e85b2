"""Sinks: DataHub over REST and Kafka, files, object stores, and OpenLineage backends for raw events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.file import FileSink as FileSink
    from airflow_provider_spark_datahub.delivery.sinks.kafka import (
        KafkaSettings as KafkaSettings,
        KafkaSink as KafkaSink,
    )
    from airflow_provider_spark_datahub.delivery.sinks.object_store import ObjectStoreSink as ObjectStoreSink
    from airflow_provider_spark_datahub.delivery.sinks.openlineage import (
        OpenLineageSettings as OpenLineageSettings,
        OpenLineageSink as OpenLineageSink,
    )
    from airflow_provider_spark_datahub.delivery.sinks.rest import RestSettings as RestSettings, RestSink as RestSink
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
