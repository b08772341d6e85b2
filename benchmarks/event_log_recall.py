"""Lineage from Spark's event log alone, beside that from the listener's events, by the truth of recorded jobs.

Each job of ``tests/data/more_jobs`` that has an event log is converted twice: from OpenLineage's events with the log,
and from the log alone, as if the listener had not run. Prints how many true edges each finds, of datasets and of
columns, and how many edges of datasets from the log are false.

    python benchmarks/event_log_recall.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from tests.conversion.builders import settings
from tests.conversion.test_corpus import edges, expected_edges
from tests.conversion.test_event_log_capture import LOGGED, log_events
from tests.conversion.test_more_jobs import recorded, truth_of

Column = tuple[str, str, str, str]
HEADINGS = ("recording", "edges", "listener", "log alone", "false", "columns", "listener", "log alone")


def converted(recording: str, *, with_events: bool) -> Conversion:
    """Convert a recording from its log, with the listener's events or without."""
    converter = Converter(settings(capture_from_event_log=True, capture_streaming=True))
    for event in recorded("events", recording) if with_events else ():
        converter.add(event)
    for log_event in log_events(recording):
        converter.add_log_event(log_event)
    return converter.finish(Ending(succeeded=True))


def column_edges(conversion: Conversion) -> set[Column]:
    """Return the edges of columns: source dataset and column, target dataset and column."""
    return {
        (*_parts(upstream), *_parts(downstream))
        for job in conversion.jobs
        for lineage in job.lineage.fine_grained
        for upstream in lineage["upstreams"]
        for downstream in lineage["downstreams"]
    }


def _parts(field: str) -> tuple[str, str]:
    dataset, _, column = field.removeprefix("urn:li:schemaField:(").removesuffix(")").rpartition(",")
    return dataset, column


def figures(recording: str) -> list[int]:
    """Return the figures of one row, in the order of the headings."""
    truth = truth_of(recording)
    expected = expected_edges(truth)
    columns = {tuple(edge) for edge in (*truth.get("columns", ()), *truth.get("unreported_columns", ()))}
    listener, log = (converted(recording, with_events=with_events) for with_events in (True, False))
    false = edges(log.jobs) - expected - expected_edges(truth, "either_")
    return [
        len(expected), len(edges(listener.jobs) & expected), len(edges(log.jobs) & expected), len(false),
        len(columns), len(column_edges(listener) & columns), len(column_edges(log) & columns),
    ]  # fmt: skip


def main() -> None:
    """Print the table."""
    rows = {recording: figures(recording) for recording in LOGGED}
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for recording, row in rows.items():
        print(f"| {recording} | {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
