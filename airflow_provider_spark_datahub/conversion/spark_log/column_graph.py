"""Columns of a plan by their ids, and the columns that each comes from, read from the text of
expressions.

Spark gives each column an id, ``amount#12``, which is unique within an application. A column that
an expression makes has an id of its own, and the plan names both: ``(amount#12 * 1.2) AS
with_tax#30``.

Tests: ``tests/conversion/test_run_events.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import cycle
from typing import NamedTuple

from airflow_provider_spark_datahub.conversion.spark_log.expressions import (
    LEFT_OUT,
    Columns,
    Value,
    columns_of,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    ATTRIBUTE,
    Node,
    PlanDataset,
    id_of,
    ids_of,
    split_items,
)

_OF_UNION = "'"
"""Between the id of a column of a union, which is that of a column of its first part, and the
number of the union.
"""
# Generators that show the rows that they make, behind their number.
_ROWS = frozenset({"stack", "replicaterows"})
# EXCEPT ALL counts the rows of its second query down.
_COUNTED_DOWN = ("vcol", "-1")
_DEEPEST_FIELD, _MOST_STRUCTS = 6, 10_000
"""Fields of fields, and columns of structs of one execution, that are followed."""


class Derivation(IntEnum):
    """How a column comes from another, in the terms of OpenLineage's column lineage facet. The
    larger one prevails.
    """

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2


class ColumnSource(NamedTuple):
    """A column that a plan reads.

    :param decides: it is read for a condition, a key or an order, and not for its values.
    """

    dataset: PlanDataset
    column: str
    decides: bool = False


Sources = dict[ColumnSource, Derivation]
"""Where a column comes from."""


class HeldColumn(NamedTuple):
    """A column of rows that Spark keeps for later queries, such as a checkpoint's.

    :param is_resolved: the plans show all columns that it comes from.
    :param fields: those of the struct that it is.
    """

    sources: Sources
    is_resolved: bool
    fields: Mapping[str, HeldColumn]


class ColumnGraph(Columns):
    """Columns of one execution by their ids, with the columns from which expressions derive them.

    :ivar sources: columns of datasets that scans give.
    :ivar known: columns of datasets behind a column, from an earlier execution or computed by a
        database.
    :ivar counted_down: columns of ``EXCEPT ALL`` that mark rows of its second query.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, dict[ColumnSource, None]] = {}
        self.known: dict[str, Sources] = {}
        self.counted_down: set[str] = set()
        self._derived: dict[str, dict[str, Derivation]] = {}
        self._deciding: dict[str, dict[str, None]] = {}
        self._filters: dict[tuple[int, str], dict[str, None]] = {}
        self._kept: frozenset[str] = frozenset()
        self._unions = 0

    def read_names(self, node: Node) -> None:
        """Record the columns that a node names, and the aliases that it defines."""
        attributes = node.listed("Aggregate Attributes")
        lists = [*map(node.listed, ("Output", "Results", "Input")), *node.lists]
        aliases = []
        for item in (item for items in lists for item in items or ()):
            expression, alias, attribute = item.rpartition(" AS ")
            named = ATTRIBUTE.fullmatch(attribute)
            if named is not None:
                self.names.setdefault(named["id"], named["name"])
                # Java objects hide the columns that they were made of.
                is_alias = alias and node.kind != "SerializeFromObject"
                aliases += (
                    [(self.scope.get(named["id"], named["id"]), expression)] if is_alias else []
                )
        for place, (function, attribute) in enumerate(
            zip(node.listed("Functions") or (), attributes or (), strict=False)
        ):
            column = id_of(attribute)
            self.names.setdefault(column, attribute.rpartition("#")[0])
            self.derive_from(column, function, Derivation.AGGREGATION)
            # Only the first step of an aggregate shows its filter.
            whole, _, condition = function.removeprefix("partial_").partition(" FILTER (WHERE ")
            if condition:
                self._filters[place, whole] = self._deciding.get(column, {})
            self._decide(column, self._filters.get((place, whole), ()))
        for column, expression in aliases:
            if (self.names[column], expression) == _COUNTED_DOWN:
                self.counted_down.add(column)
            self.derive_from(column, expression)

    def derive_from(self, column: str, text: str, kind: Derivation = Derivation.IDENTITY) -> None:
        """Derive a column, and the fields of it, from an expression."""
        self.derive_values(column, self.read(text), kind)

    def derive_values(
        self,
        column: str,
        values: list[Value],
        kind: Derivation = Derivation.IDENTITY,
        depth: int = 0,
    ) -> None:
        """Derive a column, and the fields of it, from the values that it may have."""
        self._derive_columns(column, values, max(kind, kind_of(values)))
        self._derive_fields(column, values, kind, depth)

    def _derive_columns(self, column: str, values: list[Value], kind: Derivation) -> None:
        self.derive(column, columns_of(values), kind)
        for value in values:
            if value.decides:
                self._decide(column, value.columns)

    def _decide(self, column: str, below: Iterable[str]) -> None:
        """Record columns that decide on the value of a column."""
        if column not in self._kept:
            self._deciding.setdefault(column, {}).update(dict.fromkeys(below))

    def derive(self, column: str, below: Iterable[str], kind: Derivation) -> None:
        """Derive a column from others: from none if it is constant."""
        if column in self._kept:
            return
        derived = self._derived.setdefault(column, {})
        for source in below:
            if source != column:
                derived[source] = max(kind, derived.get(source, kind))

    def keep_derived(self, *, is_kept: bool) -> None:
        """Set whether the columns that are derived already stay as they are."""
        self._kept = frozenset((*self._derived, *self.sources)) if is_kept else frozenset()

    def ids_of(self, items: list[str] | None) -> list[str] | None:
        """Return the columns that a list names; ``None`` if an item is not a column."""
        ids = ids_of(items)
        return [self.scope.get(column, column) for column in ids] if ids and self.scope else ids

    def held(self, column: str) -> HeldColumn:
        """Return a column as later queries read it."""
        fields = {name: self.held(f"{column}.{name}") for name in self.fields.get(column, ())}
        return HeldColumn(self.origins(column), self.is_resolved(column), fields)

    def read_held(self, column: str, held: HeldColumn) -> None:
        """Record that a column is one that an earlier query kept."""
        self.known[column] = held.sources
        if not held.is_resolved:
            self.hide(column)
        for name, field in held.fields.items():
            self.fields.setdefault(column, {})[name] = None
            self.read_held(f"{column}.{name}", field)

    def hide(self, column: str) -> None:
        """Record that the plans do not show all sources of a column."""
        self.derive(column, [LEFT_OUT], Derivation.IDENTITY)

    def unite(self, first: list[str], others: Iterable[list[str] | None]) -> list[str]:
        """Return the columns of a union, which have the ids of those of its first part."""
        self._unions += 1
        output = [f"{column_id(column)}{_OF_UNION}{self._unions}" for column in first]
        others = [
            part if part and len(part) == len(first) else [LEFT_OUT] * len(first) for part in others
        ]
        for column, *below in zip(output, first, *others, strict=True):
            self.names[column] = self.names.get(below[0], "")
            self.derive(column, below, Derivation.IDENTITY)
            self._derive_fields(column, list(map(Value.of, below)), Derivation.IDENTITY)
        self.scope = self.scope | dict(zip(map(column_id, first), output, strict=True))
        return output

    def align(self, output: list[str] | None, inputs: list[list[str] | None]) -> list[str] | None:
        """Derive the columns of an output from those of its inputs in the same places, and return
        it.
        """
        for columns in inputs:
            if output and columns and len(columns) == len(output):
                for column, below in zip(output, columns, strict=True):
                    if column != below:
                        self.derive(column, [below], Derivation.IDENTITY)
                        self.derive_fields(column, below)
        return output

    def origins(self, column: str) -> Sources:
        """Return the columns of datasets that a column comes from, through all that lies between."""
        result: Sources = {}
        waiting, seen = [(column, Derivation.IDENTITY, False)], set()
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            current, derivation, decides = step
            for source, kind in (
                dict.fromkeys(self.sources.get(current, ()), derivation)
                | self.known.get(current, {})
            ).items():
                own = source._replace(decides=True) if decides else source
                result[own] = max(derivation, kind, result.get(own, derivation))
            for below, kind in self._derived.get(current, {}).items():
                waiting.append((below, max(derivation, kind), decides))
            waiting += [(below, derivation, True) for below in self._deciding.get(current, ())]
        return result

    def path(self, column: str) -> set[str]:
        """Return the ids of a column and of all columns between it and its sources."""
        path, waiting = {column}, [column]
        while waiting:
            below = self._derived.get(waiting.pop(), {}).keys() - path
            path |= below
            waiting += below
        return path

    def is_resolved(self, column: str) -> bool:
        """Return whether the plans show all columns of datasets, with their names, that a column
        comes from.
        """
        return all(
            not any(source.dataset.relation for source in self.sources[step])
            if step in self.sources
            else step in self.known or step in self._derived
            for step in self.path(column)
        )

    def derive_fields(self, column: str, struct: str) -> None:
        """Derive the fields of a column from those of the struct that it is."""
        self._derive_fields(column, [Value.of(struct)], Derivation.IDENTITY)

    def generate(self, generator: str, columns: list[str]) -> None:
        """Derive the columns of a generator: all from all of its arguments, unless it shows the
        rows that it makes.
        """
        function, _, arguments = generator.partition("(")
        rows = split_items(arguments.removesuffix(")"))[1:] if function in _ROWS else []
        if rows and columns and not len(rows) % len(columns):
            for column, expression in zip(cycle(columns), rows, strict=False):
                self.derive_from(column, expression)
            return
        values = self.read(generator)
        fields = self.fields_of(values)
        if len(fields) == len(columns) and (function == "inline" or len(columns) == 2):
            # The rows are the structs of an array, or the entries of a map.
            for column, name in zip(columns, fields, strict=True):
                self.derive_values(column, self.taken(values, name))
            return
        for column in columns:
            self._derive_columns(column, values, Derivation.TRANSFORMATION)
        if len(columns) == 1:
            self._derive_fields(columns[0], values, Derivation.IDENTITY)

    def _derive_fields(
        self, column: str, values: list[Value], kind: Derivation, depth: int = 0
    ) -> None:
        """Derive the fields of a column of structs, as far as the values that it may have show
        them.

        ``max(struct(day, day#3, amount, amount#2))#9`` has a field ``day`` that comes from
        ``day#3`` only.
        """
        if depth == _DEEPEST_FIELD or len(self.fields) > _MOST_STRUCTS:
            return
        for name in self.fields_of(values):
            self.fields.setdefault(column, {})[name] = None
            taken = self.taken(values, name)
            self.derive_values(f"{column}.{name}", taken, kind, depth + 1)


def column_id(column: str) -> str:
    """Return the id that plans give a column."""
    return column.partition(_OF_UNION)[0]


def kind_of(values: list[Value]) -> Derivation:
    """Return whether an expression that may have these values is a column as it is."""
    is_same = values and all(value.is_same for value in values)
    return Derivation.IDENTITY if is_same else Derivation.TRANSFORMATION
