"""What a run did to a dataset by its facets: how much it wrote, and what became of the dataset."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Raw

from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    JsonObject,
    as_object,
    as_objects,
    as_text,
)

# The largest ``long`` of DataHub's aspects.
_MAX_COUNT = 2**63 - 1


class OutputStatistics(NamedTuple):
    """What a run wrote; ``None`` is what the producer did not count.

    :param size: in bytes.
    """

    rows: int | None = None
    size: int | None = None
    files: int | None = None


NOT_COUNTED = OutputStatistics()


def read_statistics(output_facets: object) -> OutputStatistics:
    """The ``outputStatistics`` facet of an output.

    :param output_facets: the output's ``outputFacets``, undecoded where it came as text.
    """
    facet = as_object(as_object(output_facets).get("outputStatistics"))
    return OutputStatistics(_count(facet, "rowCount"), _count(facet, "size"), _count(facet, "fileCount"))


def _count(facet: JsonObject, key: str) -> int | None:
    value = facet.get(key)
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else None


def read_partitions(output_facets: object) -> tuple[str, ...]:
    """The partitions that the run wrote (``subset`` facet of an output), sorted, as ``year=2026/month=1`` or as the
    producer calls them."""
    if not _may_have_subset(output_facets):
        return ()
    facets = as_object(output_facets)
    condition = as_object(as_object(facets.get("subset", facets.get("outputSubset"))).get("outputCondition"))
    if condition.get("type") != "partition":
        return ()
    return tuple(sorted({name for one in as_objects(condition.get("partitions")) if (name := _partition_name(one))}))


def _may_have_subset(output_facets: object) -> bool:
    """Whether it is worth decoding: hardly any producer sends one."""
    return b"ubset" in bytes(output_facets) if type(output_facets) is Raw else isinstance(output_facets, dict)


def _partition_name(partition: JsonObject) -> str:
    dimensions = as_object(partition.get("dimensions"))
    named = "/".join(f"{key}={value}" for key, value in dimensions.items() if isinstance(value, str | int | float))
    return as_text(partition.get("identifier")) or named


def lifecycle_change(facet: JsonObject) -> str:
    """What became of the dataset (``lifecycleStateChange`` facet): ``CREATE``, ``DROP`` … in upper case, or empty."""
    return as_text(facet.get("lifecycleStateChange")).upper()


def previous_name(facet: JsonObject) -> DatasetId | None:
    """What a renamed dataset was called (``lifecycleStateChange`` facet)."""
    previous = as_object(facet.get("previousIdentifier"))
    name = DatasetId(as_text(previous.get("namespace")), as_text(previous.get("name")))
    return name if all(name) else None
