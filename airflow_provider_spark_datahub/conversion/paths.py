"""Names of datasets that are paths: path specs and partition folders (conversion rules, section 3.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Scheme of a path → DataHub platform.
PATH_PLATFORMS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "abs"),
    "dbfs": "dbfs",
    "file": "file",
}
FALLBACK_PLATFORM = "hdfs"
_TABLE_MARKER = "/{table}"


@dataclass(frozen=True, slots=True)
class PathSpec:
    """How the paths of one platform fold into datasets.

    :param platform: the DataHub platform the spec is for, e.g. ``s3``.
    :param path_spec_list: patterns such as ``s3://bucket/*/{table}``: ``*`` is one folder, ``{table}`` the dataset's.
    :param env: DataHub environment of the datasets (``PROD``, ``DEV`` …).
    :param platform_instance: DataHub platform instance of the datasets.
    :param alias: the name the user gave the spec.
    """

    platform: str
    path_spec_list: tuple[str, ...] = ()
    env: str | None = None
    platform_instance: str | None = None
    alias: str = ""


@dataclass(frozen=True, slots=True)
class PathName:
    """A path's dataset name, and the spec that decided it."""

    platform: str
    name: str
    spec: PathSpec | None = None


def name_of_uri(uri: str, specs: Sequence[PathSpec], partition_pattern: re.Pattern[str] | None) -> PathName:
    """The dataset of a path with a scheme.

    :param uri: e.g. ``s3://bucket/a/b``.
    :param specs: the path specs of every platform.
    :param partition_pattern: what to cut off the path's end, from :func:`partition_pattern`.
    """
    uri = uri.rstrip("/")
    scheme, found, path = uri.partition("://")
    if not found or "://" in path:
        # The Java listener takes such a text for a path without scheme, and its URN is the one in the catalogue.
        return PathName(FALLBACK_PLATFORM, uri)
    platform = PATH_PLATFORMS.get(scheme, FALLBACK_PLATFORM)
    for spec in specs:
        if spec.platform != platform:
            continue
        for pattern in spec.path_spec_list:
            matched = match_path(uri, pattern)
            if matched is not None:
                return PathName(platform, _without_scheme(matched, platform), spec)
    if partition_pattern is not None:
        uri = _cut(uri, partition_pattern)
    return PathName(platform, _without_scheme(uri, platform))


def name_of_plain_path(
    platform: str, authority: str, path: str, specs: Sequence[PathSpec], partition: re.Pattern[str] | None
) -> PathName:
    """The dataset of a path that OpenLineage names without scheme or whose host is no part of its name.

    Deviation 16: ``file`` and ``hdfs`` paths follow path specs and the partition pattern too. A pattern may spell
    the path with its scheme and host, with its scheme alone, or bare; the name keeps its leading slash.

    :param platform: the namespace's platform, e.g. ``hdfs``.
    :param authority: the namespace's host and port, empty where it has none.
    :param path: the dataset's name, e.g. ``/warehouse/db/t``.
    """
    for spec in specs:
        if spec.platform != platform:
            continue
        for pattern in spec.path_spec_list:
            for prefix in dict.fromkeys((f"{platform}://{authority}", f"{platform}://", f"{platform}:", "")):
                matched = match_path(prefix + path.rstrip("/"), pattern)
                if matched is not None:
                    return PathName(platform, matched[len(prefix) :], spec)
    if partition is not None:
        cut = _cut(path.rstrip("/"), partition)
        return PathName(platform, cut if cut != path.rstrip("/") and cut else path)
    return PathName(platform, path)


def match_path(path: str, pattern: str) -> str | None:
    """The part of the path up to the folder that ``{table}`` stands for, or ``None`` where the pattern differs.

    ``s3://b/foo/tests/bar.avro`` with ``s3://b/foo/{table}/*`` gives ``s3://b/foo/tests``. Folders after the marker
    say how the user lays out partitions; they need not be there.
    """
    before, marker, _ = pattern.partition(_TABLE_MARKER)
    if not marker:
        return None
    wanted, folders = before.split("/"), path.split("/")
    if len(folders) <= len(wanted) or not folders[len(wanted)]:
        return None
    if any(want not in ("*", folder) for want, folder in zip(wanted, folders, strict=False)):
        return None
    return "/".join(folders[: len(wanted) + 1])


def partition_pattern(regexp: str) -> re.Pattern[str]:
    """The pattern that finds ``regexp`` at the end of a path.

    :raises re.error: where it is no regular expression.
    """
    return re.compile(f"(?:{regexp})$")


def is_parent_folder(folder: str, path: str) -> bool:
    """Whether the path lies below the folder."""
    return path.startswith(folder.rstrip("/") + "/")


def _cut(path: str, partition: re.Pattern[str]) -> str:
    return partition.sub("", path).removesuffix("/")


def _without_scheme(uri: str, platform: str) -> str:
    name = uri.partition("://")[2]
    return name if platform == "file" else name.removeprefix("/")
