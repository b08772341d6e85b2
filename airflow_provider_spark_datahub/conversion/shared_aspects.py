"""Aspects, and parts of them, that entities of several types have."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.proposals import Proposal, upsert


@lru_cache(maxsize=2048)
def status(entity_type: str, urn: str) -> Proposal:
    """The aspect that says that an entity is not (or no longer) soft-deleted."""
    return upsert(entity_type, urn, "status", {"removed": False})


@lru_cache(maxsize=256)
def platform_instance(entity_type: str, urn: str, platform: str, instance: str) -> Proposal:
    """The aspect that names an entity's platform instance."""
    aspect = {"platform": urns.platform_urn(platform), "instance": urns.platform_instance_urn(platform, instance)}
    return upsert(entity_type, urn, "dataPlatformInstance", aspect)


def audit_stamp(time_ms: int | None) -> dict[str, Any]:
    """Who and when; 0 where no event carried a time, because the aspect must have one."""
    return {"time": time_ms or 0, "actor": urns.ACTOR}
