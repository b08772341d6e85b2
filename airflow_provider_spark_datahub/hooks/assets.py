"""Airflow asset events for the datasets that a Spark job wrote, by its lineage.

Tests: ``tests/operators/test_assets.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_spark_datahub.conversion import WrittenDataset
from airflow_provider_spark_datahub.hooks.airflow_context import ASSET_WRITER

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_spark_datahub.task import LineageReport

log = logging.getLogger(__name__)

# Platforms whose names in DataHub are paths, by the scheme of the path.
_PATHS = {"s3": "s3", "gcs": "gs", "abs": "abfss", "hdfs": "hdfs", "viewfs": "viewfs", "dbfs": "dbfs", "file": "file"}


def _asset_uri(dataset: WrittenDataset, templates: Mapping[str, str] | None = None) -> str:
    """Return the URI of a dataset's asset.

    By default a path keeps its usual scheme (``s3://bucket/orders``, ``file:///lake/orders``), and a table has its
    platform as scheme and its parts as path (``hive://shop/orders``).

    :param templates: URIs by platform, with ``{name}``, ``{path}`` (the name with ``/`` for ``.``), ``{platform}`` and
        ``{env}``.
    :raises ValueError: if the template has other fields.
    """
    path = dataset.name.replace(".", "/")
    if template := (templates or {}).get(dataset.platform):
        try:
            return template.format(name=dataset.name, path=path, platform=dataset.platform, env=dataset.env)
        except (KeyError, IndexError) as error:
            raise ValueError(f"the template {template!r} has a field {error}") from error
    if scheme := _PATHS.get(dataset.platform):
        return f"{scheme}://{dataset.name}"
    return f"{dataset.platform}://{path}"


def emit_assets(context: Context, task_run_urn: str, written: Sequence[WrittenDataset], report: LineageReport) -> None:
    """Add an asset event for each dataset that the job wrote, and compare the datasets with the task's outlets.

    :param task_run_urn: the task run in DataHub.
    :param report: of the attempt, which gets the URIs of the assets, and the warnings.
    """
    task = context["task"]
    outlets, wanted = getattr(task, "outlets", ()), getattr(task, "emit_assets", None)
    if wanted is False or not outlets:
        return
    if not written and not report.has_lineage and report.reason:
        report.warnings.append("without lineage, it is not known which outlets of the task were written")
        return
    _AssetEvents(context["outlet_events"], outlets, wanted, task_run_urn, report).emit(written)


@dataclass(frozen=True, slots=True)
class _AssetEvents:
    """Asset events of one successful task run. Airflow stores them if, and only if, the task succeeds.

    :param wanted: the operator's ``emit_assets``: URIs by platform as in :func:`_asset_uri`, or ``partitions``.
    :param report: gets the URIs of the assets that have an event, and as warnings the declared outlets that were not
        written, and datasets that no outlet declares.
    """

    events: Any
    outlets: Sequence[Any]
    wanted: Any
    task_run_urn: str
    report: LineageReport

    def emit(self, written: Sequence[WrittenDataset]) -> None:
        """Add an event for each written dataset: to its declared outlet, or else through the aliases."""
        found = dict(self._with_uris(written))
        aliases = [outlet for outlet in self.outlets if isinstance(outlet, AssetAlias)]
        others = (outlet for outlet in self.outlets if not isinstance(outlet, AssetAlias))
        declared = {uri: outlet for outlet in others if (uri := getattr(outlet, "uri", None))}
        for uri, dataset in sorted(found.items()):
            extra = self._extra(dataset)
            if uri in declared:
                self.events[declared[uri]].extra.update(extra)
                self._add_partitions(self.events[declared[uri]], uri, dataset)
            elif aliases:
                for alias in aliases:
                    self._add(self.events[alias], uri, extra)
            else:
                self.report.warnings.append(f"{dataset.urn} was written, and no outlet of the task declares it ({uri})")
                continue
            self.report.assets.append(uri)
        self.report.warnings += [
            f"the outlet {uri} was not written by the job" for uri in sorted(declared.keys() - found)
        ]

    def _with_uris(self, written: Sequence[WrittenDataset]) -> Iterator[tuple[str, WrittenDataset]]:
        templates = self.wanted if isinstance(self.wanted, Mapping) else None
        for dataset in written:
            try:
                # An asset normalizes its URI, by which it is compared with others.
                yield str(Asset(uri=_asset_uri(dataset, templates)).uri), dataset
            except ValueError as error:
                self.report.warnings.append(f"no asset event for {dataset.urn}: {error}")

    def _add_partitions(self, accessor: Any, uri: str, dataset: WrittenDataset) -> None:
        if self.wanted != "partitions" or not dataset.partitions:
            return
        missing = f"the event of {uri} has no partition keys"
        if not hasattr(accessor, "add_partitions"):
            self.report.warnings.append(f"{missing}: Airflow has them since 3.3")
            return
        try:
            accessor.add_partitions(list(dataset.partitions))
        except ValueError as error:  # a partition's name is too long for a key
            self.report.warnings.append(f"{missing}: {error}")

    def _add(self, accessor: Any, uri: str, extra: dict[str, Any]) -> None:
        """Add an event for the asset of this URI as a DAG declares it, under any name, or for a new asset."""
        try:
            accessor.add(Asset.ref(uri=uri), extra=extra)
        except (AirflowRuntimeError, AttributeError, ImportError, OSError) as error:
            log.debug("No DAG declares an asset %s yet: %s", uri, error)
            accessor.add(Asset(uri=uri), extra=extra)

    def _extra(self, dataset: WrittenDataset) -> dict[str, Any]:
        known = {
            "datahub_urn": dataset.urn,
            ASSET_WRITER: self.task_run_urn,
            "datahub_spark_run": dataset.run_urn,
            "rows": dataset.rows,
            "bytes": dataset.size,
            "schema_hash": dataset.schema_hash,
            "partitions": list(dataset.partitions) or None,
        }
        return {key: value for key, value in known.items() if value is not None}
