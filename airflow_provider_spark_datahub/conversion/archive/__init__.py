"""Conversion of archives: group events, convert each group, and keep the latest version of every aspect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.archive.grouping import (
        NO_TIME as NO_TIME,
        EventHead as EventHead,
        Link as Link,
        LinkKind as LinkKind,
        joining_links as joining_links,
        merge_groups as merge_groups,
    )
    from airflow_provider_spark_datahub.conversion.archive.replay import (
        ArchivedEvent as ArchivedEvent,
        ArchiveFacts as ArchiveFacts,
        ArchiveFilter as ArchiveFilter,
        AspectVersion as AspectVersion,
        GroupConverter as GroupConverter,
        compact_versions as compact_versions,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "grouping": "EventHead Link LinkKind NO_TIME joining_links merge_groups",
            "replay": "ArchiveFacts ArchiveFilter ArchivedEvent AspectVersion GroupConverter compact_versions",
        },
    )
