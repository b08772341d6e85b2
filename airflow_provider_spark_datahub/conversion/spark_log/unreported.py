"""The files and tables that the text of a physical plan names as what is read and written.

Which SQL executions OpenLineage lost: those that Spark's event log knows, and no event.

Tables that OpenLineage does not name, as it cannot name those of every catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_spark_datahub.conversion.datasets import table_and_selector
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.runs.fold import Application, RunState
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication, SqlExecution

# A node of a plan in Spark's "formatted" mode: "(1) Scan csv", then its lines. Nodes are apart by an empty line.
_NODE = re.compile(r"\(\d+\) (?P<head>.*)\n(?P<body>(?:.+\n?)*)")
_CODEGEN = re.compile(r"\s*\[codegen id : \d+\]\s*$")
_FILE_SCAN = re.compile(r"Scan \w+(?: (?P<table>[\w.]+))?")
_LOCATION = re.compile(r"^Location: (?P<index>\w+) ?\[(?P<paths>.*)\]$", re.MULTILINE)
_TABLE_SCAN = re.compile(r"(?:Scan hive|BatchScan) (?P<table>[\w.]+)")
# What a cached relation was made from stands in one line; Spark abbreviates it where it is long.
_CACHED_SCAN = re.compile(
    r"FileScan \w+(?: (?P<table>[\w.]+))?\[[^\]]*\].*? Location: (?P<index>\w+)\(\d+ paths\)\[(?P<paths>[^\]]*)\], "
)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.*")
# Delta's own books are no data that somebody reads.
_LOG = "/_delta_log"

_QUOTED = r"(?P<table>`[^`]+`(?:\.`[^`]+`){1,2})"
_PATH = r"(?P<path>[A-Za-z][A-Za-z0-9+.-]*:/[^,\]]*)"
# What the arguments of a node that writes say of its target; the first that matches counts.
_SINKS = {
    "InsertIntoHadoopFsRelationCommand": (rf"{_PATH}, .*, (?:Append|Overwrite|ErrorIfExists|Ignore), {_QUOTED}", _PATH),
    "InsertIntoDataSourceDirCommand": (r"Storage\(Location: (?P<path>[^,)]+)\)",),
    "CreateDataSourceTableAsSelectCommand": (_QUOTED,),
    "CreateHiveTableAsSelectCommand": (_QUOTED, r"\[Database: (?P<database>\w+), TableName: (?P<name>\w+)\]"),
    "InsertIntoHiveTable": (_QUOTED,),
    "SaveAsV1TableCommand": (_QUOTED,),
    "SaveIntoDataSourceCommand": (r"\S*\.delta\.\S+, \[(?:[^\]]*, )?path=(?P<path>[^,\]]+)",),
    "MergeIntoCommand": (rf"Delta\[version=\d+, {_PATH}\]",),
    "UpdateCommand": (rf"Delta\[version=\d+, {_PATH}\], {_QUOTED}", rf"Delta\[version=\d+, {_PATH}\]"),
    "DeleteCommand": (_QUOTED,),
    **dict.fromkeys(
        ("AppendData", "OverwriteByExpression", "OverwritePartitionsDynamic", "ReplaceData", "WriteDelta"),
        (r"\bIcebergWrite\(table=(?P<table>[\w.]+),",),
    ),
    **dict.fromkeys(
        (f"{atomic}{verb}TableAsSelect" for atomic in ("", "Atomic") for verb in ("Create", "Replace")),
        (r"[\w.$]+(?:@\w+|\(\w+\)), (?P<table>[\w.]+),",),
    ),
}
_SESSION_CATALOG = "spark_catalog."


@dataclass(frozen=True, slots=True)
class PlanDataset:
    """What a plan names.

    :param path: a location, with its scheme where the plan has it; empty where only a table is named.
    :param table: ``database.table``, with the catalogue in front where it is not the session's; empty for plain files.
    """

    path: str = ""
    table: str = ""


@dataclass(frozen=True, slots=True)
class PlanDatasets:
    """What one execution reads and writes, as far as its plans name it; each once, in the order of the plans."""

    sources: tuple[PlanDataset, ...]
    sinks: tuple[PlanDataset, ...]


def datasets_of_plans(plans: Iterable[str]) -> PlanDatasets:
    """What the plans of an execution and of its parts name.

    What is abbreviated, as long lists and paths are, is not named.

    :param plans: texts of physical plans in Spark's "formatted" mode, which event logs hold.
    """
    sources: dict[PlanDataset, None] = {}
    sinks: dict[PlanDataset, None] = {}
    for plan in plans:
        for node in _NODE.finditer(plan):
            head, body = _CODEGEN.sub("", node["head"]).strip(), node["body"]
            sources.update(dict.fromkeys(_sources(head, body)))
            sinks.update(dict.fromkeys(_sinks(head, body)))
    return PlanDatasets(tuple(sources), tuple(_joined(sinks)))


def _sources(head: str, body: str) -> Iterator[PlanDataset]:
    table_scan = _TABLE_SCAN.fullmatch(head)
    if table_scan is not None and "." in table_scan["table"]:
        yield PlanDataset(table=_without_session_catalog(table_scan["table"]))
        return
    file_scan, location = _FILE_SCAN.fullmatch(head), _LOCATION.search(body)
    if file_scan is not None and location is not None:
        yield from _located(location["paths"], file_scan["table"])
    for cached in _CACHED_SCAN.finditer(body):
        yield from _located(cached["paths"], cached["table"])


def _located(paths: str, table: str | None) -> Iterator[PlanDataset]:
    listed = [path for path in paths.split(", ") if not path.startswith("...")]
    # A path with a comma in it cannot be told from two.
    if all(_URI.fullmatch(path) and "..." not in path for path in listed):
        for path in listed:
            if _LOG not in path:
                yield PlanDataset(path, _without_session_catalog(table or ""))


def _sinks(head: str, body: str) -> Iterator[PlanDataset]:
    arguments = body.partition("Arguments: ")[2].partition("\n")[0]
    for pattern in _SINKS.get(head.removeprefix("Execute "), ()):
        found = re.search(pattern, arguments)
        if found is not None:
            named = found.groupdict()
            table = (named.get("table") or "").replace("`", "")
            if named.get("database"):
                table = f"{named['database']}.{named['name']}"
            path = named.get("path") or ""
            if "..." not in path:
                yield PlanDataset(path, _without_session_catalog(table))
            return


def _without_session_catalog(table: str) -> str:
    return table.removeprefix(_SESSION_CATALOG)


def _joined(sinks: Iterable[PlanDataset]) -> list[PlanDataset]:
    """A CREATE TABLE AS SELECT is an execution around another: the one names the table, the other its path."""
    listed = list(sinks)
    tables = {one.table for one in listed if one.table}
    paths = {one.path for one in listed if one.path}
    bare_paths = [one for one in listed if one.path and not one.table]
    if not tables or not bare_paths:
        return listed
    if len(tables) == len(paths) == 1:
        return [PlanDataset(paths.pop(), tables.pop())]
    # Which path is which table's cannot be told.
    return [replace(one, path="") for one in listed if one.table]


# Roots and inner nodes of plans that write data. OpenLineage leaves out on purpose what only reads (collect, show,
# count) and some commands (its SparkNodesFilter, CreateViewFilter), so that nothing else is told to be lost.
_WRITES = re.compile(
    r"\b(?:InsertInto\w*|Create\w*TableAsSelect\w*|Replace\w*TableAsSelect\w*|SaveIntoDataSourceCommand"
    r"|MergeInto\w*|MergeRows|AppendData\w*|Overwrite(?:ByExpression|PartitionsDynamic)\w*|ReplaceData|WriteDelta"
    r"|WriteIntoDelta\w*|DeleteFromTable\w*|DeleteCommand\w*|UpdateCommand\w*|UpdateTable\w*)\b"
)
_REASON = "it wrote data, and OpenLineage sent no event of it"
# The tree comes first; "formatted" plans describe each node below it, after two empty lines.
_END_OF_TREE = "\n\n\n"


@dataclass(frozen=True, slots=True)
class LostExecution:
    """A SQL execution without lineage.

    :param id: Spark's number of the execution, as in its UI.
    :param description: as in Spark's UI: the call site or the user's own; empty where it is not known.
    :param reason: for people.
    :param plans: its physical plan and those of its parts.
    """

    id: int
    description: str
    reason: str
    plans: tuple[str, ...] = field(default=(), compare=False, repr=False)


def lost_executions(logged: LoggedApplication, applications: Sequence[Application]) -> list[LostExecution]:
    """What an application did and OpenLineage did not tell of.

    An execution was told of where a run began or ended in the very millisecond in which it did: OpenLineage takes its
    times from Spark's events. To give no false alarm, nothing is said of micro-batches (their query's progress names
    source and sink), of what failed, of parts of an execution that was told of, and of what OpenLineage leaves out on
    purpose: only of what wrote data. An execution with its parts is told once.

    :param applications: the application's; others do no harm.
    """
    if not any(one.runs for one in applications):
        # The listener did not run: nothing was lost one by one.
        return []
    told = told_executions(logged, (run for one in applications for run in one.runs))
    lost: dict[int, LostExecution] = {}
    for execution in logged.executions.values():
        if execution.query_run_id or execution.failed or execution.id in told:
            continue
        if wrote_data(execution) and execution.root_id not in lost:
            plans = tuple(one.plan for one in logged.executions.values() if one.root_id == execution.root_id)
            lost[execution.root_id] = LostExecution(execution.id, execution.description, _REASON, plans)
    return list(lost.values())


def told_executions(logged: LoggedApplication, runs: Iterable[RunState]) -> set[int]:
    """The executions of which runs tell: of themselves, of the one that they are part of, or of a part of it.

    A CREATE TABLE AS SELECT is an execution around another, and events may tell of either.
    """
    starts, ends = _told_times(runs)
    roots = {
        one.root_id
        for one in logged.executions.values()
        if one.start_ms in starts or (one.end_ms and one.end_ms in ends)
    }
    return {one.id for one in logged.executions.values() if one.root_id in roots}


def wrote_data(execution: SqlExecution) -> bool:
    """Whether it ended, and its plan is one that writes data."""
    return execution.end_ms is not None and bool(_WRITES.search(execution.plan.partition(_END_OF_TREE)[0]))


def _told_times(runs: Iterable[RunState]) -> tuple[set[int], set[int]]:
    starts: set[int] = set()
    ends: set[int] = set()
    for run in runs:
        if run.started and run.start_ms is not None:
            starts.add(run.start_ms)
        if run.ended and run.end_ms is not None:
            ends.add(run.end_ms)
    return starts, ends


# The roots of plans that write tables of catalogues, as they stand in the names of queries.
_WRITE_NODES = frozenset(
    {
        *(f"{atomic}{verb}_table_as_select" for atomic in ("", "atomic_") for verb in ("create", "replace")),
        *("append_data", "overwrite_by_expression", "overwrite_partitions_dynamic", "replace_data", "write_delta"),
    }
)


def untold_outputs(runs: Iterable[RunState]) -> tuple[str, ...]:
    """What of an application ended well and wrote a table, of which no event tells: each as ``<plan node>.<table>``.

    OpenLineage names a query ``<application>.<plan node>.<table>`` (its JobNameBuilder), the table by Spark's plan even
    where it finds no dataset for it. A CREATE TABLE AS SELECT is two such queries, of which one may name the dataset.

    :param runs: of one application.
    """
    silent: dict[str, str] = {}
    told: list[str] = []
    for run in runs:
        _, node, table = _parts(run.job_name)
        if node not in _WRITE_NODES:
            continue
        if run.outputs:
            told.append(table)
        elif run.ended and not run.failure:
            silent[f"{node}.{table}"] = table
    return tuple(name for name, table in silent.items() if not any(_are_one(table, other) for other in told))


def _parts(job_name: str) -> Sequence[str]:
    parts = job_name.rsplit(".", 2)
    return parts if len(parts) == 3 else ("", "", "")


def _are_one(table: str, other: str) -> bool:
    """With and without its catalogue, ``ice_sales_orders`` and ``sales_orders``."""
    return f"_{table}".endswith(f"_{other}") or f"_{other}".endswith(f"_{table}")


def untold_tables(
    logged: LoggedApplication, application: Application, symlinks: Mapping[DatasetId, DatasetId]
) -> tuple[str, ...]:
    """Tables that the plans of what wrote data read or write, and no event of the application names.

    Those of other catalogues than the session's, since only their names say so. A table is known by its name and that
    of its database: how the rest is spelled in events depends on the catalogue. Nothing is said of micro-batches and of
    what failed.

    :param symlinks: the tables behind paths.
    """
    known = {tail for name in _names(application, symlinks) for tail in _tails(name)}
    plans = (one.plan for one in logged.executions.values() if not (one.query_run_id or one.failed) and wrote_data(one))
    named = datasets_of_plans(plans)
    tables = {one.table for one in (*named.sources, *named.sinks) if one.table.count(".") > 1}
    return tuple(table for table in sorted(tables) if known.isdisjoint(_tails(table)))


def _names(application: Application, symlinks: Mapping[DatasetId, DatasetId]) -> Iterator[str]:
    for run in application.runs:
        for dataset in (*run.inputs, *run.outputs):
            yield dataset.name
            if dataset in symlinks:
                yield symlinks[dataset].name


def _tails(name: str) -> set[str]:
    """Database and table of a name or a path, as ``database/table``; and of what looks like a table of Iceberg's own
    (``db.orders.snapshots``), those of the table that it is about.
    """
    spelled = (name, table_and_selector(name, "")[0])
    return {"/".join(_SEPARATOR.split(one.lower().rstrip("/"))[-2:]) for one in spelled}


_SEPARATOR = re.compile(r"(?:\.db)?/|\.")


def sentences(queries: Sequence[str], tables: Sequence[str]) -> list[str]:
    """For people, of what :func:`untold_outputs` and :func:`untold_tables` found."""
    why = "it cannot name the tables of every catalogue"
    found = (
        (queries, f"OpenLineage does not name the tables that these queries wrote ({why}): "),
        (tables, f"OpenLineage does not name these tables that the job read or wrote ({why}): "),
    )
    return [begin + ", ".join(names) for names, begin in found if names]
