"""Of all versions of the aspects in an archive those that a catalogue would keep: the latest win.

Replayed in the order of time, each whole version of an aspect replaces what was there, and each patch adds to it. So
what is left is the last whole version and what was added after it. Applications of one ``spark-submit`` (sessions of
one name) keep each other's edges, as they do when their task delivers them: the first replaces, if all of them tell
the whole story, and the others add (see
:func:`~airflow_provider_spark_datahub.conversion.runs.coalesce.keep_each_others_edges`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion.aspects import added_edges
from airflow_provider_spark_datahub.conversion.proposals import ChangeType, Proposal

LATEST, ADDED, RUN = "the latest version", "added since the latest version", "run history"

_EDGES = "dataJobInputOutput"
_TIME_SERIES = frozenset({"operation"})
_SUBMISSIONS = 100


class Version(NamedTuple):
    """What one run wrote of one aspect, and when. Versions are sorted as they are.

    :param place: the entity's URN; of a run that of its job, so that a job and its runs are kept together.
    :param time_ms: when the run ended, in ms since the epoch.
    :param number: in which place of all that the run wrote.
    :param submission: the run that started this one, by which applications of one ``spark-submit`` are told; or empty.
    :param content: the aspect as JSON in UTF-8.
    """

    place: str
    time_ms: int
    run_id: str
    number: int
    submission: str
    entity_type: str
    entity_urn: str
    aspect_name: str
    change_type: str
    content: bytes


class Kept(NamedTuple):
    """A proposal that is to be written.

    :param place: as in :class:`Version`.
    :param time_ms: of the last version in it.
    :param reason: why it is kept.
    """

    place: str
    time_ms: int
    proposal: Proposal
    reason: str


def kept_of(versions: Iterable[Version], *, run_history: bool) -> Iterator[Kept]:
    """What is left of all versions, place by place, in the order in which it is to be written.

    :param versions: sorted, at least by place and time.
    :param run_history: keep every run and operation, not only the last one of each place.
    """
    for _, here in groupby(versions, key=itemgetter(0)):
        yield from _kept_here(here, run_history=run_history)


def _kept_here(versions: Iterable[Version], *, run_history: bool) -> Iterator[Kept]:
    aspects: dict[tuple[str, str], _Aspect | _Edges] = {}
    last_run: list[Version] = []
    for version in versions:
        if version.entity_type == "dataProcessInstance" or version.aspect_name in _TIME_SERIES:
            if run_history:
                yield _kept(version, RUN)
            elif last_run and last_run[0].run_id == version.run_id:
                last_run.append(version)
            else:
                last_run = [version]
            continue
        key = version.entity_urn, version.aspect_name
        if key not in aspects:
            aspects[key] = _Edges() if version.aspect_name == _EDGES else _Aspect()
        aspects[key].take(version)
    for aspect in aspects.values():
        yield from aspect.kept()
    for version in last_run:
        yield _kept(version, LATEST)


def _kept(version: Version, reason: str) -> Kept:
    change_type: ChangeType = "PATCH" if version.change_type == "PATCH" else "UPSERT"
    content = msgspec.Raw(version.content)
    return Kept(
        version.place,
        version.time_ms,
        Proposal(version.entity_type, version.entity_urn, version.aspect_name, content, change_type),
        reason,
    )


@dataclass(slots=True)
class _Patch:
    """Operations of several patches as one, which adds each thing once, as the last one had it."""

    version: Version | None = None
    operations: dict[str, Any] = field(default_factory=dict)
    keys: Any = None

    def take(self, version: Version) -> None:
        """Take what a patch adds, or, of a whole version of edges, all that is in it."""
        self.version = version
        content = msgspec.json.decode(version.content)
        if version.change_type != "PATCH":
            content = added_edges(content)
        elif isinstance(content, dict):
            self.keys = content["arrayPrimaryKeys"]
            content = content["patch"]
        for operation in content:
            self.operations.pop(operation["path"], None)
            self.operations[operation["path"]] = operation

    def join(self, later: _Patch) -> None:
        """Take what another one adds."""
        for path, operation in later.operations.items():
            self.operations.pop(path, None)
            self.operations[path] = operation
        self.version = later.version or self.version

    def kept(self) -> Iterator[Kept]:
        """The patch, unless it adds nothing."""
        if self.version is None or not self.operations:
            return
        operations: Any = list(self.operations.values())
        if self.keys is not None:
            operations = {"arrayPrimaryKeys": self.keys, "patch": operations}
        content = msgspec.json.encode(operations)
        yield _kept(self.version._replace(change_type="PATCH", content=content), ADDED)


class _Aspect:
    """The last whole version of an aspect, and what was added since."""

    def __init__(self) -> None:
        self._whole: Version | None = None
        self._added = _Patch()

    def take(self, version: Version) -> None:
        """Take the next version."""
        if version.change_type == "PATCH":
            self._added.take(version)
        else:
            self._whole, self._added = version, _Patch()

    def kept(self) -> Iterator[Kept]:
        """What is left of it."""
        if self._whole is not None:
            yield _kept(self._whole, LATEST)
        yield from self._added.kept()


@dataclass(slots=True)
class _Submission:
    """The edges of one job by the applications of one ``spark-submit``.

    :param whole: what the first of them wrote, while all of them tell the whole story.
    :param rest: what the others add, or all of them.
    """

    whole: Version | None = None
    rest: _Patch = field(default_factory=_Patch)
    adds_only: bool = False

    def take(self, version: Version) -> None:
        """Take what one more of them wrote."""
        if version.change_type == "PATCH" and not self.adds_only:
            self.adds_only = True
            if self.whole is not None:
                own, self.rest = self.rest, _Patch()
                self.rest.take(self.whole)
                self.rest.join(own)
                self.whole = None
        if version.change_type != "PATCH" and not self.adds_only and self.whole is None:
            self.whole = version
        else:
            self.rest.take(version)


class _Edges:
    """A job's edges over many submissions.

    A submission is looked back at for as long as it is among the last hundred of its job: so long may its applications
    lie apart.
    """

    def __init__(self) -> None:
        self._whole: Version | None = None
        self._added = _Patch()
        self._open: dict[str, _Submission] = {}

    def take(self, version: Version) -> None:
        """Take the next version."""
        submission = version.submission or f"run {version.run_id}"
        if submission not in self._open:
            self._open[submission] = _Submission()
            if len(self._open) > _SUBMISSIONS:
                self._close(next(iter(self._open)))
        self._open[submission].take(version)

    def kept(self) -> Iterator[Kept]:
        """What is left of them."""
        for submission in list(self._open):
            self._close(submission)
        if self._whole is not None:
            yield _kept(self._whole, LATEST)
        yield from self._added.kept()

    def _close(self, submission: str) -> None:
        told = self._open.pop(submission)
        if told.whole is not None:
            self._whole, self._added = told.whole, told.rest
        else:
            self._added.join(told.rest)
