"""Merges the plans of one query into the runs that report it: the plan leads, events fill in
(section 8.5).

Tests: ``tests/conversion/test_merge.py`` and ``tests/conversion/test_hard_jobs.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
)
from airflow_provider_spark_datahub.conversion.datasets import (
    DatasetName,
    DatasetNamer,
    folders_around,
)
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.facets.dataset import field_names
from airflow_provider_spark_datahub.conversion.runs.effects import with_known_columns
from airflow_provider_spark_datahub.conversion.runs.evidence import BOTH, SPARK_PLAN
from airflow_provider_spark_datahub.conversion.runs.fold import DatasetState, RunState
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import WrittenColumns
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plan_runs import (
    PlanRun,
    Written,
    wrote_data,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import CLONE, Plan

_Runs = Mapping[str, RunState]
_Key = tuple[DatasetName | None, str]


class QueryMerge:
    """Merges an application's executions into the runs that report them, under the names of
    datasets in events.
    """

    def __init__(self, names: PlanNames, namer: DatasetNamer, settings: LineageSettings) -> None:
        self._names, self._namer, self._settings = names, namer, settings
        self._allowance = Allowance()

    def merged(self, runs: _Runs, plan: PlanRun) -> _Runs:
        """Return the runs that report an execution with what its plans show."""
        relations = [
            relation for part in plan.parts for relation in Plan.queries_with_parts(part.plan)
        ]
        # Drop column lineage from columns that their table lacks: databases compute some columns.
        runs = {
            run_id: with_known_columns(self._with_tables(run, relations))
            for run_id, run in runs.items()
        }
        if not plan.ended_well:
            return runs
        if plan.is_inference:
            return {
                run_id: structs.replace(_without_outputs(run), inputs={})
                for run_id, run in runs.items()
            }
        runs = {run_id: self._with_uses(run, plan) for run_id, run in runs.items()}
        if plan.only_reads and any(run.outputs for run in runs.values()):
            # OpenLineage takes the rows of a cache for a dataset that is written.
            runs = {run_id: _without_outputs(run) for run_id, run in runs.items()}
        wrote = any(wrote_data(part) or CLONE in part.plan for part in plan.parts)
        if wrote and not any(run.outputs for run in runs.values()):
            runs = self._with_outputs(runs, plan)
        plan = self._without_guesses(runs, plan)
        return self._with_columns(self._with_inputs(runs, plan), plan)

    def _with_tables(self, run: RunState, relations: Iterable[str]) -> RunState:
        """Return the run with the tables of queries in place of the parts that these name by WITH.

        OpenLineage takes a part that is named by the option ``prepareQuery`` for a table.
        """
        databases = DatabaseTables(run.inputs)
        for relation in relations:
            with suppress(StatementError):
                parts, tables = databases.tables_of_query(relation, self._allowance)
                run = _without_parts(run, parts, tables)
        return run

    def _with_uses(self, run: RunState, plan: PlanRun) -> RunState:
        """Return the run with versions and full overwrites that the events lack."""
        inputs, outputs = dict(run.inputs), dict(run.outputs)
        for dataset, read in plan.inputs.items():
            state = inputs.get(dataset)
            if read.scans and state is not None and not (state.version or state.scans):
                inputs[dataset] = structs.replace(state, scans=read.scans)
        replaced = set(map(self._namer.urn, plan.replaced))
        for dataset, state in outputs.items():
            # Without a version, nobody knows who reads an earlier one of a table.
            if self._namer.urn(dataset) in replaced and (state.version or not state.layer):
                outputs[dataset] = structs.replace(state, replaces=True)
        return structs.replace(run, inputs=inputs, outputs=outputs)

    # -- datasets

    def _with_outputs(self, runs: _Runs, plan: PlanRun) -> _Runs:
        """Return the runs with the outputs of their plans, which events do not name."""
        (first, *_) = runs
        run = runs[first]
        sources = {**run.sources, **dict.fromkeys(plan.outputs, SPARK_PLAN)}
        return {**runs, first: structs.replace(run, outputs=dict(plan.outputs), sources=sources)}

    def _without_guesses(self, runs: _Runs, plan: PlanRun) -> PlanRun:
        """Return the plan with tables where a warehouse puts them, unless events name an input that
        may be one.
        """
        planned = {self._namer.name(dataset) for dataset in (*plan.inputs, *plan.outputs)}
        is_known = all(
            self._namer.name(dataset) in planned for run in runs.values() for dataset in run.inputs
        )
        return replace(plan, guesses=frozenset()) if is_known else plan

    def _with_inputs(self, runs: _Runs, plan: PlanRun) -> _Runs:
        """Return the runs with the inputs of their plans, and those of the events if a plan may
        hide some.

        A folder is not an input beside its files, nor are its files beside it.
        """
        if not any(part.plan for part in plan.parts):
            return runs
        read = {
            dataset: state for dataset, state in plan.inputs.items() if dataset not in plan.guesses
        }
        planned = {self._namer.name(dataset) for dataset in (*read, *plan.outputs)}
        around = set(chain.from_iterable(map(folders_around, read)))
        folders = {dataset._replace(name=dataset.name.rstrip("/")) for dataset in read}

        def is_read(dataset: DatasetId) -> bool:
            if self._namer.name(dataset) in planned:
                return True
            overlaps = dataset in around or not folders.isdisjoint(folders_around(dataset))
            return bool(plan.columns.unknown or plan.guesses) and not overlaps

        merged = {}
        for run_id, run in runs.items():
            inputs = {dataset: state for dataset, state in run.inputs.items() if is_read(dataset)}
            both = {
                one: BOTH for one in (*inputs, *run.outputs) if self._namer.name(one) in planned
            }
            overruled = (
                *run.overruled,
                *(("input", dataset) for dataset in run.inputs if dataset not in inputs),
            )
            merged[run_id] = structs.replace(
                run, inputs=inputs, sources=both | run.sources, overruled=overruled
            )
        reported = {self._namer.name(dataset) for run in merged.values() for dataset in run.inputs}
        reported |= set(map(self._namer.name, plan.rest))
        missing = {
            one: state for one, state in read.items() if self._namer.name(one) not in reported
        }
        if missing:
            # The query that writes is inside the others.
            writer = next(
                (run_id for run_id, run in merged.items() if run.outputs), next(iter(merged))
            )
            run = merged[writer]
            sources = {**run.sources, **dict.fromkeys(missing, SPARK_PLAN)}
            merged[writer] = structs.replace(run, inputs=run.inputs | missing, sources=sources)
        return merged

    # -- columns

    def _with_columns(self, runs: _Runs, plan: PlanRun) -> _Runs:
        """Return the runs with the direct columns that their plans show; other columns stay as
        events report them.
        """
        if not self._settings.capture_column_level_lineage:
            return runs
        databases = DatabaseTables(dataset for run in runs.values() for dataset in run.outputs)
        written: dict[DatasetName | None, Written] = {}
        for one in plan.written:
            sink = (
                databases.named(one.sink.relation)
                if one.sink.relation
                else [one.dataset]
                if one.dataset
                else ()
            )
            written |= dict.fromkeys(map(self._namer.name, sink), one)
        return {run_id: self._with_written(run, written, plan) for run_id, run in runs.items()}

    def _with_written(
        self, run: RunState, written: Mapping[DatasetName | None, Written], plan: PlanRun
    ) -> RunState:
        outputs, tables = dict(run.outputs), DatabaseTables(run.inputs)
        for dataset, reported in run.outputs.items():
            columns = written.get(self._namer.name(dataset))
            if columns is not None:
                edges = self._edges(columns, reported, tables, plan.guesses)
                state = self._with_edges(reported, edges, run.sql)
                gap = "" if state.direct_columns else plan.gap
                outputs[dataset] = structs.replace(state, is_resolved=columns.is_complete, gap=gap)
        return structs.replace(run, outputs=outputs)

    def _edges(
        self,
        written: Written,
        state: DatasetState,
        tables: DatabaseTables,
        guesses: Collection[DatasetId],
    ) -> list[tuple[ColumnEdge, bool]]:
        """Return the edges of each column, under the name in the output's schema, and whether they
        have all sources.
        """
        queries = self._of_databases(written.columns, tables)
        names = {name.lower(): name for name in reversed(field_names(state.schema))}
        spellings = Counter(map(str.lower, {*written.columns, *written.resolved}))
        edges = []
        kinds = (False, True) if self._settings.capture_indirect_columns else (False,)
        for column, decides in product(dict.fromkeys((*written.columns, *written.resolved)), kinds):
            upstreams: dict[ColumnId | None, None] = {}
            for source in (
                one for one in written.columns.get(column, ()) if one.decides is decides
            ):
                if source.dataset.relation:
                    upstreams |= dict.fromkeys(
                        queries[source.dataset.relation].get(source.column, ())
                    )
                else:
                    upstreams[self._names.column(source)] = None
            named = tuple(
                one for one in upstreams if one is not None and one.dataset not in guesses
            )
            name = names.get(column.lower(), column) if spellings[column.lower()] == 1 else column
            is_whole = not decides and column in written.resolved and len(named) == len(upstreams)
            transform = f"{'INDIRECT' if decides else 'DIRECT'}:{PARSED_PLAN}"
            edges.append((ColumnEdge((name,), named, transform), is_whole))
        return edges

    def _with_edges(
        self, state: DatasetState, edges: Sequence[tuple[ColumnEdge, bool]], sql: str
    ) -> DatasetState:
        """Return the state with the edges of a plan in place of those that lack sources or have
        others.
        """
        columns = state.columns or DatasetColumns.of((), sql)
        names = {edge.downstreams[0] for edge, _ in edges}
        # Events may spell a column in another case, unless its dataset has columns that differ in
        # nothing else.
        fold = str.lower if len(names) == len(set(map(str.lower, names))) else str
        reported: dict[tuple[str, bool], set[_Key]] = {}
        for edge in (edge for edge in columns.edges if not edge.of_all_rows):
            for column in edge.downstreams:
                reported.setdefault((fold(column), edge.is_direct), set()).update(
                    map(self._key, edge.upstreams)
                )
        wrong, new = set(), []
        for edge, is_whole in edges:
            column = fold(edge.downstreams[0])
            sources = reported.get((column, edge.is_direct), set())
            if is_whole and sources - set(map(self._key, edge.upstreams)):
                wrong.add(column)
                sources = set()
            if upstreams := tuple(one for one in edge.upstreams if self._key(one) not in sources):
                new.append(structs.replace(edge, upstreams=upstreams))
        corrected = (
            columns.without(lambda name: fold(name) in wrong).with_edges(new)
            if wrong or new
            else state.columns
        )
        return structs.replace(state, columns=corrected)

    def _key(self, column: ColumnId) -> _Key:
        return self._namer.name(column.dataset), column.field.lower()

    def _of_databases(
        self, written: WrittenColumns, tables: DatabaseTables
    ) -> Mapping[str, Mapping[str, tuple[ColumnId, ...]]]:
        """Return the table columns behind each column of a query that a database runs, by the
        query.
        """
        wanted: dict[str, set[str]] = {}
        for source in chain.from_iterable(written.values()):
            if source.dataset.relation:
                wanted.setdefault(source.dataset.relation, set()).add(source.column)
        columns: dict[str, Mapping[str, tuple[ColumnId, ...]]] = {}
        for relation, names in wanted.items():
            columns[relation] = {}
            with suppress(StatementError):
                columns[relation] = tables.columns_of_query(relation, names, self._allowance)
        return columns


def _without_outputs(run: RunState) -> RunState:
    """Return the run without the outputs that it would have filled with data."""
    changed = {dataset: state for dataset, state in run.outputs.items() if state.lifecycle}
    overruled = (
        *run.overruled,
        *(("output", dataset) for dataset in run.outputs if dataset not in changed),
    )
    return structs.replace(run, outputs=changed, overruled=overruled)


def _without_parts(run: RunState, parts: Collection[str], tables: Collection[str]) -> RunState:
    """Return the run with tables of a database in place of inputs with the names of a query's
    parts.

    :param parts: names in lower case.
    """
    wrong = {
        dataset: tuple(
            dataset._replace(name=f"{dataset.name.rpartition('.')[0]}.{table}") for table in tables
        )
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
            and state.columns.within(dict.fromkeys(wrong, frozenset())).renamed(
                lambda one: wrong.get(one, (one,))[0]
            ),
        )
        for dataset, state in run.outputs.items()
    }
    read = {table: DatasetState() for found in wrong.values() for table in found}
    kept = {dataset: state for dataset, state in run.inputs.items() if dataset not in wrong}
    return structs.replace(run, inputs=read | kept, outputs=outputs)
