"""Column lineage that OpenLineage does not tell, from the statements that the events do tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from airflow_provider_spark_datahub.conversion.column_facet import ColumnEdge, ColumnId, DatasetColumns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.fold import DatasetState, RunState
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.schema import field_names
from airflow_provider_spark_datahub.conversion.sql_columns import (
    DIALECTS,
    NoSqlglotError,
    StatementError,
    Table,
    columns_of_statement,
)

CONFIDENCE = 0.2
"""The least that DataHub's own SQL parser gives its column lineage; OpenLineage's has 0.5, as in the Java listener."""
TRANSFORM = "DIRECT:PARSED_SQL"
"""What stands for these edges where OpenLineage has the type of a transformation."""
_SELECT = re.compile(r"\bselect\b", re.IGNORECASE)
# Formats that stand in front of a path: SELECT … FROM delta.`/lake/orders`.
_FORMATS = frozenset({"avro", "csv", "delta", "iceberg", "json", "orc", "parquet", "text"})


def with_columns_of_statements(
    runs: tuple[RunState, ...], namer: DatasetNamer
) -> tuple[tuple[RunState, ...], tuple[str, ...]]:
    """The runs with column lineage for those columns of their outputs that OpenLineage tells nothing of.

    Only what is certain: every table of the statement is a dataset of the application, of whose columns the events
    tell, and every column is one of them.

    :returns: the runs, and for people why the columns of some outputs stay unknown.
    """
    names = _Names(runs, namer)
    filled: list[RunState] = []
    gaps: dict[str, None] = {}
    for run in runs:
        dialect = DIALECTS.get(run.flow.orchestrator)
        filled.append(run)
        if dialect and not run.failure and _SELECT.search(run.sql) and any(_untold(state) for _, state in run.written):
            try:
                filled[-1] = _filled(run, dialect, names)
            except StatementError as error:
                if any(state.schema and not _told(state) for _, state in run.written) and run.inputs:
                    gaps[f"no column lineage from the statement {_short(run.sql)!r}: {error}"] = None
            except NoSqlglotError as error:
                return runs, (f"no column lineage from statements: {error}",)
    return tuple(filled), tuple(gaps)


def _short(statement: str) -> str:
    return redact_text(" ".join(statement.split()))[:80]


def _told(state: DatasetState) -> set[str]:
    """Columns of an output that a direct transformation is told of."""
    return {
        column
        for edge in (state.columns.edges if state.columns is not None else ())
        if edge.upstreams and any(one.startswith("DIRECT") for one in edge.transform.split(","))
        for column in edge.downstreams
    }


def _untold(state: DatasetState) -> list[str]:
    told = _told(state)
    return [column for column in field_names(state.schema) if column not in told]


def _filled(run: RunState, dialect: str, names: _Names) -> RunState:
    found = columns_of_statement(run.sql, dialect, names.table)
    outputs = dict(run.outputs)
    for dataset, state in run.written:
        if names.same(dataset, found.target.dataset):
            edges = [
                ColumnEdge((column,), tuple(ColumnId(*one) for one in sources), TRANSFORM, CONFIDENCE)
                for column in _untold(state)
                if (sources := found.sources.get(column, ()))
            ]
            known = state.columns or DatasetColumns.of((), run.sql)
            if edges:
                outputs[dataset] = replace(state, columns=known.with_edges(edges))
    return replace(run, outputs=outputs)


class _Names:
    """Finds datasets by their names in statements."""

    def __init__(self, runs: Iterable[RunState], namer: DatasetNamer) -> None:
        self._namer = namer
        self._found: dict[str, dict[str, Table]] = {}
        for run in runs:
            for dataset, state in (*run.inputs.items(), *run.outputs.items()):
                self._learn(dataset, state)

    def _learn(self, dataset: DatasetId, state: DatasetState) -> None:
        name = self._namer.name(dataset)
        columns = field_names(state.schema)
        if name is not None and columns:
            key = dataset.name if name.name.startswith("/") or "/" in name.name else name.name.lower()
            self._found.setdefault(key, {})[name.urn] = Table(dataset, columns)

    def same(self, one: DatasetId, other: DatasetId) -> bool:
        """Whether both are one dataset."""
        return self._namer.name(one) == self._namer.name(other)

    def table(self, name: str) -> Table | None:
        """The only dataset of that name.

        A name without a database may be a temporary view's, and is nobody's.
        """
        first, dot, rest = name.partition(".")
        if not dot:
            return None
        if first.lower() in _FORMATS and "/" in rest:
            return self._only(rest)
        if "." in rest:
            # In front of the database: the catalogue, which is not part of OpenLineage's name.
            return self._only(rest.lower()) or self._only(name.lower())
        return self._only(name.lower())

    def _only(self, key: str) -> Table | None:
        found: Mapping[str, Table] = self._found.get(key, {})
        return next(iter(found.values())) if len(found) == 1 else None
