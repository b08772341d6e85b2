"""Whether a backfill on Spark comes to the very bytes of the converter in one process, on a million events.

The events are those of ``event_mix.py``, each application's torn over all files of the archive: plain ones that are
read in parts, gzip and zstd. What the job of ``spark-datahub backfill`` wrote is compared with ``convert_archive`` of
the same events in this process, entity by entity: every proposal, and their order. That holds all events in memory.

    PYTHONPATH=. python benchmarks/backfill_bytes.py [EVENTS] [FOLDER]     # 1000000 events below /tmp/backfill-bytes
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, cast

import zstandard

from airflow_provider_spark_datahub.backfill.plan import read_part
from airflow_provider_spark_datahub.capture.stored_files import read_lines
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from benchmarks.archive_in_memory import convert_archive
from benchmarks.backfill import backfill, local
from benchmarks.event_mix import mixed_application

EVENTS = 1_000_000
ENDS = (".ndjson", ".ndjson.gz", ".ndjson.zst", ".ndjson.zst")
FILES = 12 * len(ENDS)
OTHER_FILES = 7
"""From one event of an application to the next: without a common divisor with the number of files."""


def write(root: Path, events: int) -> None:
    """An archive in which no application is in one file."""
    root.mkdir(parents=True)
    applications = chain.from_iterable(enumerate(mixed_application(number), number) for number in count())
    with ExitStack() as stack:
        files = [stack.enter_context(_create(root / f"{n:02d}{ENDS[n % len(ENDS)]}")) for n in range(FILES)]
        for number, event in islice(applications, events):
            files[number * OTHER_FILES % FILES].write(event)


def _create(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "wb", compresslevel=1))
    if path.suffix == ".zst":
        return cast("IO[bytes]", zstandard.open(path, "wb", cctx=zstandard.ZstdCompressor(1)))
    return path.open("wb")


def events_of(root: Path) -> Iterator[tuple[str, int, bytes]]:
    """All events of an archive, as Spark names their files."""
    for path in sorted(root.iterdir()):
        with path.open("rb") as stream:
            for offset, line in read_lines(path.name, io.BufferedReader(stream)):
                yield f"file:{path}", offset, line.strip()


def part_lines(path: Path) -> Iterator[bytes]:
    """The proposals of a part."""
    with path.open("rb") as file:
        yield from (text.encode() for text in read_part(file, path.name))


def digests(lines: Iterable[bytes]) -> dict[str, str]:
    """What stands for all proposals of each entity, in their order."""
    found: dict[str, hashlib._Hash] = {}
    for line in lines:
        entity = json.loads(line)["entityUrn"]
        found.setdefault(entity, hashlib.sha256()).update(line + b"\n")
    return {entity: digest.hexdigest() for entity, digest in found.items()}


def compare(written: dict[str, str], expected: dict[str, str]) -> None:
    """End with an error where two entities differ, and say which."""
    different = sorted(one for one in written.keys() | expected.keys() if written.get(one) != expected.get(one))
    if different:
        raise SystemExit(f"{len(different)} entities differ, the first of them {different[:5]}")


def main() -> None:
    """Compare, and print how much was the same."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "/tmp/backfill-bytes")
    shutil.rmtree(folder, ignore_errors=True)
    write(folder / "archive", events)
    run = backfill(folder, folder / "archive", local(2))
    parts = [digests(part_lines(path)) for path in sorted((folder / "out" / "proposals").glob("part-*"))]
    written = dict(chain.from_iterable(part.items() for part in parts))
    if len(written) != sum(map(len, parts)):
        raise SystemExit("an entity is in several parts")
    print(
        f"{run.events} events on Spark in {run.seconds:.0f} s: {len(written)} entities in {len(parts)} parts",
        flush=True,
    )
    reference = convert_archive(events_of(folder / "archive"), LineageSettings())
    compare(written, digests(one.proposal.to_json().encode() for one in reference.kept))
    print(f"the same bytes: {len(reference.kept)} proposals of {len(written)} entities, {reference.applications} runs")


if __name__ == "__main__":
    main()
