"""Fingerprints of attempts, and what changed since the last green run (``docs/history.md``)."""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from operator import eq
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion.diagnostics import COLUMN_EDGES_LEFT_OUT, UNCOUNTED
from airflow_provider_spark_datahub.conversion.events import iso_instant
from airflow_provider_spark_datahub.conversion.facets.dataset import OutputStatistics
from airflow_provider_spark_datahub.conversion.runs.versions import UNKNOWN_VERSION
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.runs.coalesce import JobLineage
    from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset
    from airflow_provider_spark_datahub.conversion.runs.versions import JobUse

MOST_COMPARED = 10
"""Green runs whose counts make a range."""
_MOST_LINES = 5
_MOST_COLUMNS, _MOST_PAIRS = 5_000, 20_000
"""Most columns, and pairs of columns in edges, that a fingerprint describes: it stays a few KB
long.
"""
SOME_TASK = "some task"
_SILENT, _STARTED_BY = "tasks_without_lineage_", "started_by:"
_VERSIONS = {"processingEngineVersion": "Spark", "openlineageAdapterVersion": "the OpenLineage jar"}
_PROPERTY_CHARS = 200
_FACTOR = 2
"""Counts may grow or fall by this factor beyond those of the latest green runs."""
FEW_GREENS = 3
"""Green runs that show what differs in each run."""
_PART = re.compile(r"[./]")
_LEAST_FOLDERS = 2
"""Parts of a path before its daily part: the root or the bucket, and the table."""
_DAILY = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|\d+", re.IGNORECASE)


_Ms = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000, lt=253_402_300_799_000)]
"""Time that Python can show, in ms since the epoch."""


class Use(msgspec.Struct, frozen=True, omit_defaults=True):
    """Use of one dataset by an attempt.

    :param versions: those that it read, or wrote, the last one last; of some reads, it may be
        unknown.
    :param columns: types by name.
    :param start_ms: start of the first write, and :attr:`end_ms` the end of the last one; ``None``
        if not known.
    :param replaces: it is a write after which the dataset holds nothing else.
    :param scheme: text in front of a path's name in a path spec; :attr:`instance` is the one in its
        URN.
    """

    versions: tuple[str, ...] = ()
    rows: int | None = None
    size: int | None = None
    columns: dict[str, str] = {}
    start_ms: _Ms | None = None
    end_ms: _Ms | None = None
    replaces: bool = False
    scheme: str = ""
    instance: str = ""

    def plus(self, other: Use) -> Use:
        """Return the use of two datasets that count as one."""
        amount = OutputStatistics(self.rows, self.size)
        amount = amount.plus(OutputStatistics(other.rows, other.size))
        starts = [use.start_ms for use in (self, other) if use.start_ms is not None]
        ends = [use.end_ms for use in (self, other) if use.end_ms is not None]
        return Use(
            versions=(*self.versions, *other.versions),
            rows=amount.rows,
            size=amount.size,
            columns=self.columns | other.columns,
            start_ms=min(starts, default=None),
            end_ms=max(ends, default=None),
            replaces=self.replaces or other.replaces,
            scheme=self.scheme or other.scheme,
            instance=self.instance or other.instance,
        )

    def add_to(self, uses: dict[str, Use], urn: str, *, is_read: bool) -> None:
        """Add it to those of other jobs of an attempt. A read without a version may be of any."""
        if (before := uses.get(urn)) is None:
            uses[urn] = self
            return
        both = before.plus(self)
        if is_read and bool(self.versions) != bool(before.versions):
            both = structs.replace(both, versions=(*both.versions, UNKNOWN_VERSION))
        uses[urn] = both


class SilentTasks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tasks without lineage around an attempt: nobody knows what they read and wrote.

    :param before: those upstream in its DAG, and :attr:`after` those downstream; :data:`SOME_TASK`
        if they are many.
    :param started: DAG, DAG run and task of each that wrote an asset which triggered the DAG run.
    """

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    started: tuple[tuple[str, str, str], ...] = ()

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the task run in DataHub."""
        named = {f"{_SILENT}{side}": ", ".join(getattr(self, side)) for side in ("before", "after")}
        started = {
            self.started_by(dag_id, task_id): run_id for dag_id, run_id, task_id in self.started
        }
        return {name: text for name, text in named.items() if text} | started

    @staticmethod
    def started_by(dag_id: str, task_id: str) -> str:
        """Return the name of the property of task runs that an asset event of a task without
        lineage started.
        """
        return f"{_STARTED_BY}{dag_id}/{task_id}"

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> SilentTasks:
        """Return them from :attr:`properties`."""
        before, after = (
            tuple(filter(None, properties.get(f"{_SILENT}{side}", "").split(", ")))
            for side in ("before", "after")
        )
        names = {
            name.removeprefix(_STARTED_BY): run
            for name, run in properties.items()
            if name.startswith(_STARTED_BY)
        }
        return cls(
            before,
            after,
            tuple(
                (name.partition("/")[0], run, name.partition("/")[2]) for name, run in names.items()
            ),
        )


class Fingerprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one attempt read and wrote, and how. Times are in ms since the epoch.

    :param logical_ms: logical date of its DAG run, if it has one.
    :param succeeded: whether its Spark did.
    :param failure: what the driver said in the end if it did not.
    :param edges: numbers of an output and an input among :attr:`datasets`, with pairs of their
        columns.
    :param hidden: inputs whose columns may reach outputs without a column edge.
    :param pairs: numbers of an output and an input that reaches it among :attr:`datasets`; ``None``
        if any input may reach any output.
    :param code: versions and Spark properties by name.
    """

    key: AttemptKey
    start_ms: _Ms
    end_ms: _Ms
    succeeded: bool
    failure: str = ""
    inputs: dict[str, Use] = {}
    outputs: dict[str, Use] = {}
    edges: tuple[tuple[int, int, tuple[tuple[str, str], ...]], ...] = ()
    hidden: tuple[str, ...] = ()
    code: dict[str, str] = {}
    logical_ms: _Ms | None = None
    silent: SilentTasks = SilentTasks()
    pairs: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        """Raise a ValueError if the edges of a record that was read are not between its datasets."""
        edges = [*(edge[:2] for edge in self.edges), *(self.pairs or ())]
        known = self.datasets if edges else []
        for output, source in edges:
            if not (
                0 <= min(output, source) <= max(output, source) < len(known)
                and known[output] in self.outputs
            ):
                raise ValueError("edges of unknown datasets")

    @property
    def datasets(self) -> list[str]:
        """URNs of the inputs and outputs, each once."""
        return list(self.inputs | self.outputs)

    def reached_from(self, urn: str) -> list[str]:
        """Return the outputs that an input reaches."""
        if self.pairs is None:
            return list(self.outputs)
        datasets = self.datasets
        return [datasets[output] for output, source in self.pairs if datasets[source] == urn]

    def needs_more_than(self, green: Fingerprint) -> bool:
        """Return whether earlier runs show more than the last one: it read an old version, or wrote
        another path.
        """
        return self.outputs.keys() != green.outputs.keys() or any(
            use.versions and use == green.inputs.get(urn) for urn, use in self.inputs.items()
        )

    @classmethod
    def of(cls, attempt: Fingerprint, jobs: Sequence[JobLineage]) -> Fingerprint:
        """Return the fingerprint of an attempt with its Spark jobs.

        :param attempt: its key, times and result, with the datasets of queries that a long job has
            forgotten.
        """
        inputs, outputs, hidden, code = (
            dict[str, Use](),
            dict[str, Use](),
            set[str](),
            dict[str, str](),
        )
        left = _MOST_COLUMNS
        for job in jobs:
            reads, writes = (job.uses.reads, job.uses.writes) if job.uses is not None else ({}, {})
            for known, named, uses in (
                (inputs, job.lineage.inputs, reads),
                (outputs, job.lineage.outputs, writes),
            ):
                for urn, dataset in named.items():
                    use = _use(uses.get(urn), left, is_whole=UNCOUNTED not in job.diagnostics.gaps)
                    if "/" in dataset.name.name:
                        use = structs.replace(
                            use, scheme=_scheme(dataset), instance=dataset.name.instance or ""
                        )
                    left -= len(use.columns)
                    use.add_to(known, urn, is_read=known is inputs)
            for operation in job.operations:
                if operation.dataset in outputs:
                    at = Use(start_ms=operation.start_ms, end_ms=operation.time_ms)
                    outputs[operation.dataset] = outputs[operation.dataset].plus(at)
            hidden |= set(job.lineage.inputs) if job.uses is None else job.uses.hidden
            code |= _code(job)
        hidden |= attempt.inputs.keys() - inputs.keys()
        is_forgetful = bool(attempt.inputs or attempt.outputs)
        inputs, outputs = attempt.inputs | inputs, attempt.outputs | outputs
        edges, is_whole = _edges(jobs, list(inputs | outputs), outputs)
        hidden = hidden.intersection(inputs) if is_whole else set(inputs)
        return structs.replace(
            attempt,
            inputs=inputs,
            outputs=outputs,
            edges=edges,
            hidden=tuple(sorted(hidden)),
            code=code,
            pairs=None if is_forgetful else _pairs(jobs, list(inputs | outputs)),
        )


def _pairs(
    jobs: Iterable[JobLineage], datasets: Sequence[str]
) -> tuple[tuple[int, int], ...] | None:
    numbers = {urn: number for number, urn in enumerate(datasets)}
    pairs: dict[tuple[int, int], None] = {}
    for job in jobs:
        lineage = job.lineage
        for output in lineage.outputs:
            sources = lineage.writes.get(output, lineage.inputs)
            pairs |= dict.fromkeys((numbers[output], numbers[source]) for source in sources)
            if len(pairs) > _MOST_PAIRS:
                return None
    return tuple(pairs)


def _use(use: JobUse | None, columns: int, *, is_whole: bool) -> Use:
    if use is None:
        return Use()
    rows, size, _ = use.amount
    versions = use.last_versions
    if versions and not is_whole and UNKNOWN_VERSION not in versions:
        versions = (*versions, UNKNOWN_VERSION)
    known = dict(list(use.columns.items())[: max(0, columns)])
    return Use(versions, rows, size, known, replaces=use.replaces)


def _scheme(path: JobDataset) -> str:
    """Return the text that a path spec has in front of a path's name in DataHub."""
    scheme, mark, _ = path.ids[0].namespace.partition("://") if path.ids else ("", "", "")
    return (
        f"{scheme}://" if mark and (scheme == "file" or not path.name.name.startswith("/")) else ""
    )


def _code(job: JobLineage) -> dict[str, str]:
    known = {**job.definition.flow_properties, **job.definition.properties}
    named = {_VERSIONS.get(name, name): value for name, value in sorted(known.items())}
    wanted = ("spark.", *_VERSIONS.values())
    return {
        name: value[:_PROPERTY_CHARS] for name, value in named.items() if name.startswith(wanted)
    }


def _edges(
    jobs: Iterable[JobLineage], datasets: Sequence[str], outputs: Collection[str]
) -> tuple[tuple[tuple[int, int, tuple[tuple[str, str], ...]], ...], bool]:
    """Return the column edges, and whether they are all there."""
    numbers = {urn: number for number, urn in enumerate(datasets)}
    edges: dict[tuple[int, int], dict[tuple[str, str], None]] = {}
    pairs = 0
    for job in jobs:
        if COLUMN_EDGES_LEFT_OUT in job.diagnostics.truncations:
            return (), False
        for lineage in job.lineage.fine_grained:
            for downstream in lineage["downstreams"]:
                output, column = _field(downstream)
                for upstream in lineage["upstreams"]:
                    source, used = _field(upstream)
                    if output in outputs and source in numbers:
                        edges.setdefault((numbers[output], numbers[source]), {})[(column, used)] = (
                            None
                        )
                        pairs += 1
                if pairs > _MOST_PAIRS:
                    return (), False
    return tuple((output, source, tuple(of)) for (output, source), of in edges.items()), True


def _field(urn: str) -> tuple[str, str]:
    """Return the dataset and the column of a column's URN."""
    dataset, _, column = urn.removeprefix("urn:li:schemaField:(").removesuffix(")").rpartition(",")
    return dataset, unquote(column)


# -- what changed


def folded(text: str, run_id: str = "") -> str:
    """Return a name without what differs in each run: digits, dates, UUIDs and the run's id."""
    if run_id and run_id in text:
        text = re.sub(rf"(?<![^\W_]){re.escape(run_id)}(?![^\W_])", "*", text)
    return _DAILY.sub("*", text)


def dataset_name(urn: str) -> str:
    """Return a dataset's name in DataHub, for people."""
    return unquote(urn.split(",")[1]) if urn.count(",") > 1 else urn


class DailyTable(NamedTuple):
    """Table with another path in each run, and the path spec that makes one dataset of these paths.

    :param urns: of the paths, the latest first.
    :param name: of the one dataset in DataHub.
    """

    urns: tuple[str, ...]
    platform: str
    spec: Mapping[str, Any]
    name: str

    @classmethod
    def of(cls, urns: Sequence[str], scheme: str = "", instance: str = "") -> DailyTable | None:
        """Return the table of paths that differ only by what differs in each run; ``None`` if no
        path spec fits.
        """
        before = f"{instance}." if instance else ""
        paths = [dataset_name(urn).removeprefix(before).split("/") for urn in urns]
        place = next(
            (place for place, names in enumerate(zip(*paths, strict=False)) if len({*names}) > 1), 0
        )
        # The folder around what differs is the table's.
        if place < _LEAST_FOLDERS or not (scheme or paths[0][0] == ""):
            return None
        spec: dict[str, Any] = {
            "path_spec_list": [f"{scheme}{'/'.join([*paths[0][: place - 1], '{table}'])}"]
        }
        spec |= {"platform_instance": instance} if instance else {}
        name = before + "/".join(paths[0][:place])
        return cls(tuple(urns), urns[0].split(",")[0].rpartition(":")[2], spec, name)

    @staticmethod
    def of_tasks(runs: Iterable[Fingerprint]) -> Iterator[DailyTable]:
        """Yield the tables of all tasks. :param runs: the newest first."""
        tasks: dict[tuple[str, int], dict[str, Fingerprint]] = {}
        for run in runs:
            if run.succeeded:
                tasks.setdefault((run.key.task, run.key.map_index), {}).setdefault(
                    run.key.run_id, run
                )
        for greens in tasks.values():
            now, *earlier = greens.values()
            yield from _of_daily_names(now, earlier[:MOST_COMPARED])

    @property
    def folder(self) -> str:
        """Beginning of the URNs of its paths."""
        return "/".join(self.urns[0].split("/")[: self.name.count("/") + 1])

    @property
    def setting(self) -> str:
        """The setting, and what it does."""
        spec = self.spec if "platform_instance" in self.spec else self.spec["path_spec_list"]
        return f"path_specs={json.dumps({self.platform: spec})} makes them {self.name}"

    def covers(self, urn: str) -> bool:
        """Return whether the path spec gives another dataset another name, too."""
        if f":{self.platform}," not in urn:
            return False
        name = dataset_name(urn)
        is_below = name.startswith(f"{self.name.rpartition('/')[0]}/") and name.count(
            "/"
        ) > self.name.count("/")
        return is_below and urn not in self.urns


def _of_daily_names(now: Fingerprint, greens: Sequence[Fingerprint]) -> Iterator[DailyTable]:
    known: dict[str, set[tuple[str, ...]]] = {}
    for green in greens:
        for urn in green.outputs:
            known.setdefault(folded(urn, green.key.run_id), set()).add(tuple(urn.split("/")))
    ordered = {name: sorted(paths) for name, paths in known.items()}
    for urn, use in now.outputs.items():
        path, name = tuple(urn.split("/")), folded(urn, now.key.run_id)
        earlier = _nearest(path, ordered.get(name, ()))
        if len(path) > 1 and len(earlier) >= FEW_GREENS - 1 and path not in known[name]:
            table = DailyTable.of([urn, *map("/".join, earlier)], use.scheme, use.instance)
            if table is not None:
                yield table


def _nearest(path: tuple[str, ...], paths: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Return the paths that have the longest beginning in common with a path. :param paths: in
    order.
    """
    at = bisect_left(paths, path)
    near = (takewhile(bool, map(eq, path, other)) for other in paths[max(0, at - 1) : at + 1])
    common = path[: max((sum(same) for same in near), default=0)]
    return paths[bisect_left(paths, common) : bisect_left(paths, (*common, chr(sys.maxunicode)))]


class _Line(NamedTuple):
    """Change in words.

    :param rank: the likeliest cause of a failure has 0.
    :param names: as the failure would mention them.
    """

    rank: int
    text: str
    names: tuple[str, ...] = ()

    def is_in(self, failure: str) -> bool:
        return any(
            re.search(rf"(?<!\w){re.escape(name)}(?!\w)", failure, re.IGNORECASE)
            for name in self.names
        )


class _Write(NamedTuple):
    end_ms: int
    task: str
    use: Use


_Uses = dict[str, tuple[str, Use]]
"""Name for people and use of each dataset, by its folded URN."""


def changes_since(
    now: Fingerprint, greens: Sequence[Fingerprint], others: Iterable[Fingerprint] = ()
) -> list[str]:
    """Return at most five lines on what changed since the last green run, the likeliest cause
    first.

    :param greens: green runs of the task before this one, the newest first; at least one.
    :param others: attempts of other tasks, which may have written what the green run read.
    """
    lines = list(chain(_of_inputs(now, greens[:MOST_COMPARED], others), _of_code(now, greens)))
    if now.succeeded:
        lines += _of_outputs(now, greens[:MOST_COMPARED])
    lines.sort(key=lambda line: (not line.is_in(now.failure), line.rank))
    since = iso_instant(greens[0].end_ms)[:16].replace("T", " ")
    return [f"since the green run of {since} UTC: {line.text}" for line in lines[:_MOST_LINES]]


def _by_folded(run: Fingerprint, uses: Mapping[str, Use]) -> _Uses:
    found: _Uses = {}
    for urn, use in uses.items():
        known = found.get(name := folded(urn, run.key.run_id))
        found[name] = (folded(known[0]), known[1].plus(use)) if known else (dataset_name(urn), use)
    return found


def _of_inputs(
    now: Fingerprint, greens: Sequence[Fingerprint], others: Iterable[Fingerprint]
) -> Iterator[_Line]:
    seen, known = _by_folded(now, now.inputs), [_by_folded(green, green.inputs) for green in greens]
    writes: dict[str, list[_Write]] = {}
    for record in sorted(others, key=lambda record: record.end_ms):
        for urn, made in record.outputs.items():
            name = folded(urn, record.key.run_id)
            writes.setdefault(name, []).append(
                _Write(made.end_ms or record.end_ms, record.key.task, made)
            )
    needed = _used_columns(greens[0])
    yield from _of_names("reads", seen, known, complete=now.succeeded)
    for name, (subject, was) in known[0].items():
        use, written = seen[name][1] if name in seen else None, writes.get(name, [])
        last, before = _last_writes(written, greens[0])
        old, new = (was, use) if use is not None and use.columns else (before, last)
        if old is not None and new is not None:
            yield from _of_columns(subject, old, new, needed[name])
        if use is not None:
            yield from _of_counts(
                "reads", subject, use, [uses[name][1] for uses in known if name in uses], now
            )
        elif last is not None and before is not None and last.rows == 0 and before.rows:
            yield _Line(
                1, f"0 rows were written to {subject} (was {before.rows:,})", (_last_part(subject),)
            )


def _of_outputs(now: Fingerprint, greens: Sequence[Fingerprint]) -> Iterator[_Line]:
    seen, known = (
        _by_folded(now, now.outputs),
        [_by_folded(green, green.outputs) for green in greens],
    )
    for table in islice(_of_daily_names(now, greens), 1):
        also = next(
            (f", and renames {dataset_name(urn)}" for urn in now.datasets if table.covers(urn)), ""
        )
        text = f"writes another dataset in each run, now {dataset_name(table.urns[0])}: {table.setting}{also}"
        yield _Line(7, text)
    yield from _of_names("writes", seen, known, complete=True)
    for name, (subject, was) in known[0].items():
        if name in seen:
            use = seen[name][1]
            yield from _of_columns(subject, was, use, None)
            yield from _of_counts(
                "writes", subject, use, [uses[name][1] for uses in known if name in uses], now
            )


def _of_names(verb: str, seen: _Uses, known: Sequence[_Uses], *, complete: bool) -> Iterator[_Line]:
    for name, (subject, _) in known[0].items() if complete else ():
        if name not in seen and all(name in uses for uses in known):
            yield _Line(3, f"{verb} {subject} no longer")
    for name, (subject, _) in seen.items():
        if not any(name in uses for uses in known):
            yield _Line(
                3, f"{verb} {subject}, which no earlier green run did", (_last_part(subject),)
            )


def _of_columns(
    subject: str, before: Use, after: Use, used: Collection[str] | None
) -> Iterator[_Line]:
    """Yield the change of a dataset's columns. :param used: those that the job needs; ``None`` for
    an output.
    """
    old, new = (
        {name.lower(): (name, kind) for name, kind in use.columns.items()}
        for use in (before, after)
    )
    if not (old and new):
        return
    lost, added = (
        [names[key][0] for key in names if key not in others]
        for names, others in ((old, new), (new, old))
    )
    typed = [
        key
        for key in old
        if key in new and old[key][1] and new[key][1] and old[key][1] != new[key][1]
    ]
    parts = [f"lost the {_listed('column', lost)}"] if lost else []
    parts += [f"has the new {_listed('column', added)}"] if added else []
    parts += [
        f"has {new[key][0]} as {new[key][1]} (was {old[key][1]})" for key in typed[:_MOST_LINES]
    ]
    if parts:
        gone = {name.lower() for name in (*lost, *typed)}
        rank = 3 if used is None else 2 if gone.isdisjoint(used) else 0
        yield _Line(rank, f"{subject} {' and '.join(parts)}", (*lost, *typed, _last_part(subject)))


def _listed(noun: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LINES} more" if len(names) > _MOST_LINES else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST_LINES])}{more}"


def _used_columns(green: Fingerprint) -> dict[str, set[str]]:
    """Return the columns of each input that a run needed, in lower case: all that it had if they
    are not known.
    """
    names = {urn: folded(urn, green.key.run_id) for urn in green.inputs}
    unknown = {names[urn] for urn in (green.hidden if green.edges else names) if urn in names}
    used: dict[str, set[str]] = {name: set() for name in names.values()}
    for urn, name in names.items():
        if name in unknown:
            used[name] |= {column.lower() for column in green.inputs[urn].columns}
    datasets = green.datasets
    for _, source, pairs in green.edges:
        name = names.get(datasets[source], "")
        if name and name not in unknown:
            used[name] |= {column.lower() for _, column in pairs}
    return used


def _of_counts(
    verb: str, subject: str, use: Use, earlier: Sequence[Use], now: Fingerprint
) -> Iterator[_Line]:
    preposition = "of" if verb == "reads" else "to"
    for noun, count, known in (
        ("rows", use.rows, [use.rows for use in earlier if use.rows is not None]),
        ("bytes", use.size, [use.size for use in earlier if use.size is not None]),
    ):
        if count is None or not known:
            continue
        is_empty = count == 0 < min(known)
        # A job that failed may have read less than it would.
        if is_empty or (
            now.succeeded and not min(known) <= count * _FACTOR <= max(known) * _FACTOR**2
        ):
            text = f"{verb} {count:,} {noun} {preposition} {subject} (was {known[0]:,})"
            yield _Line(1 if is_empty else 6, text, (_last_part(subject),))
        return


def _last_writes(written: Sequence[_Write], green: Fingerprint) -> tuple[Use | None, Use | None]:
    """Return the latest write since a green run, and the one before that run by the same task."""
    last = next((write for write in reversed(written) if write.end_ms >= green.start_ms), None)
    if last is None:
        return None, None
    earlier = [
        write for write in written if write.task == last.task and write.end_ms < green.end_ms
    ]
    before = next((write for write in reversed(earlier) if write.end_ms < last.end_ms), None)
    return last.use, before.use if before is not None else None


def _of_code(now: Fingerprint, greens: Sequence[Fingerprint]) -> Iterator[_Line]:
    for name in greens[0].code.keys() & now.code.keys():
        before, after = greens[0].code[name], now.code[name]
        values = [
            folded(run.code.get(name, ""), run.key.run_id) for run in (now, *greens[:FEW_GREENS])
        ]
        rotates = len({*values}) > FEW_GREENS
        if (values[0] != values[1] and not rotates) or (
            before != after and not name.startswith("spark.")
        ):
            yield _Line(5, f"{name} is {after} (was {before})", (name,))


def _last_part(subject: str) -> str:
    return _PART.split(subject.rstrip("/"))[-1]
