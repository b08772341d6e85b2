"""What a run read and wrote of each dataset: versions, amounts and the schema (conversion rules,
section 6).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import msgspec

from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import decompressed
from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    as_object,
    as_objects,
    as_text,
    iso_instant,
)
from airflow_provider_spark_datahub.conversion.facets.dataset import (
    NOT_COUNTED,
    OutputStatistics,
    field_names,
)
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.runs.effects import inner_runs, outer_runs
from airflow_provider_spark_datahub.conversion.runs.fold import (
    MOST_VERSIONS,
    DatasetState,
    RunState,
)
from airflow_provider_spark_datahub.conversion.runs.lineage import Lineage, Operation

_MOST_DATASETS = 500
"""Most datasets of a run that are described, lest its properties grow too long for DataHub."""
UNKNOWN_VERSION = "?"


class JobUse(msgspec.Struct, gc=False):
    """Use of one dataset by the runs of an application.

    :param schema: the ``schema`` facet as compressed text.
    :param rows: of each read; ``None`` if the producer did not count them.
    :param scans: what each scan read.
    :param written: all versions that it wrote; :attr:`versions` has the last one.
    :param is_partial: some query that read it has no known version.
    :param replaces: after the last write, the dataset holds nothing of earlier runs.
    :param written_ms: time of the last write, in ms since the epoch; ``None`` if it is not known.
    """

    versions: dict[str, None] = {}
    amount: OutputStatistics = NOT_COUNTED
    schema: bytes | None = None
    rows: list[int | None] = []
    scans: dict[OutputStatistics, None] = {}
    written: dict[str, None] = {}
    is_partial: bool = False
    replaces: bool = False
    written_ms: int | None = None

    @property
    def columns(self) -> dict[str, str]:
        """Types of the columns by name."""
        fields = (
            as_objects(as_object(decompressed(self.schema)).get("fields")) if self.schema else ()
        )
        return {as_text(field.get("name")): as_text(field.get("type")) for field in fields}

    @property
    def last_versions(self) -> tuple[str, ...]:
        """The last versions that it read, or all that it wrote; :data:`UNKNOWN_VERSION` stands for
        others.
        """
        versions = tuple(self.written or self.versions)
        is_whole = len(versions) <= MOST_VERSIONS and not (versions and self.is_partial)
        return versions if is_whole else (*versions[-MOST_VERSIONS:], UNKNOWN_VERSION)

    def text(self, *, is_whole: bool = True) -> str:
        """Return the use as JSON; empty if no more than the schema is known.

        The time of the write stands in for a version that is not known.

        :param is_whole: False if some queries are forgotten.
        """
        rows, size, _ = self.amount
        versions = (
            self.last_versions
            if is_whole or not self.versions
            else (*self.last_versions, UNKNOWN_VERSION)
        )
        last = tuple(self.versions)[-1:] if self.written else versions
        parts: dict[str, Any] = {"version": ", ".join(last) or None, "rows": rows, "bytes": size}
        if self.written_ms is not None and not self.versions:
            parts |= {"version": iso_instant(self.written_ms), "inferred": True}
        parts["earlier"] = ", ".join(version for version in versions if version not in last) or None
        scans = [(scan.rows, scan.size) for scan in self.scans]
        are_counted = (
            is_whole
            and 0 < len(scans) <= MOST_VERSIONS
            and all(size is not None for _, size in scans)
        )
        parts |= {"scans": scans if are_counted else None, "replaces": self.replaces or None}
        known: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}
        return (
            json.dumps(known | {"schema": _schema_hash(self.schema)} if self.schema else known)
            if known
            else ""
        )


class DatasetUses:
    """Uses of the datasets that are edges of a job, by URN.

    :param operations: of the same runs.
    """

    def __init__(
        self,
        runs: Sequence[RunState],
        namer: DatasetNamer,
        lineage: Lineage,
        operations: Iterable[Operation],
    ) -> None:
        outer = outer_runs(runs)
        ended = [
            run
            for run in sorted(runs, key=lambda run: run.last_index)
            if run.ended and not run.failure
        ]
        states = (state for run in ended for state in (*run.inputs.values(), *run.outputs.values()))
        self._exact = {
            float(state.version): state.version for state in states if state.version.isdecimal()
        }
        self.reads: dict[str, JobUse] = {}
        self.writes: dict[str, JobUse] = {}
        self._runs, self._namer = [run for run in runs if run.run_id not in outer], namer
        # Within a query that replaces a table, the version is that of the replaced one.
        named = [run for run in ended if any(state.version for _, state in run.written)]
        early = {inner.run_id for run in named for inner in outer.get(run.run_id, ())}
        replacing = inner_runs(ended, lambda run: "replace_table" in run.plan_node)
        staged = {inner.run_id for found in replacing.values() for inner in found}
        for run in in_time(ended):
            inputs = run.inputs.items() if run.run_id not in outer else ()
            for use, state in _uses(self.reads, inputs, namer, lineage.inputs):
                versions = dict.fromkeys(self._versions_read(state))
                use.versions |= versions
                use.is_partial = use.is_partial or not versions
                use.amount = use.amount.most(state.statistics)
                use.rows.append(state.statistics.rows)
                use.scans |= dict.fromkeys(state.amounts or [NOT_COUNTED])
            for use, state in _uses(self.writes, run.written, namer, lineage.outputs):
                version = "" if run.run_id in early else state.version
                if (
                    state.layer == "delta"
                    and version.isdecimal()
                    and len(version) < 20
                    and run.run_id in staged
                ):
                    # Delta allows no other commit in between.
                    version = str(int(version) + 1)
                use.versions = {version: None} if version else use.versions
                use.written |= use.versions
        # A query without an end may have read anything.
        for run in (run for run in runs if not (run.ended or run.is_listing)):
            for use, _ in _uses(self.reads, run.inputs.items(), namer, lineage.inputs):
                use.is_partial, use.scans[NOT_COUNTED] = True, None
        for operation in operations:
            if (written := self.writes.get(operation.dataset)) is not None:
                written.amount = written.amount.plus(operation.statistics)
                written.written_ms = max(operation.time_ms, written.written_ms or 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetUses) and (self.reads, self.writes) == (
            other.reads,
            other.writes,
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The inputs whose columns may reach an output without a column edge."""
        return frozenset(
            urn
            for run in self._runs
            for dataset in _hidden(run)
            if (urn := self._namer.urn(dataset))
        )

    def _versions_read(self, state: DatasetState) -> Iterator[str]:
        """Yield what a query read. Of a scan in the past, the ``version`` facet names the latest
        version.
        """
        if not state.scans and state.version:
            yield state.version
        for snapshot in state.scans:
            # OpenLineage's report rounds a snapshot's id to 16 digits.
            yield self._exact.get(float(snapshot), str(snapshot))

    def properties(self, *, is_whole: bool = True) -> dict[str, str]:
        """Return a property for each dataset, ``input:<urn>`` or ``output:<urn>``, with its use as
        JSON.

        :param is_whole: see :meth:`JobUse.text`.
        """
        kinds = (("input", self.reads), ("output", self.writes))
        items = (
            (f"{kind}:{urn}", use) for kind, uses in kinds for urn, use in sorted(uses.items())
        )
        texts = ((name, use.text(is_whole=is_whole)) for name, use in items)
        return dict(islice((each for each in texts if each[1]), _MOST_DATASETS))

    def empty_reads(self) -> tuple[str, ...]:
        """Return a sentence for each dataset whose queries all read no row, unless the job wrote it
        too.
        """
        read = {urn: use.rows for urn, use in self.reads.items() if urn not in self.writes}
        return tuple(
            f"read 0 rows of {urn}" for urn, rows in sorted(read.items()) if set(rows) == {0}
        )


def _hidden(run: RunState) -> Iterator[DatasetId]:
    """Yield the inputs of a query that the column edges of one of its outputs do not cover.

    What a query without outputs read may have become part of another query, as a value in the
    driver.
    """
    if not run.written and not run.is_listing:
        yield from run.inputs
    for _, state in run.written:
        edges = state.columns.edges if state.columns is not None else ()
        named = {upstream.dataset for edge in edges for upstream in edge.upstreams}
        made = {column for edge in edges for column in edge.downstreams}
        if state.schema is None or not made.issuperset(field_names(state.schema)):
            named.clear()
        yield from (dataset for dataset in run.inputs if dataset not in named)


def _uses(
    known: dict[str, JobUse],
    touched: Collection[tuple[Any, DatasetState]],
    namer: DatasetNamer,
    edges: Collection[str],
) -> Iterator[tuple[JobUse, DatasetState]]:
    for dataset, state in in_time(touched):
        # A metadata table has other rows and columns.
        if not state.is_metadata and (urn := namer.urn(dataset)) in edges and urn is not None:
            use = known.setdefault(urn, JobUse())
            use.schema = state.schema or use.schema
            use.replaces = use.replaces or (state.replaces and not namer.is_cut(dataset))
            yield use, state


@lru_cache(maxsize=256)
def _schema_hash(schema: bytes) -> str:
    """Return a hash of the names and types of all fields in a ``schema`` facet, a compressed text."""
    fields = _shape(as_object(decompressed(schema)))
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:16]


def _shape(field: Mapping[str, Any]) -> list[Any]:
    return [
        [item.get("name"), item.get("type"), _shape(item)]
        for item in as_objects(field.get("fields"))
    ]
