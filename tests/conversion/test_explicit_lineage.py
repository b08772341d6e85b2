"""The explicit facet ``lineage`` of runs, jobs and datasets: its entries are the writes.

``tests/data/explicit_lineage`` has an event of each kind, as the specification shows them
(OpenLineage 4468 and 4804).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import Ending, convert_events
from tests.conversion.builders import Json, settings
from tests.conversion.pairs import derived_pairs
from tests.conversion.recordings import lines_of

FOLDER = Path(__file__).parents[1] / "data" / "explicit_lineage"


def read(name: str) -> Json:
    (line,) = lines_of(FOLDER / f"{name}.ndjson")
    event: Json = json.loads(line)
    return event


def pairs_of(*events: Json) -> set[str]:
    """Return the pairs of tables that DataHub derives."""
    conversion = convert_events(events, settings(), Ending(succeeded=True))
    assert conversion.diagnostics.rejected_events == 0
    pairs = derived_pairs(conversion.proposals(settings()))
    return {f"{table(source)} -> {table(output)}" for source, output in pairs}


def table(urn: str) -> str:
    return urn.split(",")[1].rpartition(".")[2]


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("run_event", {"a -> c", "b -> d"}),
        ("job_event", {"a -> c", "b -> d"}),
        ("dataset_event", {"a -> v"}),
    ],
)
def test_entries_are_writes(name: str, pairs: set[str]) -> None:
    assert pairs_of(read(name)) == pairs


@pytest.mark.parametrize("name", ["job_event", "dataset_event"])
def test_events_without_a_run_and_the_facet_are_refused(name: str) -> None:
    event = read(name)
    holder = event.get("dataset") or event["job"]
    del holder["facets"]["lineage"]
    (reason,) = convert_events([event], settings()).diagnostics.rejections
    assert "no facet lineage" in reason


def test_without_the_facet_each_input_of_a_run_reaches_each_output() -> None:
    event = copy.deepcopy(read("run_event"))
    del event["job"]["facets"]["lineage"]
    assert pairs_of(event) == {"a -> c", "b -> c", "a -> d", "b -> d"}


def test_static_lineage_stands_beside_that_of_a_run() -> None:
    assert pairs_of(read("run_event"), read("dataset_event")) == {"a -> c", "b -> d", "a -> v"}
