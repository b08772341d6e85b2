"""Drop-ins for the operators of Airflow's Spark provider that run another command than a plain
``spark-submit``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_jdbc import SparkJDBCOperator
from airflow.providers.apache.spark.operators.spark_pipelines import SparkPipelinesOperator
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator
from airflow.providers.common.compat.sdk import AirflowException, Context

from airflow_provider_spark_datahub import capture, hooks, task
from airflow_provider_spark_datahub.operators.child_spark import ChildSparkOperator
from airflow_provider_spark_datahub.operators.lineage import (
    SparkLineageOperator,
    SubmissionLauncher,
)
from airflow_provider_spark_datahub.operators.spark_submit import (
    SparkSubmitDatahubOperator,
    connection_extra,
)


class SparkJDBCDatahubOperator(SparkSubmitDatahubOperator, SparkJDBCOperator):
    """Operator that copies a table to or from a database as ``SparkJDBCOperator`` does, with its
    lineage.
    """

    _handed_over: Path | None = None

    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        if self._handed_over is not None:
            hook._properties_file = str(self._handed_over)
        return hook

    def _launcher(self, context: Context) -> task.Launcher:
        return _JDBCLauncher(self, context)


class SparkSqlDatahubOperator(SparkLineageOperator, SparkSqlOperator):
    """Operator that runs SQL with ``spark-sql`` as ``SparkSqlOperator`` does, with its lineage."""

    _handed_over: Path | None = None

    def _get_hook(self) -> Any:
        hook: Any = super()._get_hook()
        if self._handed_over is not None:
            hook.run_query = partial(hook.run_query, ["--properties-file", str(self._handed_over)])
        return hook

    def _launcher(self, context: Context) -> task.Launcher:
        return _SqlLauncher(self, context)


class SparkPipelinesDatahubOperator(ChildSparkOperator, SparkPipelinesOperator):
    """Operator that runs a declarative pipeline as ``SparkPipelinesOperator`` does, with its
    lineage.

    ``spark-pipelines`` does not pass its properties on to the Spark that it starts, so that this
    Spark gets the listener as any Spark below a task does.
    """

    def _launcher(self, context: Context) -> task.Launcher:
        # Airflow's own hook takes a connection that it cannot have for none.
        with suppress(AirflowException):
            if hooks.connection_of(self._conn_id).conn_type == "spark_connect":
                raise capture.InjectionError(
                    f"the connection {self._conn_id} leads to a Spark Connect server, which takes listeners only at "
                    "its own start: configure OpenLineage on the server"
                )
        return super()._launcher(context)


class _JDBCLauncher(SubmissionLauncher):
    """Launcher of ``SparkJDBCHook``, which has other names for the arguments of ``spark-submit``."""

    def submissions(self) -> list[capture.Submission]:
        operator = self._operator
        return [
            capture.Submission(
                properties=dict(operator._spark_conf or {}), jars=operator._spark_jars
            )
        ]

    def spark(self) -> capture.SparkSubmit:
        extra = connection_extra(self._operator._spark_conn_id)
        return capture.SparkSubmit(
            binary=extra.get("spark-binary") or "spark-submit",
            env=os.environ,
            local_driver=extra.get("deploy-mode") != "cluster",
            # The provider's script gives its session the name None.
            unnamed_as=self._operator._spark_app_name,
        )

    def launching(self, submissions: Sequence[capture.Submission]) -> AbstractContextManager[None]:
        [submission] = submissions
        # Write the file before the context begins: a failure in the context would fail the task.
        conf, file = submission.hand_over()
        self._operator._hook, self._operator._handed_over = None, file
        return self.swapped(file, _spark_conf=conf, _spark_jars=submission.jars)


class _SqlLauncher(SubmissionLauncher):
    """Launcher of ``spark-sql``, which takes jars and packages as properties only and has its
    driver here.
    """

    process = "_sp"

    def submissions(self) -> list[capture.Submission]:
        conf = self._operator._conf or {}
        return [
            capture.Submission(
                properties=_properties_of_text(conf) if isinstance(conf, str) else dict(conf)
            )
        ]

    def spark(self) -> capture.SparkSubmit:
        sql = len(str(self._operator.sql or ""))
        return capture.SparkSubmit(
            binary="spark-sql", env=os.environ, local_driver=True, argument_bytes=sql
        )

    def launching(self, submissions: Sequence[capture.Submission]) -> AbstractContextManager[None]:
        [submission] = submissions
        # Write the file before the context begins: a failure in the context would fail the task.
        conf, file = submission.hand_over()
        self._operator._hook, self._operator._handed_over = None, file
        return self.swapped(file, _conf=conf)


def _properties_of_text(text: str) -> dict[str, str]:
    """Return the Spark properties of a text such as ``a=1,b=2``, which SparkSqlOperator accepts.

    :raises InjectionError: if a part has no value. A comma ends a value, as for SparkSqlHook.
    """
    properties = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise capture.InjectionError(
                f"the Spark property {part!r} has no value: give 'conf' as a dict"
            )
        properties[name] = value
    return properties
