"""How the events of an application are best brought together on Spark: what each way costs, from files to versions.

    mapInArrow       events packed by application, sorted within partitions, as a stream: what the backfill does
    applyInPandas    the same packed events, handed over group by group
    event by event   one row per event, handed over group by group with applyInPandas: what one would try first

CPU seconds of all processes of Spark, ``local[1]``, of two sizes; their difference is the price without Spark's start.
Needs pandas beside Spark.

    PYTHONPATH=. python benchmarks/spark_grouping.py [EVENTS] [FOLDER]     # 100000 events below /tmp/backfill-benchmark
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.backfill import REPOSITORY, SPARK, archive, measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS, FEW_EVENTS = 100_000, 10_000
WAYS = ("mapInArrow", "applyInPandas", "event by event")


def versions_of(spark: SparkSession, source: str, way: str) -> DataFrame:
    """Everything that the runs of an archive would have written."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from airflow_provider_spark_datahub.backfill.indexing import SCHEMA, ArchiveFiles, _index_files
    from airflow_provider_spark_datahub.backfill.packing import Chunk
    from airflow_provider_spark_datahub.backfill.spark_job import _CONVERTED_SCHEMA

    files = ArchiveFiles.find(spark, [source]).whole
    if way == "event by event":
        rows = files.mapInArrow(_event_rows, "group string, time_ms long, file string, offset long, text binary")
        return rows.groupBy("group").applyInPandas(_converted_events, _version_schema())
    chunks = files.mapInArrow(_index_files, from_arrow_schema(SCHEMA)).where("kind = 'events'").select(*Chunk._fields)
    schema = from_arrow_schema(_CONVERTED_SCHEMA)
    if way == "applyInPandas":
        return chunks.groupBy("group").applyInPandas(_converted_chunks, schema)
    chunks = chunks.repartition(4, "group").sortWithinPartitions("group", "time_ms", "file", "offset")
    return chunks.mapInArrow(_step(), schema)


@cache
def _step() -> Any:
    from airflow_provider_spark_datahub.backfill.spark_job import _convert_groups
    from airflow_provider_spark_datahub.conversion.archive.replay import ArchiveFacts, ArchiveFilter

    return _convert_groups(_settings(), ArchiveFilter(), ArchiveFacts(), 8)


def _converted_chunks(group: Any) -> Any:
    import pyarrow as pa

    from airflow_provider_spark_datahub.backfill.spark_job import _CONVERTED_SCHEMA

    ordered = group.sort_values(["time_ms", "file", "offset"])
    batches = _step()(pa.Table.from_pandas(ordered, preserve_index=False).to_batches())
    return pa.Table.from_batches(list(batches), _CONVERTED_SCHEMA).to_pandas()


def _event_rows(batches: Iterable[Any]) -> Iterator[Any]:
    import io

    import pyarrow as pa

    from airflow_provider_spark_datahub.backfill.packing import _batches_of, _rows_of
    from airflow_provider_spark_datahub.capture.stored_files import read_lines
    from airflow_provider_spark_datahub.conversion.archive.grouping import EventHead

    types = {
        "group": pa.string(),
        "time_ms": pa.int64(),
        "file": pa.string(),
        "offset": pa.int64(),
        "text": pa.binary(),
    }

    def rows() -> Iterator[tuple[Any, ...]]:
        for path, content in _rows_of(batches):
            for offset, line in read_lines(path, io.BytesIO(content)):
                text = line.strip()
                head = EventHead.read(text)
                yield head.group, head.time_ms, path, offset, text

    yield from _batches_of(rows(), pa.schema(types.items()))


@cache
def _settings() -> Any:
    from airflow_provider_spark_datahub.conversion.settings import LineageSettings

    return LineageSettings()


def _converted_events(group: Any) -> Any:
    import pandas as pd

    from airflow_provider_spark_datahub.conversion.archive.replay import (
        ArchivedEvent,
        ArchiveFacts,
        ArchiveFilter,
        AspectVersion,
        GroupConverter,
    )

    conversion = GroupConverter(_settings(), ArchiveFilter(), ArchiveFacts())
    for row in sorted(group[list(ArchivedEvent._fields)].itertuples(index=False, name=None)):
        conversion.add(ArchivedEvent(*row))
    return pd.DataFrame(list(conversion.finish()), columns=AspectVersion._fields)


def _version_schema() -> str:
    from airflow_provider_spark_datahub.conversion.archive.replay import AspectVersion

    types = {"time_ms": "long", "number": "long", "content": "binary"}
    return ", ".join(f"{name} {types.get(name, 'string')}" for name in AspectVersion._fields)


def once(source: str, way: str) -> None:
    """Convert in this process, and keep nothing."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(8 * 1024 * 1024))
    versions_of(spark, source, way).write.format("noop").mode("overwrite").save()
    spark.stop()


def run(source: Path, way: str) -> tuple[float, float]:
    """CPU seconds, and the most memory of Python in MiB."""
    env = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": str(SPARK / "python")}
    # Imported, so that workers import it as well: they remember the settings then.
    script = "import sys; from benchmarks.spark_grouping import once; once(*sys.argv[1:])"
    command = [str(SPARK / "python"), "-c", script, str(source), way]
    with (
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
        measured([process.pid]) as usage,
    ):
        status = process.wait()
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return usage.cpu_seconds, usage.memory["python"]


def main() -> None:
    """Print the price of each way."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "/tmp/backfill-benchmark")
    few, many = (archive(folder, "mixed", size) for size in (FEW_EVENTS, events))
    for way in WAYS:
        started = time.monotonic()
        (little, _), (much, memory) = run(few, way), run(many, way)
        each = (much - little) / (events - FEW_EVENTS)
        print(
            f"{way:<16} {each * 1e6:4.0f} us CPU an event ({little:.1f} s, {much:.1f} s), Python {memory:.0f} MiB, "
            f"{time.monotonic() - started:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
