"""Conversion of archives: group events, convert each group, and keep the latest version of every aspect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.archive.compaction import Version as Version, kept_of as kept_of
    from airflow_provider_spark_datahub.conversion.archive.conversion import (
        ArchivedEvent as ArchivedEvent,
        ArchiveFacts as ArchiveFacts,
        GroupConversion as GroupConversion,
        Selection as Selection,
    )
    from airflow_provider_spark_datahub.conversion.archive.grouping import (
        NO_TIME as NO_TIME,
        EventHead as EventHead,
        Link as Link,
        LinkKind as LinkKind,
        group_of as group_of,
        joined as joined,
        joining as joining,
        links_of as links_of,
        read_head as read_head,
        united as united,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "compaction": "Version kept_of",
            "conversion": "ArchiveFacts ArchivedEvent GroupConversion Selection",
            "grouping": "EventHead Link LinkKind NO_TIME group_of joined joining links_of read_head united",
        },
    )
