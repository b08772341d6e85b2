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


def contents(proposals: list[Proposal]) -> list[Content]:
    """Return what a server stores of proposals."""
    return [
        (each.entity_urn, each.aspect_name, each.change_type, each.aspect) for each in proposals
    ]


def delivered_lines(folder: Path) -> list[str]:
    """Return the proposals that a file sink wrote to its folder, as JSON, in the order of their
    deliveries.
    """
    arrays = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    return [json.dumps(proposal, ensure_ascii=False) for array in arrays for proposal in array]


def delivered_text(folder: Path) -> str:
    """Return these proposals as one text."""
    return "\n".join(delivered_lines(folder))
