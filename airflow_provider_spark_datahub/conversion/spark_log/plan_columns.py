"""Column lineage of physical plans, from the expression ids of their columns.

Spark gives each column an id, ``amount#12``, which is unique within an application. A column that an expression makes
has an id of its own, and the plan names both: ``(amount#12 * 1.2) AS with_tax#30``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from airflow_provider_spark_datahub.conversion.spark_log.plans import DescribedNode, PlanDataset, described_nodes

# A tree of the plan, or of one of its subqueries: a line for each node. An empty line ends it.
_TREE = re.compile(
    r"^(?:== Physical Plan ==|Subquery:\d+ Hosting operator id = \d+ Hosting Expression = (?P<host>.*))\n"
    r"(?P<lines>(?:.+\n)+)",
    re.MULTILINE,
)
_TREE_LINE = re.compile(r"(?P<indent>[ :+-]*)(?:\* )?\S.*\((?P<number>\d+)\)\s*")
_SUBQUERY = re.compile(r"(?P<name>(?:scalar-)?subquery)#(?P<id>\d+)")
_LISTED = re.compile(r"^(?P<key>Output|Results|Functions|Aggregate Attributes) \[(?P<count>\d+)\]: ", re.MULTILINE)
_ATTRIBUTE = re.compile(r"(?P<name>.+)#(?P<id>\d+)L?", re.DOTALL)
_REFERENCE = re.compile(r"#(?P<id>\d+)L?")
_ONE_SIDED = re.compile(r"\bLeft(?:Semi|Anti)\b")
# The id behind the comma is that of the subquery's plan.
_PLAN_ID_OF_SUBQUERY = re.compile(r"\bSubquery (?P<reference>(?:scalar-)?subquery#\d+), \[id=#\d+\]")
# Commands whose last argument lists the columns of the target.
_LISTS_ITS_COLUMNS = frozenset(
    {"InsertIntoHadoopFsRelationCommand", "InsertIntoHiveTable", "CreateDataSourceTableAsSelectCommand"}
)
_RELATION = re.compile(r"\bRelation \[(?P<columns>[^\]]*)\] \w+")
_OPEN, _CLOSE = "([{", ")]}"
# Columns by which Iceberg finds the rows that a statement changes.
_ROW_IDS = frozenset({"_file", "_pos", "_spec_id", "_partition", "_deleted", "__row_operation", "_row_id"})


class Derivation(IntEnum):
    """How a column comes from another, in the terms of OpenLineage's column lineage facet. The larger one prevails."""

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2


class ColumnSource(NamedTuple):
    """A column that a plan reads."""

    dataset: PlanDataset
    column: str


WrittenColumns = dict[str, dict[ColumnSource, Derivation]]
"""The columns that are written to a dataset, and those that are read for each of them."""


def written_columns(plans: Sequence[str]) -> list[tuple[PlanDataset, WrittenColumns]]:
    """Return the columns that an execution writes to each of its sinks, and the columns that they come from.

    A column is left out if the plans do not show where it comes from: constants, functions on whole rows or partitions,
    sources without a name, and lists that Spark abbreviated.

    :param plans: texts of the physical plans of the execution and its parts, in Spark's "formatted" mode.
    """
    lineage = _Lineage()
    # The parts come after the execution, and their scans name the files that it reads.
    trees = [tree for plan in reversed(plans) for tree in _trees(plan)]
    for tree in trees:
        lineage.add(tree)
    return [written for tree in trees for written in lineage.written(tree)]


class _Node(NamedTuple):
    described: DescribedNode
    children: tuple[int, ...]

    def lists(self) -> list[list[str]]:
        """Return the lists among its arguments, each as its items."""
        return [_items(item[1:-1]) for item in _items(self.described.arguments) if item[:1] + item[-1:] == "[]"]

    def listed(self, key: str) -> list[str] | None:
        """Return the items of a line such as ``Output [2]: [a#1, b#2]``; ``None`` if there are not as many as it says.

        Spark abbreviates long lists, and a text in an expression may hold brackets and commas.
        """
        for found in _LISTED.finditer(self.described.body):
            if found["key"] == key:
                items = _items(self.described.body[found.end() :].partition("\n")[0].strip()[1:-1])
                return items if len(items) == int(found["count"]) else None
        return None


class _Tree(NamedTuple):
    """A plan or a subquery of it.

    :param nodes: by number; parents come before their children.
    :param subquery: the name and id by which expressions refer to the subquery; empty for a plan.
    """

    nodes: dict[int, _Node]
    subquery: tuple[str, str]
    outputs: dict[int, list[str] | None]


def _trees(plan: str) -> list[_Tree]:
    """Return the subqueries of a plan, then the plan."""
    trees = []
    text = _PLAN_ID_OF_SUBQUERY.sub(lambda found: found["reference"], plan)
    described = {node.number: node for node in described_nodes(text)}
    for found in _TREE.finditer(text):
        host = _SUBQUERY.search(found["host"] or "")
        subquery = (host["name"], host["id"]) if host else ("", "")
        trees.append(_Tree(_nodes(found["lines"], described), subquery, {}))
    return trees[::-1]


def _nodes(lines: str, described: dict[int, DescribedNode]) -> dict[int, _Node]:
    above: list[tuple[int, int]] = []
    children: dict[int, dict[int, None]] = {}
    for line in lines.splitlines():
        found = _TREE_LINE.fullmatch(line)
        if found is None or int(found["number"]) not in described:
            continue
        depth, number = len(found["indent"]), int(found["number"])
        while above and above[-1][0] >= depth:
            above.pop()
        if above:
            children[above[-1][1]][number] = None
        above.append((depth, number))
        children.setdefault(number, {})
    return {number: _Node(described[number], tuple(below)) for number, below in children.items()}


class _Lineage:
    """Which columns each column comes from, over all plans of an execution."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._sources: dict[str, dict[ColumnSource, None]] = {}
        self._derived: dict[str, dict[str, Derivation]] = {}

    def add(self, tree: _Tree) -> None:
        for number, node in reversed(tree.nodes.items()):
            self._read_names(node)
            tree.outputs[number] = self._output(node, [tree.outputs.get(child) for child in node.children])
        root = next(iter(tree.outputs.values()), None) if not tree.nodes else tree.outputs[next(iter(tree.nodes))]
        name, subquery_id = tree.subquery
        if subquery_id and root:
            self._names[subquery_id] = name
            self._derive(subquery_id, root[:1], Derivation.IDENTITY)

    def written(self, tree: _Tree) -> Iterator[tuple[PlanDataset, WrittenColumns]]:
        """Yield the sinks of a tree with the columns that are written to them."""
        for node in tree.nodes.values():
            output = tree.outputs.get(node.children[0]) if node.children else _query_in(node)
            for sink in node.described.sinks():
                named = zip(self._target_names(node, output), output, strict=True) if output else ()
                origins = {name: self._origins(column) for name, column in named if name not in _ROW_IDS}
                yield sink, {name: sources for name, sources in origins.items() if sources}

    def _target_names(self, node: _Node, output: list[str]) -> list[str]:
        """Return the names of the target's columns: those that a command lists, or those of the query."""
        if node.described.head.removeprefix("Execute ") in _LISTS_ITS_COLUMNS:
            listed = node.lists()
            if listed and len(listed[-1]) == len(output):
                return listed[-1]
        return [self._names[column] for column in output]

    def _origins(self, column: str) -> dict[ColumnSource, Derivation]:
        """Return the columns of sources that a column comes from, through all that lies between."""
        result: dict[ColumnSource, Derivation] = {}
        waiting, seen = [(column, Derivation.IDENTITY)], set()
        while waiting:
            current, derivation = waiting.pop()
            if (current, derivation) in seen:
                continue
            seen.add((current, derivation))
            for source in self._sources.get(current, ()):
                result[source] = max(derivation, result.get(source, derivation))
            for below, step in self._derived.get(current, {}).items():
                waiting.append((below, max(derivation, step)))
        return result

    def _read_names(self, node: _Node) -> None:
        """Record the columns that a node names, and the aliases that it defines."""
        attributes = node.listed("Aggregate Attributes")
        lists = [node.listed("Output"), node.listed("Results"), attributes, *node.lists()]
        aliases = []
        for item in (item for items in lists for item in items or ()):
            expression, alias, attribute = item.rpartition(" AS ")
            named = _ATTRIBUTE.fullmatch(attribute)
            if named is not None:
                self._names.setdefault(named["id"], named["name"])
                aliases += [(named["id"], expression)] if alias else []
        for column, expression in aliases:
            self._derive(column, self._references(expression), self._kind_of(expression))
        for function, attribute in zip(node.listed("Functions") or (), attributes or (), strict=False):
            self._derive(_id_of(attribute), self._references(function), Derivation.AGGREGATION)

    def _output(self, node: _Node, inputs: list[list[str] | None]) -> list[str] | None:
        """Return the ids of the columns that a node gives; ``None`` if they are not known."""
        described = node.described
        for key in ("Output", "Results"):
            if f"{key} [" in described.body:
                output = _ids(node.listed(key))
                break
        else:
            output = self._implied_output(node, inputs)
        if output and not node.children:
            for dataset in described.sources():
                for column in output:
                    self._sources.setdefault(column, {})[ColumnSource(dataset, self._names[column])] = None
        return self._evaluated(node, output)

    def _evaluated(self, node: _Node, output: list[str] | None) -> list[str] | None:
        """Derive the columns that a node makes without an alias, and return its output."""
        lists = node.lists()
        match node.described.head.partition(" ")[0]:
            case "BatchEvalPython" | "ArrowEvalPython" if len(lists) > 1:
                for function, attribute in zip(lists[0], lists[1], strict=False):
                    self._derive(_id_of(attribute), self._references(function), Derivation.TRANSFORMATION)
            case "Generate" if lists:
                generator = self._references(_items(node.described.arguments)[0])
                for column in _ids(lists[-1]) or ():
                    self._derive(column, generator, Derivation.TRANSFORMATION)
            case "Expand" if len(lists) > 1 and output:
                for projection in lists[0]:
                    for column, expression in zip(output, _items(projection[1:-1]), strict=False):
                        self._derive(column, self._references(expression), self._kind_of(expression))
        return output

    def _implied_output(self, node: _Node, inputs: list[list[str] | None]) -> list[str] | None:
        """Return the columns of a node that does not list them as its output."""
        lists, first = node.lists(), inputs[0] if inputs else None
        match node.described.head.partition(" ")[0]:
            case "Project" | "LogicalRelation" | "HiveTableRelation" if lists:
                return _ids(lists[0])
            case "Aggregate" | "Expand" | "TakeOrderedAndProject" if lists:
                return _ids(lists[-1])
            case "Generate" if lists:
                required = _ids(lists[-2]) if len(lists) > 1 else []
                return [*(required or ()), *(_ids(lists[-1]) or ())]
            case "BatchEvalPython" | "ArrowEvalPython" if len(lists) > 1 and first:
                return [*first, *(_ids(lists[1]) or ())]
            case "Window" if lists and first:
                return [*first, *(_ids(lists[0]) or ())]
            case "InMemoryRelation" if lists:
                return self._aligned(_ids(lists[0]), inputs)
            case "Union":
                return self._aligned(first, inputs[1:])
            case name if "Join" in name or name == "CartesianProduct":
                return _joined_output(node, inputs)
        return first

    def _aligned(self, output: list[str] | None, inputs: list[list[str] | None]) -> list[str] | None:
        """Derive the columns of an output from those of its inputs in the same places, and return it."""
        for columns in inputs:
            if output and columns and len(columns) == len(output):
                for column, below in zip(output, columns, strict=True):
                    if column != below:
                        self._derive(column, [below], Derivation.IDENTITY)
        return output

    def _derive(self, column: str, below: Iterable[str], kind: Derivation) -> None:
        derived = self._derived.setdefault(column, {})
        for source in below:
            derived[source] = max(kind, derived.get(source, kind))

    def _kind_of(self, expression: str) -> Derivation:
        """Return whether an expression is a column as it is."""
        named = _ATTRIBUTE.fullmatch(expression)
        is_column = named is not None and self._names.get(named["id"]) == named["name"]
        return Derivation.IDENTITY if is_column or _SUBQUERY.search(expression) else Derivation.TRANSFORMATION

    def _references(self, expression: str) -> list[str]:
        """Return the ids of the columns in an expression.

        A text in it may look like a column, so an id counts only behind the name of its column.
        """
        references, end = [], len(expression)
        for found in reversed(list(_REFERENCE.finditer(expression))):
            name = self._names.get(found["id"])
            if found.end() <= end and name is not None and expression[: found.start()].endswith(name):
                references.append(found["id"])
                # The name of an aggregate holds the names of its columns.
                end = found.start() - len(name)
        return references


def _query_in(node: _Node) -> list[str] | None:
    """Return the columns of a query that a command shows as one of its arguments, by the first line of its plan."""
    relation = _RELATION.search(node.described.arguments)
    if relation is not None:
        return _ids(relation["columns"].split(","))
    lists = [ids for items in node.lists() if (ids := [_id_of(item) for item in items]) and all(ids)]
    return lists[-1] if lists else None


def _joined_output(node: _Node, inputs: list[list[str] | None]) -> list[str] | None:
    if _ONE_SIDED.search(f"{node.described.head} {node.described.arguments}"):
        return inputs[0] if inputs else None
    known = [columns for columns in inputs if columns is not None]
    return [column for columns in known for column in columns] if len(known) == len(inputs) else None


def _items(text: str) -> list[str]:
    """Split at the commas that are outside of all brackets."""
    items, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "," and depth == 0 and text.startswith(" ", position + 1):
            items.append(text[begin:position])
            begin = position + 2
    return [*items, text[begin:]] if text else []


def _ids(items: list[str] | None) -> list[str] | None:
    """Return the id of each column; ``None`` if an item is not a column."""
    ids = [_id_of(item) for item in items or ()]
    return ids if items and all(ids) else None


def _id_of(item: str) -> str:
    named = _ATTRIBUTE.fullmatch(item)
    return named["id"] if named else ""
