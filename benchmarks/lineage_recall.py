"""Precision and recall of lineage on recorded jobs whose truth was written before their events were
looked at.

Each job of ``tests/data/hard_jobs`` and ``field_jobs`` is converted three times: from OpenLineage's
events, from them with Spark's event log, and from the log alone. Prints precision and recall of
datasets, of direct columns, and of the pairs of tables that DataHub derives from the DataJobs; then
the plain numbers of true and false ones; then, of both sources, the number of edges by the source
that names them, and how many of these are false.

    python benchmarks/lineage_recall.py [JOB ...]
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from airflow_provider_spark_datahub.conversion.diagnostics import LEFT_OUT
from tests.conversion.builders import settings
from tests.conversion.pairs import derived_pairs
from tests.conversion.test_hard_jobs import (
    CORPORA,
    found_edges,
    log_events,
    recorded,
    true_edges,
    truth_of,
)

SOURCES = {"events": "events", "both": "with the log", "log": "log alone"}
KINDS = {"edges": ("inputs", "outputs"), "columns": ("columns",), "pairs": ("pairs",)}
EDGES, FALSE = Counter[str](), Counter[str]()


@dataclass
class Score:
    """Number of edges in the truth, and of true and false ones in a conversion."""

    expected: int = 0
    true: int = 0
    false: int = 0

    def add(self, other: Score) -> None:
        """Add the numbers of another score."""
        self.expected += other.expected
        self.true += other.true
        self.false += other.false

    def __str__(self) -> str:
        """Return precision and recall."""
        converted = self.true + self.false
        precision = self.true / converted if converted else 1
        recall = self.true / self.expected if self.expected else 1
        return f"{precision:.3f} / {recall:.3f}"


Scores = dict[tuple[str, str], Score]
"""Scores by the kind of edges and the source."""


def converted(recording: str, source: str) -> Conversion:
    """Convert a recording from its events, with its event log, or from the log alone."""
    converter = Converter(settings())
    for line in recorded("events", recording) if source != "log" else ():
        converter.add(line)
    for event in log_events(recording) if source != "events" else ():
        converter.add_log_event(event)
    return converter.finish(Ending(succeeded=truth_of(recording)["result"] == "SUCCESS"))


def scores_of(recording: str) -> Scores:
    """Return the scores of a recording."""
    scores: Scores = {}
    for source in SOURCES:
        conversion = converted(recording, source)
        if source == "both":
            _count_sources(recording, conversion)
        edges = found_edges(conversion)
        edges["pairs"] = derived_pairs(conversion.proposals(settings()))
        for kind, names in KINDS.items():
            score = scores[kind, source] = Score()
            for name in names:
                score.add(_score(recording, name, edges[name]))
    return scores


def _score(recording: str, name: str, edges: set[Any]) -> Score:
    either = true_edges(recording, f"either_{name}")
    true = true_edges(recording, name) - either
    false = edges - true - either
    return Score(len(true), len(edges & true), len(false))


def _count_sources(recording: str, conversion: Conversion) -> None:
    EDGES[LEFT_OUT] += conversion.diagnostics.sources.get(LEFT_OUT, 0)
    for job in conversion.jobs:
        for kind, datasets in (("inputs", job.lineage.inputs), ("outputs", job.lineage.outputs)):
            true = true_edges(recording, kind) | true_edges(recording, f"either_{kind}")
            for urn, dataset in datasets.items():
                EDGES[dataset.edge_properties["source"]] += 1
                FALSE[dataset.edge_properties["source"]] += urn not in true


def _total(rows: Iterable[Scores]) -> Scores:
    total: defaultdict[tuple[str, str], Score] = defaultdict(Score)
    for scores in rows:
        for key, score in scores.items():
            total[key].add(score)
    return total


def _print_row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|")


def _print_headings(*headings: str) -> None:
    _print_row(*headings)
    print("|---" * len(headings) + "|")


def _print_scores(rows: dict[str, Scores]) -> None:
    """Print precision and recall by kind and source, after the number in the truth."""
    titles = SOURCES.values()
    headings = ["recording"]
    for kind in KINDS:
        headings += [kind, *titles]
    _print_headings(*headings)
    for name, scores in rows.items():
        cells: list[object] = [name]
        for kind in KINDS:
            of_kind = [scores[kind, source] for source in SOURCES]
            cells += [of_kind[0].expected, *of_kind]
        _print_row(*cells)


def _print_numbers(totals: dict[str, Scores]) -> None:
    """Print the numbers of true and false edges."""
    _print_headings("totals", "source", "true edges and columns", "false", "true pairs", "false")
    for name, scores in totals.items():
        for source, title in SOURCES.items():
            edges, pairs = Score(), scores["pairs", source]
            edges.add(scores["edges", source])
            edges.add(scores["columns", source])
            _print_row(name, title, edges.true, edges.false, pairs.true, pairs.false)


def main() -> None:
    """Print the tables."""
    wanted = sys.argv[1:]
    rows: dict[str, Scores] = {}
    totals: dict[str, Scores] = {}
    for corpus, cases in CORPORA.items():
        of_corpus: dict[str, Scores] = {}
        for case, truth in cases.items():
            if wanted and case not in wanted:
                continue
            for name in truth["recorded"]:
                of_corpus[name] = scores_of(name)
        if of_corpus:
            totals[f"all of {corpus}"] = _total(of_corpus.values())
        rows |= of_corpus
    totals["all"] = _total(totals.values())
    _print_scores(rows | totals)
    print()
    _print_numbers(totals)
    print()
    _print_headings("named by", "edges", "false")
    for source, count in EDGES.most_common():
        _print_row(source, count, FALSE[source])


if __name__ == "__main__":
    main()
