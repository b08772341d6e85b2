"""The judge of pairs counts what DataHub derives: through each job, and along edges between jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from tests.conversion.pairs import Catalog, derived_pairs

A, B, C, X, Y = (f"urn:li:dataset:(urn:li:dataPlatform:file,/lake/{name},PROD)" for name in "abcxy")
FLOW = "urn:li:dataFlow:(spark,shop,default)"
JOB, WRITE, TASK, EARLIER = (
    f"urn:li:dataJob:({FLOW},{name})" for name in ("shop", "shop.x", "load", "extract")
)


def whole(
    job: str, inputs: Sequence[str], outputs: Sequence[str], upstream: Sequence[str] = ()
) -> Proposal:
    """Return the aspect that replaces a job's edges."""
    aspect = {
        "inputDatasets": [],
        "inputDatasetEdges": [{"destinationUrn": urn} for urn in inputs],
        "outputDatasets": [],
        "outputDatasetEdges": [{"destinationUrn": urn} for urn in outputs],
        "inputDatajobs": list(upstream),
        "fineGrainedLineages": [],
    }
    return Proposal("dataJob", job, "dataJobInputOutput", aspect)


def patch(job: str, *operations: tuple[str, str, str]) -> Proposal:
    """Return a patch of operations, each with its kind, the field, and the URN."""
    listed: list[dict[str, Any]] = []
    for kind, field, urn in operations:
        operation: dict[str, Any] = {"op": kind, "path": f"/{field}/{urn.replace('/', '~1')}"}
        if kind == "add":
            operation["value"] = {"destinationUrn": urn}
        listed.append(operation)
    return Proposal("dataJob", job, "dataJobInputOutput", listed, "PATCH")


def status(job: str, *, removed: bool) -> Proposal:
    return Proposal("dataJob", job, "status", {"removed": removed})


def test_each_input_of_a_job_reaches_each_of_its_outputs() -> None:
    assert derived_pairs([whole(JOB, [A, B], [X, Y])]) == {(A, X), (A, Y), (B, X), (B, Y)}


def test_an_output_comes_from_what_any_upstream_job_reads() -> None:
    proposals = [
        whole(WRITE, [A], [X], [TASK]),
        whole(TASK, [B], [Y], [EARLIER]),
        whole(EARLIER, [C], []),
    ]
    assert derived_pairs(proposals) == {(A, X), (B, X), (C, X), (B, Y), (C, Y)}


def test_upstream_jobs_in_a_circle_are_visited_once() -> None:
    proposals = [whole(JOB, [A], [X], [TASK]), whole(TASK, [B], [Y], [JOB])]
    assert derived_pairs(proposals) == {(A, X), (B, X), (A, Y), (B, Y)}


def test_patches_add_and_remove_edges_of_datasets_and_jobs() -> None:
    catalog = Catalog()
    catalog.apply([whole(JOB, [A], [X]), whole(TASK, [C], [])])
    catalog.apply([patch(JOB, ("add", "inputDatasetEdges", B))])
    assert catalog.pairs() == {(A, X), (B, X)}
    catalog.apply([patch(JOB, ("add", "inputDatajobEdges", TASK))])
    assert catalog.pairs() == {(A, X), (B, X), (C, X)}
    catalog.apply([patch(JOB, ("remove", "inputDatasetEdges", A))])
    assert catalog.pairs() == {(B, X), (C, X)}


def test_a_later_run_replaces_the_edges_of_its_own_jobs_alone() -> None:
    catalog = Catalog()
    catalog.apply([whole(JOB, [A], [X]), whole(WRITE, [B], [Y])])
    catalog.apply([whole(JOB, [C], [X])])
    assert catalog.pairs() == {(C, X), (B, Y)}
    assert catalog.jobs[JOB].inputs == {C}
    assert catalog.jobs[WRITE].outputs == {Y}


def test_a_removed_job_has_no_pairs_until_it_is_back() -> None:
    catalog = Catalog()
    catalog.apply([whole(JOB, [A], [X]), whole(WRITE, [B], [Y]), status(WRITE, removed=True)])
    assert catalog.pairs() == {(A, X)}
    assert catalog.removed == {WRITE}
    assert catalog.jobs[WRITE].outputs == {Y}
    catalog.apply([status(WRITE, removed=False)])
    assert catalog.pairs() == {(A, X), (B, Y)}


def test_no_pair_leads_through_a_removed_job() -> None:
    catalog = Catalog()
    catalog.apply([whole(WRITE, [A], [X], [TASK]), whole(TASK, [B], [], [EARLIER])])
    catalog.apply([whole(EARLIER, [C], []), status(TASK, removed=True)])
    assert catalog.pairs() == {(A, X)}
