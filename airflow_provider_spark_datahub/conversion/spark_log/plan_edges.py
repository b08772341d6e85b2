"""Column lineage of a query's outputs: that of its plan, and what events report where the plan does
not show all sources of a column.

Tests: ``tests/conversion/test_merge.py`` and ``tests/conversion/test_run_events.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import structs

from airflow_provider_spark_datahub.conversion.columns.facet import (
    PARSED_PLAN,
    ColumnEdge,
    ColumnId,
    DatasetColumns,
)
from airflow_provider_spark_datahub.conversion.columns.sql import (
    Allowance,
    DatabaseTables,
    StatementError,
)
from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.facets.dataset import field_names
from airflow_provider_spark_datahub.conversion.runs.fold import DatasetState, RunState
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import Sources
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plan_runs import PlanRun, Written

_Key = tuple[DatasetName | None, str]
_OfQuery = Mapping[str, tuple[ColumnId, ...]]


@dataclass(slots=True)
class _Column:
    """Sources of a column of an output: values of it, or what decides on these.

    :param kinds: how the column comes from them, in OpenLineage's terms.
    :param is_whole: the plan shows all of them.
    """

    name: str
    is_direct: bool
    is_whole: bool = True
    sources: dict[ColumnId, None] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)


class PlanEdges:
    """Adds the column lineage of plans to queries, under the names of datasets in events."""

    def __init__(self, names: PlanNames, namer: DatasetNamer, settings: LineageSettings) -> None:
        self._names, self._namer = names, namer
        self._is_wanted = settings.capture_column_level_lineage
        self._kinds = (True, False) if settings.capture_indirect_columns else (True,)
        self._allowance = Allowance()

    def added(self, query: RunState, plan: PlanRun) -> RunState:
        """Return a query with the columns that its plan shows."""
        if not self._is_wanted:
            return query
        written = self._written_by_name(query, plan)
        tables = DatabaseTables(query.inputs)
        guesses = plan.guesses - query.inputs.keys()
        outputs = dict(query.outputs)
        for dataset, state in query.outputs.items():
            of_output = written.get(self._namer.name(dataset))
            if of_output is not None:
                columns = self._columns(of_output, state, tables, guesses)
                outputs[dataset] = self._with_columns(query, state, of_output, columns, plan.gap)
        return structs.replace(query, outputs=outputs)

    def _written_by_name(self, query: RunState, plan: PlanRun) -> dict[DatasetName | None, Written]:
        databases = DatabaseTables(query.outputs)
        by_name: dict[DatasetName | None, Written] = {}
        for written in plan.written:
            sinks: Collection[DatasetId] = [written.dataset] if written.dataset else ()
            if written.sink.relation:
                sinks = databases.named(written.sink.relation)
            for sink in sinks:
                by_name[self._namer.name(sink)] = written
        return by_name

    def _columns(
        self,
        written: Written,
        state: DatasetState,
        tables: DatabaseTables,
        guesses: Collection[DatasetId],
    ) -> list[_Column]:
        """Return the columns of an output, under their names in its schema."""
        of_databases = self._columns_of_databases(written, tables)
        spellings = {name.lower(): name for name in reversed(field_names(state.schema))}
        names = dict.fromkeys((*written.columns, *written.resolved))
        counts = Counter(map(str.lower, names))
        columns = []
        for name in names:
            sources = written.columns.get(name, {})
            is_unique = counts[name.lower()] == 1
            spelling = spellings.get(name.lower(), name) if is_unique else name
            for is_direct in self._kinds:
                column = _Column(spelling, is_direct, is_direct and name in written.resolved)
                self._add_sources(column, sources, of_databases, guesses)
                columns.append(column)
        return columns

    def _add_sources(
        self,
        column: _Column,
        sources: Sources,
        of_databases: Mapping[str, _OfQuery],
        guesses: Collection[DatasetId],
    ) -> None:
        for source, derivation in sources.items():
            if source.decides is column.is_direct:
                continue
            relation = source.dataset.relation
            if relation:
                named = of_databases[relation].get(source.column, ())
            else:
                name = self._names.column(source)
                is_known = name is not None and name.dataset not in guesses
                named = (name,) if name is not None and is_known else ()
                column.is_whole = column.is_whole and is_known
            if named:
                column.sources.update(dict.fromkeys(named))
                column.kinds.add(f"DIRECT:{derivation.name}")

    def _with_columns(
        self,
        query: RunState,
        state: DatasetState,
        written: Written,
        columns: list[_Column],
        gap: str,
    ) -> DatasetState:
        if query.is_logged:
            edges = [
                ColumnEdge((column.name,), tuple(column.sources), _kind_of_log(column))
                for column in columns
                if column.sources
            ]
            merged = DatasetColumns.of(edges, "") if edges else None
        else:
            merged = self._merged(state.columns or DatasetColumns.of((), query.sql), columns)
        has_direct = merged is not None and bool(merged.direct)
        is_known = has_direct or (query.is_logged and merged is not None)
        return structs.replace(
            state, columns=merged, is_resolved=written.is_complete, gap="" if is_known else gap
        )

    def _merged(self, reported: DatasetColumns, columns: list[_Column]) -> DatasetColumns:
        """Return the edges of a plan, with those that only events have of columns that the plan
        does not show in full.
        """
        names = {column.name for column in columns}
        # Events may spell a column in another case, unless its dataset has columns that differ in
        # nothing else.
        fold = str.lower if len(names) == len(set(map(str.lower, names))) else str
        planned = {(fold(column.name), column.is_direct): column for column in columns}
        wrong: dict[tuple[str, bool], set[_Key]] = {}
        known: dict[tuple[str, bool], set[_Key]] = {}
        for edge in reported.edges:
            for name in edge.downstreams if not edge.of_all_rows else ():
                key = fold(name), edge.is_direct
                known.setdefault(key, set()).update(map(self._key, edge.upstreams))
        for key, column in planned.items():
            if column.is_whole:
                of_plan = set(map(self._key, column.sources))
                wrong[key] = known.get(key, set()) - of_plan
        new = []
        for key, column in planned.items():
            sources = known.get(key, set()) - wrong.get(key, set())
            upstreams = tuple(one for one in column.sources if self._key(one) not in sources)
            if upstreams:
                kind = "DIRECT" if column.is_direct else "INDIRECT"
                new.append(ColumnEdge((column.name,), upstreams, f"{kind}:{PARSED_PLAN}"))
        if any(wrong.values()):
            reported = reported.mapped(self._corrected(wrong, fold))
        return reported.with_edges(new) if new else reported

    def _corrected(
        self, wrong: Mapping[tuple[str, bool], Collection[_Key]], fold: Callable[[str], str]
    ) -> Callable[[ColumnEdge], ColumnEdge]:
        """Return a function that takes wrong sources out of an edge."""

        def corrected(edge: ColumnEdge) -> ColumnEdge:
            if edge.of_all_rows:
                return edge
            outdated: set[_Key] = set()
            for name in edge.downstreams:
                outdated.update(wrong.get((fold(name), edge.is_direct), ()))
            kept = tuple(one for one in edge.upstreams if self._key(one) not in outdated)
            return (
                edge if len(kept) == len(edge.upstreams) else structs.replace(edge, upstreams=kept)
            )

        return corrected

    def _key(self, column: ColumnId) -> _Key:
        return self._namer.name(column.dataset), column.field.lower()

    def _columns_of_databases(
        self, written: Written, tables: DatabaseTables
    ) -> dict[str, _OfQuery]:
        """Return the table columns behind each column of a query that a database runs, by query."""
        wanted: dict[str, set[str]] = {}
        for sources in written.columns.values():
            for source in sources:
                if source.dataset.relation:
                    wanted.setdefault(source.dataset.relation, set()).add(source.column)
        columns: dict[str, _OfQuery] = {}
        for relation, names in wanted.items():
            columns[relation] = {}
            with suppress(StatementError):
                columns[relation] = tables.columns_of_query(relation, names, self._allowance)
        return columns


def _kind_of_log(column: _Column) -> str:
    return ",".join(sorted(column.kinds)) if column.is_direct else "INDIRECT:CONDITIONAL"
