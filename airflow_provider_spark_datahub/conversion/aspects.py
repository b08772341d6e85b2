"""A job's lineage as proposals, in the order of the conversion rules (section 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetName
from airflow_provider_spark_datahub.conversion.facets.dataset import NO_NOTES, note_proposals, test_results
from airflow_provider_spark_datahub.conversion.facets.run import KIND, partition_spec, run_event, run_properties
from airflow_provider_spark_datahub.conversion.proposals import (
    Proposal,
    SharedObject,
    audit_stamp,
    platform_instance,
    pointer_part,
    status,
    upsert,
)
from airflow_provider_spark_datahub.conversion.runs.coalesce import JobLineage
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset, Operation
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

_TAG_KEYS = {"tags": ["tag", "attribution␟source"]}


def proposals_of(job: JobLineage, settings: LineageSettings) -> list[Proposal]:
    """Everything that is to be written of a job and its run."""
    return [
        *_flow(job, settings),
        *_job(job),
        *_classification(job, settings),
        *_datasets(job.inputs, settings),
        *_datasets(job.outputs, settings),
        *(_operation(one) for one in job.operations),
        *_input_output(job),
        *_run(job),
    ]


def _flow(job: JobLineage, settings: LineageSettings) -> list[Proposal]:
    flow, properties = job.flow, job.flow_properties
    make_info = _flow_info_again if type(properties) is SharedObject else _flow_info
    proposals = [make_info(flow.urn, flow.flow_id, properties, job.description), status("dataFlow", flow.urn)]
    if settings.platform_instance:
        proposals.append(platform_instance("dataFlow", flow.urn, flow.orchestrator, settings.platform_instance))
    return proposals


def _flow_info(urn: str, name: str, properties: Mapping[str, str], description: str | None) -> Proposal:
    info: dict[str, Any] = {"customProperties": properties, "name": name}
    if description:
        info["description"] = description
    return upsert("dataFlow", urn, "dataFlowInfo", info)


_flow_info_again = lru_cache(maxsize=256)(_flow_info)


def _job(job: JobLineage) -> list[Proposal]:
    info: dict[str, Any] = {"customProperties": job.job_properties, "name": job.job_name}
    if job.description:
        info["description"] = job.description
    info["type"] = {"string": job.flow.orchestrator}
    info["flowUrn"] = job.flow.urn
    if job.created_ms is not None:
        info["created"] = {"time": job.created_ms}
    urn = job.job_urn
    return [Proposal("dataJob", urn, "dataJobInfo", info), status("dataJob", urn)]


def _classification(job: JobLineage, settings: LineageSettings) -> Iterator[Proposal]:
    """Tags, domains and owners of the flow."""
    urn = job.flow.urn
    if job.tags is not None:
        tags = [urns.tag_urn(tag) for tag in sorted(job.tags, key=_ignoring_case)]
        if settings.use_patch and tags:
            operations = [{"op": "add", "path": f"/tags/{pointer_part(tag)}/", "value": {"tag": tag}} for tag in tags]
            patch = {"arrayPrimaryKeys": _TAG_KEYS, "patch": operations}
            yield Proposal("dataFlow", urn, "globalTags", patch, "PATCH")
        else:
            yield Proposal("dataFlow", urn, "globalTags", {"tags": [{"tag": tag} for tag in tags]})
    if settings.domains and (domains := _usable_domains(settings)):
        yield Proposal("dataFlow", urn, "domains", {"domains": domains})
    if settings.owners or job.owners:
        owners = dict.fromkeys(urns.owner_urn(owner) for owner in (*settings.owners, *job.owners))
        listed = [{"owner": owner, "type": "DEVELOPER", "source": {"type": "SERVICE"}} for owner in owners]
        aspect = {"owners": listed, "ownerTypes": {}, "lastModified": audit_stamp(job.end_ms)}
        yield Proposal("dataFlow", urn, "ownership", aspect)


def unusable_domains(settings: LineageSettings) -> list[str]:
    """Configured domains that are no URN of a domain: they are left out."""
    return [domain for domain in settings.domains if not domain.startswith("urn:li:domain:")]


def _usable_domains(settings: LineageSettings) -> list[str]:
    return sorted(set(settings.domains).difference(unusable_domains(settings)), key=_ignoring_case)


def _ignoring_case(text: str) -> tuple[str, str]:
    return text.lower(), text


def _datasets(datasets: dict[str, JobDataset], settings: LineageSettings) -> list[Proposal]:
    proposals: list[Proposal] = []
    for urn, dataset in datasets.items():
        if settings.materialize_dataset:
            proposals += _materialized(dataset.name)
            schema = dataset.schema
            if settings.include_schema_metadata and schema is not None:
                make_schema = _schema_again if type(schema) is SharedObject else _schema
                proposals.append(make_schema(urn, schema))
        if dataset.notes is not NO_NOTES:
            proposals += note_proposals(urn, dataset.notes)
    return proposals


@lru_cache(maxsize=1024)
def _materialized(name: DatasetName) -> tuple[Proposal, Proposal]:
    key = {"platform": urns.platform_urn(name.platform), "name": urns.encode(name.full_name), "origin": name.env}
    return upsert("dataset", name.urn, "datasetKey", key), status("dataset", name.urn)


def _schema(urn: str, aspect: Mapping[str, Any]) -> Proposal:
    return upsert("dataset", urn, "schemaMetadata", aspect)


_schema_again = lru_cache(maxsize=64)(_schema)


def _operation(operation: Operation) -> Proposal:
    """A time-series aspect. GMS keeps one per dataset, time and message id: the run's keeps those of two runs apart,
    and a replay of one run from counting twice."""
    rows, size, files = operation.statistics
    counts = {"size": size, "fileCount": files}
    custom = {key: str(value) for key, value in counts.items() if value is not None}
    optional = {
        "numAffectedRows": rows,
        "affectedDatasets": [operation.previous] if operation.previous else None,
        "customProperties": custom or None,
    }
    aspect = {
        "timestampMillis": operation.time_ms,
        "partitionSpec": partition_spec(None, operation.partitions),
        "messageId": operation.run_id,
        "operationType": operation.kind,
        "sourceType": "DATA_PROCESS",
        "lastUpdatedTimestamp": operation.time_ms,
        **{key: value for key, value in optional.items() if value is not None},
    }
    return Proposal("dataset", operation.dataset, "operation", aspect)


def _input_output(job: JobLineage) -> list[Proposal]:
    return input_output(
        job.job_urn,
        inputs={urn: dataset.edge_properties for urn, dataset in job.inputs.items()},
        outputs={urn: dataset.edge_properties for urn, dataset in job.outputs.items()},
        upstream_jobs=list(job.upstream_jobs),
        fine_grained=job.fine_grained,
        time_ms=job.end_ms,
        adds_only=job.adds_only,
    )


def input_output(
    urn: str,
    *,
    inputs: Mapping[str, Mapping[str, str]],
    outputs: Mapping[str, Mapping[str, str]],
    upstream_jobs: list[str],
    fine_grained: list[dict[str, Any]],
    time_ms: int | None,
    adds_only: bool,
) -> list[Proposal]:
    """A DataJob's edges: all of them, or as a patch that adds to what the catalogue holds (none, if it adds none).

    :param inputs: by URN, with the properties of the edge; likewise the outputs.
    """
    stamp = audit_stamp(time_ms)
    aspect = {
        "inputDatasets": [],
        "inputDatasetEdges": [_edge(*one, stamp) for one in inputs.items()],
        "outputDatasets": [],
        "outputDatasetEdges": [_edge(*one, stamp) for one in outputs.items()],
        "inputDatajobs": upstream_jobs,
        "fineGrainedLineages": fine_grained,
    }
    if not adds_only:
        return [Proposal("dataJob", urn, "dataJobInputOutput", aspect)]
    operations = added_edges(aspect, stamp)
    return [Proposal("dataJob", urn, "dataJobInputOutput", operations, "PATCH")] if operations else []


def added_edges(aspect: Mapping[str, Any], stamp: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The operations of a patch that adds what a ``dataJobInputOutput`` holds to what the catalogue does.

    :param aspect: as :func:`input_output` writes it.
    :param stamp: when the jobs upstream were seen; of the aspect's edges, where it has any.
    """
    edges = {field: aspect[field] for field in ("inputDatasetEdges", "outputDatasetEdges")}
    if stamp is None:
        stamp = next((edge["lastModified"] for listed in edges.values() for edge in listed), audit_stamp(None))
    jobs = [{"destinationUrn": one, "lastModified": stamp} for one in aspect["inputDatajobs"]]
    return [
        *(_added_edge(field, edge) for field, listed in edges.items() for edge in listed),
        *(_added_edge("inputDatajobEdges", edge) for edge in jobs),
        *_added_columns(aspect["fineGrainedLineages"]),
    ]


def _edge(urn: str, properties: Mapping[str, str], stamp: dict[str, Any]) -> dict[str, Any]:
    edge = {"destinationUrn": urn, "lastModified": stamp}
    return {**edge, "properties": dict(properties)} if properties else edge


def _added_edge(field: str, edge: dict[str, Any]) -> dict[str, Any]:
    return {"op": "add", "path": f"/{field}/{pointer_part(edge['destinationUrn'])}", "value": edge}


def _added_columns(fine_grained: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One operation per pair of columns, the way acryl-datahub's ``DataJobPatchBuilder`` spells them."""
    for lineage in fine_grained:
        transform = pointer_part(lineage["transformOperation"] or "NONE")
        for upstream in lineage["upstreams"]:
            for downstream in lineage["downstreams"]:
                path = f"/fineGrainedLineages/{transform}/{pointer_part(downstream)}/NONE/{pointer_part(upstream)}"
                yield {"op": "add", "path": path, "value": {"confidenceScore": lineage["confidenceScore"]}}


def _run(job: JobLineage) -> list[Proposal]:
    urn, run = job.run_urn, job.run
    proposals = [
        Proposal(KIND, urn, "dataProcessInstanceInput", {"inputs": list(job.inputs)}),
        Proposal(KIND, urn, "dataProcessInstanceOutput", {"outputs": list(job.outputs)}),
        *run_properties(
            urn,
            name=job.run_id,
            created_ms=job.end_ms,
            custom={**run.properties, **job.run_properties} if job.run_properties else run.properties,
            url=run.url,
            run_type=run.run_type,
        ),
        _relationships(urn, job.job_urn, job.parent_instance, tuple(run.upstream_runs)),
    ]
    if job.tests:
        proposals.append(Proposal(KIND, urn, "testResults", test_results(job.tests, job.end_ms)))
    return proposals + _run_events(job, urn)


@lru_cache(maxsize=512)
def _relationships(urn: str, job_urn: str, parent: str | None, upstream_runs: tuple[str, ...]) -> Proposal:
    aspect: dict[str, Any] = {"parentTemplate": job_urn}
    if parent:
        aspect["parentInstance"] = parent
    aspect["upstreamInstances"] = [urns.dpi_urn(run_id) for run_id in upstream_runs]
    return upsert(KIND, urn, "dataProcessInstanceRelationships", aspect)


def _run_events(job: JobLineage, urn: str) -> list[Proposal]:
    if job.start_ms is None or job.end_ms is None:
        return []
    events: list[Proposal] = []
    told: dict[str, Any] = {"interval": job.run.interval, "partitions": job.partitions, "attempt": job.run.attempt}
    if job.started:
        events.append(run_event(urn, job.start_ms, "STARTED", **told))
    if job.result is not None:
        events.append(
            run_event(
                urn,
                job.end_ms,
                "COMPLETE",
                kind=job.result.native,
                result={"type": job.result.type, "nativeResultType": job.result.native},
                durationMillis=job.end_ms - job.start_ms if job.started else None,
                **told,
            )
        )
    return events
