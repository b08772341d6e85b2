"""Delivers what waits in the outbox, of all DAGs, on a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_spark_datahub.delivery.outbox import Entry

_AT_WORK = ("running", "deferred", "restarting")
"""States of a task instance, as Airflow writes them, in which its job may run."""


class LineageWaitsError(AirflowException):
    """Something stays in the outbox, and the task was told to fail then (``fail_when_waiting``)."""


class DeliverLineageOperator(BaseOperator):
    """Drain the outbox: each entry through its own connection, oldest first, task instances one after the other.

    Where a task that was killed left its events alone, they are converted first, once Airflow says that it does not
    run. Any number of these, of tasks that end and of ``spark-datahub emit`` may be at work on one outbox. The result
    (XCom ``return_value``) holds the counts and why something stays.

    :param outbox_location: the outbox; default: that of ``[spark_datahub]``. A folder must be one that this task's
        worker sees.
    :param datahub_conn_id: deliver through this connection instead of the entries' own.
    :param dag_ids: only of these DAGs.
    :param max_entries: deliver no more entries than this.
    :param max_seconds: begin no delivery later than this many seconds after the start.
    :param entry_seconds: time for the delivery of one entry.
    :param fail_when_waiting: fail where something stays, instead of only telling so.
    """

    template_fields: Sequence[str] = ("outbox_location", "datahub_conn_id", "dag_ids", "max_entries", "max_seconds")

    def __init__(
        self,
        *,
        outbox_location: str | None = None,
        datahub_conn_id: str | None = None,
        dag_ids: Sequence[str] = (),
        max_entries: int | str | None = None,
        max_seconds: float | str | None = None,
        entry_seconds: float = 60.0,
        fail_when_waiting: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.outbox_location = outbox_location
        self.datahub_conn_id = datahub_conn_id
        self.dag_ids = dag_ids
        self.max_entries = max_entries
        self.max_seconds = max_seconds
        self.entry_seconds = entry_seconds
        self.fail_when_waiting = fail_when_waiting

    def execute(self, context: Context) -> dict[str, Any]:
        """Drain.

        :raises OutboxError: the outbox cannot be opened.
        :raises LineageWaitsError: see ``fail_when_waiting``.
        """
        from airflow_provider_spark_datahub.delivery.outbox import Drain, DrainLimits, Selection
        from airflow_provider_spark_datahub.hooks.airflow_context import configuration
        from airflow_provider_spark_datahub.hooks.datahub import open_sink
        from airflow_provider_spark_datahub.hooks.storage import open_outbox
        from airflow_provider_spark_datahub.task import finisher

        configured = configuration()
        selection = Selection(dag_ids=tuple(self.dag_ids))
        drained = Drain(
            open_outbox(configured.outbox_location(self.outbox_location), configured.outbox_limits()),
            open_sink,
            DrainLimits(
                seconds=None if self.max_seconds is None else float(self.max_seconds),
                entry_seconds=self.entry_seconds,
                entries=None if self.max_entries is None else int(self.max_entries),
            ),
            connection=self.datahub_conn_id,
            wanted=selection or None,
            finish=finisher(self.entry_seconds, partial(_is_over, context.get("ti"))),
        ).run()
        self.log.info("%s", drained.sentence)
        for problem in drained.problems:
            self.log.warning("%s", problem)
        if self.fail_when_waiting and drained.waiting:
            raise LineageWaitsError(f"{drained.sentence}: {'; '.join(drained.problems)}")
        return drained.to_obj()


def _is_over(ti: Any, entry: Entry) -> bool:
    """Whether Airflow says that the task instance of an entry is not running."""
    key = entry.manifest.key
    try:
        running = ti.get_ti_count(
            dag_id=key.dag_id,
            run_ids=[key.run_id],
            task_ids=[key.task_id],
            map_index=key.map_index,
            states=list(_AT_WORK),
        )
    except (AirflowException, AttributeError, OSError):
        return False
    return bool(running == 0)
