"""Precision and recall of lineage on recorded jobs whose truth was written before their events were
looked at.

Each job of ``tests/data/hard_jobs`` and ``field_jobs`` is converted three times: from OpenLineage's
events, from them with Spark's event log, and from the log alone. Prints precision and recall of
datasets, and of direct columns; then, of both sources, the number of edges by the source that names
them, and how many of these are false.

    python benchmarks/lineage_recall.py [JOB ...]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from airflow_provider_spark_datahub.conversion.diagnostics import LEFT_OUT
from tests.conversion.builders import settings
from tests.conversion.test_hard_jobs import (
    CORPORA,
    found_edges,
    log_events,
    recorded,
    true_edges,
    truth_of,
)

SOURCES = ("events", "both", "log")
EDGES, FALSE = Counter[str](), Counter[str]()
HEADINGS = (
    "recording",
    "edges",
    "events",
    "with the log",
    "log alone",
    "columns",
    "events",
    "with the log",
    "log alone",
)


def converted(recording: str, source: str) -> Conversion:
    """Convert a recording from its events, with its event log, or from the log alone."""
    converter = Converter(settings())
    for line in recorded("events", recording) if source != "log" else ():
        converter.add(line)
    for event in log_events(recording) if source != "events" else ():
        converter.add_log_event(event)
    return converter.finish(Ending(succeeded=truth_of(recording)["result"] == "SUCCESS"))


def counts(recording: str, source: str) -> list[int]:
    """Return the true edges, and of those that were found the true and the false ones: of datasets,
    then of columns.
    """
    conversion = converted(recording, source)
    found = found_edges(conversion)
    if source == "both":
        _count_sources(recording, conversion)
    result = []
    for kinds in (("inputs", "outputs"), ("columns",)):
        numbers = [0, 0, 0]
        for kind in kinds:
            either = true_edges(recording, f"either_{kind}")
            true = true_edges(recording, kind) - either
            numbers = [
                numbers[0] + len(true),
                numbers[1] + len(found[kind] & true),
                numbers[2] + len(found[kind] - true - either),
            ]
        result += numbers
    return result


def _count_sources(recording: str, conversion: Conversion) -> None:
    EDGES[LEFT_OUT] += conversion.diagnostics.sources.get(LEFT_OUT, 0)
    for job in conversion.jobs:
        for kind, datasets in (("inputs", job.lineage.inputs), ("outputs", job.lineage.outputs)):
            true = true_edges(recording, kind) | true_edges(recording, f"either_{kind}")
            for urn, dataset in datasets.items():
                EDGES[dataset.edge_properties["source"]] += 1
                FALSE[dataset.edge_properties["source"]] += urn not in true


def _cell(numbers: list[int]) -> str:
    """Return precision and recall."""
    true, found, false = numbers
    return (
        f"{found / (found + false) if found + false else 1:.3f} / {found / true if true else 1:.3f}"
    )


def _total(rows: Iterable[list[list[int]]]) -> list[list[int]]:
    """Return the sums of rows, which have counts for each source."""
    return [
        [sum(column) for column in zip(*of_source, strict=True)]
        for of_source in zip(*rows, strict=True)
    ]


def main() -> None:
    """Print the table."""
    wanted = sys.argv[1:]
    rows: dict[str, list[list[int]]] = {}
    totals: dict[str, list[list[int]]] = {}
    for corpus, cases in CORPORA.items():
        names = [
            name
            for case, truth in cases.items()
            if not wanted or case in wanted
            for name in truth["recorded"]
        ]
        of_corpus = {name: [counts(name, source) for source in SOURCES] for name in names}
        totals |= {f"all of {corpus}": _total(of_corpus.values())} if names else {}
        rows |= of_corpus
    rows |= totals | {"all": _total(totals.values())}
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for name, row in rows.items():
        datasets, columns = ([_cell(numbers[i : i + 3]) for numbers in row] for i in (0, 3))
        print(
            f"| {name} | {row[0][0]} | {' | '.join(datasets)} | {row[0][3]} | {' | '.join(columns)} |"
        )
    print("\n| named by | edges | false |\n|---|---|---|")
    for source, count in EDGES.most_common():
        print(f"| {source} | {count} | {FALSE[source]} |")


if __name__ == "__main__":
    main()
