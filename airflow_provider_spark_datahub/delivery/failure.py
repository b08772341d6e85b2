"""Why something was not delivered, in terms that do not depend on the destination."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_LONGEST_WORDS = 500  # characters of an answer that are repeated in a log line


class FailureKind(Enum):
    """What a failure says about sending the same once more."""

    REJECTED = "the destination will never take this"
    THROTTLED = "the destination wants us to wait"
    FAILED = "the destination failed: it may be in trouble, or stumble over this alone"
    UNAVAILABLE = "no answer, or one that says that the destination is not there: it may work later"
    UNAUTHORISED = "the credentials are refused"
    MISCONFIGURED = "what answers is not the destination, or cannot be reached with these settings"

    @property
    def may_pass(self) -> bool:
        """Whether the same may arrive a little later."""
        return self in (FailureKind.THROTTLED, FailureKind.FAILED, FailureKind.UNAVAILABLE)


_STATUS_KINDS = {
    401: FailureKind.UNAUTHORISED,
    403: FailureKind.UNAUTHORISED,
    407: FailureKind.UNAUTHORISED,
    # About the address, never about what was sent: else a wrong path in the connection would reject all of it.
    404: FailureKind.MISCONFIGURED,
    405: FailureKind.MISCONFIGURED,
    408: FailureKind.UNAVAILABLE,
    425: FailureKind.UNAVAILABLE,
    429: FailureKind.THROTTLED,
    500: FailureKind.FAILED,
}


def kind_of_status(status: int) -> FailureKind:
    """What an HTTP status that is no success says about sending the same once more."""
    return _STATUS_KINDS.get(status, FailureKind.REJECTED if 400 <= status < 500 else FailureKind.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something was not acknowledged.

    :param words: the destination's or the network's own, in one line, without secrets.
    :param retry_after: seconds that the destination asked to wait; None where it did not.
    """

    kind: FailureKind
    words: str
    retry_after: float | None = None

    def verdict(self, remedy: str) -> str:
        """The predicate of the sentence that tells a user of the failure.

        :param remedy: what to do where the credentials are refused.
        """
        words = self.words.rstrip(".")
        match self.kind:
            case FailureKind.UNAUTHORISED:
                return f"refuses the connection's credentials ({words}): {remedy}"
            case FailureKind.MISCONFIGURED:
                return f"cannot be used with this connection ({words})"
            case FailureKind.FAILED:
                return f"fails ({words})"
            case _:
                return f"is not available ({words})"


def one_line(text: str) -> str:
    """``text`` without line breaks, and not longer than a log line should be."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_WORDS else f"{line[:_LONGEST_WORDS]} …"
