"""Retirement of DataJobs: runs of a task compared with what earlier ones sent to DataHub.

Tests: ``tests/conversion/test_retirement.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.proposals import APPLICATION_JOB, Proposal, status
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey

_EDGES = "dataJobInputOutput"
_AIRFLOW_JOB = "urn:li:dataJob:(urn:li:dataFlow:(airflow,"
_INPUTS, _OUTPUTS, _COLUMNS = "inputDatasetEdges", "outputDatasetEdges", "fineGrainedLineages"
_LISTS = (_INPUTS, _OUTPUTS, _COLUMNS, "inputDatasets", "outputDatasets", "inputDatajobs")


class JobEdges(msgspec.Struct, frozen=True):
    """URNs of the datasets of a DataJob."""

    inputs: frozenset[str]
    outputs: frozenset[str]


class ApplicationRecord(msgspec.Struct, frozen=True):
    """DataJobs of a Spark application in DataHub.

    :param time_ms: end of the application's last run.
    :param jobs: edges that the last complete run gave each DataJob, by its URN; ``None`` if edges
        were only added to it. The application's own DataJob is one of them.
    """

    time_ms: int
    jobs: dict[str, JobEdges | None]


class JobRecord(msgspec.Struct, frozen=True):
    """DataJobs that runs of a task sent through one connection.

    :param key: of the last run.
    :param applications: by the URN of the application's DataJob.
    """

    key: AttemptKey
    connection_id: str
    applications: dict[str, ApplicationRecord] = {}

    @property
    def jobs(self) -> set[str]:
        """URNs of the DataJobs of all applications."""
        return {job for application in self.applications.values() for job in application.jobs}


@dataclass(frozen=True, slots=True)
class Revision:
    """Proposals of a run after the comparison.

    :param before: record that is true whether the proposals are sent or not.
    :param after: record that is true once they are sent.
    """

    proposals: list[Proposal]
    before: JobRecord
    after: JobRecord


def revise(record: JobRecord, proposals: Sequence[Proposal]) -> Revision:
    """Compare the proposals of a run with what earlier runs of the task sent.

    A complete run replaces the application's own edges: DataJobs that it does not have any more are
    retired. Another run only adds edges, and those that a complete run gave are left out.
    """
    before, after = dict(record.applications), dict(record.applications)
    edges: dict[str, Sequence[dict[str, Any]]] = {}
    emptied: list[Proposal] = []
    retired: list[Proposal] = []
    for urn, run in _applications(proposals).items():
        earlier = record.applications.get(urn, ApplicationRecord(0, {}))
        # An earlier run may be converted after a later one.
        if run.jobs.get(urn) and run.time_ms >= earlier.time_ms:
            jobs = run.jobs
            # Several applications of one name: the first one replaces the edges, the others add.
            emptied += (_without_edges(job) for job, kept in jobs.items() if kept is None)
            for job in earlier.jobs.keys() - jobs.keys():
                retired += retirement(job)
        elif earlier.jobs or len(run.jobs) > 1:
            jobs = {**dict.fromkeys(run.jobs), **earlier.jobs}
            edges |= _missing_edges(proposals, run, earlier)
        else:
            continue
        after[urn] = ApplicationRecord(max(run.time_ms, earlier.time_ms), jobs)
        certain = dict(earlier.jobs.items() & jobs.items())
        all_jobs = dict.fromkeys([*earlier.jobs, *jobs])
        before[urn] = ApplicationRecord(earlier.time_ms or run.time_ms, all_jobs | certain)
    return Revision(
        [*emptied, *_with_edges(proposals, edges), *retired],
        msgspec.structs.replace(record, applications=before),
        msgspec.structs.replace(record, applications=after),
    )


def retirement(urn: str) -> tuple[Proposal, Proposal]:
    """Return the proposals that empty a DataJob and mark it as removed."""
    return _without_edges(urn), status("dataJob", urn, removed=True)


def _without_edges(urn: str) -> Proposal:
    return Proposal("dataJob", urn, _EDGES, {field: [] for field in _LISTS})


def _applications(proposals: Iterable[Proposal]) -> dict[str, ApplicationRecord]:
    """Return the DataJobs of each Spark application, with the edges that replace earlier ones."""
    time_ms = 0
    edges: dict[str, JobEdges] = {}
    jobs: dict[str, list[str]] = {}
    for proposal in proposals:
        urn, aspect = proposal.entity_urn, proposal.aspect
        if proposal.aspect_name == "dataProcessInstanceRunEvent":
            time_ms = max(time_ms, aspect.get("timestampMillis", 0))
        elif proposal.aspect_name == _EDGES and proposal.change_type == "UPSERT":
            edges[urn] = JobEdges(_destinations(aspect[_INPUTS]), _destinations(aspect[_OUTPUTS]))
        elif proposal.aspect_name == "dataJobInfo" and not urn.startswith(_AIRFLOW_JOB):
            application = aspect.get("customProperties", {}).get(APPLICATION_JOB, urn)
            jobs.setdefault(application, []).append(urn)
    return {
        application: ApplicationRecord(time_ms, {urn: edges.get(urn) for urn in of_application})
        for application, of_application in jobs.items()
    }


def _destinations(edges: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(edge["destinationUrn"] for edge in edges)


def _missing_edges(
    proposals: Iterable[Proposal], run: ApplicationRecord, earlier: ApplicationRecord
) -> dict[str, list[dict[str, Any]]]:
    """Return the operations that are left of the patches of each DataJob; none if DataHub has all."""
    inputs_of: defaultdict[str, set[str]] = defaultdict(set)
    for edges in earlier.jobs.values():
        for output in edges.outputs if edges else ():
            inputs_of[output] |= edges.inputs if edges else set()
    missing: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for proposal in proposals:
        urn = proposal.entity_urn
        is_patch = proposal.aspect_name == _EDGES and proposal.change_type == "PATCH"
        if is_patch and urn in run.jobs:
            missing[urn] += _missing(proposal.aspect, inputs_of)
    return missing


def _missing(
    operations: list[dict[str, Any]], inputs_of: Mapping[str, set[str]]
) -> list[dict[str, Any]]:
    targets = [_target(operation["path"]) for operation in operations]
    outputs = [urn for field, urn in targets if field == _OUTPUTS]
    if not outputs:
        return operations
    stored = set.intersection(*(inputs_of.get(output, set()) for output in outputs))
    sources = {target for target in targets if target[0] in (_INPUTS, _COLUMNS)}
    known = {source for source in sources if source[1] in stored}
    if known == sources and inputs_of.keys() >= {*outputs}:
        return []
    pairs = zip(operations, targets, strict=True)
    return [operation for operation, target in pairs if target not in known]


def _target(path: str) -> tuple[str, str]:
    """Return the list that an operation changes, and the dataset that it adds, or reads columns of."""
    field, urn = path.split("/")[1], path.rpartition("/")[2]
    urn = urn.replace("~1", "/").replace("~0", "~")
    return field, urns.dataset_of_field(urn) if field == _COLUMNS else urn


def _with_edges(
    proposals: Iterable[Proposal], edges: Mapping[str, Sequence[dict[str, Any]]]
) -> list[Proposal]:
    """Return the proposals with these operations, without the DataJobs that have none."""
    kept: list[Proposal] = []
    for proposal in proposals:
        urn = proposal.entity_urn
        if urn not in edges:
            kept.append(proposal)
        elif edges[urn]:
            is_patch = proposal.aspect_name == _EDGES
            patched = msgspec.structs.replace(proposal, aspect=edges[urn])
            kept.append(patched if is_patch else proposal)
    return kept
