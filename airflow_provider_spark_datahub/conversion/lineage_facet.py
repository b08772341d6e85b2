"""The ``lineage`` facet of datasets and jobs, which follows ``columnLineage`` in OpenLineage's spec, as that facet."""

from __future__ import annotations

from typing import Any

from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    EventDataset,
    Facets,
    JsonObject,
    as_object,
    as_objects,
    as_text,
)

LINEAGE = "lineage"


def as_column_lineage(facet: JsonObject) -> dict[str, Any]:
    """The ``columnLineage`` facet that would have told the same. Jobs among the inputs are no datasets."""
    fields = {
        name: {"inputFields": _dataset_inputs(as_object(field))}
        for name, field in as_object(facet.get("fields")).items()
    }
    return {"fields": fields, "dataset": _dataset_inputs(facet)}


def facets_of_output(job_facets: Facets, output: EventDataset) -> Facets:
    """The facets of an output with what the job's ``lineage`` facet tells of it."""
    for entry in as_objects(job_facets[LINEAGE].get("entries")):
        if DatasetId(as_text(entry.get("namespace")), as_text(entry.get("name"))) == output.id:
            return Facets({LINEAGE: entry, "schema": output.facets["schema"]})
    return Facets()


def _dataset_inputs(entry: JsonObject) -> list[JsonObject]:
    return [one for one in as_objects(entry.get("inputs")) if one.get("type", "DATASET") == "DATASET"]
