"""Proposals of a job with its run and its lineage, in the order of the conversion rules (section
7).

DataHub derives lineage of tables through a DataJob as the product of its inputs and outputs: an
application has a DataJob for each output where that would make false pairs (section 7.8).

Tests: ``tests/conversion/test_proposals.py``, ``tests/conversion/test_data_jobs.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetName
from airflow_provider_spark_datahub.conversion.events import STATIC
from airflow_provider_spark_datahub.conversion.facets.dataset import NO_METADATA
from airflow_provider_spark_datahub.conversion.facets.run import (
    KIND,
    ProcessInstance,
    partition_spec,
    run_event,
)
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.proposals import (
    APPLICATION_JOB,
    Proposal,
    added_tags,
    audit_stamp,
    described,
    pointer_part,
    status,
)
from airflow_provider_spark_datahub.conversion.runs.coalesce import (
    JobDefinition,
    JobLineage,
    JobRun,
)
from airflow_provider_spark_datahub.conversion.runs.evidence import STATEMENT_PROPERTY
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset, Operation
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.foundation.memory import grouped_by

_EDGES = "dataJobInputOutput"
_Owners = Callable[[str, str], Iterator[Proposal]]
_Datasets = Mapping[str, Mapping[str, str]]
"""Properties of edges by the dataset's URN."""
_MOST_SINGLE_OUTPUTS = 100
"""Most outputs with a DataJob each; of more, those with equal inputs share one."""


def proposals_of(job: JobLineage, settings: LineageSettings) -> list[Proposal]:
    """Return the proposals of a job, its flow, its run and its datasets."""
    lineage, urn, run_urn = job.lineage, job.job_urn, job.run_urn
    datasets = (*lineage.inputs.items(), *lineage.outputs.items())
    own, *of_outputs = _data_jobs_of(job, settings)
    owners = _owners(job.definition, settings, job.run.end_ms)
    return [
        *_flow(job.definition, settings),
        *_job(own.definition, urn, lineage.statements, settings),
        *_classification(job.definition, settings),
        *owners("dataFlow", job.definition.flow.urn),
        *chain.from_iterable(_job_of_outputs(each, owners, settings) for each in of_outputs),
        *_of_datasets(datasets, settings),
        *map(_operation, job.operations),
        *chain.from_iterable(each.edges(job.run.end_ms) for each in (own, *of_outputs)),
        *_run(job, urn, run_urn),
    ]


def _flow(job: JobDefinition, settings: LineageSettings) -> Iterator[Proposal]:
    flow = job.flow
    info: dict[str, Any] = {"customProperties": job.flow_properties, "name": flow.flow_id}
    if job.description:
        info["description"] = job.description
    return described("dataFlow", flow.urn, info, flow.orchestrator, settings.platform_instance)


def _job(
    job: JobDefinition, urn: str, statements: Mapping[str, str], settings: LineageSettings
) -> Iterator[Proposal]:
    named = {f"{STATEMENT_PROPERTY}{name}": text for name, text in statements.items()}
    info: dict[str, Any] = {"customProperties": {**job.properties, **named}, "name": job.name}
    if job.description:
        info["description"] = job.description
    info["type"] = {"string": job.flow.orchestrator}
    info["flowUrn"] = job.flow.urn
    if job.created_ms is not None:
        info["created"] = {"time": job.created_ms}
    yield from described("dataJob", urn, info, job.flow.orchestrator, settings.platform_instance)
    yield from added_tags("dataJob", urn, sorted({urns.tag_urn(tag) for tag in job.job_tags}))


def _job_of_outputs(
    job: _DataJob, owners: _Owners, settings: LineageSettings
) -> Iterator[Proposal]:
    """Yield the DataJob of an output, with the owners of its flow."""
    yield from _job(job.definition, job.urn, {}, settings)
    yield from owners("dataJob", job.urn)


def _classification(job: JobDefinition, settings: LineageSettings) -> Iterator[Proposal]:
    """Yield tags and domains of the flow."""
    urn = job.flow.urn
    if job.tags is not None:
        tags = [urns.tag_urn(tag) for tag in sorted(job.tags, key=_ignoring_case)]
        if settings.use_patch and tags:
            yield from added_tags("dataFlow", urn, tags)
        else:
            yield Proposal("dataFlow", urn, "globalTags", {"tags": [{"tag": tag} for tag in tags]})
    if settings.domains and (domains := set(settings.usable_domains)):
        yield Proposal("dataFlow", urn, "domains", {"domains": sorted(domains, key=_ignoring_case)})


def _owners(job: JobDefinition, settings: LineageSettings, time_ms: int | None) -> _Owners:
    """Return a function that yields the aspect with the owners of an entity, if there are any."""
    owners = dict.fromkeys(urns.owner_urn(owner) for owner in (*settings.owners, *job.owners))
    listed = [
        {"owner": owner, "type": "DEVELOPER", "source": {"type": "SERVICE"}} for owner in owners
    ]
    aspect = {"owners": listed, "ownerTypes": {}, "lastModified": audit_stamp(time_ms)}

    def of_entity(entity_type: str, urn: str) -> Iterator[Proposal]:
        if listed:
            yield Proposal(entity_type, urn, "ownership", aspect)

    return of_entity


def _ignoring_case(text: str) -> tuple[str, str]:
    return text.lower(), text


def _of_datasets(
    datasets: Collection[tuple[str, JobDataset]], settings: LineageSettings
) -> list[Proposal]:
    proposals: list[Proposal] = []
    for urn, dataset in in_time(datasets):
        if settings.datasets in ("keys", "schemas"):
            proposals += _materialized(dataset.name)
        if dataset.schema is not None:
            proposals.append(Proposal("dataset", urn, "schemaMetadata", dataset.schema))
        if dataset.metadata is not NO_METADATA:
            proposals += dataset.metadata.proposals(urn)
    return proposals


def _materialized(name: DatasetName) -> tuple[Proposal, Proposal]:
    key = {
        "platform": urns.platform_urn(name.platform),
        "name": urns.encode(name.full_name),
        "origin": name.env,
    }
    return Proposal("dataset", name.urn, "datasetKey", key), status("dataset", name.urn)


def _operation(operation: Operation) -> Proposal:
    """Return the time-series aspect of an operation; GMS keeps one per dataset, time and message
    id.
    """
    rows, size, files = operation.statistics
    counts = {"size": size, "fileCount": files}
    custom = {key: str(value) for key, value in counts.items() if value is not None}
    optional = {
        "numAffectedRows": rows,
        "affectedDatasets": list(operation.previous) or None,
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


def input_output(
    urn: str,
    *,
    inputs: Mapping[str, Mapping[str, str]],
    outputs: Mapping[str, Mapping[str, str]],
    upstream_jobs: list[str],
    time_ms: int | None,
    patch: bool,
    fine_grained: Sequence[dict[str, Any]] = (),
) -> list[Proposal]:
    """Return the edges of a DataJob.

    :param inputs: properties of the edges by the dataset's URN; likewise the outputs.
    :param patch: add the edges to those in DataHub (no proposal if there are none), instead of
        replacing them.
    """
    stamp = audit_stamp(time_ms)
    aspect: dict[str, Any] = {
        "inputDatasets": [],
        "inputDatasetEdges": _edges(inputs, stamp),
        "outputDatasets": [],
        "outputDatasetEdges": _edges(outputs, stamp),
        "inputDatajobs": upstream_jobs,
        "fineGrainedLineages": fine_grained,
    }
    if not patch:
        return [Proposal("dataJob", urn, _EDGES, aspect)]
    operations = edge_patch(aspect, stamp)
    return [Proposal("dataJob", urn, _EDGES, operations, "PATCH")] if operations else []


def edge_patch(
    aspect: Mapping[str, Any], stamp: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the operations of a patch that adds the edges of a ``dataJobInputOutput`` aspect.

    :param aspect: as in :func:`input_output`.
    :param stamp: audit stamp of upstream jobs; by default the audit stamp of the aspect's edges.
    """
    edges = {field: aspect[field] for field in ("inputDatasetEdges", "outputDatasetEdges")}
    if stamp is None:
        stamp = next(
            (edge["lastModified"] for listed in edges.values() for edge in listed),
            audit_stamp(None),
        )
    jobs = [{"destinationUrn": urn, "lastModified": stamp} for urn in aspect["inputDatajobs"]]
    return [
        *(_added_edge(field, edge) for field, listed in edges.items() for edge in in_time(listed)),
        *(_added_edge("inputDatajobEdges", edge) for edge in jobs),
        *_added_columns(aspect["fineGrainedLineages"]),
    ]


def patched_edges(proposals: Iterable[Proposal]) -> dict[str, set[str]]:
    """Return the paths of the edges that patches add, by the DataJob's URN."""
    paths: dict[str, set[str]] = {}
    for proposal in proposals:
        if proposal.aspect_name == _EDGES and proposal.change_type == "PATCH":
            paths.setdefault(proposal.entity_urn, set()).update(
                operation["path"] for operation in proposal.aspect
            )
    return paths


def retractions(
    added: Mapping[str, Collection[str]], final: Collection[Proposal]
) -> list[Proposal]:
    """Return patches that remove the edges that snapshots of a running job added and its end does
    not report.

    :param added: :func:`patched_edges` of the snapshots.
    :param final: all proposals of the job's end.
    """
    replaced = {
        proposal.entity_urn
        for proposal in final
        if proposal.aspect_name == _EDGES and proposal.change_type == "UPSERT"
    }
    kept = patched_edges(final)
    outdated = {
        urn: sorted(set(paths) - kept.get(urn, set()))
        for urn, paths in added.items()
        if urn not in replaced
    }
    return [
        Proposal(
            "dataJob", urn, _EDGES, [{"op": "remove", "path": path} for path in paths], "PATCH"
        )
        for urn, paths in sorted(outdated.items())
        if paths
    ]


def _edges(
    datasets: Mapping[str, Mapping[str, str]], stamp: dict[str, Any]
) -> list[dict[str, Any]]:
    return [
        {
            "destinationUrn": urn,
            "lastModified": stamp,
            **({"properties": dict(properties)} if properties else {}),
        }
        for urn, properties in in_time(datasets.items())
    ]


def _added_edge(field: str, edge: dict[str, Any]) -> dict[str, Any]:
    return {"op": "add", "path": f"/{field}/{pointer_part(edge['destinationUrn'])}", "value": edge}


def _added_columns(fine_grained: Collection[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one operation per pair of columns, as acryl-datahub's ``DataJobPatchBuilder`` does."""
    for lineage in in_time(fine_grained):
        transform = pointer_part(lineage["transformOperation"] or "NONE")
        for upstream in lineage["upstreams"]:
            for downstream in lineage["downstreams"]:
                path = f"/fineGrainedLineages/{transform}/{pointer_part(downstream)}/NONE/{pointer_part(upstream)}"
                yield {
                    "op": "add",
                    "path": path,
                    "value": {"confidenceScore": lineage["confidenceScore"]},
                }


def _run(job: JobLineage, job_urn: str, urn: str) -> list[Proposal]:
    run, details = job.run, job.run.details
    if run.id.startswith(STATIC):
        return []
    added = run.session_properties | run.execution_counts | run.dataset_properties
    instance = ProcessInstance(
        urn,
        name=run.id,
        created_ms=run.end_ms,
        properties={**details.properties, **added} if added else details.properties,
        url=details.url,
        run_type=details.run_type,
        template_urn=job_urn,
        parent_urn=run.parent_urn,
    )
    return [
        Proposal(KIND, urn, "dataProcessInstanceInput", {"inputs": list(job.lineage.inputs)}),
        Proposal(KIND, urn, "dataProcessInstanceOutput", {"outputs": list(job.lineage.outputs)}),
        *instance.proposals(),
        *_run_events(run, urn, job.lineage.partitions),
    ]


def _run_events(run: JobRun, urn: str, partitions: tuple[str, ...]) -> Iterator[Proposal]:
    if run.start_ms is None or run.end_ms is None:
        return
    shared: dict[str, Any] = {
        "interval": run.details.interval,
        "partitions": partitions,
        "attempt": run.details.attempt,
    }
    if run.started:
        yield run_event(urn, run.start_ms, "STARTED", **shared)
    if run.result is not None:
        kind = run.result.native
        shared["durationMillis"] = run.end_ms - run.start_ms if run.started else None
        result = {"type": run.result.type, "nativeResultType": kind}
        yield run_event(urn, run.end_ms, "COMPLETE", kind=kind, result=result, **shared)


# -- DataJobs of one application


class _DataJob(msgspec.Struct, gc=False):
    """DataJob with its datasets.

    :param adds: its edges are added to those in DataHub; else they replace them.
    """

    definition: JobDefinition
    inputs: _Datasets
    outputs: _Datasets
    fine_grained: Sequence[dict[str, Any]]
    adds: bool

    @property
    def urn(self) -> str:
        """Its URN."""
        return urns.datajob_urn(self.definition.flow.urn, self.definition.id)

    def edges(self, time_ms: int | None) -> list[Proposal]:
        """Return the proposals of its edges."""
        return input_output(
            self.urn,
            inputs=self.inputs,
            outputs=self.outputs,
            upstream_jobs=list(self.definition.upstream_jobs),
            fine_grained=self.fine_grained,
            time_ms=time_ms,
            patch=self.adds,
        )


def _data_jobs_of(job: JobLineage, settings: LineageSettings) -> list[_DataJob]:
    """Return the DataJobs of an application, its own first.

    If each input reaches each output, it is the only one. Edges that are only added go to the
    DataJobs of outputs: nobody knows which edges they would meet in the application's.
    """
    lineage = job.lineage
    inputs, outputs = _properties(lineage.inputs), _properties(lineage.outputs)
    adds = job.only_adds
    is_exact = all(write.keys() == inputs.keys() for write in lineage.writes.values())
    may_split = settings.exact_pairs and job.may_split
    if not may_split or (is_exact and not adds):
        return [_DataJob(job.definition, inputs, outputs, lineage.fine_grained, adds)]
    reaching = {urn for write in lineage.writes.values() for urn in write}
    unwritten = {urn: edge for urn, edge in inputs.items() if urn not in reaching}
    if adds and not (job.is_shared or settings.use_patch):
        # A complete run may have left outputs in it, which these inputs would meet.
        unwritten = {}
    own = _DataJob(job.definition, unwritten, {}, (), adds)
    return [own, *_of_outputs(job, outputs, settings)]


def _properties(datasets: Mapping[str, JobDataset]) -> _Datasets:
    return {urn: dataset.edge_properties for urn, dataset in datasets.items()}


def _of_outputs(
    job: JobLineage, outputs: _Datasets, settings: LineageSettings
) -> Iterator[_DataJob]:
    properties = {APPLICATION_JOB: job.job_urn}
    # Each has one downstream.
    columns = grouped_by(
        job.lineage.fine_grained,
        lambda lineage: urns.dataset_of_field(lineage["downstreams"][0]),
    )
    groups: Iterable[list[str]] = ([urn] for urn in outputs)
    if len(outputs) > _MOST_SINGLE_OUTPUTS:
        groups = grouped_by(
            outputs, lambda urn: frozenset(job.lineage.writes.get(urn, ()))
        ).values()
    for urns_of_group in groups:
        names = [job.lineage.outputs[urn].name for urn in urns_of_group]
        inputs = job.lineage.writes.get(urns_of_group[0], {})
        definition = structs.replace(
            job.definition,
            id=_id_of_outputs(job.definition.id, names, inputs, settings),
            name=_name_of_outputs(names),
            properties=properties,
        )
        yield _DataJob(
            definition,
            dict(sorted(inputs.items())),
            {urn: outputs[urn] for urn in urns_of_group},
            [lineage for urn in urns_of_group for lineage in columns.get(urn, ())],
            job.only_adds,
        )


def _id_of_outputs(
    job_id: str, names: Sequence[DatasetName], inputs: _Datasets, settings: LineageSettings
) -> str:
    """Return the id of the DataJob of outputs. That of a single one depends on its name alone."""
    if len(names) > 1:
        digest = hashlib.sha256("\n".join(sorted(inputs)).encode(errors="replace")).hexdigest()
        return urns.output_job_id(job_id, f"outputs.{digest[:16]}")
    (name,) = names
    env = "" if name.env == settings.env else f".{name.env}"
    return urns.output_job_id(job_id, f"{name.platform}.{name.full_name}{env}")


def _name_of_outputs(names: Sequence[DatasetName]) -> str:
    """Return the short name of the first output, for people."""
    name = names[0].name.rstrip("/")
    short = name.rpartition("/" if "/" in name else ".")[2] or name
    return f"{short} and {len(names) - 1} more" if len(names) > 1 else short
