"""The tree of runs as it is shown: a run, its tries, and below each try the runs that started while it ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_spark_datahub.picture.model import Attempt, RunKind, RunNode
from airflow_provider_spark_datahub.picture.names import harmless
from airflow_provider_spark_datahub.picture.urns import flow_parts, job_parts, orchestrator_of


@dataclass(frozen=True, slots=True)
class Branch:
    """Something that hangs in the tree: a run, or a try of one (with the runs that belong to it)."""

    run: RunNode
    attempt: Attempt | None = None
    below: tuple[RunNode, ...] = ()


def inner(branch: Branch) -> list[Branch]:
    """The tries of a run, each with the runs that started while it ran, then the runs that fit to none."""
    if branch.attempt is not None:
        return [Branch(run) for run in branch.below]
    attempts = branch.run.attempts()
    if not numbered(attempts):
        return [Branch(run) for run in branch.run.children]
    left = list(branch.run.children)
    tries = []
    for attempt in attempts:
        during = tuple(run for run in left if run.kind is RunKind.APPLICATION_RUN and _during(run, attempt))
        left = [run for run in left if run not in during]
        tries.append(Branch(branch.run, attempt, during))
    return [*tries, *(Branch(run) for run in left)]


def numbered(attempts: Sequence[Attempt]) -> bool:
    """Whether the run's events tell of tries."""
    return any(attempt.number is not None for attempt in attempts)


def _during(run: RunNode, attempt: Attempt) -> bool:
    if run.started is None or attempt.started is None:
        return False
    return attempt.started <= run.started and (attempt.ended is None or run.started <= attempt.ended)


def title_of(run: RunNode, encoding: str = "utf-8") -> tuple[str, str, str]:
    """Kind, name and, where that leaves it open, which run of it."""
    job = job_parts(run.template) if run.template else None
    flow = flow_parts(job[0] if job else run.template or "")
    subject = job[1] if job else flow[1] if flow else None
    kind = str(run.kind)
    if run.kind is RunKind.APPLICATION_RUN:
        kind = str(orchestrator_of(run.template or "")).capitalize()
    if subject is None:
        return kind, harmless(run.name, encoding), ""
    if run.kind is RunKind.TASK_RUN:
        index = run.properties.get("map_index", "-1")
        return kind, harmless(subject if index == "-1" else f"{subject}[{index}]", encoding), ""
    note = run.properties.get("run_id") or run.name.removeprefix(f"{subject}_")
    return harmless(kind, encoding), harmless(subject, encoding), harmless(note, encoding)
