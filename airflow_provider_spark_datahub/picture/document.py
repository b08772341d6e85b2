"""The graph as JSON, for other programs."""

from __future__ import annotations

from typing import Any

from airflow_provider_spark_datahub.picture.model import Attempt, Column, Graph, JobLineage, RunNode
from airflow_provider_spark_datahub.picture.urns import dataset_parts


def document(graph: Graph) -> dict[str, Any]:
    """Runs, jobs, datasets and problems. Times and durations are in milliseconds, times since 1970 UTC.

    Runs are a list, parents first; ``parent`` names the run above. Names are as the proposals have them: who prints
    them has to escape them.
    """
    datasets = dict.fromkeys([*(urn for job in graph.jobs for urn in (*job.inputs, *job.outputs)), *graph.schemas])
    return {
        "runs": [_run(run) for run in graph.runs()],
        "jobs": [_job(job) for job in graph.jobs],
        "datasets": [_dataset(urn, graph) for urn in datasets],
        "proposals": graph.read,
        "other_aspects": dict(graph.unread),
        "problems": list(graph.problems),
    }


def _run(run: RunNode) -> dict[str, Any]:
    return {
        "urn": run.urn,
        "kind": str(run.kind),
        "name": run.name,
        "template": run.template,
        "parent": run.parent,
        "started": run.started,
        "attempts": [_attempt(attempt) for attempt in run.attempts()],
        "inputs": list(run.inputs),
        "outputs": list(run.outputs),
        "upstreams": list(run.upstreams),
        "external_url": run.external_url,
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "state": attempt.state,
        "started": attempt.started,
        "ended": attempt.ended,
        "duration": attempt.duration,
    }


def _job(job: JobLineage) -> dict[str, Any]:
    return {
        "urn": job.urn,
        "name": job.name,
        "inputs": list(job.inputs),
        "outputs": list(job.outputs),
        "upstream_jobs": list(job.upstream_jobs),
        "columns": [
            {
                "output": _column(lineage.output),
                "inputs": [_column(column) for column in lineage.inputs],
                "transformation": lineage.transformation,
            }
            for lineage in job.columns
        ],
    }


def _column(column: Column) -> dict[str, Any]:
    return {"dataset": column.dataset, "column": column.path or None}


def _dataset(urn: str, graph: Graph) -> dict[str, Any]:
    parts = dataset_parts(urn)
    platform, name, env = parts or (None, None, None)
    fields = graph.schemas.get(urn)
    return {
        "urn": urn,
        "platform": platform,
        "name": name,
        "env": env,
        "instance": graph.instances.get(urn),
        "columns": None if fields is None else [{"path": field.path, "type": field.type} for field in fields],
    }
