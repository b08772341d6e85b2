"""Columns of physical plans in the outputs that events report, if the events lack them.

Tests: ``tests/conversion/test_hard_jobs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import chain, product

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
    columns_of_query,
    short_statement,
    tables_of_query,
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
        self._allowance = Allowance()

    def _name(self, named: PlanDataset) -> DatasetName | None:
        dataset = self._names.id_of(named)
        return self._namer.name(dataset) if dataset is not None else None

    def _columns_of(self, named: PlanDataset) -> tuple[str, ...]:
        """Return the columns of a dataset, by the latest schema in events."""
        return field_names(self._schemas.get(self._name(named)))

    def _cloned_columns(self, clone: PlanDataset, source: PlanDataset) -> list[str]:
        """Return the columns of a cloned dataset without those that its clone lacks: it may be replaced later."""
        own = self._columns_of(clone)
        return [column for column in self._columns_of(source) if column in own or not own]

    @cached_property
    def _schemas(self) -> Mapping[DatasetName | None, bytes]:
        states = self._names.states
        return {self._namer.name(dataset): state.schema for dataset, state in states if state.schema is not None}

    def with_tables(self, run: RunState, relations: Iterable[str]) -> RunState:
        """Return the run with the tables of queries in place of the parts that these name by WITH.

        OpenLineage takes a part that is named by the option ``prepareQuery`` for a table.
        """
        scheme = DatabaseTables(run.inputs).scheme
        for relation in relations:
            with suppress(StatementError):
                parts, tables = tables_of_query(relation, scheme, self._allowance)
                run = _without_parts(run, parts, tables)
        return run

    def filled(
        self, runs: Mapping[str, RunState], found: ExecutionColumns, *, of_rows: bool = False
    ) -> dict[str, RunState]:
        """Return the runs that wrote the sinks of an execution, with the columns that none of them has.

        :param of_rows: the execution read the rows of a checkpoint.
        """
        by_sink: dict[PlanDataset, WrittenColumns] = {}
        for sink, written in found.written if runs else ():
            by_sink.setdefault(sink, {}).update(with_cloned(written, partial(self._cloned_columns, sink)))
        outputs = _Outputs(runs.values(), self._namer)
        for sink, written in by_sink.items():
            target = self._name(sink)
            # A folder may be made of itself by way of a checkpoint.
            self._fill(outputs.of(sink, target), sink, written, found, own=None if of_rows else target)
        filled = {}
        for run_id, changed in outputs.changed().items():
            run = runs[run_id]
            inputs = _with_files(run.inputs, [edge for output in changed for edge in output.edges])
            written_by_run = {output.dataset: output.state for output in changed}
            filled[run_id] = structs.replace(
                run, inputs=inputs if of_rows else run.inputs, outputs=run.outputs | written_by_run
            )
        return filled

    def _fill(
        self,
        outputs: Sequence[_Output],
        sink: PlanDataset,
        written: WrittenColumns,
        found: ExecutionColumns,
        *,
        own: DatasetName | None,
    ) -> None:
        """Add the columns that are written to a sink to its outputs.

        :param own: a dataset whose columns are not sources: commands that change rows read the rest of their target.
        """
        exact = frozenset(map(str.lower, found.exact.get(sink, ())))
        for output in outputs if exact else ():
            if output.state.columns is not None:
                output.state = structs.replace(output.state, columns=output.state.columns.without(exact))
        known = {column.lower() for output in outputs for column in output.state.direct_columns}
        is_new = self._is_new(sink, found, [output.state for output in outputs])
        for output in outputs:
            queries = self._of_databases(written, output.read_tables)
            names = {name.lower(): name for name in reversed(field_names(output.state.schema))}
            edges = []
            for column, sources in written.items():
                upstreams = dict.fromkeys(self._upstreams(sources, queries, own))
                new = tuple(source for source in upstreams if column.lower() not in known or is_new(column, source))
                edges += [ColumnEdge((names.get(column.lower(), column),), new, PARSED_PLAN)] if new else []
            if edges or exact:
                columns = output.state.columns or DatasetColumns.of((), output.run.sql)
                output.state = structs.replace(output.state, columns=columns.with_edges(edges))
                output.edges += edges
            elif found.ends and not known:
                output.state = structs.replace(output.state, gap=short_statement(", and ".join(found.ends), 200))

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
        self,
        sources: Iterable[ColumnSource],
        queries: Mapping[str, Mapping[str, tuple[ColumnId, ...]]],
        own: DatasetName | None,
    ) -> Iterator[ColumnId]:
        for source in sources:
            if source.dataset.relation:
                yield from queries[source.dataset.relation].get(source.column, ())
                continue
            column = self._names.column(source)
            if column is not None and (name := self._namer.name(column.dataset)) is not None and name != own:
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
                found[relation] = columns_of_query(relation, columns, tables(), self._allowance)
        return found


@dataclass(slots=True, eq=False)
class _Output:
    """An output of one of the runs of an execution.

    :param read_tables: returns the tables of databases that the run read.
    :param edges: those that are new in its state.
    """

    run: RunState
    dataset: DatasetId
    state: DatasetState
    read_tables: Callable[[], DatabaseTables]
    edges: list[ColumnEdge] = field(default_factory=list)


class _Outputs:
    """Outputs of the runs of one execution, by the sinks of its plans."""

    def __init__(self, runs: Iterable[RunState], namer: DatasetNamer) -> None:
        self._all: list[_Output] = []
        self._by_name: dict[DatasetName | None, list[_Output]] = {}
        self._by_dataset: dict[DatasetId, list[_Output]] = {}
        for run in runs:
            read_tables = cache(partial(DatabaseTables, run.inputs))
            for dataset, state in run.written:
                output = _Output(run, dataset, state, read_tables)
                self._all.append(output)
                self._by_name.setdefault(namer.name(dataset), []).append(output)
                self._by_dataset.setdefault(dataset, []).append(output)
        self._databases = DatabaseTables(self._by_dataset)

    def of(self, sink: PlanDataset, target: DatasetName | None) -> list[_Output]:
        """Return the outputs that are a sink. :param target: the name of the sink."""
        found = dict.fromkeys(self._by_name.get(target, ()) if target is not None else ())
        for table in self._databases.named(sink.relation) if sink.relation else ():
            found |= dict.fromkeys(self._by_dataset[table])
        return list(found)

    def changed(self) -> dict[str, list[_Output]]:
        """Return the outputs that are not as their runs have them, by run id."""
        changed: dict[str, list[_Output]] = {}
        for output in self._all:
            if output.state is not output.run.outputs[output.dataset]:
                changed.setdefault(output.run.run_id, []).append(output)
        return changed


def _with_files(inputs: Mapping[DatasetId, DatasetState], edges: Iterable[ColumnEdge]) -> dict[DatasetId, DatasetState]:
    """Return the inputs with the files that a plan names, in place of the folders around them.

    OpenLineage names the folder of a file that an RDD reads, such as one behind a checkpoint.
    """
    upstreams = dict.fromkeys(column.dataset for edge in edges for column in edge.upstreams)
    files = [dataset for dataset in upstreams if dataset not in inputs]
    folders = {file._replace(name=file.name.rpartition("/")[0]) for file in files}
    known = {dataset: state for dataset, state in inputs.items() if dataset not in folders}
    return known | {file: DatasetState() for file in files if "/" in file.name}


def _without_parts(run: RunState, parts: Collection[str], tables: Collection[str]) -> RunState:
    """Return the run with tables of a database in place of inputs with the names of a query's parts.

    :param parts: names in lower case.
    """
    wrong = {
        dataset: tuple(dataset._replace(name=f"{dataset.name.rpartition('.')[0]}.{table}") for table in tables)
        for dataset in run.inputs
        if "://" in dataset.namespace
        and dataset.name.rpartition(".")[2].lower() in parts
        and not any(f".{dataset.name}".lower().endswith(f".{table}".lower()) for table in tables)
    }
    if not wrong or not tables:
        return run
    outputs = {
        dataset: structs.replace(
            state,
            columns=state.columns
            and state.columns.within(dict.fromkeys(wrong, frozenset())).renamed(lambda one: wrong.get(one, (one,))[0]),
        )
        for dataset, state in run.outputs.items()
    }
    read = {table: DatasetState() for found in wrong.values() for table in found}
    kept = {dataset: state for dataset, state in run.inputs.items() if dataset not in wrong}
    return structs.replace(run, inputs=read | kept, outputs=outputs)
