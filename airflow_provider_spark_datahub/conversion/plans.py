"""The files and tables that the text of a physical plan names as what is read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

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
