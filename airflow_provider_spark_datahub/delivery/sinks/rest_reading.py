"""Datasets that DataHub has, and the runs downstream of one, read in bulk with acryl-datahub's
client.

It imports that client; import this module only to read. GMS 1.x finds runs by the fields that it
indexes as keywords: ``inputs``, ``outputs``, ``parentInstance`` and ``customProperties``
(``name=value``). Its ``batchGet`` answers with the latest run event as well.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

from datahub.ingestion.graph.client import DatahubClientConfig, DataHubGraph
from datahub.ingestion.graph.filters import RemovedStatusFilter
from datahub.metadata.schema_classes import DataPlatformInstanceClass, DatasetPropertiesClass

from airflow_provider_spark_datahub.conversion import Fingerprint, HeldRun, Records
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import LibraryError, call_library
from airflow_provider_spark_datahub.delivery.reconciliation import HeldDataset
from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError
from airflow_provider_spark_datahub.delivery.sinks.settings import RestSettings
from airflow_provider_spark_datahub.foundation.text import counted

_DATASETS = 500
"""Datasets in a request for their aspects."""
_PROPERTIES, _INSTANCE = "datasetProperties", "dataPlatformInstance"
# Ingestion sources write at least one of these; the edge of a job, none.
_DESCRIBING = [_PROPERTIES, "subTypes", "container", "viewProperties"]
_LOCATIONS = ("Location", "location", "storage_location")
"""Custom properties in which the sources for Hive and Glue, Iceberg, and Unity Catalog name the
place of a table.
"""
_KIND = "dataProcessInstance"
_ASPECTS = [
    f"{_KIND}{part}" for part in ("Properties", "Relationships", "Input", "Output", "RunEvent")
]
_PAGE, _BATCH = 5_000, 200
"""URNs in an answer; values in a filter, and runs in a request for their aspects."""
_MOST_RUNS = 200_000
_Values = dict[str, set[str]]
"""Values by the field of runs that has one of them."""


@contextmanager
def _opened_graph(settings: RestSettings) -> Iterator[DataHubGraph]:
    """Open acryl-datahub's client. :raises SinkSettingsError: for an error of the library inside
    the block.
    """
    try:
        # Its fields have the names of acryl-datahub's, which has no emit mode.
        fields = {name: value for name, value in asdict(settings).items() if name != "emit_mode"}
        yield call_library(lambda: DataHubGraph(DatahubClientConfig(**fields)))
    except LibraryError as error:
        raise SinkSettingsError(
            settings.redact(f"DataHub at {settings.server} cannot be read: {error}")
        ) from None


def read_datasets(settings: RestSettings) -> Iterator[HeldDataset]:
    """Yield the datasets that are not removed.

    :raises SinkSettingsError: if DataHub does not answer as it should.
    """
    with _opened_graph(settings) as graph:
        urns = iter(
            call_library(
                lambda: list(graph.get_urns_by_filter(entity_types=["dataset"], batch_size=5000))
            )
        )
        while batch := list(islice(urns, _DATASETS)):
            datasets = call_library(
                partial(graph.get_entities, "dataset", batch, [*_DESCRIBING, _INSTANCE])
            )
            for urn in batch:
                aspects = dict(datasets.get(urn, {}))
                # GMS writes it of every dataset.
                of_instance = aspects.pop(_INSTANCE, (None,))[0]
                instance = (
                    of_instance.instance or ""
                    if isinstance(of_instance, DataPlatformInstanceClass)
                    else ""
                )
                properties = aspects[_PROPERTIES][0] if _PROPERTIES in aspects else None
                custom = (
                    properties.customProperties
                    if isinstance(properties, DatasetPropertiesClass)
                    else {}
                )
                location = next((custom[name] for name in _LOCATIONS if custom.get(name)), "")
                yield HeldDataset(
                    urn, not aspects, location, instance.rpartition(",")[2].removesuffix(")")
                )


def read_runs(
    settings: RestSettings, name: str, urns: Collection[str], deadline: Deadline
) -> list[Fingerprint]:
    """Return the fingerprints of the task runs that used a dataset, and of all that may be
    downstream of them.

    :param name: its URN, its name, or the end of its name.
    :param urns: datasets with this name that are known.
    :raises SinkSettingsError: if DataHub does not answer as it should, or not in time.
    """
    with _opened_graph(settings) as graph:
        walk = _Walk(graph, deadline)
        return walk.from_datasets({*urns, *walk.named(name)})


class _Walk:
    """Search that follows datasets through task runs, as far as they may reach."""

    def __init__(self, graph: DataHubGraph, deadline: Deadline) -> None:
        self._graph, self._deadline = graph, deadline
        self._runs: dict[str, HeldRun] = {}
        self._records: dict[str, Fingerprint] = {}
        self._asked: _Values = {}
        self._ahead: set[tuple[str, str]] = set()
        """DAG runs in which a task without lineage follows a reached one."""

    def named(self, name: str) -> Iterator[str]:
        """Yield the datasets with a name."""
        if name.startswith("urn:li:dataset:"):
            yield name
        else:
            rule = {"field": "urn", "condition": "CONTAIN", "values": [name]}
            yield from (
                urn for urn in self._matching("dataset", [rule]) if Records.is_named(urn, name)
            )

    def from_datasets(self, origins: set[str]) -> list[Fingerprint]:
        """Read the runs that use these datasets, those that use what they wrote, and so on."""
        wanted: _Values = {"inputs": origins, "outputs": origins}
        while new := [
            (field, value)
            for field, values in wanted.items()
            for value in values - self._asked_of(field)
        ]:
            for field, value in new:
                self._asked_of(field).add(value)
            urns = self._with(sorted(new)) - self._runs.keys()
            while urns:
                self._read(urns)
                above = (self._runs[urn].parent for urn in urns if self._runs[urn].key is None)
                urns = {urn for urn in above if urn and urn not in self._runs}
            wanted = self._next(origins)
        return list(self._records.values())

    def _asked_of(self, field: str) -> set[str]:
        return self._asked.setdefault(field, set())

    def _next(self, origins: set[str]) -> _Values:
        """Return by which values to find the next runs."""
        self._records, asked = HeldRun.fingerprints(self._runs), self._asked_of("inputs")
        reached = {
            urn
            for urn, one in self._records.items()
            if not asked.isdisjoint(one.inputs) or self._hangs(one)
        }
        writers = {urn for urn, one in self._records.items() if not origins.isdisjoint(one.outputs)}
        ahead = {urn: one for urn in reached | writers if (one := self._records[urn]).silent.after}
        self._ahead |= {(one.key.dag_id, one.key.run_id) for one in ahead.values()}
        written = {dataset for urn in reached for dataset in self._records[urn].outputs}
        return {
            "inputs": written,
            "outputs": written,
            "parentInstance": {*self._records, *(self._runs[urn].parent for urn in ahead)} - {""},
            "customProperties": {
                f"{silent.started_by(key.dag_id, task)}={key.run_id}"
                for key, silent in ((one.key, one.silent) for one in ahead.values())
                for task in silent.after
            },
        }

    def _hangs(self, record: Fingerprint) -> bool:
        run, silent = (record.key.dag_id, record.key.run_id), record.silent
        return (run in self._ahead and bool(silent.before)) or any(
            step[:2] in self._ahead for step in silent.started
        )

    def _with(self, pairs: list[tuple[str, str]]) -> set[str]:
        """Return the runs with one of these values."""
        urns = set[str]()
        for start in range(0, len(pairs), _BATCH):
            values: dict[str, list[str]] = {}
            for field, value in pairs[start : start + _BATCH]:
                values.setdefault(field, []).append(value)
            rules = [
                {"field": field, "condition": "EQUAL", "values": texts}
                for field, texts in values.items()
            ]
            urns.update(self._matching(_KIND, rules))
        return urns

    def _matching(self, kind: str, rules: Iterable[dict[str, Any]]) -> Iterator[str]:
        """Yield the entities that match one of these rules."""
        filters: Any = [{"and": [rule]} for rule in rules]
        # DataHub's clean-up marks old runs as removed.
        wanted = {
            "entity_types": [kind],
            "extra_or_filters": filters,
            "status": RemovedStatusFilter.ALL,
        }
        urns = iter(self._graph.get_urns_by_filter(**wanted, batch_size=_PAGE))
        while page := call_library(lambda: list(islice(urns, _PAGE))):
            self._stop_at_limits()
            yield from page

    def _read(self, urns: Iterable[str]) -> None:
        waiting = iter(urns)
        while batch := list(islice(waiting, _BATCH)):
            self._stop_at_limits()
            runs = call_library(partial(self._graph.get_entities, _KIND, batch, _ASPECTS))
            for urn in batch:
                self._runs[urn] = _held(
                    urn, {name: aspect for name, (aspect, _) in runs.get(urn, {}).items()}
                )

    def _stop_at_limits(self) -> None:
        if self._deadline.expired or len(self._runs) > _MOST_RUNS:
            read = counted(len(self._runs), "run")
            raise LibraryError(
                f"{read} were read, and more are left: too many, or DataHub is too slow"
            )


def _held(urn: str, aspects: dict[str, Any]) -> HeldRun:
    """Return a run of DataHub from its typed aspects."""
    properties, relationships, read, written, event = (aspects.get(name) for name in _ASPECTS)
    start_ms = end_ms = properties.created.time if properties is not None else 0
    if event is not None:
        start_ms = end_ms = event.timestampMillis
        if event.status == "COMPLETE":
            start_ms -= event.durationMillis or 0
        else:
            end_ms = round(time.time() * 1000)
    return HeldRun(
        urn,
        (relationships and relationships.parentTemplate) or "",
        (relationships and relationships.parentInstance) or "",
        dict(properties.customProperties) if properties is not None else {},
        tuple(read.inputs) if read is not None else (),
        tuple(written.outputs) if written is not None else (),
        start_ms,
        end_ms,
        (event and event.attempt) or 0,
        event is None or event.result is None or event.result.type != "FAILURE",
    )
