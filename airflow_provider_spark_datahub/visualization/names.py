"""URNs, times and texts for people: parsed, shortened, and without characters that control a
terminal or browser.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from airflow_provider_spark_datahub.foundation.text import printable, printable_lines

_LONGEST_NAME = 300
"""Maximum number of characters of a name; some producers put a whole query or plan into one."""
_LONGEST_QUERY = 20_000
"""Maximum number of characters of a query."""

_DATASET = re.compile(r"urn:li:dataset:\(urn:li:dataPlatform:([^,]+),(.*),([^,]+)\)", re.DOTALL)
_FIELD = re.compile(r"(?=.*\)\Z)urn:li:schemaField:\((urn:li:dataset:\(.*\)),(.*)\)", re.DOTALL)
_FLOW = re.compile(r"urn:li:dataFlow:\(([^,]+),(.*),([^,]+)\)", re.DOTALL)
_JOB = re.compile(r"urn:li:dataJob:\((urn:li:dataFlow:\(.*\)),([^,]*)\)", re.DOTALL)
_TYPE_OF_PATH = re.compile(r"\[(?:version|type|key)=[^\[\]]*\]\.?")
_ENCODED = re.compile(r"%(25|28|29|2C)", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_MS, _HALF_TENTH_MS = 60_000, 50


def dataset_parts(urn: str) -> tuple[str, str, str] | None:
    """Return platform, name and environment of a dataset's URN."""
    match = _DATASET.fullmatch(urn)
    return (_decoded(match[1]), _decoded(match[2]), match[3]) if match else None


class Column(NamedTuple):
    """A column of a dataset, with its path as people write it; without a path, the dataset as a
    whole.
    """

    dataset: str
    path: str

    @classmethod
    def of(cls, urn: str) -> Column | None:
        """Parse the URN of a schemaField or a dataset; ``None`` if it is neither."""
        match = _FIELD.fullmatch(urn)
        if match:
            return cls(match[1], cls.plain_path(_decoded(match[2])))
        return cls(urn, "") if dataset_parts(urn) else None

    @staticmethod
    def plain_path(path: str) -> str:
        """Return a field path without the bracketed types that version 2 of DataHub's field paths
        contains.
        """
        return _TYPE_OF_PATH.sub("", path).removesuffix(".") or path


def last_part(urn: str) -> str:
    """Return a URN without ``urn:li:<entity type>:``."""
    return _decoded(urn.split(":", 3)[-1])


def _decoded(part: str) -> str:
    """Undo the %-encoding that acryl-datahub gives the reserved characters ``%``, ``,``, ``(`` and
    ``)`` of a URN.
    """
    return _ENCODED.sub(lambda match: chr(int(match[1], 16)), part)


class JobParts(NamedTuple):
    """Parts of a DataFlow's or DataJob's URN; ``None`` for each part that the URN does not have."""

    orchestrator: str | None = None
    flow: str | None = None
    job: str | None = None

    @classmethod
    def of(cls, urn: str) -> JobParts:
        """Parse a URN."""
        job = _JOB.fullmatch(urn)
        flow = _FLOW.fullmatch(job[1] if job else urn)
        orchestrator, flow_id = (_decoded(flow[1]), _decoded(flow[2])) if flow else (None, None)
        return cls(orchestrator, flow_id, _decoded(job[2]) if job else None)


def harmless(text: str) -> str:
    r"""Return the text without characters that control a terminal or break a line.

    Control, direction and other invisible characters become visible escapes (``\x1b``).
    """
    return printable(_cut(text, _LONGEST_NAME))


def harmless_lines(text: str) -> str:
    """Return a query with its line breaks, and with all other characters escaped as
    :func:`harmless` does.
    """
    return printable_lines(_cut(text, _LONGEST_QUERY))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


@dataclass(frozen=True)
class ShortName:
    """Name of a dataset as people read it.

    :param platform: e.g. ``hive``; empty if the URN is malformed.
    :param name: the name without platform instance.
    :param note: platform instance and environment if they are not the usual ones, e.g. ``(eu,
        DEV)``.
    """

    platform: str
    name: str
    note: str = ""

    @property
    def text(self) -> str:
        """All parts, e.g. ``hive sales.orders (DEV)``."""
        return " ".join(part for part in (self.platform, self.name, self.note) if part)

    def tails(self) -> list[str]:
        """Return ever longer ends of the name, from its last path segment to :attr:`text`."""
        segments = [segment for segment in self.name.split("/") if segment]
        ends = ["/".join(segments[-count:]) for count in range(1, len(segments))]
        return [*ends, self.name, self.text]


@dataclass
class ShortNames:
    """Short names of datasets.

    :param instances: the platform instances by dataset URN.
    """

    instances: Mapping[str, str] = field(default_factory=dict)

    def of(self, urn: str) -> ShortName:
        """Return the short name of a dataset."""
        parts = dataset_parts(urn)
        if parts is None:
            return ShortName("", harmless(last_part(urn)))
        platform, name, env = parts
        instance = self.instances.get(urn)
        if instance:
            name = name.removeprefix(f"{instance}.")
        notes = [note for note in (instance, env if env != "PROD" else None) if note]
        note = f"({', '.join(notes)})" if notes else ""
        return ShortName(*(harmless(part) for part in (platform, name, note)))

    def tails(self, urns: Iterable[str]) -> dict[str, str]:
        """Return for each dataset the shortest end of its name that identifies it among the others."""
        names = {urn: self.of(urn) for urn in dict.fromkeys(urns)}
        taken = Counter(tail for name in names.values() for tail in set(name.tails()))
        return {
            urn: next((end for end in name.tails() if taken[end] == 1), name.text)
            for urn, name in names.items()
        }


def format_duration(milliseconds: int | None) -> str:
    """Return a duration for people: ``12.3 s``, ``4 min 12 s``, ``1 h 04 min``; empty if it is
    unknown.
    """
    if milliseconds is None:
        return ""
    if milliseconds < _MINUTE_MS - _HALF_TENTH_MS:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def format_time(milliseconds: int | None, zone: tzinfo = UTC, *, dated: bool = True) -> str:
    """Return a time since 1970 UTC in a time zone; empty if it is unknown or outside the calendar."""
    if milliseconds is None:
        return ""
    try:
        moment = (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(zone)
        return moment.strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S")
    except (OverflowError, ValueError):
        return ""
