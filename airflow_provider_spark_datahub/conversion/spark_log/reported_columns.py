"""Columns of physical plans in the outputs that events report, if the events lack them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, product

from msgspec import structs

from airflow_provider_spark_datahub.conversion.columns.facet import (
    PARSED_PLAN,
    ColumnEdge,
    ColumnId,
    DatasetColumns,
)
from airflow_provider_spark_datahub.conversion.columns.sql import (
    DatabaseTables,
    StatementError,
    Steps,
    columns_of_query,
    direct_columns,
    short_statement,
)
from airflow_provider_spark_datahub.conversion.datasets import DatasetName, DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.facets.dataset import field_names
from airflow_provider_spark_datahub.conversion.runs.fold import DatasetState, RunState
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import ColumnSource
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import (
    ExecutionColumns,
    WrittenColumns,
    with_cloned,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plans import PlanDataset


class ReportedColumns:
    """Columns of plans in the outputs of runs, under the names that events give the datasets."""

    def __init__(self, names: PlanNames, namer: DatasetNamer) -> None:
        self._names, self._namer = names, namer
        self._steps = Steps()

    def _name(self, named: PlanDataset) -> DatasetName | None:
        dataset = self._names.id_of(named)
        return self._namer.name(dataset) if dataset is not None else None

    def _columns_of(self, named: PlanDataset) -> tuple[str, ...]:
        """Return the columns of a dataset, by the latest schema in events."""
        return field_names(self._schemas.get(self._name(named)))

    @cached_property
    def _schemas(self) -> Mapping[DatasetName | None, bytes]:
        states = self._names.states
        return {self._namer.name(dataset): state.schema for dataset, state in states if state.schema is not None}

    def filled(
        self, runs: Mapping[str, RunState], found: ExecutionColumns, *, of_rows: bool = False
    ) -> dict[str, RunState]:
        """Return the runs that wrote the sinks of an execution, with the columns that none of them has.

        :param of_rows: the execution read the rows of a checkpoint.
        """
        written: dict[PlanDataset, WrittenColumns] = {}
        for sink, columns_of_sink in found.written if runs else ():
            written.setdefault(sink, {}).update(with_cloned(columns_of_sink, self._columns_of))
        outputs = _Outputs(runs, self._namer)
        for sink, columns_of_sink in written.items():
            self._fill(outputs, sink, columns_of_sink, found, of_rows=of_rows)
        return outputs.filled(of_rows=of_rows)

    def _fill(
        self, outputs: _Outputs, sink: PlanDataset, written: WrittenColumns, found: ExecutionColumns, *, of_rows: bool
    ) -> None:
        target = self._name(sink)
        # A folder may be made of itself by way of a checkpoint.
        own = None if of_rows else target
        exact = frozenset(map(str.lower, found.exact.get(sink, ())))
        states = [
            (
                run,
                dataset,
                structs.replace(state, columns=state.columns.without(exact)) if exact and state.columns else state,
            )
            for run, dataset, state in outputs.of(sink, target)
        ]
        known = {column.lower() for _, _, state in states for column in direct_columns(state)}
        is_new = self._is_new(sink, found, [state for _, _, state in states])
        for run, dataset, state in states:
            queries = self._of_databases(written, outputs.tables_of_databases(run))
            names = {name.lower(): name for name in reversed(field_names(state.schema))}
            edges = [
                ColumnEdge((names.get(column.lower(), column),), upstreams, PARSED_PLAN)
                for column, sources in written.items()
                for upstreams in [
                    tuple(
                        source
                        for source in dict.fromkeys(self._upstreams(sources, queries, own))
                        if column.lower() not in known or is_new(column, source)
                    )
                ]
                if upstreams
            ]
            if edges or exact:
                columns = state.columns or DatasetColumns.of((), run.sql)
                outputs.change(run, dataset, structs.replace(state, columns=columns.with_edges(edges)), edges)
            elif found.ends and not known:
                gap = short_statement(", and ".join(found.ends), 200)
                outputs.change(run, dataset, structs.replace(state, gap=gap))

    def _is_new(
        self, sink: PlanDataset, found: ExecutionColumns, states: Sequence[DatasetState]
    ) -> Callable[[str, ColumnId], bool]:
        """Return whether events may lack a source of a column that they have others of.

        OpenLineage may report one clause of a MERGE, or one part of a union. Parts of a union count by their datasets,
        since events may name a field of a column.
        """
        of_union = sink not in found.merged
        if of_union and not found.has_union:
            return lambda *_: False

        def pair(column: str, source: ColumnId) -> tuple[str, DatasetName | None, str]:
            return column.lower(), self._namer.name(source.dataset), "" if of_union else source.field.lower()

        edges = (edge for state in states if state.columns is not None for edge in state.columns.direct_edges())
        reported = {pair(*named) for edge in edges for named in product(edge.downstreams, edge.upstreams)}
        return lambda column, source: pair(column, source) not in reported

    def _upstreams(
        self, sources: Iterable[ColumnSource], queries: Mapping[str, Mapping[str, tuple[ColumnId, ...]]], target: object
    ) -> Iterator[ColumnId]:
        for source in sources:
            if source.dataset.relation:
                yield from queries[source.dataset.relation].get(source.column, ())
                continue
            column = self._names.column(source)
            # Commands that change rows read the rest of their target.
            if column is not None and self._namer.name(column.dataset) != target:
                yield column

    def _of_databases(
        self, written: WrittenColumns, tables: Callable[[], DatabaseTables]
    ) -> Mapping[str, Mapping[str, tuple[ColumnId, ...]]]:
        """Return the table columns behind each column of a query that a database runs, by the query."""
        wanted: dict[str, set[str]] = {}
        for source in chain.from_iterable(written.values()):
            if source.dataset.relation:
                wanted.setdefault(source.dataset.relation, set()).add(source.column)
        found: dict[str, Mapping[str, tuple[ColumnId, ...]]] = {}
        for relation, columns in wanted.items():
            found[relation] = {}
            with suppress(StatementError):
                found[relation] = columns_of_query(relation, columns, tables(), self._steps)
        return found


class _Outputs:
    """Outputs of the runs of one execution, by the sinks of its plans, and what changes in them."""

    def __init__(self, runs: Mapping[str, RunState], namer: DatasetNamer) -> None:
        self._runs = runs
        self._namer = namer
        written = [(run_id, dataset) for run_id, run in runs.items() for dataset, _ in run.written]
        self._by_name: dict[object, list[tuple[str, DatasetId]]] = {}
        self._runs_of: dict[DatasetId, list[str]] = {}
        for run_id, dataset in written:
            self._by_name.setdefault(namer.name(dataset), []).append((run_id, dataset))
            self._runs_of.setdefault(dataset, []).append(run_id)
        self._databases = DatabaseTables(self._runs_of)
        self._read_tables: dict[str, DatabaseTables] = {}
        self._changed: dict[str, dict[DatasetId, DatasetState]] = {}
        self._edges: dict[str, list[ColumnEdge]] = {}

    def of(self, sink: PlanDataset, target: object) -> list[tuple[RunState, DatasetId, DatasetState]]:
        """Return the runs that wrote a sink, with their outputs of that name, as they are by now.

        :param target: the name of the sink.
        """
        found = dict.fromkeys(self._by_name.get(target, ()))
        for table in self._databases.named(sink.relation) if sink.relation else ():
            found |= dict.fromkeys((run_id, table) for run_id in self._runs_of[table])
        return [
            (run, dataset, self._changed.get(run_id, run.outputs).get(dataset) or run.outputs[dataset])
            for run_id, dataset in found
            for run in [self._runs[run_id]]
        ]

    def tables_of_databases(self, run: RunState) -> Callable[[], DatabaseTables]:
        """Return a function that returns the tables of databases that a run read."""

        def tables() -> DatabaseTables:
            if run.run_id not in self._read_tables:
                self._read_tables[run.run_id] = DatabaseTables(run.inputs)
            return self._read_tables[run.run_id]

        return tables

    def change(self, run: RunState, dataset: DatasetId, state: DatasetState, edges: Sequence[ColumnEdge] = ()) -> None:
        """Replace the state of an output. :param edges: those that are new in it."""
        self._changed.setdefault(run.run_id, {})[dataset] = state
        self._edges.setdefault(run.run_id, []).extend(edges)

    def filled(self, *, of_rows: bool) -> dict[str, RunState]:
        """Return the runs with changed outputs. :param of_rows: their execution read the rows of a checkpoint."""
        filled = {}
        for run_id, changed in self._changed.items():
            run = self._runs[run_id]
            inputs = _with_files(run.inputs, self._edges[run_id]) if of_rows else run.inputs
            filled[run_id] = structs.replace(run, inputs=inputs, outputs={**run.outputs, **changed})
        return filled


def _with_files(inputs: Mapping[DatasetId, DatasetState], edges: Iterable[ColumnEdge]) -> dict[DatasetId, DatasetState]:
    """Return the inputs with the files that a plan names, in place of the folders around them.

    OpenLineage names the folder of a file that an RDD reads, such as one behind a checkpoint.
    """
    upstreams = dict.fromkeys(column.dataset for edge in edges for column in edge.upstreams)
    files = [dataset for dataset in upstreams if dataset not in inputs]
    folders = {file._replace(name=file.name.rpartition("/")[0]) for file in files}
    known = {dataset: state for dataset, state in inputs.items() if dataset not in folders}
    return known | {file: DatasetState() for file in files if "/" in file.name}
