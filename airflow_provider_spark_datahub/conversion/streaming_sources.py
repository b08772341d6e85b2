"""Which datasets the descriptions in a ``StreamingQueryProgress`` name (conversion rules, section 8)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.paths import FALLBACK_PLATFORM

_DESCRIPTION = re.compile(r"(?P<kind>[^\[\]]+)\[(?P<inside>.*)\]", re.DOTALL)
# KafkaV2[Subscribe[orders, payments]], KafkaV2[SubscribePattern[orders.*]], KafkaV2[Assign[orders-0, orders-1]]
_KAFKA = re.compile(r"(?:(?P<strategy>\w+)\[)?(?P<topics>[^\[\]]*)")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_PLATFORMS = {
    **dict.fromkeys(("KafkaV2", "KafkaV1", "KafkaSource", "KafkaSourceV1"), "kafka"),
    **dict.fromkeys(("DeltaSink", "DeltaSource"), "delta-lake"),
    **dict.fromkeys(("FileSink", "FileStreamSource"), "file"),
    "CloudFilesSource": "dbfs",
}
_PATHS = frozenset({"delta-lake", "file", "dbfs"})
# They hold no data of their own: made up, in memory, a console, a socket, or the user's code.
_NO_DATASET = re.compile(
    r"(Rate|Memory|Console|Foreach|TextSocket|Socket|Noop|PythonStreaming|AvailableNow)", re.IGNORECASE
)


def platform_of(description: str) -> str:
    """The platform that a description stands for, as :func:`query names <streaming.query_name>` begin with it."""
    kind = description.partition("[")[0].partition("@")[0].strip()
    return _PLATFORMS.get(kind, kind)


def path_of(description: str) -> str:
    """What stands in the brackets of a description, or empty: a path, or the strategy and topics of Kafka."""
    matched = _DESCRIPTION.fullmatch(description.strip())
    return matched["inside"].strip() if matched else ""


def datasets_of(description: str, offset: Any, default_fs: str) -> Iterator[DatasetId]:
    """The datasets that a source or a sink is, named as OpenLineage names what a batch job reads or writes there.

    :param description: ``Namespace[path]``, as ``toString`` of the source or sink gives it.
    :param offset: the latest ``endOffset`` of the source, which knows the topics that a pattern stands for.
    :param default_fs: Hadoop's ``fs.defaultFS``, where a path has no scheme; empty where it is not known.
    """
    inside, platform = path_of(description), platform_of(description)
    if not inside or _NO_DATASET.match(platform.rpartition(".")[2]):
        return
    if platform == "kafka":
        yield from (DatasetId("kafka", topic) for topic in _topics(inside, offset))
    elif platform in _PATHS:
        yield location_of(inside, "dbfs://" if platform == "dbfs" else default_fs)
    else:
        yield DatasetId(platform, inside)


def _topics(inside: str, offset: Any) -> list[str]:
    """The topics as the offset names them; else as the description does."""
    matched = _KAFKA.match(inside)
    if matched is None:
        return []
    listed = [topic.strip() for topic in matched["topics"].split(",") if topic.strip()]
    if matched["strategy"] not in ("SubscribePattern", "Assign"):
        return listed
    known = _offset_keys(offset)
    if known or matched["strategy"] == "SubscribePattern":
        # A pattern by itself is no topic.
        return known
    return list(dict.fromkeys(partition.rpartition("-")[0] for partition in listed))


def _offset_keys(offset: Any) -> list[str]:
    """The topics of a Kafka offset, ``{"orders": {"0": 5}}``, which the event log holds as text."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return []
    return sorted(offset) if isinstance(offset, dict) else []


def location_of(path: str, default_fs: str) -> DatasetId:
    """A path as OpenLineage names it: ``file:/a`` is ``file`` ``/a``, ``s3://b/a`` is ``s3://b`` ``/a``.

    :param default_fs: Hadoop's ``fs.defaultFS``, where the path has no scheme; empty where it is not known.
    """
    matched = _SCHEME.match(path)
    if matched is None:
        # Where the file system is not known, the Java listener takes HDFS.
        scheme, _, host = default_fs.rstrip("/").partition("://")
        namespace = f"{scheme}://{host}" if host else scheme.rstrip(":") or FALLBACK_PLATFORM
        return DatasetId(namespace, _trimmed(path))
    scheme, rest = matched["scheme"], path[matched.end() :]
    if not rest.startswith("//"):
        return DatasetId(scheme, _trimmed(rest))
    host, slash, below = rest[2:].partition("/")
    return DatasetId(f"{scheme}://{host}" if host else scheme, _trimmed(slash + below))


def _trimmed(path: str) -> str:
    return path.rstrip("/") or "/"
