"""Operators whose Spark jobs have lineage, whichever operator starts them, and launchers of one
job.

Tests: ``tests/operators/test_spark_submit.py``.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.providers.common.compat.sdk import AssetAlias, BaseOperator, Context

from airflow_provider_spark_datahub import hooks, task
from airflow_provider_spark_datahub.operators import task_lineage
from airflow_provider_spark_datahub.operators.links import LINKS
from airflow_provider_spark_datahub.task import ARGUMENTS, OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_spark_datahub.capture import ParentRun, SparkSubmit, Submission

_Init = TypeVar("_Init", bound=Callable[..., None])
_ALIAS = "spark_datahub"
"""Asset alias of the events of tasks with ``emit_assets``. A DAG may be scheduled on it."""
_STOP_SECONDS = 10.0
"""Time for a stopped spark-submit to disappear."""
_SUBMITTED = "spark_datahub_submitted"


@contextmanager
def swapped(operator: Any, **values: object) -> Iterator[None]:
    """Give an operator other values of its attributes while the body runs."""
    users = {name: getattr(operator, name) for name in values}
    vars(operator).update(values)
    try:
        yield
    finally:
        vars(operator).update(users)


@dataclass
class SubmissionLauncher(ABC):
    """Launcher of one Spark job by a call that has Spark properties, such as ``spark-submit``."""

    process: ClassVar[str] = "_submit_sp"
    """Attribute of the operator's hook with the process of the call, if it is a local one."""

    _operator: Any
    _context: Context

    @abstractmethod
    def submissions(self) -> Sequence[Submission]:
        """Return the properties, jars and packages of each job of the call, mostly one, without
        lineage.
        """

    @abstractmethod
    def spark(self) -> SparkSubmit:
        """Return the Spark that the call starts, and where its driver runs."""

    @abstractmethod
    def launching(self, submissions: Sequence[Submission]) -> AbstractContextManager[None]:
        """Return a context in which the task makes the call with other submissions. Its exit
        restores everything.
        """

    @contextmanager
    def swapped(self, file: Path | None = None, **values: object) -> Iterator[None]:
        """Give the operator other values of its attributes for one call, and remove the call's file
        afterwards.
        """
        try:
            with swapped(self._operator, **values):
                yield
        finally:
            if file is not None:
                with suppress(OSError):  # a later task removes it
                    file.unlink(missing_ok=True)

    def has_submitted(self, failure: BaseException) -> bool:  # noqa: ARG002 (for subclasses)
        """Return whether the call that ended with a failure started a job, as far as that is known."""
        return True

    def stop(self) -> None:
        """Stop the job, and wait until it writes no more events."""
        # Our own on_kill() is for a task that Airflow kills.
        operator: SparkLineageOperator = self._operator
        super(SparkLineageOperator, operator).on_kill()
        process = getattr(getattr(operator, "_hook", None), self.process, None)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_STOP_SECONDS)

    def inject(
        self, attempt: task.AttemptLineage, parent: ParentRun, root: ParentRun
    ) -> AbstractContextManager[None]:
        """Return a context in which the task makes the call with lineage."""
        injections = attempt.inject(self.submissions(), self.spark(), parent, root)
        for secret in chain.from_iterable(injection.secrets for injection in injections):
            # These secrets were in a file, and are now on a command line that Airflow logs.
            hooks.mask(secret)
        return self.launching([injection.submission for injection in injections])


def conf_with_airflows_transport(
    conf: Mapping[Any, Any] | None, context: Context, *, wanted: bool
) -> dict[Any, Any]:
    """Return the user's Spark properties with the OpenLineage transport that an operator of Airflow
    would inject.

    The operator injects none if there is one already, so ours would keep it from doing so.

    :param wanted: the operator's ``openlineage_inject_transport_info``.
    """
    if not wanted:
        return dict(conf or {})
    from airflow.providers.common.compat.openlineage.utils.spark import (
        inject_transport_information_into_spark_properties,
    )

    return dict(inject_transport_information_into_spark_properties(dict(conf or {}), context))


def _takes_options(init: _Init) -> _Init:
    """Add the options to the signature, in which Airflow looks up ``default_args`` and mapped
    arguments.
    """
    own = signature(init)
    *known, rest = own.parameters.values()
    options = (Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in ARGUMENTS)
    vars(init)["__signature__"] = own.replace(parameters=[*known, *options, rest])
    return init


class SparkLineageOperator(BaseOperator):
    """Base of operators that start Spark as another operator does, and deliver its lineage to
    DataHub.

    A subclass inherits from this class first and from the other operator second, and
    :meth:`_launcher` returns how the other operator starts Spark. It takes every argument of the
    other operator and behaves in the same way: whatever happens to the lineage, the task ends as it
    would end without. All further arguments are keyword-only and templated, and have their defaults
    in the section ``[spark_datahub]`` of Airflow's configuration
    (:data:`~airflow_provider_spark_datahub.task.options.OPTIONS` describes them). ``lineage`` may
    also be a dict or
    :class:`~airflow_provider_spark_datahub.conversion.settings.LineageSettings`.

    :param emit_assets: ``True`` for an asset event for each dataset that the job wrote, through the
        asset alias ``spark_datahub`` unless the task's ``outlets`` have one; or the URIs of assets
        by DataHub's platform, as templates (``{"hive": "hive://prod/{path}"}``), for the others as
        with ``True``; or ``"partitions"``, which also gives the event of a declared outlet the
        partitions that the job wrote as partition keys, if the events name them (Airflow 3.3): such
        an event triggers only DAGs that are scheduled on partitions. ``False`` for no events even
        if the outlets have an alias. It is not templated by Jinja.
    """

    lineage_fields: ClassVar[tuple[str, ...]] = ARGUMENTS
    """The arguments that this class adds, all of them templated."""
    lineage_by_policy: ClassVar[bool] = False
    """Whether ``[spark_datahub] auto`` added this class to the task's operator."""
    operator_extra_links: Any = LINKS
    _task_lineage: task_lineage.TaskLineage | None = None
    _services: hooks.AirflowServices | None = None
    _resumed = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Add the links, unless a property computes the other operator's, and the template fields."""
        super().__init_subclass__(**arguments)
        joins_operator = len(cls.__bases__) > 1 and issubclass(
            cls.__bases__[0], SparkLineageOperator
        )
        if joins_operator and "template_fields" not in vars(cls):
            cls.template_fields = (*super().template_fields, *cls.lineage_fields)
        others = super().operator_extra_links
        if "operator_extra_links" not in vars(cls):
            cls.operator_extra_links = others if isinstance(others, property) else (*others, *LINKS)

    @_takes_options
    def __init__(
        self, *, emit_assets: bool | str | Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        options = {name: kwargs.pop(name, None) for name in ARGUMENTS}
        super().__init__(**kwargs)
        for name, value in options.items():
            setattr(self, name, value)
        self.emit_assets = emit_assets
        if emit_assets and not any(isinstance(outlet, AssetAlias) for outlet in self.outlets):
            self.outlets = [*self.outlets, AssetAlias(_ALIAS)]

    def _launcher(self, context: Context) -> task.Launcher:
        """Return how this task starts Spark.

        :raises InjectionError: if it starts Spark in a way that lineage cannot be added to.
        """
        raise NotImplementedError

    def execute(self, context: Context, *args: Any, **kwargs: Any) -> Any:
        """Run the task as the other operator does, with lineage around it.

        :param args: of a task that deferred itself before it started its job, and begins again, and
            so ``kwargs``.
        """
        lineage = self._task_lineage = self._new_lineage(context)
        return lineage.run(partial(super().execute, context, *args, **kwargs))

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Continue a deferred task as the other operator does, with lineage around it."""
        kwargs = dict(next_kwargs or {})
        resume = partial(super().resume_execution, next_method, kwargs, context)
        if task_lineage.DEFERRED not in kwargs:
            self._resumed = True
            return resume()
        event_files = kwargs.pop(task_lineage.DEFERRED)
        if next_method == "execute":
            return resume()
        self._task_lineage = None  # of the same job, if this is the process that deferred it
        lineage = self._task_lineage = self._new_lineage(context)
        return lineage.resume(event_files, resume)

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: Any,
        seen_oids: set[int],
    ) -> None:
        """Render the fields; an option of lineage that cannot be rendered costs the task nothing."""
        render = super()._do_render_template_fields
        options = self.lineage_fields if parent is self else ()
        render(
            parent,
            [name for name in template_fields if name not in options],
            context,
            jinja_env,
            seen_oids,
        )

        def rendered(name: str) -> Any:
            render(parent, [name], context, jinja_env, seen_oids)
            return getattr(self, name)

        for name in set(template_fields).intersection(options):
            setattr(
                self, name, self.rendered_option(name, getattr(self, name), partial(rendered, name))
            )

    def rendered_option(self, name: str, value: Any, render: Callable[[], Any]) -> Any:
        """Return an option of lineage; if it cannot be rendered, ``None`` for the configured value.

        A connection keeps its template as name, and its lineage stays in the outbox: the configured
        one may be wrong.
        """
        services = self._services = self._services or hooks.AirflowServices()
        default = value if name == "datahub_conn_id" else None
        return services.ask(f"the template of {name}", render, default) if value else value

    def _new_lineage(self, context: Context) -> task_lineage.TaskLineage:
        last = self._task_lineage
        before = (
            last.ended.jobs if last is not None and last.ended and last.is_of(context) else None
        )
        options, launcher = (
            partial(self._lineage_arguments, context),
            partial(self._launcher, context),
        )
        return task_lineage.TaskLineage(
            context,
            options,
            launcher,
            self.log,
            self._services or hooks.AirflowServices(),
            before=before,
            by_policy=self.lineage_by_policy,
        )

    def _lineage_arguments(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 (the policy renders them)
        """Return the options that the task gives, and its switch ``enabled``."""
        return {name: getattr(self, name, None) for name in self.lineage_fields}

    def _guarded(
        self,
        doing: str,
        step: Callable[[task.AttemptLineage], object],
        *,
        costs_lineage: bool = True,
    ) -> None:
        """Call a step of lineage with the attempt, if the task has lineage (:meth:`.guarded`)."""
        lineage = self._task_lineage
        if lineage is not None and (attempt := lineage.attempt) is not None:
            lineage.guarded(doing, partial(step, attempt), costs_lineage=costs_lineage)

    def settle_lineage(
        self, context: Context, state: task_lineage.AirflowState, error: object = None
    ) -> None:
        """Report the result that Airflow gave the attempt, if ``execute`` could not know it. Called
        by our listener.

        :param error: what the task raised, if it failed.
        """
        (self._task_lineage or self._new_lineage(context)).settle(
            state, error, resumed=self._resumed
        )

    def on_kill(self) -> None:
        """Stop the job; Airflow leaves few seconds after it."""
        if self._task_lineage is not None:
            self._task_lineage.mark_killed()
        super().on_kill()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002 (Airflow's signature)
        """Return the datasets of the Spark job, for the Airflow task of OpenLineage and of
        DataHub's own plugin.

        DataHub's plugin uses the namespace as platform, so it gets each dataset under its name in
        DataHub.
        """
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import Dataset

        ended = self._task_lineage.ended if self._task_lineage else None
        if ended is None:
            return OperatorLineage()
        inputs, outputs = (
            [Dataset(namespace=dataset.namespace, name=dataset.name) for dataset in datasets]
            for datasets in ended.openlineage_datasets(for_plugin=hooks.datahub_plugin_is_active())
        )
        return OperatorLineage(inputs=inputs, outputs=outputs)

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete


SparkLineageOperator.__doc__ = f"{SparkLineageOperator.__doc__}\n" + "\n".join(
    f"    :param {name}: {OPTIONS[name].meaning}" for name in ARGUMENTS
)


class ResumableLineageOperator(SparkLineageOperator):
    """Base of operators whose attempts may reconnect to the job of an earlier one.

    The other operator keeps the job's id in the task's state (``ResumableJobMixin``, since Airflow
    3.3). It submits only if an attempt cannot reconnect to a job.
    """

    _knows_its_job = False

    def execute_resumable(self, context: Context) -> Any:
        """Submit the job or reconnect to it. Called by the parent class if an attempt may reconnect
        to a driver.
        """
        self._knows_its_job = False
        return self._other.execute_resumable(context)

    def submit_job(self, context: Context) -> Any:
        """Submit the job. Called by the parent class if an attempt cannot reconnect."""
        self._knows_its_job = True
        if self._task_lineage is not None and (attempt := self._task_lineage.attempt) is not None:
            self._task_lineage.remember(_SUBMITTED, lambda: attempt.event_files)
        return self._other.submit_job(context)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for the job. Called by the parent class while a driver runs."""
        self._reconnect()
        self._other.poll_until_complete(external_id, context)

    def get_job_result(self, external_id: Any, context: Context) -> Any:
        """Return the result of the job. Called by the parent class if the driver has succeeded."""
        self._reconnect()
        return self._other.get_job_result(external_id, context)

    @property
    def _other(self) -> Any:
        return super()

    def _reconnect(self) -> None:
        """Read the events of the job that an earlier attempt submitted, if it is not this attempt's
        own.
        """
        if self._knows_its_job:
            return
        self._knows_its_job = True
        if (lineage := self._task_lineage) is not None:
            self._guarded(
                "reconnecting", lambda attempt: attempt.reconnect(lineage.remembered(_SUBMITTED))
            )
