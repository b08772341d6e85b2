"""Judge the conversion of recorded applications: three captures, each edge by the query that named
its dataset, or its output.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.capture import EventLog
from airflow_provider_spark_datahub.conversion import Converter, Ending
from tests.conversion.builders import settings
from tests.conversion.pairs import derived_pairs
from tests.conversion.recordings import lines_of
from tests.conversion.test_hard_jobs import found_edges

CAPTURES = {"default": (True, True), "log": (False, True), "events": (True, False)}
"""Captures, and whether they have the listener's events and Spark's event log."""
KINDS = ("inputs", "outputs", "columns", "pairs")
"""Kinds of edges; ``pairs`` are those that DataHub derives from all DataJobs of the application."""
_OF_PAIR = 2
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

    def add(self, query: str, kind: str, results: dict[str, set[Any]]) -> None:
        """Add a query's edges of a kind."""
        wrong = self.wrong.setdefault(query, {})
        for result, edges in results.items():
            self.counts[kind, result] += len(edges)
            if edges and result != "true":
                wrong[kind, result] = edges


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
    conversion = converter.finish(Ending(succeeded=True))
    edges = found_edges(conversion)
    edges["pairs"] = derived_pairs(conversion.proposals(settings()))
    truth = json.loads((folder / "truth.json").read_text())
    verdict = Verdict()
    for kind in KINDS:
        found = _by_query(edges[kind])
        true = _by_query(_all_edges(truth, kind))
        either = _by_query(_all_edges(truth, f"either_{kind}"))
        for query in {*found, *truth["queries"]}.difference(truth["refused"]):
            results = {
                "true": found[query] & true[query],
                "false": found[query] - true[query] - either[query],
                "missing": true[query] - found[query],
            }
            verdict.add(query, kind, results)
    return verdict


def _by_query(edges: Iterable[Any]) -> defaultdict[str, set[Any]]:
    """Return edges by the query whose name is in their dataset, or in their output."""
    by_query: defaultdict[str, set[Any]] = defaultdict(set)
    for edge in edges:
        dataset = edge
        if isinstance(edge, tuple):
            dataset = edge[-1] if len(edge) == _OF_PAIR else edge[2]
        named = _OF_QUERY.search(dataset)
        by_query[named[1].lower() if named else ""].add(edge)
    return by_query


def _all_edges(truth: dict[str, Any], kind: str) -> Iterator[Any]:
    """Yield the true edges of all queries."""
    for of_query in truth["queries"].values():
        yield from _edges(of_query, kind, truth["root"])


def _edges(truth: dict[str, Any], kind: str, root: str) -> Iterator[Any]:
    """Yield edges of the truth with URNs: a table is named ``table:…``, a path is one in the root."""
    for edge in truth.get(kind, ()):
        if isinstance(edge, str):
            place = (
                f"hive,{edge[6:].lower()}" if edge.startswith("table:") else f"file,{root}/{edge}"
            )
            yield f"urn:li:dataset:(urn:li:dataPlatform:{place},PROD)"
        elif len(edge) == _OF_PAIR:
            yield tuple(_edges({kind: edge}, kind, root))
        else:
            source, column, target, field = edge
            urns = _edges({kind: [source, target]}, kind, root)
            yield next(urns), column, next(urns), field
