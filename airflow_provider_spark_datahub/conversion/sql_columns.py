"""Which columns of tables the columns that a statement writes are made of, by its text (sqlglot)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_spark_datahub.conversion.events import DatasetId

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
