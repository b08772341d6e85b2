"""What became of the lineage of one task try: for the log, XCom and the UI."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

XCOM_KEY = "lineage_report"


@dataclass
class LineageReport:
    """Counts and reasons. Every try of the operator ends in one.

    :param events: OpenLineage events read.
    :param bad_events: events that could not be read or converted; each cost only itself.
    :param jobs: URNs of the Spark DataJobs.
    :param inputs: URNs of datasets read; :attr:`outputs` of datasets written.
    :param proposals: built; each of them is delivered, rejected (DataHub will never take it) or pending.
    :param stored: whether what was delivered is stored; ``False`` where DataHub only accepted it for later.
    :param forwarded: OpenLineage events that a second destination acknowledged; ``None`` where there is none.
    :param failed: a step of lineage failed: what the job told waits in the outbox as it is, to be converted again.
    :param reason: why there is no lineage, or why some of it is pending; ``None`` where all is well.
    :param warnings: what is odd about the lineage that there is.
    :param seconds: that collecting, converting and delivering took after Spark's end.
    """

    connection: str = ""
    events: int = 0
    bad_events: int = 0
    jobs: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    proposals: int = 0
    delivered: int = 0
    rejected: int = 0
    pending: int = 0
    stored: bool | None = None
    forwarded: int | None = None
    failed: bool = False
    reason: str | None = None
    warnings: list[str] = field(default_factory=list)
    events_file: str | None = None
    outbox_entry: str | None = None
    seconds: float = 0.0

    @property
    def has_lineage(self) -> bool:
        """Whether any dataset edge was found."""
        return bool(self.inputs or self.outputs)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is pending, nor left undone."""
        return self.pending == 0 and not self.failed

    def to_obj(self) -> dict[str, Any]:
        """The report as JSON, for XCom."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """The report in one line."""
        unusable = f" ({self.bad_events} unusable)" if self.bad_events else ""
        arrived = "accepted" if self.stored is False else "delivered"
        text = (
            f"Lineage: {self.events} events{unusable}; {len(self.inputs)} inputs, {len(self.outputs)} outputs; "
            f"{self.proposals} proposals: {self.delivered} {arrived}, {self.rejected} rejected, {self.pending} pending"
        )
        if self.connection:
            text += f" ({self.connection})"
        if self.reason:
            text += f". {'No lineage' if not self.has_lineage else 'Note'}: {self.reason}"
        return text
