"""State of runs and applications, folded from their events (conversion rules, section 7).

An application may have a million micro-batches: what has been reported of a running one is
discarded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Literal

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion.columns.facet import DatasetColumns
from airflow_provider_spark_datahub.conversion.datasets import Symlinks
from airflow_provider_spark_datahub.conversion.events import (
    APPLICATION,
    FAILED_TYPES,
    QUERY_TYPES,
    RDD_JOB,
    SPARK_LOG,
    TERMINAL_TYPES,
    DatasetId,
    EventDataset,
    Facets,
    JsonObject,
    RunEvent,
    as_object,
)
from airflow_provider_spark_datahub.conversion.facets.dataset import (
    CHANGE_COLUMNS,
    NOT_COUNTED,
    DatasetFacets,
    DatasetMetadata,
    OutputStatistics,
    field_names,
)
from airflow_provider_spark_datahub.conversion.facets.run import PropertyLayers, RunDetails
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.urns import FlowIdentity
from airflow_provider_spark_datahub.foundation.memory import grouped_by

_NON_MATERIALISING = tuple(
    f"{step}_{source}"
    for step in ("map", "map_partitions", "flatmap", "filter", "distinct")
    for source in ("parallel_collection", "text_file", "hadoopfile")
)
_SCANS = ("batch_scan", "columnar_to_row", "in_memory_table_scan", "scan_")
# Spark's own jobs: it reads footers, infers a schema, or reads the first lines of a CSV file as
# text.
_LISTINGS = (
    ".map_partitions_parallel_collection",
    ".map_partitions_sql_execution_map_partitions_file_scan",
)
_FIRST_LINES = frozenset({"collect_limit", "deserialize_to_object"})
# Methods whose jobs these are, if Python names its method.
_READERS = frozenset({"", "csv", "json", "load", "orc", "parquet", "xml"})
DROP, RENAME = "DROP", "RENAME"
# Roots of plans that write tables of catalogues, as the names of queries spell them.
_WRITE_NODES = frozenset(
    {
        *(
            f"{atomic}{verb}_table_as_select"
            for atomic in ("", "atomic_")
            for verb in ("create", "replace")
        ),
        *(
            "append_data",
            "overwrite_by_expression",
            "overwrite_partitions_dynamic",
            "replace_data",
            "write_delta",
        ),
    }
)
# A write within such a query, through the older interface of data sources: Delta's CREATE OR
# REPLACE TABLE AS SELECT.
_V1 = "_exec_v1"
# Commands that create or alter a table without new data.
_CATALOG_NODES = (
    *("create_table", "execute_create_table_command", "execute_create_table_like_command"),
    *("execute_create_data_source_table_command", "execute_alter_table_", "alter_table"),
)
_OF_CATALOG = frozenset({"CREATE", "ALTER"})
_OF_CATALOGS = frozenset({"symlinks", "catalog", "storage"})
"""Facets of tables, but not of plain files."""
MOST_VERSIONS = 20
"""Most versions of a dataset that are kept: the last ones."""
NOT_WRITTEN = frozenset({DROP, RENAME})
"""Values of the ``lifecycleStateChange`` facet for tables that were not written (Deviation 9)."""


# A job has many states, none in a reference cycle: the garbage collector does not have to visit
# them.
class DatasetState(msgspec.Struct, gc=False):
    """State of a dataset in one run. The last event with a facet wins.

    :param schema: the ``schema`` facet as compressed text.
    :param partitions: the written partitions, if the producer reports them.
    :param layer: format of a table, such as ``iceberg``, if the producer reports it.
    :param version: the version that the run read first, or wrote last, if the producer names it.
    :param replaces: Iceberg's report or Spark's plan says that the dataset holds nothing but what
        the run wrote.
    :param scans: snapshots of an Iceberg table that the run read, as its reports name them, or
        versions in plans.
    :param amounts: what each scan read.
    :param is_resolved: Spark's plan shows where all of its columns come from, also those of
        constants.
    :param gap: why Spark's plan does not show where its rows come from.
    :param in_catalog: a catalogue or a table format describes it: its own ingestion knows more of
        it.
    :param is_metadata: the run used one of the table's metadata tables, which have other columns.
    :param reached_by: of an output, the inputs of its run that reach it; ``None`` for all of them.
    :param metadata: facets of its metadata by name, each with the index of its event; ``None`` if
        there are none.
    """

    schema: bytes | None = None
    schema_index: int = -1
    columns: DatasetColumns | None = None
    lifecycle: str = ""
    previous: DatasetId | None = None
    partitions: tuple[str, ...] = ()
    statistics: OutputStatistics = NOT_COUNTED
    layer: str = ""
    version: str = ""
    replaces: bool = False
    scans: tuple[int | float, ...] = ()
    amounts: tuple[OutputStatistics, ...] = ()
    in_catalog: bool = False
    is_metadata: bool = False
    is_resolved: bool = False
    gap: str = ""
    reached_by: frozenset[DatasetId] | None = None
    metadata: dict[str, tuple[int, JsonObject]] | None = None

    def completed(self, other: DatasetState) -> DatasetState:
        """Return the state with what another run of the same query has and this one lacks."""
        columns = self.columns
        if columns is not None and other.columns is not None:
            columns = columns.with_edges(other.columns.edges)
        missing = {"columns": columns or other.columns}
        for name, default in structs.asdict(_NOTHING_KNOWN).items():
            if getattr(self, name) == default and name != "columns":
                missing[name] = getattr(other, name)
        return structs.replace(self, **missing)

    def add_reads(
        self, scans: tuple[int | float, ...], amounts: tuple[OutputStatistics, ...]
    ) -> None:
        """Add what a scan, or another run with equal content, read."""
        if scans:
            self.scans = tuple(dict.fromkeys((*self.scans, *scans)))[-MOST_VERSIONS:]
        self.amounts = tuple(dict.fromkeys((*self.amounts, *amounts)))[: MOST_VERSIONS + 1]
        for amount in amounts:
            self.statistics = self.statistics.most(amount)

    @property
    def column_inputs(self) -> tuple[DatasetId, ...]:
        """Datasets that the column lineage names."""
        return self.columns.inputs if self.columns is not None else ()

    @property
    def direct_columns(self) -> frozenset[str]:
        """Columns that have a direct transformation in the column lineage."""
        return self.columns.direct if self.columns is not None else frozenset()

    @property
    def lower_names(self) -> frozenset[str]:
        """Names of the fields in the schema, in lower case."""
        return frozenset(map(str.lower, field_names(self.schema)))


_NOTHING_KNOWN = DatasetState()
_LARGEST_ID = 2.0**63
"""The bound of a ``long``, as OpenLineage rounds it."""


def _reads(input_facets: Facets) -> tuple[tuple[int | float, ...], tuple[OutputStatistics, ...]]:
    snapshot = input_facets["icebergScanReport"].get("snapshotId")
    scans = (
        (snapshot,) if isinstance(snapshot, int | float) and abs(snapshot) <= _LARGEST_ID else ()
    )
    return scans, (OutputStatistics.read(input_facets, "inputStatistics"),)


def _spark_properties(run_facets: Facets) -> JsonObject:
    return as_object(run_facets["spark_properties"].get("properties"))


def _replaces(output_facets: Facets) -> bool:
    counts = as_object(output_facets["icebergCommitReport"].get("commitMetrics"))
    pairs = [
        (counts.get(f"added{what}"), counts.get(f"total{what}"))
        for what in ("DataFiles", "Records")
    ]
    return all(isinstance(added, int | float) and 0 < added == total for added, total in pairs)


class Verdict(StrEnum):
    """Verdict on a dataset of a query whose plan Spark's event log has. Its value is the property
    ``source`` of an edge.
    """

    PLANNED = "SPARK_PLAN"
    """The plan names it."""
    CONFIRMED = "EVENT, SPARK_PLAN"
    """So do events."""
    FILLED = "EVENT"
    """Events name it, and the plan hides such a dataset."""
    OF_DRIVER = "DRIVER"
    """The query writes rows that the driver held, and an earlier one brought its rows there."""
    NOT_PLANNED = "not in the plan"
    """Events name it, and the plan shows that the query does not use it."""


class RunState(msgspec.Struct, gc=False):
    """State of one run: a query, an RDD job, or the application itself.

    :param index: index of its first event among all events.
    :param worked: Spark ran a job for it (facet ``spark_jobDetails``), or counted what it wrote.
    :param refused: it wrote nothing; :attr:`outputs` is without those that its events name.
    :param reported: the refused run as its events describe it.
    :param is_logged: its events are made from Spark's own event log.
    :param verdicts: on each ``input`` and ``output``, if Spark's event log has its plan.
    :param properties: the properties of its events, each with the index of the first event that has
        them.
    """

    run_id: str
    index: int
    job_name: str
    flow: FlowIdentity
    job_type: str = ""
    parent_run_id: str = ""
    app_name: str = ""
    session_name: str = ""
    description: str | None = None
    sql: str = ""
    last_index: int = 0
    start_ms: int | None = None
    end_ms: int | None = None
    started: bool = False
    ended: bool = False
    failure: str = ""
    worked: bool = False
    refused: bool = False
    reported: RunState | None = None
    is_logged: bool = False
    verdicts: dict[tuple[Literal["input", "output"], DatasetId], Verdict] = {}
    inputs: dict[DatasetId, DatasetState] = {}
    outputs: dict[DatasetId, DatasetState] = {}
    properties: dict[PropertyLayers, int] = {}
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    details: RunDetails | None = None

    def cover(self, time_ms: int) -> None:
        """Extend the run to a time."""
        self.start_ms = time_ms if self.start_ms is None else min(self.start_ms, time_ms)
        self.end_ms = time_ms if self.end_ms is None else max(self.end_ms, time_ms)

    def job_property(self, key: str) -> str:
        """Return the first value of a job property, or an empty string."""
        return _first(key, (layers.job for layers in self.properties))

    def flow_property(self, key: str) -> str:
        """Return the first value of a flow property, or an empty string."""
        return _first(key, (layers.flow for layers in self.properties))

    @property
    def plan_node(self) -> str:
        """The root of the query's plan, as OpenLineage names a query: ``<application>.<plan
        node>[.<dataset>]``.
        """
        return self.job_name.split(".", 2)[1] if "." in self.job_name else ""

    @property
    def is_streaming(self) -> bool:
        """Return whether it is a micro-batch of a streaming query."""
        return self.details is not None and self.details.run_type == "STREAMING"

    @property
    def is_query(self) -> bool:
        """Return whether it is a Spark query or RDD job, which belongs to the application in its
        parent facet.
        """
        return self.job_type in QUERY_TYPES

    @property
    def is_listing(self) -> bool:
        """Return whether it only reads footers or the first lines of files, so that Spark knows
        their schema.
        """
        if self.outputs or self.job_property("jobCallSite").partition(" ")[0] not in _READERS:
            return False
        if self.job_type == RDD_JOB:
            return self.job_name.endswith(_LISTINGS)
        return self.plan_node in _FIRST_LINES and all(
            "value" in state.lower_names and not state.in_catalog for state in self.inputs.values()
        )

    @property
    def changed(self) -> Collection[tuple[DatasetId, DatasetState]]:
        """The outputs that the run wrote, dropped or renamed, without those that it only passed
        through.
        """
        return () if self._passes_through() else self.outputs.items()

    def _passes_through(self) -> bool:
        """Return whether it names inputs as outputs, but materialises nothing: a job of RDDs, or a
        scan of a cache.

        OpenLineage names the cached table as the output of ``cache().collect()``, without a change
        and statistics.
        """
        if self.job_type == RDD_JOB:
            read = {dataset.name for dataset in self.inputs}
            passed = {dataset.name for dataset in self.outputs}
            return self.job_name.endswith(_NON_MATERIALISING) and read == passed
        for state in self.outputs.values():
            if state.lifecycle or state.statistics != NOT_COUNTED:
                return False
        is_scan = self.plan_node.startswith(_SCANS)
        return is_scan and self.outputs.keys() <= self.inputs.keys()

    @property
    def written(self) -> list[tuple[DatasetId, DatasetState]]:
        """The outputs that the run wrote. A table that it only created or altered has no new data."""
        return [
            (dataset, state)
            for dataset, state in self.changed
            if state.lifecycle not in NOT_WRITTEN
            and not (state.lifecycle in _OF_CATALOG and _is_of_catalog(self.plan_node))
        ]

    @property
    def moments(self) -> Iterator[tuple[str, int]]:
        """When it began and ended, the start first, in ms since the epoch.

        OpenLineage takes its times from Spark's events, so a run belongs to the execution that
        began or ended in the same millisecond.
        """
        if self.started and self.start_ms is not None:
            yield "start", self.start_ms
        if self.ended and self.end_ms is not None:
            yield "end", self.end_ms

    def is_known_until(self, log_ms: int | None) -> bool:
        """Return whether Spark's event log is read up to the latest event of the run.

        :param log_ms: time of the last entry that was read, in ms since the epoch; ``None`` if no
            log is read.
        """
        if log_ms is None or self.job_type == APPLICATION:
            return True
        latest_ms = self.end_ms if self.ended else self.start_ms
        return latest_ms is not None and latest_ms <= log_ms

    def is_final(self, log_ms: int | None) -> bool:
        """Return whether no later event or log entry will change this query. An RDD job often sends
        no end.

        :param log_ms: as in :meth:`is_known_until`.
        """
        return (
            self.is_query
            and (self.ended or self.job_type == RDD_JOB)
            and self.is_known_until(log_ms)
        )

    def certain(self) -> RunState:
        """Return the run with the inputs and outputs that its end cannot take back."""
        inputs = {} if self.job_type == RDD_JOB or self.is_listing else self.inputs
        return structs.replace(self, inputs=inputs, outputs=self.outputs if self.ended else {})


def _is_of_catalog(plan_node: str) -> bool:
    # ``create_table_as_select`` is the command of a catalogue that cannot stage a table: it writes
    # rows.
    return plan_node.startswith(_CATALOG_NODES) and not plan_node.endswith("_as_select")


def _first(key: str, events: Iterable[Sequence[Mapping[str, str]]]) -> str:
    return next((layer[key] for layers in events for layer in reversed(layers) if key in layer), "")


@dataclass(frozen=True, slots=True)
class Application:
    """Runs of one application, in the order of their first events.

    :param run_id: id of the application's own run.
    :param own_run: the application's own run; ``None`` if only its queries sent events.
    :param execution_counts: as in :class:`.JobRun`.
    :param has_log: Spark's event log was read, too.
    :param doubts: why its queries may not be all that it did, for people; empty if they are.
    """

    run_id: str
    runs: tuple[RunState, ...]
    own_run: RunState | None
    execution_counts: dict[str, str] = field(default_factory=dict)
    has_log: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def details(self) -> RunDetails:
        """Details of the application's run, completed by those of its queries; failed queries come
        first.
        """
        own = self.own_run
        others = sorted(
            (run for run in self.runs if run is not own), key=lambda run: not run.failure
        )
        return RunDetails.merged(
            own.details if own is not None else None, (run.details for run in others)
        )

    @property
    def unreported_queries(self) -> tuple[str, ...]:
        """The successful queries that wrote a table which no event names, each as ``<plan
        node>.<table>``.

        OpenLineage names a query ``<application>.<plan node>.<table>`` even if it finds no dataset
        for the table.
        """
        silent: dict[str, str] = {}
        reported = set[str]()
        for run in self.runs:
            _, node, table = (
                run.job_name.rsplit(".", 2) if run.job_name.count(".") > 1 else ("", "", "")
            )
            if node.removesuffix(_V1) not in _WRITE_NODES:
                continue
            if run.outputs:
                reported.add(table)
            elif run.ended and not run.failure and not run.refused and not node.endswith(_V1):
                silent[f"{node}.{table}"] = table
        # With or without their catalogues: ``ice_sales_orders`` and ``sales_orders``.
        shortened = {shorter for table in reported for shorter in _endings(table)}
        return tuple(
            name
            for name, table in silent.items()
            if table not in shortened and not any(longer in reported for longer in _endings(table))
        )

    def without_columns_of_changes(self, feeds: Collection[DatasetId] = ()) -> Application:
        """Return the application without the columns that Delta adds to the changes of a table.

        :param feeds: tables with a change feed, as Spark's event log shows. Others have one if a
            write shows the table.
        """

        def is_read(state: DatasetState) -> bool:
            return not state.layer and state.lower_names >= CHANGE_COLUMNS

        read = {
            dataset for run in self.runs for dataset, state in run.inputs.items() if is_read(state)
        }
        if not read:
            return self
        written = {
            (dataset, state.lower_names.isdisjoint(CHANGE_COLUMNS))
            for run in self.runs
            for dataset, state in run.outputs.items()
            if state.layer == "delta" and state.schema is not None
        }
        found = {
            item
            for item in read
            if item in feeds or ((item, True) in written and (item, False) not in written)
        }

        def own(run: RunState) -> RunState:
            inputs = {
                dataset: structs.replace(
                    state, schema=DatasetFacets.without_change_columns(state.schema)
                )
                for dataset, state in run.inputs.items()
                if dataset in found and state.schema is not None and is_read(state)
            }
            return structs.replace(run, inputs=run.inputs | inputs) if inputs else run

        return replace(self, runs=tuple(map(own, self.runs))) if found else self

    def certain(self, log_ms: int | None = None) -> Application | None:
        """Return the application with the inputs and outputs that its end cannot take back.

        Left out are the outputs of a running query, which may fail (Deviation 10); the reads of an
        RDD job, which a later query may show to be a file listing (Deviation 5); and queries that
        Spark's event log does not have yet. The end removes an edge that changes anyway, as if a
        table is renamed: see :func:`.aspects.retractions`.

        :param log_ms: as in :meth:`RunState.is_known_until`.
        :returns: ``None`` if the application's name may still change.
        """
        if not any(run.app_name for run in self.runs):
            return None
        return replace(
            self, runs=tuple(run.certain() for run in self.runs if run.is_known_until(log_ms))
        )


def _endings(table: str) -> Iterator[str]:
    """Yield a name, and its ending after each ``_`` in it."""
    yield table
    for index, character in enumerate(table):
        if character == "_":
            yield table[index + 1 :]


class Fold:
    """Fold of a stream of events into runs. Its memory grows with the number of runs and their
    distinct content.
    """

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._metadata_facets = DatasetMetadata.facets(settings)
        read_columns = partial(DatasetColumns.read, with_indirect=settings.capture_indirect_columns)
        self._read_columns = read_columns if settings.capture_column_level_lineage else None
        self._runs: dict[str, RunState] = {}
        self._count = 0
        self._last: tuple[RunState | None, RunEvent | None] = (None, None)
        # Equal texts are kept once.
        self._texts: dict[bytes, bytes] = {}
        self.symlinks = Symlinks()

    def add(self, event: RunEvent) -> RunState:
        """Add an event, and return its run.

        :raises EventError: if its flow cannot be named; the fold is unchanged then.
        """
        settings, names, texts = self._settings, event.names, event.job.texts
        app_name, session_name = names.application
        flow = FlowIdentity.of(event, settings, app_name or session_name)
        index, self._count = self._count, self._count + 1
        run = self._runs.get(event.run_id)
        if run is None:
            run = self._runs[event.run_id] = RunState(event.run_id, index, event.job.name, flow)
            run.is_logged = event.producer == SPARK_LOG
        run.flow, run.last_index = flow, index
        run.job_type = texts.job_type or run.job_type
        run.parent_run_id = names.parent_run_id or run.parent_run_id
        run.app_name = run.app_name or app_name
        run.session_name = session_name or run.session_name
        run.description = run.description or texts.description
        run.sql = texts.sql or run.sql
        run.details = RunDetails.updated(run.details, RunDetails.of(event))
        run.worked = run.worked or "spark_jobDetails" in event.run_facets.facets
        if event.time_ms is not None:
            run.cover(event.time_ms)
        run.started = run.started or event.type == "START"
        was_ended, run.ended = run.ended, run.ended or event.type in TERMINAL_TYPES
        if event.type in FAILED_TYPES:
            run.failure = event.type
        run.properties.setdefault(
            PropertyLayers.of(event, spark_plan=settings.capture_spark_plan), index
        )
        if texts.owner_names or texts.tags:
            run.owners = tuple(dict.fromkeys((*run.owners, *texts.owner_names)))
            run.tags = tuple(dict.fromkeys((*run.tags, *texts.tags)))
        last_run, last_event = self._last
        # Nothing came in between: the same datasets again change nothing, but only the end counts
        # rows.
        known = last_event is not None and last_event.has_datasets_of(event)
        if last_run is not run or not known or (event.type == "COMPLETE" and not was_ended):
            self._add_datasets(run, event, index)
        self._last = run, event
        return run

    def _add_datasets(self, run: RunState, event: RunEvent, index: int) -> None:
        is_complete = event.type == "COMPLETE"
        properties = (
            event.run_facets.once(_spark_properties) if run.is_query and not run.is_logged else None
        )
        for dataset in in_time(event.inputs):
            state = self._add_dataset(run.inputs, dataset, index, properties)
            state.version = state.version or dataset.version
            if is_complete:
                state.add_reads(*dataset.input_facets.once(_reads))
        is_explicit = "lineage" in event.job.facets
        for dataset in in_time(event.outputs):
            state, written = (
                self._add_dataset(run.outputs, dataset, index, properties),
                dataset.output_facets,
            )
            run.worked = run.worked or "outputStatistics" in written.facets
            columns = (
                self._read_columns(dataset, event.job.facets, run.sql)
                if self._read_columns
                else None
            )
            state.columns = columns or state.columns
            if is_explicit or "lineage" in dataset.facets:
                state.reached_by = DatasetColumns.explicit_inputs(dataset, event.job.facets)
            state.partitions = written.once(DatasetFacets.partitions) or state.partitions
            statistics = written.once(OutputStatistics.read)
            state.statistics = statistics if statistics != NOT_COUNTED else state.statistics
            # The other events name the version before the write.
            state.version = (dataset.version if is_complete else "") or state.version
            state.replaces = state.replaces or written.once(_replaces)

    def _add_dataset(
        self,
        known: dict[DatasetId, DatasetState],
        dataset: EventDataset,
        index: int,
        properties: JsonObject | None,
    ) -> DatasetState:
        state = known.get(dataset.id)
        if state is None:
            state = known[dataset.id] = DatasetState()
        state.in_catalog = state.in_catalog or not _OF_CATALOGS.isdisjoint(dataset.facets.facets)
        if not self.symlinks.learn(dataset.id, dataset.facets, self._settings, properties):
            state.is_metadata = True
            return state
        schema, lifecycle, previous, layer = dataset.facets.once(DatasetFacets.of)
        if schema is not None:
            if schema is not state.schema:
                state.schema = self._texts.setdefault(schema, schema)
            state.schema_index = index
        state.lifecycle, state.layer = lifecycle or state.lifecycle, layer or state.layer
        state.previous = previous or state.previous
        if self._metadata_facets:
            found = DatasetMetadata.collect(dataset.facets, self._metadata_facets, index)
            state.metadata = (state.metadata or {}) | found or None
        return state

    @property
    def run_count(self) -> int:
        """Number of runs in the fold."""
        return len(self._runs)

    def discard(self, runs: Iterable[RunState]) -> None:
        """Forget runs that expect no more events."""
        for run in runs:
            del self._runs[run.run_id]
        self._texts, self._last = {}, (None, None)

    def applications(self) -> list[Application]:
        """Return the applications in the order of their first events."""
        # The last event is only kept to see what the next one repeats.
        self._last = (None, None)
        groups = grouped_by(self._runs.values(), self._application_of)
        return [
            Application(run_id, tuple(runs), self._runs.get(run_id))
            for run_id, runs in groups.items()
        ]

    def take_applications(self) -> list[Application]:
        """Return the applications and empty the fold, so that the caller can free each one."""
        taken = self.applications()
        self._runs, self._texts = {}, {}
        return taken

    def _application_of(self, run: RunState) -> str:
        """Return the run id of the application: the parent's run id if the run is a query, else the
        run's own.
        """
        seen = {run.run_id}
        while run.job_type != APPLICATION and run.parent_run_id and run.parent_run_id not in seen:
            parent = self._runs.get(run.parent_run_id)
            if parent is None:
                return run.parent_run_id if run.is_query else run.run_id
            if not run.is_query and parent.job_type != APPLICATION:
                return run.run_id
            run = parent
            seen.add(run.run_id)
        return run.run_id
