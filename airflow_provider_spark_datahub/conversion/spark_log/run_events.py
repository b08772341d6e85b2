"""Makes the RunEvents that OpenLineage's listener would have sent, from Spark's event log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from airflow_provider_spark_datahub.conversion.columns.sql import short_statement
from airflow_provider_spark_datahub.conversion.events import RDD_JOB, SPARK_LOG, DatasetId, JsonObject
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.fold import REPLACES
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    SqlExecution,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import (
    ExecutionColumns,
    PlanColumns,
    WrittenColumns,
    with_cloned,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import FilesOfRdds, PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plans import Node, Plan, PlanDataset, PlanDatasets

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
# A view reads nothing when it is created.
_READS_NOTHING = re.compile(r"\bExecute (?:CreateViewCommand|CreateTempViewUsing|CacheTable|ExplainCommand)\b")
# Spark reads the first lines of CSV files, or all of them, to know their columns.
_READS_SCHEMA = re.compile(
    r"== Physical Plan ==\n(?:CollectLimit|DeserializeToObject) \(\d+\)\n"
    r"(?:[ +*-]{1,9}(?:Filter|Project) \(\d+\)\n){0,2}[ +*-]{1,9}Scan text  \(1\)\n\n"
)
_READERS = re.compile(r"(?!.* at )|(?:csv|load|sql|createTable|createExternalTable) at ")
_HIDDEN = re.compile(r"\bScan (?:KafkaRelation|python\w*)\b[^\[\n]*")
_CREATE = "CREATE"
# OpenLineage's name of the command: a table that it creates was not written.
_CREATE_NODE = "execute_create_data_source_table_command"
_SNAPSHOT = re.compile(
    r"\bIceberg\w{0,20}Scan\(table=(?P<table>[\w.]{1,300}), [^\n]{0,200}?\bsnapshotId=(?P<version>\d{1,20}),"
)
# Delta lists the files of each scan in an execution of its own, which reads the state of the table's version.
_LISTS_FILES = ("Filtering files for query", "MERGE operation - scanning files for matches")
_STATE = re.compile(r"\bDelta Table State #(?P<version>\d{1,20}) - (?P<path>\S+)/_delta_log\b")
_SIZES = ("size of files read", "total data file size (bytes)")
# Rows, bytes and files in the metrics of a command that writes files, of Iceberg's commit, and of Delta's commands.
_WRITTEN = (
    ("number of output rows", "written output", "number of written files"),
    ("number of added records", "total size of added files (bytes)", "number of added data files"),
    ("", "number of target bytes added", ""),
    ("", "number of bytes added", ""),
)
_NOTHING: JsonObject = {}
_STATISTICS = ("rowCount", "size", "fileCount")
_COMMIT = {
    "addedDataFiles": "number of added data files",
    "totalDataFiles": "total number of data files",
    "addedRecords": "number of added records",
    "totalRecords": "total number of records",
}


def events_of_application(application: LoggedApplication) -> Iterator[dict[str, Any]]:
    """Yield the RunEvents of an application without the listener, in the order of their times.

    Micro-batches are left out, unless a function of the job wrote their rows: their streaming queries have jobs of
    their own.
    """
    log_events, columns = LogEvents(application, PlanNames(application)), PlanColumns()
    events = [*log_events.of_application()]
    for parts in application.root_executions():
        plans = _plans_of(parts)
        # A micro-batch that names a sink ran a function of the job (foreachBatch).
        if not parts[0].query_run_id or PlanDatasets.of(part.plan for part in parts).sinks:
            events += log_events.of_execution(parts, columns.of(plans, parts[0].description))
    # Python sorts in place, so that an execution that began and ended in one millisecond stays in order.
    yield from sorted(events, key=lambda event: str(event["eventTime"]))


def _plans_of(parts: Sequence[SqlExecution]) -> list[str]:
    """Return the plans of an execution that read data, none if it only creates a view or reads the schema of files.

    A function of ``foreachBatch`` may create a view of its rows before it writes them.
    """
    root = parts[0]
    reads_schema = _READERS.match(root.description) and _READS_SCHEMA.match(root.plan)
    if reads_schema or _READS_NOTHING.search(root.plan):
        return []
    return [part.plan for part in parts if not _READS_NOTHING.search(part.plan)]


def unnamed_sources(application: LoggedApplication) -> list[str]:
    """Return the sources and targets in plans whose names do not lead to a dataset, sorted.

    These are tables of catalogues without a known location, tables behind JDBC, and other kinds of scans.
    """
    names = PlanNames(application)
    found = {f"the target of {method} (an RDD)" for method in application.rdd_writes}
    for parts in application.root_executions(with_micro_batches=False):
        unnamed = (dataset for dataset in PlanDatasets.of(part.plan for part in parts).all if names.of(dataset) is None)
        found.update(dataset.table or f"JDBC table {dataset.relation}" for dataset in unnamed)
        for node in (node for part in parts for node in Plan.of(part.plan).nodes):
            relation, hidden = node.relation(), _HIDDEN.search(f"{node.head} {node.arguments}")
            if relation is not None:
                found.add(f"JDBCRelation({short_statement(relation.relation)})")
            elif hidden is not None and not any(node.sources()):
                found.add(hidden[0].strip())
            found.update(node.unclear_paths())
    return sorted(map(redact_text, found - {""}))


class LogEvents:
    """Makes RunEvents of an application and its SQL executions: an execution and its parts are one run.

    :param names: names of the datasets in its plans.
    :ivar files: what RDDs read.
    :ivar tables: tables behind paths whose platform only the application's own events show.
    """

    def __init__(self, application: LoggedApplication, names: PlanNames) -> None:
        self._application = application
        self._namespace = application.properties.get("spark.openlineage.namespace") or "default"
        self._names = names
        self.files = FilesOfRdds(application)
        self.tables: dict[DatasetId, DatasetId] = {}
        self._written: dict[tuple[str, str], dict[str, None]] = {}
        self._run_id = self._uuid("application")
        self._name = application.name.strip() or application.id
        details = {"appName": application.name, "applicationId": application.id, "userName": application.user}
        parent = {"run": {"runId": self._run_id}, "job": {"namespace": self._namespace, "name": self._name}}
        self._own_facets: dict[str, Any] = {
            "processing_engine": {"name": "spark", "version": application.spark_version},
            "spark_applicationDetails": {name: value for name, value in details.items() if value},
            "spark_properties": {"properties": {"spark.app.name": application.name}},
        }
        self._facets = {**self._own_facets, "parent": parent}

    def of_application(self) -> Iterator[dict[str, Any]]:
        """Yield the beginning, the jobs of RDDs and the end of the application. A log without an end was not closed."""
        application = self._application
        if application.start_ms is not None:
            yield self._event("START", application.start_ms, self._run_id, self._name, "APPLICATION", self._own_facets)
        for number, (start_ms, paths) in enumerate(application.rdd_reads.items()):
            run_id, name = self._uuid(f"rdd job {number}"), f"{self._name.replace('.', '_')}.rdd_job_{number}"
            inputs = self._inputs_of_rdds(paths)
            yield self._event("START", start_ms, run_id, name, RDD_JOB, self._facets) | {"inputs": inputs}
        if application.end_ms is not None:
            yield self._event("COMPLETE", application.end_ms, self._run_id, self._name, "APPLICATION", self._own_facets)

    def of_execution(self, parts: Sequence[SqlExecution], columns: ExecutionColumns) -> Iterator[dict[str, Any]]:
        """Yield the beginning and the end of an execution, with what it read and wrote; nothing if it has no dataset.

        :param columns: the columns of its plans, without those that only create a view.
        """
        root, plans = parts[0], _plans_of(parts)
        inputs, outputs = self._inputs_and_outputs(plans, columns)
        inputs += self._inputs_of_rdds(SqlExecution.paths_of_rdds(parts))
        changed = [*self._changed_tables(plans)]
        outputs += changed
        reads = self.reads(parts)
        inputs = [one | {"inputFacets": facets} for one in inputs for facets in reads.get(DatasetId(*_key(one)), [{}])]
        if len(outputs) == 1:
            outputs[0]["outputFacets"] = _write_of(parts)
            is_table = "symlinks" in outputs[0]["facets"]
            if not is_table and DatasetId(*_key(outputs[0])) in self.replaced(parts):
                outputs[0]["outputFacets"][REPLACES] = {}
        if not inputs and not outputs:
            return
        is_created = any(
            table["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == _CREATE for table in changed
        )
        node = f"{_CREATE_NODE}." if is_created else ""
        run_id, name = self._uuid(str(root.id)), f"{self._name.replace('.', '_')}.{node}execution_{root.id}"
        facets = {**self._facets}
        datasets = {"inputs": inputs, "outputs": outputs}
        yield self._event("START", root.start_ms, run_id, name, "SQL_JOB", facets) | datasets
        if root.end_ms is None:
            return
        failure = next((part.failure for part in parts if part.failure), "")
        if failure:
            facets["errorMessage"] = {"message": failure, "programmingLanguage": "JVM"}
        kind = "FAIL" if failure else "COMPLETE"
        yield self._event(kind, root.end_ms, run_id, name, "SQL_JOB", facets) | datasets

    def reads(self, parts: Sequence[SqlExecution]) -> dict[DatasetId, list[JsonObject]]:
        """Return the facets of each read by an execution, as OpenLineage's inputs would have them."""
        versions, sizes = dict[DatasetId, dict[int, None]](), dict[DatasetId, list[int]]()
        for part in parts:
            for dataset, version in _versions(part):
                if (found := self._names.id_of(dataset)) is not None:
                    versions.setdefault(found, {})[version] = None
            for node, counts in _counted(part):
                for size in (counts[name] for name in _SIZES if name in counts):
                    for found in filter(None, map(self._names.id_of, node.sources())):
                        sizes.setdefault(found, []).append(size)
        reads: dict[DatasetId, list[JsonObject]] = {}
        for read in versions.keys() | sizes.keys():
            listed: list[JsonObject] = [{"icebergScanReport": {"snapshotId": one}} for one in versions.get(read, ())]
            counted: list[JsonObject] = [{"inputStatistics": {"size": size}} for size in sizes.get(read, ())]
            reads[read] = [{**one, **other} for one, other in zip_longest(listed, counted, fillvalue=_NOTHING)]
        return reads

    def replaced(self, parts: Sequence[SqlExecution]) -> set[DatasetId]:
        """Return the datasets that hold nothing but what an execution wrote, by its overwrites."""
        plans = (part.plan for part in parts if not (part.is_dynamic or part.failure or part.end_ms is None))
        nodes = (node for plan in plans for node in Plan.of(plan).nodes if node.replaces_all())
        sinks = (sink for node in nodes for sink in node.sinks() if self._names.is_whole(sink))
        return {found for found in map(self._names.id_of, sinks) if found is not None}

    def _inputs_and_outputs(
        self, plans: list[str], found: ExecutionColumns
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        named = PlanDatasets.of(plans)
        outputs = self._distinct(named.sinks)
        inputs = self._distinct(named.sources)
        columns: dict[tuple[str, str], dict[str, Any]] = {}
        for sink, written in found.written if plans else ():
            dataset = self._dataset(sink)
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

    def _inputs_of_rdds(self, paths: Iterable[str]) -> list[dict[str, Any]]:
        return [{**dataset._asdict(), "facets": {}} for dataset in self.files.datasets(paths)]

    def _written_columns(self, named: PlanDataset) -> Iterable[str]:
        """Return the columns that the application has written to a dataset."""
        dataset = self._dataset(named)
        return self._written.get(_key(dataset), ()) if dataset is not None else ()

    def _changed_tables(self, plans: list[str]) -> Iterator[dict[str, Any]]:
        """Yield the tables that were created empty, renamed or dropped, with OpenLineage's facet of the change."""
        for change in (node.change() for plan in plans for node in Plan.of(plan).nodes):
            table = self._dataset(PlanDataset(table=change.table)) if change is not None else None
            if change is None or table is None:
                continue
            facet: dict[str, Any] = {"lifecycleStateChange": change.kind}
            if change.previous:
                old = self._dataset(PlanDataset(table=change.previous))
                if old is None or _key(old) == _key(table):
                    continue
                facet["previousIdentifier"] = {"namespace": old["namespace"], "name": old["name"]}
            table["facets"]["lifecycleStateChange"] = facet
            yield table

    def _dataset(self, named: PlanDataset) -> dict[str, Any] | None:
        found = self._names.of(named)
        if found is None:
            return None
        if found.table is not None:
            self.tables[found.id] = found.table
        return {**found.id._asdict(), "facets": {**found.facets}}

    def _distinct(self, named: Iterable[PlanDataset]) -> dict[tuple[str, str], dict[str, Any]]:
        datasets = map(self._dataset, named)
        return {_key(dataset): dataset for dataset in datasets if dataset is not None}

    def _fields(self, written: WrittenColumns) -> dict[str, Any]:
        fields = {}
        for column, sources in written.items():
            named = [(self._names.column(source), derivation) for source, derivation in sources.items()]
            inputs = [
                {
                    **source.dataset._asdict(),
                    "field": source.field,
                    "transformations": [{"type": "DIRECT", "subtype": derivation.name}],
                }
                for source, derivation in named
                if source is not None
            ]
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


# -- versions and amounts, by plans and the driver's metrics


def _write_of(parts: Sequence[SqlExecution]) -> dict[str, Any]:
    """Return the facets of what an execution wrote, as OpenLineage's output would have them."""
    facets, totals = dict[str, Any](), dict[str, int]()
    for _, counts in (counted for part in parts for counted in _counted(part)):
        for metrics in (metrics for metrics in _WRITTEN if metrics[1] in counts):
            for key, name in zip(_STATISTICS, metrics, strict=True):
                if name in counts:
                    totals[key] = totals.get(key, 0) + counts[name]
        if counts.keys() >= {*_COMMIT.values()}:
            facets["icebergCommitReport"] = {"commitMetrics": {key: counts[name] for key, name in _COMMIT.items()}}
    return facets | ({"outputStatistics": totals} if totals else {})


def _versions(part: SqlExecution) -> Iterator[tuple[PlanDataset, int]]:
    # Those of metadata tables name the snapshot that they describe.
    for found in _SNAPSHOT.finditer(part.plan):
        yield PlanDataset(table=found["table"]), int(found["version"])
    if part.description.endswith(_LISTS_FILES):
        for found in _STATE.finditer(part.plan):
            yield PlanDataset(found["path"]), int(found["version"])


def _counted(part: SqlExecution) -> Iterator[tuple[Node, Mapping[str, int]]]:
    """Yield the nodes that the driver counts something of, with the counts by name."""
    for head, location, ids in part.counted:
        counts = {name: part.counts[number] for name, number in ids.items() if number in part.counts}
        index, _, paths = location.partition("[")
        place = f"Location: {index.partition('(')[0]} [{paths}" if paths else ""
        yield Node(0, head.strip(), place), counts
