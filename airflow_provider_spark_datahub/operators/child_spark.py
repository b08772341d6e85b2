"""Lineage of any task that starts Spark below itself: in Bash, Python, PySpark, dbt or a notebook."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.decorators.pyspark import _PySparkDecoratedOperator
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.common.compat.sdk import (
    Context,
    DecoratedOperator,
    get_current_context,
    task_decorator_factory,
)
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator

from airflow_provider_spark_datahub import capture, hooks, task
from airflow_provider_spark_datahub.operators.lineage import SparkLineageOperator, swapped
from airflow_provider_spark_datahub.operators.task_lineage import TaskLineage

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture import ParentRun


class ChildSparkOperator(SparkLineageOperator):
    """Base of operators whose tasks may start any number of Sparks, with the lineage of all of
    them.

    Every Spark that Spark's own scripts or PySpark start below the task gets the listener and an
    event file of its own. A subclass inherits from this class first and from any operator second.
    """

    def _launcher(self, context: Context) -> task.Launcher:  # noqa: ARG002 (the base's signature)
        return _ChildLauncher(self)


class BashDatahubOperator(ChildSparkOperator, BashOperator):
    """Operator that runs a Bash command as ``BashOperator`` does, with the lineage of the Sparks
    that it starts.
    """


class PythonDatahubOperator(ChildSparkOperator, PythonOperator):
    """Operator that calls a function as ``PythonOperator`` does, with the lineage of the Sparks
    that it starts.
    """


class _PythonDecoratedOperator(ChildSparkOperator, DecoratedOperator, PythonOperator):
    custom_operator_name = "@task.spark_lineage"

    def __init__(self, *, python_callable: Callable[..., Any], **kwargs: Any) -> None:
        upstream = {"python_callable": python_callable} | {
            name: kwargs.get(name) for name in ("op_args", "op_kwargs")
        }
        super().__init__(kwargs_to_upstream=upstream, python_callable=python_callable, **kwargs)


class _PySparkDecoratedDatahubOperator(ChildSparkOperator, _PySparkDecoratedOperator):  # type: ignore[misc]
    custom_operator_name = "@task.pyspark_lineage"

    def _launcher(self, context: Context) -> task.Launcher:  # noqa: ARG002 (the base's signature)
        return _PySparkLauncher(self)


spark_lineage_task = partial(
    task_decorator_factory, decorated_operator_class=_PythonDecoratedOperator
)
"""Makes a task of a function, with the lineage of the Sparks that it starts:
``@task.spark_lineage``.

It takes the arguments of ``@task`` and of :class:`SparkLineageOperator`.
"""

pyspark_lineage_task = partial(
    task_decorator_factory, decorated_operator_class=_PySparkDecoratedDatahubOperator
)
"""Makes a task of a function that gets a Spark session, as ``@task.pyspark`` does:
``@task.pyspark_lineage``.

It takes the arguments of ``@task.pyspark`` and of :class:`SparkLineageOperator`. The session starts
in the task's process, or on the Spark Connect server of a connection, whose events
``connect_events`` names.
"""


@contextmanager
def spark_lineage(**options: Any) -> Iterator[None]:
    """Collect the lineage of the Sparks that start in this context, below the running Airflow task.

    Use it once in a task. The next attempt always runs the code in this context again, so that
    ``lineage_on_failure="retry"`` would run Spark again. Use ``@task.spark_lineage`` for that
    option.

    :param options: options of :class:`SparkLineageOperator`.
    :raises TypeError: if an option is not known.
    :raises LineagePendingError: see ``lineage_on_failure``.
    """
    if unknown := sorted(options.keys() - set(SparkLineageOperator.lineage_fields)):
        raise TypeError(f"spark_lineage() has no option {unknown[0]!r}")
    lineage = TaskLineage(
        get_current_context(),
        lambda: options,
        _ChildLauncher,
        logging.getLogger(__name__),
        hooks.AirflowServices(),
    )
    with lineage.around():
        yield


_UNREPORTED_READS = (
    "inputs of queries that only return rows to the client (count, collect) are missing: the OpenLineage events of a "
    "Spark Connect server do not name them, but its Spark event log does"
)


class _ChildLauncher:
    """Launcher of all Sparks below this process, by its environment."""

    def __init__(self, operator: ChildSparkOperator | None = None) -> None:
        self._operator = operator
        self._inherits = getattr(operator, "inherit_env", None)
        self._variables = "env" if self._inherits is None else "env_vars"

    def inject(
        self, attempt: task.AttemptLineage, parent: ParentRun, root: ParentRun
    ) -> AbstractContextManager[None]:
        source, remote = self._remote()
        if remote.startswith("sc://"):
            if attempt.options.connect_events is not None:
                session = attempt.inject_session(remote)
                attempt.report.gaps.append(_UNREPORTED_READS)
                return self._connected(session)
            attempt.report.warnings.append(
                f"{source} names the Spark Connect server {remote.partition(';')[0]}: its work for this task has no "
                "lineage unless connect_events names its event file"
            )
        injection = attempt.inject_below(parent, root)
        with ExitStack() as stack:
            folder = stack.enter_context(capture.private_folder())
            changes = injection.write(Path(folder), self._environment())
            return self._launching(stack.pop_all(), changes)

    def _remote(self) -> tuple[str, str]:
        """Return the setting that names the Spark Connect server, and its connection string; empty
        if there is none.
        """
        return "SPARK_REMOTE", self._environment().get("SPARK_REMOTE", "")

    def _connected(self, remote: str) -> AbstractContextManager[None]:
        return self._launching(ExitStack(), {"SPARK_REMOTE": remote})

    def _environment(self) -> Mapping[str, str]:
        inherited = os.environ if self._inherits is not False else {}
        return {**inherited, **(getattr(self._operator, self._variables, None) or {})}

    @contextmanager
    def _launching(self, folder: ExitStack, changes: Mapping[str, str | None]) -> Iterator[None]:
        env, before = (
            getattr(self._operator, self._variables, None),
            {name: os.environ.get(name) for name in changes},
        )
        with folder:
            if isinstance(env, dict) or self._inherits is False:
                # The operator may give its process only these variables.
                merged = {
                    name: value
                    for name, value in {**(env or {}), **changes}.items()
                    if value is not None
                }
                folder.enter_context(swapped(self._operator, **{self._variables: merged}))
            _change_environment(changes)
            try:
                yield
            finally:
                _change_environment(before)

    def stop(self) -> None:
        if self._operator is not None:
            super(SparkLineageOperator, self._operator).on_kill()


class _PySparkLauncher(_ChildLauncher):
    """Launcher of the session that ``@task.pyspark`` makes: of a Connect server if its connection
    names one.
    """

    def _remote(self) -> tuple[str, str]:
        operator: Any = self._operator
        given = (operator.config_kwargs or {}).get("spark.remote")
        if given:
            return "spark.remote in config_kwargs", str(given)
        if operator.conn_id:
            connection = hooks.connection_of(operator.conn_id)
            if connection.conn_type == SparkConnectHook.conn_type:
                return f"the connection {operator.conn_id}", SparkConnectHook(
                    operator.conn_id
                ).get_connection_url()
            if remote := connection.extra_dejson.get("spark.remote"):
                return f"the connection {operator.conn_id}", str(remote)
        # The operator sets a master itself, so that SPARK_REMOTE has no effect.
        return "SPARK_REMOTE", ""

    def _connected(self, remote: str) -> AbstractContextManager[None]:
        operator: Any = self._operator
        # ``config_kwargs`` override the connection's properties.
        return swapped(
            operator, config_kwargs={**(operator.config_kwargs or {}), "spark.remote": remote}
        )


def _change_environment(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
