"""What the driver's output says of lineage: in client mode ``spark-submit`` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

# io.openlineage.spark.agent.lifecycle.ContextFactory
_UNSEEN = re.compile(r"Query execution is null: can't emit event for executionId (\d{1,18})")
_MOST_LISTED = 10


class DriverOutput:
    """Takes note of SQL executions of which OpenLineage says that it could not see them.

    That is no loss yet: of many of them other events arrive, and others write nothing.

    :ivar unseen: Spark's numbers of the executions, as in its UI.
    """

    def __init__(self) -> None:
        self.unseen: dict[int, None] = {}

    def watched(self, lines: Iterable[T]) -> Iterator[T]:
        """The lines as they are, one by one, looked at in passing."""
        for line in lines:
            if isinstance(line, str) and (found := _UNSEEN.search(line)):
                self.unseen[int(found[1])] = None
            yield line

    @property
    def sentence(self) -> str:
        """For people; empty where there is nothing to tell."""
        if not self.unseen:
            return ""
        listed = ", ".join(map(str, list(self.unseen)[:_MOST_LISTED]))
        more = len(self.unseen) - _MOST_LISTED
        listed += f" and {more} more" if more > 0 else ""
        return f"OpenLineage says in the driver's output that it could not see SQL executions: {listed}"
