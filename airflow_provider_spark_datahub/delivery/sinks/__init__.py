"""Sinks: DataHub over REST and Kafka, files, and object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .files import FileSink, ObjectStoreSink
    from .kafka import KafkaSink
    from .rest import RestSink
    from .rest_reading import read_datasets, read_runs
    from .settings import KafkaSettings, RestSettings
else:
    __getattr__, __dir__ = lazy_exports(__name__)
