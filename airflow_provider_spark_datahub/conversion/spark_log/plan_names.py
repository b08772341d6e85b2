"""Names of the datasets in physical plans: those that events give them, else those that OpenLineage
would give them.

OpenLineage names a file or table by its location, with the table of a metastore's warehouse as
symlink.

Tests: ``tests/conversion/test_run_events.py`` and ``tests/conversion/test_merge.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import product, takewhile
from typing import Any, NamedTuple

from msgspec import structs

from airflow_provider_spark_datahub.conversion.columns.facet import ColumnId
from airflow_provider_spark_datahub.conversion.columns.sql import DatabaseTables
from airflow_provider_spark_datahub.conversion.datasets import (
    FALLBACK_PLATFORM,
    METADATA_TABLES,
    have_own_names,
    session_table,
    table_and_selector,
)
from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    dataset_id,
    without_partition_folders,
)
from airflow_provider_spark_datahub.conversion.facets.dataset import CHANGE_COLUMNS
from airflow_provider_spark_datahub.conversion.runs.fold import DatasetState, RunState
from airflow_provider_spark_datahub.conversion.settings import OTHER_CATALOGS, LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import ColumnSource
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    BIGQUERY,
    JDBC_CATALOG,
    KAFKA,
    RELATIVE,
    PlanDataset,
    PlanDatasets,
    nodes_of,
    place_of,
)

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_DATES = (
    (re.compile(r"\d{4}-\d{2}-\d{2}"), "%Y-%m-%d"),
    (re.compile(r"\d{2}\.\d{2}\.\d{4}"), "%d.%m.%Y"),
    (re.compile(r"\d{8}"), "%Y%m%d"),
)
_PARTITION = re.compile(r"[^/=]+=[^/]*")
_POSTGRES = re.compile(r"jdbc:postgresql://(?P<host>[\w.\[\]:,-]+)/(?P<name>[^/?]+)")
_ICEBERG_CATALOGS = "org.apache.iceberg."
# How plans show that a table is Delta's: its log, its kind of list of files, its description, or
# its provider. Their paths have no brackets: a search that fails stops where the next one begins,
# however long the text is.
_DELTA_LOG = re.compile(r"/_delta_log\b")
_DELTA_FILES = re.compile(
    r"\b(?:Tahoe|PreparedDelta|CdcAdd)\w{0,40}Index ?\[(?P<files>[^,\[\]\n]+)[,\]]"
    r"|\bDeltaTableV2\([^,(\n]*,(?P<table>[^,(\n]+),"
)
_DELTA_PROVIDER = re.compile(r"\bDeltaCatalog@\w+, (?P<created>[\w.]+), ")
_BEFORE_A_PATH = re.compile(r"[\s,\[(=]")
_LONGEST_PATH = 4096
_CATALOG = "spark.sql.catalog."
_GLUE = "arn:aws:glue:"
_ACCOUNTS = ("hive.metastore.glue.catalogid", "spark.glue.accountId")
_SETTINGS = ("", ".type", ".catalog-impl", ".url", ".uri", ".warehouse")


class _NamedDataset(NamedTuple):
    """OpenLineage's name of a dataset.

    :param facets: ``symlinks`` and ``catalog``, as an event would have them; empty if events name
        the dataset.
    :param table: the table behind the path, on the one platform that events show.
    :param is_guess: neither events nor plans show where the table is, so it may be outside of the
        warehouse.
    """

    id: DatasetId
    facets: Mapping[str, Any] = {}
    table: DatasetId | None = None
    is_guess: bool = False


class PlanNames:
    """Names of the datasets in an application's plans.

    :param runs: the application's runs by its events, if it has events.
    :param symlinks: tables behind paths, by these events.
    """

    def __init__(
        self,
        logged: LoggedApplication,
        runs: Sequence[RunState] = (),
        symlinks: Mapping[DatasetId, DatasetId] | None = None,
        settings: LineageSettings | None = None,
    ) -> None:
        self._logged, self._settings = logged, settings or LineageSettings()
        self._default_fs, self._properties = logged.default_fs, logged.properties
        hadoop = {
            name.removeprefix("spark.hadoop."): value for name, value in logged.properties.items()
        }
        self._hive = (
            hadoop.get("hive.metastore.uris", "").partition(",")[0].replace("thrift://", "hive://")
        )
        self._account = next(filter(None, map(hadoop.get, _ACCOUNTS)), "")
        is_glue = "AWSGlueDataCatalog" in hadoop.get("hive.metastore.client.factory.class", "")
        self.has_glue = (
            is_glue or bool(self._account) or self._settings_of("spark_catalog")["kind"] == "glue"
        )
        """Spark's own catalogue is Glue, as OpenLineage sees it."""
        formats = self._settings.catalog_platforms
        self.states: list[tuple[DatasetId, DatasetState]] = [
            item for run in runs for item in (*run.inputs.items(), *run.outputs.items())
        ]
        tables = (symlinks or {}).values()
        platforms = {table.namespace for table in tables}
        of_formats = {
            platform for kind, platform in formats.items() if kind not in (OTHER_CATALOGS, "hive")
        }
        # A format's platform is not that of the other tables in a catalogue. In Glue, there is no
        # other platform.
        self._platforms = {
            platform for platform in platforms if platform.partition("://")[0] not in of_formats
        }
        self._formats = (
            () if any(platform.startswith("glue") for platform in self._platforms) else formats
        )
        # The same name on two platforms does not show which of them a plan means.
        self._reported_tables = (
            {table.name: table for table in tables} if len(platforms) == 1 else {}
        )
        self._places_of_tables = {*(symlinks or ())}
        self._reported = self._places_of_tables | {dataset for dataset, _ in self.states}

    def id_of(self, named: PlanDataset) -> DatasetId | None:
        """Return the name of a dataset; ``None`` if the catalogue or database of a table is not
        known.
        """
        found = self.of(named)
        return found.id if found is not None else None

    def is_whole(self, named: PlanDataset) -> bool:
        """Return whether the name of a dataset has its whole path, not that of a folder around a
        partition.
        """
        return not named.path or self.id_of(named) == location_of(named.path, self._default_fs)

    def column(self, source: ColumnSource) -> ColumnId | None:
        """Return the name of a column; ``None`` if its dataset has none, or is a metadata table
        with other columns.
        """
        dataset = self.id_of(source.dataset)
        is_metadata = table_and_selector(source.dataset.table, "")[1].lower() in METADATA_TABLES
        return ColumnId(dataset, source.column) if dataset is not None and not is_metadata else None

    def of(self, named: PlanDataset) -> _NamedDataset | None:
        """Return the dataset as an event names it; ``None`` if the catalogue or database of a table
        is not known.
        """
        if named.topic:
            return _NamedDataset(dataset_id(KAFKA, named.topic))
        if named.relation or named.catalog_class == BIGQUERY:
            # Without a project, the table is in one that only the driver's environment knows.
            is_known = named.table.count(".") > 1
            return _NamedDataset(dataset_id("bigquery", named.table)) if is_known else None
        if relative := RELATIVE.match(named.path):
            folder = self._properties.get("user.dir")
            named = PlanDataset(f"file:{folder}/{named.path[relative.end() :]}" if folder else "")
        path = location_of(named.path, self._default_fs) if named.path else None
        # Events know better which table is at a place, if they name one.
        known = self._places_of_tables if named.table else self._reported
        if path is not None and path in known:
            return _NamedDataset(path)
        if not named.table:
            return (
                _NamedDataset(_dataset_of(named.path, self._default_fs))
                if path is not None
                else None
            )
        # A table outside of the warehouse may have the name of an earlier one.
        table = None if path in self._reported else self._reported_table(named.table)
        if table is not None:
            return _NamedDataset(table)
        found = self._table(named)
        if found is not None and found.id in known:
            return _NamedDataset(found.id)
        return found

    def _reported_table(self, table: str) -> DatasetId | None:
        """Return the table that events name so, with or without the catalogue in front of it."""
        rest = table.partition(".")[2]
        names = (table, rest, session_table(table, self._properties))
        found = next(filter(None, map(self._reported_tables.get, names)), None)
        # A catalogue may be a database.
        return found or (self._tables_of_databases.find(rest) if "." in rest else None)

    @cached_property
    def _tables_of_databases(self) -> DatabaseTables:
        return DatabaseTables(self._reported)

    # -- names by the rules of OpenLineage

    def _table(self, named: PlanDataset) -> _NamedDataset | None:
        table = self._with_catalog(named)
        catalog, _, rest = table.partition(".")
        if "." not in rest:
            return self._session_table(named) if table else None
        settings = self._settings_of(catalog)
        if settings[""] == JDBC_CATALOG:
            database = _POSTGRES.match(settings[".url"])
            if database is None:
                return None
            host = f"postgres://{database['host'].lower()}"
            return _NamedDataset(dataset_id(host, f"{database['name']}.{rest}"))
        # Iceberg's metadata tables, such as db.orders.snapshots, are read from the table.
        table, is_iceberg = (
            table_and_selector(rest, "")[0],
            settings[""].startswith(_ICEBERG_CATALOGS),
        )
        warehouse = settings[".warehouse"].rstrip("/")
        if is_iceberg and settings["kind"] in ("glue", "hive", "rest"):
            place = settings[".uri"].replace("thrift://", "hive://") or (
                self._hive if settings["kind"] == "hive" else ""
            )
            return self._without_path(
                self._glue if settings["kind"] == "glue" else place, table, "iceberg"
            )
        if not warehouse or settings["kind"] not in ("", "hadoop"):
            return None
        location = location_of(f"{warehouse}/{table.replace('.', '/')}", self._default_fs)
        return _described(location, self._uri(warehouse), table, "iceberg" if is_iceberg else "")

    def _settings_of(self, catalog: str) -> Mapping[str, str]:
        """Return the properties of a catalogue, and its kind: that of Iceberg's class
        ``GlueCatalog`` is ``glue``.
        """
        settings = {
            name: self._properties.get(f"{_CATALOG}{catalog}{name}", "") for name in _SETTINGS
        }
        of_class = settings[".catalog-impl"].rpartition(".")[2].removesuffix("Catalog")
        return settings | {"kind": (settings[".type"] or of_class).lower()}

    def _without_path(self, catalog: str, table: str, framework: str) -> _NamedDataset | None:
        """Return a table whose path the log lacks; ``None`` if tables are named by their paths."""
        if not catalog or self._settings.disable_symlink_resolution:
            return None
        return _described(dataset_id("catalog", f"{catalog}/{table}"), catalog, table, framework)

    @cached_property
    def _glue(self) -> str:
        """The namespace of Glue's catalogue, as far as the log has it; empty if ``namespaces``
        needs more of it.
        """
        account = f":{self._account}" if self._account else ""
        places = [
            place
            for place in self._settings.namespaces
            if place.startswith(_GLUE) and place.endswith(account)
        ]
        if len(places) > bool(account):
            return ""
        return places[0] if places else f"{_GLUE}{account}"

    def _with_catalog(self, named: PlanDataset) -> str:
        """Return the table's name with the catalogue whose class the plan names; empty if several
        have that class.
        """
        of_class, _, instance = named.catalog_class.partition("@")
        catalogs = [
            name.removeprefix(_CATALOG)
            for name, value in self._properties.items()
            if value == of_class
            and name.startswith(_CATALOG)
            and "." not in name.removeprefix(_CATALOG)
        ]
        if len(catalogs) > 1:
            # Elsewhere, plans name tables of the same instance with their catalogue.
            full_names = {table for _, table in self._tables}
            tables = [table for of, table in self._tables if instance and of == named.catalog_class]
            names = product(catalogs, tables or [named.table])
            found = {catalog for catalog, table in names if f"{catalog}.{table}" in full_names}
            return f"{found.pop()}.{named.table}" if len(found) == 1 else ""
        return (
            f"{catalogs[0]}.{named.table}"
            if catalogs and catalogs != ["spark_catalog"]
            else named.table
        )

    @cached_property
    def _tables(self) -> set[tuple[str, str]]:
        """The names of tables in plans, each with the class of its catalogue."""
        return {(one.catalog_class, one.table) for one in PlanDatasets.of(self._plans).all}

    @property
    def _plans(self) -> list[str]:
        return [execution.plan for execution in self._logged.executions.values()]

    def _session_table(self, named: PlanDataset) -> _NamedDataset | None:
        warehouse, locations = self._places
        table = session_table(named.table, self._properties)
        path = locations.get(table) or _table_path(named.path)
        is_guess = not path
        if is_guess and warehouse:
            path = f"{warehouse}{place_of(table)}"
        if is_guess and self.has_glue and not self._platforms:
            return self._without_path(self._glue, table, "")
        if not path:
            return None
        location = location_of(path, self._default_fs)
        framework = "delta" if not self.delta_tables.isdisjoint((location, named.table)) else ""
        if named.catalog_class.startswith(_ICEBERG_CATALOGS):
            framework = "iceberg"
        warehouse = _warehouse_of(table, path)
        if not (self._hive or warehouse or self.has_glue):
            return _NamedDataset(location)
        is_new = location not in self._places_of_tables
        if self._platforms and is_new and framework not in self._formats:
            # A plan does not show the platform of the catalogue: Glue, for example.
            (platform, *others) = self._platforms
            of_catalog = dataset_id(platform, table)
            return (
                _NamedDataset(location, table=of_catalog, is_guess=is_guess) if not others else None
            )
        catalog = self._glue if self.has_glue else self._hive or self._uri(warehouse)
        return (
            _described(location, catalog, table, framework)._replace(is_guess=is_guess)
            if catalog
            else None
        )

    @cached_property
    def _places(self) -> tuple[str, dict[str, str]]:
        """The warehouse, and the places of tables: one execution may name a table with its
        location, others without.
        """
        warehouse = self._properties.get("spark.sql.warehouse.dir", "").rstrip("/")
        locations: dict[str, str] = {}
        for plan in self._plans:
            for dataset in PlanDatasets.of([plan]).all:
                if dataset.table and dataset.path:
                    location = _table_path(dataset.path)
                    locations.setdefault(session_table(dataset.table, self._properties), location)
                    warehouse = warehouse or _warehouse_of(dataset.table, location)
        return warehouse, locations

    @cached_property
    def delta_tables(self) -> set[DatasetId | str]:
        """Locations of the Delta tables that the plans show, and names of those that they create."""
        plans = [plan for plan in self._plans if "elta" in plan]
        paths = {
            location_of(path, self._default_fs) for plan in plans for path in _delta_paths(plan)
        }
        return {*paths, *(table for plan in plans for table in _created_by_delta(plan))}

    def change_feeds(self) -> set[DatasetId]:
        """Return the Delta tables whose changes the application reads."""
        plans = [plan for plan in self._plans if "_change_type" in plan]
        scans = [node for node in nodes_of(plans) if node.columns_beside_files() == CHANGE_COLUMNS]
        return {
            _dataset_of(source.path, self._default_fs)
            for scan in scans
            for source in scan.sources()
            if source.path
        }

    def _uri(self, warehouse: str) -> str:
        dataset = _location(warehouse, self._default_fs)
        return (
            f"{dataset.namespace}:{dataset.name}"
            if "://" not in dataset.namespace
            else "".join(dataset)
        )


def _described(dataset: DatasetId, catalog: str, table: str, framework: str) -> _NamedDataset:
    facets = {"symlinks": {"identifiers": [{"namespace": catalog, "name": table, "type": "TABLE"}]}}
    return _NamedDataset(
        dataset, facets | ({"catalog": {"framework": framework}} if framework else {})
    )


def _delta_paths(plan: str) -> Iterator[str]:
    """Yield the paths of the Delta tables that a plan shows."""
    for found in _DELTA_LOG.finditer(plan):
        if path := _BEFORE_A_PATH.split(
            plan[max(0, found.start() - _LONGEST_PATH) : found.start()]
        )[-1]:
            yield path
    for found in _DELTA_FILES.finditer(plan):
        yield found[found.lastgroup or 0]


def _created_by_delta(plan: str) -> Iterator[str]:
    """Yield the names of the tables that a plan creates with Delta as their provider."""
    for line in plan.splitlines() if "),Some(delta)," in plan else ():
        found = _DELTA_PROVIDER.search(line)
        properties = line.find("TableSpec(Map(", found.end()) if found is not None else -1
        if found is not None and properties >= 0 and line.find("),Some(delta),", properties) >= 0:
            yield found["created"]


def _table_path(path: str) -> str:
    """Return the path of a table from that of a partition."""
    whole = path.removesuffix("/")
    table = without_partition_folders(whole, _PARTITION)
    return path if table == whole else table


def _warehouse_of(table: str, path: str) -> str:
    """Return the warehouse if the table is where a metastore puts its tables; empty if it is
    elsewhere.
    """
    place = place_of(table)
    return path[: -len(place)] if path.lower().endswith(place.lower()) else ""


# -- paths

# OpenLineage's names of the schemes of object stores.
_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
_STORES |= {"abfs": "abfss", "abfss": "abfss", "wasb": "wasbs", "wasbs": "wasbs"}
# RDDs take patterns, and several paths with commas in between.
_PATTERN = re.compile(r"[*?\[{]")
_BETWEEN_PATHS = re.compile(r",(?![^{}]{0,200}\})")
_ANY_FOLDER = re.compile(r"/\*(?=/)")


class FilesOfRdds:
    """Files and folders that RDDs read. OpenLineage names the folder around a file, and a pattern
    as it is.
    """

    def __init__(self, logged: LoggedApplication) -> None:
        self._default_fs = logged.default_fs
        self._all: dict[DatasetId, dict[DatasetId, None]] = {}
        of_executions = (
            execution.rdd_paths for execution in logged.executions.values() if execution.rdd_paths
        )
        for paths in (*logged.rdd_reads.values(), *of_executions):
            for reported, datasets in self._by_reported(paths).items():
                self._all.setdefault(reported, {}).update(datasets)

    def datasets(self, paths: Iterable[str]) -> list[DatasetId]:
        """Return what an RDD reads. :param paths: the names of its first RDDs."""
        return [
            *dict.fromkeys(
                dataset for named in self._by_reported(paths).values() for dataset in named
            )
        ]

    def named_in(self, run: RunState, paths: Iterable[str]) -> RunState:
        """Return the run with what RDDs read in place of the folders and patterns that its events
        name.

        :param paths: what the run's own jobs read. A run without jobs reads what others read of
            these folders.
        """
        named = self._all | self._by_reported(paths) if self._all else {}
        inputs: dict[DatasetId, DatasetState] = {}
        for dataset, state in run.inputs.items() if named else ():
            # No event has a schema of what an RDD reads.
            found = named.get(dataset, {}) if state.schema is None else {}
            inputs |= dict.fromkeys(found if found and dataset not in found else (dataset,), state)
        return (
            structs.replace(run, inputs=inputs)
            if inputs.keys() != run.inputs.keys() and named
            else run
        )

    def _by_reported(self, paths: Iterable[str]) -> dict[DatasetId, dict[DatasetId, None]]:
        """Return what RDDs read, by the names that OpenLineage gives it: the folder itself for its
        parts.
        """
        found: dict[DatasetId, dict[DatasetId, None]] = {}
        for path in (path for listed in paths for path in _BETWEEN_PATHS.split(listed)):
            if _PATTERN.search(path):
                reported, dataset = _dataset_of(path, self._default_fs), self._around_pattern(path)
            else:
                reported = _dataset_of(path.rstrip("/").rpartition("/")[0], self._default_fs)
                dataset = _dataset_of(path, self._default_fs)
            found.setdefault(reported, {})[dataset] = None
        return {
            reported: datasets
            if len(datasets) == 1 or have_own_names([one.name for one in datasets])
            else {reported: None}
            for reported, datasets in found.items()
        }

    def _around_pattern(self, path: str) -> DatasetId:
        """Return the folder around the files of a pattern: ``/logs`` of ``/logs/2026/*/*.log``."""
        whole = _location(path.rpartition("/")[0] + "/", self._default_fs)
        # Any folder may be a month or a day.
        cut = _dataset_of(_ANY_FOLDER.sub("/01", f"{whole.name}/"), "").name.count("/")
        folders = takewhile(
            lambda folder: not _PATTERN.search(folder), whole.name.split("/")[: cut + 1]
        )
        return _of_store(whole._replace(name="/".join(folders) or "/"))


def location_of(path: str, default_fs: str) -> DatasetId:
    """Return a path as OpenLineage names it: ``file:/a`` is ``file`` ``/a``, ``s3a://b/a`` is
    ``s3://b`` ``a``.

    :param default_fs: Hadoop's ``fs.defaultFS`` for a path without a scheme; empty if it is not
        known.
    """
    return _of_store(_location(path, default_fs))


def _of_store(dataset: DatasetId) -> DatasetId:
    scheme, separator, bucket = dataset.namespace.partition("://")
    store = _STORES.get(scheme)
    return (
        dataset_id(f"{store}{separator}{bucket}", dataset.name.lstrip("/") or "/")
        if store
        else dataset
    )


def _location(path: str, default_fs: str) -> DatasetId:
    """Return a path, with its leading slash."""
    matched = _SCHEME.match(path)
    if matched is None:
        # The Java listener takes HDFS if the file system is not known.
        scheme, _, host = default_fs.rstrip("/").partition("://")
        namespace = f"{scheme}://{host}" if host else scheme.rstrip(":") or FALLBACK_PLATFORM
        return dataset_id(namespace, _trimmed(path))
    scheme, rest = matched["scheme"], path[matched.end() :]
    if not rest.startswith("//"):
        return dataset_id(scheme, _trimmed(rest))
    host, slash, below = rest[2:].partition("/")
    return dataset_id(f"{scheme}://{host}" if host else scheme, _trimmed(slash + below))


def _dataset_of(path: str, default_fs: str) -> DatasetId:
    """Return the dataset of files at a path, without the partitions at its end: ``k=v``, dates,
    ``2026/01/31``.

    The rules are those of OpenLineage's ``DatasetNameTrimmer`` classes (since 1.39).
    """
    location = _location(path, default_fs)
    folders = location.name.split("/")
    while len(folders) > 2 and (number := _partition_folders(folders)):
        folders = folders[:-number]
    return _of_store(dataset_id(location.namespace, "/".join(folders) or "/"))


def _partition_folders(folders: Sequence[str]) -> int:
    """Return how many folders at the end of a path are one partition."""
    last = folders[-1]
    if last.count("=") == 1 or _is_date(last) or _is_month(last):
        return 1
    for number, pattern in ((2, "%Y%m"), (3, "%Y%m%d")):
        if len(folders) > number + 1 and _parses("".join(folders[-number:]), pattern):
            return number
    return 0


def _is_month(folder: str) -> bool:
    return any(_parses(folder, pattern) for pattern in ("%Y%m", "%Y-%m"))


def _is_date(folder: str) -> bool:
    """Return whether a folder is a date, with or without a time."""
    for expression, pattern in _DATES:
        for found in expression.finditer(folder):
            if _parses(found[0], pattern):
                rest = folder.replace(found[0], "", 1).replace("T", "", 1).replace("Z", "", 1)
                return not re.sub(r"[\s:.\d-]", "", rest)
    return False


def _parses(text: str, pattern: str) -> bool:
    """Return whether a text is a date of the pattern, with leading zeros."""
    try:
        return datetime.strptime(text, pattern).replace(tzinfo=UTC).strftime(pattern) == text
    except ValueError:
        return False


def _trimmed(path: str) -> str:
    return path.rstrip("/") or "/"
