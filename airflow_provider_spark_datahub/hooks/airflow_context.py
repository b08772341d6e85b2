"""Reader of Airflow's context: configuration, and an attempt's key, place in the run tree and
OpenLineage runs.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pendulum
from airflow.providers.common.compat.sdk import conf

from airflow_provider_spark_datahub.capture import ParentRun
from airflow_provider_spark_datahub.conversion import (
    SOME_TASK,
    DataInterval,
    RunType,
    SilentTasks,
    redact_text,
)
from airflow_provider_spark_datahub.conversion.run_tree import (
    AirflowInfo,
    AirflowSite,
    AttemptResult,
    DagRun,
    TaskAttempt,
    UpstreamTask,
    owner_urns,
    tag_urns,
)
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.get_provider_info import datahub_plugin_is_installed
from airflow_provider_spark_datahub.hooks.airflow_services import (
    AirflowServices,
    ask,
    configured,
)
from airflow_provider_spark_datahub.task import SECTION, LineageConfiguration

log = logging.getLogger(__name__)

_MANUAL_RUN_TYPES = frozenset({"manual", "operator_triggered"})
_RESULTS: Mapping[str | None, AttemptResult] = {
    "success": "SUCCESS", "skipped": "SKIPPED", "failed": "FAILURE", "upstream_failed": "FAILURE", "removed": "FAILURE",
}  # fmt: skip
"""Result of a task instance by its state in Airflow. In other states, its job may run, or it will
be tried again.
"""
_DAGS_SECONDS = 600.0
"""Time to read the DAGs that an outbox names."""
_TRIGGER_MS = 60_000
"""A DAG run is for a date in the past if its logical date is earlier than its trigger by more than
this.
"""
_MAX_MAPPED_UPSTREAM_RUNS = 1000
"""Most runs of an upstream task that are linked; a task that is expanded more often has no links.
"""
_MOST_SILENT = 50
"""Most tasks without lineage before or after a task that its history names."""
_STATES_OF_RUNS = frozenset(
    {"success", "failed", "running", "deferred", "restarting", "up_for_retry", "up_for_reschedule"}
)

_DAG_PROPERTIES = (
    "catchup", "description", "doc_md", "fileloc", "is_paused_upon_creation", "start_date", "tags", "timezone",
)  # fmt: skip
_TASK_PROPERTIES = (
    "depends_on_past", "email", "label", "execution_timeout", "sql", "task_id", "trigger_rule", "wait_for_downstream",
    "downstream_task_ids", "inlets", "outlets",
)  # fmt: skip
_PARENT_RUN = "datahub_parent_run"
"""Key in the ``conf`` of a triggered DAG run that names the run that triggered it: dag_id, run_id
and task_id.
"""
ASSET_WRITER = "datahub_task_run"
"""Key in the ``extra`` of an asset event with the URN of the task run that wrote the asset."""
_LINK = "DataHub task"
"""Name of a link that each task with lineage has (``operators/links.py``)."""


def configuration() -> LineageConfiguration:
    """Return the section ``[spark_datahub]`` of Airflow's configuration."""
    from airflow.configuration import AIRFLOW_HOME

    prefix = f"AIRFLOW__{SECTION.upper()}__"
    names = {name.removeprefix(prefix).lower() for name in os.environ if name.startswith(prefix)}
    names.update(conf.options(SECTION) if conf.has_section(SECTION) else ())
    return LineageConfiguration(
        read=cache(lambda option: configured(SECTION, option, "")),
        home=Path(AIRFLOW_HOME) / SECTION,
        names=tuple(sorted(names)),  # Airflow asks commands and secrets for options of its own only
    )


def datahub_plugin_is_active() -> bool:
    """Return whether DataHub's own Airflow plugin is installed and not switched off."""
    return datahub_plugin_is_installed() and configured("datahub", "enabled", True, conf.getboolean)


def _has_lineage(task: Any) -> bool:
    """Return whether a task, as in its file or serialized, has lineage: by its operator, or by
    policy (its links).
    """
    links = getattr(task, "operator_extra_links", None)
    names = (
        {getattr(link, "name", "") for link in links} if isinstance(links, Collection) else set()
    )
    return _has_arguments(task) or _LINK in names


def _has_arguments(task: Any) -> bool:
    """Return whether the options of lineage are arguments of a task's operator."""
    return "lineage_on_failure" in (getattr(task, "template_fields", None) or ())


def lineage_is_on(dag: Any, task: Any, known: LineageConfiguration | None = None) -> bool:
    """Return whether a task has lineage that is not switched off, as far as that is known before it
    is rendered.
    """
    if not _has_lineage(task):
        return False
    enabled = lineage_option(dag, task, "enabled")
    return "{{" in str(enabled) or (known or configuration()).is_enabled(enabled)


def lineage_option(dag: Any, task: Any, name: str) -> Any:
    """Return an option as a task's author gave it: an argument, or for lineage by policy one of
    ``default_args``.
    """
    if _has_arguments(task):
        return _task_argument(dag, task, name)
    defaults = [
        getattr(place, "default_args", None) or {}
        for place in (dag, getattr(task, "task_group", None))
    ]
    return {**defaults[0], **defaults[1]}.get(name)


def _task_argument(dag: Any, task: Any, name: str) -> Any:
    """Return an argument as the task's author gave it. A mapped task has neither attributes nor
    defaults yet.
    """
    expanded = getattr(getattr(task, "expand_input", None), "value", None)
    if isinstance(expanded, Mapping) and name in expanded:
        return "{{ expanded }}"
    partial_kwargs = getattr(task, "partial_kwargs", None)
    if partial_kwargs is None:
        return getattr(task, name, None)
    defaults = {
        **(getattr(dag, "default_args", None) or {}),
        **(partial_kwargs.get("default_args") or {}),
    }
    return partial_kwargs.get(name, defaults.get(name))


def _epoch_ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(pendulum.instance(moment).timestamp() * 1000)


def dag_run_of(dag_run: Any, dag: Any = None) -> DagRun:
    """Return a DAG run for the run tree, from that of a task's context or of the scheduler."""
    dag_url = page_url("dags", dag_run.dag_id)
    # DataHub's own plugin reads the same names, so that both give the same URNs.
    site = AirflowSite(
        cluster=configured("datahub", "cluster", "prod") or "prod",
        platform_instance=configured("datahub", "platform_instance", "") or None,
    )
    return DagRun(
        site=site,
        dag_id=dag_run.dag_id,
        run_id=dag_run.run_id,
        kind=_kind(dag_run),
        start_ms=_epoch_ms(getattr(dag_run, "start_date", None)),
        url=f"{dag_url}/runs/{quote(dag_run.run_id, safe='')}" if dag_url else None,
        dag=_dag_info(dag, dag_url),
        interval=_data_interval(dag_run),
        parent_urn=_triggering_run(dag_run, site),
        upstream_urns=tuple(sorted(set(_asset_writers(dag_run, site)))),
        due_ms=_due_ms(dag_run),
        logical_ms=_epoch_ms(getattr(dag_run, "logical_date", None)),
    )


def page_url(*parts: str) -> str | None:
    """Return the address of a page in Airflow's UI; ``None`` if Airflow does not know its own
    (``[api] base_url``).
    """
    base_url = configured("api", "base_url", "").rstrip("/")
    return "/".join([base_url, *(quote(part, safe="") for part in parts)]) if base_url else None


def _dag_info(dag: Any, url: str | None) -> AirflowInfo:
    """Return a DAG's description, owners and tags, with the properties that DataHub's own plugin
    gives its DataFlow.
    """
    properties = {key: _property(getattr(dag, key)) for key in _DAG_PROPERTIES if hasattr(dag, key)}
    paragraphs = [text for key in ("description", "doc_md") if (text := getattr(dag, key, None))]
    return AirflowInfo(
        redact_text("\n\n".join(paragraphs)) or None, url, properties, *_owners_and_tags(dag)
    )


def _task_info(task: Any) -> AirflowInfo:
    """Return a task's description and owners, with the properties that DataHub's own plugin gives
    its DataJob.
    """
    dag = getattr(task, "dag", None)
    values = {key: getattr(task, key) for key in _TASK_PROPERTIES if hasattr(task, key)}
    for key, value in values.items():
        if key in ("inlets", "outlets"):
            values[key] = [str(getattr(asset, "uri", asset)) for asset in value]
        elif isinstance(value, set | frozenset):
            values[key] = sorted(value)
    properties = {key: redact_text(repr(value)) for key, value in values.items()}
    docs = (
        getattr(task, key, None) for key in ("doc", "doc_md", "doc_json", "doc_yaml", "doc_rst")
    )
    description = next((doc for doc in docs if isinstance(doc, str) and doc), "")
    url = page_url("dags", dag.dag_id, "tasks", task.task_id) if dag is not None else None
    return AirflowInfo(redact_text(description) or None, url, properties, *_owners_and_tags(dag))


def _property(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return json.dumps(sorted(value))
    return "" if value is None else redact_text(str(value))


def _owners_and_tags(dag: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the URNs of a DAG's owners and tags, unless the options of DataHub's own plugin leave
    them out.
    """
    owners, tags = "", ()
    if configured("datahub", "capture_ownership_info", True, conf.getboolean):
        owners = getattr(dag, "owner", None) or ""
    if configured("datahub", "capture_tags_info", True, conf.getboolean):
        tags = getattr(dag, "tags", None) or ()
    as_groups = configured("datahub", "capture_ownership_as_group", False, conf.getboolean)
    names = {name.strip() for name in owners.split(",")} - {""}
    return owner_urns(names, as_groups=as_groups), tag_urns(tags)


def _triggering_run(dag_run: Any, site: AirflowSite) -> str | None:
    """Return the run that triggered a DAG run, if it is named in the run's ``conf``: Airflow does
    not record it.
    """
    given = (getattr(dag_run, "conf", None) or {}).get(_PARENT_RUN)
    names = given if isinstance(given, Mapping) else {}
    dag_id, run_id, task_id = (names.get(name) for name in ("dag_id", "run_id", "task_id"))
    if not (isinstance(dag_id, str) and isinstance(run_id, str)):
        return None
    if isinstance(task_id, str) and datahub_plugin_is_active():
        return site.task_run_urn(dag_id, task_id, run_id)
    return DagRun(site, dag_id, run_id).urn


def _asset_writers(dag_run: Any, site: AirflowSite) -> Iterator[str]:
    """Yield the runs that wrote the assets that triggered a DAG run, if they are written to
    DataHub.

    This package's operators name their run in the asset event. Only DataHub's plugin writes the
    runs of other tasks.
    """
    by_plugin = datahub_plugin_is_active()
    for writer, source in _asset_events(dag_run):
        if writer:
            yield writer
        elif by_plugin and all(source):
            yield site.task_run_urn(*source)


def _asset_events(dag_run: Any) -> Iterator[tuple[str | None, tuple[Any, Any, Any]]]:
    """Yield who wrote the assets that triggered a DAG run: the run that our operators named; DAG,
    task and DAG run.
    """
    if _run_type(dag_run) != "asset_triggered":
        # Outside of a task, Airflow would read the events from its database.
        return
    for event in getattr(dag_run, "consumed_asset_events", None) or ():
        writer = (getattr(event, "extra", None) or {}).get(ASSET_WRITER)
        is_ours = isinstance(writer, str) and writer.startswith("urn:li:dataProcessInstance:")
        yield (
            writer if is_ours else None,
            (event.source_dag_id, event.source_task_id, event.source_run_id),
        )


def _silent_tasks(task: Any, dag_run: Any) -> SilentTasks:
    sources = (source for writer, source in _asset_events(dag_run) if not writer and all(source))
    started = dict.fromkeys((dag_id, run_id, task_id) for dag_id, task_id, run_id in sources)
    return SilentTasks(
        _silent(task, "upstream_list"), _silent(task, "downstream_list"), tuple(started)
    )


def _silent(task: Any, side: str) -> tuple[str, ...]:
    """Return the ids of the tasks without lineage on one side of a task, however far away."""
    known = configuration()
    # An empty task never runs.
    found = [
        other.task_id
        for other in _walk(task, side)
        if not (
            lineage_is_on(other.dag, other, known)
            or getattr(other, "inherits_from_empty_operator", False)
        )
    ]
    return tuple(sorted(found)) if len(found) <= _MOST_SILENT else (SOME_TASK,)


def _walk(task: Any, side: str, passes: Callable[[Any], bool] = lambda _: True) -> Iterator[Any]:
    """Yield the tasks on one side of a task. The walk continues only through tasks that ``passes``
    accepts.
    """
    seen, waiting = {task.task_id}, list(getattr(task, side, ()))
    while waiting:
        other = waiting.pop()
        if other.task_id not in seen:
            seen.add(other.task_id)
            yield other
            if passes(other):
                waiting += getattr(other, side, ())


def _due_ms(dag_run: Any) -> int | None:
    """Return the time at which a DAG run was due, which for a triggered run may be in the past or
    in the future.
    """
    moments = [getattr(dag_run, "run_after", None)]
    if _kind(dag_run) == "BATCH_AD_HOC":
        moments.append(getattr(dag_run, "logical_date", None))
    return min((ms for moment in moments if (ms := _epoch_ms(moment)) is not None), default=None)


def _due_ms_of(run_id: str) -> int | None:
    """Return when a DAG run was due, from an id that Airflow made; ``None`` if a user gave the id."""
    found = re.search(r"__(\d{4}-\d\d-\d\dT[^_]+)", run_id)
    with suppress(ValueError):
        return _epoch_ms(datetime.fromisoformat(found[1])) if found else None
    return None


def _data_interval(dag_run: Any) -> DataInterval | None:
    start_ms, end_ms = (
        _epoch_ms(getattr(dag_run, f"data_interval_{end}", None)) for end in ("start", "end")
    )
    return DataInterval(start_ms, end_ms) if start_ms is not None and end_ms is not None else None


def _kind(dag_run: Any) -> RunType:
    return "BATCH_AD_HOC" if _run_type(dag_run) in _MANUAL_RUN_TYPES else "BATCH_SCHEDULED"


def _run_type(dag_run: Any) -> str:
    """Return the type of a DAG run: a task knows its name, the scheduler has the type itself."""
    run_type = getattr(dag_run, "run_type", "manual")
    return str(getattr(run_type, "value", run_type))


def successful_task_runs(dag_id: str, run_id: str, task_ids: Sequence[str]) -> dict[str, list[int]]:
    """Return the map indexes of the tasks whose runs in a DAG run all succeeded, by task. Not for
    use in a task.

    It reads Airflow's database, as Airflow's scheduler does.
    """
    from airflow.models.dagrun import DagRun as StoredDagRun

    runs: dict[str, list[tuple[int, str]]] = {}
    for ti in StoredDagRun.fetch_task_instances(
        dag_id=dag_id, run_id=run_id, task_ids=list(task_ids)
    ):
        if ti.state != "removed":
            runs.setdefault(ti.task_id, []).append((ti.map_index, str(ti.state)))
    return {
        task_id: sorted(index for index, _ in found)
        for task_id, found in runs.items()
        if all(state == "success" for _, state in found)
    }


def tasks_of_dags(dag_ids: Collection[str]) -> dict[str, Collection[str]]:
    """Return the ids of the tasks of these DAGs, without DAGs that Airflow does not have any more.
    Not for use in a task.

    :raises NoAnswerError: if Airflow's database does not answer, or has no DAG at all.
    """
    from airflow.models.dag import DagModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    def tasks() -> dict[str, Collection[str]]:
        with create_session() as session:
            active = {*session.scalars(select(DagModel.dag_id).where(~DagModel.is_stale))}
        if not active:
            raise LookupError("it has no DAG")
        dags: Iterable[Any] = map(SerializedDagModel.get_dag, active.intersection(dag_ids))
        return {dag.dag_id: dag.task_dict.keys() for dag in dags}

    return ask("Airflow's database", tasks, Deadline.after(_DAGS_SECONDS))


def ended_attempt(ti: Any, dag: Any, end_ms: int, state: str) -> TaskAttempt:
    """Return the attempt of a task instance from Airflow's database, with a state that a user set."""
    return TaskAttempt(
        dag_run=dag_run_of(ti.dag_run, dag),
        task_id=ti.task_id,
        try_number=ti.try_number,
        map_index=_map_index(ti),
        start_ms=_epoch_ms(ti.start_date),
        end_ms=end_ms,
        result=_RESULTS[state],
    )


def final_result(services: AirflowServices, ti: Any, key: AttemptKey) -> AttemptResult | None:
    """Return the result of a task instance if Airflow is done with it: it neither runs nor will be
    tried again.

    :param ti: the asking task instance, from its context; ``None`` outside of tasks, where Airflow
        cannot be asked.
    """
    states = _states_in_run(services, ti, key.dag_id, key.run_id, key.task_id, key.map_index)
    return None if states is None else _RESULTS.get(states.get(key.map_index, "removed"))


def stored_result(key: AttemptKey) -> AttemptResult | None:
    """Return the result of the task instance of an attempt if Airflow is done with it. Not for use
    in a task.

    :returns: FAILURE of an attempt that is not the last one; ``None`` if it runs, or the database
        does not answer.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    query = select(TaskInstance.state, TaskInstance.try_number).where(
        TaskInstance.dag_id == key.dag_id, TaskInstance.run_id == key.run_id,
        TaskInstance.task_id == key.task_id, TaskInstance.map_index == key.map_index,
    )  # fmt: skip
    try:
        with create_session() as session:
            state, last_try = session.execute(query).first() or (None, 0)
    except SQLAlchemyError:
        return None
    result = _RESULTS.get(state)
    return result if result is None or last_try == key.try_number else "FAILURE"


def _states_in_run(
    services: AirflowServices, ti: Any, dag_id: str, run_id: str, task_id: str, map_index: int = -1
) -> dict[int, str | None] | None:
    """Return the states of a task in a DAG run, by map index (-1: of all); ``None`` if Airflow does
    not answer.
    """
    index = map_index if map_index >= 0 else None

    def states() -> dict[int, str | None]:
        answer = ti.get_task_states(dag_id, index, [task_id], run_ids=[run_id]).get(run_id, {})
        names = {
            name.removeprefix(task_id).removeprefix("_"): state for name, state in answer.items()
        }
        return {
            int(name or -1): None if state is None else str(state) for name, state in names.items()
        }

    return services.ask("states of tasks", states, None) if hasattr(ti, "get_task_states") else None


class AttemptContext:
    """Attempt of a running task, read from Airflow's context.

    :ivar ti_id: Airflow's id of the task instance, new for every attempt; empty if it has none.
    """

    def __init__(self, context: Mapping[str, Any], services: AirflowServices | None = None) -> None:
        self._context = context
        self._services = services or AirflowServices()
        self._ti = context["ti"]
        self.ti_id = str(getattr(self._ti, "id", "") or "")

    @property
    def has_attempts_left(self) -> bool:
        """Return whether Airflow will try the task again after a failure."""
        should_retry = getattr(
            getattr(self._ti, "_ti_context_from_server", None), "should_retry", None
        )
        return (
            bool(should_retry)
            if should_retry is not None
            else self._ti.try_number <= self._ti.max_tries
        )

    def result_set_by_others(self) -> AttemptResult | None:
        """Return the result that a user set for the running task run in Airflow's UI or API, if
        there is one.
        """
        ti, index = self._ti, _map_index(self._ti)
        states = _states_in_run(self._services, ti, ti.dag_id, ti.run_id, ti.task_id, index) or {}
        return _RESULTS.get(states.get(index))

    def attempt(self) -> TaskAttempt:
        """Return the attempt with its place in the run tree."""
        ti, task, by_plugin = self._ti, self._context["task"], datahub_plugin_is_active()
        return TaskAttempt(
            dag_run=dag_run_of(self._context["dag_run"], getattr(task, "dag", None)),
            task_id=ti.task_id,
            try_number=ti.try_number,
            map_index=_map_index(ti),
            start_ms=_epoch_ms(getattr(ti, "start_date", None)),
            log_url=getattr(ti, "log_url", None) or None,
            task=self._services.ask(
                "the task's description", lambda: _task_info(task), AirflowInfo()
            ),
            upstream=_UpstreamTasks(task, ti, self._services, written_by_plugin=by_plugin).find(),
            written_by_plugin=by_plugin,
            only_adds=self._is_superseded(),
            silent=_silent_tasks(task, self._context["dag_run"]),
        )

    def _is_superseded(self) -> bool:
        """Return whether a newer DAG run has run the task; True for a run out of turn if Airflow
        does not answer.

        Runs are out of turn if they were cleared, belong to a backfill, or were triggered for a
        date in the past.
        """
        run, ti = self._context["dag_run"], self._ti
        due_ms, logical_ms = (
            _epoch_ms(getattr(run, "run_after", None)),
            _epoch_ms(getattr(run, "logical_date", None)),
        )
        is_backfill = _run_type(run) == "backfill"
        is_of_past = (
            _kind(run) == "BATCH_AD_HOC" and (_due_ms(run) or 0) < (due_ms or 0) - _TRIGGER_MS
        )
        is_in_turn = not (getattr(run, "clear_number", 0) or is_backfill or is_of_past)
        if is_in_turn or _map_index(ti) >= 0:  # runs of a mapped task only add
            return False
        if logical_ms is None:
            # Airflow's API finds runs by logical date only, but the ids that Airflow gives them
            # have "run_after".
            question = partial(_has_run_since, ti, due_ms or 0)
        else:
            question = partial(_has_newer_run, ti, logical_ms)
        return self._services.ask("later runs of the task", question, True)

    def openlineage_runs(self) -> tuple[ParentRun, ParentRun]:
        """Return the task run and the DAG run as Airflow's OpenLineage provider identifies them, or
        by its own rule.
        """
        provider = "Airflow's OpenLineage provider"
        return (
            self._services.ask(provider, self._openlineage_runs_of_provider, None)
            or self._own_openlineage_runs()
        )

    def _openlineage_runs_of_provider(self) -> tuple[ParentRun, ParentRun] | None:
        try:
            from airflow.providers.openlineage.plugins import macros as untyped

            macros: Any = untyped
            ti = self._ti
            parent = (
                macros.lineage_job_namespace(),
                macros.lineage_job_name(ti),
                macros.lineage_run_id(ti),
            )
            root = [
                getattr(macros, f"lineage_root_{name}")(ti)
                for name in ("job_namespace", "job_name", "run_id")
            ]
        except (ImportError, AttributeError) as error:
            # Before 2.8, it lacks macros of the root run, and reads attributes that Airflow 3 has
            # not.
            log.debug(
                "OpenLineage's run ids are made without Airflow's OpenLineage provider: %s", error
            )
            return None
        "".join((*parent, *root))  # texts, or a TypeError
        return ParentRun(*parent), ParentRun(*root)

    def _own_openlineage_runs(self) -> tuple[ParentRun, ParentRun]:
        from openlineage.client.uuid import generate_static_uuid

        ti, dag_run = self._ti, self._context["dag_run"]
        namespace = configured("openlineage", "namespace", "default") or "default"
        instant = getattr(dag_run, "logical_date", None) or dag_run.run_after
        task_key = f"{namespace}.{ti.dag_id}.{ti.task_id}.{ti.try_number}.{_map_index(ti)}"
        dag_key = f"{namespace}.{ti.dag_id}.{getattr(dag_run, 'clear_number', 0)}"
        return (
            ParentRun(
                namespace,
                f"{ti.dag_id}.{ti.task_id}",
                str(generate_static_uuid(instant, task_key.encode())),
            ),
            ParentRun(namespace, ti.dag_id, str(generate_static_uuid(instant, dag_key.encode()))),
        )


def _has_run_since(ti: Any, due_ms: int) -> bool:
    """Return whether another DAG run that was due later, or at a time that is not known, has run
    the task.
    """
    states = ti.get_task_states(ti.dag_id, task_ids=[ti.task_id]).items()
    due = [
        _due_ms_of(run_id)
        for run_id, found in states
        if "success" in found.values() and run_id != ti.run_id
    ]
    return any(ms is None or ms > due_ms for ms in due)


def _has_newer_run(ti: Any, logical_ms: int) -> bool:
    """Return whether a DAG run with a later date has run the task; a run for a date in the future
    does not count.
    """
    newest = ti.get_previous_ti(state="success", logical_date=pendulum.now("UTC"))
    newest_ms = (_epoch_ms(newest.logical_date) if newest is not None else None) or 0
    return newest_ms > logical_ms and newest.run_id != ti.run_id


def _map_index(ti: Any) -> int:
    """Return the map index; -1 for a task that is not mapped."""
    index = getattr(ti, "map_index", None)
    return -1 if index is None else int(index)


@dataclass
class _UpstreamTasks:
    """Upstream tasks of a task run whose runs are written to DataHub.

    A task that did not run, or whose runs are not written, is skipped: the tasks before it replace
    it as upstream tasks. Without DataHub's plugin, only runs of this package's operators are
    written. The results of other tasks are in Airflow's database, which a task cannot read.

    :param task: the task of the run ``ti``.
    """

    _task: Any
    _ti: Any
    _services: AirflowServices
    written_by_plugin: bool
    _found: dict[str, tuple[int, ...] | None] = field(default_factory=dict)

    def find(self) -> tuple[UpstreamTask, ...]:
        """Return the tasks, sorted by id."""
        known = configuration()
        written = {
            task.task_id
            for task in _walk(self._task, "upstream_list")
            if self._is_written(task, known)
        }

        def reached(passes: Callable[[Any], bool]) -> set[str]:
            tasks = _walk(
                self._task,
                "upstream_list",
                lambda task: task.task_id not in written or passes(task),
            )
            return {task.task_id for task in tasks} & written

        nearest = reached(lambda _: False)
        ran = reached(lambda task: self._runs(task) is None)
        return tuple(
            UpstreamTask(task_id, self._found.get(task_id) or (), is_nearest=task_id in nearest)
            for task_id in sorted({*nearest, *ran})
        )

    def _is_written(self, task: Any, known: LineageConfiguration) -> bool:
        if lineage_is_on(task.dag, task, known):
            return True
        # Airflow's scheduler marks an empty task as successful: it never runs, so the plugin does
        # not see it.
        return self.written_by_plugin and not getattr(task, "inherits_from_empty_operator", False)

    def _runs(self, task: Any) -> tuple[int, ...] | None:
        """Return the runs of a task that this one depends on; ``None`` if it did not run."""
        if task.task_id not in self._found:
            self._found[task.task_id] = self._that_ran(task)
        return self._found[task.task_id]

    def _that_ran(self, task: Any) -> tuple[int, ...] | None:
        """Return the map indexes of a task's runs; none if they cannot be determined, or are too
        many.
        """
        ti, group = self._ti, _mapped_group(task)
        if _is_mapped(task) and not lineage_is_on(task.dag, task):
            # DataHub's plugin writes one run for all runs of a mapped task.
            return (-1,)
        states = _states_in_run(self._services, ti, ti.dag_id, ti.run_id, task.task_id)
        if not _is_mapped(task):
            indexes = [-1]
        elif group is not None and group == _mapped_group(self._task):
            indexes = [_map_index(ti)]
        else:
            indexes = sorted(index for index in states or () if index >= 0)
            if len(indexes) > _MAX_MAPPED_UPSTREAM_RUNS:
                return ()
        if states is None:
            return tuple(indexes)
        return tuple(index for index in indexes if states.get(index) in _STATES_OF_RUNS) or None


def _is_mapped(task: Any) -> bool:
    return bool(getattr(task, "is_mapped", False)) or _mapped_group(task) is not None


def _mapped_group(task: Any) -> str | None:
    """Return the id of the mapped task group that a task is in."""
    find = getattr(task, "get_closest_mapped_task_group", None)
    group = find() if find else None
    return group.group_id if group is not None else None
