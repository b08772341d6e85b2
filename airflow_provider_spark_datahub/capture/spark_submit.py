"""The parts of a spark-submit call that decide about listeners, jars and Spark properties.

What the driver's output says of lineage: in client mode ``spark-submit`` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Submission:
    """What the user hands to spark-submit.

    :param properties: the ``--conf`` properties; values may be of any type, spark-submit sees their ``str()``.
    :param jars: the ``--jars`` option, comma-separated.
    :param packages: the ``--packages`` option, comma-separated Maven coordinates.
    :param driver_class_path: the ``--driver-class-path`` option.
    :param repositories: the ``--repositories`` option, comma-separated URLs.
    :param base_properties: what Spark reads of lower priority: ``--properties-file`` or ``spark-defaults.conf``.
    """

    properties: Mapping[str, object] = field(default_factory=dict)
    jars: str | None = None
    packages: str | None = None
    driver_class_path: str | None = None
    repositories: str | None = None
    base_properties: Mapping[str, str] = field(default_factory=dict)

    def effective(self, name: str) -> str | None:
        """The value that Spark would see for a property, or None where nobody sets it."""
        if name in self.properties:
            return str(self.properties[name])
        return self.base_properties.get(name)

    def effective_properties(self) -> dict[str, str]:
        """All properties that Spark would see."""
        return {**self.base_properties, **{name: str(value) for name, value in self.properties.items()}}

    def effective_jars(self) -> tuple[str, ...]:
        """The jars of the job: ``--jars`` replaces ``spark.jars``, it does not add to it."""
        return split_list(self.jars or self.effective("spark.jars"))

    def effective_packages(self) -> tuple[str, ...]:
        """The packages of the job: ``--packages`` replaces ``spark.jars.packages``."""
        return split_list(self.packages or self.effective("spark.jars.packages"))

    def effective_repositories(self) -> tuple[str, ...]:
        """Additional Maven repositories: ``--repositories`` replaces ``spark.jars.repositories``."""
        return split_list(self.repositories or self.effective("spark.jars.repositories"))

    def effective_driver_class_path(self) -> tuple[str, ...]:
        """Entries of the driver's additional class path, split at ``:``."""
        entries = self.driver_class_path or self.effective("spark.driver.extraClassPath") or ""
        return tuple(entry for entry in entries.split(":") if entry.strip())


def split_list(value: str | None) -> tuple[str, ...]:
    """A comma-separated option of spark-submit as its entries, blanks dropped."""
    return tuple(entry.strip() for entry in (value or "").split(",") if entry.strip())


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
