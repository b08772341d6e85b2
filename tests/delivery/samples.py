"""Proposals that GMS takes, and what a file sink wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal

Content = tuple[str, str, str, Any]


def job_urn(name: str) -> str:
    return f"urn:li:dataJob:(urn:li:dataFlow:(spark,shop,PROD),{name})"


def dataset_urn(name: str) -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:s3,{name},PROD)"


def upsert(name: str, title: str | None = None) -> Proposal:
    info = {
        "name": title or name,
        "type": {"string": "COMMAND"},
        "customProperties": {"größe": "1 €"},
    }
    return Proposal("dataJob", job_urn(name), "dataJobInfo", info)


def upserts(count: int, prefix: str = "job") -> list[Proposal]:
    return [upsert(f"{prefix}{number}") for number in range(count)]


def patch(name: str) -> Proposal:
    source = dataset_urn("orders")
    edge = {
        "op": "add",
        "path": f"/inputDatasetEdges/{source}",
        "value": {"destinationUrn": source},
    }
    return Proposal("dataJob", job_urn(name), "dataJobInputOutput", [edge], "PATCH")


def run_events(folder: Path) -> list[dict[str, Any]]:
    """Return the run events that a file sink wrote."""
    return [
        proposal["aspect"]["json"]
        for proposal in delivered(folder)
        if proposal["aspectName"] == "dataProcessInstanceRunEvent"
    ]


def task_results(folder: Path) -> set[str]:
    """Return the results of task runs and DAG runs that a file sink wrote."""
    results = [event.get("result", {}) for event in run_events(folder)]
    return {result["type"] for result in results if result.get("nativeResultType") == "airflow"}


def stored_content(stored: dict[str, Any]) -> Content:
    """Return the content of a proposal as a server stores it."""
    value = json.loads(stored["aspect"]["value"])
    return stored["entityUrn"], stored["aspectName"], stored["changeType"], value


def contents(proposals: list[Proposal]) -> list[Content]:
    """Return what a server stores of proposals."""
    return [
        (each.entity_urn, each.aspect_name, each.change_type, each.aspect) for each in proposals
    ]


def delivered(folder: Path) -> list[dict[str, Any]]:
    """Return the proposals that a file sink wrote to its folder, in the order of their deliveries."""
    proposals: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        proposals += json.loads(path.read_text(encoding="utf-8"))
    return proposals


def delivered_lines(folder: Path) -> list[str]:
    """Return these proposals as JSON."""
    return [json.dumps(proposal, ensure_ascii=False) for proposal in delivered(folder)]


def delivered_text(folder: Path) -> str:
    """Return these proposals as one text."""
    return "\n".join(delivered_lines(folder))
