"""The text of physical plans, as Spark's event log holds it: trees of nodes, and what each reads,
writes and changes.

Plans are in Spark's "formatted" mode: a tree of numbered nodes, then a description of each node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from airflow_provider_spark_datahub.conversion.datasets import named_paths
from airflow_provider_spark_datahub.conversion.facets.dataset import CHANGE_COLUMNS
from airflow_provider_spark_datahub.conversion.redaction import redact_text

# A node: "(1) Scan csv", then its lines. It ends at an empty line before the next node, since a text
# in an expression may have empty lines.
_NODE = re.compile(
    r"^\((?P<number>\d+)\) (?P<head>.*)\n(?P<body>(?:.+\n?|\n(?!\n|\(\d+\) |=====|Subquery:|\Z))*)",
    re.MULTILINE,
)
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
# What Spark counted in an adaptive plan, and how a cache is read.
_BEHIND_NUMBER = re.compile(
    r"(?<=\d\))(?:, (?:Statistics\(|coalesced|local|skewed)| \(columnarIn=)"
)
SUBQUERY = re.compile(r"(?P<name>(?:scalar-)?subquery)#(?P<id>\d+)")
_LISTED = re.compile(
    r"^(?P<key>Input|Output|Results|Functions|Aggregate Attributes) \[(?P<count>\d+)\]: ",
    re.MULTILINE,
)
# The delay of an event-time column's watermark stands behind its id.
ATTRIBUTE = re.compile(r"(?P<name>.+)#(?P<id>\d+)L?(?:-T\d+ms)?", re.DOTALL)
# The id behind the comma is that of the subquery's plan.
_PLAN_ID_OF_SUBQUERY = re.compile(
    r"\bSubquery (?P<reference>(?:scalar-)?subquery#\d+), \[id=#\d+\]"
)
_RELATION = re.compile(r"\bRelation \[(?P<columns>[^\[\]]*)\] \w")
_KEEP = "keep("
_OPEN, _CLOSE = "([{", ")]}"
_PUNCTUATION = re.compile(rf"[{re.escape(_OPEN + _CLOSE)}]|, ")

# -- files and tables in nodes

# Engines have names of their own for scans: "GpuScan parquet", "CometScan [native] parquet".
_FILE_SCAN = re.compile(r"\w+(?: \[\w+\])? \w+(?: (?P<table>[\w.]+))?")
_LOCATION = re.compile(r"^Location: (?P<index>\w+) ?\[(?P<paths>.*)\]$", re.MULTILINE)
_TABLE_SCAN = re.compile(
    r"(?:\w{0,40}Scan\w{0,40} hive|\w{0,40}BatchScan\w{0,40}|Scan JDBC v1 Relation from v2 scan) (?P<table>[\w.]+)"
)
# The origin of a cached relation is on one line, which Spark abbreviates if it is long.
_CACHED_SCAN = re.compile(
    r"FileScan \w+(?: (?P<table>[\w.]+))?\[[^\[\]]*\](?:(?!FileScan ).)*?"
    r" Location: \w+\(\d+ paths\)\[(?P<paths>[^\[\]]*)\], "
)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.*")
_TOPICS = re.compile(
    r"Scan KafkaRelation\(strategy=Subscribe\[(?P<topics>[\w.-]+(?:, [\w.-]+)*)\],"
)
# What Spark knows of the file behind a row (``_metadata.file_path``): a scan gives it, but the
# files do not have it.
_FILE_METADATA = frozenset(
    {
        "file_path",
        "file_name",
        "file_size",
        "file_block_start",
        "file_block_length",
        "file_modification_time",
    }
)
_READ_SCHEMA = re.compile(r"^ReadSchema: struct<(?P<fields>.*)>$", re.MULTILINE)
_MORE_PATHS = re.compile(r"\.\.\. (?P<number>\d+) entries")
# A path may contain a comma.
_BETWEEN_PATHS = re.compile(r", (?=[A-Za-z][A-Za-z0-9+.-]{0,20}:/|\.\.\.)")
# Reads of Delta's transaction log are not reads of data.
_DELTA_LOG = "/_delta_log"
_TABLE_STATE = re.compile(r"Delta Table State [^/\n]{1,40} - (?P<path>\S+)/_delta_log")

_QUOTED = r"(?P<table>`[^`]+`(?:\.`[^`]+`){1,2})"
_PATH = r"(?P<path>[A-Za-z][A-Za-z0-9+.-]*:/[^,\]]*)"
_PLAIN_PATH = r"(?P<path>(?:[A-Za-z][A-Za-z0-9+.-]*:)?/[^,`\]]*)"
_DELTA_TABLE = rf"\bDeltaTableV2\([^,(]*,{_PLAIN_PATH}"
KAFKA = "kafka"
"""Platform of topics: their names do not depend on the brokers."""
JDBC_CATALOG = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
"""Spark's catalogue of the tables of a database."""
BIGQUERY = "bigquery"
"""Platform of the tables that BigQuery's connector writes. It loads files into them, which it then
removes.
"""
_STAGED = "/.spark-bigquery-"
CHECKPOINT = "heckpoint at "
"""Part of the call site of ``checkpoint`` and ``localCheckpoint``, which their RDDs have as name.
"""
_CODE = re.compile(
    r"(?:Python)?(?:Map|FlatMap)(?:CoGroups|Groups)?(?:In(?:Pandas|Arrow)\w*)|(?:Map|FlatMap)(?:Elements|Partitions|Groups\w*)"
    r"|TransformWithState\w*|\w+EvalPythonUDTF"
)
MERGE = "MergeIntoCommand"
CLONE = "CloneTableCommand"
"""Delta's clone of a table, in the arguments of a node."""
# How the arguments of each writing node name its target; the first match counts.
_TARGETS = {
    "InsertIntoHadoopFsRelationCommand": (
        rf"\A{_PATH}, .*, (?:Append|Overwrite|ErrorIfExists|Ignore), {_QUOTED}",
        rf"\A{_PATH}",
    ),
    **dict.fromkeys(
        ("InsertIntoDataSourceDirCommand", "InsertIntoHiveDirCommand"),
        (r"\bStorage\(Location: (?P<path>[^,()]+)[,)]",),
    ),
    "CreateDataSourceTableAsSelectCommand": (_QUOTED,),
    "CreateHiveTableAsSelectCommand": (
        _QUOTED,
        r"\[Database: (?P<database>\w+), TableName: (?P<name>\w+)\]",
    ),
    "InsertIntoHiveTable": (_QUOTED,),
    "SaveAsV1TableCommand": (_QUOTED,),
    "SaveIntoDataSourceCommand": tuple(
        rf"\A(?=[^\s,]*\.{provider})[^\s,]*, \[(?:[^\]]*, )?{option}=(?P<{kind}>[^,\]]+)"
        for provider, option, kind in (
            (r"delta\.", "path", "path"),
            ("KafkaSourceProvider@", "topic", "topic"),
            ("JdbcRelationProvider@", "dbtable", "relation"),
            ("BigQueryRelationProvider@", "(?:table|path)", "bigquery"),
        )
    ),
    # A table of a metastore has a SerDe, too.
    "MergeIntoCommand": (rf"(?:{_QUOTED}(?:, [\w.]+)?, )?Delta\[version=\d+, {_PATH}\]",),
    "UpdateCommand": (
        rf"Delta\[version=\d+, {_PATH}\], {_QUOTED}",
        rf"Delta\[version=\d+, {_PATH}\]",
    ),
    "DeleteCommand": (_QUOTED,),
    **dict.fromkeys(
        (
            "AppendData",
            "OverwriteByExpression",
            "OverwritePartitionsDynamic",
            "ReplaceData",
            "WriteDelta",
        ),
        (r"\bIcebergWrite\(table=(?P<table>[\w.]+),",),
    ),
    **dict.fromkeys(
        (
            f"{atomic}{verb}TableAsSelect"
            for atomic in ("", "Atomic")
            for verb in ("Create", "Replace")
        ),
        (
            r"(?<![\w.$])(?P<catalog>[\w.$]+(?:@\w+)?)(?:\(\w+\))?, (?P<table>[\w.]+),",
            rf"\.DeltaCatalog@\w+, delta\.`{_PLAIN_PATH}`,",
        ),
    ),
    **dict.fromkeys(
        ("AppendDataExecV1", "OverwriteByExpressionExecV1"),
        (
            rf"{_DELTA_TABLE},Some\(CatalogTable\(\n(?:.+\n)??Database: (?P<database>.+)\nTable: (?P<name>.+)\n",
            _DELTA_TABLE,
            r"^JDBCTable\((?P<in_database>[\w.]+),",
        ),
    ),
    "LoadDataCommand": (_QUOTED,),
    "CreateDeltaTableCommand": (rf"\b{CLONE} \S+, {_QUOTED}, {_PATH}",),
}
_SINKS = {kind: tuple(map(re.compile, patterns)) for kind, patterns in _TARGETS.items()}
_WRITERS = re.compile("|".join(sorted(_SINKS, key=len, reverse=True)))
_COMMAND = re.compile(
    r"Execute |\w*(?:WriteTo|WriteInto|DeleteFrom|UpdateTable|MergeInto)\w*|Call\b"
)
# Commands that give no rows to a dataset: they define, describe or tidy up.
_HARMLESS = re.compile(
    r"CacheTableAsSelect|(?!\w*AsSelect)(?:Add|Alter|Analyze|Cache|Clear|Comment|Convert|Create|DeltaGenerate|Describe"
    r"|Drop|Explain|Invalidate|List|Optimize|Recover|Refresh|Rename|Repair|Replace(?!Data)|AtomicReplaceTable|Reset|Restore"
    r"|Set|Show|StreamingExplain|Truncate|Uncache|Vacuum)(?:[A-Z]\w*)?"
)
# Writes without rows, and those whose target is named by a streaming query or by the plan around.
_NAMED_ELSEWHERE = re.compile(
    rf"MicroBatchWrite\[|\S*\bStagedDeltaTableV2@|(?:\S+, )?\S*\bNoopWrite\b|\S*{re.escape(_STAGED)}|`[^`]+`, \w+, "
)
# What Iceberg's procedures that add files to a table read, and the columns of what they return.
_ADDS_FILES = re.compile(
    r"\borg\.apache\.iceberg\.spark\.SparkTableUtil\$|\b(?:added|imported|migrated)_files_count#"
)
# What may stand above a command, and what else may be the root of a query.
_AROUND_COMMAND = re.compile(r"AdaptiveSparkPlan|CommandResult|ResultQueryStage|\w*Columnar\w*")
_OPERATOR = re.compile(
    r"AdaptiveSparkPlan|Aggregate|AppendColumns|Cartesian|Coalesce|CoGroup|CollectTail|Columnar|CommandResult|Deduplicate"
    r"|Exchange|Expand|Filter|FlatMap|FromObject|Generate|Join|Limit|MapElements|MapGroups|MapIn|MapPartitions|Metrics"
    r"|Project|QueryStage|Rebalance|Repartition|Sample|Scan|Sequence|ShuffleRead|Sort|StateStore|Subquery|ToObject"
    r"|TransformWithState|Union|Watermark|Window|\wEval"
)
CONSTANT = frozenset(
    {"LocalTableScan", "Range", "OneRowRelation", "Scan OneRowRelation", "EmptyRelation"}
)
# Leaves without rows that are stored, and those whose rows are another node's.
REUSED = re.compile(r"Reused\w+ \[Reuses operator id: (?P<number>\d+)\]")
_NO_DATASET = (CONSTANT - {"LocalTableScan"}) | {
    "ReusedExchange",
    "ReusedSubquery",
    "SubqueryAdaptiveBroadcast",
    "CTERelationRef",
    "UnionLoopRef",
    "AdaptiveSparkPlan",
    "Scan ExistingRDD mergeMaterializedSource",
}
# Rows of Delta's transaction log, and the initial state of a stateful operator that has none.
_READS_NO_DATA = re.compile(
    r"^Scan ExistingRDD Delta |^Location: \w+ ?\[[^,\]]*/_delta_log\b|^Arguments: LocalRelation <empty>",
    re.MULTILINE,
)
# Rows of RDDs, and those of a streaming query, whose progress names the source.
_READS_ROWS = re.compile(r"Scan(?: ExistingRDD\b.*)?|MicroBatchScan\b.*")
LOGICAL = frozenset(
    {"LogicalRelation", "HiveTableRelation", "DataSourceV2Relation", "LocalRelation", "LogicalRDD"}
)
# An overwrite of what has no partitions.
_OVERWRITTEN = re.compile(r"[^,\[\]]+, false, [\w.$@]+, \[[^\]]*\], Overwrite\b")
_OF_PART = re.compile(r"replace(?:Where|On|Using)\b|partitionOverwriteMode|\.\.\.", re.IGNORECASE)
_JDBC = "JDBCRelation("
_READS_DATABASE = re.compile(r"\w+ JDBC|LogicalRelation")
_WITH = re.compile(r"\(?\s*WITH\b", re.IGNORECASE)
# A scan of a Delta table's changes names its columns and its transaction log.
_CHANGES = re.compile(
    r"Scan DeltaCDFRelation\([^,]*?\bSnapshot\(path=(?P<path>[^\s(]+)/_delta_log,"
)
_CHANGED_FILES = re.compile(
    r"^Location: (?:CdcAdd|TahoeChange|TahoeRemove)FileIndex\b", re.MULTILINE
)
_LOADED = re.compile(r".*`, (?P<path>[^,]+), (?P<local>true|false), (?:true|false)(?:, .*)?")
# A path that LOAD DATA finds in the folder in which the driver was started.
RELATIVE = re.compile(r"file:(?=[^/])")
_RENAMED = re.compile(
    r"(?P<old>`[^`]+`(?:\.`[^`]+`){1,2}), (?P<new>`[^`]+`(?:\.`[^`]+`){1,2}), false"
)
_DROPPED = re.compile(r"V2SessionCatalog\(spark_catalog\), (?P<table>[\w.]+),.*")
_CREATE_TABLE = frozenset({"CreateDataSourceTableCommand", "CreateTableCommand"})
_CREATED = re.compile(_QUOTED)
_SESSION_CATALOG = "spark_catalog."


@dataclass(frozen=True, slots=True)
class PlanDataset:
    """A file or table that a plan names.

    :param path: a location, with its scheme if the plan has it; empty if the plan names only a
        table.
    :param table: ``database.table``, after the catalogue unless it is the session's; empty for
        plain files.
    :param catalog_class: the Java class of the catalogue, and ``@`` with its instance, if the plan
        names these instead.
    :param relation: a table of a database, or a query in brackets that the database runs; plans
        hide the address.
    :param topic: a topic of Kafka.
    """

    path: str = ""
    table: str = ""
    catalog_class: str = field(default="", compare=False)
    relation: str = ""
    topic: str = ""


class _TableChange(NamedTuple):
    """A table of the session's catalogue that a node creates without data, drops or renames.

    :param previous: its name before it was renamed.
    """

    kind: Literal["CREATE", "DROP", "RENAME"]
    table: str
    previous: str = ""


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
    def writer(self) -> str:
        """The writing command that it is, without what an engine adds to its name; empty if none."""
        command = _WRITERS.search(self.kind)
        return command[0] if command is not None else ""

    @cached_property
    def lists(self) -> list[list[str]]:
        """The lists among its arguments, each as its items."""
        items = split_items(self.arguments)
        return [split_items(item[1:-1]) for item in items if item[:1] + item[-1:] == "[]"]

    def listed(self, key: str) -> list[str] | None:
        """Return the items of a line such as ``Output [2]: [a#1, b#2]``; ``None`` if there are not
        as many as it says.

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
        """Yield the expressions of rows that the node makes of one: by the clauses of a MERGE, or
        for groupings.
        """
        *lists, output = self.lists or [[]]
        if self.head == MERGE_ROWS:
            for row in (item for items in lists for item in items if item.startswith(_KEEP)):
                expressions = split_items(row[len(_KEEP) : -1])
                # Before the columns: the condition, and in later versions of Spark what happens to
                # the row.
                if len(expressions) - len(output) in (1, 2):
                    yield expressions
        elif lists:
            yield from (split_items(projection[1:-1]) for projection in lists[0])

    def query(self) -> list[str] | None:
        """Return the columns of a query that a command shows as one of its arguments, by the first
        line of its plan.
        """
        relation = _RELATION.search(self.arguments)
        if relation is not None:
            return ids_of(relation["columns"].split(","))
        return next((ids for items in reversed(self.lists) if (ids := ids_of(items))), None)

    # -- files and tables

    def sources(self) -> Iterator[PlanDataset]:
        """Yield the datasets that the node reads."""
        head, body = self.head, self.body
        table_scan = _TABLE_SCAN.fullmatch(head)
        if table_scan is not None and "." in table_scan["table"]:
            yield PlanDataset(table=_unquoted(table_scan["table"]))
            return
        changes = _CHANGES.match(head)
        if changes is not None:
            yield PlanDataset(changes["path"])
        topics = _TOPICS.match(head)
        if topics is not None:
            yield from (PlanDataset(topic=topic) for topic in topics["topics"].split(", "))
        file_scan, location = _FILE_SCAN.fullmatch(head), _LOCATION.search(body)
        if file_scan is not None and location is not None:
            yield from _paths(location["paths"], file_scan["table"])
        loaded = _LOADED.fullmatch(body.strip()) if head == "LoadDataCommand" else None
        if loaded is not None:
            path = loaded["path"]
            if ":/" in path or path.startswith("/") or loaded["local"] == "true":
                yield PlanDataset(
                    f"file:{path}" if loaded["local"] == "true" and ":/" not in path else path
                )
        for cached in _CACHED_SCAN.finditer(body):
            yield from _paths(cached["paths"], cached["table"])

    def sinks(self) -> Iterator[PlanDataset]:
        """Yield the dataset that the node writes, if it writes one and names it."""
        # A table of Spark's catalogue is described in lines of their own.
        arguments = (
            self.body.partition("Arguments: ")[2]
            if self.writer.endswith("ExecV1")
            else self.arguments
        )
        patterns = _SINKS.get(self.writer, ())
        found = next((found for pattern in patterns if (found := pattern.search(arguments))), None)
        named = (
            {name: value or "" for name, value in found.groupdict().items()}
            if found is not None
            else {}
        )
        path, table, catalog = (
            named.get("path", ""),
            named.get("table", ""),
            named.get("catalog", ""),
        )
        if named.get("database"):
            table = f"{named['database']}.{named['name']}"
        if named.get("in_database"):
            table, catalog = named["in_database"], JDBC_CATALOG
        if named.get("bigquery"):
            table, catalog = _table_of_bigquery(named["bigquery"], arguments), BIGQUERY
        if found is not None and "..." not in path and _STAGED not in path:
            yield PlanDataset(
                path, _unquoted(table), catalog, named.get("relation", ""), named.get("topic", "")
            )

    def relation(self) -> PlanDataset | None:
        """Return what the node reads through JDBC."""
        text = f"{self.head} {self.arguments}" if _READS_DATABASE.match(self.head) else ""
        begin = text.find(_JDBC) + len(_JDBC)
        depth, query = 1, begin
        for position in range(begin, len(text)) if _JDBC in text else ():
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            if depth == 2 and text[position] == "(":
                query = position
            if depth == 0:
                prepared, rest = text[begin:query], text[query:position].strip()
                # Spark puts the option prepareQuery in front of the query.
                is_with = _WITH.match(prepared) is not None
                return PlanDataset(
                    relation=f"({prepared}SELECT * FROM {rest}) q"
                    if is_with
                    else f"{prepared}{rest}".strip()
                )
        return None

    def columns_beside_files(self) -> frozenset[str]:
        """Return the names of columns that the node may give of the files it reads, without the
        files having them.
        """
        if _CHANGES.match(self.head) or _CHANGED_FILES.search(self.body):
            return CHANGE_COLUMNS
        schema = _READ_SCHEMA.search(self.body)
        if schema is None:
            return frozenset()
        return _FILE_METADATA - {field.partition(":")[0] for field in schema["fields"].split(",")}

    @property
    def is_command(self) -> bool:
        """Whether it does something else than make rows, as its name says."""
        is_named = _COMMAND.match(self.head) or _HARMLESS.fullmatch(self.kind)
        return is_named is not None or bool(self.writer)

    def hides_target(self) -> bool:
        """Return whether the node is a command that does not show what it changes."""
        if not self.is_command or any(self.sinks()) or self.change() is not None:
            return False
        is_named_elsewhere = _NAMED_ELSEWHERE.match(self.arguments) is not None
        return not (is_named_elsewhere or _HARMLESS.fullmatch(self.kind))

    def is_known(self) -> bool:
        """Return whether it is clear what the node reads or changes, or that it names nothing."""
        if self.is_command:
            return not self.hides_target()
        if self.children:
            return _OPERATOR.search(self.kind) is not None
        if _ADDS_FILES.search(self.body):
            return False
        if self.reads_nothing() or _READS_ROWS.fullmatch(self.head):
            return True
        is_source = any(self.sources()) or self.relation() is not None
        return is_source or any(self.reasons_without_sources())

    def reads_nothing(self) -> bool:
        """Return whether the node is a leaf of rows that are stored nowhere, or another node's."""
        is_without_dataset = self.head in _NO_DATASET or REUSED.match(self.head) is not None
        return is_without_dataset or _READS_NO_DATA.search(f"{self.head}\n{self.body}") is not None

    def unknown(self) -> Iterator[str]:
        """Yield how the node hides a dataset, or may hide one, for people."""
        named = (*self.sinks(), *filter(None, [self.relation()]))
        if relations := [dataset.relation for dataset in named if dataset.relation]:
            yield f"the address of the database is hidden (JDBCRelation({relations[0]}))"
        elif self.children or self.is_command or self.reads_nothing():
            return
        elif sources := list(self.sources()):
            yield from self.unclear_paths() if not any(source.table for source in sources) else ()
        else:
            head = redact_text(self.head)
            yield from [*self.reasons_without_sources()] or [
                f"the plan does not show what it reads ({head})"
            ]

    def unclear_paths(self) -> Iterator[str]:
        """Yield messages for people about inputs that the node does not name, since Spark omitted
        their paths.
        """
        location = _LOCATION.search(self.body) if _FILE_SCAN.fullmatch(self.head) else None
        if location is not None:
            first, *others = _BETWEEN_PATHS.split(location["paths"])
            more = _MORE_PATHS.fullmatch(others[-1]) if others else None
            if more is not None and _DELTA_LOG not in first:
                yield f"{more['number']} more beside {first} (raise spark.sql.maxMetadataStringLength)"

    def is_code(self) -> bool:
        """Return whether the job's own code makes the rows that the node gives."""
        return _CODE.fullmatch(self.head) is not None

    def reasons_without_sources(self) -> Iterator[str]:
        """Yield why the node does not show where its rows come from."""
        head = redact_text(self.head)
        if self.is_code():
            yield f"the job's own code makes the rows ({head})"
        elif self.kind == "UnionLoop":
            yield "the query is recursive (UnionLoop)"
        elif head == "LocalTableScan":
            yield "the driver held the rows (LocalTableScan)"
        elif head == "Scan ExistingRDD" and CHECKPOINT in self.body:
            yield "the rows are those of a checkpoint that the log does not show, or of one of several"
        elif head == "Scan ExistingRDD" and " SQLExecutionRDD[" not in self.body:
            yield "the rows are those of an RDD, or those that the driver held (Scan ExistingRDD)"
        elif head.startswith(("Scan ", "BatchScan ")) and not head.startswith("Scan ExistingRDD"):
            yield f"the source has no name of a dataset ({head})"

    def replaces_all(self) -> bool:
        """Return whether the node leaves nothing of what its target held: files, or a table that is
        replaced.

        A table may have earlier versions, which others read. In Delta, options may name a part of
        it.
        """
        is_whole = self.writer in ("AtomicReplaceTableAsSelect", "ReplaceTableAsSelect")
        if self.writer == "InsertIntoHadoopFsRelationCommand":
            is_whole = _OVERWRITTEN.match(self.arguments) is not None
        return is_whole and _OF_PART.search(self.arguments) is None

    def change(self) -> _TableChange | None:
        """Return the change of a table that the node makes, if it makes one."""
        if self.head == "AlterTableRenameCommand" and (found := _RENAMED.fullmatch(self.arguments)):
            return _TableChange("RENAME", _unquoted(found["new"]), _unquoted(found["old"]))
        if self.head in _CREATE_TABLE and (found := _CREATED.match(self.arguments)):
            return _TableChange("CREATE", _unquoted(found["table"]))
        if self.head == "DropTable" and (found := _DROPPED.fullmatch(self.arguments)):
            return _TableChange("DROP", _unquoted(found["table"]))
        return None


class Tree(NamedTuple):
    """A plan or a subquery of it.

    :param nodes: by number; parents come before their children.
    :param subquery: the name and id by which expressions refer to the subquery; empty for a plan.
    """

    nodes: dict[int, Node]
    subquery: tuple[str, str]

    def unknown_nodes(self) -> Iterator[str]:
        """Yield the heads of nodes that may read or change what they do not show."""
        # A command is drawn twice: as what Spark executes, and as the query names it.
        nodes = self.nodes.values()
        shown_kinds = {node.kind for node in nodes if node.is_command and node.is_known()}
        commands, logical = self._places_of_commands(), self._logical_places()
        for number, node in self.nodes.items():
            is_command = number in commands or node.is_command
            is_leaf = not node.children and number not in logical
            is_judged = (is_command or is_leaf) and node.kind not in shown_kinds
            if is_judged and not node.is_known():
                yield redact_text(node.head.partition("\n")[0])

    def _logical_places(self) -> set[int]:
        """Return the numbers of the nodes of a command's query, which another plan executes."""
        places: set[int] = set()
        for number, node in self.nodes.items():
            if number in places or self._is_executed(node):
                places.update(node.children)
        return places

    def _is_executed(self, node: Node) -> bool:
        return any(node.head == f"Execute {self.nodes[child].head}" for child in node.children)

    def _places_of_commands(self) -> set[int]:
        """Return the numbers of the nodes where commands stand: the root, and below what wraps it."""
        places = set() if self.subquery[0] else {*list(self.nodes)[:1]}
        for number, node in self.nodes.items():
            is_around = number in places and _AROUND_COMMAND.fullmatch(node.kind) is not None
            if is_around or node.kind == "CommandResult":
                places.update(node.children)
        return places


class Plan(NamedTuple):
    """A plan, parsed.

    :param nodes: all nodes that it describes, in the order of the text.
    :param trees: its subqueries, then the plan itself.
    :param is_whole: it describes each node of its trees: neither Spark nor the reader cut it off.
    """

    nodes: tuple[Node, ...]
    trees: tuple[Tree, ...]
    is_whole: bool

    @classmethod
    def of(cls, text: str) -> Plan:
        """Return the plan of a text."""
        return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else _parsed(text)

    def unknown_nodes(self) -> tuple[str, ...]:
        """Return the nodes that may read or change what they do not show, as Spark prints them.

        Scans that the reader knows are not among them, even if they hide the name of a dataset:
        see :meth:`Node.unknown`.
        """
        unknown = dict.fromkeys(head for tree in self.trees for head in tree.unknown_nodes())
        return tuple(unknown)

    @classmethod
    def queries_with_parts(cls, text: str) -> Iterator[str]:
        """Yield the queries that a database runs for Spark, and that name parts of themselves by
        WITH.
        """
        for node in cls.of(text).nodes if _JDBC in text else ():
            relation = node.relation()
            if relation is not None and _WITH.match(relation.relation):
                yield relation.relation


def nodes_of(plans: Iterable[str]) -> Iterator[Node]:
    """Yield the nodes of plans."""
    for plan in plans:
        yield from Plan.of(plan).nodes


def _parsed(text: str) -> Plan:
    text = _PLAN_ID_OF_SUBQUERY.sub(lambda match: match["reference"], text)
    nodes = tuple(
        Node(int(node["number"]), _CODEGEN.sub("", node["head"]).strip(), node["body"])
        for node in _NODE.finditer(text)
    )
    described = {node.number: node for node in nodes}
    trees: list[Tree] = []
    drawn: set[int] = set()
    for match in _TREE.finditer(text):
        host = SUBQUERY.search(match["host"] or "")
        subquery = (host["name"], host["id"]) if host else ("", "")
        trees.append(Tree(_nodes(match["lines"], described), subquery))
        drawn.update(filter(None, map(_number_in, match["lines"].splitlines())))
    is_whole = bool(trees) and drawn <= described.keys()
    return Plan(nodes, tuple(reversed(trees)), is_whole)


# All readers of an execution's plans come one after the other.
_remembered = lru_cache(maxsize=16)(_parsed)
_LONGEST_REMEMBERED = 1_000_000


def _number_in(line: str) -> int:
    """Return the number of the node that a line of a tree draws; 0 if it draws none."""
    found = _TREE_LINE.fullmatch(_BEHIND_NUMBER.split(line, maxsplit=1)[0])
    return int(found["number"]) if found is not None else 0


def _nodes(lines: str, described: dict[int, Node]) -> dict[int, Node]:
    above: list[tuple[int, int]] = []
    children: dict[int, dict[int, None]] = {}
    begun = 0
    for line in lines.splitlines():
        number = _number_in(line)
        indent = len(line) - len(line.lstrip(" :+-"))
        if number not in described:
            begun = indent or begun
            continue
        # The name of a node may take several lines, such as that of a scan with its table's
        # description.
        depth = indent or begun
        begun = 0
        while above and above[-1][0] >= depth:
            above.pop()
        if above:
            children[above[-1][1]][number] = None
        above.append((depth, number))
        # A cache that is read twice is drawn twice, with the same numbers: it comes after all nodes
        # above it.
        children[number] = children.pop(number, {})
    return {
        number: replace(described[number], children=tuple(below))
        for number, below in children.items()
    }


def closing_bracket(text: str, begin: int = 0) -> int | None:
    """Return the place of the bracket that closes the one before ``begin``; ``None`` if there is
    none.
    """
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
    """Return the id of a column, such as ``12`` of ``amount#12``; empty if the item is not a
    column.
    """
    named = ATTRIBUTE.fullmatch(item)
    return named["id"] if named else ""


# -- the files and tables of an execution


class PlanDatasets(NamedTuple):
    """The distinct datasets that an execution reads and writes, in the order of its plans."""

    sources: tuple[PlanDataset, ...]
    sinks: tuple[PlanDataset, ...]

    @property
    def all(self) -> tuple[PlanDataset, ...]:
        """Sources and sinks."""
        return (*self.sources, *self.sinks)

    @classmethod
    def of(cls, plans: Iterable[str]) -> PlanDatasets:
        """Return the datasets that the plans of an execution and its parts name.

        Names that Spark abbreviated, such as long lists and paths, are left out.

        :param plans: texts of physical plans in Spark's "formatted" mode, as event logs hold them.
        """
        sources: dict[PlanDataset, None] = {}
        sinks: dict[PlanDataset, None] = {}
        is_clone, logs = False, dict[str, None]()
        for node in nodes_of(plans):
            sources.update(dict.fromkeys(node.sources()))
            sinks.update(dict.fromkeys(node.sinks()))
            logs.update(dict.fromkeys(found["path"] for found in _TABLE_STATE.finditer(node.head)))
            is_clone = is_clone or CLONE in node.arguments
        if is_clone:
            # Delta reads the transaction logs of two tables for a clone: the source's and the
            # clone's own.
            cloned = [path for path in logs if all(path != sink.path for sink in sinks)]
            sources.update({PlanDataset(cloned[0]): None} if len(cloned) == 1 else {})
        return cls(tuple(sources), tuple(_joined(sinks)))


def _paths(paths: str, table: str | None) -> Iterator[PlanDataset]:
    entries = _BETWEEN_PATHS.split(paths)
    listed = [path for path in entries if not path.startswith("...") and _DELTA_LOG not in path]
    if all(_URI.fullmatch(path) and "..." not in path for path in listed):
        for path in (
            listed if table else named_paths(listed, are_all=not entries[-1].startswith("..."))
        ):
            yield PlanDataset(path, _unquoted(table or ""))


def _table_of_bigquery(table: str, options: str) -> str:
    """Return a table with its dataset and project, as far as the options of a write name them."""
    name = table.partition("$")[0].replace(":", ".")
    for option in ("dataset", "project")[name.count(".") :]:
        found = re.search(rf"[\[ ]{option}=([^,\]]+)", options)
        name = f"{found[1]}.{name}" if found is not None else name
    return name


def _unquoted(table: str) -> str:
    return table.replace("`", "").removeprefix(_SESSION_CATALOG)


def _joined(sinks: Iterable[PlanDataset]) -> list[PlanDataset]:
    """Join the table and the path of a CREATE TABLE AS SELECT: the outer execution names one, the
    inner the other.
    """
    listed = list(sinks)
    tables = {sink.table for sink in listed if sink.table}
    paths = {sink.path for sink in listed if sink.path}
    if not tables or all(sink.table for sink in listed if sink.path):
        return listed
    if len(tables) == len(paths) == 1:
        return [PlanDataset(paths.pop(), tables.pop())]
    places = {table: [path for path in paths if _is_place_of(table, path)] for table in tables}
    in_warehouse = {table: found[0] for table, found in places.items() if len(found) == 1}
    plain = [sink for sink in listed if not sink.table and sink.path not in in_warehouse.values()]
    named = [replace(sink, path=in_warehouse.get(sink.table, "")) for sink in listed if sink.table]
    # If a table has no path, it is not clear whether it has one of the others.
    return list(dict.fromkeys([*named, *(plain if len(in_warehouse) == len(tables) else ())]))


def _is_place_of(table: str, path: str) -> bool:
    """Return whether a path may be where a warehouse puts a table."""
    return bool(table.partition(".")[2]) and path.rstrip("/").lower().endswith(
        place_of(table).lower()
    )


def place_of(table: str) -> str:
    """Return the end of the path where a warehouse puts a table of the session's catalogue."""
    database, _, name = table.partition(".")
    return f"/{name}" if database == "default" else f"/{database}.db/{name}"
