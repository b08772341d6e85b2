"""What a check found, for a person: well or not, in a sentence, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How a check ended."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    :param subject: what was checked, e.g. ``connection``.
    :param words: what was found; never holds a secret.
    :param advice: what to do about it; empty where nothing is to be done.
    """

    subject: str
    verdict: Verdict
    words: str
    advice: str = ""

    def to_obj(self) -> dict[str, Any]:
        """The finding as JSON."""
        return asdict(self)
