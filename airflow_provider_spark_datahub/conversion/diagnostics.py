"""Diagnostics of a conversion: events, datasets and texts that could not be read, converted or kept
whole.

Texts beyond a limit are cut here, and counted. Long texts that must be kept until the last event
are compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from airflow_provider_spark_datahub.conversion.events import DatasetId, EventError
from airflow_provider_spark_datahub.foundation.memory import grouped_by
from airflow_provider_spark_datahub.foundation.text import counted

MAX_LISTED = 20
"""Most problems of a kind that are listed. Others are only counted."""
LEFT_OUT = "LEFT_OUT"
_CATALOG_HINT = "it cannot name the tables of every catalogue"


@dataclass(frozen=True, slots=True)
class LostExecution:
    """A SQL execution that OpenLineage did not report.

    :param id: as in Spark's UI; so is :attr:`description`, the call site or the user's own text.
    :param reason: what its plan shows, for people.
    """

    id: int
    description: str
    reason: str


class RejectedEdge(msgspec.Struct, frozen=True):
    """A dataset that the events of a query name, and that is not an edge.

    :param query: run id of the query.
    :param statement: the query's statement, or else its name in OpenLineage's events.
    :param rule: section of the conversion rules, or number of a deviation.
    """

    urn: str
    kind: Literal["input", "output"]
    query: str
    statement: str
    reason: str
    rule: str


def _rejection(reason: str, count: int, place: str | None) -> str:
    more = f" ({counted(count - 1, 'more event')} like it)" if count > 1 else ""
    return f"{place}: {reason}{more}" if place else f"{reason}{more}"


class Diagnostics(msgspec.Struct, kw_only=True, gc=False):
    """Problems of one job, or of a whole conversion. None of them stops the conversion.

    :param rejections: number of these events by reason, of at most :data:`MAX_LISTED` reasons.
    :param lost_executions: SQL executions in Spark's event log without an OpenLineage event.
    :param truncations: how many texts or edges exceeded a limit, by kind.
    :param column_gaps: reasons why statements have no column lineage.
    :param unreported_queries: queries that wrote tables which no event names.
    :param gaps: outputs without inputs or without column lineage, and writes that never happened,
        each with its query.
    :param rejected_edges: datasets of events that are not edges, with ``capture_evidence``.
    :param sources: number of edges that events and Spark's event log give, by the edge's
        ``source``, and how many datasets that only plans name are left out (:data:`LEFT_OUT`);
        empty if only one of the two was read.
    :param unnamed_sources: sources and targets that Spark's event log mentions without showing
        where they are.
    """

    rejected_events: int = 0
    rejections: dict[str, int] = {}
    lost_executions: list[LostExecution] = []
    unusable_datasets: dict[DatasetId, str] = {}
    truncations: dict[str, int] = {}
    column_gaps: tuple[str, ...] = ()
    unreported_queries: tuple[str, ...] = ()
    unnamed_sources: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    rejected_edges: tuple[RejectedEdge, ...] = ()
    sources: dict[str, int] = {}

    def reject(self, error: EventError) -> None:
        """Count an event that cannot be converted."""
        self.rejected_events += 1
        self._count_rejections(str(error), 1)

    def _count_rejections(self, reason: str, count: int) -> None:
        if reason in self.rejections or len(self.rejections) < MAX_LISTED:
            self.rejections[reason] = self.rejections.get(reason, 0) + count

    def merge(self, other: Diagnostics) -> None:
        """Add the problems of a job, or of another part of the conversion."""
        self.rejected_events += other.rejected_events
        for reason, count in other.rejections.items():
            self._count_rejections(reason, count)
        self.lost_executions += other.lost_executions
        self.unusable_datasets.update(other.unusable_datasets)
        for kind, count in other.truncations.items():
            self.truncations[kind] = self.truncations.get(kind, 0) + count
        for name in ("column_gaps", "unreported_queries", "unnamed_sources", "gaps"):
            if more := getattr(other, name):
                setattr(
                    self, name, tuple(dict.fromkeys((*getattr(self, name), *more)))[:MAX_LISTED]
                )
        self.rejected_edges += other.rejected_edges
        for source, count in other.sources.items():
            self.sources[source] = self.sources.get(source, 0) + count

    def problems(self, places: Mapping[str, str] | None = None) -> list[str]:
        """Return one sentence for each part of the events that could not be converted whole.

        :param places: place of the first event that was rejected for a reason.
        """
        unlisted = self.rejected_events - sum(self.rejections.values())
        return [
            *(
                _rejection(reason, count, (places or {}).get(reason))
                for reason, count in self.rejections.items()
            ),
            *([f"{counted(unlisted, 'more event')} cannot be converted"] if unlisted else []),
            *(
                f"dataset {dataset.namespace} {dataset.name}: {why}"
                for dataset, why in self.unusable_datasets.items()
            ),
            *(f"{kind}: {count}" for kind, count in sorted(self.truncations.items())),
        ]

    def unseen(self) -> list[str]:
        """Return sentences about queries whose lineage the events do not show, or only in part."""
        sentences: list[str] = []
        for reason, lost in grouped_by(self.lost_executions, lambda lost: lost.reason).items():
            names = ", ".join(f"{each.id} {each.description}" for each in lost[:MAX_LISTED])
            executions = counted(len(lost), "SQL execution")
            sentences.append(f"{executions} without an event ({names}): {reason}")
        return [*sentences, *self.unreported_messages(), *self.column_gaps]

    def messages(self) -> list[str]:
        """Return all of these sentences, as reports have them."""
        return [*self.problems(), *self.unseen()]

    def unreported_messages(self) -> list[str]:
        """Return the sentences about tables that neither OpenLineage nor Spark's event log names."""
        unreported = (
            f"OpenLineage does not name the tables that these queries wrote ({_CATALOG_HINT})"
        )
        unnamed = "Spark's event log does not show where these are, so they have no lineage"
        names = {unreported: self.unreported_queries, unnamed: self.unnamed_sources}
        return [f"{sentence}: {', '.join(listed)}" for sentence, listed in names.items() if listed]


# -- limits

_LONG_TEXTS = "texts cut to max_string_length"
STATEMENTS_LEFT_OUT = (
    "SQL statements left out of column lineage, which would be longer than max_string_length"
)
UNCOUNTED = "rows and bytes: the job ran too long to keep the counts of all its queries"
MOST_FIELDS = 100_000
"""Fields after which no further schemas of one job's datasets are written: each takes a kilobyte of
memory.
"""
SCHEMAS_LEFT_OUT = f"schemas left out, after {MOST_FIELDS:,} fields of the job's other datasets"
COLUMN_EDGES_LEFT_OUT = (
    "column edges left out of column lineage, which would be longer than max_string_length"
)


def cut(text: str, limit: int) -> str:
    """Return the text, cut to at most ``limit`` characters; a text that was cut ends with its
    original length.
    """
    if len(text) <= limit:
        return text
    note = f"… (cut: {len(text)} characters)"
    return text[: limit - len(note)] + note


class TextLimit(msgspec.Struct):
    """Cuts long texts and counts the cuts.

    :param longest: characters that a text may have.
    :param counts: by kind, which is one of the constants above.
    """

    longest: int
    counts: dict[str, int] = {}

    def count(self, kind: str, times: int = 1) -> None:
        """Count cuts that were made elsewhere."""
        self.counts[kind] = self.counts.get(kind, 0) + times

    def text(self, value: str) -> str:
        """Return the text, cut if it is too long."""
        if len(value) <= self.longest:
            return value
        self.count(_LONG_TEXTS)
        return cut(value, self.longest)

    def properties(self, values: dict[str, str]) -> dict[str, str]:
        """Return the properties with long values cut; the same dictionary if none is."""
        if not values or max(map(len, values.values())) <= self.longest:
            return values
        return {key: self.text(value) for key, value in values.items()}

    def schema(self, aspect: dict[str, Any]) -> dict[str, Any]:
        """Return a ``schemaMetadata`` aspect whose raw schema is cut if it is too long; the
        argument stays as it is.
        """
        (kind, platform_schema), *_ = aspect["platformSchema"].items()
        raw = platform_schema["tableSchema"]
        if len(raw) <= self.longest:
            return aspect
        return {
            **aspect,
            "platformSchema": {kind: {**platform_schema, "tableSchema": self.text(raw)}},
        }


_LONG_BYTES = 4 * 1024
# JSON never begins with the first byte of zlib's format.
_ZLIB = b"x"


def compressed(json_text: bytes) -> bytes:
    """Return the text, compressed if it is long; equal texts have equal results."""
    return zlib.compress(json_text, level=1) if len(json_text) > _LONG_BYTES else json_text


def decompressed(text: bytes) -> bytes:
    """Return the text that was given to :func:`compressed`."""
    return zlib.decompress(text) if text.startswith(_ZLIB) else text
