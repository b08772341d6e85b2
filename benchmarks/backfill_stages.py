"""What the steps of the backfill take for a wide event, in one process without Spark: CPU, the best of six rounds.

    PYTHONPATH=.:benchmarks python benchmarks/backfill_stages.py

Java's share, which moves the rows between the steps and writes them, is in ``benchmarks/backfill.py shapes``.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from event_mix import wide_application

from airflow_provider_spark_datahub.backfill.packing import Chunk, ChunkPacker, PackedVersions, VersionPacker
from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.conversion.archive import ArchivedEvent, AspectVersion, EventHead
from airflow_provider_spark_datahub.conversion.archive.replay import (
    ArchiveFacts,
    ArchiveFilter,
    GroupConverter,
    compact_versions,
)

APPLICATIONS, ROUNDS = 3, 6


def packed_events(heads: list[EventHead], texts: list[bytes]) -> list[Chunk]:
    """The events as the first step leaves them."""
    packer = ChunkPacker()
    events = (
        ArchivedEvent(head.time_ms, "file", at, text) for at, (head, text) in enumerate(zip(heads, texts, strict=True))
    )
    chunks = chain.from_iterable(packer.add(head.group, event) for head, event in zip(heads, events, strict=True))
    return sorted([*chunks, *packer.rest()], key=attrgetter("group", "time_ms"))


def unpacked_events(chunks: list[Chunk]) -> list[list[ArchivedEvent]]:
    """The events of each group."""
    return [list(Chunk.merged(group)) for _, group in groupby(chunks, key=attrgetter("group"))]


def converted(groups: list[list[ArchivedEvent]]) -> list[AspectVersion]:
    """The versions of aspects."""
    versions: list[AspectVersion] = []
    for events in groups:
        converter = GroupConverter(LineageSettings(), ArchiveFilter(), ArchiveFacts())
        for event in events:
            converter.add(event)
        versions += converter.finish()
    return versions


def packed_versions(versions: list[AspectVersion]) -> list[PackedVersions]:
    """The versions as the second step leaves them."""
    packer = VersionPacker(8)
    return sorted([*chain.from_iterable(map(packer.add, versions)), *packer.rest()])


def proposals(packed: list[PackedVersions]) -> list[str]:
    """The proposals that are left, as text."""
    kept = compact_versions(PackedVersions.merged(iter(packed)), run_history=False)
    return [item.proposal.to_json() for item in kept]


def main() -> None:
    """Print CPU time per event of each step."""
    texts = [line.strip() for number in range(APPLICATIONS) for line in wide_application(number)]
    best: dict[str, float] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = work()
        used = (time.process_time() - started) / len(texts)
        best[name] = min(used, best.get(name, used))
        return result

    gc.disable()
    for _ in range(ROUNDS):
        heads = step("heads", lambda: [EventHead.read(text) for text in texts])
        chunks = step("pack chunks", lambda heads=heads: packed_events(heads, texts))
        groups = step("unpack chunks", lambda chunks=chunks: unpacked_events(chunks))
        versions = step("convert", lambda groups=groups: converted(groups))
        packed = step("pack versions", lambda versions=versions: packed_versions(versions))
        lines = step("unpack versions, proposals as text", lambda packed=packed: proposals(packed))
        step("Arrow", lambda lines=lines: pa.array(lines, pa.string()))
    for name, used in best.items():
        print(f"{name:<36} {used * 1e6:7.1f} us an event")


if __name__ == "__main__":
    main()
