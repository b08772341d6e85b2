"""Pairs of datasets that DataHub derives from whole DAG runs are those of the script that the tasks
run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from tests.conversion.pairs import Catalog, Pair
from tests.system.airflow_home import AirflowHome, Json, file_connection, sink_in
from tests.system.catalogue import Catalogue, file_dataset

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

DAGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "tables": {
        "a": ("raw/a",),
        "b": ("raw/b",),
        "c": ("raw/c", "a"),
        "summary": ("c",),
        "report": ("b", "raw/d"),
    },
    "other_tables": {
        "e": ("raw/e",),
        "f": ("raw/f",),
        "g": ("raw/g",),
        "h": ("raw/h",),
    },
}
"""What each table is made of, by DAG."""


def write_sources(folder: Path) -> None:
    """Write the files that the tasks read."""
    (folder / "raw").mkdir(parents=True)
    for name in (*"abcdefgh", "wrong"):
        (folder / "raw" / name).write_text(f"{name}\n")


def true_pairs(dag_id: str, folder: Path) -> set[Pair]:
    """Return the pairs of a DAG whose tables are in a folder."""
    return {
        (file_dataset(folder / source), file_dataset(folder / table))
        for table, sources in DAGS[dag_id].items()
        for source in sources
    }


def pairs_of(proposals: Iterable[Json]) -> set[Pair]:
    """Return the pairs that DataHub derives from delivered proposals."""
    catalog = Catalog()
    catalog.apply(map(Proposal.from_obj, proposals))
    return catalog.pairs()


def upstream_of(dataset: str, pairs: set[Pair]) -> set[str]:
    """Return all datasets upstream of one, by way of any number of datasets."""
    upstream: set[str] = set()
    waiting = {dataset}
    while waiting:
        target = waiting.pop()
        sources = {source for source, output in pairs if output == target} - upstream
        upstream |= sources
        waiting |= sources
    return upstream


def test_pairs_of_whole_dag_runs_are_those_of_the_script(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    connections = {"datahub_file": file_connection(tmp_path)}
    truth: set[Pair] = set()
    for dag_id in DAGS:
        write_sources(tmp_path / dag_id)
        run = airflow_home.dags_test(
            dag_id,
            tmp_path / dag_id,
            connections,
            AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION=tmp_path / "outbox",
        )
        assert run.succeeded, run.output[-20_000:]
        truth |= true_pairs(dag_id, tmp_path / dag_id)
    catalogue = Catalogue.of_folder(sink_in(tmp_path))
    catalogue.assert_strict()
    pairs = pairs_of(catalogue.proposals)
    assert pairs == truth
    report, summary = (file_dataset(tmp_path / "tables" / name) for name in ("report", "summary"))
    # A table carries what the first task read into one of the outputs of the third, not the other.
    first_read = file_dataset(tmp_path / "tables/raw/a")
    assert first_read in upstream_of(summary, pairs)
    assert first_read not in upstream_of(report, pairs)
