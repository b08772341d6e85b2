"""A proposal as the class that acryl-datahub's emitters send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.conversion import Proposal

if TYPE_CHECKING:
    from datahub.metadata.schema_classes import MetadataChangeProposalClass


def to_mcp(proposal: Proposal) -> MetadataChangeProposalClass:
    """The proposal as DataHub's generated class, its aspect as it is: not parsed into the aspect's class, which
    would drop what an older acryl-datahub does not know."""
    from datahub.metadata.schema_classes import GenericAspectClass, MetadataChangeProposalClass

    return MetadataChangeProposalClass(
        entityType=proposal.entity_type,
        entityUrn=proposal.entity_urn,
        changeType=proposal.change_type,
        aspectName=proposal.aspect_name,
        aspect=GenericAspectClass(
            # Half of a surrogate pair can only stand inside a JSON string, where its escape means the same.
            value=proposal.value.encode("utf-8", "backslashreplace"),
            contentType=proposal.content_type,
        ),
    )
