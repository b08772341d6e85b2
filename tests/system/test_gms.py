"""Lineage in a real DataHub: delivered to its GMS, and read back over Rest.li, OpenAPI and GraphQL.

``DATAHUB_GMS_URL=http://gms:8080 make test-gms``, with the token in ``DATAHUB_GMS_TOKEN`` if the
server wants one. All that it writes has names of this run alone, and is marked as removed
(DataHub's soft delete) at the end. Without the variable, the same test runs against the stand-in of
the tests: that shows that the test itself works.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pytest
from datahub.ingestion.graph.client import DataHubGraph
from datahub.ingestion.graph.config import DatahubClientConfig
from datahub.metadata.schema_classes import (
    DataJobInputOutputClass,
    DataProcessInstanceRelationshipsClass,
    StatusClass,
)
from datahub.sdk.lineage_client import LineageClient
from datahub.sdk.main_client import DataHubClient

from airflow_provider_spark_datahub.conversion import Ending, LineageSettings, Proposal
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink
from tests.conversion.builders import START_MS, corpus_events, only_job, proposals
from tests.conversion.recordings import CORPUS_TRUTH as TRUTH
from tests.oracles.gms import GmsStandIn
from tests.patience import PATIENCE

VARIABLE, TOKEN_VARIABLE = "DATAHUB_GMS_URL", "DATAHUB_GMS_TOKEN"
JOB = "a_csv_join_agg"
INDEXED_SECONDS = 120
"""Seconds until DataHub's graph index has the stored aspects: Elasticsearch refreshes at intervals.
"""


@dataclass(frozen=True)
class Server:
    """A DataHub, for this run.

    :param name: in all names that this run writes.
    """

    settings: RestSettings
    name: str

    def deliver(self, found: list[Proposal]) -> None:
        sink = RestSink(self.settings)
        delivery = sink.deliver(found, Deadline.after(INDEXED_SECONDS), patient=True)
        assert (delivery.delivered, delivery.rejected, delivery.problem) == (len(found), (), None)


@pytest.fixture(
    params=[
        "stand-in",
        pytest.param(
            "real",
            marks=[
                pytest.mark.gms,
                pytest.mark.skipif(
                    VARIABLE not in os.environ, reason=f"no DataHub: {VARIABLE} is not set"
                ),
            ],
        ),
    ]
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    name = f"spark-datahub-test-{uuid.uuid4().hex[:8]}"
    if request.param == "real":
        yield Server(
            RestSettings(os.environ[VARIABLE].rstrip("/"), os.environ.get(TOKEN_VARIABLE)), name
        )
        return
    with GmsStandIn("a-token") as gms:
        yield Server(RestSettings(gms.url, "a-token"), name)
        assert gms.dropped == []


@pytest.fixture
def graph(server: Server) -> Iterator[DataHubGraph]:
    settings = server.settings
    with DataHubGraph(DatahubClientConfig(server=settings.server, token=settings.token)) as client:
        yield client


def lineage_of(server: Server, *, failed: bool = False) -> tuple[list[Proposal], TaskAttempt, Any]:
    """Return the proposals of a recorded job below a task of a DAG run, the attempt, and the Spark
    job.
    """
    run = DagRun(
        AirflowSite(server.name), "shop", "manual__1", kind="BATCH_AD_HOC", start_ms=START_MS
    )
    attempt = TaskAttempt(run, "build", 2 if failed else 1, start_ms=START_MS)
    options = {
        "platform_instance": server.name,
        "dataset_platform_instance": server.name,
        "datasets": "keys",
    }
    job = only_job(corpus_events(JOB), Ending(succeeded=not failed), **options)
    ended = attempt.ended(START_MS + 60_000, "FAILURE" if failed else "SUCCESS")
    attached = attempt.attach([job], LineageSettings())
    found = [
        *ended.proposals([job]),
        *(one for each in attached for one in proposals(each, **options)),
    ]
    return found, ended, attached[0]


def with_instance(urn: str, name: str) -> str:
    platform, dot, rest = urn.partition(",")
    return f"{platform}{dot}{name}.{rest}"


def parents(relationships: object) -> tuple[str | None, str | None]:
    """Return the template and the parent of a run."""
    assert isinstance(relationships, DataProcessInstanceRelationshipsClass)
    return relationships.parentTemplate, relationships.parentInstance


def until(read: Callable[[], Any], expected: Any, seconds: float) -> Any:
    """Read again until the result is as expected or the time is over; return the last one."""
    end = time.monotonic() + seconds
    while (found := read()) != expected and time.monotonic() < end:
        time.sleep(1)
    return found


def neighbours(
    graph: DataHubGraph, urn: str, direction: Literal["upstream", "downstream"]
) -> set[str]:
    """Return the datasets that DataHub's graph has beside a job, as its UI asks for them (GraphQL)."""
    found = LineageClient(DataHubClient(graph=graph)).get_lineage(
        source_urn=urn, direction=direction
    )
    return {each.urn for each in found if each.type == "DATASET"}


@pytest.mark.slow
def test_the_graph_in_datahub_is_that_of_the_job(server: Server, graph: DataHubGraph) -> None:
    found, attempt, job = lineage_of(server)
    inputs, outputs = (
        {with_instance(urn, server.name) for urn in TRUTH[JOB][side]}
        for side in ("inputs", "outputs")
    )
    seconds = INDEXED_SECONDS if VARIABLE in os.environ else PATIENCE
    server.deliver(found)
    try:
        # Rest.li, from the primary storage.
        held = graph.get_aspect(job.job_urn, DataJobInputOutputClass)
        assert held is not None
        assert {edge.destinationUrn for edge in held.inputDatasetEdges or ()} == inputs
        assert {edge.destinationUrn for edge in held.outputDatasetEdges or ()} == outputs
        columns = {
            (upstream, downstream)
            for lineage in held.fineGrainedLineages or ()
            for upstream in lineage.upstreams or ()
            for downstream in lineage.downstreams or ()
        }
        assert columns == {
            (upstream, downstream)
            for lineage in job.lineage.fine_grained
            for upstream in lineage["upstreams"]
            for downstream in lineage["downstreams"]
        }
        # The run tree: OpenAPI, each run with its template and its parent.
        runs = (attempt.dag_run.urn, attempt.urn, job.run_urn)
        name = "dataProcessInstanceRelationships"
        stored = graph.get_entities("dataProcessInstance", list(runs), [name])
        assert {urn: parents(aspects[name][0]) for urn, aspects in stored.items()} == {
            attempt.dag_run.urn: (attempt.dag_run.site.flow_urn("shop"), None),
            attempt.urn: (attempt.job_urn, attempt.dag_run.urn),
            job.run_urn: (job.job_urn, attempt.urn),
        }
        # GraphQL, from the graph index: what the UI draws.
        for urn, read in ((job.job_urn, inputs), (attempt.job_urn, set[str]())):
            assert until(partial(neighbours, graph, urn, "upstream"), read, seconds) == read
            assert until(partial(neighbours, graph, urn, "downstream"), outputs, seconds) == outputs
        # A failed attempt adds its edges, as a patch, and removes none.
        again, _, _ = lineage_of(server, failed=True)
        assert any(proposal.change_type == "PATCH" for proposal in again)
        server.deliver(again)
        patched = graph.get_aspect(job.job_urn, DataJobInputOutputClass)
        assert patched is not None
        assert {edge.destinationUrn for edge in patched.inputDatasetEdges or ()} == inputs
        assert {edge.destinationUrn for edge in patched.outputDatasetEdges or ()} == outputs
    finally:
        entities = dict.fromkeys((each.entity_type, each.entity_urn) for each in found)
        server.deliver([Proposal(kind, urn, "status", {"removed": True}) for kind, urn in entities])
    for urn in (job.job_urn, attempt.urn, *inputs):
        status = graph.get_aspect(urn, StatusClass)
        assert status is not None
        assert status.removed
