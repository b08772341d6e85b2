"""Names and URNs of datasets: tables, topics and paths, and the tables behind paths (conversion
rules, section 3).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.events import (
    PART_FILE,
    DatasetId,
    Facets,
    as_objects,
    as_text,
)
from airflow_provider_spark_datahub.conversion.settings import (
    OTHER_CATALOGS,
    LineageSettings,
    PathSpec,
    split_dataset_urn,
)

# Scheme of a path → DataHub platform.
_PATH_PLATFORMS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "abs"),
    "dbfs": "dbfs",
    "file": "file",
}
FALLBACK_PLATFORM = "hdfs"
"""Platform of paths whose scheme is missing or unknown."""
_FILE_PLATFORMS = frozenset({*_PATH_PLATFORMS.values(), FALLBACK_PLATFORM})
_SCHEME_PLATFORMS = {"awsathena": "athena", "sqlserver": "mssql"}
_MOST_NAMES = 128 * 1024
# Kinds of the tables in Spark's own catalogue, which is in Hive's metastore or in memory.
_OF_SESSION = frozenset({"", "default", "delta", "glue", "hive", "hudi"})
_GLUE_PREFIXES = ("aws:glue:", "arn:aws:glue:")


@dataclass(frozen=True, slots=True)
class DatasetName:
    """Parts of a dataset's URN."""

    platform: str
    name: str
    env: str
    instance: str | None = None
    urn: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Build the URN once, because every edge of the dataset contains it."""
        object.__setattr__(
            self, "urn", urns.dataset_urn(self.platform, self.name, self.env, self.instance)
        )

    def __hash__(self) -> int:
        """Hash the URN, whose hash Python keeps: names are the keys of many caches."""
        return hash(self.urn)

    @classmethod
    def of_urn(cls, urn: str) -> DatasetName:
        """Return the name of a dataset whose URN another source made.

        :raises ValueError: if it is not the URN of a dataset.
        """
        parts = split_dataset_urn(urn)
        if parts is None:
            raise ValueError(f"{urn!r} is not the URN of a dataset")
        name = cls(*parts)
        object.__setattr__(name, "urn", urn)
        return name

    @property
    def full_name(self) -> str:
        """The name with the platform instance in front, as in the URN but not encoded."""
        return f"{self.instance}.{self.name}" if self.instance else self.name


@dataclass
class Symlinks:
    """Tables behind paths, collected over a whole application before any dataset is named
    (Deviation 12).
    """

    by_dataset: dict[DatasetId, DatasetId] = field(default_factory=dict)
    # How well events describe each: 2 if they know the format, 1 if only that Hive has it.
    _depths: dict[DatasetId, int] = field(default_factory=dict)

    def learn(
        self,
        dataset: DatasetId,
        facets: Facets,
        settings: LineageSettings,
        properties: Mapping[str, Any] | None = None,
    ) -> bool:
        """Remember the table in a dataset's ``symlinks`` facet; a branch of an Iceberg table counts
        as the table.

        :param properties: Spark's properties in the event; ``None`` if names are as Spark's
            catalogue has them.
        :returns: whether the other facets describe the table itself, not one of its metadata
            tables.
        """
        if "symlinks" not in facets.facets or settings.disable_symlink_resolution:
            return True
        identifier = facets.once(_table)
        if identifier is None:
            return True
        kinds = _kinds(facets)
        if properties is not None and _is_of_session(facets):
            identifier = identifier._replace(name=session_table(identifier.name, properties))
        table, selector = _without_selector(
            dataset, _in_datahub(identifier, kinds, settings), facets
        )
        # An earlier event may have known more: OpenLineage describes a Delta table only where it is
        # written.
        earlier, depth_before = self.by_dataset.get(dataset), self._depths.get(dataset, 1)
        depth = 2 if {*kinds} - {"hive"} else bool(kinds)
        if not (
            settings.catalog_platforms
            and earlier
            and earlier.name == table.name
            and depth < depth_before
        ):
            self.by_dataset[dataset] = table
        self._depths[dataset] = max(depth, depth_before) if earlier else depth
        return selector.lower() not in METADATA_TABLES


def _is_of_session(facets: Facets) -> bool:
    """Return whether a table is in Spark's own catalogue, not in one of another name."""
    catalog, layer = facets["catalog"], facets["storage"].get("storageLayer")
    kind = as_text(catalog.get("framework") or layer).lower()
    return kind in _OF_SESSION or catalog.get("name") == "spark_catalog"


def session_table(name: str, properties: Mapping[str, Any]) -> str:
    """Return the name that a table has in Spark's own catalogue: in lower case, unless Spark
    distinguishes case.
    """
    return (
        name if str(properties.get("spark.sql.caseSensitive")).lower() == "true" else name.lower()
    )


def _in_datahub(table: DatasetId, kinds: Sequence[str], settings: LineageSettings) -> DatasetId:
    """Return a table under its platform in DataHub, in place of the namespace of its catalogue."""
    namespace, platforms = table.namespace, settings.catalog_platforms
    platform = next(filter(None, map(platforms.get, (*kinds, OTHER_CATALOGS))), "hive")
    platform = "glue" if namespace.startswith(_GLUE_PREFIXES) else platform
    place = f"arn:{namespace}" if namespace.startswith("aws:glue:") else namespace
    place = place.lower() if settings.lower_case_dataset_urns else place
    # Tables of several accounts may have the same name.
    return DatasetId(
        f"{platform}://{place}" if place in settings.namespaces else platform, table.name
    )


def _without_selector(
    dataset: DatasetId, table: DatasetId, facets: Facets
) -> tuple[DatasetId, str]:
    """Split an Iceberg table from the branch, point in time or metadata table that was used; other
    tables have none.
    """
    if table.name.count(".") < 2 or facets["catalog"].get("framework") != "iceberg":
        return table, ""
    name, selector = table_and_selector(table.name, dataset.name)
    if not selector and table.name.endswith(".changes") and facets.once(_is_changelog):
        name, selector = table.name.removesuffix(".changes"), "changes"
    return table._replace(name=name), selector


def _table(facets: Facets) -> DatasetId | None:
    """Return the table in the ``symlinks`` facet: the namespace of its catalogue, and its name."""
    table = None
    for identifier in as_objects(facets["symlinks"].get("identifiers")):
        name = as_text(identifier.get("name")).strip()
        if identifier.get("type") == "TABLE":
            if name.startswith("table/"):
                name = name.removeprefix("table/").replace("/", ".")
            # A name with a slash is a path: OpenLineage names Iceberg tables in Snowflake's
            # catalogue in this way.
            if name and "/" not in name:
                table = DatasetId(as_text(identifier.get("namespace")), name)
    return table


def _kinds(facets: Facets) -> list[str]:
    """Return the names of a table's catalogue and format, as far as an event knows them."""
    catalog = facets["catalog"]
    kinds = (catalog.get("framework"), catalog.get("type"), facets["storage"].get("storageLayer"))
    known = [as_text(kind).lower() for kind in kinds if kind]
    # OpenLineage takes a Delta table that is read for any table of the metastore, but no other one
    # has a version.
    return ["delta", *known] if "version" in facets.facets and {*known} <= {"hive"} else known


def _is_changelog(facets: Facets) -> bool:
    """Return whether the schema has the columns of an Iceberg table's changes, whose names no table
    may use.
    """
    text = facets.text("schema")
    return b"_change_type" in text and b"_commit_snapshot_id" in text


# org.apache.iceberg.MetadataTableType
METADATA_TABLES = frozenset(
    {
        "all_data_files",
        "all_delete_files",
        "all_entries",
        "all_files",
        "all_manifests",
        "data_files",
        "delete_files",
        "entries",
        "files",
        "history",
        "manifests",
        "metadata_log_entries",
        "partitions",
        "position_deletes",
        "refs",
        "snapshots",
    }
)
# org.apache.iceberg.spark.SparkCatalog
_SELECTOR = re.compile(r"(?:branch|tag)_.+|(?:at_timestamp|snapshot_id)_\d+|changes")


def table_and_selector(name: str, path: str) -> tuple[str, str]:
    """Split the name of an Iceberg table from the branch, tag, point in time or metadata table that
    follows it.

    :param name: as in a ``symlinks`` facet, e.g. ``db.orders.snapshots``.
    :param path: path of the table. A table that is really called ``snapshots`` lies in a folder of
        that name.
    """
    table, _, last = name.rpartition(".")
    if "." not in table or not (last.lower() in METADATA_TABLES or _SELECTOR.fullmatch(last)):
        return name, ""
    return (name, "") if path.rpartition("/")[2].startswith(last) else (table, last)


class DatasetNamer:
    """Namer of the datasets of an application. It caches names.

    :param symlinks: tables behind paths, of the whole application.
    """

    def __init__(self, settings: LineageSettings, symlinks: Mapping[DatasetId, DatasetId]) -> None:
        self._settings = settings
        self._partition = settings.partition_pattern
        # The name, or the reason why the dataset has none.
        self._cache: dict[DatasetId, DatasetName | str] = {}
        self._by_location: dict[str, DatasetName] = {}
        for dataset, table in symlinks.items():
            location, name = self._plain_name(dataset), self._plain_name(table)
            if location is not None and name is not None:
                self._by_location[location.urn] = name
        self.unusable: dict[DatasetId, str] = {}
        """Reasons why datasets that :meth:`name` was called for have no usable URN."""

    def name(self, dataset: DatasetId) -> DatasetName | None:
        """Return the name of the dataset, or of the table behind its path; ``None`` if it has no
        usable URN.
        """
        name = self.name_or_reason(dataset)
        if type(name) is DatasetName:
            return name
        self.unusable[dataset] = str(name)
        return None

    def urn(self, dataset: DatasetId) -> str | None:
        """Return the URN of the dataset's :meth:`name`; ``None`` if it has none."""
        name = self.name(dataset)
        return name.urn if name is not None else None

    def is_whole_path(self, dataset: DatasetId) -> bool:
        """Return whether it is a file or folder whose URN has its whole path."""
        name, path = self.name_or_reason(dataset), dataset.name.strip("/").lower()
        if not path or type(name) is not DatasetName or name.platform not in _FILE_PLATFORMS:
            return False
        known = name.name.strip("/").lower()
        return known == path or known.endswith(f"/{path}")

    def is_cut(self, dataset: DatasetId) -> bool:
        """Return whether it is a file or folder whose URN is that of a folder around it."""
        name = self.name_or_reason(dataset)
        is_file = type(name) is DatasetName and name.platform in _FILE_PLATFORMS
        return is_file and not self.is_whole_path(dataset)

    def name_or_reason(self, dataset: DatasetId) -> DatasetName | str:
        """Return the dataset's name, or the reason why it has none, without adding it to
        :attr:`unusable`.
        """
        known = self._cache.get(dataset)
        if known is None:
            if len(self._cache) >= _MOST_NAMES:
                self._cache.clear()
            known = self._cache[dataset] = self._resolve(dataset)
        return known

    def _resolve(self, dataset: DatasetId) -> DatasetName | str:
        plain = self._plain_name(dataset)
        if plain is None or not plain.name:
            return "it has no name"
        name = self._by_location.get(plain.urn, plain)
        if (other := self._settings.dataset_urns.get(name.urn)) is not None:
            return DatasetName.of_urn(other)
        if urns.is_too_long(name.urn):
            return f"its URN is longer than {urns.MAX_URN_BYTES} bytes, which DataHub drops"
        return name

    def _plain_name(self, dataset: DatasetId) -> DatasetName | None:
        """Return the name by OpenLineage's, regardless of a table behind a path; ``None`` if it
        has no platform.
        """
        namespace, name = dataset.namespace.strip(), dataset.name
        if self._settings.lower_case_dataset_urns:
            namespace, name = namespace.lower(), name.lower()
        if "://" not in namespace:
            return self._named(namespace, "", name, namespace) if namespace else None
        # jdbc:h2://x is a URI of the scheme jdbc.
        scheme = namespace.partition(":")[0]
        if scheme in _PATH_PLATFORMS:
            return self._of_uri(_join(namespace, name))
        platform = _SCHEME_PLATFORMS.get(scheme, scheme).strip()
        return (
            self._named(platform, namespace.partition("://")[2], name, namespace)
            if platform
            else None
        )

    def _of_uri(self, uri: str) -> DatasetName:
        """Name a path with a scheme, e.g. ``s3://bucket/a/b``."""
        settings, uri = self._settings, uri.rstrip("/")
        scheme, _, path = uri.partition("://")
        if "://" in path:
            # The Java listener treats such a text as a path without a scheme: DataHub may already
            # have this URN.
            return DatasetName(
                FALLBACK_PLATFORM, uri, settings.env, settings.dataset_platform_instance
            )
        platform = _PATH_PLATFORMS.get(scheme, FALLBACK_PLATFORM)
        for spec in self._specs(platform):
            for pattern in spec.path_spec_list:
                if (matched := _match_path(uri, pattern)) is not None:
                    return self._of_spec(spec, _without_scheme(matched, platform))
        name = _without_scheme(self._without_partition(uri), platform)
        return DatasetName(platform, name, settings.env, settings.dataset_platform_instance)

    def _of_spec(self, spec: PathSpec, name: str) -> DatasetName:
        return DatasetName(
            spec.platform, name, spec.env or self._settings.env, spec.platform_instance
        )

    def _specs(self, platform: str) -> list[PathSpec]:
        return [spec for spec in self._settings.path_specs if spec.platform == platform]

    def _without_partition(self, path: str) -> str:
        return path if self._partition is None else self._partition.sub("", path).removesuffix("/")

    def _named(self, platform: str, authority: str, name: str, namespace: str) -> DatasetName:
        """Name a table, a topic, or a path whose host is not part of its name.

        Path specs and the partition pattern apply to these paths too (Deviation 16). A path spec
        may start with scheme and host, with the scheme alone, or with the path. The name keeps its
        leading slash.
        """
        specs = self._specs(platform)
        if name.startswith("/"):
            path = name.rstrip("/")
            prefixes = list(
                dict.fromkeys((f"{platform}://{authority}", f"{platform}://", f"{platform}:", ""))
            )
            for spec in specs:
                for pattern, prefix in product(spec.path_spec_list, prefixes):
                    if (matched := _match_path(prefix + path, pattern)) is not None:
                        return self._of_spec(spec, matched[len(prefix) :])
            cut = self._without_partition(path)
            name = cut if cut and cut != path else name
        else:
            name = self._with_schema(
                platform, _QUOTED_PART.sub(_unquoted, name) if authority else name
            )
        # The namespace of a table behind a path is its platform and the catalogue's own (Symlinks).
        places = self._settings.namespaces
        specs = [
            place for key in (namespace, authority) if (place := places.get(key)) is not None
        ] + specs
        instance = next((spec.platform_instance for spec in specs if spec.platform_instance), None)
        env = next((spec.env for spec in specs if spec.env), None)
        return DatasetName(
            platform,
            name,
            env or self._settings.env,
            instance or self._settings.dataset_platform_instance,
        )

    def _with_schema(self, platform: str, name: str) -> str:
        """Add the default schema (Deviation 11): ``shop.orders`` of PostgreSQL is
        ``shop.public.orders``.
        """
        schema = self._settings.default_schemas.get(platform)
        parts = name.split(".")
        if schema and len(parts) == 2 and all(parts) and "/" not in name:
            return f"{parts[0]}.{schema}.{parts[1]}"
        return name


# A part of a table's name, quoted as its database does: "a", `a` or [a].
_QUOTED_PART = re.compile(
    r"""(?<![^.])(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`|\[(?:[^\]]|\]\])+\])(?![^.])"""
)


def _unquoted(part: re.Match[str]) -> str:
    """Return a quoted part of a table's name as OpenLineage's inputs have it, without quotes."""
    text = part[0]
    return text[1:-1].replace(text[-1] * 2, text[-1])


def _join(namespace: str, name: str) -> str:
    """Join namespace and name with exactly one slash."""
    if name.startswith("/"):
        authority = namespace.partition("://")[2]
        return namespace + (name[1:] if authority.endswith("/") else name)
    return namespace + name if namespace.endswith("/") else f"{namespace}/{name}"


def _match_path(path: str, pattern: str) -> str | None:
    """Return the path up to the folder at ``{table}`` in the pattern, or ``None`` if the pattern
    does not match.

    ``s3://b/foo/tests/bar.avro`` with ``s3://b/foo/{table}/*`` gives ``s3://b/foo/tests``.
    """
    before, marker, _ = pattern.partition("/{table}")
    if not marker:
        return None
    wanted, folders = before.split("/"), path.split("/")
    if len(folders) <= len(wanted) or not folders[len(wanted)]:
        return None
    if any(want not in ("*", folder) for want, folder in zip(wanted, folders, strict=False)):
        return None
    return "/".join(folders[: len(wanted) + 1])


_MOST_NAMED_FILES = 10
# Parts of a name that count up or distinguish parts: numbers, dates, UUIDs, one or two letters.
_NO_WORD = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|[\d_]+|(?<![^\W\d_])[^\W\d_]{1,2}(?![^\W\d_])",
    re.IGNORECASE,
)


def have_own_names(files: Collection[str]) -> bool:
    """Return whether several files that one query lists have names of their own: ``orders.csv`` and
    ``refunds.csv``.

    Files whose names differ in numbers, dates or a letter, such as ``part-1`` and ``part-2``, are
    parts of a folder.
    """
    names = {_NO_WORD.sub("", file.rpartition("/")[2].partition(".")[0]) for file in files}
    return 1 < len(files) == len(names) and len(files) <= _MOST_NAMED_FILES


DATA_FILE = re.compile(
    r"[^/]+\.(?:csv|tsv|txt|text|json|jsonl|ndjson|xml|parquet|orc|avro|log|dat|gz|bz2|zst|snappy|lz4"
    r"|png|jpe?g|gif|tiff?|webp|pdf|bin|zip|mp[34]|wav)",
    re.IGNORECASE,
)
"""Name of a file. A table's or a folder's name may have a dot, too, but not these endings."""


def named_paths(paths: Iterable[str], *, are_all: bool = True) -> list[str]:
    """Return the files and folders that a query means by the paths that it lists.

    Part files are their folder. So are several files, unless they have names of their own.

    :param are_all: the query lists no others.
    """
    folders: dict[str, None] = {}
    files: list[str] = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder and DATA_FILE.fullmatch(name) and not PART_FILE.fullmatch(name):
            files.append(path)
        else:
            folders[folder if folder and PART_FILE.fullmatch(name) else path] = None
    are_named = are_all and (len(files) == 1 or have_own_names(files))
    named = {
        file if are_named else folder: folder
        for file in files
        for folder in [file.rpartition("/")[0]]
    }
    return [*folders, *(path for path, folder in named.items() if folder not in folders)]


def parent_folders(path: str) -> Iterator[str]:
    """Yield the folders around a path, the innermost first, without a slash at their ends."""
    end = path.rfind("/")
    while end >= 0:
        if not path.endswith("/", 0, end):
            yield path[:end]
        end = path.rfind("/", 0, end)


def folders_around(dataset: DatasetId) -> Iterator[DatasetId]:
    """Yield the folders around the path of a dataset, the innermost first, without a slash at their
    ends.
    """
    return (DatasetId(dataset.namespace, folder) for folder in parent_folders(dataset.name))


def _without_scheme(uri: str, platform: str) -> str:
    name = uri.partition("://")[2]
    return name if platform == "file" else name.removeprefix("/")
