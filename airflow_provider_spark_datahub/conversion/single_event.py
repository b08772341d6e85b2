"""One run event by itself as a job: the query that it tells of (``coalesce_jobs`` off)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

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
from airflow_provider_spark_datahub.conversion.limits import Cuts
from airflow_provider_spark_datahub.conversion.properties import (
    airflow_tags,
    description,
    first_wins,
    owner_names,
    property_layers,
)
from airflow_provider_spark_datahub.conversion.run_facets import RunDetails, details_of
from airflow_provider_spark_datahub.conversion.run_lineage import RunLineage, lineage_of
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

_Datasets = tuple[EventDataset, ...]
_REMEMBERED = 64


class SingleEvents:
    """Makes jobs of single events. It remembers the datasets of the last ones, which the events of a run repeat."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._remembered: dict[tuple[_Datasets, _Datasets, str, bool, str], tuple[RunLineage, Counter[str]]] = {}

    def job(self, event: RunEvent) -> JobLineage:
        """The job that the event tells of.

        :raises EventError: where nothing tells which platform ran the job.
        """
        settings = self._settings
        app_name, session_name = application_names(event)
        flow = flow_identity(event, settings, app_name or session_name)
        job_id, job_name = job_id_and_name(event, settings)
        lineage, cut = self._lineage(event)
        cuts = Cuts(settings.max_string_length)
        job_properties, flow_properties = map(cuts.properties, self._properties(event))
        run = details_of(event) or RunDetails()
        run = replace(run, properties=cuts.properties(run.properties))
        described = cuts.text(description(event) or "") or None
        return JobLineage(
            flow=flow,
            job_id=job_id,
            job_name=job_name,
            run_id=event.run_id,
            flow_properties=flow_properties,
            job_properties=job_properties,
            description=described,
            owners=tuple(dict.fromkeys(owner_names(event))),
            tags=settings.tags or airflow_tags(event),
            inputs=lineage.inputs,
            outputs=lineage.outputs,
            fine_grained=lineage.fine_grained,
            created_ms=event.time_ms,
            start_ms=event.time_ms,
            end_ms=event.time_ms,
            result=_result(event),
            started=event.type in ("START", "RUNNING"),
            adds_only=settings.use_patch or event.type in FAILED_TYPES,
            parent_instance=urns.dpi_urn(event.parent_run_id) if event.parent_run_id else None,
            upstream_jobs=(settings.parent_job_urn,) if settings.parent_job_urn else (),
            unusable=lineage.unusable,
            column_gaps=lineage.column_gaps,
            operations=lineage.operations,
            run=run,
            partitions=lineage.partitions,
            cut=cuts.counts + cut if cuts.counts else cut,
            tests=lineage.tests,
            is_application=event.job_type == APPLICATION,
        )

    def _properties(self, event: RunEvent) -> tuple[dict[str, str], dict[str, str]]:
        """Of the job and of the flow, without the times that only a whole application has."""
        layers = property_layers(event, spark_plan=self._settings.capture_spark_plan)
        job, flow = first_wins([layers])
        for properties, times in ((job, JOB_TIMES), (flow, FLOW_TIMES)):
            for time in times:
                properties.pop(time, None)
        return job, flow

    def _lineage(self, event: RunEvent) -> tuple[RunLineage, Counter[str]]:
        """With how much of it was too long for the limits."""
        if self._settings.capture_operations or self._settings.capture_test_results:
            # Operations have the event's time and run, and tests may be told by the run alone.
            return self._read(event)
        # All that the lineage of a run depends on; datasets that came as the same text are the same object.
        rdd_job = event.job_name if event.job_type == RDD_JOB else ""
        told = (event.inputs, event.outputs, event.sql, event.type in FAILED_TYPES, rdd_job)
        lineage = self._remembered.get(told)
        if lineage is None:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            lineage = self._remembered[told] = self._read(event)
        return lineage

    def _read(self, event: RunEvent) -> tuple[RunLineage, Counter[str]]:
        fold, cuts = Fold(self._settings), Cuts(self._settings.max_string_length)
        fold.add(event)
        (application,) = fold.applications()
        namer = DatasetNamer(self._settings, fold.symlinks.by_dataset)
        return lineage_of(application, namer, self._settings, cuts), cuts.counts


def _result(event: RunEvent) -> RunResult | None:
    if event.type not in TERMINAL_TYPES:
        return None
    return RunResult("FAILURE" if event.type in FAILED_TYPES else "SUCCESS", event.type)
