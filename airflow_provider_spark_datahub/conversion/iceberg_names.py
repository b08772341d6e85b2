"""What Iceberg puts behind a table's name: a branch, a tag, a point in time, or one of its metadata tables."""

from __future__ import annotations

import re

# org.apache.iceberg.MetadataTableType
_METADATA = frozenset(
    {
        *("all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "data_files"),
        *("delete_files", "entries", "files", "history", "manifests", "metadata_log_entries", "partitions"),
        *("position_deletes", "refs", "snapshots"),
    }
)
# org.apache.iceberg.spark.SparkCatalog
_VERSION = re.compile(r"(?:branch|tag)_.+|(?:at_timestamp|snapshot_id)_\d+|changes")


def table_and_selector(name: str, path: str) -> tuple[str, str]:
    """The table's own name and what is behind it, empty where nothing is.

    :param name: as a ``symlinks`` facet has it, ``db.orders.snapshots``.
    :param path: of the table: one that is truly called so lies in a folder of that name.
    """
    table, _, last = name.rpartition(".")
    if "." not in table or not (last.lower() in _METADATA or _VERSION.fullmatch(last)):
        return name, ""
    return (name, "") if path.rpartition("/")[2].startswith(last) else (table, last)


def is_metadata(selector: str) -> bool:
    """Whether it is a table of Iceberg's own, with columns of its own."""
    return selector.lower() in _METADATA
