"""Recorded Spark jobs with their truth: what each of them really read and wrote."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from airflow_provider_spark_datahub.conversion import JobLineage
from tests.conversion.builders import CORPUS, Json

Pair = tuple[str, str]

CORPUS_TRUTH: dict[str, Json] = json.loads((CORPUS / "truth.json").read_text(encoding="utf-8"))
"""Truth of each case in ``tests/data/corpus``."""
DATA = CORPUS.parent
_MORE_JOBS = DATA / "more_jobs"
_TRUTH: dict[str, Json] = json.loads((_MORE_JOBS / "truth.json").read_text(encoding="utf-8"))
RECORDINGS = [
    recording for case, truth in _TRUTH.items() for recording in truth.get("recorded", [case])
]
"""Recordings in ``tests/data/more_jobs``: a case, mostly with the version of Spark."""


def truth_of(recording: str) -> Json:
    """Return the truth of one of :data:`RECORDINGS`."""
    return _TRUTH[recording.partition("-")[0]]


def recorded(kind: str, recording: str) -> list[bytes]:
    """Return the lines of one of :data:`RECORDINGS`: its ``events``, or its ``logs``, which may be
    missing.
    """
    return lines_of(_MORE_JOBS / kind / f"{recording}.ndjson")


def recorded_logs() -> Iterator[Path]:
    """Yield the files of all recorded event logs."""
    for path in sorted(DATA.rglob("*.ndjson*")):
        is_log = "logs" in path.parent.name or "log" in path.name or path.parent.name == "engines"
        if is_log and ".openlineage." not in path.name:
            yield path


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a file, which may be packed or missing. Its name may lack ``.gz``."""
    packed = path if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).splitlines()
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes()).splitlines()
    return path.read_bytes().splitlines() if path.exists() else []


def edges(found: Iterable[JobLineage]) -> set[Pair]:
    """Return every edge of the Spark jobs, as (direction, dataset URN)."""
    return {
        (side, urn)
        for job in found
        for side in ("inputs", "outputs")
        for urn in getattr(job.lineage, side)
    }


def expected_edges(truth: Json, prefix: str = "") -> set[Pair]:
    """Return the true edges, as :func:`edges`. :param prefix: of their keys, such as ``either_``."""
    return {
        (side, urn) for side in ("inputs", "outputs") for urn in truth.get(f"{prefix}{side}", ())
    }


def column_pairs(
    found: Iterable[JobLineage], wanted: Callable[[str], bool] = lambda _: True
) -> set[Pair]:
    """Return the column edges of the jobs: URNs of both columns. :param wanted: of the edges'
    transformations.
    """
    return {
        (upstream, downstream)
        for job in found
        for lineage in job.lineage.fine_grained
        if wanted(lineage["transformOperation"])
        for upstream in lineage["upstreams"]
        for downstream in lineage["downstreams"]
    }


def expected_columns(truth: Json, key: str = "columns") -> set[Pair]:
    """Return the true column edges, as :func:`column_pairs`."""
    return {
        (f"urn:li:schemaField:({source},{field})", f"urn:li:schemaField:({target},{column})")
        for source, field, target, column in truth.get(key, ())
    }
