"""Which columns of tables the columns that a statement writes are made of, by its text (sqlglot).

Column lineage that OpenLineage does not tell, from the statements that the events do tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from airflow_provider_spark_datahub.conversion.columns.facet import ColumnEdge, ColumnId, DatasetColumns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.facets.dataset import field_names
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.fold import DatasetState, RunState

if TYPE_CHECKING:
    from sqlglot import exp

DIALECTS = {"spark": "spark", "hive": "hive"}
"""sqlglot's dialect, by the platform that ran the statement."""
MAX_STATEMENT = 20_000
"""Characters. What is longer was made by a program, and is not worth the seconds that it takes."""
# What names columns of its own, which no schema tells.
_OWN_COLUMNS = ("Lateral", "Unnest", "Pivot", "UDTF", "TableFromRows")


class StatementError(ValueError):
    """Nothing certain can be told of a statement's columns; the message says why."""


class NoSqlglotError(ImportError):
    """sqlglot is not installed."""


@dataclass(frozen=True, slots=True)
class Table:
    """A dataset with its columns, in their order."""

    dataset: DatasetId
    columns: tuple[str, ...]


Resolve = Callable[[str], Table | None]
"""Finds the table of a name in a statement: ``catalog.database.table``, or a path behind its format, without quotes."""


@dataclass(frozen=True, slots=True)
class StatementColumns:
    """The columns that a statement writes.

    :param sources: by column of the target, the columns that its values are made of; none for constants.
    """

    target: Table
    sources: Mapping[str, tuple[tuple[DatasetId, str], ...]]


def columns_of_statement(statement: str, dialect: str, resolve: Resolve) -> StatementColumns:
    """What an ``INSERT … SELECT`` or a ``CREATE TABLE … AS SELECT`` makes its target's columns of.

    Of another statement nothing is told: what the job did with the result of a query does not stand in it.

    :param resolve: a table that it does not find is a reason to tell nothing: it may be a view.
    :raises StatementError: where not every table and column is certain.
    :raises NoSqlglotError: where sqlglot is not installed.
    """
    if len(statement) > MAX_STATEMENT:
        raise StatementError(f"it is longer than {MAX_STATEMENT} characters")
    try:
        import sqlglot
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise NoSqlglotError("sqlglot is not installed: pip install 'airflow-provider-spark-datahub[sql]'") from error
    try:
        parsed = sqlglot.parse_one(statement, dialect=dialect)
        target, listed, query = _target_and_query(parsed, resolve)
        tables = _with_plain_names(query, resolve)
        made_of = _sources(query, tables, dialect)
    except (SqlglotError, RecursionError, KeyError, ValueError) as error:
        if isinstance(error, StatementError):
            raise
        raise StatementError(f"sqlglot cannot tell: {str(error).splitlines()[0] if str(error) else error!r}") from error
    return StatementColumns(
        target, dict(zip(_target_columns(parsed, target, listed, list(made_of)), made_of.values(), strict=True))
    )


def _target_and_query(parsed: Any, resolve: Resolve) -> tuple[Table, list[str], exp.Query]:
    """The table that is written, the columns that the statement lists for it, and the query."""
    from sqlglot import exp

    if isinstance(parsed, exp.Query):
        raise StatementError("it is a query, whose result the job may have changed before it wrote it")
    into, query = parsed.this, parsed.args.get("expression")
    is_table = isinstance(parsed, exp.Insert) or (isinstance(parsed, exp.Create) and parsed.kind == "TABLE")
    if not is_table or not isinstance(query, exp.Query):
        raise StatementError("it is neither INSERT … SELECT nor CREATE TABLE … AS SELECT")
    listed = [one.name for one in into.expressions] if isinstance(into, exp.Schema) else []
    into = into.this if isinstance(into, exp.Schema) else into
    return _resolved(into, resolve), listed, query


def _resolved(table: Any, resolve: Resolve) -> Table:
    from sqlglot import exp

    name = ".".join(part.name for part in table.parts) if isinstance(table, exp.Table) else ""
    found = resolve(name) if name else None
    if found is None:
        raise StatementError(f"no dataset of the job is known to be {name or 'its table'}")
    return found


def _with_plain_names(query: exp.Query, resolve: Resolve) -> dict[str, Table]:
    """Give each table of a query a name that can be no other's; the tables by these names."""
    from sqlglot import exp

    if any(query.find(getattr(exp, kind)) for kind in _OWN_COLUMNS if hasattr(exp, kind)):
        raise StatementError("it has columns that no table has (LATERAL VIEW, PIVOT or the like)")
    of_query = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    found: dict[str, Table] = {}
    for number, table in enumerate(list(query.find_all(exp.Table))):
        if not table.db and table.name.lower() in of_query:
            continue
        source = _resolved(table, resolve)
        plain = f"source_{number}"
        found[plain] = source
        if table.alias_column_names:
            raise StatementError("it gives columns of a table other names")
        alias = table.alias or table.name
        for part in ("catalog", "db"):
            table.set(part, None)
        table.set("this", exp.to_identifier(plain))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return found


def _sources(
    query: exp.Query, tables: Mapping[str, Table], dialect: str
) -> dict[str, tuple[tuple[DatasetId, str], ...]]:
    """By column of the query, what it is made of."""
    from sqlglot.lineage import lineage
    from sqlglot.optimizer.qualify import qualify
    from sqlglot.optimizer.scope import build_scope

    columns = {plain: {name.lower(): name for name in table.columns} for plain, table in tables.items()}
    if any(len(columns[plain]) < len(table.columns) for plain, table in tables.items()):
        raise StatementError("a table has columns that differ in upper and lower case only")
    schema: dict[str, object] = {plain: dict.fromkeys(names, "string") for plain, names in columns.items()}
    qualified: Any = qualify(query, schema=schema, dialect=dialect, validate_qualify_columns=True, identify=False)
    names = qualified.named_selects
    scope = build_scope(qualified)
    if len(set(names)) < len(names) or "*" in names or scope is None:
        raise StatementError("its columns have no names of their own")
    made_of: dict[str, tuple[tuple[DatasetId, str], ...]] = {}
    for name in names:
        leaves = lineage(
            name, qualified, schema=schema, dialect=dialect, scope=scope, trim_selects=False, copy=False
        ).walk()
        found = [_column(leaf, tables, columns) for leaf in leaves if not leaf.downstream]
        made_of[name] = tuple(dict.fromkeys(one for one in found if one is not None))
    return made_of


def _column(
    leaf: Any, tables: Mapping[str, Table], columns: Mapping[str, Mapping[str, str]]
) -> tuple[DatasetId, str] | None:
    from sqlglot import exp

    if isinstance(leaf.expression, exp.Placeholder | exp.Star):
        raise StatementError(f"where its column {leaf.name} comes from is not clear")
    if not isinstance(leaf.expression, exp.Table):
        return None
    plain = leaf.expression.name
    column = columns.get(plain, {}).get(leaf.name.rpartition(".")[2].strip('`"').lower())
    if column is None:
        raise StatementError(f"where its column {leaf.name} comes from is not clear")
    return tables[plain].dataset, column


def _target_columns(parsed: Any, target: Table, listed: list[str], names: Sequence[str]) -> list[str]:
    """The target's columns in the order of the query's."""
    by_lower = {name.lower(): name for name in target.columns}
    if listed:
        wanted = [name.lower() for name in listed]
    elif parsed.args.get("by_name") or parsed.key == "create":
        wanted = [name.lower() for name in names]
    else:
        static = set(_static_partitions(parsed))
        wanted = [name for name in by_lower if name not in static]
    if len(wanted) != len(names) or any(name not in by_lower for name in wanted):
        raise StatementError("its columns are not those that the events tell of the target")
    return [by_lower[name] for name in wanted]


def _static_partitions(parsed: Any) -> Iterator[str]:
    """Partition columns whose value stands in the statement, and that the query therefore has not."""
    from sqlglot import exp

    for partition in parsed.this.find_all(exp.Partition):
        for one in partition.expressions:
            if isinstance(one, exp.EQ):
                yield one.this.name.lower()


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
