"""What a try submits: read from the operator, replaced for the time of one submit, and stopped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

from airflow_provider_spark_datahub.operators.resumable_submit import ResumableSparkSubmitOperator

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_spark_datahub.capture.submission import Submission
    from airflow_provider_spark_datahub.operators.task_lineage import SparkSubmit

STOP_SECONDS = 10.0
"""How long a stopped spark-submit may take to disappear."""


class AlterableSparkSubmitOperator(ResumableSparkSubmitOperator):
    """A ``SparkSubmitOperator`` that can submit something else than its arguments say."""

    def _submission(self, context: Context) -> Submission:
        """What the arguments say."""
        from airflow_provider_spark_datahub.capture.submission import Submission

        return Submission(
            properties=self._conf_with_airflows_transport(context),
            jars=self.jars,
            packages=self.packages,
            driver_class_path=self.driver_class_path,
            repositories=getattr(self, "_repositories", None),
        )

    def _conf_with_airflows_transport(self, context: Context) -> dict[Any, Any]:
        """The user's Spark properties, with the transport that the parent class would inject.

        It injects none where there is one already, so ours would keep it from doing so.
        """
        conf = dict(self.conf or {})
        if not getattr(self, "_openlineage_inject_transport_info", False):
            return conf
        from airflow.providers.common.compat.openlineage.utils.spark import (
            inject_transport_information_into_spark_properties,
        )

        return dict(inject_transport_information_into_spark_properties(conf, context))

    def _spark_submit(self) -> SparkSubmit:
        """Which spark-submit will run where, from the operator's arguments and its Spark connection."""
        from airflow_provider_spark_datahub.operators.task_lineage import SparkSubmit

        try:
            extra = BaseHook.get_connection(self._conn_id).extra_dejson
        except AirflowException:
            # SparkSubmitHook falls back to YARN in client mode then.
            extra = {}
        deploy_mode = self._deploy_mode or extra.get("deploy-mode")
        env = {**os.environ, **{name: str(value) for name, value in (self.env_vars or {}).items()}}
        return SparkSubmit(
            binary=self._spark_binary or extra.get("spark-binary") or "spark-submit",
            env=env,
            local_driver=deploy_mode != "cluster",
            properties_file=self.properties_file,
        )

    @contextmanager
    def _submitting(self, submission: Submission | None) -> Iterator[None]:
        """The operator with the submission's values for the time of one submit; the user's objects stay untouched."""
        if submission is None:
            yield
            return
        users = self.conf, self.jars, self.packages
        self.conf, self.jars, self.packages = dict(submission.properties), submission.jars, submission.packages
        # A hook made before would submit without them.
        self._hook = None
        try:
            yield
        finally:
            self.conf, self.jars, self.packages = users

    def _stop_spark_submit(self) -> None:
        """Stop the job, and wait until spark-submit is gone, so that nothing of it writes any more."""
        super().on_kill()
        process = getattr(self._hook, "_submit_sp", None)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STOP_SECONDS)


def watch_output(hook: SparkSubmitHook, watched: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
    """Let someone else see what ``spark-submit`` prints, in passing.

    :param watched: the lines as they are.
    """
    read = hook._process_spark_submit_log

    def read_watched(itr: Iterator[Any]) -> None:
        read(watched(itr))

    hook._process_spark_submit_log = read_watched  # type: ignore[method-assign]
