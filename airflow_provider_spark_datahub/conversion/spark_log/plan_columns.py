"""Column lineage of physical plans: one method for each kind of node, which follows its columns by
their ids.

Tests: ``tests/conversion/test_run_events.py`` and ``tests/conversion/test_hard_jobs.py``.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from operator import eq
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from airflow_provider_spark_datahub.conversion.facets.dataset import RESERVED_COLUMNS
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import (
    ColumnGraph,
    ColumnSource,
    Derivation,
    HeldColumn,
    Sources,
    Value,
    column_id,
    columns_of,
    kind_of,
)
from airflow_provider_spark_datahub.conversion.spark_log.plans import (
    CHECKPOINT,
    CLONE,
    CONSTANT,
    LOGICAL,
    MERGE,
    MERGE_ROWS,
    REUSED,
    Node,
    Plan,
    PlanDataset,
    PlanDatasets,
    Tree,
    closing_bracket,
    id_of,
    split_items,
)

_ONE_SIDED = re.compile(r"\A(?:Except|Intersect)\b|\bLeft(?:Semi|Anti)\b(?!#)")
# Commands whose last argument lists the columns of the target.
_LISTS_ITS_COLUMNS = frozenset(
    {
        "InsertIntoHadoopFsRelationCommand",
        "InsertIntoHiveTable",
        "InsertIntoHiveDirCommand",
        "CreateDataSourceTableAsSelectCommand",
    }
)
_ACTIONS = "actions: ["
_ACTION = re.compile(r"`(?P<column>[^`]+)` = ")
_RDD_OF_CHECKPOINT = re.compile(rf"RDD\[\d+\] at \w*{CHECKPOINT}")
_HIDDEN_COLUMNS = RESERVED_COLUMNS | {"__row_operation"}
"""Names of columns that Iceberg adds to a scan, and Spark to the rows that a statement changes."""
# Commands of data sources that write through another execution.
_CHANGES_ROWS = frozenset({"ReplaceData", "WriteDelta"})
_HIDES_ITS_QUERY = re.compile(
    r"(?:AppendData|OverwriteByExpression)ExecV1|(?:Atomic)?(?:Create|Replace)TableAsSelect"
)
# The columns that a database groups by; its other output columns are results of aggregate
# functions.
_PUSHED = re.compile(
    r"^Pushed(?P<kind>Aggregates|GroupByExpressions): \[(?P<columns>.+)\]$", re.MULTILINE
)
_AGGREGATE = re.compile(r"[A-Z_]+\((?:DISTINCT )?(?P<column>[A-Za-z_]\w*)\)")
WrittenColumns = dict[str, Sources]
"""The columns that are written to a dataset, and those that are read for each of them."""
ALL_COLUMNS = "*"
"""Stands for each column of a table that is cloned."""


class ExecutionColumns(NamedTuple):
    """Columns of one execution.

    :param written: the sinks that its plans name, with the columns that are written to each.
    :param result: the columns of the rows that it gives: those of a micro-batch, for instance.
    :param ends: why the plans do not show where columns come from, in the order of the plans.
    :param resolved: columns of each sink whose sources the plans show in full, with their names:
        none for constants.
    :param complete: sinks whose columns are all resolved.
    :param held: datasets behind the checkpoints that it reads.
    :param unknown: leaves that hide a dataset in the plans, or may hide one, for people.
    :param holds_driver_rows: it reads a checkpoint of rows that the driver held.
    """

    written: list[tuple[PlanDataset, WrittenColumns]]
    result: WrittenColumns
    ends: tuple[str, ...]
    resolved: Mapping[PlanDataset, frozenset[str]] = MappingProxyType({})
    complete: frozenset[PlanDataset] = frozenset()
    held: tuple[PlanDataset, ...] = ()
    unknown: tuple[str, ...] = ()
    holds_driver_rows: bool = False


class PlanColumns:
    """Column lineage of an application's executions: add them in the order in which they began.

    A column is left out if the plans do not show where it comes from: constants, functions on whole
    rows or partitions, sources without a name, and lists that Spark abbreviated.

    A checkpoint cuts the plan: later executions read the rows of an RDD. Their columns keep the ids
    of the execution that made the checkpoint, and get new ones where a query reads it a second
    time. If two checkpoints have the same ids but different sources, neither counts.
    """

    def __init__(self) -> None:
        self._checkpoints: dict[tuple[str, ...], _Checkpoint | None] = {}
        self._rdds: dict[str, tuple[str, ...]] = {}

    def of(
        self, plans: Sequence[str], description: str = "", *, has_driver_rows: bool = False
    ) -> ExecutionColumns:
        """Return the columns that an execution writes and gives, and the columns that they come
        from.

        :param plans: texts of the physical plans of the execution and its parts, in Spark's
            "formatted" mode.
        :param description: the call site of the execution, or what the job calls it.
        :param has_driver_rows: it reads rows that the driver held.
        """
        visitor = _Visitor(self._checkpoints, self._rdds, has_parts=len(plans) > 1)
        # The parts come after the execution, and their scans name the files that it reads.
        trees = [visitor.visit(tree) for plan in reversed(plans) for tree in Plan.of(plan).trees]
        own = trees[-1] if trees else None
        graph = visitor.graph
        if own is not None and len(plans) > 1:
            visitor.link_micro_batch(own.output)
        sinks = _Sinks(visitor, trees, plans)
        written = [written for tree in trees for written in sinks.written(tree)]
        output = own.output if own is not None else ()
        held = {column: graph.held(column) for column in output}
        # Jobs may call their executions what they like.
        if (
            own is not None
            and not written
            and (CHECKPOINT in description or " at " not in description)
        ):
            columns = {column_id(column): one for column, one in held.items()}
            reaching = dict.fromkeys((*PlanDatasets.of(plans).sources, *visitor.held))
            for column in held.values():
                reaching.update({source.dataset: None for source in column.sources})
            of_driver = has_driver_rows or visitor.holds_driver_rows
            self._keep(_Checkpoint(columns, tuple(reaching), of_driver))
        named = [(graph.names.get(column, ""), one.sources) for column, one in held.items()]
        return ExecutionColumns(
            written,
            {name: sources for name, sources in named if name and sources},
            tuple(visitor.ends or visitor.unknown),
            sinks.resolved,
            sinks.complete,
            (*visitor.held,),
            (*visitor.unknown,),
            visitor.holds_driver_rows,
        )

    def _keep(self, checkpoint: _Checkpoint) -> None:
        output = (*checkpoint.columns,)
        has_sources = any(column.sources for column in checkpoint.columns.values())
        if has_sources or checkpoint.has_driver_rows:
            is_new = output not in self._checkpoints or self._checkpoints[output] == checkpoint
            self._checkpoints[output] = checkpoint if is_new else None


class _Checkpoint(NamedTuple):
    """Rows that Spark keeps for later queries.

    :param columns: by their ids.
    :param datasets: those that reach the rows, as their columns or by what decides on them.
    :param has_driver_rows: so do rows that the driver held.
    """

    columns: dict[str, HeldColumn]
    datasets: tuple[PlanDataset, ...]
    has_driver_rows: bool


_Ids = list[str] | None
"""Ids of the columns that a node gives; ``None`` if they are not known."""


class _VisitedTree(NamedTuple):
    """A tree of a plan, with the ids of each node's output columns by the node's number."""

    nodes: dict[int, Node]
    is_subquery: bool
    outputs: dict[int, _Ids]

    def _of(self, place: int) -> tuple[str, ...]:
        return tuple(self.outputs[list(self.nodes)[place]] or ()) if len(self.nodes) > place else ()

    @property
    def output(self) -> tuple[str, ...]:
        """The ids of the columns that the plan gives; empty if they are not known."""
        return self._of(0)

    @property
    def rows(self) -> tuple[str, ...]:
        """The ids of the columns that the plan gives, before its rows became objects of Java."""
        kinds = [node.kind for node in self.nodes.values()]
        return self._of(1) if kinds[1:2] == ["DeserializeToObject"] else self.output


class _Visitor:
    """Follows columns through the nodes of an execution's plans, from the leaves up.

    ``_VISITS`` names the method for each kind of node; other nodes give the columns of their input.
    A method derives the columns that its node makes, and returns those that the node gives. Output
    that the text of a node lists counts before what its method returns, and aliases are read from
    every node.

    :param checkpoints: earlier checkpoints, by the ids of their columns; ``None`` if these are not
        clear.
    :param rdds: these ids by the checkpoint's RDD, once a plan has both.
    :param has_parts: the execution has inner ones, which run the queries that its plan only names.
    :ivar ends: reasons why the plans do not show where columns come from.
    :ivar unknown: leaves that hide a dataset, or may hide one, for people.
    :ivar held: datasets behind the checkpoints that the plans read.
    :ivar holds_driver_rows: one of these checkpoints has rows that the driver held.
    """

    def __init__(
        self,
        checkpoints: Mapping[tuple[str, ...], _Checkpoint | None],
        rdds: dict[str, tuple[str, ...]],
        *,
        has_parts: bool = False,
    ) -> None:
        self.graph = ColumnGraph()
        self.ends: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.held: dict[PlanDataset, None] = {}
        self.holds_driver_rows = False
        self._checkpoints, self._rdds, self._has_parts = checkpoints, rdds, has_parts
        self._batches: list[tuple[list[str], list[str]]] = []
        self._scope: dict[str, str] = {}

    def visit(self, tree: Tree) -> _VisitedTree:
        """Follow the columns through a tree."""
        outputs: dict[int, _Ids] = {}
        scopes: dict[int, dict[str, str]] = {}
        for node in tree.nodes.values() if self._checkpoints else ():
            self._learn_rdd(node)
        # The plan of a query's execution is optimized, and comes before the query as a command
        # shows it.
        command, *below = [node.head for node in tree.nodes.values()][:2] or [""]
        is_logical = [command.removeprefix("Execute ")] == below
        self.graph.keep_derived(is_kept=is_logical)
        for number, node in reversed(tree.nodes.items()):
            of_children = [scopes[child] for child in node.children if scopes.get(child)]
            if node.kind == "AdaptiveSparkPlan" and not node.children:
                # Spark draws the plan of a cache within a cache with too little indentation.
                of_children = [self.graph.scope]
            self.graph.scope = (
                dict(ChainMap(*of_children)) if len(of_children) > 1 else (of_children or [{}])[0]
            )
            self.graph.read_names(node)
            if len(node.children) == 1 and "Input [" in node.body:
                outputs[node.children[0]] = self.graph.ids_of(node.listed("Input")) or outputs.get(
                    node.children[0]
                )
            outputs[number] = self._visit_node(
                node, [outputs.get(child) for child in node.children]
            )
            scopes[number] = self.graph.scope
        for number, node in tree.nodes.items():
            if (reused := REUSED.match(node.head)) is not None:
                self.graph.align(outputs[number], [outputs.get(int(reused["number"]))])
        # Other trees name the columns that this one gives.
        self._scope |= self.graph.scope
        self.graph.scope = self._scope
        name, subquery_id = tree.subquery
        visited = _VisitedTree(tree.nodes, bool(subquery_id), outputs)
        if subquery_id and visited.output:
            self.graph.names[subquery_id] = name
            self.graph.derive(subquery_id, visited.output[:1])
            # Spark merges subqueries of the same table into one that gives a struct.
            self.graph.derive_fields(subquery_id, [Value.of(visited.output[0])])
        return visited

    def link_micro_batch(self, given: Sequence[str]) -> None:
        """Derive the rows of a ``foreachBatch`` function from the micro-batch around its
        executions.

        The function's plans read an RDD, with new ids for the columns of the same names.

        :param given: ids of the columns of the micro-batch.
        """
        names = self.graph.names
        for columns, unknown in self._batches:
            if [names.get(column, "") for column in columns] == [
                names.get(column, "") for column in given
            ]:
                self.graph.align(columns, [list(given)])
                self.unknown = {reason: None for reason in self.unknown if reason not in unknown}

    def _visit_node(self, node: Node, inputs: list[_Ids]) -> _Ids:
        key = node.output_key()
        listed = self.graph.ids_of(node.listed(key)) if key else None
        visit = self._VISITS.get(node.kind) or (
            _Visitor._join if "Join" in node.kind else _Visitor._unchanged
        )
        given = visit(self, node, inputs, listed)
        output = self.graph.ids_of(node.listed(key)) if key else given
        if not node.children and output:
            self._read_datasets(node, output)
        if not (self._has_parts and node.head in LOGICAL) and not (
            output and self.graph.known.keys() >= {*output}
        ):
            self.unknown.update(dict.fromkeys(node.unknown()))
        if node.children or (output and not any(map(self._has_source, output))):
            self.ends.update(dict.fromkeys(node.reasons_without_sources()))
        return output

    def _has_source(self, column: str) -> bool:
        return column in self.graph.sources or column in self.graph.known

    def _read_datasets(self, node: Node, output: list[str]) -> None:
        relation = node.relation()
        computed = _computed_by_database(node, output)
        hidden = (
            _HIDDEN_COLUMNS if node.head.startswith("BatchScan") else node.columns_beside_files()
        )
        for column in output if node.head in CONSTANT else ():
            self.graph.derive(column, ())
        for column in output if any(node.unclear_paths()) else ():
            self.graph.hide(column)
        for dataset in (*node.sources(), *([relation] if relation else [])):
            for column in output:
                name = self.graph.names.get(column, "")
                if column in computed:
                    source = ColumnSource(dataset, computed[column])
                    self.graph.known[column] = (
                        {source: Derivation.AGGREGATION} if source.column else {}
                    )
                    if not (source.column or name == "count(*)"):
                        self.graph.hide(column)
                elif name in hidden:
                    # OpenLineage may take it for a column of the dataset.
                    self.graph.derive(column, ())
                else:
                    self.graph.sources.setdefault(column, {})[ColumnSource(dataset, name)] = None

    # -- kinds of nodes: each method takes a node, its inputs, and the output that the node lists

    def _unchanged(self, node: Node, inputs: list[_Ids], _listed: _Ids) -> _Ids:
        # Subqueries are drawn in front of the plan that holds them.
        return inputs[-1] if inputs and not node.is_code() else None

    def _first_list(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        if node.lists:
            return self.graph.ids_of(node.lists[0])
        return self._unchanged(node, inputs, listed)

    def _last_list(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        if node.lists:
            return self.graph.ids_of(node.lists[-1])
        return self._unchanged(node, inputs, listed)

    def _scan(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        """Find the execution of this application that made rows which the plan reads as they are,
        if there is one.
        """
        if listed and node.head == "Scan ExistingRDD":
            if CHECKPOINT in node.body:
                self._read_checkpoint(node, listed)
            elif " SQLExecutionRDD[" in node.body:
                self._batches.append((listed, [*node.unknown()]))
        return self._unchanged(node, inputs, listed)

    def _learn_rdd(self, node: Node) -> None:
        rdd = _RDD_OF_CHECKPOINT.search(node.body)
        if rdd is None or rdd[0] in self._rdds:
            return
        ids = tuple(self.graph.ids_of(node.listed("Output")) or ())
        if ids not in self._checkpoints:
            # Some columns of a set operation, or of distinct rows, have other ids than in its plan.
            near = [
                known
                for known in self._checkpoints
                if len(known) == len(ids) and any(map(eq, known, ids))
            ]
            ids = near[0] if len(near) == 1 else ()
        if self._checkpoints.get(ids):
            self._rdds[rdd[0]] = ids

    def _read_checkpoint(self, node: Node, listed: list[str]) -> None:
        rdd = _RDD_OF_CHECKPOINT.search(node.body)
        first = self._rdds.get(rdd[0], ()) if rdd is not None else ()
        checkpoint = self._checkpoints.get(first)
        if checkpoint is None or len(first) != len(listed):
            return
        # A scan of the plan may have the same ids, if the checkpoint has the columns of its table.
        for column, known in zip(self.graph.copied(listed), first, strict=True):
            self.graph.read_held(column, checkpoint.columns[known])
        self.held.update(dict.fromkeys(checkpoint.datasets))
        self.holds_driver_rows |= checkpoint.has_driver_rows

    def _generate(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        if not node.lists:
            return self._unchanged(node, inputs, listed)
        made = self.graph.ids_of(node.lists[-1]) or []
        self.graph.generate(split_items(node.arguments)[0], made)
        return [
            *((self.graph.ids_of(node.lists[-2]) if len(node.lists) > 1 else None) or ()),
            *made,
        ]

    def _python(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        """Derive the columns of functions in Python, which its second list names, from those of
        their calls.
        """
        given = self._unchanged(node, inputs, listed)
        if len(node.lists) < 2:
            return given
        self._derive_calls(
            zip(node.lists[0], node.lists[1], strict=False), Derivation.TRANSFORMATION
        )
        return [*given, *(self.graph.ids_of(node.lists[1]) or ())] if given else given

    def _python_aggregate(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        if len(node.lists) > 2:
            self._derive_calls(((call, call) for call in node.lists[1]), Derivation.AGGREGATION)
            for item, call in product(node.lists[-1], node.lists[1]):
                # The result of the call total(amount#2)#84 is total(amount#2)#84#85.
                result = item.removeprefix(call).partition(" ")[0] if item.startswith(call) else ""
                self.graph.derive(result.removeprefix("#"), [id_of(call)])
        return self._last_list(node, inputs, listed)

    def _derive_calls(self, calls: Iterable[tuple[str, str]], kind: Derivation) -> None:
        """Derive columns from calls of functions in Python. The id behind a call has a name that
        holds its columns.
        """
        for call, attribute in calls:
            self.graph.derive_from(id_of(attribute), call.rpartition("#")[0] or call, kind)

    def _window(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        given = self._unchanged(node, inputs, listed)
        if given and node.lists:
            return [*given, *(self.graph.ids_of(node.lists[0]) or ())]
        return given

    def _expand(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        """Derive the columns of a node that makes several rows of one from the expressions of each
        row.
        """
        output = listed or self._last_list(node, inputs, listed)
        for expressions in node.rows() if output else ():
            of_columns = expressions[-len(output or ()) :]
            for column, expression in zip(output or (), of_columns, strict=False):
                self.graph.derive_from(column, expression)
                if len(of_columns) != len(output or ()):
                    self.graph.hide(column)
        return output

    def _cached(self, node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        return self.graph.align(self._first_list(node, inputs, listed), inputs)

    def _union(self, _node: Node, inputs: list[_Ids], _listed: _Ids) -> _Ids:
        parts = [columns for columns in inputs if self.graph.counted_down.isdisjoint(columns or ())]
        return self.graph.unite(parts[0], parts[1:]) if parts and parts[0] else None

    def _loop(self, _node: Node, inputs: list[_Ids], listed: _Ids) -> _Ids:
        for column in listed or (inputs or [None])[0] or ():
            self.graph.hide(column)
        return listed

    def _join(self, node: Node, inputs: list[_Ids], _listed: _Ids) -> _Ids:
        inputs = inputs[-2:]
        if _ONE_SIDED.search(f"{node.head}\n{node.body}"):
            return inputs[0] if inputs else None
        columns: list[str] = []
        for side in inputs:
            if side is None:
                return None
            columns += side
        return columns

    _VISITS: ClassVar[dict[str, Callable[[_Visitor, Node, list[_Ids], _Ids], _Ids]]] = {
        **dict.fromkeys(
            ("Project", "LogicalRelation", "HiveTableRelation", "CTERelationDef", "CTERelationRef"),
            _first_list,
        ),
        **dict.fromkeys(("Aggregate", "TakeOrderedAndProject"), _last_list),
        **dict.fromkeys(("MapInPandas", "MapInArrow", "PythonMapInArrow"), _last_list),
        **dict.fromkeys(("FlatMapGroupsInPandas", "FlatMapCoGroupsInPandas"), _last_list),
        "Scan": _scan,
        "Generate": _generate,
        **dict.fromkeys(("BatchEvalPython", "ArrowEvalPython"), _python),
        **dict.fromkeys(("ArrowAggregatePython", "AggregateInPandas"), _python_aggregate),
        **dict.fromkeys(("Window", "WindowInPandas", "ArrowWindowPython"), _window),
        **dict.fromkeys(("Expand", MERGE_ROWS), _expand),
        "InMemoryRelation": _cached,
        "Union": _union,
        "UnionLoop": _loop,
        **dict.fromkeys(("CartesianProduct", "Except", "Intersect"), _join),
    }


class _Sinks:
    """The columns that an execution writes to each sink of its plans.

    :param trees: all trees of its plans, visited.
    """

    def __init__(
        self, visitor: _Visitor, trees: Sequence[_VisitedTree], plans: Sequence[str]
    ) -> None:
        self._visitor, self._graph = visitor, visitor.graph
        self._rows = self._hidden_query(trees)
        self._cloned: WrittenColumns = {}
        if any(CLONE in plan for plan in plans):
            sources = PlanDatasets.of(plans).sources
            self._cloned = {
                ALL_COLUMNS: {
                    ColumnSource(source, ALL_COLUMNS): Derivation.IDENTITY for source in sources
                }
            }
        self.resolved: dict[PlanDataset, frozenset[str]] = {}
        self._unclear: dict[PlanDataset, set[str]] = {}

    @property
    def complete(self) -> frozenset[PlanDataset]:
        """The sinks whose columns are all resolved."""
        return frozenset(
            sink for sink, names in self.resolved.items() if names and not self._unclear.get(sink)
        )

    def _hidden_query(self, trees: Sequence[_VisitedTree]) -> list[str] | None:
        """Return the columns of the query of a command that does not show it in its own plan, such
        as Delta's INSERT.

        The query is the only inner execution that reads datasets and writes none.
        """
        queries = [
            list(tree.rows)
            for tree in trees
            if not tree.is_subquery
            and not any(True for node in tree.nodes.values() for _ in node.sinks())
            and any(map(self._graph.origins, tree.rows))
        ]
        return queries[0] if len(queries) == 1 else None

    def written(self, tree: _VisitedTree) -> Iterator[tuple[PlanDataset, WrittenColumns]]:
        """Yield the sinks of a tree with the columns that are written to them."""
        for node in tree.nodes.values():
            output = tree.outputs.get(node.children[0]) if node.children else node.query()
            if output is None and _HIDES_ITS_QUERY.fullmatch(node.kind):
                output = self._rows
            for sink in node.sinks():
                yield sink, self._written_to(sink, node, output)

    def _written_to(
        self, sink: PlanDataset, node: Node, output: list[str] | None
    ) -> WrittenColumns:
        if CLONE in node.arguments:
            # The rest are Delta's own queries.
            self._visitor.ends = {"it clones a table, whose columns the plan does not name": None}
            return self._cloned
        written: WrittenColumns = {}
        unclear = self._unclear.setdefault(sink, set())
        for name, columns, kind in self._assignments(node, output or []):
            sources = written.setdefault(name, {})
            for column in columns:
                for source, derivation in self._graph.origins(column).items():
                    sources[source] = max(kind, derivation, sources.get(source, kind))
                if not self._graph.is_resolved(column):
                    unclear.add(name)
        self.resolved[sink] = frozenset(
            (written.keys() | self.resolved.get(sink, frozenset())) - unclear
        )
        if node.kind in _CHANGES_ROWS:
            for name, sources in written.items():
                # Those of rows that stay as they are.
                sources.pop(ColumnSource(sink, name), None)
        return {name: sources for name, sources in written.items() if sources}

    def _assignments(
        self, node: Node, output: list[str]
    ) -> Iterator[tuple[str, list[str], Derivation]]:
        """Yield the columns of a sink, each with the columns of the query from which a node makes
        it.
        """
        if node.head == MERGE:
            yield from self._merged(node.arguments)
        elif node.kind == "UpdateCommand":
            yield from self._updated(node, output)
        elif output:
            names = zip(self._target_names(node, output), output, strict=True)
            named = [
                (name, column) for name, column in names if name and name not in _HIDDEN_COLUMNS
            ]
            yield from ((name, [column], Derivation.IDENTITY) for name, column in named)

    def _updated(
        self, node: Node, columns: list[str]
    ) -> Iterator[tuple[str, list[str], Derivation]]:
        """Yield the columns that Delta's UPDATE sets: it lists an expression for each column of the
        table.
        """
        expressions = node.lists[0] if node.lists else []
        for column, text in (
            zip(columns, expressions, strict=False) if len(columns) == len(expressions) else ()
        ):
            values = self._graph.read(text)
            below = [other for other in columns_of(values) if other != column]
            yield self._graph.names.get(column, ""), below, kind_of(values)

    def _merged(self, arguments: str) -> Iterator[tuple[str, list[str], Derivation]]:
        """Yield the columns that the clauses of a MERGE set, such as ``[Update [actions: [`name` =
        label#12]]]``.
        """
        for clause in arguments.split(_ACTIONS)[1:]:
            for action in split_items(clause[: closing_bracket(clause) or 0]):
                named = _ACTION.match(action)
                if named is not None:
                    self._graph.derive_from(action, action[named.end() :])
                    yield named["column"], [action], Derivation.IDENTITY

    def _target_names(self, node: Node, output: list[str]) -> list[str]:
        """Return the names of the target's columns: those that a command lists, or those of the
        query.
        """
        if node.kind in _LISTS_ITS_COLUMNS and node.lists:
            return node.lists[-1] if len(node.lists[-1]) == len(output) else [""] * len(output)
        return [self._graph.names.get(column, "") for column in output]


def _computed_by_database(node: Node, output: Sequence[str]) -> dict[str, str]:
    """Return the columns of a scan that the database computes, each with the table's column behind
    it or an empty text.

    The database gives what it groups by, then its aggregates.
    """
    pushed = {match["kind"]: split_items(match["columns"]) for match in _PUSHED.finditer(node.body)}
    aggregates = pushed.get("Aggregates")
    if not aggregates or node.relation() is not None:
        return {}
    groups = pushed.get("GroupByExpressions", [])
    expressions = [*groups, *aggregates]
    if len(expressions) != len(output):
        expressions = [""] * len(output)
    computed = {}
    for column, expression in zip(output, expressions, strict=True):
        if expression not in groups:
            aggregate = _AGGREGATE.fullmatch(expression)
            computed[column] = aggregate["column"] if aggregate is not None else ""
    return computed
