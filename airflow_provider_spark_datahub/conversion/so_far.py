"""What a running application is sure to have done: nothing that its end may take back."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from airflow_provider_spark_datahub.conversion.fold import APPLICATION, RDD_JOB, Application, RunState


def settled(application: Application, until_ms: int | None = None) -> Application | None:
    """The application with what its runs are sure to have read and written; ``None`` where its name may change yet.

    Left to the end is what it may see in another light: the outputs of a query that runs, which may fail (Deviation
    10); what an RDD job reads, which a query may turn into a mere listing (Deviation 5); and queries that Spark's event
    log does not tell of yet, which may be a streaming query's.

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
    return structs.replace(run, inputs=inputs, outputs=dict(run.written) if run.ended else {})
