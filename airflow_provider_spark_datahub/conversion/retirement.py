"""Retirement of DataJobs: runs of a task compared with what earlier ones sent to DataHub.

Tests: ``tests/conversion/test_retirement.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from airflow_provider_spark_datahub.conversion.proposals import (
    APPLICATION_JOB,
    Proposal,
    status,
    unescaped_part,
)
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey

_EDGES = "dataJobInputOutput"
_AIRFLOW_JOB = "urn:li:dataJob:(urn:li:dataFlow:(airflow,"
_INPUTS, _OUTPUTS = "inputDatasetEdges", "outputDatasetEdges"
_LISTS = (
    _INPUTS, _OUTPUTS, "inputDatasets", "outputDatasets", "inputDatajobs", "fineGrainedLineages",
)  # fmt: skip


class _JobEdges(msgspec.Struct, frozen=True):
    """URNs of the datasets of a DataJob."""

    inputs: frozenset[str]
    outputs: frozenset[str]


class _ApplicationRecord(msgspec.Struct, frozen=True):
    """DataJobs of a Spark application in DataHub.

    :param time_ms: end of the application's last run.
    :param jobs: edges that the last complete run gave each DataJob, by its URN; ``None`` if edges
        were only added to it. The application's own DataJob is one of them.
    """

    time_ms: int
    jobs: dict[str, _JobEdges | None]


class JobRecord(msgspec.Struct, frozen=True):
    """DataJobs that runs of a task sent through one connection.

    :param key: of the last run.
    :param applications: by the URN of the application's DataJob.
    """

    key: AttemptKey
    connection_id: str
    applications: dict[str, _ApplicationRecord] = {}

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


class _Run(msgspec.Struct):
    """DataJobs of a Spark application in one run.

    :param replaced: URNs of those whose edges replace earlier ones; edges of others are added.
    """

    jobs: dict[str, _JobEdges | None] = {}
    replaced: set[str] = set()


def revise(record: JobRecord, proposals: Sequence[Proposal]) -> Revision:
    """Compare the proposals of a run with what earlier runs of the task sent.

    A complete run replaces the edges of the application's own DataJob: DataJobs that it does not
    have are retired. Another run only adds edges: DataJobs whose edges a complete run gave are left
    out.
    """
    before, after = dict(record.applications), dict(record.applications)
    time_ms = max(map(_time_ms, proposals), default=0)
    known: set[str] = set()
    emptied: list[Proposal] = []
    retired: list[Proposal] = []
    for application, run in _runs(proposals).items():
        earlier = record.applications.get(application, _ApplicationRecord(0, {}))
        # An earlier run may be converted after a later one.
        if application in run.replaced and time_ms >= earlier.time_ms:
            jobs = run.jobs
            # Of several applications of one name, the first one replaces edges, and the others add.
            emptied += map(_without_edges, jobs.keys() - run.replaced)
            for urn in earlier.jobs.keys() - jobs.keys():
                retired += retired_job(urn)
        else:
            known |= _known_jobs(run, earlier) - {application}
            jobs = dict.fromkeys(run.jobs.keys() - known) | earlier.jobs
        last_ms = max(time_ms, earlier.time_ms)
        if jobs != earlier.jobs:
            all_jobs = dict.fromkeys([*earlier.jobs, *jobs])
            before[application] = _ApplicationRecord(last_ms, all_jobs)
        after[application] = _ApplicationRecord(last_ms, jobs)
    kept = [proposal for proposal in proposals if proposal.entity_urn not in known]
    return Revision(
        [*emptied, *kept, *retired],
        replace(record, applications=before),
        replace(record, applications=after),
    )


def retired_job(urn: str) -> tuple[Proposal, Proposal]:
    """Return the proposals that empty a DataJob and mark it as removed."""
    return _without_edges(urn), status("dataJob", urn, removed=True)


def _without_edges(urn: str) -> Proposal:
    return Proposal("dataJob", urn, _EDGES, {field: [] for field in _LISTS})


def _time_ms(proposal: Proposal) -> int:
    is_event = proposal.aspect_name == "dataProcessInstanceRunEvent"
    return proposal.aspect.get("timestampMillis", 0) if is_event else 0


def _runs(proposals: Iterable[Proposal]) -> dict[str, _Run]:
    """Return the Spark applications by the URN of their own DataJobs."""
    runs: dict[str, _Run] = {}
    run_of: dict[str, _Run] = {}
    for proposal in proposals:
        urn, aspect = proposal.entity_urn, proposal.aspect
        if proposal.aspect_name == "dataJobInfo" and not urn.startswith(_AIRFLOW_JOB):
            application = aspect.get("customProperties", {}).get(APPLICATION_JOB, urn)
            run_of[urn] = runs.setdefault(application, _Run())
            run_of[urn].jobs.setdefault(urn)
        elif proposal.aspect_name == _EDGES and urn in run_of:
            run = run_of[urn]
            run.jobs[urn] = _edges(proposal, run.jobs[urn])
            if proposal.change_type == "UPSERT":
                run.replaced.add(urn)
    return runs


def _edges(proposal: Proposal, earlier: _JobEdges | None) -> _JobEdges:
    """Return the edges of a proposal, and those of an earlier one of the same run."""
    inputs, outputs = _datasets(proposal, _INPUTS), _datasets(proposal, _OUTPUTS)
    if earlier is None:
        return _JobEdges(inputs, outputs)
    return _JobEdges(inputs | earlier.inputs, outputs | earlier.outputs)


def _datasets(proposal: Proposal, field: str) -> frozenset[str]:
    if proposal.change_type == "UPSERT":
        return frozenset(edge["destinationUrn"] for edge in proposal.aspect[field])
    paths = [operation["path"].split("/") for operation in proposal.aspect]
    return frozenset(unescaped_part(path[2]) for path in paths if path[1] == field)


def _known_jobs(run: _Run, earlier: _ApplicationRecord) -> set[str]:
    """Return the URNs of the DataJobs whose pairs of edges a complete run gave."""
    inputs_of: dict[str, frozenset[str]] = {}
    for edges in filter(None, earlier.jobs.values()):
        for output in edges.outputs:
            inputs_of[output] = edges.inputs | inputs_of.get(output, frozenset())
    known: set[str] = set()
    for urn, added in run.jobs.items():
        if added is None or not added.outputs <= inputs_of.keys():
            continue
        if all(inputs_of[output] >= added.inputs for output in added.outputs):
            known.add(urn)
    return known
