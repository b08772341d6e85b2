"""One URN for a Delta table of a Hive metastore, whether a job writes it, reads it or merges into it.

The applications of ``tests/data/delta_tables`` (Spark 4.1.4, Delta 4.4.0, a metastore in Derby): ``writes`` makes
``dt`` with Delta and ``pt`` with Parquet; ``into_files`` copies each into files; ``into_tables`` copies each into a
Delta table at a path, and merges ``pt`` into ``dt``. OpenLineage describes ``dt`` as Delta's only in ``writes``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending
from tests.conversion.builders import Json, settings, urn
from tests.conversion.recordings import lines_of

DATA = Path(__file__).parents[1] / "data" / "delta_tables"
DELTA, PARQUET = urn("delta-lake", "default.dt"), urn("hive", "default.pt")
ONLY_DELTA, HIVE_TOO = {"delta": "delta-lake"}, {"delta": "delta-lake", "hive": "hive"}


def tables(found: Conversion) -> tuple[set[str], set[str]]:
    """Return the inputs and outputs that are tables of the metastore."""
    return tuple({each for each in urns if ",default." in each} for urns in (found.inputs, found.outputs))  # type: ignore[return-value]


def converted(name: str, platforms: Json, *, with_log: bool, without: str | None = None) -> Conversion:
    """Convert an application. :param without: leaves out the events of queries that name a path."""
    converter = Converter(settings(catalog_platforms=platforms))
    events = [json.loads(line) for line in lines_of(DATA / f"{name}.ndjson")]
    lost = {event["run"]["runId"] for event in events if without and f'{without}"' in json.dumps(event)}
    for event in events:
        if event["run"]["runId"] not in lost:
            converter.add(event)
    for line in lines_of(DATA / f"{name}.log.ndjson") if with_log else ():
        converter.add_log_event(json.loads(line))
    return converter.finish(Ending(succeeded=True))


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("platforms", [ONLY_DELTA, HIVE_TOO])
def test_writes_reads_and_merges_have_one_urn(platforms: Json, with_log: bool) -> None:
    assert tables(converted("writes", platforms, with_log=with_log)) == (set(), {DELTA, PARQUET})
    assert tables(converted("into_tables", platforms, with_log=with_log)) == ({DELTA, PARQUET}, {DELTA})


def test_the_log_shows_the_format_of_a_table_that_is_only_copied_into_files() -> None:
    # No event of the copy says that the table is Delta's.
    assert tables(converted("into_files", ONLY_DELTA, with_log=True)) == ({DELTA, PARQUET}, set())


def test_without_the_setting_all_are_tables_of_hive() -> None:
    for name, outputs in (("into_files", set[str]()), ("into_tables", {urn("hive", "default.dt")})):
        for with_log in (False, True):
            found = tables(converted(name, {}, with_log=with_log))
            assert found == ({urn("hive", "default.dt"), PARQUET}, outputs)


@pytest.mark.parametrize("platforms", [ONLY_DELTA, HIVE_TOO])
def test_queries_without_events_have_the_platform_of_their_format(platforms: Json) -> None:
    without_delta = converted("into_tables", platforms, with_log=True, without="/warehouse/dt")
    assert without_delta.diagnostics.lost_executions
    assert tables(without_delta) == ({DELTA, PARQUET}, {DELTA})
    without_parquet = converted("writes", platforms, with_log=True, without="/warehouse/pt")
    assert tables(without_parquet) == (set(), {DELTA, PARQUET})
