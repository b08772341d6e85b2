"""Judge the conversion of recorded applications: three captures, each query by itself."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.capture import EventLog
from airflow_provider_spark_datahub.conversion import Converter, Ending
from tests.conversion.builders import settings
from tests.conversion.recordings import lines_of
from tests.conversion.test_hard_jobs import found_edges

CAPTURES = {"default": (True, True), "log": (False, True), "events": (True, False)}
"""Captures, and whether they have the listener's events and Spark's event log."""
KINDS = ("inputs", "outputs", "columns")
_OF_QUERY = re.compile(r"[/.](q\d+)[_/]", re.IGNORECASE)

Failure = tuple[str, str]
"""A kind of edges, and ``false`` or ``missing``."""


@dataclass
class Verdict:
    """Wrong edges of one capture by query, and counts of ``true``, ``false`` and ``missing`` edges
    by kind.
    """

    wrong: dict[str, dict[Failure, set[Any]]] = field(default_factory=dict)
    counts: Counter[Failure] = field(default_factory=Counter)


def judge(folder: Path, capture: str) -> Verdict:
    """Convert a recording as one of :data:`CAPTURES`, and compare it with its truth."""
    of_events, of_log = CAPTURES[capture]
    converter = Converter(settings())
    for line in lines_of(folder / "events.ndjson") if of_events else ():
        converter.add(line)
    log = (
        EventLog(folder / "log")
        if (folder / "log").exists()
        else map(json.loads, lines_of(folder / "log.ndjson"))
    )
    for event in log if of_log else ():
        converter.add_log_event(event)
    edges, verdict = found_edges(converter.finish(Ending(succeeded=True))), Verdict()
    truth = json.loads((folder / "truth.json").read_text())
    for kind in KINDS:
        by_query: dict[str, set[Any]] = {query: set() for query in truth["queries"]}
        for edge in edges[kind]:
            named = _OF_QUERY.search(edge[2] if isinstance(edge, tuple) else edge)
            by_query.setdefault(named[1].lower() if named else "", set()).add(edge)
        for query, found in by_query.items():
            if query not in truth["refused"]:
                of_query = truth["queries"].get(query, {})
                true, either = (
                    set(_edges(of_query, name, truth["root"])) for name in (kind, f"either_{kind}")
                )
                results = {
                    "true": found & true,
                    "false": found - true - either,
                    "missing": true - found,
                }
                verdict.counts.update({(kind, what): len(those) for what, those in results.items()})
                wrong = {
                    (kind, what): those
                    for what, those in results.items()
                    if those and what != "true"
                }
                verdict.wrong.setdefault(query, {}).update(wrong)
    return verdict


def _edges(truth: dict[str, Any], kind: str, root: str) -> Iterator[Any]:
    """Yield edges of the truth with URNs: a table is named ``table:…``, a path is one in the root."""
    for edge in truth.get(kind, ()):
        if isinstance(edge, str):
            place = (
                f"hive,{edge[6:].lower()}" if edge.startswith("table:") else f"file,{root}/{edge}"
            )
            yield f"urn:li:dataset:(urn:li:dataPlatform:{place},PROD)"
        else:
            source, column, target, field = edge
            urns = _edges({kind: [source, target]}, kind, root)
            yield next(urns), column, next(urns), field
