"""Pairs of datasets that DataHub derives from DataJobs: the inputs of each and of the jobs before
it, times its outputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from airflow_provider_spark_datahub.conversion import Proposal
from tests.oracles.stored import StoredEdges

Pair = tuple[str, str]
"""URNs of an input and of an output."""


class Catalog:
    """State of DataHub after the proposals of any number of runs.

    :ivar jobs: edges of each DataJob.
    :ivar removed: URNs of entities that are soft-deleted.
    """

    def __init__(self) -> None:
        self.jobs: defaultdict[str, StoredEdges] = defaultdict(StoredEdges)
        self.removed: set[str] = set()

    def apply(self, proposals: Iterable[Proposal]) -> None:
        """Apply the proposals of a run, in the order of delivery."""
        for proposal in proposals:
            if proposal.aspect_name == "dataJobInputOutput":
                self._change_edges(proposal)
            elif proposal.aspect_name == "status":
                self._set_status(proposal)

    def pairs(self) -> set[Pair]:
        """Return the pairs of all jobs that are not removed."""
        pairs: set[Pair] = set()
        for job in self.jobs:
            if job not in self.removed:
                outputs = self.jobs[job].outputs
                inputs = self._inputs_upstream_of(job) if outputs else ()
                pairs.update((dataset, output) for dataset in inputs for output in outputs)
        return pairs

    def _change_edges(self, proposal: Proposal) -> None:
        edges = self.jobs[proposal.entity_urn]
        if proposal.change_type == "PATCH":
            edges.patch(proposal.aspect)
        else:
            edges.upsert(proposal.aspect)

    def _set_status(self, proposal: Proposal) -> None:
        if proposal.aspect["removed"]:
            self.removed.add(proposal.entity_urn)
        else:
            self.removed.discard(proposal.entity_urn)

    def _inputs_upstream_of(self, job: str) -> set[str]:
        """Return the inputs of a job and of all jobs upstream of it; no way leads through a removed
        one.
        """
        inputs: set[str] = set()
        visited: set[str] = set()
        waiting = [job]
        while waiting:
            current = waiting.pop()
            if current in visited or current in self.removed or current not in self.jobs:
                continue
            visited.add(current)
            inputs |= self.jobs[current].inputs
            waiting.extend(self.jobs[current].jobs)
        return inputs


def derived_pairs(proposals: Iterable[Proposal]) -> set[Pair]:
    """Return the pairs that DataHub derives from the proposals of one run."""
    catalog = Catalog()
    catalog.apply(proposals)
    return catalog.pairs()
