"""DataJobs of one application, so that the pairs that DataHub derives from them are true.

DataHub derives lineage of tables through a DataJob as the product of its inputs and
outputs. See the conversion rules, section 7.8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetName
from airflow_provider_spark_datahub.conversion.proposals import APPLICATION_JOB
from airflow_provider_spark_datahub.conversion.runs.coalesce import JobDefinition, JobLineage
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

_MOST_SINGLE_OUTPUTS = 100
"""Most outputs with a DataJob each; of more, those with equal inputs share one."""

_Edges = Mapping[str, Mapping[str, str]]
"""Properties of edges by the dataset's URN."""


class DataJob(msgspec.Struct, gc=False):
    """DataJob with its datasets.

    :param is_of_outputs: it is that of one or several outputs, beside the application's.
    :param adds: its edges are added to those in DataHub; else they replace them.
    """

    definition: JobDefinition
    inputs: _Edges
    outputs: _Edges
    fine_grained: Sequence[dict[str, Any]]
    adds: bool
    is_of_outputs: bool = False

    @property
    def urn(self) -> str:
        """Its URN."""
        return urns.datajob_urn(self.definition.flow.urn, self.definition.id)


def data_jobs_of(job: JobLineage, settings: LineageSettings) -> list[DataJob]:
    """Return the DataJobs of an application, its own first.

    If each input reaches each output, it is the only one. Edges that are only added go to the
    DataJobs of outputs: nobody knows which edges they would meet in the application's.
    """
    lineage = job.lineage
    inputs, outputs = _properties(lineage.inputs), _properties(lineage.outputs)
    adds = job.patch_edges or job.is_shared
    is_single = not (settings.exact_pairs and job.may_split)
    if is_single or (_is_exact(lineage.writes, inputs) and not adds):
        return [DataJob(job.definition, inputs, outputs, lineage.fine_grained, adds)]
    reaching = {urn for write in lineage.writes.values() for urn in write}
    unwritten = {urn: edge for urn, edge in inputs.items() if urn not in reaching}
    if adds and not (job.is_shared or settings.use_patch):
        # A complete run may have left outputs in it, which these inputs would meet.
        unwritten = {}
    own = DataJob(job.definition, unwritten, {}, (), adds)
    return [own, *_of_outputs(job, outputs, settings)]


def _is_exact(writes: Mapping[str, _Edges], inputs: _Edges) -> bool:
    return all(write.keys() == inputs.keys() for write in writes.values())


def _properties(datasets: Mapping[str, JobDataset]) -> _Edges:
    return {urn: dataset.edge_properties for urn, dataset in datasets.items()}


def _of_outputs(job: JobLineage, outputs: _Edges, settings: LineageSettings) -> Iterator[DataJob]:
    columns = _by_output(job.lineage.fine_grained)
    properties = {APPLICATION_JOB: job.job_urn}
    for urns_of_group in _groups(job.lineage.writes, outputs):
        names = [job.lineage.outputs[urn].name for urn in urns_of_group]
        inputs = job.lineage.writes.get(urns_of_group[0], {})
        definition = structs.replace(
            job.definition,
            id=_id(job.definition.id, names, inputs, settings),
            name=_name(names),
            properties=properties,
        )
        yield DataJob(
            definition,
            dict(sorted(inputs.items())),
            {urn: outputs[urn] for urn in urns_of_group},
            [lineage for urn in urns_of_group for lineage in columns.get(urn, ())],
            job.patch_edges or job.is_shared,
            is_of_outputs=True,
        )


def _groups(writes: Mapping[str, _Edges], outputs: Iterable[str]) -> list[list[str]]:
    """Return the outputs of each DataJob."""
    groups: dict[object, list[str]] = {}
    listed = list(outputs)
    for urn in listed:
        key = frozenset(writes.get(urn, ())) if len(listed) > _MOST_SINGLE_OUTPUTS else urn
        groups.setdefault(key, []).append(urn)
    return list(groups.values())


def _by_output(fine_grained: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return lineages of columns by the URN of their output. Each has one downstream."""
    by_output: dict[str, list[dict[str, Any]]] = {}
    for lineage in fine_grained:
        output = urns.dataset_of_field(lineage["downstreams"][0])
        by_output.setdefault(output, []).append(lineage)
    return by_output


def _id(
    job_id: str, names: Sequence[DatasetName], inputs: _Edges, settings: LineageSettings
) -> str:
    """Return the id of the DataJob of outputs. That of a single one depends on its name alone."""
    if len(names) > 1:
        digest = hashlib.sha256("\n".join(sorted(inputs)).encode(errors="replace")).hexdigest()
        return urns.output_job_id(job_id, f"outputs.{digest[:16]}")
    (name,) = names
    env = "" if name.env == settings.env else f".{name.env}"
    return urns.output_job_id(job_id, f"{name.platform}.{name.full_name}{env}")


def _name(names: Sequence[DatasetName]) -> str:
    """Return the short name of the first output, for people."""
    name = names[0].name.rstrip("/")
    short = name.rpartition("/" if "/" in name else ".")[2] or name
    return f"{short} and {len(names) - 1} more" if len(names) > 1 else short
