from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.spark_log.streaming import _datasets_of
from tests.conversion.builders import settings, urn

GCS_SPEC = {"gcs": ["gcs://my-bucket/foo/{table}/*/*/*"]}


def urns_of(description: str, offset: object = None, default_fs: str = "", **options: object) -> list[str]:
    namer = DatasetNamer(settings(**options), {})
    named = [namer.name(dataset) for dataset in _datasets_of(description, offset, default_fs)]
    return [name.urn for name in named if name is not None]


# The streaming tests of the Java listener's repository.
@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("FileSink[/tmp/streaming_output/]", urn("hdfs", "/tmp/streaming_output")),
        ("FileSink[s3://bucket/streaming_output/]", urn("s3", "bucket/streaming_output")),
        ("FileSink[s3a://bucket/streaming_output/]", urn("s3", "bucket/streaming_output")),
        ("FileSink[gcs://bucket/streaming_output/]", urn("gcs", "bucket/streaming_output")),
        ("DeltaSink[/tmp/streaming_output/]", urn("hdfs", "/tmp/streaming_output")),
        ("KafkaV2[Subscribe[orders]]", urn("kafka", "orders")),
        ("CloudFilesSource[/mnt/landing]", urn("dbfs", "/mnt/landing")),
    ],
)
def test_sources_are_named_as_by_the_java_listener(description: str, expected: str) -> None:
    assert urns_of(description) == [expected]


def test_path_specs_apply_to_sources() -> None:
    description = "DeltaSink[gcs://my-bucket/foo/tests/year=2023/month=03/day=11/myfile.parquet]"
    assert urns_of(description, path_specs=GCS_SPEC) == [urn("gcs", "my-bucket/foo/tests")]


# Deviation 19: as a batch read of the path is named.
@pytest.mark.parametrize(
    ("description", "default_fs", "expected"),
    [
        ("FileSink[file:/lake/paid]", "", urn("file", "/lake/paid")),
        ("FileSink[file:///lake/paid/]", "", urn("file", "/lake/paid")),
        ("FileSink[file:/lake/no [name] here]", "", urn("file", "/lake/no [name] here")),
        ("FileSink[/lake/paid]", "file:///", urn("file", "/lake/paid")),
        ("FileSink[/lake/paid]", "hdfs://nn:8020", urn("hdfs", "/lake/paid")),
        ("FileSink[/lake/paid]", "s3a://lake/", urn("s3", "lake/lake/paid")),
        ("FileStreamSource[hdfs://nn:8020/lake/in]", "file:///", urn("hdfs", "/lake/in")),
        ("FileStreamSource[abfss://c@acc.dfs.core.windows.net/in]", "", urn("abs", "c@acc.dfs.core.windows.net/in")),
        ("DeltaSource[s3://lake/orders]", "", urn("s3", "lake/orders")),
        ("FileSink[s3://bucket]", "", urn("s3", "bucket")),
        ("CloudFilesSource[s3://lake/landing]", "", urn("s3", "lake/landing")),
        ("CloudFilesSource[dbfs:/mnt/landing]", "", urn("dbfs", "/mnt/landing")),
        ("KinesisV2[clicks]", "", urn("KinesisV2", "clicks")),
    ],
)
def test_sources_are_named_as_in_a_batch_job(description: str, default_fs: str, expected: str) -> None:
    assert urns_of(description, default_fs=default_fs) == [expected]


@pytest.mark.parametrize(
    ("description", "offset", "topics"),
    [
        ("KafkaV2[Subscribe[orders, payments]]", None, ["orders", "payments"]),
        ("KafkaV2[Subscribe[orders]]", '{"orders":{"0":7}}', ["orders"]),
        ("KafkaV2[SubscribePattern[shop\\..*]]", '{"shop.b":{"0":7},"shop.a":{"0":1}}', ["shop.a", "shop.b"]),
        ("KafkaV2[SubscribePattern[shop\\..*]]", {"shop.a": {"0": 1}}, ["shop.a"]),
        ("KafkaV2[SubscribePattern[[a-z]+]]", '{"orders":{"0":7}}', ["orders"]),
        ("KafkaV2[SubscribePattern[shop.*]]", None, []),
        ("KafkaV2[SubscribePattern[shop.*]]", "not json", []),
        ("KafkaV2[Assign[my-orders-0, my-orders-1]]", None, ["my-orders"]),
    ],
)
def test_topics_of_kafka_are_read(description: str, offset: object, topics: list[str]) -> None:
    assert urns_of(description, offset) == [urn("kafka", topic) for topic in topics]


@pytest.mark.parametrize(
    "description",
    [
        "MemorySink",
        "ForeachBatchSink",
        "ForeachWriterTable(x)",
        "RateStreamV2[rowsPerSecond=50, rampUpTimeSeconds=0, numPartitions=default",
        "RateStreamV2[rowsPerSecond=50, rampUpTimeSeconds=0, numPartitions=default]",
        "MemoryStream[value#1]",
        "org.apache.spark.sql.execution.streaming.ConsoleTable$@3a12f7e8",
        "org.apache.spark.sql.execution.streaming.sources.MemorySink[x]",
        "TextSocketV2[host: localhost, port: 9999]",
        "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable@17ef7e0b",
        "FileSink[]",
        "",
    ],
)
def test_sources_without_a_dataset(description: str) -> None:
    assert urns_of(description, default_fs="file:///") == []
