"""Runs of an application as the plans in Spark's event log show them: one for each outermost SQL
execution.

Tests: ``tests/conversion/test_run_events.py`` and ``tests/conversion/test_merge.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from uuid import NAMESPACE_URL, uuid5

from msgspec import structs

from airflow_provider_spark_datahub.conversion.columns.sql import short_statement
from airflow_provider_spark_datahub.conversion.datasets import Symlinks
from airflow_provider_spark_datahub.conversion.events import (
    APPLICATION,
    RDD_JOB,
    SPARK_LOG,
    DatasetId,
    Facets,
    JsonObject,
)
from airflow_provider_spark_datahub.conversion.facets.dataset import (
    NOT_COUNTED,
    OutputStatistics,
    field_names,
)
from airflow_provider_spark_datahub.conversion.facets.run import RunDetails
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.fold import DatasetState, RunState
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import ColumnSource
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication, SqlExecution
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import (
    ALL_COLUMNS,
    ExecutionColumns,
    PlanColumns,
    WrittenColumns,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import FilesOfRdds, PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plan_writes import (
    has_driver_rows,
    writes_of,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    Node,
    Plan,
    PlanDataset,
    PlanDatasets,
    nodes_of,
)
from airflow_provider_spark_datahub.conversion.urns import FlowIdentity

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
# A view reads nothing when it is created.
_READS_NOTHING = re.compile(
    r"\bExecute (?:CreateViewCommand|CreateTempViewUsing|CacheTable|ExplainCommand)\b"
)
# Sources without a name of their own are shown by their class.
_HIDDEN = re.compile(
    r"Scan (?:(?:KafkaRelation|python\w*)\b[^\[\n]*|[\w.$]+(?=@[0-9a-f]))|BatchScan \w+ *$"
)
_WRITER = re.compile(r"(?!\S*\.noop\.)[\w.$]+(?=@[0-9a-f])")
_CREATE = "CREATE"
# OpenLineage's name of the command: a table that it creates was not written.
_CREATE_NODE = "execute_create_data_source_table_command"
# Commands whose plan reads the rows of its target that they do not change.
_CHANGES_ROWS = frozenset(
    {"MergeIntoCommand", "UpdateCommand", "DeleteCommand", "ReplaceData", "WriteDelta", "MergeRows"}
)
_SNAPSHOT = re.compile(
    r"\bIceberg\w{0,20}Scan\(table=(?P<table>[\w.]{1,300}), [^\n]{0,200}?\bsnapshotId=(?P<version>\d{1,20}),"
)
# Delta lists the files of each scan in an execution of its own, which reads the state of the
# table's version.
_LISTS_FILES = ("Filtering files for query", "MERGE operation - scanning files for matches")
_STATE = re.compile(r"\bDelta Table State #(?P<version>\d{1,20}) - (?P<path>\S+)/_delta_log\b")
_SIZES = ("size of files read", "total data file size (bytes)")
# Rows, bytes and files in the metrics of a command that writes files, of Iceberg's commit, and of
# Delta's commands.
_WRITTEN = (
    ("number of output rows", "written output", "number of written files"),
    ("number of added records", "total size of added files (bytes)", "number of added data files"),
    ("", "number of target bytes added", ""),
    ("", "number of bytes added", ""),
)
# An Iceberg table holds nothing but what a commit added if these counts are equal.
_COMMIT = (
    ("number of added data files", "total number of data files"),
    ("number of added records", "total number of records"),
)

# Roots and inner nodes of plans that write data. Nothing else counts as lost: OpenLineage leaves
# out plans that only read (collect, show, count) and some commands on purpose (its
# SparkNodesFilter, CreateViewFilter).
_WRITES = re.compile(
    r"\b(?:InsertInto\w*|Create\w*TableAsSelect\w*|Replace\w*TableAsSelect\w*|SaveIntoDataSourceCommand"
    r"|MergeInto\w*|MergeRows|AppendData\w*|Overwrite(?:ByExpression|PartitionsDynamic)\w*|ReplaceData|WriteDelta"
    r"|WriteIntoDelta\w*|DeleteFromTable\w*|DeleteCommand\w*|UpdateCommand\w*|UpdateTable\w*)\b"
)
# Commands are not queries whose rows the driver takes.
_NO_READS = re.compile(rf"{_WRITES.pattern}|\bExecute \w|^== Physical Plan ==\n(?:\* )?Call\b")
# Commands that write files through another execution.
_WRITES_IN_PARTS = re.compile(
    r"\b(?:SaveIntoDataSourceCommand|Atomic(?:Create|Replace)TableAsSelect)\b"
)
# Descriptions of executions: the methods of DataFrameWriter and DataFrameWriterV2.
_OF_FRAME = re.compile(
    r"(?:append|create|createOrReplace|csv|insertInto|jdbc|json|orc|overwrite|overwritePartitions|parquet|replace|save"
    r"|saveAsTable|text|xml) at "
)
# The methods whose rows people see, or the executors take, and no code of the driver.
_SHOWS = re.compile(r"(?:show|showString|foreach|foreachPartition|checkpoint|localCheckpoint) at ")
# Spark calls what reads a header, or infers a schema, after the reader's method. Other statements,
# and jobs that give their work a name, hide it: then its plan shows it.
# CACHE TABLE counts the rows that it keeps.
_CACHES_TABLE = re.compile(r"^== Physical Plan ==\nCacheTable")
_READER_CALLS = re.compile(r"(?:csv|json|xml|load|parquet|orc|text|table) at ")
_MAY_INFER = re.compile(r"(?!.* at )|(?:sql|createTable|createExternalTable) at ")
_READS_SCHEMA = re.compile(
    r"== Physical Plan ==\n(?:CollectLimit|DeserializeToObject) \(\d+\)\n"
    r"(?:[ +*-]{1,9}(?:Filter|Project) \(\d+\)\n){0,2}[ +*-]{1,9}Scan text  \(1\)\n\n"
)


@dataclass(slots=True)
class Written:
    """Columns that an execution writes to one of its sinks.

    :param dataset: the sink's name; ``None`` if the plans hide it.
    :param resolved: the columns whose sources the plans show completely.
    :param is_complete: these are all of its columns.
    """

    sink: PlanDataset
    dataset: DatasetId | None
    columns: WrittenColumns = field(default_factory=dict)
    resolved: set[str] = field(default_factory=set)
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class _Reach:
    """What reaches one output of an execution, if it has several.

    :param has_driver_rows: so do rows that the driver held.
    """

    inputs: frozenset[DatasetId] = frozenset()
    has_driver_rows: bool = False


@dataclass(frozen=True)
class PlanRun:
    """An outermost SQL execution, with what its plans read and write.

    :param parts: the execution, followed by its inner ones.
    :param outputs: without column lineage.
    :param written: the columns of each sink.
    :param replaced: datasets that hold nothing but what it wrote, by its overwrites.
    :param rest: targets of a command that changes rows: it reads the rows that it leaves as they
        are.
    :param guesses: inputs whose places nothing shows: tables may be outside of the warehouse.
    :param reach: what reaches each of several outputs.
    :param has_driver_rows: the driver held rows that it writes.
    """

    parts: Sequence[SqlExecution]
    columns: ExecutionColumns
    inputs: dict[DatasetId, DatasetState]
    outputs: dict[DatasetId, DatasetState]
    written: Collection[Written] = ()
    replaced: frozenset[DatasetId] = frozenset()
    rest: frozenset[DatasetId] = frozenset()
    guesses: frozenset[DatasetId] = frozenset()
    reach: Mapping[DatasetId, _Reach] = field(default_factory=dict)
    has_driver_rows: bool = False

    @property
    def gap(self) -> str:
        """Why its plans do not show where the rows come from; empty if they do."""
        return short_statement(", and ".join(self.columns.ends), 200)

    @cached_property
    def unknown_nodes(self) -> tuple[str, ...]:
        """The nodes that its reader does not know, and that may read or write."""
        plans = (Plan.of(part.plan) for part in self.parts)
        return tuple(dict.fromkeys(head for plan in plans for head in plan.unknown_nodes()))

    @cached_property
    def is_whole(self) -> bool:
        """Return whether its plans are there, and none is cut off.

        Later micro-batches of a streaming query have no plans of their own.
        """
        plans = [Plan.of(part.plan) for part in self.parts if part.plan]
        return bool(plans) and all(plan.is_whole for plan in plans)

    @property
    def hides_some(self) -> bool:
        """Return whether its plans may hide an input."""
        return bool(self.columns.unknown or self.unknown_nodes)

    @property
    def only_reads(self) -> bool:
        """Return whether the driver takes its rows: it is not a write, a command or a micro-batch."""
        is_batch = not self.parts[0].query_run_id and any(part.plan for part in self.parts)
        return is_batch and not any(part.has_in_tree(_NO_READS) for part in self.parts)

    @property
    def is_inference(self) -> bool:
        """Return whether Spark reads a header, or the rows that show the schema of a file."""
        root = self.parts[0]
        by_plan = _MAY_INFER.match(root.description) and _READS_SCHEMA.match(root.plan)
        return self.only_reads and bool(_READER_CALLS.match(root.description) or by_plan)

    @property
    def ended_well(self) -> bool:
        """Return whether the execution and its parts ended without an error."""
        return all(part.ended_well for part in self.parts)

    @property
    def writing_part(self) -> SqlExecution | None:
        """The execution, or the first part of it, that ended well and wrote data."""
        return next(filter(_wrote_data, self.parts), None)

    @property
    def is_write_of_frame(self) -> bool:
        """Return whether a method of DataFrameWriter wrote it, not a statement."""
        return _OF_FRAME.match(self.parts[0].description) is not None

    @property
    def lacks_its_write(self) -> bool:
        """Return whether its command writes files through another execution, which did not run: the
        target exists.
        """
        (root, *parts) = self.parts
        is_command = root.has_in_tree(_WRITES_IN_PARTS)
        return is_command and not parts and root.ended_well and not root.worked

    @property
    def brings_rows(self) -> bool:
        """Return whether the job gets rows or numbers of it: it does not only show them."""
        root = self.parts[0]
        is_kept = _SHOWS.match(root.description) or _CACHES_TABLE.match(root.plan)
        return self.only_reads and self.ended_well and not is_kept and not self.is_inference


class PlanRuns:
    """Reads the plans of an application's executions, in the order in which they began.

    :param names: names of the datasets in its plans.
    :param symlinks: gets the tables behind paths that only the plans show.
    :ivar files: what RDDs read.
    :ivar tables: tables behind paths whose platform only the application's own events show.
    """

    def __init__(
        self,
        application: LoggedApplication,
        names: PlanNames,
        symlinks: Symlinks,
        settings: LineageSettings,
    ) -> None:
        self._application, self._names = application, names
        self._symlinks, self._settings = symlinks, settings
        self._columns = PlanColumns()
        self.files = FilesOfRdds(application)
        self.tables: dict[DatasetId, DatasetId] = {}
        self._written: dict[DatasetId, dict[str, None]] = {}
        self._schemas = {
            dataset: state.schema for dataset, state in names.states if state.schema is not None
        }
        self._identity = _Identity(application)

    def of(self, parts: Sequence[SqlExecution]) -> PlanRun:
        """Return an outermost execution as its plans show it."""
        plans = self._application.plans_of(parts)
        of_driver = has_driver_rows(parts)
        columns = self._columns.of(plans, parts[0].description, has_driver_rows=of_driver)
        if _READS_NOTHING.search(parts[0].plan):
            return PlanRun(parts, columns, {}, {})
        # A function of ``foreachBatch`` may create a view of its rows before it writes them.
        plans = [plan for plan in plans if not _READS_NOTHING.search(plan)]
        datasets = PlanDatasets.of(plans)
        inputs, outputs = (
            self._states([*datasets.sources, *columns.held]),
            self._states(datasets.sinks),
        )
        rdd_paths = chain.from_iterable(part.rdd_paths for part in parts)
        inputs |= {dataset: DatasetState() for dataset in self.files.datasets(rdd_paths)}
        changes_rows = any(node.kind in _CHANGES_ROWS for node in nodes_of(plans))
        rest = frozenset(inputs.keys() & outputs.keys() if changes_rows else ())
        replaced = self._replaced(parts)
        if parts[0].end_ms is not None:
            self._add_reads(parts, inputs)
        if len(outputs) == 1:
            ((dataset, state),) = outputs.items()
            _add_write(parts, state)
            state.replaces = state.replaces or (dataset in replaced and not state.in_catalog)
        guesses = frozenset(
            one.id
            for one in map(self._names.of, datasets.sources)
            if one is not None and one.is_guess
        )
        written = self.written(columns, outputs)
        for one in written:
            if one.dataset is not None:
                names = [name for name, sources in one.columns.items() if sources]
                self._written.setdefault(one.dataset, {}).update(dict.fromkeys(names))
        outputs |= self._changed_tables(plans)
        return PlanRun(
            parts,
            columns,
            inputs,
            outputs,
            written,
            replaced,
            rest,
            guesses,
            self._reach(parts, columns) if len(outputs) > 1 else {},
            of_driver or columns.holds_driver_rows,
        )

    def written(
        self, columns: ExecutionColumns, outputs: Mapping[DatasetId, DatasetState]
    ) -> Collection[Written]:
        """Return the columns that an execution writes to each of its outputs, and to sinks without
        a name.
        """
        written: dict[DatasetId | PlanDataset, Written] = {}
        for sink, of_sink in columns.written:
            dataset = self._names.id_of(sink)
            if dataset not in outputs and len(outputs) == 1 and not sink.relation:
                # The path of a new table and the table are one sink.
                (dataset,) = outputs
            own = written.setdefault(dataset or sink, Written(sink, dataset))
            # The plan of a part may show what that of the execution around it does not, but Hive
            # writes names in lower case.
            spellings = {name.lower(): name for name in (*own.columns, *own.resolved)}
            new: WrittenColumns = {}
            for name, sources in of_sink.items():
                spelling = spellings.get(name.lower(), name)
                if spelling not in (ALL_COLUMNS, *own.resolved):
                    new[spelling] = sources
            new |= {
                name: {ColumnSource(source.dataset, name): derivation}
                for source, derivation in of_sink.get(ALL_COLUMNS, {}).items()
                for name in self._cloned_columns(dataset, source.dataset)
            }
            own.columns.update(new)
            own.resolved.update(columns.resolved.get(sink, ()))
            own.is_complete |= sink in columns.complete
        return written.values()

    def _cloned_columns(self, clone: DatasetId | None, source: PlanDataset) -> list[str]:
        """Return the columns of a cloned dataset without those that its clone lacks: it may be
        replaced later.
        """
        dataset, own = (
            self._names.id_of(source),
            field_names(self._schemas.get(clone) if clone else None),
        )
        names = (
            field_names(self._schemas.get(dataset)) or self._written.get(dataset, ())
            if dataset
            else ()
        )
        return [name for name in names if name in own or not own]

    def run_of(self, plan: PlanRun, flow: FlowIdentity, application_run_id: str) -> RunState:
        """Return the run of an execution without events, without its datasets."""
        root = plan.parts[0]
        is_created = any(state.lifecycle == _CREATE for state in plan.outputs.values())
        node = f"{_CREATE_NODE}." if is_created else ""
        failure = next((part.failure for part in plan.parts if part.failure), "")
        return RunState(
            self._identity.uuid(str(root.id)),
            0,
            f"{self._identity.job_prefix}.{node}execution_{root.id}",
            flow,
            job_type="SQL_JOB",
            parent_run_id=application_run_id,
            start_ms=root.start_ms,
            end_ms=root.end_ms,
            started=True,
            ended=root.end_ms is not None,
            failure="FAIL" if failure and root.end_ms is not None else "",
            worked=any(state.statistics != NOT_COUNTED for state in plan.outputs.values()),
            is_logged=True,
            details=RunDetails(properties={"errorMessage": failure}) if failure else None,
        )

    def runs_of_rdds(self, flow: FlowIdentity, application_run_id: str) -> Iterator[RunState]:
        """Yield the runs of jobs of RDDs that read files."""
        for number, (start_ms, paths) in enumerate(self._application.rdd_reads.items()):
            yield RunState(
                self._identity.uuid(f"rdd job {number}"),
                0,
                f"{self._identity.job_prefix}.rdd_job_{number}",
                flow,
                job_type=RDD_JOB,
                parent_run_id=application_run_id,
                start_ms=start_ms,
                end_ms=start_ms,
                started=True,
                is_logged=True,
                inputs={dataset: DatasetState() for dataset in self.files.datasets(paths)},
            )

    def unnamed_sources(self) -> list[str]:
        """Return the sources and targets in plans whose names do not lead to a dataset, sorted.

        These are tables of catalogues without a known location, tables behind JDBC, and other kinds
        of scans.
        """
        application = self._application
        sources = {f"the target of {method} (an RDD)" for method in application.rdd_writes}
        for parts in application.root_executions(with_micro_batches=False):
            datasets = PlanDatasets.of(part.plan for part in parts)
            for dataset in datasets.all:
                if self._names.of(dataset) is None:
                    sources.add(dataset.table or f"JDBC table {dataset.relation}")
            for node in nodes_of(part.plan for part in parts):
                sources.update(_hidden_names(node, has_sinks=bool(datasets.sinks)))
        return sorted(map(redact_text, sources - {""}))

    # -- datasets

    def _reach(
        self, parts: Sequence[SqlExecution], columns: ExecutionColumns
    ) -> dict[DatasetId, _Reach]:
        """Return what reaches each output."""
        reach: dict[DatasetId, _Reach] = {}
        for write in writes_of(parts):
            output = self._names.id_of(write.sink)
            if output is None:
                continue
            held = columns.held if write.reads_checkpoint else ()
            sources = [*write.sources, *held]
            inputs = {one for one in map(self._names.id_of, sources) if one is not None}
            inputs.update(self.files.datasets(write.rdd_paths))
            known = reach.get(output, _Reach())
            of_driver = known.has_driver_rows or write.has_driver_rows
            if write.reads_checkpoint and columns.holds_driver_rows:
                of_driver = True
            reach[output] = _Reach(known.inputs | inputs, of_driver)
        return reach

    def _states(self, named: Iterable[PlanDataset]) -> dict[DatasetId, DatasetState]:
        states: dict[DatasetId, DatasetState] = {}
        for dataset in filter(None, map(self._names.of, named)):
            if dataset.table is not None:
                self.tables[dataset.id] = dataset.table
            state = states.setdefault(dataset.id, DatasetState(in_catalog=bool(dataset.facets)))
            facets = Facets.of({**dataset.facets})
            state.is_metadata = not self._symlinks.learn(dataset.id, facets, self._settings)
        return states

    def _changed_tables(self, plans: Iterable[str]) -> dict[DatasetId, DatasetState]:
        """Return the tables that were created empty, renamed or dropped."""
        changed: dict[DatasetId, DatasetState] = {}
        for change in filter(None, (node.change() for node in nodes_of(plans))):
            previous = next(iter(self._states([PlanDataset(table=change.previous)])), None)
            for table, state in self._states([PlanDataset(table=change.table)]).items():
                if not change.previous or previous not in (None, table):
                    changed[table] = structs.replace(
                        state, lifecycle=change.kind, previous=previous
                    )
        return changed

    def _replaced(self, parts: Sequence[SqlExecution]) -> frozenset[DatasetId]:
        plans = (
            part.plan
            for part in parts
            if not (part.is_dynamic or part.failure or part.end_ms is None)
        )
        nodes = (node for node in nodes_of(plans) if node.replaces_all())
        sinks = (sink for node in nodes for sink in node.sinks() if self._names.is_whole(sink))
        return frozenset(filter(None, map(self._names.id_of, sinks)))

    # -- versions and amounts, by plans and the driver's metrics

    def _add_reads(
        self, parts: Sequence[SqlExecution], inputs: Mapping[DatasetId, DatasetState]
    ) -> None:
        versions, sizes = dict[DatasetId, dict[int, None]](), dict[DatasetId, list[int]]()
        for part in parts:
            for named, version in _versions(part):
                if (dataset := self._names.id_of(named)) is not None:
                    versions.setdefault(dataset, {})[version] = None
            for node, counts in _counted(part):
                for size in (counts[name] for name in _SIZES if name in counts):
                    for dataset in filter(None, map(self._names.id_of, node.sources())):
                        sizes.setdefault(dataset, []).append(size)
        for dataset, state in inputs.items():
            state.add_reads(tuple(versions.get(dataset, ())), ())
            for size in sizes.get(dataset, ()):
                state.add_reads((), (OutputStatistics(size=size),))


def _wrote_data(execution: SqlExecution) -> bool:
    """Return whether an execution ended well, is not a micro-batch, and has a plan that writes
    data.
    """
    return execution.ended_well and not execution.query_run_id and execution.has_in_tree(_WRITES)


def _add_write(parts: Sequence[SqlExecution], state: DatasetState) -> None:
    """Add what an execution wrote to the state of its only output."""
    totals = dict[int, int]()
    for _, counts in (counted for part in parts for counted in _counted(part)):
        for metrics in (metrics for metrics in _WRITTEN if metrics[1] in counts):
            for place, name in enumerate(metrics):
                if name in counts:
                    totals[place] = totals.get(place, 0) + counts[name]
        if counts.keys() >= {*chain.from_iterable(_COMMIT)}:
            state.replaces = all(0 < counts[added] == counts[total] for added, total in _COMMIT)
    state.statistics = OutputStatistics(*map(totals.get, range(len(OutputStatistics._fields))))


def _versions(part: SqlExecution) -> Iterator[tuple[PlanDataset, int]]:
    # Those of metadata tables name the snapshot that they describe.
    for match in _SNAPSHOT.finditer(part.plan):
        yield PlanDataset(table=match["table"]), int(match["version"])
    if part.description.endswith(_LISTS_FILES):
        for match in _STATE.finditer(part.plan):
            yield PlanDataset(match["path"]), int(match["version"])


def _counted(part: SqlExecution) -> Iterator[tuple[Node, Mapping[str, int]]]:
    """Yield the nodes that the driver counts something of, with the counts by name."""
    for head, location, ids in part.counted:
        counts = {
            name: part.counts[number] for name, number in ids.items() if number in part.counts
        }
        index, _, paths = location.partition("[")
        place = f"Location: {index.partition('(')[0]} [{paths}" if paths else ""
        yield Node(0, head.strip(), place), counts


class _Identity:
    """Identity of an application that sent no events, and of its runs."""

    def __init__(self, application: LoggedApplication) -> None:
        self._application = application
        self.name = application.name.strip() or application.id
        self.job_prefix = self.name.replace(".", "_")
        self.run_id = self.uuid("application")

    def uuid(self, part: str) -> str:
        """Return the id of a run, the same in each conversion."""
        application = self._application
        return str(uuid5(NAMESPACE_URL, f"spark:{application.id}:{application.start_ms}:{part}"))


def application_events(application: LoggedApplication) -> Iterator[JsonObject]:
    """Yield the events of an application's own run that OpenLineage's listener would have sent.

    Its queries are read from the log. A log without an end was not closed, and one without a
    beginning is not whole.
    """
    identity = _Identity(application)
    details = {
        "appName": application.name,
        "applicationId": application.id,
        "userName": application.user,
    }
    facets = {
        "processing_engine": {"name": "spark", "version": application.spark_version},
        "spark_applicationDetails": {name: value for name, value in details.items() if value},
        "spark_properties": {"properties": {"spark.app.name": application.name}},
    }
    job_type = {"processingType": "BATCH", "integration": "SPARK", "jobType": APPLICATION}
    job = {
        "namespace": application.properties.get("spark.openlineage.namespace") or "default",
        "name": identity.name,
        "facets": {"jobType": job_type},
    }
    begin_ms = application.start_ms
    first_ms = min((one.start_ms for one in application.executions.values()), default=None)
    moments = [
        ("START", begin_ms) if begin_ms is not None else ("RUNNING", first_ms),
        ("COMPLETE", application.end_ms),
    ]
    for kind, time_ms in moments:
        if time_ms is not None:
            time = datetime.fromtimestamp(time_ms / 1000, UTC)
            yield {
                "eventType": kind,
                "eventTime": time.isoformat(timespec="milliseconds"),
                "producer": SPARK_LOG,
                "schemaURL": _SCHEMA,
                "run": {"runId": identity.run_id, "facets": facets},
                "job": job,
                "inputs": [],
                "outputs": [],
            }


def _hidden_names(node: Node, *, has_sinks: bool) -> Iterator[str]:
    """Yield the sources and targets of a node that lead to no dataset."""
    writer = _WRITER.match(node.arguments)
    if not has_sinks and writer is not None and node.hides_target():
        yield f"the target of {writer[0]} ({node.kind})"
    relation = node.relation()
    hidden = _HIDDEN.match(f"{node.head} {node.arguments}")
    if relation is not None:
        yield f"JDBCRelation({short_statement(relation.relation)})"
    elif hidden is not None and not any(node.sources()):
        yield hidden[0].strip()
    yield from node.unclear_paths()
