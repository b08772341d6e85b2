"""Events in short form, for cases: each is a line, ``[TYPE] verb[number] inputs -> outputs``.

A name is ``[namespace:]name``, with its columns in brackets, the table behind it after ``@``, its
change after ``!`` and its written rows after ``#``. The verbs: ``query``; ``scan``, of a
checkpoint; ``rdd``, ``save`` and ``map``, RDD jobs; ``copy``, which has the lineage of a column
from its first input; ``rename``; ``app``, of the application itself. A number is that of the query;
without it, a line is a query of its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

from tests.conversion.builders import (
    Json,
    application,
    column,
    column_lineage,
    dataset,
    query,
    schema,
    symlink,
)

_TOKEN = re.compile(
    r"(?:(?P<namespace>\w+://\w+):)?(?P<name>[^(@!#]+)(?:\((?P<fields>.*)\))?"
    r"(?:@(?P<table>[^!#]+))?(?:!(?P<change>\w+))?(?:#(?P<rows>\d+))?"
)


def _stored(token: str, source: str = "") -> Json:
    found = _TOKEN.fullmatch(token)
    assert found is not None, token
    fields = [(field, "string") for field in (found["fields"] or "").split(",") if field]
    facets = {
        "schema": schema(*fields) if fields else None,
        "symlinks": symlink("hive://m", found["table"]) if found["table"] else None,
        "lifecycleStateChange": {"lifecycleStateChange": found["change"]}
        if found["change"]
        else None,
        "columnLineage": column_lineage({"id": [column(source, "id")]}) if source else None,
    }
    known = {key: facet for key, facet in facets.items() if facet}
    counted = (
        {"outputFacets": {"outputStatistics": {"rowCount": int(found["rows"])}}}
        if found["rows"]
        else {}
    )
    return {**dataset(found["namespace"] or "file", found["name"], **known), **counted}


def _event(number: int, line: str) -> Json:
    """Return the event of a line: of a query of its own, or of that with the number behind the
    verb.
    """
    found = re.fullmatch(r"(?:([A-Z]+) )?([a-z]+)(\d*)(?: (.*))?", line)
    assert found is not None, line
    kind, verb, run, names = found.groups("")
    if verb == "app":
        return application(kind, second=0 if kind == "START" else 59)
    read, written = (side.split() for side in names.partition("->")[::2])
    outputs = [_stored(token, read[0] if verb == "copy" else "") for token in written]
    if verb == "rename":
        change = {
            "lifecycleStateChange": "RENAME",
            "previousIdentifier": {"namespace": "file", "name": read.pop()},
        }
        outputs[0]["facets"]["lifecycleStateChange"] = change
    job = {
        "rdd": "map_partitions",
        "save": "save",
        "map": "map_text_file",
        "scan": "scan_hive_db_t",
    }.get(verb)
    more: Any = (
        {"job": f"shop.{job}", "job_type": "SQL_JOB" if verb == "scan" else "RDD_JOB"}
        if job
        else {}
    )
    kind = kind or ("START" if verb == "rdd" else "COMPLETE")
    return query(
        kind,
        run_id=f"run-{run or number + 10}",
        inputs=[*map(_stored, read)],
        outputs=outputs,
        **more,
    )


def events_of(lines: Iterable[str]) -> list[Json]:
    """Return the events of lines."""
    return list(itertools.starmap(_event, enumerate(lines)))


def paths(urns: Iterable[str]) -> list[str]:
    """Return what the URNs name, without the platform ``file``."""
    parts = [re.findall(r"dataPlatform:(\w+),(.*?),PROD", found)[0] for found in urns]
    return [name if platform == "file" else f"{platform}:{name}" for platform, name in parts]
