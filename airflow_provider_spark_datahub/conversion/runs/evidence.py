"""Evidence of a job's edges: which queries gave each edge, and why a dataset that events name is
not an edge.

See the conversion rules, section 7.7.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import msgspec

from airflow_provider_spark_datahub.conversion.columns.facet import PARSED_PLAN
from airflow_provider_spark_datahub.conversion.columns.sql import short_statement
from airflow_provider_spark_datahub.conversion.datasets import parent_folders
from airflow_provider_spark_datahub.conversion.diagnostics import RejectedEdge, cut
from airflow_provider_spark_datahub.conversion.events import RDD_JOB, DatasetId
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.fold import (
    DROP,
    NOT_WRITTEN,
    RunState,
    Verdict,
)

EVENT, SPARK_PLAN = Verdict.FILLED.value, Verdict.PLANNED.value
STREAMING_PROGRESS = "STREAMING_PROGRESS"
"""Values of the property ``source`` of an edge. DataHub's own UI writes ``UI`` there."""
STATEMENT_PROPERTY = "statement."
"""Prefix of the job properties that hold the statements of queries; the id of the statement
follows.
"""
_MOST_QUERIES = 20
_MOST_STATEMENTS = 200
_LONGEST_STATEMENT = 20_000
_ID_LENGTH = 12

# A dataset that a run read or wrote, with the URN under which it is an edge.
Touched = Iterable[tuple[RunState, Iterable[tuple[DatasetId, str]]]]
_UrnOf = Callable[[DatasetId], str | None]
_Kind = Literal["input", "output"]


class Evidence(msgspec.Struct):
    """Evidence of the edges of one job.

    :param with_queries: name the queries of each edge; else only executions in Spark's UI that no
        event reports.
    :ivar statements: each statement once, by id, without secrets; else the query's name in
        OpenLineage's events.
    """

    with_queries: bool = True
    statements: dict[str, str] = {}
    _ids: dict[str, str] = {}

    def properties(self, kind: _Kind, touched: Touched) -> dict[str, dict[str, str]]:
        """Return the properties of edges by URN, the best source and the queries, of reads or of
        writes.
        """
        queries: dict[str, dict[str, None]] = {}
        sources: dict[str, set[str]] = {}
        reported: set[str] = set()
        for run, datasets in touched:
            named = list(datasets)
            # The application's own run reads and writes nothing itself.
            query = self._query(run) if named else ""
            of_run = _Sources(run, kind)
            for dataset, urn in named:
                sources.setdefault(urn, set()).add(of_run.of(dataset))
                if self.with_queries or run.is_logged:
                    queries.setdefault(urn, {})[query] = None
                else:
                    reported.add(urn)
        name = "queries" if self.with_queries else "executions"
        listed = {
            urn: _listed(name, list(each)) for urn, each in queries.items() if urn not in reported
        }
        return {urn: _properties(named) | listed.get(urn, {}) for urn, named in sources.items()}

    def _query(self, run: RunState) -> str:
        """Return the ids of a query and of its statement, or that of its execution in Spark's UI."""
        return (
            f"{run.run_id} {self._statement(run)}".rstrip()
            if self.with_queries
            else run.job_name.rpartition("_")[2]
        )

    def _statement(self, run: RunState) -> str:
        """Return the id of what a query did, and keep its text; empty if there are too many."""
        text = run.sql.strip() or run.job_name.partition(".")[2] or run.job_name
        if text not in self._ids:
            clean = cut(redact_text(text, _LONGEST_STATEMENT), _LONGEST_STATEMENT)
            identity = hashlib.sha256(clean.encode(errors="backslashreplace")).hexdigest()[
                :_ID_LENGTH
            ]
            has_room = len(self.statements) < _MOST_STATEMENTS
            self._ids[text] = identity if identity in self.statements or has_room else ""
            if self._ids[text]:
                self.statements[identity] = clean
        return self._ids[text]


def _properties(sources: Collection[str]) -> dict[str, str]:
    """Return the properties of an edge with its best source."""
    if {EVENT, SPARK_PLAN} <= {*sources}:
        return {"source": Verdict.CONFIRMED.value}
    for source in (Verdict.CONFIRMED, Verdict.FILLED, Verdict.PLANNED):
        if source in sources:
            return {"source": source.value}
    driver = Verdict.OF_DRIVER.value
    return {"source": driver, "transformation": "ROWS_OF_DRIVER", "confidence": "0.5"}


def _listed(kind: str, items: Sequence[str]) -> dict[str, str]:
    more = len(items) - _MOST_QUERIES
    listed = {kind: ", ".join(items[:_MOST_QUERIES])}
    return listed | {f"more{kind.title()}": str(more)} if more > 0 else listed


class _Sources:
    """Sources of the edges of one run."""

    def __init__(self, run: RunState, kind: _Kind) -> None:
        self._run, self._kind = run, kind

    def of(self, dataset: DatasetId) -> str:
        """Return where the edge of a dataset comes from."""
        run = self._run
        verdict = run.verdicts.get((self._kind, dataset))
        if verdict is not None and verdict is not Verdict.NOT_PLANNED:
            return verdict.value
        if run.is_logged:
            return SPARK_PLAN
        is_reported = dataset in run.inputs or dataset in run.outputs
        return SPARK_PLAN if not is_reported and dataset in self._of_plans else EVENT

    @cached_property
    def _of_plans(self) -> set[DatasetId]:
        """Datasets that only columns of plans name."""
        of_plans, of_events = set[DatasetId](), set[DatasetId]()
        for state in self._run.outputs.values():
            for edge in state.columns.edges if state.columns is not None else ():
                datasets = of_plans if edge.transform.endswith(PARSED_PLAN) else of_events
                datasets.update(column.dataset for column in edge.upstreams)
        return of_plans - of_events


# -- datasets that are not edges


def rejected_edges(
    reported: Sequence[RunState],
    runs: Sequence[RunState],
    urn_of: _UrnOf,
    *,
    in_flight: Collection[str],
    phantoms: Collection[DatasetId],
) -> Iterator[RejectedEdge]:
    """Yield the datasets that events name as inputs or outputs of queries but that are not edges,
    with the reasons.

    :param reported: the runs with the names in their events.
    :param runs: the same runs under the last names of datasets.
    :param in_flight: as in :meth:`.Lineage.of`.
    :param phantoms: datasets that only jobs of RDDs read, and folders of files.
    """
    for own, run in zip(reported, runs, strict=True):
        events = own.reported or own
        query = short_statement(events.sql, _LONGEST_STATEMENT) or events.job_name
        for kind, dataset, reason, rule in (
            *_whole_queries(own, in_flight),
            *_not_planned(own),
            *_not_written(run),
            *_under_other_names(own, run),
            *(("input", dataset, *_phantom(run)) for dataset in run.inputs if dataset in phantoms),
        ):
            urn = urn_of(dataset)
            if urn is not None:
                yield RejectedEdge(urn, kind, run.run_id, query, reason, rule)


_OVERRULED = "the query's plan in Spark's event log does not name it, and plans lead", "section 8.5"
_LISTED = "files in it, which the query lists, are the datasets", "section 7.3"
_RENAMED = "the table was renamed, or dropped and its name used again", "section 7.2"
_REFUSED = (
    "Spark refused or failed to do the write, whatever the query's own events say",
    "section 7.1",
)
_ONLY_LISTED = "it is read only to list files or to know their schema", "Deviation 5"
_FAILED_AND_CAUGHT = "the query failed, and the job went on", "Deviation 10"
_FAILED = "the query failed", "Deviation 10"
_UNFINISHED = "the query was running when the application ended", "section 7.1"
_Rejected = Iterator[tuple[_Kind, DatasetId, str, str]]


def _not_planned(run: RunState) -> _Rejected:
    for (kind, dataset), verdict in run.verdicts.items():
        if verdict is Verdict.NOT_PLANNED:
            yield kind, dataset, *_OVERRULED


def _phantom(run: RunState) -> tuple[str, str]:
    """Return why a phantom read of a run is not an edge."""
    if run.job_type != RDD_JOB:
        return "it is the folder of a file whose rows an RDD gave, and not the file", "section 7.3"
    return (
        "only a job of RDDs reads it, to list files or to read back what the application wrote",
        "Deviation 5",
    )


def _whole_queries(run: RunState, in_flight: Collection[str]) -> _Rejected:
    """Yield the datasets of a query that did nothing or did not end well."""
    events = run.reported or run
    if run.refused:
        of_inputs = of_outputs = _REFUSED
    elif run.reported is not None:
        of_inputs = of_outputs = _ONLY_LISTED
    elif run.failure:
        of_inputs, of_outputs = _FAILED_AND_CAUGHT, _FAILED
    elif run.job_type in in_flight and not run.ended:
        yield from (("output", dataset, *_UNFINISHED) for dataset in run.outputs)
        return
    else:
        return
    yield from (("input", dataset, *of_inputs) for dataset in events.inputs)
    yield from (("output", dataset, *of_outputs) for dataset in events.outputs)


def _not_written(run: RunState) -> _Rejected:
    """Yield the outputs of a query that it did not fill with data."""
    written = {dataset for dataset, _ in run.written}
    for dataset, state in run.outputs.items():
        if dataset in written:
            continue
        if state.lifecycle in NOT_WRITTEN:
            change = "dropped" if state.lifecycle == DROP else "renamed"
            yield "output", dataset, f"the table was {change}, not written", "Deviation 9"
        else:
            yield (
                "output",
                dataset,
                "the query creates or alters the table, and puts no data into it",
                "section 7.1",
            )


def _under_other_names(run: RunState, renamed: RunState) -> _Rejected:
    """Yield the datasets that count under another name in the end."""
    above = {
        folder
        for name in (*renamed.inputs, *renamed.outputs)
        for folder in parent_folders(name.name)
    }
    for dataset in (dataset for dataset in run.inputs if dataset not in renamed.inputs):
        yield "input", dataset, *(_LISTED if dataset.name in above else _RENAMED)
    yield from (
        ("output", dataset, *_RENAMED) for dataset in run.outputs if dataset not in renamed.outputs
    )
