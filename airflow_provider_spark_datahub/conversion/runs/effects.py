"""Effects of an application's runs: which writes happened, and the names of what they read and
wrote.

OpenLineage reports what a query was about to write, by the names that tables and files had then.
See the conversion rules, section 7.

Tests: ``tests/conversion/test_hard_jobs.py``.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

from msgspec import structs

from airflow_provider_spark_datahub.conversion.datasets import (
    DATA_FILE,
    DatasetNamer,
    folders_around,
    named_paths,
)
from airflow_provider_spark_datahub.conversion.events import (
    RDD_JOB,
    DatasetId,
    without_partition_folders,
)
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.runs.fold import (
    DROP,
    NOT_WRITTEN,
    RENAME,
    Application,
    RunState,
)
from airflow_provider_spark_datahub.foundation.memory import grouped_by

_Named = Callable[[DatasetId], DatasetId]

# -- writes that never happened

# Spark runs a job for each write of files, also for an empty one (SPARK-23271 in FileFormatWriter).
_FILE_WRITE = "execute_insert_into_hadoop_fs_relation_command"
_SAVE = "execute_save_into_data_source_command"
# Transaction logs of Delta tables, and of the files that a streaming query writes; files that
# BigQuery then loads.
_LOG_OF_TABLE = re.compile(r"/(?:_delta_log|_spark_metadata)(?:/|$)|(?:^|/)\.spark-bigquery-")
# Queries around the query that writes. OpenLineage reports statistics for both of them.
_TABLE_AS_SELECT = frozenset(
    f"execute_create_{kind}_table_as_select_command" for kind in ("data_source", "hive")
)
# All queries around the query that writes. Those that are added here may have no statistics.
_ENCLOSING = _TABLE_AS_SELECT | {
    *(
        f"{atomic}{verb}_table_as_select"
        for atomic in ("", "atomic_")
        for verb in ("create", "replace")
    ),
    *("append_data_exec_v1", "overwrite_by_expression_exec_v1"),
    *(_SAVE, "execute_insert_into_data_source_dir_command"),
}


QUERY_VERBS = frozenset({"", "FROM", "SELECT", "TABLE", "VALUES", "WITH"})
# The oldest listener that is known to send Spark's jobs and statistics with each write that
# happened.
_SENDS_EFFECTS = (1, 37)
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")


def with_effects(application: Application, planned: Collection[str] | None = None) -> Application:
    """Return the application without the writes that never happened; it is not checked if its own
    run is not known.

    - A write of files without any Spark job and without statistics was refused, as its target
      exists, and read nothing.
    - Likewise a CREATE TABLE AS SELECT, or a write to a database, without statistics and without a
      query that wrote.

    Missing jobs and statistics only count if the application's listener sends them for writes that
    happened.

    :param planned: ids of runs whose plans Spark's event log has, which show what they did;
        ``None`` if no log was read.
    """
    decided = planned or frozenset()
    application = _without_listings(application, decided, has_log=planned is not None)
    if application.own_run is None:
        return application
    runs = tuple(map(_without_logs_of_tables, application.runs))
    refused: set[str] = set()
    if _sends_effects(runs):
        refused = {run.run_id for run in _refused(runs)}.difference(decided)

    def effective(run: RunState) -> RunState:
        if run.run_id not in refused:
            return run
        return structs.replace(run, inputs={}, outputs={}, refused=True, reported=run)

    return replace(application, runs=tuple(map(effective, runs)))


def _without_listings(
    application: Application, decided: Collection[str], *, has_log: bool
) -> Application:
    """Return the application without the reads by which Spark only gets to know the schema of
    files.

    From 4.0 on, Spark reads the first line of a CSV file in one query, and its columns in another
    one. If Spark's next job is one that no event reports, such as that of ``count()``, it read the
    files.
    """
    runs = [run for run in application.runs if run.is_listing and run.run_id not in decided]
    inferred = {frozenset(run.inputs) for run in runs if run.plan_node == "deserialize_to_object"}
    first = {frozenset(run.inputs) for run in runs if run.plan_node == "collect_limit"}
    both = (
        inferred & first
        if any(run.job_property("processingEngineVersion")[:2] != "3." for run in runs)
        else first
    )
    listings = {
        run.run_id for run in runs if run.job_type == RDD_JOB or frozenset(run.inputs) in both
    }
    listings -= _followed(application.runs, listings) if listings and not has_log else set()
    if not listings:
        return application
    runs = [
        structs.replace(run, inputs={}, reported=run) if run.run_id in listings else run
        for run in application.runs
    ]
    return replace(application, runs=tuple(runs))


def _followed(runs: Iterable[RunState], listings: Collection[str]) -> set[str]:
    """Return the ids of listings whose next Spark job, apart from other listings, is one that no
    event reports.
    """
    layers = ((run.run_id, layer) for run in runs for each in run.properties for layer in each.job)
    run_ids = {
        int(layer["jobId"][:9]): run_id
        for run_id, layer in layers
        if layer.get("jobId", "").isdecimal()
    }
    followed: set[int] = set()
    for number in sorted(run_ids, reverse=True):
        if number + 1 not in run_ids or (
            number + 1 in followed and run_ids[number + 1] in listings
        ):
            followed.add(number)
    return {run_ids[number] for number in followed}


def _without_logs_of_tables(run: RunState) -> RunState:
    """Return the run without the logs that tables keep beside their data: reading them is not
    reading the table.
    """
    inputs, outputs = (
        {
            dataset: state
            for dataset, state in datasets.items()
            if _LOG_OF_TABLE.search(dataset.name) is None
        }
        for datasets in (run.inputs, run.outputs)
    )
    if len(inputs) == len(run.inputs) and len(outputs) == len(run.outputs):
        return run
    return structs.replace(run, inputs=inputs, outputs=outputs)


def with_statements(runs: tuple[RunState, ...]) -> tuple[RunState, ...]:
    """Return the runs with the statements of those whose own events have none.

    A CREATE TABLE AS SELECT runs as two queries, and only the events of the write within it name
    the statement.
    """
    silent = {run.run_id for run in runs if not run.sql and run.plan_node in _ENCLOSING}
    if not silent:
        return runs
    named = _Timeline(run for run in runs if run.sql)
    completed: list[RunState] = []
    for run in runs:
        is_silent = run.run_id in silent
        part = named.first_part(run, same_output=True) if is_silent else None
        completed.append(structs.replace(run, sql=part.sql) if part is not None else run)
    return tuple(completed)


def _sends_effects(runs: Sequence[RunState]) -> bool:
    """Return whether the listener sends jobs or statistics: other events have them, or its own
    facet says who it is.
    """
    if any(run.worked for run in runs):
        return True
    versions = (_VERSION.match(run.job_property("openlineageAdapterVersion")) for run in runs)
    return any(
        found is not None and tuple(map(int, found.groups())) >= _SENDS_EFFECTS
        for found in versions
    )


def _refused(runs: Sequence[RunState]) -> Iterator[RunState]:
    """Yield the queries that wrote nothing because their target existed."""
    wrote = _Timeline(run for run in runs if run.worked and not run.failure)
    # A query that Spark optimised away has no job, but its part wrote an empty table.
    filled = _Timeline(
        run
        for run in runs
        if not run.failure and (run.worked or run.plan_node not in {*_ENCLOSING, _FILE_WRITE})
    )
    for run in runs:
        if not run.ended or run.failure or run.worked or not run.outputs:
            continue
        if run.plan_node == _FILE_WRITE:
            yield run
            continue
        same_output = run.plan_node in _TABLE_AS_SELECT or _is_iceberg(run)
        parts = filled if same_output else wrote
        is_checked = same_output or _is_of_database(run)
        if is_checked and parts.first_part(run, same_output=same_output) is None:
            yield run


def _is_iceberg(run: RunState) -> bool:
    """Return whether it is a CREATE or REPLACE TABLE AS SELECT of Iceberg, whose statistics are
    complete.
    """
    return run.plan_node.startswith("atomic_") and all(
        state.layer == "iceberg" for state in run.outputs.values()
    )


def _is_of_database(run: RunState) -> bool:
    """Return whether it writes tables through JDBC: without rows there are no statistics, but a
    query that wrote.
    """
    return run.plan_node == _SAVE and all(
        state.lifecycle and "://" in dataset.namespace and "/" not in dataset.name
        for dataset, state in run.outputs.items()
    )


class _Timeline:
    """Runs in the order of their begins: an application may have tens of thousands."""

    def __init__(self, runs: Iterable[RunState]) -> None:
        timed = (run for run in runs if run.start_ms is not None and run.end_ms is not None)
        self.runs = sorted(timed, key=_start)

    def within(self, outer: RunState) -> Iterator[RunState]:
        """Yield the runs that took place within another, whose begin may be lost."""
        end_ms = outer.end_ms or 0
        begin = bisect_left(self.runs, _start(outer), key=_start) if outer.started else 0
        for index in range(begin, len(self.runs)):
            run = self.runs[index]
            if _start(run) > end_ms:
                return
            if run is not outer and (run.end_ms or 0) <= end_ms:
                yield run

    def first_part(self, outer: RunState, *, same_output: bool) -> RunState | None:
        """Return the first run within another, with one of its outputs if that is asked for."""
        for run in self.within(outer):
            if not (same_output and run.outputs.keys().isdisjoint(outer.outputs)):
                return run
        return None


def _start(run: RunState) -> int:
    return run.start_ms or 0


def outer_runs(runs: Collection[RunState]) -> dict[str, list[RunState]]:
    """Return the queries by which others only surround the write (CREATE OR REPLACE TABLE AS
    SELECT), by their ids.
    """
    return inner_runs(runs, lambda run: run.plan_node.endswith("_as_select"), are_same_outputs=True)


def inner_runs(
    runs: Collection[RunState],
    is_outer: Callable[[RunState], bool],
    *,
    are_same_outputs: bool = False,
) -> dict[str, list[RunState]]:
    """Return the queries that ran during an outer one, with its inputs, by the id of that one."""
    found: dict[str, list[RunState]] = {}
    outers = [run for run in runs if is_outer(run)]
    timeline = _Timeline(runs if outers else ())
    for outer in outers:
        for run in timeline.within(outer):
            if are_same_outputs and outer.outputs.keys() != run.outputs.keys():
                continue
            if outer.inputs.keys() <= run.inputs.keys():
                found.setdefault(outer.run_id, []).append(run)
    return found


# -- last names of tables


@dataclass(slots=True, eq=False)
class _Generation:
    """Life of a table under its first and last name, from its first write by the application to its
    DROP.
    """

    written_as: DatasetId
    name: DatasetId
    dropped: bool = False
    read: bool = False


class _Generations:
    """Generations of the tables that an application wrote: each ends at its DROP, and RENAME gives
    it another name.

    :param runs: in the order of their first events.
    """

    def __init__(self, runs: Iterable[RunState], namer: DatasetNamer) -> None:
        self._namer = namer
        # For each name, the index of the event at which a generation took it; ``None`` from the
        # generation's DROP on.
        self._by_name: dict[str, list[tuple[int, _Generation | None]]] = {}
        self._written: list[_Generation] = []
        for run in runs:
            if not run.failure:
                self._follow(run)

    def _key(self, dataset: DatasetId) -> str:
        # OpenLineage gives a dropped table another path.
        name = self._namer.name(dataset)
        return name.urn if name is not None else repr(dataset)

    def _follow(self, run: RunState) -> None:
        for dataset in _read_by(run):
            generation = self._at(dataset, run.index)
            if generation is not None and dataset not in run.outputs:
                generation.read = True
        for dataset, state in run.outputs.items():
            if state.lifecycle == DROP:
                self._end(dataset, run.index)
            elif state.lifecycle == RENAME:
                if state.previous is not None:
                    self._rename(state.previous, dataset, run.index)
            elif self._at(dataset, run.index) is None:
                generation = _Generation(dataset, dataset)
                self._set(dataset, run.index, generation)
                self._written.append(generation)

    def _at(self, dataset: DatasetId, index: int) -> _Generation | None:
        """Return the generation that a name stands for at the time of an event, if the application
        wrote it.
        """
        lives = self._by_name.get(self._key(dataset), [])
        # Sorted by the index at which they took the name.
        begun = bisect_right(lives, index, key=operator.itemgetter(0))
        return lives[begun - 1][1] if begun else None

    def _set(self, dataset: DatasetId, index: int, generation: _Generation | None) -> None:
        self._by_name.setdefault(self._key(dataset), []).append((index, generation))

    def _end(self, dataset: DatasetId, index: int) -> None:
        generation = self._at(dataset, index)
        if generation is not None:
            generation.dropped = True
            self._set(dataset, index, None)

    def _rename(self, old: DatasetId, new: DatasetId, index: int) -> None:
        generation = self._at(old, index)
        # A table outside of the warehouse keeps its path, which is its name.
        if generation is not None and self._key(old) != self._key(new):
            generation.name = new
            self._set(old, index, None)
            self._set(new, index, generation)

    def last_name(self, dataset: DatasetId, index: int) -> DatasetId:
        """Return the last name of the table that a name stands for at the time of an event."""
        generation = self._at(dataset, index)
        if generation is None or generation.name == generation.written_as:
            return dataset
        if not generation.dropped:
            return generation.name
        # It keeps the name under which it was written, unless that is another table's now.
        return generation.name if self._is_reused(generation) else generation.written_as

    def is_gone(self, dataset: DatasetId, index: int) -> bool:
        """Return whether a table that was written then is gone: it was dropped unread, and its name
        is used again.
        """
        generation = self._at(dataset, index)
        return (
            generation is not None
            and generation.dropped
            and not generation.read
            and self._is_reused(generation)
        )

    def _is_reused(self, generation: _Generation) -> bool:
        return self._names[self._key(generation.written_as)] > 1

    @cached_property
    def _names(self) -> Counter[str]:
        """How many generations were written under each name, or have it in the end."""
        names = (
            {self._key(generation.written_as), self._key(generation.name)}
            for generation in self._written
        )
        return Counter(chain.from_iterable(names))


def _read_by(run: RunState) -> Iterator[DatasetId]:
    yield from run.inputs
    for _, state in run.written:
        yield from state.column_inputs


def under_last_names(runs: tuple[RunState, ...], namer: DatasetNamer) -> tuple[RunState, ...]:
    """Return the runs as if each table that they wrote had its last name from the beginning
    (Deviation 9).

    Of their column lineage, only columns and files that their inputs have are left.

    A table that is dropped in the end keeps the name under which it was written. If that name is
    used again and nothing read the dropped table, the dropped table has no lineage.

    :param runs: in the order of their first events.
    """
    runs = tuple(_with_folders(with_known_columns(run)) if run.outputs else run for run in runs)
    if not any(state.lifecycle in NOT_WRITTEN for run in runs for state in run.outputs.values()):
        return runs
    generations = _Generations(runs, namer)

    def last(run: RunState) -> RunState:
        gone = {
            dataset
            for dataset, state in run.outputs.items()
            if state.lifecycle not in NOT_WRITTEN and generations.is_gone(dataset, run.index)
        }
        if gone:
            outputs = {
                dataset: state for dataset, state in run.outputs.items() if dataset not in gone
            }
            run = structs.replace(run, outputs=outputs)
        return renamed(run, partial(generations.last_name, index=run.index))

    return tuple(map(last, runs))


def renamed(run: RunState, named: _Named) -> RunState:
    """Return the run with other names of its datasets."""
    datasets = chain(
        run.inputs, run.outputs, *(state.column_inputs for state in run.outputs.values())
    )
    if all(named(dataset) == dataset for dataset in datasets):
        return run
    outputs = {
        named(dataset): structs.replace(
            state,
            columns=state.columns and state.columns.renamed(named),
            reached_by=state.reached_by and frozenset(map(named, state.reached_by)),
        )
        for dataset, state in run.outputs.items()
    }
    inputs = {named(dataset): state for dataset, state in run.inputs.items()}
    verdicts = {(kind, named(dataset)): one for (kind, dataset), one in run.verdicts.items()}
    return structs.replace(run, inputs=inputs, outputs=outputs, verdicts=verdicts)


# -- columns


def with_known_columns(run: RunState) -> RunState:
    """Return the run without column lineage from columns that its inputs do not have.

    A database computes an aggregate (``sum``) itself, and Iceberg names the file of a row
    (``_file``).
    """
    with_columns = [
        (dataset, state) for dataset, state in run.outputs.items() if state.columns is not None
    ]
    if not with_columns:
        return run
    known = {
        dataset: state.lower_names
        for dataset, state in run.inputs.items()
        if state.schema is not None or state.is_metadata
    }
    outputs = {
        dataset: structs.replace(state, columns=columns)
        for dataset, state in in_time(with_columns)
        if state.columns is not None
        and (columns := state.columns.within(known)) is not state.columns
    }
    return structs.replace(run, outputs=run.outputs | outputs) if outputs else run


# -- folders


def with_whole_folders(application: Application) -> Application:
    """Return the application with whole folders of micro-batches' files and of spark.ml's models.

    The parts of a model have other names in each run. A file that a batch names, too, is the static
    side of a join.
    """
    batches = [run.reported or run for run in application.runs if not run.is_streaming]
    static = {dataset for run in batches for dataset in run.inputs}
    models = _models(application.runs)

    def named(dataset: DatasetId, *, is_streaming: bool) -> DatasetId:
        for model in folders_around(dataset) if models else ():
            if (
                model in models
                and dataset.name[len(model.name) + 1 :].partition("/")[0] in _PARTS_OF_MODEL
            ):
                return model
        return _folder_of_file(dataset) if is_streaming and dataset not in static else dataset

    runs = (renamed(run, partial(named, is_streaming=run.is_streaming)) for run in application.runs)
    return replace(application, runs=tuple(runs))


def _folder_of_file(dataset: DatasetId) -> DatasetId:
    """Return the folder of a data file, above the folders of its partition; else the dataset
    itself.
    """
    folder, _, name = dataset.name.rpartition("/")
    folder = without_partition_folders(folder)
    return dataset._replace(name=folder) if folder and DATA_FILE.fullmatch(name) else dataset


# spark.ml names each stage of a pipeline by its number, its class and a random id, and has a folder
# for each.
_STAGE = re.compile(
    r"(?P<model>.+?)(?P<part>/(?:bestModel|estimator|subModels/\w+/\d+))?/stages/\d+_[A-Za-z]\w*_[0-9a-f]{12}(?:/.*)?"
)
_PARTS_OF_MODEL = ("metadata", "data", "stages", "bestModel", "estimator", "evaluator", "subModels")


def _models(runs: Iterable[RunState]) -> set[DatasetId]:
    """Return the folders of the models that runs read or wrote parts of."""
    datasets = {dataset for run in runs for dataset in chain(run.inputs, run.outputs)}
    touched = {
        each for each in datasets if "/stages/" in each.name or each.name.endswith("/metadata")
    }
    return {model for dataset in touched if (model := _model_of(dataset, touched)) is not None}


def _model_of(dataset: DatasetId, touched: Collection[DatasetId]) -> DatasetId | None:
    """Return the folder of the model that a folder of a stage belongs to."""
    stage = _STAGE.fullmatch(dataset.name)
    if stage is None:
        return None
    model = dataset._replace(name=stage["model"])
    # A user's own folder may have such a name.
    is_tuned = stage["part"] and dataset._replace(name=f"{model.name}/metadata") in touched
    return (
        model
        if is_tuned or not stage["part"]
        else dataset._replace(name=f"{model.name}{stage['part']}")
    )


def _with_folders(run: RunState) -> RunState:
    """Replace files in column lineage by the input folder that contains them.

    Files with names of their own take the place of the folder, as the job listed them.
    """
    outside = [
        dataset
        for _, state in in_time(run.written)
        for dataset in state.column_inputs
        if dataset not in run.inputs
    ]
    if not outside:
        return run
    folders = (
        (dataset, next(filter(run.inputs.__contains__, folders_around(dataset)), None))
        for dataset in outside
    )
    listed = {dataset: folder for dataset, folder in folders if folder is not None}
    by_folder = {} if run.is_streaming else grouped_by(listed, listed.__getitem__)
    single = [file for files in by_folder.values() if len(files) == 1 for file in files]
    lists = [files for files in (single, *by_folder.values()) if len(files) > 1]
    named = {path for files in lists for path in named_paths(file.name for file in files)}
    own = {file: folder for file, folder in listed.items() if file.name in named}
    if own:
        inputs = {
            dataset: state for dataset, state in run.inputs.items() if dataset not in own.values()
        }
        run = structs.replace(
            run, inputs=inputs | {file: run.inputs[folder] for file, folder in own.items()}
        )
    rest = {file: folder for file, folder in listed.items() if file not in own}
    return renamed(run, lambda dataset: rest.get(dataset, dataset)) if rest else run
