"""Column lineage of physical plans, from the expression ids of their columns.

Spark gives each column an id, ``amount#12``, which is unique within an application. A column that an expression makes
has an id of its own, and the plan names both: ``(amount#12 * 1.2) AS with_tax#30``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import product
from typing import NamedTuple

from airflow_provider_spark_datahub.conversion.facets.dataset import RESERVED_COLUMNS
from airflow_provider_spark_datahub.conversion.spark_log.plan_trees import (
    ATTRIBUTE,
    SUBQUERY,
    Node,
    Tree,
    closing_bracket,
    id_of,
    ids_of,
    split_items,
    trees_of,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    CHECKPOINT,
    CLONE,
    MERGE,
    MERGE_ROWS,
    DescribedNode,
    PlanDataset,
    PlanDatasets,
)

_REFERENCE = re.compile(r"#(?P<id>\d+)L?")
_LOOP = re.compile(r"^Loop id: (?P<id>\d+)$", re.MULTILINE)
_ONE_SIDED = re.compile(r"\A(?:Except|Intersect)\b|\bLeft(?:Semi|Anti)\b(?!#)")
_OF_TWO = frozenset({"CartesianProduct", "Except", "Intersect"})
# Commands whose last argument lists the columns of the target.
_LISTS_ITS_COLUMNS = frozenset(
    {
        *("InsertIntoHadoopFsRelationCommand", "InsertIntoHiveTable", "InsertIntoHiveDirCommand"),
        "CreateDataSourceTableAsSelectCommand",
    }
)
_LISTS_ITS_OUTPUT_LAST = frozenset(
    {
        *("Aggregate", "Expand", "TakeOrderedAndProject", "ArrowAggregatePython", "AggregateInPandas"),
        *("MapInPandas", "MapInArrow", "PythonMapInArrow", "FlatMapGroupsInPandas", "FlatMapCoGroupsInPandas"),
        MERGE_ROWS,
    }
)
_ACTIONS = "actions: ["
_ACTION = re.compile(r"`(?P<column>[^`]+)` = ")
_WHEN = re.compile(r"\bWHEN .*? THEN", re.DOTALL)
# Columns of the query around a subquery that its conditions name.
_OUTER = re.compile(r"(?<=\d) \[[^\]]*\]|\bouter\([^)]*\)")
_CORRELATED = re.compile(r"\bscalar-subquery#\d+ \[[^\]]+\]")
_CTE = re.compile(r"(?P<id>\d+), ")
_PIVOT = "pivotfirst("
_CONDITION = re.compile(r"\bif \(| FILTER \(WHERE | windowspecdefinition\(")
_HIDDEN_COLUMNS = RESERVED_COLUMNS | {"__row_operation"}
"""Names of columns that Iceberg adds to a scan, and Spark to the rows that a statement changes."""
# Commands of data sources that write through another execution.
_CHANGES_ROWS = frozenset({"ReplaceData", "WriteDelta"})
_HIDES_ITS_QUERY = re.compile(r"(?:AppendData|OverwriteByExpression)ExecV1|(?:Atomic)?(?:Create|Replace)TableAsSelect")
# The columns that a database groups by; its other output columns are results of aggregate functions.
_PUSHED = re.compile(r"^Pushed(?P<kind>Aggregates|GroupByExpressions): \[(?P<columns>.+)\]$", re.MULTILINE)
_AGGREGATE = re.compile(r"[A-Z_]+\((?:DISTINCT )?(?P<column>[A-Za-z_]\w*)\)")
_STRUCT = "struct("
_SHOWN_ROWS = re.compile(r"stack\((?P<number>\d+), |inline\(array\(|explode\(map\(|replicaterows\([^,]+, ")
_ROWS_OF_COLUMN = re.compile(rf"(?P<function>inline|explode)\({ATTRIBUTE.pattern}\)")
# EXCEPT ALL counts the rows of its second query down.
_COUNTED_DOWN = ("vcol", "-1")
SPLITS = re.compile(
    r"\b(?:stack|inline|map|replicaterows|named_struct|struct|arrays_zip|pivotfirst|DeltaCDFRelation)\("
    r"|\bscalar-subquery#\d+ \[\w|\) Union\n"
)
"""Functions whose arguments show the rows or fields of their result, subqueries with outer columns, unions, pivots, and
scans of a Delta table's changes."""
_DEEPEST_CALL = 10
_CALL = re.compile(r"(?:partial_|merge_)?(?P<function>\w+)\(")
_FIELD = re.compile(r"\.(?P<field>\w+|`[^`]+`)")
_STRUCTS = frozenset({"struct", "named_struct"})
# Functions whose result is one of the structs that they are given, or an array of them.
_OF_SAME_SHAPE = frozenset(
    {
        *("max", "min", "first", "first_value", "last", "last_value", "any_value", "nth_value", "lag", "lead"),
        *("max_by", "min_by", "collect_list", "collect_set", "array_agg"),
        *("array", "sort_array", "array_sort", "array_distinct", "reverse", "shuffle", "slice", "filter"),
        *("explode", "explode_outer", "element_at", "try_element_at", "array_max", "array_min", "knownnotnull"),
    }
)


class _Derivation(IntEnum):
    """How a column comes from another, in the terms of OpenLineage's column lineage facet. The larger one prevails."""

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2


class ColumnSource(NamedTuple):
    """A column that a plan reads."""

    dataset: PlanDataset
    column: str


WrittenColumns = dict[str, dict[ColumnSource, _Derivation]]
"""The columns that are written to a dataset, and those that are read for each of them."""


ALL = "*"
"""Stands for each column of a table that is cloned."""


class PlanColumns:
    """Column lineage of an application's executions: add them in the order in which they began.

    A column is left out if the plans do not show where it comes from: constants, functions on whole rows or partitions,
    sources without a name, and lists that Spark abbreviated.

    A checkpoint cuts the plan: later executions read the rows of an RDD. Their columns keep the ids of the execution
    that made the checkpoint. If two checkpoints have the same ids but different sources, neither counts.
    """

    def __init__(self) -> None:
        self._checkpoints: dict[tuple[str, ...], _Origins | None] = {}

    def of(self, plans: Sequence[str], description: str = "") -> ExecutionColumns:
        """Return the columns that an execution writes and gives, and the columns that they come from.

        :param plans: texts of the physical plans of the execution and its parts, in Spark's "formatted" mode.
        :param description: the call site of the execution, or what the job calls it.
        """
        lineage = _Lineage(self._checkpoints)
        # The parts come after the execution, and their scans name the files that it reads.
        trees = [tree for plan in reversed(plans) for tree in trees_of(plan)]
        for tree in trees:
            lineage.add(tree)
        own = trees[-1] if trees else None
        if own is not None and len(plans) > 1:
            lineage.link_micro_batch(own)
        lineage.find_rows(trees)
        lineage.find_clone(plans)
        written = [written for tree in trees for written in lineage.written(tree)]
        result = lineage.result(own) if own is not None else {}
        # Jobs may call their executions what they like.
        if own is not None and not written and (CHECKPOINT in description or " at " not in description):
            self._keep(lineage.output(own), result)
        return ExecutionColumns(
            written,
            {name: sources for name, sources in result.values() if name and sources},
            lineage.ends or lineage.databases,
            frozenset(lineage.merged),
            lineage.of_hidden if lineage.ends else lineage.exact,
            any(node.described.head == "Union" for tree in trees for node in tree.nodes.values()),
        )

    def _keep(self, output: tuple[str, ...], result: _Result) -> None:
        origins = {column: sources for column, (_, sources) in result.items()}
        if output and any(origins.values()):
            is_new = output not in self._checkpoints or self._checkpoints[output] == origins
            self._checkpoints[output] = origins if is_new else None


class ExecutionColumns(NamedTuple):
    """Columns of one execution.

    :param written: the sinks that its plans name, with the columns that are written to each.
    :param result: the columns of the rows that it gives: those of a micro-batch, for instance.
    :param merged: sinks of MERGE statements. OpenLineage may report one clause of several.
    :param exact: columns of rows that a generator shows, which OpenLineage derives from all of its arguments; and those
        that come from columns that the dataset lacks.
    :param ends: why the plans do not show where columns come from, in the order of the plans.
    :param has_union: the rows are those of several queries. OpenLineage may report the first query's column only.
    """

    written: list[tuple[PlanDataset, WrittenColumns]]
    result: WrittenColumns
    ends: tuple[str, ...]
    merged: frozenset[PlanDataset]
    exact: Mapping[PlanDataset, frozenset[str]]
    has_union: bool = False


_Origins = dict[str, dict[ColumnSource, _Derivation]]
# Name and origins of each column, by its id.
_Result = dict[str, tuple[str, dict[ColumnSource, _Derivation]]]


class _Lineage:
    """Sources of each column, over all plans of an execution.

    :param checkpoints: origins of the columns of earlier checkpoints, by their ids; ``None`` if they are not clear.
    """

    def __init__(self, checkpoints: Mapping[tuple[str, ...], _Origins | None]) -> None:
        self._checkpoints = checkpoints
        self._kept: _Origins = {}
        self._batches: list[list[str]] = []
        self._loops: dict[str, list[list[str]]] = {}
        self._ends: dict[str, None] = {}
        self._databases: dict[str, None] = {}
        self.merged: set[PlanDataset] = set()
        self._rows: list[str] | None = None
        self._cloned: WrittenColumns = {}
        self._split: set[str] = set()
        self._counted_down: set[str] = set()
        self._hidden: set[str] = set()
        self._fields: dict[str, dict[str, None]] = {}
        self._queries: dict[str, list[str]] = {}
        self.exact: dict[PlanDataset, frozenset[str]] = {}
        self.of_hidden: dict[PlanDataset, frozenset[str]] = {}
        self._names: dict[str, str] = {}
        self._sources: dict[str, dict[ColumnSource, None]] = {}
        self._derived: dict[str, dict[str, _Derivation]] = {}

    def add(self, tree: Tree) -> None:
        for number, node in reversed(tree.nodes.items()):
            self._read_names(node)
            self._correct_input(node, tree.outputs)
            tree.outputs[number] = self._output(node, [tree.outputs.get(child) for child in node.children])
        root = next(iter(tree.outputs.values()), None) if not tree.nodes else tree.outputs[next(iter(tree.nodes))]
        name, subquery_id = tree.subquery
        if subquery_id and root:
            self._names[subquery_id] = name
            self._derive(subquery_id, root[:1], _Derivation.IDENTITY)

    @property
    def ends(self) -> tuple[str, ...]:
        """Reasons why the plans do not show where columns come from."""
        return tuple(self._ends)

    @property
    def databases(self) -> tuple[str, ...]:
        """Tables and queries of databases that the plans read, as reasons: Spark hides where the databases are."""
        return tuple(self._databases)

    def output(self, tree: Tree) -> tuple[str, ...]:
        """Return the ids of the columns that a plan gives; empty if they are not known."""
        return tuple(tree.outputs[next(iter(tree.nodes))] or ()) if tree.nodes else ()

    def result(self, tree: Tree) -> _Result:
        """Return the columns that a plan gives, by id: the name of each, and where it comes from."""
        return {column: (self._names.get(column, ""), self._origins(column)) for column in self.output(tree)}

    def link_micro_batch(self, own: Tree) -> None:
        """Derive the rows of a ``foreachBatch`` function from the micro-batch around its executions.

        The function's plans read an RDD, with new ids for the columns of the same names.
        """
        given = self.output(own)
        for columns in self._batches:
            if [self._names.get(column, "") for column in columns] == [self._names.get(column, "") for column in given]:
                self._aligned(columns, [list(given)])

    def find_rows(self, trees: Sequence[Tree]) -> None:
        """Find the query of a command that does not show it in its own plan, such as Delta's INSERT.

        The query is the only inner execution that reads datasets and writes none.
        """
        queries = [
            list(output)
            for tree in trees
            if not tree.subquery[1] and not any(True for node in tree.nodes.values() for _ in node.described.sinks())
            for output in [self._rows_of(tree)]
            if any(map(self._origins, output))
        ]
        self._rows = queries[0] if len(queries) == 1 else None

    def find_clone(self, plans: Sequence[str]) -> None:
        """Find the table that the execution clones, whose columns the plan does not name."""
        if any(CLONE in plan for plan in plans):
            sources = PlanDatasets.of(plans).sources
            self._cloned = {ALL: {ColumnSource(source, ALL): _Derivation.IDENTITY for source in sources}}

    def _rows_of(self, tree: Tree) -> tuple[str, ...]:
        """Return the ids of the columns that a plan gives, before its rows became objects of Java."""
        numbers = list(tree.nodes)
        has_objects = len(numbers) > 1 and tree.nodes[numbers[1]].described.head == "DeserializeToObject"
        return tuple(tree.outputs[numbers[1]] or ()) if has_objects else self.output(tree)

    def written(self, tree: Tree) -> Iterator[tuple[PlanDataset, WrittenColumns]]:
        """Yield the sinks of a tree with the columns that are written to them."""
        for node in tree.nodes.values():
            output = tree.outputs.get(node.children[0]) if node.children else node.query()
            head = node.described.head.removeprefix("Execute ")
            if output is None and _HIDES_ITS_QUERY.fullmatch(head):
                output = self._rows
            for sink in node.described.sinks():
                yield sink, self._written_to(sink, node, output, tree)

    def _written_to(self, sink: PlanDataset, node: Node, output: list[str] | None, tree: Tree) -> WrittenColumns:
        head = node.described.head.removeprefix("Execute ")
        if CLONE in node.described.arguments:
            # The rest are Delta's own queries.
            self._ends = {"it clones a table, whose columns the plan does not name": None}
            return self._cloned
        if node.described.head == MERGE:
            self.merged.add(sink)
            return self._merged(node.described.arguments)
        if head == "UpdateCommand":
            return self._updated(node, output or [])
        names = self._target_names(node, output) if output else []
        named = [(name, column) for name, column in zip(names, output or (), strict=True) if name]
        if self._split or self._hidden:
            paths = {name: self._path(column) for name, column in named}
            self.of_hidden[sink] = frozenset(name for name, path in paths.items() if not self._hidden.isdisjoint(path))
            split = {name for name, path in paths.items() if not self._split.isdisjoint(path)}
            self.exact[sink] = self.of_hidden[sink] | split
        written = {name: self._origins(column) for name, column in named if name not in _HIDDEN_COLUMNS}
        if head in _CHANGES_ROWS:
            if any(other.described.head == MERGE_ROWS for other in tree.nodes.values()):
                self.merged.add(sink)
            for name, sources in written.items():
                # Those of rows that stay as they are.
                sources.pop(ColumnSource(sink, name), None)
        return {name: sources for name, sources in written.items() if sources}

    def _updated(self, node: Node, columns: list[str]) -> WrittenColumns:
        """Return the columns that Delta's UPDATE sets: it lists an expression for each column of the table."""
        expressions = next(iter(node.lists()), [])
        written: WrittenColumns = {}
        for column, expression in zip(columns, expressions, strict=False) if len(columns) == len(expressions) else ():
            for below in self._references(expression):
                for source, derivation in self._origins(below).items() if below != column else ():
                    kind = max(derivation, self._kind_of(expression))
                    written.setdefault(self._names.get(column, ""), {})[source] = kind
        return written

    def _merged(self, arguments: str) -> WrittenColumns:
        """Return the columns that the clauses of a MERGE set, such as ``[Update [actions: [`name` = label#12]]]``."""
        written: WrittenColumns = {}
        for clause in arguments.split(_ACTIONS)[1:]:
            for action in split_items(clause[: closing_bracket(clause) or 0]):
                found = _ACTION.match(action)
                expression = action[found.end() :] if found is not None else ""
                for column in self._references(expression):
                    for source, derivation in self._origins(column).items():
                        sources = written.setdefault(found["column"] if found is not None else "", {})
                        kind = max(derivation, self._kind_of(expression))
                        sources[source] = max(kind, sources.get(source, kind))
        return written

    def _target_names(self, node: Node, output: list[str]) -> list[str]:
        """Return the names of the target's columns: those that a command lists, or those of the query."""
        if node.described.head.removeprefix("Execute ") in _LISTS_ITS_COLUMNS:
            listed = node.lists()
            if listed:
                return listed[-1] if len(listed[-1]) == len(output) else [""] * len(output)
        return [self._names.get(column, "") for column in output]

    def _origins(self, column: str) -> dict[ColumnSource, _Derivation]:
        """Return the columns of sources that a column comes from, through all that lies between."""
        result: dict[ColumnSource, _Derivation] = {}
        waiting, seen = [(column, _Derivation.IDENTITY)], set()
        while waiting:
            current, derivation = waiting.pop()
            if (current, derivation) in seen:
                continue
            seen.add((current, derivation))
            for source in self._sources.get(current, ()):
                result[source] = max(derivation, result.get(source, derivation))
            for source, step in self._kept.get(current, {}).items():
                result[source] = max(derivation, step, result.get(source, derivation))
            for below, step in self._derived.get(current, {}).items():
                waiting.append((below, max(derivation, step)))
        return result

    def _path(self, column: str) -> set[str]:
        """Return the ids of a column and of all columns between it and its sources."""
        path, waiting = {column}, [column]
        while waiting:
            below = self._derived.get(waiting.pop(), {}).keys() - path
            path |= below
            waiting += below
        return path

    def _read_names(self, node: Node) -> None:
        """Record the columns that a node names, and the aliases that it defines."""
        attributes = node.listed("Aggregate Attributes")
        lists = [*map(node.listed, ("Output", "Results", "Input")), attributes, *node.lists()]
        aliases = []
        for item in (item for items in lists for item in items or ()):
            expression, alias, attribute = item.rpartition(" AS ")
            named = ATTRIBUTE.fullmatch(attribute)
            if named is not None:
                self._names.setdefault(named["id"], named["name"])
                aliases += [(named["id"], expression)] if alias else []
        for function, attribute in zip(node.listed("Functions") or (), attributes or (), strict=False):
            self._derive(id_of(attribute), self._references(function), _Derivation.AGGREGATION)
            self._read_fields(id_of(attribute), function, _Derivation.AGGREGATION)
        for column, expression in aliases:
            if (self._names[column], expression) == _COUNTED_DOWN:
                self._counted_down.add(column)
            if _CORRELATED.search(expression) or _PIVOT in expression:
                # OpenLineage takes the columns of the conditions for values.
                self._split.add(column)
            self._derive(column, self._references(expression), self._kind_of(expression))
            self._read_fields(column, expression)

    def _read_fields(
        self, column: str, expression: str, kind: _Derivation = _Derivation.IDENTITY, depth: int = 0
    ) -> None:
        """Record the fields of a column of structs, if the expression that makes it shows them.

        ``max(struct(day, day#3, amount, amount#2))#9`` has a field ``day`` that comes from ``day#3`` only. Fields are
        columns of their own: ``9.day``.
        """
        named = ATTRIBUTE.fullmatch(expression)
        if named is not None and self._names.get(named["id"]) == named["name"]:
            for name in self._fields.get(named["id"], ()):
                self._derive_field(column, name, [f"{named['id']}.{name}"], kind)
            return
        call = _CALL.match(expression)
        closing = closing_bracket(expression, call.end()) if call is not None else None
        arguments = split_items(expression[call.end() : closing]) if call is not None and closing is not None else []
        function = call["function"] if call is not None else ""
        for name, value in _named_arguments(function, arguments):
            self._derive_field(column, name, self._references(value), max(kind, self._kind_of(value)))
        if function in _OF_SAME_SHAPE and arguments and depth < _DEEPEST_CALL:
            for argument in arguments if function == "array" else arguments[:1]:
                self._read_fields(column, argument, kind, depth + 1)

    def _derive_field(self, column: str, name: str, below: Iterable[str], kind: _Derivation) -> None:
        self._fields.setdefault(column, {})[name] = None
        self._split.add(f"{column}.{name}")
        self._derive(f"{column}.{name}", below, kind)

    def _correct_input(self, node: Node, outputs: dict[int, list[str] | None]) -> None:
        """Take the output of an only child from the line that lists the input of this node, if there is one."""
        if len(node.children) == 1 and "Input [" in node.described.body:
            outputs[node.children[0]] = ids_of(node.listed("Input")) or outputs.get(node.children[0])

    def _output(self, node: Node, inputs: list[list[str] | None]) -> list[str] | None:
        """Return the ids of the columns that a node gives; ``None`` if they are not known."""
        described = node.described
        for key in ("Output", "Results"):
            if f"{key} [" in described.body:
                output = ids_of(node.listed(key))
                break
        else:
            output = self._implied_output(node, inputs)
        if output and not node.children:
            self._read_datasets(described, output)
            self._read_rows(described, output)
            if not any(column in self._sources or column in self._kept for column in output):
                self._ends.update(dict.fromkeys(described.reasons()))
        elif node.children:
            self._ends.update(dict.fromkeys(described.reasons()))
        if described.head == "UnionLoop":
            self._close_loop(described, output, inputs)
        return self._evaluated(node, output)

    def _read_datasets(self, described: DescribedNode, output: list[str]) -> None:
        relation = described.relation()
        computed = _computed_by_database(described, output)
        hidden = _HIDDEN_COLUMNS if described.head.startswith("BatchScan") else described.columns_of_files()
        if relation is not None:
            self._databases[f"the address of the database is hidden (JDBCRelation({relation.relation}))"] = None
        for dataset in (*described.sources(), *([relation] if relation else [])):
            for column in output:
                name = self._names.get(column, "")
                if column in computed:
                    source = ColumnSource(dataset, computed[column])
                    self._kept[column] = {source: _Derivation.AGGREGATION} if source.column else {}
                elif name in hidden:
                    # OpenLineage may take it for a column of the dataset.
                    self._hidden.add(column)
                else:
                    self._sources.setdefault(column, {})[ColumnSource(dataset, name)] = None

    def _read_rows(self, described: DescribedNode, output: list[str]) -> None:
        """Find the execution of this application that made rows which the plan reads as they are, if there is one."""
        loop = _LOOP.search(described.body)
        if described.head == "UnionLoopRef" and loop is not None:
            self._loops.setdefault(loop["id"], []).append(output)
        elif described.head == "Scan ExistingRDD" and CHECKPOINT in described.body:
            self._kept.update(self._checkpoints.get(tuple(output)) or {})
        elif described.head == "Scan ExistingRDD" and " SQLExecutionRDD[" in described.body:
            self._batches.append(output)

    def _close_loop(self, described: DescribedNode, output: list[str] | None, inputs: list[list[str] | None]) -> None:
        """Derive the columns of a recursive query and those of its parts from each other."""
        self._aligned(output, inputs)
        loop = _LOOP.search(described.body)
        for columns in self._loops.get(loop["id"], ()) if loop is not None else ():
            self._aligned(columns, [output])

    def _evaluated(self, node: Node, output: list[str] | None) -> list[str] | None:
        """Derive the columns that a node makes without an alias, and return its output."""
        lists = node.lists()
        match node.described.head.partition(" ")[0]:
            case "BatchEvalPython" | "ArrowEvalPython" if len(lists) > 1:
                self._derive_calls(zip(lists[0], lists[1], strict=False), _Derivation.TRANSFORMATION)
            case "BatchEvalPythonUDTF" | "ArrowEvalPythonUDTF" if lists:
                self._call_for_rows(node.described, ids_of(lists[-1]) or [])
            case "Generate" if lists:
                self._generate(split_items(node.described.arguments)[0], ids_of(lists[-1]) or [])
            case "ArrowAggregatePython" | "AggregateInPandas" if len(lists) > 2:
                called = ((call, item) for item, call in product(lists[-1], lists[1]) if item.startswith(call))
                self._derive_calls(called, _Derivation.AGGREGATION)
            case "MergeRows" | "Expand" if output:
                for expressions in node.rows():
                    for column, expression in zip(output, expressions[-len(output) :], strict=False):
                        self._derive(column, self._references(expression), self._kind_of(expression))
        return output

    def _generate(self, generator: str, columns: list[str]) -> None:
        """Derive the columns of a generator: all from all of its arguments, unless it shows the rows that it makes."""
        rows = list(_shown_rows(generator, len(columns)))
        if not rows and len(columns) == 1:
            self._read_fields(columns[0], generator)
        named = _ROWS_OF_COLUMN.fullmatch(generator)
        if not rows and named is not None and (named["function"] == "inline" or len(columns) == 2):
            # The rows are the structs of an array, or the entries of a map.
            fields = [f"{named['id']}.{name}" for name in self._fields.get(named["id"], ())]
            if len(fields) == len(columns):
                for column, field in zip(columns, fields, strict=True):
                    self._derive(column, [field], _Derivation.IDENTITY)
                return
        for row in rows:
            for column, expression in zip(columns, row, strict=True):
                below = [item for item in self._references(expression) if item != column]
                self._derive(column, below, self._kind_of(expression))
        self._split.update(columns if rows else ())
        for column in columns if not rows else ():
            self._derive(column, self._references(generator), _Derivation.TRANSFORMATION)

    def _call_for_rows(self, described: DescribedNode, columns: list[str]) -> None:
        """Derive the columns of a table function in Python from its argument, if that is one column.

        With several arguments, or rows of a table, only the function's code knows which column becomes which.
        """
        call = split_items(described.arguments)[0]
        arguments = dict.fromkeys(self._references(call.rpartition("#")[0]))
        if len(arguments) == 1 and arguments.keys().isdisjoint(self._fields):
            for column in columns:
                self._derive(column, arguments, _Derivation.TRANSFORMATION)
        elif arguments:
            self._ends[f"the job's own code makes the rows ({described.head})"] = None

    def _derive_calls(self, calls: Iterable[tuple[str, str]], kind: _Derivation) -> None:
        """Derive columns from calls of functions in Python. The id behind a call has a name that holds its columns."""
        for call, attribute in calls:
            self._derive(id_of(attribute), self._references(call.rpartition("#")[0] or call), kind)

    def _implied_output(self, node: Node, inputs: list[list[str] | None]) -> list[str] | None:
        """Return the columns of a node that does not list them as its output."""
        # Subqueries are drawn in front of the plan that holds them.
        lists, first = node.lists(), inputs[-1] if inputs else None
        match node.described.head.partition(" ")[0]:
            case "Project" | "LogicalRelation" | "HiveTableRelation" if lists:
                return ids_of(lists[0])
            case name if name in _LISTS_ITS_OUTPUT_LAST and lists:
                return ids_of(lists[-1])
            case "Generate" if lists:
                required = ids_of(lists[-2]) if len(lists) > 1 else []
                return [*(required or ()), *(ids_of(lists[-1]) or ())]
            case "BatchEvalPython" | "ArrowEvalPython" if len(lists) > 1 and first:
                return [*first, *(ids_of(lists[1]) or ())]
            case "Window" | "WindowInPandas" | "ArrowWindowPython" if lists and first:
                return [*first, *(ids_of(lists[0]) or ())]
            case "CTERelationDef" | "CTERelationRef":
                return self._common_query(node.described.arguments, ids_of(lists[0]) if lists else first)
            case "InMemoryRelation" if lists:
                return self._aligned(ids_of(lists[0]), inputs)
            case "Union":
                kept = [columns for columns in inputs[1:] if self._counted_down.isdisjoint(columns or ())]
                return self._aligned(inputs[0] if inputs else None, kept)
            case name if "Join" in name or name in _OF_TWO:
                return _joined_output(node, inputs)
        return None if node.described.is_code else first

    def _common_query(self, arguments: str, output: list[str] | None) -> list[str] | None:
        """Define a part of a query that WITH names, or derive the columns of a reference to it; return the output."""
        definition = _CTE.match(arguments)
        if definition is not None and output:
            columns = self._queries.setdefault(definition["id"], output)
            self._aligned(output, [columns])
        return output

    def _aligned(self, output: list[str] | None, inputs: list[list[str] | None]) -> list[str] | None:
        """Derive the columns of an output from those of its inputs in the same places, and return it."""
        for columns in inputs:
            if output and columns and len(columns) == len(output):
                for column, below in zip(output, columns, strict=True):
                    if column != below:
                        self._derive(column, [below], _Derivation.IDENTITY)
        return output

    def _derive(self, column: str, below: Iterable[str], kind: _Derivation) -> None:
        derived = self._derived.setdefault(column, {})
        for source in below:
            derived[source] = max(kind, derived.get(source, kind))

    def _kind_of(self, expression: str) -> _Derivation:
        """Return whether an expression is a column as it is."""
        named = ATTRIBUTE.fullmatch(expression)
        is_column = named is not None and self._names.get(named["id"]) == named["name"]
        return _Derivation.IDENTITY if is_column or SUBQUERY.search(expression) else _Derivation.TRANSFORMATION

    def _references(self, expression: str) -> list[str]:
        """Return the ids of the columns in an expression.

        A text in it may look like a column, so an id counts only behind the name of its column.
        """
        expression = _OUTER.sub("", _without_conditions(expression))
        references, end = [], len(expression)
        for match in reversed(list(_REFERENCE.finditer(expression))):
            name = self._names.get(match["id"])
            begin = match.start() - len(name or "")
            # A query may spell a column in another case than its table.
            if (
                match.end() <= end
                and name is not None
                and expression[max(begin, 0) : match.start()].lower() == name.lower()
            ):
                field = _FIELD.match(expression, match.end())
                has_field = field is not None and field["field"] in self._fields.get(match["id"], ())
                references.append(match["id"] + (field[0] if field is not None and has_field else ""))
                # The name of an aggregate holds the names of its columns.
                end = begin
        return references


def _named_arguments(function: str, arguments: list[str]) -> Iterable[tuple[str, str]]:
    """Return the fields of the structs, or the keys and values of the map, that a call makes, and their expressions."""
    half = 0 if len(arguments) % 2 else len(arguments) // 2
    if function == "map" and half:
        return [*product(("key",), arguments[::2]), *product(("value",), arguments[1::2])]
    if function in _STRUCTS and half:
        return zip(arguments[::2], arguments[1::2], strict=True)
    return zip(arguments[half:], arguments[:half], strict=True) if function == "arrays_zip" and half else ()


def _shown_rows(generator: str, columns: int) -> Iterator[list[str]]:
    """Yield the expressions of each row of ``stack``, of ``inline`` over an array of structs, or of a map's entries."""
    found = _SHOWN_ROWS.match(generator)
    closing = generator.count("(", 0, found.end()) if found is not None else 0
    items = split_items(generator[found.end() : -closing]) if found is not None and columns else []
    if found is not None and found[0] != "inline(array(":
        number = int(found["number"] or len(items) // max(columns, 1))
        if len(items) == number * columns:
            yield from (items[begin : begin + columns] for begin in range(0, len(items), columns))
        return
    rows = [split_items(item.removeprefix(_STRUCT).removesuffix(")")) for item in items if item.startswith(_STRUCT)]
    if len(rows) == len(items) and all(len(row) == 2 * columns for row in rows):
        # The names of the fields are between them.
        yield from (row[1::2] for row in rows)


def _computed_by_database(described: DescribedNode, output: Sequence[str]) -> dict[str, str]:
    """Return the columns of a scan that the database computes, each with the table's column behind it or an empty text.

    The database gives what it groups by, then its aggregates.
    """
    pushed = {found["kind"]: split_items(found["columns"]) for found in _PUSHED.finditer(described.body)}
    aggregates = pushed.get("Aggregates")
    if not aggregates or described.relation() is not None:
        return {}
    groups = pushed.get("GroupByExpressions", [])
    expressions = [*groups, *aggregates] if len(groups) + len(aggregates) == len(output) else [""] * len(output)
    found = [(column, _AGGREGATE.fullmatch(item)) for column, item in zip(output, expressions, strict=True)]
    plain = {column for column, item in zip(output, expressions, strict=True) if item in groups}
    return {column: aggregate["column"] if aggregate else "" for column, aggregate in found if column not in plain}


def _joined_output(node: Node, inputs: list[list[str] | None]) -> list[str] | None:
    inputs = inputs[-2:]
    if _ONE_SIDED.search(f"{node.described.head}\n{node.described.body}"):
        return inputs[0] if inputs else None
    known = [columns for columns in inputs if columns is not None]
    return [column for columns in known for column in columns] if len(known) == len(inputs) else None


def _without_conditions(expression: str) -> str:
    """Return an expression without conditions (``if``, ``CASE``, ``FILTER``, ``PIVOT``) and the keys of windows."""
    begin = expression.find(_PIVOT) + len(_PIVOT)
    if _PIVOT in expression:
        expression = expression[:begin] + expression[begin + len(split_items(expression[begin:])[0]) :]
    end = expression.rfind(" THEN") + len(" THEN")
    if "WHEN " in expression[:end]:
        expression = _WHEN.sub("WHEN THEN", expression[:end]) + expression[end:]
    kept, position = [], 0
    while (found := _CONDITION.search(expression, position)) is not None:
        begin = found.end()
        closing = closing_bracket(expression, begin)
        if closing is None:
            break
        kept.append(expression[position:begin])
        position = closing
    return "".join((*kept, expression[position:]))
