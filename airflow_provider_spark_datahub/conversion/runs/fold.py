"""All events of one run folded into one run, and runs grouped into applications (conversion rules, section 7).

Runs that tell the same are one: what an application of a million micro-batches leaves in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion.columns.facet import (
    LINEAGE,
    DatasetColumns,
    facets_of_output,
    read_columns,
)
from airflow_provider_spark_datahub.conversion.datasets import Symlinks
from airflow_provider_spark_datahub.conversion.events import (
    FAILED_TYPES,
    TERMINAL_TYPES,
    DatasetId,
    EventDataset,
    Facets,
    JsonObject,
    RunEvent,
)
from airflow_provider_spark_datahub.conversion.facets.dataset import (
    NOT_COUNTED,
    Check,
    OutputStatistics,
    checks_of,
    learn_notes,
    lifecycle_change,
    lists_fields,
    noted_facets,
    previous_name,
    read_partitions,
    read_statistics,
)
from airflow_provider_spark_datahub.conversion.facets.properties import (
    PropertyLayers,
    description,
    owner_names,
    property_layers,
)
from airflow_provider_spark_datahub.conversion.facets.run import RunDetails, details_of, merged_details, with_later
from airflow_provider_spark_datahub.conversion.identity import FlowIdentity, application_names, flow_identity
from airflow_provider_spark_datahub.conversion.limits import packed
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

APPLICATION = "APPLICATION"
RDD_JOB = "RDD_JOB"
QUERY_TYPES = frozenset({"SQL_JOB", RDD_JOB})
_NON_MATERIALISING = tuple(
    f"{step}_{source}"
    for step in ("map", "map_partitions", "flatmap", "filter", "distinct")
    for source in ("parallel_collection", "text_file", "hadoopfile")
)
DROP, RENAME = "DROP", "RENAME"
NOT_WRITTEN = frozenset({DROP, RENAME})
"""What the ``lifecycleStateChange`` facet says of tables that were not written (Deviation 9)."""


class _Told(NamedTuple):
    """What one event says of a dataset; empty or ``None`` where it says nothing.

    :param schema: decoded, or as packed text.
    """

    schema: JsonObject | bytes | None
    lifecycle: str
    previous: DatasetId | None


def _told(facets: Facets) -> _Told:
    schema = facets.kept("schema") if "schema" in facets else b""
    kept = (packed(schema) if isinstance(schema, bytes) else schema) if lists_fields(schema) else None
    change = facets["lifecycleStateChange"]
    return _Told(kept, lifecycle_change(change), previous_name(change))


# The states of a job are many, and hold nothing that holds them: the garbage collector need not go through them.
class DatasetState(msgspec.Struct, gc=False):
    """What the events of one run say of one of its datasets; of each facet the last one counts.

    :param schema: the ``schema`` facet, decoded or as packed text.
    :param previous: what a renamed dataset was called.
    :param partitions: those that were written, where the producer tells.
    :param notes: facets by name, each with the index of its event; ``None`` where there are none.
    """

    schema: JsonObject | bytes | None = None
    schema_index: int = -1
    columns: DatasetColumns | None = None
    lifecycle: str = ""
    previous: DatasetId | None = None
    partitions: tuple[str, ...] = ()
    statistics: OutputStatistics = NOT_COUNTED
    notes: dict[str, tuple[int, JsonObject]] | None = None


class RunState(msgspec.Struct, gc=False):
    """One run: a query, an RDD job, or the application itself.

    :param index: where its first event stands among all events.
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
    inputs: dict[DatasetId, DatasetState] = {}
    outputs: dict[DatasetId, DatasetState] = {}
    properties: list[tuple[int, PropertyLayers]] = []
    """What its events told, each with the index of its event; what an event repeats is left out."""
    owners: tuple[str, ...] = ()
    details: RunDetails | None = None
    checks: dict[Check, bool] | None = None

    def job_property(self, key: str) -> str:
        """A property of its job as first told, or empty."""
        return _first(key, (layers.job for _, layers in self.properties))

    def flow_property(self, key: str) -> str:
        """A property of its flow as first told, or empty."""
        return _first(key, (layers.flow for _, layers in self.properties))

    @property
    def is_query(self) -> bool:
        """A Spark query or RDD job, which belongs to the application that its parent facet names."""
        return self.job_type in QUERY_TYPES

    @property
    def changed(self) -> Collection[tuple[DatasetId, DatasetState]]:
        """Its outputs without those that it only passed through: written, dropped or renamed."""
        if self.job_type == RDD_JOB and self.job_name.endswith(_NON_MATERIALISING):
            read, passed = ({dataset.name for dataset in datasets} for datasets in (self.inputs, self.outputs))
            if read == passed:
                return ()
        return self.outputs.items()

    @property
    def written(self) -> list[tuple[DatasetId, DatasetState]]:
        """Its outputs without those that it only dropped, renamed or passed through."""
        return [one for one in self.changed if one[1].lifecycle not in NOT_WRITTEN]


def _first(key: str, told: Iterable[Sequence[Mapping[str, str]]]) -> str:
    return next((layer[key] for layers in told for layer in reversed(layers) if key in layer), "")


@dataclass(frozen=True, slots=True)
class Application:
    """The runs of one application, in the order of their first events.

    :param run_id: the application's own run id.
    """

    run_id: str
    runs: tuple[RunState, ...]
    own_run: RunState | None
    """The application's own run; ``None`` where only its queries sent events."""

    @property
    def details(self) -> RunDetails:
        """What its events tell of its run: its own first, and then those of a query that failed, which say why."""
        own = self.own_run
        others = sorted((run for run in self.runs if run is not own), key=lambda run: not run.failure)
        return merged_details(own.details if own is not None else None, (run.details for run in others))


class Fold:
    """Folds a stream of events; what it keeps grows with the distinct content, not with the number of events."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._noted = noted_facets(settings)
        self._runs: dict[str, RunState] = {}
        self._count = 0
        # Of what equal texts tell, one is kept.
        self._texts: dict[bytes, bytes] = {}
        self._columns: dict[tuple[bytes, bytes, str], DatasetColumns] = {}
        self.symlinks = Symlinks()

    def add(self, event: RunEvent) -> None:
        """Take one more event.

        :raises EventError: where no flow can be named after it; the fold is as before then.
        """
        app_name, session_name = application_names(event)
        flow = flow_identity(event, self._settings, app_name or session_name)
        index, self._count = self._count, self._count + 1
        run = self._runs.get(event.run_id)
        if run is None:
            run = self._runs[event.run_id] = RunState(event.run_id, index, event.job_name, flow)
        run.flow, run.last_index = flow, index
        run.job_type = event.job_type or run.job_type
        run.parent_run_id = event.parent_run_id or run.parent_run_id
        run.app_name = run.app_name or app_name
        run.session_name = session_name or run.session_name
        run.description = run.description or description(event)
        run.sql = event.sql or run.sql
        run.details = with_later(run.details, details_of(event))
        self._add_time_and_state(run, event)
        self._add_properties(run, event, index)
        if self._settings.capture_test_results:
            run.checks = (run.checks or {}) | checks_of(event)
        for dataset in event.inputs:
            self._add_dataset(run.inputs, dataset, index)
        with_columns = self._settings.capture_column_level_lineage
        for dataset in event.outputs:
            state = self._add_dataset(run.outputs, dataset, index)
            columns = read_columns(dataset.facets, run.sql) if with_columns else None
            if columns is None and with_columns and LINEAGE in event.job_facets:
                columns = read_columns(facets_of_output(event.job_facets, dataset), run.sql)
            if columns is not None:
                state.columns = self._columns.setdefault(columns.key, columns) if columns.key else columns
            state.partitions = read_partitions(dataset.output_facets) or state.partitions
            if self._settings.capture_operations:
                statistics = read_statistics(dataset.output_facets)
                state.statistics = statistics if statistics != NOT_COUNTED else state.statistics

    @staticmethod
    def _add_time_and_state(run: RunState, event: RunEvent) -> None:
        if event.time_ms is not None:
            run.start_ms = event.time_ms if run.start_ms is None else min(run.start_ms, event.time_ms)
            run.end_ms = event.time_ms if run.end_ms is None else max(run.end_ms, event.time_ms)
        run.started = run.started or event.type == "START"
        run.ended = run.ended or event.type in TERMINAL_TYPES
        if event.type in FAILED_TYPES:
            run.failure = event.type

    def _add_properties(self, run: RunState, event: RunEvent, index: int) -> None:
        layers = property_layers(event, spark_plan=self._settings.capture_spark_plan)
        if not any(known is layers for _, known in run.properties):
            run.properties.append((index, layers))
        owners = owner_names(event)
        if owners:
            run.owners = tuple(dict.fromkeys((*run.owners, *owners)))

    def _add_dataset(self, known: dict[DatasetId, DatasetState], dataset: EventDataset, index: int) -> DatasetState:
        state = known.get(dataset.id)
        if state is None:
            state = known[dataset.id] = DatasetState()
        if not self.symlinks.learn(dataset.id, dataset.facets, self._settings):
            return state
        schema, lifecycle, previous = dataset.facets.once(_told)
        if schema is not None:
            state.schema = self._texts.setdefault(schema, schema) if isinstance(schema, bytes) else schema
            state.schema_index = index
        state.lifecycle = lifecycle or state.lifecycle
        state.previous = previous or state.previous
        if self._noted:
            state.notes = learn_notes(state.notes or {}, dataset.facets, self._noted, index) or None
        return state

    @property
    def run_count(self) -> int:
        """How many runs are kept."""
        return len(self._runs)

    def reduce(self, reduced: Callable[[Mapping[str, RunState], int], dict[str, RunState]]) -> None:
        """Keep fewer runs.

        :param reduced: from the runs by their ids, and the number of events up to now, to those that are kept.
        """
        self._runs = reduced(self._runs, self._count)

    def forget(self, is_over: Callable[[RunState], bool]) -> None:
        """Let go of runs, so that the applications are from now on what is left of them.

        :param is_over: says True of a run of which no more events are to be expected.
        """
        self._runs = {run_id: run for run_id, run in self._runs.items() if not is_over(run)}
        self._texts, self._columns = {}, {}

    def applications(self) -> list[Application]:
        """The applications in the order of their first events."""
        groups: dict[str, list[RunState]] = {}
        for run in self._runs.values():
            groups.setdefault(self._application_of(run), []).append(run)
        return [Application(run_id, tuple(runs), self._runs.get(run_id)) for run_id, runs in groups.items()]

    def take_applications(self) -> list[Application]:
        """:meth:`applications`, which are no longer in the fold then: whoever takes them can let them go."""
        taken = self.applications()
        self._runs, self._texts, self._columns = {}, {}, {}
        return taken

    def _application_of(self, run: RunState) -> str:
        """The run id of the application: the parent's, where the run is a query of it."""
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


def merged(runs: Mapping[str, RunState], before: int, most: int) -> dict[str, RunState]:
    """The runs without those queries that say nothing that an earlier one of the same application did not say.

    What a job is coalesced from stays the same: of what the two differ in, times are joined, the later schema and the
    earlier properties count (conversion rules, section 7). An event for a run that was merged begins it anew.

    :param runs: by run id, in the order of their first events.
    :param before: only runs whose last event has a lower index.
    :param most: only of applications with more queries than that.
    """
    several_names = _with_several_session_names(runs.values())
    queries = Counter(run.parent_run_id for run in runs.values())
    kept: dict[str, RunState] = {}
    firsts: dict[Hashable, _First] = {}
    for run_id, run in runs.items():
        may_merge = run.is_query and run.last_index < before and (run.ended or not run.outputs)
        may_merge = may_merge and queries[run.parent_run_id] > most
        told = _what_it_tells(run) if may_merge and run.parent_run_id not in several_names else None
        if told is None:
            kept[run_id] = run
        elif told in firsts:
            firsts[told].take(run)
        else:
            kept[run_id], firsts[told] = run, _First(run)
    return kept


def _with_several_session_names(runs: Iterable[RunState]) -> set[str]:
    """Applications whose name is told by the last session, which must stay the last."""
    names: dict[str, set[str]] = {}
    for run in runs:
        if run.session_name and run.parent_run_id:
            names.setdefault(run.parent_run_id, set()).add(run.session_name)
    return {run_id for run_id, told in names.items() if len(told) > 1}


def _what_it_tells(run: RunState) -> Hashable | None:
    """All but its times, schemas and properties; ``None`` where it has notes, of which each may be another one."""
    if any(state.notes for datasets in (run.inputs, run.outputs) for state in datasets.values()):
        return None
    return (
        (run.parent_run_id, run.job_type, run.job_name, run.flow, run.app_name, run.session_name),
        (run.description, run.sql, run.owners, repr(run.details), run.started, run.ended, run.failure),
        tuple((dataset, _changes(state)) for dataset, state in run.inputs.items()),
        tuple((dataset, _changes(state)) for dataset, state in run.outputs.items()),
    )


def _changes(state: DatasetState) -> Hashable:
    # Equal column lineages are one object in a fold.
    return state.lifecycle, state.previous, state.partitions, id(state.columns), state.statistics


@dataclass(slots=True)
class _First:
    """The first of the runs that are alike. :param keys: of the properties that it has."""

    run: RunState
    keys: tuple[set[str], set[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = (set(), set())
        for _, layers in self.run.properties:
            self._learn(layers)

    def take(self, other: RunState) -> None:
        """Take what another one says beside what is the same."""
        run = self.run
        if other.start_ms is not None:
            run.start_ms = other.start_ms if run.start_ms is None else min(run.start_ms, other.start_ms)
        if other.end_ms is not None:
            run.end_ms = other.end_ms if run.end_ms is None else max(run.end_ms, other.end_ms)
        run.last_index = max(run.last_index, other.last_index)
        for mine, theirs in ((run.inputs, other.inputs), (run.outputs, other.outputs)):
            for dataset, state in theirs.items():
                if state.schema is not None and state.schema_index >= mine[dataset].schema_index:
                    mine[dataset].schema, mine[dataset].schema_index = state.schema, state.schema_index
        for index, layers in other.properties:
            # Of one key's values the earliest counts: only new keys matter.
            if self._learn(layers):
                run.properties.append((index, layers))

    def _learn(self, layers: PropertyLayers) -> bool:
        """Whether there are keys that were not there before."""
        before = sum(map(len, self.keys))
        for known, told in zip(self.keys, (layers.job, layers.flow), strict=True):
            for layer in told:
                known.update(layer)
        return sum(map(len, self.keys)) > before
