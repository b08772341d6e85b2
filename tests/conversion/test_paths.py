"""Path specs and partition folders."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer, is_parent_folder
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.settings import LineageSettings, PathSpec

BAR = "s3://my-bucket/foo/tests/bar.avro"


def named(namespace: str, path: str, specs: Sequence[PathSpec] = (), partition: str | None = None) -> DatasetName:
    settings = LineageSettings(path_specs=tuple(specs), file_partition_regexp=partition)
    name = DatasetNamer(settings, {}).name(DatasetId(namespace, path))
    assert name is not None
    return name


def named_uri(uri: str, specs: Sequence[PathSpec] = (), partition: str | None = None) -> DatasetName:
    scheme, _, rest = uri.partition("://")
    host, slash, path = rest.partition("/")
    return named(f"{scheme}://{host}", slash + path, specs, partition)


@pytest.mark.parametrize(
    ("path", "pattern", "name"),
    [
        (BAR, None, "my-bucket/foo/tests/bar.avro"),
        (BAR, "s3://my-bucket/foo/{table}/*", "my-bucket/foo/tests"),
        (BAR, "s3://my-bucket/foo/tests/{table}", "my-bucket/foo/tests/bar.avro"),
        ("gs://my-bucket/foo/tests/bar.avro", "gs://my-bucket/{table}/*/*", "my-bucket/foo"),
        # HdfsPathDatasetTest of the Java listener.
        ("s3a://my-bucket/foo/tests/bar.avro", "s3a://my-bucket/foo/{table}", "my-bucket/foo/tests"),
        ("s3a://my-bucket/foo/tests/bar.avro", "s3a://my-bucket/{table}", "my-bucket/foo"),
        ("s3a://my-bucket/foo/tests/bar.avro", "s3a://my-bucket/other/{table}", "my-bucket/foo/tests/bar.avro"),
        # StreamingDescriptionGCSWithPathSpec and OpenlineageDatasetWithPathSpec.
        (
            "gcs://my-bucket/foo/tests/year=2023/month=03/day=11/myfile.parquet",
            "gcs://my-bucket/foo/{table}/*/*/*",
            "my-bucket/foo/tests",
        ),
        ("s3a://d/kafka_backup/482_MCL/year=2023/x", "s3a://d/kafka_backup/{table}/year=*/*", "d/kafka_backup/482_MCL"),
        # `*` is one folder, and the scheme counts.
        ("s3://b/eu/sales/x", "s3://b/*/{table}", "b/eu/sales"),
        ("s3://b/eu/sales", "s3://b/*/*/{table}", "b/eu/sales"),
        (BAR, "s3a://my-bucket/{table}", "my-bucket/foo/tests/bar.avro"),
        ("file:///lake/orders/x.csv", "file:///lake/{table}", "/lake/orders"),
    ],
)
def test_a_path_spec_cuts_the_path(path: str, pattern: str | None, name: str) -> None:
    platform = {"s3a": "s3", "gs": "gcs"}.get(path.partition("://")[0], path.partition("://")[0])
    specs = [PathSpec(platform, (pattern,))] if pattern else []
    assert named_uri(path, specs).name == name


@pytest.mark.parametrize(
    ("scheme", "platform"),
    [
        *((scheme, "s3") for scheme in ("s3", "s3a", "s3n")),
        *((scheme, "gcs") for scheme in ("gs", "gcs")),
        *((scheme, "abs") for scheme in ("abfs", "abfss", "wasb", "wasbs")),
        ("dbfs", "dbfs"),
        ("file", "file"),
        # No scheme, but the Java listener's parser finds s3 in it.
        ("s3:cos", "hdfs"),
    ],
)
def test_schemes_have_platforms(scheme: str, platform: str) -> None:
    assert named_uri(f"{scheme}://b/x").platform == platform


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("s3://b/a/b///", "b/a/b"),
        ("s3:///b/a", "b/a"),
        ("file:///a/b", "/a/b"),
        ("wasbs://c@acc.blob.core.windows.net/t", "c@acc.blob.core.windows.net/t"),
    ],
)
def test_slashes_are_normalized(uri: str, name: str) -> None:
    assert named_uri(uri).name == name


def test_a_path_with_two_schemes_is_an_hdfs_path() -> None:
    assert named_uri("s3://b/x://y") == DatasetName("hdfs", "s3://b/x://y", "PROD")


def test_the_first_spec_that_fits_decides_with_its_own_instance() -> None:
    first = PathSpec("s3", ("s3://b/x/{table}", "s3://b/*/{table}"), platform_instance="one")
    second = PathSpec("s3", ("s3://b/{table}",), platform_instance="two", alias="whole bucket")
    other = PathSpec("gcs", ("s3://b/{table}",))
    assert named_uri("s3://b/a/t/f", [other, first, second]) == DatasetName("s3", "b/a/t", "PROD", "one")
    assert named_uri("s3://b/a", [other, first, second]) == DatasetName("s3", "b/a", "PROD", "two")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://b/t/dt=2026-01-01/h=1", "b/t"),
        ("s3://b/t/dt=1/", "b/t"),
        ("s3://b/dt=1/t", "b/dt=1/t"),
        ("s3://b/t", "b/t"),
    ],
)
def test_the_partition_pattern_cuts_the_end(path: str, name: str) -> None:
    assert named_uri(path, partition="/dt=[^/]*(/h=[^/]*)?").name == name


def test_a_path_spec_goes_before_the_partition_pattern() -> None:
    specs = [PathSpec("s3", ("s3://b/{table}",))]
    assert named_uri("s3://b/t/dt=1", specs, "/t/dt=.*").name == "b/t"


@pytest.mark.parametrize(
    "pattern", ["hdfs://nn:8020/wh/{table}", "hdfs:///wh/{table}", "hdfs:/wh/{table}", "/wh/{table}"]
)
def test_plain_paths_follow_specs_too(pattern: str) -> None:
    # Deviation 16; the name keeps its leading slash.
    spec = PathSpec("hdfs", (pattern,), env="DEV")
    assert named("hdfs://nn:8020", "/wh/t/part-0", [spec]) == DatasetName("hdfs", "/wh/t", "DEV")


@pytest.mark.parametrize(
    ("path", "name"), [("/wh/t/dt=1", "/wh/t"), ("/wh/t/dt=1/", "/wh/t"), ("/wh/t/", "/wh/t/"), ("/dt=1", "/dt=1")]
)
def test_plain_paths_follow_the_partition_pattern_too(path: str, name: str) -> None:
    # Deviation 16; a path without partition keeps its text, and nothing is cut to nothing.
    assert named("file", path, partition="/dt=.*").name == name


def test_a_pattern_without_marker_matches_nothing() -> None:
    assert named_uri("s3://b/a/c", [PathSpec("s3", ("s3://b/a",))]).name == "b/a/c"


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [("/a", "/a/b", True), ("/a/", "/a/b/c", True), ("/a", "/ab", False), ("/a", "/a", False), ("/", "/a", True)],
)
def test_parent_folders_are_recognised(folder: str, path: str, expected: bool) -> None:
    assert is_parent_folder(folder, path) == expected
