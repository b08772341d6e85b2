"""Tells DataHub how DAG runs with lineage tasks ended, which no operator sees.

Runs in the scheduler: it only looks at the DAG there, and delivers in one thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.proposals import Proposal

log = logging.getLogger(__name__)

DELIVERY_SECONDS = 10.0
_LINEAGE_FIELD = "lineage_on_failure"


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:  # noqa: ARG001 (the hook's signature)
    """Called by Airflow when a DAG run succeeded."""
    _guarded(dag_run, "SUCCESS")


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:  # noqa: ARG001 (the hook's signature)
    """Called by Airflow when a DAG run failed."""
    _guarded(dag_run, "FAILURE")


def _guarded(dag_run: Any, result: Literal["SUCCESS", "FAILURE"]) -> None:
    try:
        _ended(dag_run, result)
    except Exception:
        log.warning("The end of DAG run %s is not told to DataHub.", getattr(dag_run, "run_id", "?"), exc_info=True)


def _ended(dag_run: Any, result: Literal["SUCCESS", "FAILURE"]) -> None:
    dag = getattr(dag_run, "dag", None) or dag_run.get_dag()
    connections = sorted(set(_connections(dag)))
    if not connections:
        return
    from airflow_provider_spark_datahub.conversion.relate import dag_run_ended
    from airflow_provider_spark_datahub.operators.airflow_run import dag_run_of, epoch_ms
    from airflow_provider_spark_datahub.operators.options import outbox_location

    end_ms = epoch_ms(dag_run.end_date or datetime.now(tz=UTC)) or 0
    run = dag_run_of(dag_run, dag)
    proposals = dag_run_ended(run, end_ms, result)
    for connection in connections:
        _executor().submit(_deliver, connection, run.dag_id, run.run_id, proposals, outbox_location())


def _connections(dag: Any) -> Iterator[str]:
    """The connections of the DAG's lineage tasks; one that is a template or expanded can't be told here."""
    from airflow_provider_spark_datahub.operators.options import connection_id, is_enabled

    for task in dag.tasks:
        if _LINEAGE_FIELD not in (getattr(task, "template_fields", None) or ()):
            continue
        named = _argument(dag, task, "datahub_conn_id") or connection_id()
        enabled = _argument(dag, task, "enabled")
        if "{{" not in named and ("{{" in str(enabled) or is_enabled(enabled)):
            yield named


def _argument(dag: Any, task: Any, name: str) -> Any:
    """What the task's author gave for an argument: a mapped task is not made yet, its defaults are not applied."""
    expanded = getattr(getattr(task, "expand_input", None), "value", None)
    if isinstance(expanded, Mapping) and name in expanded:
        return "{{ expanded }}"
    partial = getattr(task, "partial_kwargs", None)
    if partial is None:
        return getattr(task, name, None)
    defaults = {**(getattr(dag, "default_args", None) or {}), **(partial.get("default_args") or {})}
    return partial.get(name, defaults.get(name))


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="lineage-dag-runs")


def _deliver(connection: str, dag_id: str, run_id: str, proposals: list[Proposal], outbox_location: Path) -> None:
    """Runs in the listener's thread; what does not arrive stays in the outbox."""
    from airflow_provider_spark_datahub.delivery.deadline import Deadline
    from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxError, OutboxKey
    from airflow_provider_spark_datahub.hooks.datahub import sink_of

    key = OutboxKey(dag_id, run_id, "", -1, 1)
    try:
        entry = None
        try:
            entry = Outbox(outbox_location).put(key, proposals, spark_succeeded=False, connection_id=connection)
        except OutboxError as error:
            log.warning("The end of DAG run %s of %s is not kept before its delivery: %s", run_id, dag_id, error)
        with sink_of(connection) as sink:
            delivery = sink.deliver(proposals, Deadline.after(DELIVERY_SECONDS))
        if entry is not None:
            entry.settle(delivery)
    except Exception:
        log.warning("The end of DAG run %s of %s did not reach %s.", run_id, dag_id, connection, exc_info=True)
        return
    if delivery.pending:
        log.warning("The end of DAG run %s of %s is pending: %s", run_id, dag_id, delivery.problem)
