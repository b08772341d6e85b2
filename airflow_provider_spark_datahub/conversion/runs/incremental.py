"""What a running application is sure to have done, and how its end takes back what it shows in another light."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.runs.fold import APPLICATION, RDD_JOB, Application, RunState

_EDGES = "dataJobInputOutput"


def settled(application: Application, until_ms: int | None = None) -> Application | None:
    """The application with what its runs are sure to have read and written; ``None`` where its name may change yet.

    Left to the end is what often turns out otherwise: the outputs of a query that runs, which may fail (Deviation 10);
    what an RDD job reads, which a query may turn into a mere listing (Deviation 5); and queries that Spark's event log
    does not tell of yet, which may be a streaming query's. What turns out otherwise all the same (a table that is
    renamed, a path whose table is only told by the query around) is for :func:`retractions`.

    :param until_ms: up to when Spark's event log was read, in ms since the epoch; ``None`` where there is none.
    """
    if not any(run.app_name for run in application.runs):
        return None
    runs = tuple(_settled(run) for run in application.runs if _is_known(run, until_ms))
    return replace(application, runs=runs)


def is_told(run: RunState, until_ms: int | None) -> bool:
    """Whether all that will ever be known of a query is told as settled; an RDD job often sends no end.

    :param until_ms: as in :func:`settled`.
    """
    return run.is_query and (run.ended or run.job_type == RDD_JOB) and _is_known(run, until_ms)


def _is_known(run: RunState, until_ms: int | None) -> bool:
    if until_ms is None or run.job_type == APPLICATION:
        return True
    latest_ms = run.end_ms if run.ended else run.start_ms
    return latest_ms is not None and latest_ms <= until_ms


def _settled(run: RunState) -> RunState:
    inputs = {} if run.job_type == RDD_JOB else run.inputs
    return structs.replace(run, inputs=inputs, outputs=dict(run.changed) if run.ended else {})


def added_edges(proposals: Iterable[Proposal]) -> dict[str, set[str]]:
    """The edges that patches add to jobs: their paths in the aspect, by the DataJob's URN."""
    found: dict[str, set[str]] = {}
    for one in proposals:
        if one.aspect_name == _EDGES and one.change_type == "PATCH":
            found.setdefault(one.entity_urn, set()).update(operation["path"] for operation in one.aspect)
    return found


def retractions(told: Mapping[str, Collection[str]], end: Collection[Proposal]) -> list[Proposal]:
    """Patches that take back what was added to jobs while they ran, and what their end does not tell.

    GMS takes the removal of what is not there for done (``TemplateUtil.populateTopLevelKeys``).

    :param told: from :func:`added_edges`.
    :param end: all that the end tells, of everything that happened.
    """
    replaced = {one.entity_urn for one in end if one.aspect_name == _EDGES and one.change_type == "UPSERT"}
    kept = added_edges(end)
    taken_back = {urn: sorted(set(paths) - kept.get(urn, set())) for urn, paths in told.items() if urn not in replaced}
    return [
        Proposal("dataJob", urn, _EDGES, [{"op": "remove", "path": path} for path in paths], "PATCH")
        for urn, paths in sorted(taken_back.items())
        if paths
    ]
