"""Conversion of archives: group events, convert each group, and keep the latest version of every aspect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .grouping import NO_TIME, EventHead, Link, LinkKind, merge_groups
    from .replay import ArchivedEvent, ArchiveFacts, ArchiveFilter, AspectVersion, GroupConverter, compact_versions
else:
    __getattr__, __dir__ = lazy_exports(__name__)
