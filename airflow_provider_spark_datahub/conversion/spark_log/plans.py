"""The text of physical plans, as Spark's event log holds it: the files and tables that a plan names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

# A node of a plan in Spark's "formatted" mode: "(1) Scan csv", then its lines. An empty line ends it.
_NODE = re.compile(r"\(\d+\) (?P<head>.*)\n(?P<body>(?:.+\n?)*)")
_CODEGEN = re.compile(r"\s*\[codegen id : \d+\]\s*$")
_FILE_SCAN = re.compile(r"Scan \w+(?: (?P<table>[\w.]+))?")
_LOCATION = re.compile(r"^Location: (?P<index>\w+) ?\[(?P<paths>.*)\]$", re.MULTILINE)
_TABLE_SCAN = re.compile(r"(?:Scan hive|BatchScan) (?P<table>[\w.]+)")
# The origin of a cached relation is on one line, which Spark abbreviates if it is long.
_CACHED_SCAN = re.compile(
    r"FileScan \w+(?: (?P<table>[\w.]+))?\[[^\]]*\].*? Location: (?P<index>\w+)\(\d+ paths\)\[(?P<paths>[^\]]*)\], "
)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.*")
# Reads of Delta's transaction log are not reads of data.
_DELTA_LOG = "/_delta_log"

_QUOTED = r"(?P<table>`[^`]+`(?:\.`[^`]+`){1,2})"
_PATH = r"(?P<path>[A-Za-z][A-Za-z0-9+.-]*:/[^,\]]*)"
# How the arguments of each writing node name its target; the first match counts.
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
    """A file or table that a plan names.

    :param path: a location, with its scheme if the plan has it; empty if the plan names only a table.
    :param table: ``database.table``, after the catalogue unless it is the session's; empty for plain files.
    """

    path: str = ""
    table: str = ""


class PlanDatasets(NamedTuple):
    """The distinct datasets that an execution reads and writes, in the order of its plans."""

    sources: tuple[PlanDataset, ...]
    sinks: tuple[PlanDataset, ...]

    @classmethod
    def of(cls, plans: Iterable[str]) -> PlanDatasets:
        """Return the datasets that the plans of an execution and its parts name.

        Names that Spark abbreviated, such as long lists and paths, are left out.

        :param plans: texts of physical plans in Spark's "formatted" mode, as event logs hold them.
        """
        sources: dict[PlanDataset, None] = {}
        sinks: dict[PlanDataset, None] = {}
        for plan in plans:
            for node in _NODE.finditer(plan):
                head, body = _CODEGEN.sub("", node["head"]).strip(), node["body"]
                sources.update(dict.fromkeys(_sources(head, body)))
                sinks.update(dict.fromkeys(_sinks(head, body)))
        return cls(tuple(sources), tuple(_joined(sinks)))


def _sources(head: str, body: str) -> Iterator[PlanDataset]:
    table_scan = _TABLE_SCAN.fullmatch(head)
    if table_scan is not None and "." in table_scan["table"]:
        yield PlanDataset(table=_without_session_catalog(table_scan["table"]))
        return
    file_scan, location = _FILE_SCAN.fullmatch(head), _LOCATION.search(body)
    if file_scan is not None and location is not None:
        yield from _paths(location["paths"], file_scan["table"])
    for cached in _CACHED_SCAN.finditer(body):
        yield from _paths(cached["paths"], cached["table"])


def _paths(paths: str, table: str | None) -> Iterator[PlanDataset]:
    listed = [path for path in paths.split(", ") if not path.startswith("...")]
    # A path that contains a comma looks like two paths.
    if all(_URI.fullmatch(path) and "..." not in path for path in listed):
        for path in listed:
            if _DELTA_LOG not in path:
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
    """Join the table and the path of a CREATE TABLE AS SELECT: the outer execution names one, the inner the other."""
    listed = list(sinks)
    tables = {sink.table for sink in listed if sink.table}
    paths = {sink.path for sink in listed if sink.path}
    if not tables or all(sink.table for sink in listed if sink.path):
        return listed
    if len(tables) == len(paths) == 1:
        return [PlanDataset(paths.pop(), tables.pop())]
    # It is not clear which path belongs to which table.
    return [replace(sink, path="") for sink in listed if sink.table]
