"""Report on the lineage of one attempt, for the log, XCom and the UI."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from airflow_provider_spark_datahub.foundation.text import counted

XCOM_KEY = "lineage_report"
_MOST_LISTED = 1000
"""Largest number of entries in a list in XCom. The complete lists are in DataHub or in the log."""
_NOT_STORED = re.compile("[\0\ud800-\udfff]")
"""NUL, which PostgreSQL refuses in JSON and names in events may contain, and halves of surrogate
pairs.
"""


class LineageReport(msgspec.Struct):
    """Counts and reasons of one attempt.

    :param events: number of OpenLineage events that were read.
    :param bad_events: number of events that could not be read or converted; the others are not
        affected.
    :param jobs: URNs of the Spark DataJobs.
    :param inputs: URNs of datasets read; :attr:`outputs`: of datasets written.
    :param proposals: number of proposals; each is delivered, rejected (DataHub will never take it)
        or pending.
    :param stored: whether delivered proposals are stored; ``False`` if DataHub only accepted them
        for later.
    :param assets: URIs of Airflow's assets that get an event if the task succeeds.
    :param failure: how Spark failed, with the last that the driver said; ``None`` if it did not.
    :param started_spark: whether the task may have started a Spark, by the traces that Sparks below
        a task leave.
    :param failed: a step of lineage failed; the events are kept and converted again later.
    :param reason: why there is no lineage, or why some of it is pending; ``None`` otherwise.
    :param warnings: problems with this lineage.
    :param gaps: outputs without inputs or without column lineage, and writes that never happened,
        each with its query.
    :param sources: number of edges by the source that names them, if both were read: see the
        conversion rules, 8.5.
    :param changes: what changed since the last green run of the task, the likeliest cause of a
        failure first.
    :param seconds: time for collecting, converting and delivering after Spark's end.
    """

    connection: str = ""
    events: int = 0
    bad_events: int = 0
    jobs: list[str] = []
    inputs: list[str] = []
    outputs: list[str] = []
    proposals: int = 0
    delivered: int = 0
    rejected: int = 0
    pending: int = 0
    stored: bool | None = None
    assets: list[str] = []
    failure: str | None = None
    started_spark: bool = True
    failed: bool = False
    reason: str | None = None
    warnings: list[str] = []
    gaps: list[str] = []
    sources: dict[str, int] = {}
    changes: list[str] = []
    events_file: str | None = None
    outbox_entry: str | None = None
    seconds: float = 0.0

    @property
    def has_lineage(self) -> bool:
        """Return whether there is any dataset edge."""
        return bool(self.inputs or self.outputs)

    @property
    def is_complete(self) -> bool:
        """Return whether nothing is pending, and no step failed."""
        return self.pending == 0 and not self.failed

    def to_obj(self) -> dict[str, Any]:
        """Return the report as JSON, for XCom: in a row of Airflow's database, with lists of
        limited length.
        """
        obj = msgspec.structs.asdict(self)
        lists = {name: value for name, value in obj.items() if isinstance(value, list)}
        longer = {name: len(value) for name, value in lists.items() if len(value) > _MOST_LISTED}
        obj |= {
            name: [_storable(text) for text in value[:_MOST_LISTED]]
            for name, value in lists.items()
        }
        obj |= {name: _storable(value) for name, value in obj.items() if isinstance(value, str)}
        obj["warnings"] += [
            f"only {_MOST_LISTED} of {count} {name} are listed here"
            for name, count in longer.items()
        ]
        return obj

    @property
    def sentence(self) -> str:
        """Counts of the report in one line."""
        unusable = f" ({self.bad_events} unusable)" if self.bad_events else ""
        accepted = "accepted" if self.stored is False else "delivered"
        text = (
            f"Lineage: {counted(self.events, 'event')}{unusable}; "
            f"{counted(len(self.inputs), 'input')}, {counted(len(self.outputs), 'output')}; "
            f"{counted(self.proposals, 'proposal')}: {self.delivered} {accepted}, {self.rejected} rejected, "
            f"{self.pending} pending"
        )
        if self.connection:
            text += f" ({self.connection})"
        if self.reason:
            text += f". {'No lineage' if not self.has_lineage else 'Note'}: {self.reason}"
        return text


def _storable(text: str) -> str:
    return _NOT_STORED.sub("\N{REPLACEMENT CHARACTER}", text)
