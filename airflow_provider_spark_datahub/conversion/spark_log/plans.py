"""The text of physical plans, as Spark's event log holds it, parsed into trees of nodes.

Plans are in Spark's "formatted" mode: a tree of numbered nodes, then a description of each node.

Tests: ``tests/conversion/test_plan_datasets.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

# A node: "(1) Scan csv", then its lines. An empty line ends it.
_NODE = re.compile(r"\((?P<number>\d+)\) (?P<head>.*)\n(?P<body>(?:.+\n?)*)")
_CODEGEN = re.compile(r"\[codegen id : \d+\]\s*$")
MERGE_ROWS = "MergeRows"
"""The node that makes the rows of a MERGE into a table of another format than Delta's."""
# A tree of the plan, or of one of its subqueries: a line for each node. An empty line ends it.
_TREE = re.compile(
    r"^(?:== Physical Plan ==|Subquery:\d+ Hosting operator id = \d+ Hosting Expression = (?P<host>.*))\n"
    r"(?P<lines>(?:.+\n)+)",
    re.MULTILINE,
)
_TREE_LINE = re.compile(r"[ :+-]*(?:\* )?[^\s:+-].*\((?P<number>\d+)\)\s*")
SUBQUERY = re.compile(r"(?P<name>(?:scalar-)?subquery)#(?P<id>\d+)")
_LISTED = re.compile(
    r"^(?P<key>Input|Output|Results|Functions|Aggregate Attributes) \[(?P<count>\d+)\]: ", re.MULTILINE
)
# The delay of an event-time column's watermark stands behind its id.
ATTRIBUTE = re.compile(r"(?P<name>.+)#(?P<id>\d+)L?(?:-T\d+ms)?", re.DOTALL)
# The id behind the comma is that of the subquery's plan.
_PLAN_ID_OF_SUBQUERY = re.compile(r"\bSubquery (?P<reference>(?:scalar-)?subquery#\d+), \[id=#\d+\]")
_RELATION = re.compile(r"\bRelation \[(?P<columns>[^\]]*)\] \w+")
_KEEP = "keep("
_OPEN, _CLOSE = "([{", ")]}"
_PUNCTUATION = re.compile(rf"[{re.escape(_OPEN + _CLOSE)}]|, ")


@dataclass(frozen=True)
class Node:
    """A node of a plan.

    :param number: its number in the tree.
    :param head: its name, and what it names in the line of its name.
    :param body: the lines that describe it.
    :param children: the numbers of the nodes below it.
    """

    number: int
    head: str
    body: str
    children: tuple[int, ...] = ()

    @property
    def arguments(self) -> str:
        """The line that begins with ``Arguments:``, without that word; empty if there is none."""
        return self.body.partition("Arguments: ")[2].partition("\n")[0]

    @cached_property
    def kind(self) -> str:
        """The first word of its name, or the command that it executes."""
        return self.head.removeprefix("Execute ").partition(" ")[0]

    @cached_property
    def lists(self) -> list[list[str]]:
        """The lists among its arguments, each as its items."""
        items = split_items(self.arguments)
        return [split_items(item[1:-1]) for item in items if item[:1] + item[-1:] == "[]"]

    def ids(self, number: int) -> list[str] | None:
        """Return the ids in one of its lists; ``None`` if an item of it is not a column."""
        return ids_of(self.lists[number])

    def listed(self, key: str) -> list[str] | None:
        """Return the items of a line such as ``Output [2]: [a#1, b#2]``; ``None`` if there are not as many as it says.

        Spark abbreviates long lists, and a text in an expression may hold brackets and commas.
        """
        for match in _LISTED.finditer(self.body):
            if match["key"] == key:
                items = split_items(self.body[match.end() :].partition("\n")[0].strip()[1:-1])
                return items if len(items) == int(match["count"]) else None
        return None

    def output_key(self) -> str:
        """Return the word before the list of its output; empty if it does not list its output."""
        return next((key for key in ("Output", "Results") if f"{key} [" in self.body), "")

    def rows(self) -> Iterator[list[str]]:
        """Yield the expressions of rows that the node makes of one: by the clauses of a MERGE, or for groupings."""
        *lists, output = self.lists or [[]]
        if self.head == MERGE_ROWS:
            for row in (item for items in lists for item in items if item.startswith(_KEEP)):
                expressions = split_items(row[len(_KEEP) : -1])
                # Before the columns: the condition, and in later versions of Spark what happens to the row.
                if len(expressions) - len(output) in (1, 2):
                    yield expressions
        elif lists:
            yield from (split_items(projection[1:-1]) for projection in lists[0])

    def query(self) -> list[str] | None:
        """Return the columns of a query that a command shows as one of its arguments, by the first line of its plan."""
        relation = _RELATION.search(self.arguments)
        if relation is not None:
            return ids_of(relation["columns"].split(","))
        return next((ids for items in reversed(self.lists) if (ids := ids_of(items))), None)


class Tree(NamedTuple):
    """A plan or a subquery of it.

    :param nodes: by number; parents come before their children.
    :param subquery: the name and id by which expressions refer to the subquery; empty for a plan.
    """

    nodes: dict[int, Node]
    subquery: tuple[str, str]


class Plan(NamedTuple):
    """A plan, parsed.

    :param nodes: all nodes that it describes, in the order of the text.
    :param trees: its subqueries, then the plan itself.
    """

    nodes: tuple[Node, ...]
    trees: tuple[Tree, ...]

    @classmethod
    def of(cls, text: str) -> Plan:
        """Return the plan of a text."""
        return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else _parsed(text)


def _parsed(text: str) -> Plan:
    text = _PLAN_ID_OF_SUBQUERY.sub(lambda match: match["reference"], text)
    nodes = tuple(
        Node(int(node["number"]), _CODEGEN.sub("", node["head"]).strip(), node["body"]) for node in _NODE.finditer(text)
    )
    described = {node.number: node for node in nodes}
    trees = []
    for match in _TREE.finditer(text):
        host = SUBQUERY.search(match["host"] or "")
        subquery = (host["name"], host["id"]) if host else ("", "")
        trees.append(Tree(_nodes(match["lines"], described), subquery))
    return Plan(nodes, tuple(reversed(trees)))


# All readers of an execution's plans come one after the other.
_remembered = lru_cache(maxsize=16)(_parsed)
_LONGEST_REMEMBERED = 1_000_000


def _nodes(lines: str, described: dict[int, Node]) -> dict[int, Node]:
    above: list[tuple[int, int]] = []
    children: dict[int, dict[int, None]] = {}
    begun = 0
    for line in lines.splitlines():
        found = _TREE_LINE.fullmatch(line)
        indent = len(line) - len(line.lstrip(" :+-"))
        if found is None or int(found["number"]) not in described:
            begun = indent or begun
            continue
        # The name of a node may take several lines, such as that of a scan with its table's description.
        depth, number = indent or begun, int(found["number"])
        begun = 0
        while above and above[-1][0] >= depth:
            above.pop()
        if above:
            children[above[-1][1]][number] = None
        above.append((depth, number))
        # A cache that is read twice is drawn twice, with the same numbers: it comes after all nodes above it.
        children[number] = children.pop(number, {})
    return {number: replace(described[number], children=tuple(below)) for number, below in children.items()}


def closing_bracket(text: str, begin: int = 0) -> int | None:
    """Return the place of the bracket that closes the one before ``begin``; ``None`` if there is none."""
    depth = 1
    for mark in _PUNCTUATION.finditer(text, begin):
        depth += (mark[0] in _OPEN) - (mark[0] in _CLOSE)
        if depth == 0:
            return mark.start()
    return None


def split_items(text: str) -> list[str]:
    """Split at the commas that are outside of all brackets."""
    items, depth, begin = [], 0, 0
    for mark in _PUNCTUATION.finditer(text):
        if mark[0] in _OPEN:
            depth += 1
        elif mark[0] in _CLOSE:
            depth -= 1
        elif depth == 0:
            items.append(text[begin : mark.start()])
            begin = mark.end()
    return [*items, text[begin:]] if text else []


def ids_of(items: list[str] | None) -> list[str] | None:
    """Return the id of each column; ``None`` if an item is not a column."""
    ids = [id_of(item) for item in items or ()]
    return ids if items and all(ids) else None


def id_of(item: str) -> str:
    """Return the id of a column, such as ``12`` of ``amount#12``; empty if the item is not a column."""
    named = ATTRIBUTE.fullmatch(item)
    return named["id"] if named else ""
