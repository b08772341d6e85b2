"""Airflow asset events for the datasets that a Spark job wrote, by its lineage.

Tests: ``tests/operators/test_assets.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_spark_datahub.conversion import WrittenDataset
from airflow_provider_spark_datahub.hooks.airflow_context import ASSET_WRITER
from airflow_provider_spark_datahub.hooks.airflow_services import AirflowServices

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_spark_datahub.task import LineageReport

log = logging.getLogger(__name__)

# Platforms whose names in DataHub are paths, by the scheme of the path.
_PATHS = {
    "s3": "s3",
    "gcs": "gs",
    "abs": "abfss",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
    "dbfs": "dbfs",
    "file": "file",
}


_LONGEST_URI = (
    1_300  # PostgreSQL's index takes 2,704 bytes for a name and a URI, which are the same
)


def _asset_uri(dataset: WrittenDataset, templates: Mapping[str, str] | None = None) -> str:
    """Return the URI of a dataset's asset.

    By default a path keeps its usual scheme (``s3://bucket/orders``, ``file:///lake/orders``), and
    a table has its platform as scheme and its parts as path (``hive://shop/orders``).

    :param templates: URIs by platform, with ``{name}``, ``{path}`` (the name with ``/`` for ``.``),
        ``{platform}`` and ``{env}``.
    :raises ValueError: if the template has other fields.
    """
    path = dataset.name.replace(".", "/")
    if template := (templates or {}).get(dataset.platform):
        try:
            return template.format(
                name=dataset.name, path=path, platform=dataset.platform, env=dataset.env
            )
        except (KeyError, IndexError) as error:
            raise ValueError(f"the template {template!r} has a field {error}") from error
    if scheme := _PATHS.get(dataset.platform):
        return f"{scheme}://{dataset.name}"
    return f"{dataset.platform}://{path}"


def _check(uri: str, dataset: WrittenDataset) -> None:
    """Raise ValueError for an event that Airflow's server refuses when the task has succeeded, so
    that it fails.
    """
    if not (uri.isascii() and uri.isprintable() and len(uri) <= _LONGEST_URI):
        raise ValueError(
            f"Airflow takes URIs of at most {_LONGEST_URI} printable ASCII characters: {uri[:200]!r}"
        )
    "".join((dataset.urn, *dataset.partitions)).encode()  # halves of surrogate pairs


def emit_assets(
    context: Context,
    task_run_urn: str,
    written: Sequence[WrittenDataset],
    report: LineageReport,
    services: AirflowServices,
) -> None:
    """Add an asset event for each dataset that the job wrote, and report what differs from the
    task's outlets.
    """
    task = context["task"]
    outlets, wanted = getattr(task, "outlets", ()), getattr(task, "emit_assets", None)
    if wanted is False or not outlets:
        return
    if not written and not report.has_lineage and report.reason:
        report.warnings.append(
            "without lineage, it is not known which outlets of the task were written"
        )
        return
    _AssetEvents(context["outlet_events"], outlets, wanted, task_run_urn, report, services).emit(
        written
    )


class _AssetEvents(NamedTuple):
    """Asset events of one successful task run. Airflow stores them if, and only if, the task
    succeeds.

    :param wanted: the operator's ``emit_assets``: URIs by platform as in :func:`_asset_uri`, or
        ``partitions``.
    :param report: gets the URIs of the assets that have an event, and as warnings the declared
        outlets that were not written, and datasets that no outlet declares.
    """

    events: Any
    outlets: Sequence[Any]
    wanted: Any
    task_run_urn: str
    report: LineageReport
    services: AirflowServices

    def emit(self, written: Sequence[WrittenDataset]) -> None:
        """Add an event for each written dataset: to its declared outlet, or else through the
        aliases.
        """
        found = dict(self._with_uris(written))
        aliases = [outlet for outlet in self.outlets if isinstance(outlet, AssetAlias)]
        others = (outlet for outlet in self.outlets if not isinstance(outlet, AssetAlias))
        declared = {uri: outlet for outlet in others if (uri := getattr(outlet, "uri", None))}
        new = sorted(found.keys() - declared) if aliases else []
        known = self.services.ask(
            "assets of DAGs", lambda: {uri: self._known(aliases[0], uri) for uri in new}, {}
        )
        for uri, dataset in sorted(found.items()):
            extra = self._extra(dataset)
            if uri in declared:
                self.events[declared[uri]].extra.update(extra)
                self._add_partitions(self.events[declared[uri]], uri, dataset)
            elif aliases:
                for alias in aliases:
                    self.events[alias].add(known.get(uri) or Asset(uri=uri), extra=extra)
            else:
                self.report.warnings.append(
                    f"{dataset.urn} was written, and no outlet of the task declares it ({uri})"
                )
                continue
            self.report.assets.append(uri)
        self.report.warnings += [
            f"the outlet {uri} was not written by the job"
            for uri in sorted(declared.keys() - found)
        ]

    def _with_uris(self, written: Sequence[WrittenDataset]) -> Iterator[tuple[str, WrittenDataset]]:
        templates = self.wanted if isinstance(self.wanted, Mapping) else None
        for dataset in written:
            try:
                # An asset normalizes its URI, by which it is compared with others.
                uri = str(Asset(uri=_asset_uri(dataset, templates)).uri)
                _check(uri, dataset)
                yield uri, dataset
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

    def _known(self, alias: AssetAlias, uri: str) -> Asset | None:
        """Return the asset of this URI as a DAG declares it, under any name; ``None`` if there is
        none.
        """
        asked = type(self.events[alias])(key=self.events[alias].key)
        try:
            asked.add(Asset.ref(uri=uri))
        except (AirflowRuntimeError, AttributeError, ImportError) as error:
            log.debug("No DAG declares an asset %s yet: %s", uri, error)
            return None
        (event,) = asked.asset_alias_events
        key, extra = event.dest_asset_key, getattr(event, "dest_asset_extra", {})
        return Asset(name=key.name, uri=key.uri, extra=dict(extra))

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
