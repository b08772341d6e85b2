"""Names as they may stand in a terminal: short, and unable to steer it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.picture.urns import dataset_parts, flow_parts, job_parts, last_part

LONGEST_NAME = 300
"""Characters of a name that are shown at most; a query or a plan may have ended up in one."""
LONGEST_QUERY = 20_000
"""Characters of a query that are shown at most."""

_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_VARIATION_SELECTOR = re.compile("[\ufe00-\ufe0f]")


def harmless(text: str, encoding: str = "utf-8") -> str:
    r"""The text without anything that a terminal would obey or that would break a line.

    Control, direction and other invisible characters become visible escapes (``\x1b``), as does what the encoding
    cannot express.
    """
    return _visible(_cut(text, LONGEST_NAME), encoding)


def harmless_lines(text: str) -> str:
    """A query line by line, without anything else that could steer what shows it."""
    return "\n".join(_visible(line, "utf-8") for line in _cut(text, LONGEST_QUERY).expandtabs(4).splitlines())


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _visible(text: str, encoding: str) -> str:
    visible = "".join(_escaped(character) if _steers(character) else character for character in text)
    return visible.encode(encoding, "backslashreplace").decode(encoding)


def _steers(character: str) -> bool:
    return unicodedata.category(character) in _STEERING or bool(_VARIATION_SELECTOR.match(character))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def short_name(urn: str) -> str:
    """What a person calls an entity: ``hive sales.orders``, ``spark daily``; what is no such URN stays as it is."""
    if dataset_parts(urn):
        return DatasetNames().of(urn).text
    if urn.startswith("urn:li:dataProcessInstance:"):
        return f"run {last_part(urn)}"
    job = job_parts(urn)
    flow = flow_parts(job[0] if job else urn)
    if flow is None:
        return urn
    return " ".join([flow[0], flow[1] if job is None or job[1] == flow[1] else f"{flow[1]}.{job[1]}"])


@dataclass(frozen=True, slots=True)
class DatasetName:
    """A dataset for the eye.

    :param platform: e.g. ``hive``; empty for what is no dataset URN.
    :param name: the name without platform instance.
    :param note: platform instance and environment where they say something, e.g. ``(eu, DEV)``.
    """

    platform: str
    name: str
    note: str = ""

    @property
    def text(self) -> str:
        """All of it, e.g. ``hive sales.orders (DEV)``."""
        return " ".join(part for part in (self.platform, self.name, self.note) if part)

    def tails(self) -> list[str]:
        """Ever longer ends of the name, the last path segment first, all with platform last."""
        segments = [segment for segment in self.name.split("/") if segment]
        ends = ["/".join(segments[-count:]) for count in range(1, len(segments))]
        return [*ends, self.name, self.text]


@dataclass(slots=True)
class DatasetNames:
    """The names of a picture's datasets.

    :param instances: the platform instance of the datasets that have one, by URN.
    :param encoding: what the terminal can show.
    """

    instances: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"

    def of(self, urn: str) -> DatasetName:
        """The name of a dataset: platform, name, and what sets it apart from production."""
        parts = dataset_parts(urn)
        if parts is None:
            return DatasetName("", harmless(last_part(urn), self.encoding))
        platform, name, env = parts
        instance = self.instances.get(urn)
        if instance:
            name = name.removeprefix(f"{instance}.")
        notes = [note for note in (instance, env if env != "PROD" else None) if note]
        note = f"({', '.join(notes)})" if notes else ""
        return DatasetName(*(harmless(part, self.encoding) for part in (platform, name, note)))

    def tails(self, urns: Iterable[str]) -> dict[str, str]:
        """Per dataset the shortest end of its name that no other of them has too."""
        names = {urn: self.of(urn) for urn in dict.fromkeys(urns)}
        taken = Counter(tail for name in names.values() for tail in set(name.tails()))
        return {urn: next((end for end in name.tails() if taken[end] == 1), name.text) for urn, name in names.items()}
