"""What Airflow's context says of a try: its identity, its place in the run tree, its OpenLineage runs."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.providers.common.compat.sdk import AirflowException, conf

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.capture import ParentRun
from airflow_provider_spark_datahub.conversion import DataInterval, RunType
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskTry, UpstreamTask
from airflow_provider_spark_datahub.task import SECTION, LineageConfiguration

PLUGIN = "acryl-datahub-airflow-plugin"
_MANUAL_RUN_TYPES = frozenset({"manual", "operator_triggered"})
MAX_MAPPED_UPSTREAM_RUNS = 1000
"""An upstream task that is expanded more often than this is not linked run by run."""


def configuration() -> LineageConfiguration:
    """Return the section ``[spark_datahub]`` of Airflow's configuration."""
    from airflow.configuration import AIRFLOW_HOME

    return LineageConfiguration(
        read=lambda option: conf.get(SECTION, option, fallback="") or "", home=Path(AIRFLOW_HOME) / SECTION
    )


def airflow_site() -> AirflowSite:
    """The section ``[datahub]`` that DataHub's own plugin reads too, so that both write the same URNs."""
    return AirflowSite(
        cluster=conf.get("datahub", "cluster", fallback="prod") or "prod",
        platform_instance=conf.get("datahub", "platform_instance", fallback=None) or None,
    )


def datahub_plugin_is_active() -> bool:
    """Whether DataHub's own Airflow plugin is installed and not switched off."""
    try:
        importlib.metadata.distribution(PLUGIN)
    except importlib.metadata.PackageNotFoundError:
        return False
    return bool(conf.getboolean("datahub", "enabled", fallback=True))


def attempt_key(context: Mapping[str, Any]) -> AttemptKey:
    """Return the key of the attempt that runs."""
    ti = context["ti"]
    return AttemptKey(ti.dag_id, ti.run_id, ti.task_id, map_index(ti), ti.try_number)


def task_instance_id(context: Mapping[str, Any]) -> str:
    """Return Airflow's id of the task instance, new for every attempt; empty if it has none."""
    return str(getattr(context["ti"], "id", "") or "")


def map_index(ti: Any) -> int:
    """-1 for a task that is not mapped."""
    index = getattr(ti, "map_index", None)
    return -1 if index is None else int(index)


def task_try(context: Mapping[str, Any]) -> TaskTry:
    """The try's place in the run tree."""
    ti, task = context["ti"], context["task"]
    return TaskTry(
        dag_run=dag_run_of(context["dag_run"], getattr(task, "dag", None)),
        task_id=ti.task_id,
        try_number=ti.try_number,
        map_index=map_index(ti),
        start_ms=epoch_ms(getattr(ti, "start_date", None)),
        log_url=getattr(ti, "log_url", None) or None,
        upstream=tuple(_upstream_tasks(context)),
        written_by_plugin=datahub_plugin_is_active(),
    )


def dag_run_of(dag_run: Any, dag: Any = None) -> DagRun:
    """A DAG run, as the task's context or the scheduler has it."""
    base_url = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    dag_url = f"{base_url}/dags/{quote(dag_run.dag_id, safe='')}" if base_url else None
    return DagRun(
        site=airflow_site(),
        dag_id=dag_run.dag_id,
        run_id=dag_run.run_id,
        kind=_kind(dag_run),
        start_ms=epoch_ms(getattr(dag_run, "start_date", None)),
        url=f"{dag_url}/runs/{quote(dag_run.run_id, safe='')}" if dag_url else None,
        dag_url=dag_url,
        dag_description=getattr(dag, "description", None) or None,
        interval=_interval(dag_run),
    )


def _interval(dag_run: Any) -> DataInterval | None:
    start_ms, end_ms = (epoch_ms(getattr(dag_run, f"data_interval_{end}", None)) for end in ("start", "end"))
    return DataInterval(start_ms, end_ms) if start_ms is not None and end_ms is not None else None


def _kind(dag_run: Any) -> RunType:
    run_type = getattr(dag_run, "run_type", "manual")
    return "BATCH_AD_HOC" if str(getattr(run_type, "value", run_type)) in _MANUAL_RUN_TYPES else "BATCH_SCHEDULED"


def epoch_ms(moment: datetime | None) -> int | None:
    """A time in ms since the epoch."""
    return None if moment is None else round(moment.timestamp() * 1000)


def _upstream_tasks(context: Mapping[str, Any]) -> Iterator[UpstreamTask]:
    task, ti = context["task"], context["ti"]
    for upstream in sorted(getattr(task, "upstream_list", ()), key=lambda one: str(one.task_id)):
        yield UpstreamTask(upstream.task_id, _map_indexes(upstream, task, ti))


def _map_indexes(upstream: Any, task: Any, ti: Any) -> tuple[int, ...]:
    """The runs of an upstream task that a task run waits for; none where they cannot be told."""
    expansion = _mapped_group(upstream)
    if expansion is None and not getattr(upstream, "is_mapped", False):
        return (-1,)
    if expansion is not None and expansion == _mapped_group(task):
        return (map_index(ti),)
    try:
        count = ti.get_ti_count(dag_id=ti.dag_id, task_ids=[upstream.task_id], run_ids=[ti.run_id])
    except (AirflowException, AttributeError, OSError):
        return ()
    return tuple(range(count)) if count <= MAX_MAPPED_UPSTREAM_RUNS else ()


def _mapped_group(task: Any) -> str | None:
    """The id of the mapped task group that a task is in."""
    find = getattr(task, "get_closest_mapped_task_group", None)
    group = find() if find else None
    return group.group_id if group is not None else None


def openlineage_runs(context: Mapping[str, Any]) -> tuple[ParentRun, ParentRun]:
    """The task run and the DAG run as Airflow's OpenLineage provider identifies them.

    Where the provider is not installed, the ids are made by its rule, so that both agree once it is.
    """
    ti = context["ti"]
    try:
        from airflow.providers.openlineage.plugins import macros as untyped
    except ImportError:
        return _own_openlineage_runs(context)
    macros: Any = untyped
    parent = ParentRun(macros.lineage_job_namespace(), macros.lineage_job_name(ti), macros.lineage_run_id(ti))
    root = ParentRun(
        macros.lineage_root_job_namespace(ti), macros.lineage_root_job_name(ti), macros.lineage_root_run_id(ti)
    )
    return parent, root


def _own_openlineage_runs(context: Mapping[str, Any]) -> tuple[ParentRun, ParentRun]:
    from openlineage.client.uuid import generate_static_uuid

    ti, dag_run = context["ti"], context["dag_run"]
    namespace = conf.get("openlineage", "namespace", fallback="") or "default"
    instant = getattr(dag_run, "logical_date", None) or dag_run.run_after
    task_key = f"{namespace}.{ti.dag_id}.{ti.task_id}.{ti.try_number}.{map_index(ti)}"
    dag_key = f"{namespace}.{ti.dag_id}.{getattr(dag_run, 'clear_number', 0)}"
    return (
        ParentRun(namespace, f"{ti.dag_id}.{ti.task_id}", str(generate_static_uuid(instant, task_key.encode()))),
        ParentRun(namespace, ti.dag_id, str(generate_static_uuid(instant, dag_key.encode()))),
    )


def has_tries_left(context: Mapping[str, Any]) -> bool:
    """Whether Airflow will try the task again after a failure."""
    ti = context["ti"]
    told = getattr(getattr(ti, "_ti_context_from_server", None), "should_retry", None)
    return bool(told) if told is not None else ti.try_number <= ti.max_tries


def mask(secret: str) -> None:
    """Have Airflow hide a text in its logs."""
    for module in ("airflow.sdk.log", "airflow.sdk.execution_time.secrets_masker"):  # since, and before Airflow 3.2
        with suppress(ImportError, AttributeError):
            import_module(module).mask_secret(secret)
            return
