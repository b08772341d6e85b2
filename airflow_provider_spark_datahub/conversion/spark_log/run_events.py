"""Makes the RunEvents that OpenLineage's listener would have sent, from Spark's event log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from airflow_provider_spark_datahub.conversion.columns.sql import short_statement
from airflow_provider_spark_datahub.conversion.events import RDD_JOB, SPARK_LOG, DatasetId
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    SqlExecution,
    paths_of_rdds,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import (
    ExecutionColumns,
    PlanColumns,
    WrittenColumns,
    with_cloned,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_datasets import (
    PlanDataset,
    PlanDatasets,
    TableChange,
    change_of,
    dropped_database,
    relation_of,
    sources_of,
    unclear_paths,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import FilesOfRdds, PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plans import Plan

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
# A view reads nothing when it is created.
_READS_NOTHING = re.compile(r"\bExecute (?:CreateViewCommand|CreateTempViewUsing|CacheTable|ExplainCommand)\b")
_HIDDEN = re.compile(r"\bScan (?:KafkaRelation|python\w*)\b[^\[\n]*")
_CREATE = "CREATE"
# OpenLineage's name of the command: a table that it creates was not written.
_CREATE_NODE = "execute_create_data_source_table_command"


def events_of_application(application: LoggedApplication) -> Iterator[dict[str, Any]]:
    """Yield the RunEvents of an application without the listener, in the order of their times.

    Micro-batches are left out, unless a function of the job wrote their rows: their streaming queries have jobs of
    their own.
    """
    log_events, columns = LogEvents(application, PlanNames(application)), PlanColumns()
    events = [*log_events.of_application()]
    for parts in application.root_executions():
        plans = plans_of(parts)
        # A micro-batch that names a sink ran a function of the job (foreachBatch).
        if not parts[0].query_run_id or PlanDatasets.of(part.plan for part in parts).sinks:
            events += log_events.of_execution(parts, columns.of(plans, parts[0].description))
    # Python sorts in place, so that an execution that began and ended in one millisecond stays in order.
    yield from sorted(events, key=lambda event: str(event["eventTime"]))


def plans_of(parts: Sequence[SqlExecution]) -> list[str]:
    """Return the plans of an execution that read data, none if it only creates a view.

    A function of ``foreachBatch`` may create a view of its rows before it writes them.
    """
    if _READS_NOTHING.search(parts[0].plan):
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
            relation, hidden = relation_of(node), _HIDDEN.search(f"{node.head} {node.arguments}")
            if relation is not None:
                found.add(f"JDBCRelation({short_statement(relation.relation)})")
            elif hidden is not None and not any(sources_of(node)):
                found.add(hidden[0].strip())
            found.update(unclear_paths(node))
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
        self._written_tables: dict[str, None] = {}
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

        :param columns: the columns of its plans, see :func:`plans_of`.
        """
        root, plans = parts[0], plans_of(parts)
        inputs, outputs = self._inputs_and_outputs(plans, columns)
        inputs += self._inputs_of_rdds(paths_of_rdds(parts))
        changed = [*self._changed_tables(plans)]
        outputs += changed
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

    def _inputs_and_outputs(
        self, plans: list[str], found: ExecutionColumns
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        named = PlanDatasets.of(plans)
        outputs = self._distinct(named.sinks)
        self._written_tables.update(dict.fromkeys(sink.table for sink in named.sinks if sink.table))
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
        databases = {f"{database}." for plan in plans if (database := dropped_database(plan))}
        dropped = (table for table in self._written_tables if table.startswith(tuple(databases)))
        changes = (change_of(node) for plan in plans for node in Plan.of(plan).nodes)
        for change in (*changes, *(TableChange("DROP", table) for table in dropped)):
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
