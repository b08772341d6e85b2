"""Convert an archive in this process: the reference for the Spark job, which must write the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.conversion.archive import (
    NO_TIME,
    ArchivedEvent,
    ArchiveFacts,
    ArchiveFilter,
    AspectVersion,
    EventHead,
    GroupConverter,
    _ArchiveProblem,
    _KeptProposal,
    compact_versions,
    merge_groups,
)
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.settings import LineageSettings


@dataclass
class ArchiveConversion:
    """The result of :func:`convert_archive`.

    :param kept: proposals to write, by place (see :class:`AspectVersion`).
    """

    events: int = 0
    applications: int = 0
    versions: int = 0
    kept: list[_KeptProposal] = field(default_factory=list)
    quarantined: list[_ArchiveProblem] = field(default_factory=list)


def convert_archive(
    events: Iterable[tuple[str, int, bytes]],
    settings: LineageSettings,
    wanted: ArchiveFilter | None = None,
    *,
    damaged: Iterable[str] = (),
) -> ArchiveConversion:
    """Convert an archive that fits into memory.

    :param events: file, offset and text of each event, in any order.
    :param damaged: files with unreadable parts.
    """
    wanted = wanted or ArchiveFilter()
    result = ArchiveConversion()
    heads: list[EventHead] = []
    read_head = EventHead.reader()
    archived: list[ArchivedEvent] = []
    for file, offset, text in events:
        try:
            head = read_head(text)
        except EventError as error:
            result.quarantined.append(_ArchiveProblem(file, offset, str(error)))
            continue
        heads.append(head)
        archived.append(ArchivedEvent(head.time_ms, file, offset, text))
    until_ms = max((head.time_ms for head in heads), default=NO_TIME)
    facts = ArchiveFacts(
        until_ms, frozenset(damaged) | {problem.file for problem in result.quarantined}
    )
    versions: list[AspectVersion] = []
    for group in _groups(heads, archived):
        converter = GroupConverter(settings, wanted, facts)
        for event in sorted(group):
            converter.add(event)
        versions += converter.finish()
        result.applications += converter.job_count
        result.quarantined += converter.problems
    result.events, result.versions = len(archived), len(versions)
    result.kept = list(compact_versions(sorted(versions), run_history=wanted.run_history))
    return result


def _groups(heads: list[EventHead], events: list[ArchivedEvent]) -> Iterator[list[ArchivedEvent]]:
    shared = merge_groups(link for head in heads for link in head.links())
    groups: dict[str, list[ArchivedEvent]] = {}
    for head, event in zip(heads, events, strict=True):
        groups.setdefault(shared.get(head.group, head.group), []).append(event)
    yield from groups.values()
