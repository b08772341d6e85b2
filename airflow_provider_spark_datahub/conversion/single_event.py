"""One run event by itself as a job: the query that it tells of (``coalesce_jobs`` off)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.coalesce import (
    FLOW_TIMES,
    JOB_TIMES,
    JobLineage,
    RunResult,
)
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import FAILED_TYPES, TERMINAL_TYPES, EventDataset, RunEvent
from airflow_provider_spark_datahub.conversion.fold import APPLICATION, RDD_JOB, Fold
from airflow_provider_spark_datahub.conversion.identity import application_names, flow_identity, job_id_and_name
from airflow_provider_spark_datahub.conversion.limits import Cuts, summed
from airflow_provider_spark_datahub.conversion.properties import (
    PropertyLayers,
    airflow_tags,
    description,
    first_wins,
    owner_names,
    property_layers,
)
from airflow_provider_spark_datahub.conversion.proposals import SharedObject
from airflow_provider_spark_datahub.conversion.run_facets import NO_DETAILS, RunDetails, details_of
from airflow_provider_spark_datahub.conversion.run_lineage import RunLineage, lineage_of
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

_Datasets = tuple[EventDataset, ...]
_Properties = tuple[dict[str, str], dict[str, str], Mapping[str, int]]
REMEMBERED, REMEMBERED_EDGES = 256, 4096
"""How many lineages are remembered, and how many column edges they have together."""


class SingleEvents:
    """Makes jobs of single events. It remembers the datasets of the last ones, which the events of a run repeat."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._remembered: dict[tuple[_Datasets, _Datasets, str, bool, str], tuple[RunLineage, Mapping[str, int]]] = {}
        self._edges = 0

    def job(self, event: RunEvent) -> JobLineage:
        """The job that the event tells of.

        :raises EventError: where nothing tells which platform ran the job.
        """
        settings = self._settings
        app_name, session_name = application_names(event)
        flow = flow_identity(event, settings, app_name or session_name)
        job_id, job_name = job_id_and_name(event, settings)
        lineage, cut = self._lineage(event)
        properties_of_job, properties_of_flow, cut_properties = self._properties(event)
        run, described, cut_details = self._details(event)
        owners = owner_names(event)
        return JobLineage(
            flow=flow,
            job_id=job_id,
            job_name=job_name,
            run_id=event.run_id,
            flow_properties=properties_of_flow,
            job_properties=properties_of_job,
            description=described,
            owners=tuple(dict.fromkeys(owners)) if owners else (),
            tags=settings.tags or airflow_tags(event),
            inputs=lineage.inputs,
            outputs=lineage.outputs,
            fine_grained=lineage.fine_grained,
            created_ms=event.time_ms,
            start_ms=event.time_ms,
            end_ms=event.time_ms,
            result=_RESULTS.get(event.type),
            started=event.type in ("START", "RUNNING"),
            adds_only=settings.use_patch or event.type in FAILED_TYPES,
            parent_instance=urns.dpi_urn(event.parent_run_id) if event.parent_run_id else None,
            upstream_jobs=(settings.parent_job_urn,) if settings.parent_job_urn else (),
            unusable=lineage.unusable,
            column_gaps=lineage.column_gaps,
            operations=lineage.operations,
            run=run,
            partitions=lineage.partitions,
            cut=summed((cut, cut_properties, cut_details)) if cut_properties or cut_details else cut,
            tests=lineage.tests,
            is_application=event.job_type == APPLICATION,
        )

    def _properties(self, event: RunEvent) -> _Properties:
        # The plan of a query is long, and another one in the next query.
        read = _properties if self._settings.capture_spark_plan else _properties_again
        layers = property_layers(event, spark_plan=self._settings.capture_spark_plan)
        return read(layers, self._settings.max_string_length)

    def _details(self, event: RunEvent) -> tuple[RunDetails, str | None, Mapping[str, int]]:
        """Of the run, and the job's description, with how much of them was too long."""
        run, described = details_of(event) or NO_DETAILS, description(event)
        cuts = Cuts(self._settings.max_string_length)
        kept = cuts.properties(run.properties)
        if kept is not run.properties:
            run = replace(run, properties=kept)
        return run, cuts.text(described) if described else None, cuts.counts

    def _lineage(self, event: RunEvent) -> tuple[RunLineage, Mapping[str, int]]:
        """With how much of it was too long for the limits."""
        if self._settings.capture_operations or self._settings.capture_test_results:
            # Operations have the event's time and run, and tests may be told by the run alone.
            return self._read(event)
        # All that the lineage of a run depends on; datasets that came as the same text are the same object.
        rdd_job = event.job_name if event.job_type == RDD_JOB else ""
        told = (event.inputs, event.outputs, event.sql, event.type in FAILED_TYPES, rdd_job)
        lineage = self._remembered.get(told)
        if lineage is None:
            lineage = self._read(event)
            if len(self._remembered) >= REMEMBERED or self._edges >= REMEMBERED_EDGES:
                self._remembered.clear()
                self._edges = 0
            self._remembered[told] = lineage
            self._edges += len(lineage[0].fine_grained)
        return lineage

    def _read(self, event: RunEvent) -> tuple[RunLineage, Mapping[str, int]]:
        fold, cuts = Fold(self._settings), Cuts(self._settings.max_string_length)
        fold.add(event)
        (application,) = fold.applications()
        namer = DatasetNamer(self._settings, fold.symlinks.by_dataset)
        return lineage_of(application, namer, self._settings, cuts), cuts.counts


def _properties(layers: PropertyLayers, longest: int) -> _Properties:
    """Of the job and of the flow, without the times that only a whole application has, and how much was too long."""
    cuts = Cuts(longest)
    job, flow = first_wins([layers])
    for properties, times in ((job, JOB_TIMES), (flow, FLOW_TIMES)):
        for time in times:
            properties.pop(time, None)
    return cuts.properties(job), cuts.properties(flow), cuts.counts


@lru_cache(maxsize=512)
def _properties_again(layers: PropertyLayers, longest: int) -> _Properties:
    job, flow, counts = _properties(layers, longest)
    return SharedObject(job), SharedObject(flow), counts


_RESULTS = {kind: RunResult("FAILURE" if kind in FAILED_TYPES else "SUCCESS", kind) for kind in TERMINAL_TYPES}
