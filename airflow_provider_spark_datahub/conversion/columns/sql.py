"""Column lineage from SQL statements, by sqlglot, for columns without any from OpenLineage.

Only certain lineage counts: every table of a statement is a dataset of the application with known
columns, and every column is one of theirs (conversion rules, section 4.2).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_provider_spark_datahub.conversion.columns.facet import (
    ColumnId,
)
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.redaction import LONGEST_LOGIN, redacted_beginning

if TYPE_CHECKING:
    from sqlglot import exp

# Limits that keep sqlglot's time to a few seconds, by its versions since 26. It takes quadratic
# time for nested expressions and types, parses each join that has no condition yet in two ways, and
# copies what an alias, a part that WITH names or a star stands for.
MAX_STATEMENT, MAX_STATEMENTS = 20_000, 300_000
"""Largest length of a statement, and of all statements of an application together, in characters.
"""
_MAX_NESTING, _MAX_NESTED_TYPES, _MAX_OPEN_JOINS, _MAX_COPIES = 500, 20, 10, 10_000
_TYPE = re.compile(r"\b(?:array|map|struct)\s*<|>", re.IGNORECASE)
_JOIN = re.compile(r"\b(?:(?<!cross )join|on|using)\b")
# Expressions with columns of their own, which are in no schema.
_OWN_COLUMNS = ("Lateral", "Unnest", "Pivot", "UDTF", "TableFromRows")


class StatementError(ValueError):
    """Statement without certain column lineage; the message says why."""


class Allowance(msgspec.Struct):
    """Number of characters that may still be parsed of an application's statements."""

    left: int = MAX_STATEMENTS

    def take(self, statement: str) -> None:
        """Take the characters of a statement.

        :raises StatementError: if it is too long, or its types or joins are nested too deeply.
        """
        if len(statement) > MAX_STATEMENT:
            raise StatementError(f"it is longer than {MAX_STATEMENT} characters")
        if len(statement) > self.left:
            raise StatementError(
                f"the job's statements are longer than {MAX_STATEMENTS} characters"
            )
        if _depth(part[0] != ">" for part in _TYPE.finditer(statement)) > _MAX_NESTED_TYPES:
            raise StatementError("its types are nested too deeply")
        plain = _QUOTED.sub("", statement.lower())
        if _depth(part[0] == "join" for part in _JOIN.finditer(plain)) > _MAX_OPEN_JOINS:
            raise StatementError("its joins are nested too deeply")
        self.left -= len(statement)


def _depth(opens: Iterable[bool]) -> int:
    """Return the largest depth of what opens and closes."""
    depth = most = 0
    for opening in opens:
        depth = depth + 1 if opening else max(depth - 1, 0)
        most = max(most, depth)
    return most


# Source columns by column of a query; none for constants.
_Sources = dict[str, tuple[ColumnId, ...]]


@contextmanager
def _parsed(relation: str, dialect: str, allowance: Allowance) -> Iterator[Any]:
    """Return a context with what Spark asks a database for, in which all errors of sqlglot are
    :class:`StatementError`.
    """
    allowance.take(relation)
    try:
        import sqlglot
        import sqlglot.lineage
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise StatementError(
            "sqlglot is not installed: pip install 'airflow-provider-spark-datahub[sql]'"
        ) from error
    # Its warnings quote statements, which may have secrets.
    logger = logging.getLogger("sqlglot")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield sqlglot.parse_one(f"SELECT * FROM {relation}", dialect=dialect)
    except StatementError:
        raise
    except (SqlglotError, RecursionError, KeyError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise StatementError(f"sqlglot failed: {reason}") from error
    finally:
        logger.disabled = was_disabled


def _with_plain_names(
    query: exp.Query, find: Callable[[str], DatasetId | None]
) -> dict[str, DatasetId]:
    """Give each table of a query a unique name; return the tables by these names."""
    from sqlglot import exp

    if any(query.find(getattr(exp, kind)) for kind in _OWN_COLUMNS if hasattr(exp, kind)):
        raise StatementError("it has columns that no table has (LATERAL VIEW, PIVOT or the like)")
    of_query = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    tables: dict[str, DatasetId] = {}
    for number, table in enumerate(list(query.find_all(exp.Table))):
        if not table.db and table.name.lower() in of_query:
            continue
        name = ".".join(part.name for part in table.parts)
        dataset = find(name)
        if dataset is None:
            raise StatementError(f"no dataset of the job matches {name}")
        if table.alias_column_names:
            raise StatementError("it gives columns of a table other names")
        plain = f"source_{number}"
        tables[plain] = dataset
        alias = table.alias or table.name
        for part in ("catalog", "db"):
            table.set(part, None)
        table.set("this", exp.to_identifier(plain))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return tables


def _sources(
    query: exp.Query, tables: Mapping[str, DatasetId], columns: Collection[str], dialect: str
) -> _Sources:
    """Return the sources of a query's columns.

    :param columns: those that each table may have.
    """
    from sqlglot import exp
    from sqlglot.lineage import lineage
    from sqlglot.optimizer.qualify import qualify
    from sqlglot.optimizer.scope import build_scope
    from sqlglot.schema import ensure_schema

    _check_size(query, len(tables) * len(columns))
    spellings = {name.lower(): name for name in columns}
    if len(spellings) < len(columns):
        raise StatementError("it has columns that differ in upper and lower case only")
    for identifier in query.find_all(exp.Identifier):
        # Databases differ in the case of quoted names, and of others.
        identifier.replace(exp.to_identifier(identifier.name.lower(), quoted=True))
    # Made once, since the time for it grows with the number of columns.
    schema = ensure_schema(
        {plain: dict.fromkeys(spellings, "string") for plain in tables},
        dialect=dialect,
        normalize=False,
    )
    qualified: Any = qualify(
        query, schema=schema, dialect=dialect, validate_qualify_columns=True, identify=False
    )
    _leave_out_conditions(qualified)
    names = qualified.named_selects
    scope = build_scope(qualified)
    if len(set(names)) < len(names) or "*" in names or scope is None:
        raise StatementError("its columns have no unique names")
    sources: _Sources = {}
    for name in names:
        leaves = lineage(
            name,
            qualified,
            schema=schema,
            dialect=dialect,
            scope=scope,
            trim_selects=False,
            copy=False,
        ).walk()
        of_tables = [
            _column(leaf, tables, spellings)
            for leaf in leaves
            if not leaf.downstream and leaf.expression.key in _SOURCES
        ]
        sources[name] = tuple(dict.fromkeys(of_tables))
    return sources


def _check_size(query: exp.Query, width: int) -> None:
    """Check how much sqlglot copies to find the sources of a query's columns.

    :param width: number of columns of all tables.
    :raises StatementError: if the query is nested too deeply, or has too many columns or paths to
        them.
    """
    from sqlglot import exp

    nodes: list[tuple[Any, int]] = [(query, 0)]
    while nodes:
        node, depth = nodes.pop()
        if depth > _MAX_NESTING:
            raise StatementError("it is nested too deeply")
        nodes += ((child, depth + 1) for child in node.iter_expressions())
    names = Counter(table.name.lower() for table in query.find_all(exp.Table))
    copies = prod(names[part.alias.lower()] or 1 for part in query.find_all(exp.CTE))
    stars = [star for select in query.find_all(exp.Select) if (star := _stars(select))]
    if stars:
        copies *= prod(stars) * width
    if max(copies, *map(_copies_of_aliases, query.find_all(exp.Select)), 0) > _MAX_COPIES:
        raise StatementError("it has too many columns, or too many paths to them")


def _stars(select: exp.Select) -> int:
    """Return how many tables or parts a SELECT takes all columns of."""
    from sqlglot import exp

    tables = 1 + len(select.args.get("joins") or ())
    return sum(
        tables if isinstance(one, exp.Star) else 1 for one in select.expressions if one.is_star
    )


def _copies_of_aliases(select: exp.Select) -> int:
    """Return how many columns the longest expression of a SELECT has without the aliases of earlier
    ones.
    """
    from sqlglot import exp

    sizes: dict[str, int] = {}
    for one in select.expressions:
        sizes[one.alias_or_name.lower()] = sum(
            sizes.get(each.name.lower(), 1) for each in one.find_all(exp.Column)
        )
    return max(sizes.values(), default=0)


def _leave_out_conditions(query: Any) -> None:
    """Leave out what only decides which values count: CASE, FILTER, and the rows and the order of
    windows.
    """
    from sqlglot import exp

    for node in list(query.find_all(exp.Filter, exp.Window)):
        node.replace(node.this)
    for node in query.find_all(exp.If):
        node.set("this", exp.true())
    for node in query.find_all(exp.Case):
        node.set("this", None)


# Kinds of what a column comes from; a constant has another one.
_SOURCES = ("table", "placeholder", "star")


def _column(leaf: Any, tables: Mapping[str, DatasetId], spellings: Mapping[str, str]) -> ColumnId:
    table = tables.get(leaf.expression.name) if leaf.expression.key == "table" else None
    column = spellings.get(leaf.name.rpartition(".")[2].strip('`"').lower())
    if table is None or column is None:
        raise StatementError(f"the source of its column {leaf.name} is not clear")
    return ColumnId(table, column)


# sqlglot's dialect, by the scheme of a database's namespace, if it has another name.
_DATABASES = {"sqlserver": "tsql", "mssql": "tsql", "mariadb": "mysql", "awsathena": "athena"}


class DatabaseTables:
    """Tables of databases, found by the names that statements and plans give them.

    :param datasets: all datasets of a run, those of databases and others.
    """

    _DEPTH = 4
    """Parts of a name by which tables are looked up: server, database, schema and table."""

    def __init__(self, datasets: Iterable[DatasetId]) -> None:
        self._tables: dict[str, dict[DatasetId, str]] = {}
        # That of one of the databases' namespaces, such as ``postgres``; empty if there are none.
        self._scheme = ""
        for table in datasets:
            if "://" in table.namespace and "/" not in table.name:
                self._scheme = self._scheme or table.namespace.partition("://")[0]
                name = f".{table.name.replace(chr(34), '').lower()}"
                for ending in self._endings(name):
                    self._tables.setdefault(ending, {})[table] = name

    @classmethod
    def _endings(cls, name: str) -> list[str]:
        """Return the last part of a name, the last two parts, and so on, up to the longest key of a
        lookup.
        """
        parts = name.rsplit(".", cls._DEPTH)[1:]
        return [".".join(parts[number:]) for number in range(len(parts))]

    def named(self, name: str) -> Collection[DatasetId]:
        """Return the tables that a name can mean."""
        plain = f".{name.replace(chr(34), '').replace('`', '').lower()}"
        tables = self._tables.get(self._endings(plain)[0], {})
        if plain.count(".") > self._DEPTH:
            return [table for table, known in tables.items() if known.endswith(plain)]
        return tables

    def find(self, name: str) -> DatasetId | None:
        """Return the only table that a name can mean, or ``None``."""
        tables = self.named(name)
        return next(iter(tables)) if len(tables) == 1 else None

    def columns_of_query(
        self, relation: str, wanted: Collection[str], allowance: Allowance
    ) -> _Sources:
        """Return the source columns of each column of a query that a database runs for Spark.

        Events do not show the tables' own columns, so a column counts only if it can belong to one
        table alone.

        :param relation: the value of ``dbtable``: a table, or a query in brackets that is followed
            by a name.
        :param wanted: columns that Spark reads from the query.
        :raises StatementError: if the sources of the columns are not certain, or sqlglot is not
            installed.
        """
        if not relation.startswith("("):
            table = self.find(relation)
            if table is None:
                raise StatementError(f"no dataset of the job matches {relation}")
            return {column: (ColumnId(table, column),) for column in wanted}
        with _parsed(relation, self._dialect, allowance) as parsed:
            from sqlglot import exp

            subquery = parsed.find(exp.Subquery)
            query = subquery.this if subquery is not None else None
            if not isinstance(query, exp.Query):
                raise StatementError("it is not a query")
            named = {column.name for column in query.find_all(exp.Column)}
            columns = sorted(named | set(wanted) if query.find(exp.Star) else named)
            tables = _with_plain_names(query, self.find)
            sources = _sources(query, tables, columns, self._dialect)
            return {
                column: sources[column.lower()] for column in wanted if column.lower() in sources
            }

    def tables_of_query(self, relation: str, allowance: Allowance) -> tuple[set[str], list[str]]:
        """Return the parts that a query names by WITH, in lower case, and the tables that it reads.

        :param relation: a query in brackets that is followed by a name.
        :raises StatementError: if it cannot be parsed, or sqlglot is not installed.
        """
        with _parsed(relation, self._dialect, allowance) as query:
            from sqlglot import exp

            parts = {part.alias.lower() for part in query.find_all(exp.CTE)}
            tables = {
                ".".join(one.name for one in table.parts): None
                for table in query.find_all(exp.Table)
            }
            return parts, [table for table in tables if table.lower() not in parts]

    @property
    def _dialect(self) -> str:
        return _DATABASES.get(self._scheme, self._scheme)


_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.)*+(?:'|$)|"(?:[^"\\]|\\.)*+(?:"|$)|`[^`]*`?|--[^\n]*|/\*.*?(?:\*/|$)""",
    re.DOTALL,
)


_LONGEST_BEGIN = 20_000
_COMMENTS = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*")
_BEFORE_INSERT = re.compile(r"(?:with|from)\b", re.IGNORECASE)
_INSERT = re.compile(r"\binsert\s+(?:into|overwrite)\b", re.IGNORECASE)
_CREATE_VIEW = re.compile(
    r"create\s+(?:or\s+replace\s+)?(?:global\s+)?(?:temp(?:orary)?\s+)?view\b", re.IGNORECASE
)


def verb_of(statement: str) -> str:
    """Return the first two words of a statement in upper case, without comments; ``VIEW`` if it
    creates a view.

    Of an INSERT behind common table expressions or behind FROM, they are those of the INSERT.
    """
    text = _COMMENTS.sub("", statement[:_LONGEST_BEGIN], count=1)
    if (begin := _BEFORE_INSERT.match(text)) and (insert := _INSERT.search(text, begin.end())):
        text = insert[0]
    return "VIEW" if _CREATE_VIEW.match(text) else " ".join(text.upper().split(maxsplit=2)[:2])


def short_statement(statement: str, length: int = 80) -> str:
    """Return the beginning of a statement on one line, without secrets. The length is in
    characters.
    """
    words = statement.split(maxsplit=length + LONGEST_LOGIN)
    return redacted_beginning(" ".join(words), length)
