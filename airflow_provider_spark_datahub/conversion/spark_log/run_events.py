"""Makes the RunEvents that OpenLineage's listener would have sent, from Spark's event log of an application without it.

Names follow OpenLineage's rules: a file or table by its location, with the table of a metastore's warehouse as symlink.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from airflow_provider_spark_datahub.conversion.columns.sql import short_statement
from airflow_provider_spark_datahub.conversion.datasets import (
    METADATA_TABLES,
    table_and_selector,
    without_partition_folders,
)
from airflow_provider_spark_datahub.conversion.events import SPARK_LOG, DatasetId
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    SqlExecution,
    dataset_of,
    location_of,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import (
    PlanColumns,
    WrittenColumns,
    with_cloned,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    JDBC_CATALOG,
    KAFKA,
    PlanDataset,
    PlanDatasets,
    described_nodes,
    place_of,
)

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
# A view reads nothing when it is created.
_READS_NOTHING = re.compile(r"\bExecute (?:CreateViewCommand|CreateTempViewUsing|CacheTable|ExplainCommand)\b")
_HIDDEN = re.compile(r"\bScan (?:KafkaRelation|python\w*)\b[^\[\n]*")
_PARTITION = re.compile(r"[^/=]+=[^/]*")
_CREATE = "CREATE"
# OpenLineage's name of the command: a table that it creates was not written.
_CREATE_NODE = "execute_create_data_source_table_command"
_POSTGRES = re.compile(r"jdbc:postgresql://(?P<host>[\w.\[\]:,-]+)/(?P<name>[^/?]+)")
_ICEBERG_CATALOGS = "org.apache.iceberg."
# How plans show that a table is Delta's: its log, its kind of list of files, its description, or its provider.
# Their paths have no brackets: a search that fails stops where the next one begins, however long the text is.
_DELTA_LOG = re.compile(r"/_delta_log\b")
_DELTA_FILES = re.compile(
    r"\b(?:Tahoe|PreparedDelta|CdcAdd)\w{0,40}Index ?\[(?P<files>[^,\[\]\n]+)[,\]]"
    r"|\bDeltaTableV2\([^,(\n]*,(?P<table>[^,(\n]+),"
)
_DELTA_PROVIDER = re.compile(r"\bDeltaCatalog@\w+, (?P<created>[\w.]+), ")
_BEFORE_A_PATH = re.compile(r"[\s,\[(=]")
_LONGEST_PATH = 4096
_SESSION_CATALOGS = ("hive.metastore.uris", "spark.hadoop.hive.metastore.uris")


def events_of_plans(application: LoggedApplication) -> Iterator[dict[str, Any]]:
    """Yield the RunEvents of an application and its SQL executions, in the order of their times.

    An execution and its parts are one run; one without datasets has none. Micro-batches are left out, unless a function
    of the job wrote their rows: their streaming queries have jobs of their own.
    """
    writer = _Writer(application)
    events = [*writer.own_events()]
    for parts in application.root_executions():
        # A micro-batch that names a sink ran a function of the job (foreachBatch).
        if not parts[0].query_run_id or PlanDatasets.of(part.plan for part in parts).sinks:
            events += writer.events_of(parts)
    # Python sorts in place, so that an execution that began and ended in one millisecond stays in order.
    yield from sorted(events, key=lambda event: str(event["eventTime"]))


def unnamed_sources(application: LoggedApplication) -> list[str]:
    """Return the sources and targets in plans whose names do not lead to a dataset, sorted.

    These are tables of catalogues without a known location, tables behind JDBC, and other kinds of scans.
    """
    names = _Names(application)
    found = {f"the target of {method} (an RDD)" for method in application.rdd_writes}
    for parts in application.root_executions(with_micro_batches=False):
        unnamed = (dataset for dataset in _datasets(parts) if names.dataset(dataset) is None)
        found.update(dataset.table or f"JDBC table {dataset.relation}" for dataset in unnamed)
        for node in (node for part in parts for node in described_nodes(part.plan)):
            relation, hidden = node.relation(), _HIDDEN.search(f"{node.head} {node.arguments}")
            if relation is not None:
                found.add(f"JDBCRelation({short_statement(relation.relation)})")
            elif hidden is not None and not any(node.sources()):
                found.add(hidden[0].strip())
            found.update(node.unclear_paths())
    return sorted(found - {""})


def _datasets(parts: Iterable[SqlExecution]) -> list[PlanDataset]:
    named = PlanDatasets.of(part.plan for part in parts)
    return [*named.sources, *named.sinks]


def _delta_paths(plan: str) -> Iterator[str]:
    """Yield the paths of the Delta tables that a plan shows."""
    for found in _DELTA_LOG.finditer(plan):
        if path := _BEFORE_A_PATH.split(plan[max(0, found.start() - _LONGEST_PATH) : found.start()])[-1]:
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


class _Names:
    """Names of the datasets in an application's plans, by OpenLineage's rules."""

    def __init__(self, application: LoggedApplication) -> None:
        self._default_fs = application.default_fs
        self._properties = application.properties
        self._metastore = next((uri for name in _SESSION_CATALOGS if (uri := application.properties.get(name))), "")
        self._warehouse = application.properties.get("spark.sql.warehouse.dir", "").rstrip("/")
        plans = [execution.plan for execution in application.executions.values()]
        delta = [plan for plan in plans if "elta" in plan]
        self._delta_tables: set[DatasetId | str] = {table for plan in delta for table in _created_by_delta(plan)}
        self._delta_tables |= {location_of(path, self._default_fs) for plan in delta for path in _delta_paths(plan)}
        self._locations: dict[str, str] = {}
        # Plans of one execution name a table with its location, plans of another execution only the table.
        for execution in application.executions.values():
            for dataset in _datasets([execution]):
                if dataset.table and dataset.path:
                    location = _table_path(dataset.path)
                    self._locations.setdefault(dataset.table, location)
                    self._warehouse = self._warehouse or _warehouse_of(dataset.table, location)

    def dataset(self, named: PlanDataset) -> dict[str, Any] | None:
        """Return the dataset as an event names it; ``None`` if the catalogue or database of a table is not known."""
        if named.relation:
            return None
        if named.topic:
            return self._named(DatasetId(KAFKA, named.topic))
        if not named.table:
            return self._named(dataset_of(named.path, self._default_fs))
        table = self._with_catalog(named)
        catalog, _, rest = table.partition(".")
        if self._properties.get(f"spark.sql.catalog.{catalog}") == JDBC_CATALOG:
            return self._table_of_database(catalog, rest)
        warehouse = self._properties.get(f"spark.sql.catalog.{catalog}.warehouse", "").rstrip("/")
        if "." in rest and warehouse:
            if self._properties.get(f"spark.sql.catalog.{catalog}.type", "hadoop") != "hadoop":
                return None
            # Iceberg's metadata tables, such as db.orders.snapshots, are read from the table.
            table = table_and_selector(rest, "")[0]
            location = location_of(f"{warehouse}/{table.replace('.', '/')}", self._default_fs)
            is_iceberg = self._properties.get(f"spark.sql.catalog.{catalog}", "").startswith(_ICEBERG_CATALOGS)
            return self._named(location, self._uri(warehouse), table, "iceberg" if is_iceberg else "")
        if "." in rest:
            return None
        return self._session_table(named)

    def _table_of_database(self, catalog: str, table: str) -> dict[str, Any] | None:
        """Return a table of PostgreSQL; ``None`` for other databases."""
        database = _POSTGRES.match(self._properties.get(f"spark.sql.catalog.{catalog}.url", ""))
        if database is None:
            return None
        return self._named(DatasetId(f"postgres://{database['host'].lower()}", f"{database['name']}.{table}"))

    def _with_catalog(self, named: PlanDataset) -> str:
        """Return the table's name with its catalogue, if the plan names the class of exactly one catalogue instead."""
        prefix = "spark.sql.catalog."
        catalogs = [
            name.removeprefix(prefix)
            for name, value in self._properties.items()
            if value == named.catalog_class and name.startswith(prefix) and "." not in name.removeprefix(prefix)
        ]
        is_session = named.table.count(".") != 1 or catalogs == ["spark_catalog"] or len(catalogs) != 1
        return named.table if is_session else f"{catalogs[0]}.{named.table}"

    def _session_table(self, named: PlanDataset) -> dict[str, Any] | None:
        path = self._locations.get(named.table) or _table_path(named.path)
        if not path and self._warehouse:
            path = f"{self._warehouse}{place_of(named.table)}"
        if not path:
            return None
        location = location_of(path, self._default_fs)
        framework = "delta" if not self._delta_tables.isdisjoint((location, named.table)) else ""
        if named.catalog_class.startswith(_ICEBERG_CATALOGS):
            framework = "iceberg"
        warehouse = _warehouse_of(named.table, path)
        if self._metastore:
            catalog = self._metastore.partition(",")[0].replace("thrift://", "hive://")
        elif warehouse:
            catalog = self._uri(warehouse)
        else:
            return self._named(location)
        return self._named(location, catalog, named.table, framework)

    def _uri(self, warehouse: str) -> str:
        dataset = location_of(warehouse, self._default_fs)
        return f"{dataset.namespace}:{dataset.name}" if "://" not in dataset.namespace else "".join(dataset)

    @staticmethod
    def _named(dataset: DatasetId, catalog: str = "", table: str = "", framework: str = "") -> dict[str, Any]:
        identifier = {"namespace": catalog, "name": table, "type": "TABLE"}
        facets: dict[str, Any] = {"symlinks": {"identifiers": [identifier]}} if table else {}
        facets |= {"catalog": {"framework": framework}} if framework else {}
        return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _warehouse_of(table: str, path: str) -> str:
    """Return the warehouse if the table is where a metastore puts its tables; empty if it is elsewhere."""
    return path.removesuffix(place_of(table)) if path.endswith(place_of(table)) else ""


class _Writer:
    def __init__(self, application: LoggedApplication) -> None:
        self._application = application
        self._namespace = application.properties.get("spark.openlineage.namespace") or "default"
        self._names = _Names(application)
        self._columns = PlanColumns()
        self._written: dict[tuple[str, str], dict[str, None]] = {}
        self._run_id = self._uuid("application")
        self._name = application.name.strip() or application.id
        details = {"appName": application.name, "applicationId": application.id, "userName": application.user}
        self._facets: dict[str, Any] = {
            "processing_engine": {"name": "spark", "version": application.spark_version},
            "spark_applicationDetails": {name: value for name, value in details.items() if value},
            "spark_properties": {"properties": {"spark.app.name": application.name}},
        }

    def own_events(self) -> Iterator[dict[str, Any]]:
        """Yield the beginning and the end of the application. A log without an end was not closed."""
        application = self._application
        if application.start_ms is not None:
            yield self._event("START", application.start_ms, self._run_id, self._name, "APPLICATION", self._facets)
        if application.end_ms is not None:
            yield self._event("COMPLETE", application.end_ms, self._run_id, self._name, "APPLICATION", self._facets)

    def events_of(self, parts: list[SqlExecution]) -> Iterator[dict[str, Any]]:
        """Yield the beginning and the end of an execution, with what it read and wrote."""
        root = parts[0]
        # A function of foreachBatch may create a view of its rows before it writes them.
        plans = [part.plan for part in parts if not _READS_NOTHING.search(part.plan)]
        if _READS_NOTHING.search(root.plan):
            return
        inputs, outputs = self._inputs_and_outputs(plans, root.description)
        changed = [*self._changed_tables(plans)]
        outputs += changed
        if not inputs and not outputs:
            return
        is_created = any(
            table["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == _CREATE for table in changed
        )
        node = f"{_CREATE_NODE}." if is_created else ""
        run_id, name = self._uuid(str(root.id)), f"{self._name.replace('.', '_')}.{node}execution_{root.id}"
        parent = {"run": {"runId": self._run_id}, "job": {"namespace": self._namespace, "name": self._name}}
        facets = {**self._facets, "parent": parent}
        datasets = {"inputs": inputs, "outputs": outputs}
        yield self._event("START", root.start_ms, run_id, name, "SQL_JOB", facets) | datasets
        if root.end_ms is None:
            return
        failure = next((part.failure for part in parts if part.failure), "")
        if failure:
            facets["errorMessage"] = {"message": failure, "programmingLanguage": "JVM"}
        kind = "FAIL" if failure else "COMPLETE"
        yield self._event(kind, root.end_ms, run_id, name, "SQL_JOB", facets) | datasets

    def _inputs_and_outputs(
        self, plans: list[str], description: str
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        named = PlanDatasets.of(plans)
        outputs = self._distinct(named.sinks)
        inputs = self._distinct(named.sources)
        columns: dict[tuple[str, str], dict[str, Any]] = {}
        for sink, written in self._columns.of(plans, description).written:
            dataset = self._names.dataset(sink)
            # The path of a new table and the table are one sink.
            key = _key(dataset) if dataset and _key(dataset) in outputs else next(iter(outputs), None)
            if key is not None and (_key(dataset) == key if dataset else len(outputs) == 1):
                fields = columns.setdefault(key, {})
                fields.update(self._fields(with_cloned(written, self._written_columns)))
                self._written.setdefault(key, {}).update(dict.fromkeys(fields))
        for key, fields in columns.items():
            if fields:
                outputs[key]["facets"]["columnLineage"] = {"fields": fields}
        return list(inputs.values()), list(outputs.values())

    def _written_columns(self, named: PlanDataset) -> Iterable[str]:
        """Return the columns that the application has written to a dataset."""
        dataset = self._names.dataset(named)
        return self._written.get(_key(dataset), ()) if dataset is not None else ()

    def _changed_tables(self, plans: list[str]) -> Iterator[dict[str, Any]]:
        """Yield the tables that were created empty, renamed or dropped, with OpenLineage's facet of the change."""
        for node in (node for plan in plans for node in described_nodes(plan)):
            renamed, dropped, created = node.renamed(), node.dropped(), node.created()
            name = renamed[1] if renamed else dropped or created
            table = self._names.dataset(PlanDataset(table=name)) if name else None
            if table is None:
                continue
            kind = "RENAME" if renamed else "DROP" if dropped else _CREATE
            change: dict[str, Any] = {"lifecycleStateChange": kind}
            if renamed:
                old = self._names.dataset(PlanDataset(table=renamed[0]))
                if old is None or _key(old) == _key(table):
                    continue
                change["previousIdentifier"] = {"namespace": old["namespace"], "name": old["name"]}
            table["facets"]["lifecycleStateChange"] = change
            yield table

    def _distinct(self, named: Iterable[PlanDataset]) -> dict[tuple[str, str], dict[str, Any]]:
        datasets = (self._names.dataset(dataset) for dataset in named)
        return {_key(dataset): dataset for dataset in datasets if dataset is not None}

    def _fields(self, written: WrittenColumns) -> dict[str, Any]:
        fields = {}
        for column, sources in written.items():
            inputs = []
            for source, derivation in sources.items():
                dataset = self._names.dataset(source.dataset)
                # The columns of a metadata table are not those of the table.
                selector = table_and_selector(source.dataset.table, "")[1].lower()
                if dataset is not None and selector not in METADATA_TABLES:
                    names = {"namespace": dataset["namespace"], "name": dataset["name"], "field": source.column}
                    inputs.append({**names, "transformations": [{"type": "DIRECT", "subtype": derivation.name}]})
            if inputs:
                fields[column] = {"inputFields": inputs}
        return fields

    def _event(
        self, kind: str, time_ms: int, run_id: str, name: str, job_type: str, facets: dict[str, Any]
    ) -> dict[str, Any]:
        job_facets = {"jobType": {"processingType": "BATCH", "integration": "SPARK", "jobType": job_type}}
        return {
            "eventType": kind,
            "eventTime": datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            "producer": SPARK_LOG,
            "schemaURL": _SCHEMA,
            "run": {"runId": run_id, "facets": dict(facets)},
            "job": {"namespace": self._namespace, "name": name, "facets": job_facets},
            "inputs": [],
            "outputs": [],
        }

    def _uuid(self, part: str) -> str:
        application = self._application
        return str(uuid5(NAMESPACE_URL, f"spark:{application.id}:{application.start_ms}:{part}"))


def _key(dataset: dict[str, Any]) -> tuple[str, str]:
    return dataset["namespace"], dataset["name"]
