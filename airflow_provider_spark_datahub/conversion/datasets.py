"""What Iceberg puts behind a table's name: a branch, a tag, a point in time, or one of its metadata tables.

The URN of an OpenLineage dataset (conversion rules, section 3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.events import DatasetId, Facets, as_objects, as_text
from airflow_provider_spark_datahub.conversion.paths import PATH_PLATFORMS, PathName, name_of_plain_path, name_of_uri
from airflow_provider_spark_datahub.conversion.redaction import redact_url
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

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


_SCHEME_PLATFORMS = {"awsathena": "athena", "sqlserver": "mssql"}
_REMEMBERED = 4096
_GLUE_PREFIXES = ("aws:glue:", "arn:aws:glue:")


@dataclass(frozen=True, slots=True)
class DatasetName:
    """What a dataset's URN is made of."""

    platform: str
    name: str
    env: str
    instance: str | None = None
    urn: str = field(init=False, compare=False)
    """The dataset's URN."""

    def __post_init__(self) -> None:
        """Spell the URN once: every edge of the dataset holds it."""
        object.__setattr__(self, "urn", urns.dataset_urn(self.platform, self.name, self.env, self.instance))

    @property
    def full_name(self) -> str:
        """The name with the platform instance in front, as it stands in the URN (unencoded)."""
        return f"{self.instance}.{self.name}" if self.instance else self.name


@dataclass
class Symlinks:
    """The tables behind paths, collected over a whole application before any dataset is named (Deviation 12)."""

    by_dataset: dict[DatasetId, DatasetId] = field(default_factory=dict)

    def learn(self, dataset: DatasetId, facets: Facets, settings: LineageSettings) -> bool:
        """Remember the table that a dataset's ``symlinks`` facet names; a later one replaces an earlier one.

        A branch or a metadata table of Iceberg is the table: OpenLineage names each by the same path.

        :returns: whether the other facets are of the table itself, not of a metadata table.
        """
        table = table_of(facets, settings)
        if table is None:
            return True
        selector = ""
        if table.name.count(".") > 1 and facets["catalog"].get("framework") == "iceberg":
            name, selector = table_and_selector(table.name, dataset.name)
            table = table._replace(name=name)
        self.by_dataset[dataset] = table
        return not is_metadata(selector)


def table_of(facets: Facets, settings: LineageSettings) -> DatasetId | None:
    """The table that the ``symlinks`` facet names, as (platform, name), or ``None``.

    Of several identifiers of type ``TABLE`` the last one counts.
    """
    if "symlinks" not in facets or settings.disable_symlink_resolution:
        return None
    table = facets.once(_table)
    return DatasetId(_catalog_platform(table.namespace, facets, settings), table.name) if table else None


def _table(facets: Facets) -> DatasetId | None:
    """The table as (namespace of its catalogue, name)."""
    table = None
    for identifier in as_objects(facets["symlinks"].get("identifiers")):
        name = as_text(identifier.get("name"))
        if identifier.get("type") == "TABLE" and name:
            if name.startswith("table/"):
                name = name.removeprefix("table/").replace("/", ".")
            # Of Iceberg in Snowflake's catalogue the dataset is the table, and this is where its files lie.
            if "/" not in name:
                table = DatasetId(as_text(identifier.get("namespace")), name)
    return table


def _catalog_platform(namespace: str, facets: Facets, settings: LineageSettings) -> str:
    if namespace.startswith(_GLUE_PREFIXES):
        return "glue"
    if settings.catalog_platforms:
        catalog, storage = facets["catalog"], facets["storage"]
        for described in (catalog.get("framework"), catalog.get("type"), storage.get("storageLayer")):
            platform = settings.catalog_platforms.get(as_text(described).lower())
            if platform:
                return platform
    return settings.hive_platform_alias


class DatasetNamer:
    """Names the datasets of applications; remembers what it named last.

    :param symlinks: the tables behind paths, known for the whole application.
    """

    def __init__(self, settings: LineageSettings, symlinks: Mapping[DatasetId, DatasetId]) -> None:
        self._plain_name = _plain_names(settings).name
        self._cache: dict[DatasetId, DatasetName | None] = {}
        self._by_location = self._table_names(symlinks)
        self.unusable: dict[DatasetId, str] = {}
        """Datasets that no URN can be made of, and why."""

    def _table_names(self, symlinks: Mapping[DatasetId, DatasetId]) -> dict[str, DatasetName]:
        names: dict[str, DatasetName] = {}
        for dataset, table in symlinks.items():
            location, name = self._plain_name(dataset), self._plain_name(table)
            if location is not None and name is not None:
                names[location.urn] = name
        return names

    def name(self, dataset: DatasetId) -> DatasetName | None:
        """The dataset's name: its table's where one is known, or ``None`` where no URN can be made of it."""
        try:
            return self._cache[dataset]
        except KeyError:
            if len(self._cache) >= _REMEMBERED:
                self._cache.clear()
            name = self._cache[dataset] = self._resolve(dataset)
            return name

    def _resolve(self, dataset: DatasetId) -> DatasetName | None:
        plain = self._plain_name(dataset)
        if plain is None or not plain.name:
            self.unusable[dataset] = "it has no name"
            return None
        name = self._by_location.get(plain.urn, plain)
        if urns.is_too_long(name.urn):
            self.unusable[dataset] = f"its URN is longer than {urns.MAX_URN_BYTES} bytes, which DataHub drops"
            return None
        return name


class _PlainNames:
    """Names of datasets by what OpenLineage calls them, without the tables behind paths."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._partition = settings.partition_pattern
        self.name = lru_cache(maxsize=_REMEMBERED)(self._name)

    def _name(self, dataset: DatasetId) -> DatasetName | None:
        namespace, name = dataset.namespace.strip(), dataset.name
        if self._settings.lower_case_dataset_urns:
            namespace, name = namespace.lower(), name.lower()
        if "://" not in namespace:
            return self._named(namespace, "", name) if namespace else None
        # jdbc:h2://x is a URI of the scheme jdbc.
        scheme = namespace.partition(":")[0]
        if scheme in PATH_PLATFORMS:
            uri = _join(redact_url(namespace), name)
            return self._path(name_of_uri(uri, self._settings.path_specs, self._partition))
        platform = _SCHEME_PLATFORMS.get(scheme, scheme).strip()
        return self._named(platform, namespace.partition("://")[2], name) if platform else None

    def _path(self, path: PathName) -> DatasetName:
        if path.spec is not None:
            return DatasetName(
                path.platform, path.name, path.spec.env or self._settings.env, path.spec.platform_instance
            )
        return DatasetName(path.platform, path.name, self._settings.env, self._settings.dataset_platform_instance)

    def _named(self, platform: str, authority: str, name: str) -> DatasetName:
        """A dataset whose name is no URI: a table, a topic, or a path whose host is no part of the name."""
        if name.startswith("/"):
            path = name_of_plain_path(platform, authority, name, self._settings.path_specs, self._partition)
            if path.spec is not None:
                return self._path(path)
            name = path.name
        else:
            name = self._with_schema(platform, name)
        specs = [spec for spec in self._settings.path_specs if spec.platform == platform]
        instance = next((spec.platform_instance for spec in specs if spec.platform_instance), None)
        env = next((spec.env for spec in specs if spec.env), None)
        return DatasetName(
            platform, name, env or self._settings.env, instance or self._settings.dataset_platform_instance
        )

    def _with_schema(self, platform: str, name: str) -> str:
        """Deviation 11: ``shop.orders`` of PostgreSQL is ``shop.public.orders``."""
        schema = self._settings.default_schemas.get(platform)
        parts = name.split(".")
        if schema and len(parts) == 2 and all(parts) and "/" not in name:
            return f"{parts[0]}.{schema}.{parts[1]}"
        return name


_plain_names = lru_cache(maxsize=4)(_PlainNames)


def _join(namespace: str, name: str) -> str:
    """Namespace and name with exactly one slash between them."""
    if name.startswith("/"):
        authority = namespace.partition("://")[2]
        return namespace + (name[1:] if authority.endswith("/") else name)
    return namespace + name if namespace.endswith("/") else f"{namespace}/{name}"
