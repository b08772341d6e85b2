"""What one write of a dataset reached: the task instances that read it, and what they wrote
(``docs/history.md``).

When in doubt, a task instance counts as reached. Runs are those of an outbox, or those that DataHub
holds: of other hosts, or forgotten by the outbox.

Tests: ``tests/conversion/test_impact.py``, ``tests/system/test_changing_shop.py``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from operator import itemgetter
from typing import NamedTuple

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion.events import parse_time_ms
from airflow_provider_spark_datahub.conversion.history.changes import (
    SOME_TASK,
    Fingerprint,
    SilentTasks,
    Use,
    dataset_name,
)
from airflow_provider_spark_datahub.conversion.runs.versions import UNKNOWN_VERSION
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.text import counted

_SKEW_MS = 2_000
"""Differences of clocks that do not matter."""
_MOST_DELTA_DIGITS = 9
"""Digits of a version that counts commits, as Delta's; Iceberg's are random numbers."""

Instance = tuple[str, str, str, int]
"""DAG, DAG run, task, map index."""


class UnknownWriteError(ValueError):
    """Question about a write that is not recorded, or about several datasets."""


class _Write(NamedTuple):
    """Write of a dataset by an attempt; ``None`` if nothing is known of who wrote."""

    urn: str
    use: Use
    start_ms: int
    end_ms: int
    record: Fingerprint | None = None

    @property
    def version(self) -> str:
        """Its last known version; empty if it has none."""
        return next(
            (version for version in reversed(self.use.versions) if version != UNKNOWN_VERSION), ""
        )

    @property
    def keys(self) -> set[str | int | float]:
        """Its known versions, for comparisons."""
        return {_key(version) for version in self.use.versions if version != UNKNOWN_VERSION}


class _ReachedInstance(msgspec.Struct, frozen=True):
    """Task instance that a write reached.

    :param inferred: no version proves it.
    :param through: the task without lineage through which alone it may have been reached, itself or
        an earlier one.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    logical_ms: int | None
    inferred: bool
    through: str = ""

    @property
    def how(self) -> str:
        """How it is known."""
        if self.through == f"{self.dag_id}.{self.task_id}":
            return "inferred, it has no lineage"
        source = (
            f"through {self.through}, which has no lineage" if self.through else "from the times"
        )
        return f"inferred {source}" if self.inferred else "read"


class Impact(msgspec.Struct, frozen=True):
    """What a write reached, and how many of the task instances downstream it did not reach.

    :param reached: in the order in which they ran.
    :param others: read only what other writes made.
    :param other_columns: use other columns.
    :param unreached: read only what the write did not reach.
    """

    reached: tuple[_ReachedInstance, ...]
    others: int
    other_columns: int
    unreached: int

    @property
    def downstream(self) -> int:
        """Number of all task instances downstream."""
        return len(self.reached) + self.others + self.other_columns + self.unreached

    @property
    def sentence(self) -> str:
        """The numbers in one sentence."""
        silent = sum(bool(one.through) for one in self.reached)
        read, more = (
            len(self.reached) - silent,
            f"{silent} may have, through tasks without lineage; " if silent else "",
        )
        return (
            f"{read} of {counted(self.downstream, 'downstream task instance')} read it; {more}{self.others} read only "
            f"other writes; {self.other_columns} use other columns; {self.unreached} read only what it did not reach"
        )


class _Seen(Enum):
    EARLIER = 0
    OTHERS = 1
    INFERRED = 2
    READ = 3


_Columns = frozenset[str] | None
"""Columns in lower case; ``None`` for all of them."""


class Records:
    """Fingerprints of attempts: readers and writes by dataset."""

    def __init__(self, records: Iterable[Fingerprint]) -> None:
        self.readers: dict[str, list[Fingerprint]] = {}
        self.writes: dict[str, list[_Write]] = {}
        self._after: dict[tuple[str, ...], list[Fingerprint]] = {}
        self._readers: dict[tuple[str, str | int | float], list[Fingerprint]] = {}
        self._all = sorted(records, key=lambda record: (record.start_ms, record.end_ms))
        for record in self._all:
            run = record.key.dag_id, record.key.run_id
            for step in (*((*run, task) for task in record.silent.before), *record.silent.started):
                self._after.setdefault(step, []).append(record)
                self._after.setdefault(step[:2], []).append(record)
            for urn, use in record.inputs.items():
                self.readers.setdefault(urn, []).append(record)
                for key in {_key(version) for version in use.versions}:
                    self._readers.setdefault((urn, key), []).append(record)
            for urn, use in record.outputs.items():
                start_ms, end_ms = use.start_ms or record.start_ms, use.end_ms or record.end_ms
                self.writes.setdefault(urn, []).append(_Write(urn, use, start_ms, end_ms, record))
        self._versions: dict[tuple[str, str | int | float], _Write] = {}
        self._replacing: dict[str, list[_Write]] = {}
        self._made: dict[tuple[str, int], _Write] = {}
        for urn, writes in self.writes.items():
            writes.sort(key=lambda write: write.end_ms)
            for write in writes:
                self._made[urn, id(write.record)] = write
                if write.use.replaces:
                    self._replacing.setdefault(urn, []).append(write)
                for key in write.keys:
                    # OpenLineage may name the version before a write as its own.
                    self._versions.setdefault((urn, key), write)

    def plus(self, held: Iterable[Fingerprint]) -> Records:
        """Return these and those of DataHub, except of task runs whose attempts are all here: these
        say more.
        """
        attempts: dict[Instance, set[int]] = {}
        for record in self._all:
            attempts.setdefault(_instance(record), set()).add(record.key.try_number)
        every = ((record, set(range(1, record.key.try_number + 1))) for record in held)
        new = (
            record
            for record, tries in every
            if not tries or not tries <= attempts.get(_instance(record), set())
        )
        return Records([*self._all, *new])

    def version(self, urn: str, version: str) -> _Write | None:
        """Return the first write that made a version; ``None`` if it is not known."""
        return self._versions.get((urn, _key(version)))

    def through_silent(self, record: Fingerprint) -> Iterator[tuple[str, list[Fingerprint]]]:
        """Yield each task without lineage after an attempt, with the attempts after that one."""
        run = record.key.dag_id, record.key.run_id
        for task in record.silent.after:
            steps = [run] if task == SOME_TASK else [(*run, task), (*run, SOME_TASK)]
            yield task, [later for step in steps for later in self._after.get(step, ())]

    def replacing(self, write: _Write) -> Iterator[_Write]:
        """Yield the later writes that left nothing of a write."""
        return (
            other for other in self._replacing.get(write.urn, ()) if other.start_ms > write.end_ms
        )

    def readers_of(self, write: _Write) -> Iterator[Fingerprint]:
        """Yield the attempts that read a version of a write."""
        for key in write.keys:
            yield from self._readers.get((write.urn, key), ())

    def readers_in_time(self, urn: str) -> list[tuple[int, Fingerprint]]:
        """Return the attempts that read a dataset, in the order of their ends: after what they
        read, by any clock.
        """
        ends = []
        for record in self.readers.get(urn, ()):
            made = (self.version(urn, version) for version in record.inputs[urn].versions)
            ends.append(
                (
                    max([record.end_ms, *(write.end_ms for write in made if write is not None)]),
                    record,
                )
            )
        return sorted(ends, key=itemgetter(0))

    def made(self, record: Fingerprint, urn: str) -> _Write:
        """Return the write of a dataset by an attempt."""
        return self._made[urn, id(record)]

    def named(self, name: str) -> list[str]:
        """Return the datasets with a name. :param name: its URN, its name, or the end of its name."""
        return [urn for urn in self.writes | self.readers if self.is_named(urn, name)]

    @staticmethod
    def is_named(urn: str, name: str) -> bool:
        """Return whether a dataset has a name, or a name with this end."""
        full = dataset_name(urn)
        return name in (urn, full) or full.endswith((f".{name}", f"/{name}"))

    def writes_of(
        self, name: str, version: str | None = None, since_ms: int | None = None
    ) -> list[_Write]:
        """Return the writes of a dataset: of a version, or since a time, or the last one.

        :param name: as in :meth:`named`.
        :raises UnknownWriteError: if there is none, or several datasets have this name.
        """
        urns = self.named(name)
        if len(urns) != 1:
            found = f"are {', '.join(sorted(urns)[:5])}" if urns else "is none"
            raise UnknownWriteError(f"want one dataset with the name {name}, there {found}")
        writes = self.writes.get(urns[0], [])
        if version is not None:
            found = ", ".join(write.version for write in writes[-5:] if write.version) or "none"
            writes = [write for write in writes if _key(version) in write.keys]
            if not writes:
                raise UnknownWriteError(
                    f"no recorded write of {name} has version {version}; the last are {found}"
                )
        elif since_ms is not None:
            # Nobody knows who else writes, such as those of raw files.
            unknown = _Write(urns[0], Use(), since_ms, since_ms)
            writes = [write for write in writes if write.end_ms >= since_ms] or [unknown]
        elif not writes:
            raise UnknownWriteError(f"no recorded task wrote {name}: say since when it is wrong")
        return writes if version is not None or since_ms is not None else writes[-1:]

    def impact(self, writes: Sequence[_Write], column: str | None = None) -> Impact:
        """Return what writes reached.

        :param column: only its values were wrong.
        :raises UnknownWriteError: if the dataset's columns are known, and this is none of them.
        """
        origins = {_instance(write.record) for write in writes if write.record is not None}
        columns = frozenset([column.lower()]) if column is not None else None
        if columns and (urn := next((write.urn for write in writes), None)):
            uses = [
                *(record.inputs[urn] for record in self.readers.get(urn, ())),
                *(write.use for write in writes),
            ]
            known = {name.lower() for use in uses for name in use.columns}
            if known and not any(_is_part(name, columns) for name in known):
                few = ", ".join(sorted(known)[:5])
                raise UnknownWriteError(
                    f"no recorded run knows a column {column} of {dataset_name(urn)}, but {few}"
                )
        spread = _Spread(self)
        spread.follow(writes, columns)
        everything = _Spread(self, naive=True)
        everything.follow(writes, None)
        reached = [place for place in spread.reached.items() if place[0] not in origins]
        rest = everything.reached.keys() - origins - spread.reached.keys()
        others, other_columns = rest & spread.others, rest & spread.other_columns - spread.others
        return Impact(
            tuple(
                _ReachedInstance(*instance, place.logical_ms, place.how < _EXACT, place.how[1])
                for instance, place in sorted(reached, key=lambda item: (item[1].start_ms, item[0]))
            ),
            len(others),
            len(other_columns),
            len(rest - others - other_columns),
        )


_How = tuple[int, str]
"""How sure it is that something was reached, and through which task without lineage."""
_EXACT, _BY_TIME, _NOTHING = (2, ""), (1, ""), (-1, "")


class _Place(NamedTuple):
    start_ms: int
    logical_ms: int | None
    how: _How


class _Spread:
    """Spread of writes through task instances.

    :param naive: whoever read a dataset after its write, or at the same time, is reached.
    """

    def __init__(self, known: Records, *, naive: bool = False) -> None:
        self._known, self._naive = known, naive
        self._queue: deque[tuple[_Write, _Columns, _How]] = deque()
        self._outputs: dict[tuple[int, str, bool], tuple[_Columns, _How]] = {}
        self._before_silent: dict[int, Fingerprint] = {}
        self._whole: dict[tuple[int, str], _How] = {}
        """How it is known of attempts that all columns of all outputs that a dataset reaches are
        reached.
        """
        self._open: dict[tuple[str, _How], list[tuple[int, Fingerprint]]] = {}
        """Readers of a dataset about which such a write may say more."""
        self.reached: dict[Instance, _Place] = {}
        self.others: set[Instance] = set()
        self.other_columns: set[Instance] = set()

    def follow(self, writes: Iterable[_Write], columns: _Columns) -> None:
        for write in writes:
            self._queue.append((write, columns, _EXACT))
            if write.record is not None:
                self._before_silent[id(write.record)] = write.record
        passed = 0
        while self._queue or passed < len(self._before_silent):
            while self._queue:
                write, columns, how = self._queue.popleft()
                for reader in self._readers(write, how):
                    self._read(reader, write, columns, how)
            for record in [*self._before_silent.values()][passed:]:
                passed += 1
                self._pass_silent(record)

    def _readers(self, write: _Write, how: _How) -> Iterator[Fingerprint]:
        """Yield the attempts that a write may reach, or may be surer to have reached."""
        yield from self._known.readers_of(write)
        # Without its version, they learn nothing more if all that they wrote is reached by the
        # times already.
        how = min(how, _BY_TIME)
        readers = self._open.get((write.urn, how))
        if readers is None:
            readers = self._open[write.urn, how] = self._known.readers_in_time(write.urn)
        first = bisect_left(readers, write.start_ms - _SKEW_MS, key=itemgetter(0))
        yield from (reader for _, reader in readers[first:])
        readers[first:] = [
            each
            for each in readers[first:]
            if self._whole.get((id(each[1]), write.urn), _NOTHING) < how
        ]

    def _read(self, reader: Fingerprint, write: _Write, columns: _Columns, how: _How) -> None:
        """Follow a write through an attempt that reads its dataset."""
        instance, seen = _instance(reader), self._seen(reader, write)
        if seen is _Seen.OTHERS:
            self.others.add(instance)
        if seen in (_Seen.EARLIER, _Seen.OTHERS) or not (reader.outputs or reader.succeeded):
            return
        outputs = _outputs(reader, write.urn, columns)
        if columns is not None and not outputs:
            self.other_columns.add(instance)
            return
        how = how if seen is _Seen.READ else min(how, _BY_TIME)
        self._reach(reader, outputs, how)
        if all(columns is None for columns in outputs.values()):
            place = id(reader), write.urn
            self._whole[place] = max(self._whole.get(place, _NOTHING), how)

    def _reach(self, reader: Fingerprint, outputs: dict[str, _Columns], how: _How) -> None:
        self._mark(_instance(reader), reader.start_ms, reader.logical_ms, how)
        for output, columns in outputs.items():
            # What only a task without lineage may have reached says nothing of the rest.
            place = id(reader), output, bool(how[1])
            before = self._outputs.get(place, (frozenset(), (0, "")))
            after = _union(before[0], columns), max(before[1], how)
            if after != before:
                self._outputs[place] = after
                self._queue.append((self._known.made(reader, output), *after))
        self._before_silent[id(reader)] = reader

    def _pass_silent(self, record: Fingerprint) -> None:
        """Follow an attempt through the tasks without lineage after it, which may have used all
        that it wrote.
        """
        dag_id, run_id = record.key.dag_id, record.key.run_id
        for task, later in self._known.through_silent(record):
            how = 0, f"{dag_id}.{task}"
            if task != SOME_TASK:
                self._mark((dag_id, run_id, task, -1), record.end_ms, record.logical_ms, how)
            for reader in later:
                if reader.end_ms + _SKEW_MS >= record.start_ms:
                    self._reach(reader, dict.fromkeys(reader.outputs), how)

    def _mark(self, instance: Instance, start_ms: int, logical_ms: int | None, how: _How) -> None:
        place = self.reached.setdefault(instance, _Place(start_ms, logical_ms, how))
        self.reached[instance] = place._replace(
            how=max(place.how, how), start_ms=min(place.start_ms, start_ms)
        )

    def _seen(self, reader: Fingerprint, write: _Write) -> _Seen:
        use, of_time = reader.inputs[write.urn], reader.end_ms + _SKEW_MS >= write.start_ms
        by_time = _Seen.INFERRED if of_time else _Seen.EARLIER
        if self._naive:
            return by_time
        read = [self._known.version(write.urn, version) for version in use.versions]
        if any(_is_before(other, reader, read) for other in self._known.replacing(write)):
            return _Seen.OTHERS
        versions = [
            _by_version(version, known, write)
            for version, known in zip(use.versions, read, strict=True)
        ]
        return max((seen or by_time for seen in versions or [None]), key=lambda seen: seen.value)


def _is_before(write: _Write, reader: Fingerprint, read: Sequence[_Write | None]) -> bool:
    """Return whether an attempt read nothing from before a write. :param read: by the versions that
    it read.
    """
    if write.version:
        return bool(read) and all(
            of is not None and (of is write or of.start_ms > write.end_ms) for of in read
        )
    return write.end_ms + _SKEW_MS < reader.start_ms


def _by_version(version: str, known: _Write | None, write: _Write) -> _Seen | None:
    """Return whether a version, which a known write made, holds a write; ``None`` if versions do
    not say it.
    """
    if _key(version) in write.keys:
        return _Seen.READ
    if known is not None:
        # A later version holds what earlier ones held, unless it was replaced.
        return _Seen.EARLIER if known.end_ms + _SKEW_MS < write.start_ms else _Seen.INFERRED
    count, is_whole = _key(version), UNKNOWN_VERSION not in write.use.versions
    counts = [key for key in write.keys if isinstance(key, int) and is_whole]
    return _Seen.EARLIER if isinstance(count, int) and counts and count < min(counts) else None


def _outputs(reader: Fingerprint, urn: str, columns: _Columns) -> dict[str, _Columns]:
    if columns is None or urn in reader.hidden:
        return dict.fromkeys(reader.reached_from(urn))
    found: dict[str, _Columns] = {}
    datasets = reader.datasets
    for output, source, pairs in reader.edges:
        if datasets[source] == urn:
            hit = frozenset(
                column.lower() for column, used in pairs if _is_part(used.lower(), columns)
            )
            if hit:
                found[datasets[output]] = _union(found.get(datasets[output], frozenset()), hit)
    return found


def _is_part(column: str, columns: Collection[str]) -> bool:
    """Return whether a column is one of these, or a field of one, or has one as a field."""
    return any(
        f"{column}.".startswith(f"{of}.") or f"{of}.".startswith(f"{column}.") for of in columns
    )


def _union(first: _Columns, second: _Columns) -> _Columns:
    return None if first is None or second is None else first | second


def _instance(record: Fingerprint) -> Instance:
    key = record.key
    return key.dag_id, key.run_id, key.task_id, key.map_index


def _key(version: str) -> str | int | float:
    """Return a version for comparisons: Delta counts; OpenLineage rounds the random numbers of
    Iceberg to 16 digits.
    """
    try:
        return int(version) if len(version) <= _MOST_DELTA_DIGITS else float(version)
    except ValueError:
        return version


# -- runs that DataHub holds

_TASK = re.compile(r"urn:li:dataJob:\(urn:li:dataFlow:\(airflow,([^,]+),[^,]+\),([^,]+)\)")


class HeldRun(msgspec.Struct, frozen=True):
    """Run that DataHub holds: of a DAG, a task, or Spark. Times are in ms since the epoch.

    :param template: URN of its DataFlow or DataJob, and :attr:`parent` that of the run above it.
    :param attempt: number of its last attempt; 0 if it is not known.
    """

    urn: str
    template: str = ""
    parent: str = ""
    properties: dict[str, str] = {}
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    start_ms: int = 0
    end_ms: int = 0
    attempt: int = 0
    succeeded: bool = True

    @property
    def key(self) -> AttemptKey | None:
        """Key of its last attempt; ``None`` if it is not a task's."""
        task, properties = _TASK.fullmatch(self.template), self.properties
        if task is None or "run_id" not in properties:
            return None
        names = (
            properties.get("dag_id", task[1]),
            properties["run_id"],
            properties.get("task_id", task[2]),
        )
        index = properties.get("map_index", "")
        return AttemptKey(*names, int(index) if index.isdecimal() else -1, self.attempt)

    @staticmethod
    def fingerprints(runs: Mapping[str, HeldRun]) -> dict[str, Fingerprint]:
        """Return a fingerprint of each task run, of all its attempts together: DataHub does not
        keep them apart.

        :param runs: by URN, with those above and below the task runs.
        """
        below: dict[str, tuple[AttemptKey, list[HeldRun]]] = {}
        for urn, run in runs.items():
            if (key := run.key) is not None:
                below[urn] = key, []
        for run in sorted(runs.values(), key=lambda run: run.end_ms):
            above, passed = runs.get(run.parent), {run.urn}
            while above is not None and above.urn not in below and above.urn not in passed:
                passed.add(above.urn)
                above = runs.get(above.parent)
            if above is not None and above.urn in below and run.urn not in below:
                below[above.urn][1].append(run)
        return {urn: _fingerprint(key, runs[urn], parts) for urn, (key, parts) in below.items()}


class _Described(msgspec.Struct):
    """Use of a dataset, as a property of a Spark run."""

    version: str = ""
    earlier: str = ""
    rows: int | None = None
    bytes: int | None = None
    inferred: bool = False
    replaces: bool = False


def _fingerprint(key: AttemptKey, task: HeldRun, parts: Collection[HeldRun]) -> Fingerprint:
    inputs, outputs = dict[str, Use](), dict[str, Use]()
    for run in parts:
        for urn in run.inputs:
            _use(run, f"input:{urn}").add_to(inputs, urn, is_read=True)
        for urn in run.outputs:
            use = structs.replace(
                _use(run, f"output:{urn}"), start_ms=run.start_ms, end_ms=run.end_ms
            )
            # The bytes of several writes together are those of none.
            outputs[urn] = (
                structs.replace(outputs[urn].plus(use), size=None) if urn in outputs else use
            )
    # What another attempt read and wrote, or a Spark run that DataHub no longer has.
    inputs = dict.fromkeys(task.inputs, Use()) | inputs
    outputs = dict.fromkeys(task.outputs, Use()) | outputs
    times = [run for run in (task, *parts) if run.end_ms]
    start_ms, end_ms = (
        min((run.start_ms for run in times), default=0),
        max((run.end_ms for run in times), default=0),
    )
    logical_ms, silent = (
        parse_time_ms(task.properties.get("logical_date")),
        SilentTasks.of_properties(task.properties),
    )
    known = key, start_ms, end_ms, task.succeeded, "", inputs, outputs
    # Of columns, DataHub knows only those of the job's last run.
    return Fingerprint(*known, hidden=tuple(inputs), logical_ms=logical_ms, silent=silent)


def _use(run: HeldRun, name: str) -> Use:
    try:
        described = msgspec.json.decode(run.properties.get(name, "{}"), type=_Described)
    except msgspec.DecodeError:
        return Use()
    texts = [] if described.inferred else [described.earlier, described.version]
    versions = tuple(version for text in filter(None, texts) for version in text.split(", "))
    return Use(versions, described.rows, described.bytes, replaces=described.replaces)
