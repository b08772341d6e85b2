"""What a run read and wrote of each dataset: versions, amounts and the schema (conversion rules, section 6)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import decompressed
from airflow_provider_spark_datahub.conversion.events import as_object, as_objects
from airflow_provider_spark_datahub.conversion.facets.dataset import NOT_COUNTED, OutputStatistics
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.runs.fold import MOST_VERSIONS, DatasetState, RunState
from airflow_provider_spark_datahub.conversion.runs.lineage import Lineage, Operation

_MOST_DATASETS = 500
"""Most datasets of a run that are described, lest its properties grow too long for DataHub."""


class _Use(msgspec.Struct, gc=False):
    """Use of one dataset by the runs of an application.

    :param rows: of each read; ``None`` if the producer did not count them.
    """

    versions: dict[str, None] = {}
    amount: OutputStatistics = NOT_COUNTED
    schema: bytes | None = None
    rows: list[int | None] = []

    def text(self) -> str:
        """Return the use as JSON; empty if no more than the schema is known."""
        rows, size, _ = self.amount
        parts = {"version": ", ".join([*self.versions][-MOST_VERSIONS:]) or None, "rows": rows, "bytes": size}
        known: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}
        return json.dumps(known | {"schema": _schema_hash(self.schema)} if self.schema else known) if known else ""


class DatasetUses:
    """Uses of the datasets that are edges of a job, by URN.

    :param operations: of the same runs.
    """

    def __init__(
        self, runs: Sequence[RunState], namer: DatasetNamer, lineage: Lineage, operations: Iterable[Operation]
    ) -> None:
        ended = [run for run in sorted(runs, key=lambda run: run.last_index) if run.ended and not run.failure]
        states = (state for run in ended for state in (*run.inputs.values(), *run.outputs.values()))
        self._exact = {float(state.version): state.version for state in states if state.version.isdecimal()}
        self._reads: dict[str, _Use] = {}
        self._writes: dict[str, _Use] = {}
        for run in in_time(ended):
            for use, state in _uses(self._reads, run.inputs.items(), namer, lineage.inputs):
                use.versions |= dict.fromkeys(self._versions_read(state))
                use.amount = use.amount.most(state.statistics)
                use.rows.append(state.statistics.rows)
            for use, state in _uses(self._writes, run.written, namer, lineage.outputs):
                use.versions = {state.version: None} if state.version else use.versions
        for operation in operations:
            if (written := self._writes.get(operation.dataset)) is not None:
                written.amount = written.amount.plus(operation.statistics)

    def _versions_read(self, state: DatasetState) -> Iterator[str]:
        """Yield what a query read. Of a scan in the past, the ``version`` facet names the latest version."""
        if not state.scans and state.version:
            yield state.version
        for snapshot in state.scans:
            # OpenLineage's report rounds a snapshot's id to 16 digits.
            yield self._exact.get(float(snapshot), str(snapshot))

    def properties(self) -> dict[str, str]:
        """Return a property for each dataset, ``input:<urn>`` or ``output:<urn>``, with its use as JSON."""
        kinds = (("input", self._reads), ("output", self._writes))
        texts = {f"{kind}:{urn}": use.text() for kind, uses in kinds for urn, use in sorted(uses.items())}
        return dict([(name, text) for name, text in texts.items() if text][:_MOST_DATASETS])

    def empty_reads(self) -> tuple[str, ...]:
        """Return a sentence for each dataset whose queries all read no row, unless the job wrote it too."""
        read = {urn: use.rows for urn, use in self._reads.items() if urn not in self._writes}
        return tuple(f"read 0 rows of {urn}" for urn, rows in sorted(read.items()) if set(rows) == {0})


def _uses(
    known: dict[str, _Use],
    touched: Iterable[tuple[Any, DatasetState]],
    namer: DatasetNamer,
    edges: Collection[str],
) -> Iterator[tuple[_Use, DatasetState]]:
    for dataset, state in touched:
        # A metadata table has other rows and columns.
        if not state.is_metadata and (urn := namer.urn(dataset)) in edges and urn is not None:
            use = known.setdefault(urn, _Use())
            use.schema = state.schema or use.schema
            yield use, state


@lru_cache(maxsize=256)
def _schema_hash(schema: bytes) -> str:
    """Return a hash of the names and types of all fields in a ``schema`` facet, a compressed text."""
    fields = _shape(as_object(decompressed(schema)))
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:16]


def _shape(field: Mapping[str, Any]) -> list[Any]:
    return [[item.get("name"), item.get("type"), _shape(item)] for item in as_objects(field.get("fields"))]
