"""Whether a try submits a job, or goes back to one of an earlier try (``durable`` of the Spark provider)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class ResumableSparkSubmitOperator(SparkSubmitOperator):
    """Says so in :meth:`before_submit` and :meth:`reconnected`.

    In cluster mode, ``SparkSubmitOperator`` keeps the driver's id in the task's state (since Airflow 3.3), and calls
    :meth:`submit_job` only where there is no driver to go back to.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._knows_its_job = False

    def before_submit(self, context: Context) -> None:
        """Called before a job is submitted whose driver a later try may go back to."""

    def reconnected(self, context: Context) -> None:
        """Called, once, where the job is that of an earlier try."""

    def execute_resumable(self, context: Context) -> Any:
        """Called by the parent class where a try may go back to a driver."""
        self._knows_its_job = False
        return super().execute_resumable(context)

    def submit_job(self, context: Context) -> str | None:
        """Called by the parent class where there is no driver to go back to."""
        self._knows_its_job = True
        self.before_submit(context)
        return super().submit_job(context)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Called by the parent class where a driver runs."""
        self._look(context)
        super().poll_until_complete(external_id, context)

    def get_job_result(self, external_id: Any, context: Context) -> None:
        """Called by the parent class where the driver has succeeded."""
        self._look(context)
        super().get_job_result(external_id, context)

    def _look(self, context: Context) -> None:
        if not self._knows_its_job:
            self._knows_its_job = True
            self.reconnected(context)


def remember(context: Context, key: str, value: Any) -> bool:
    """Keep a JSON value for later tries. :returns: False where Airflow keeps no state of tasks (before 3.3)."""
    state = context.get("task_state_store")
    if state is not None:
        state.set(key, value)
    return state is not None


def remembered(context: Context, key: str) -> object:
    """What an earlier try kept; ``None`` where it kept nothing."""
    state = context.get("task_state_store")
    return state.get(key) if state is not None else None
