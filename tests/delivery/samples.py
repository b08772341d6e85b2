"""Proposals that GMS takes, and a process that appends some to a file."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.sinks import FileSink


def job_urn(name: str) -> str:
    return f"urn:li:dataJob:(urn:li:dataFlow:(spark,shop,PROD),{name})"


def dataset_urn(name: str) -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:s3,{name},PROD)"


def upsert(name: str, title: str | None = None) -> Proposal:
    info = {"name": title or name, "type": {"string": "COMMAND"}, "customProperties": {"größe": "1 €"}}
    return Proposal("dataJob", job_urn(name), "dataJobInfo", info)


def upserts(count: int, prefix: str = "job") -> list[Proposal]:
    return [upsert(f"{prefix}{number}") for number in range(count)]


def patch(name: str) -> Proposal:
    source = dataset_urn("orders")
    edge = {"op": "add", "path": f"/inputDatasetEdges/{source}", "value": {"destinationUrn": source}}
    return Proposal("dataJob", job_urn(name), "dataJobInputOutput", [edge], "PATCH")


def append_one_by_one(path: str, prefix: str, count: int) -> None:
    """Make ``count`` deliveries of one proposal each; for a process of its own."""
    for proposal in upserts(count, prefix):
        delivery = FileSink(Path(path)).deliver([proposal], Deadline.after(60))
        if delivery.delivered != 1:
            raise RuntimeError(f"not appended: {delivery.problem}")
