"""Operator that delivers the pending lineage of all DAGs on a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, Context

from airflow_provider_spark_datahub import hooks, task
from airflow_provider_spark_datahub.delivery import outbox as outboxes


class DeliverLineageOperator(BaseOperator):
    """Operator that drains the outbox: each entry through its own connection, oldest first.

    If a killed task left only its events, they are converted first, once Airflow neither runs nor
    retries the task. Several of these operators, ending tasks and ``spark-datahub emit`` may work
    on one outbox at the same time. The result (XCom ``return_value``) holds the counts, and the
    reasons why entries stay.

    :param outbox_location: the outbox; default: ``[spark_datahub] outbox_location``. The worker
        needs access to it.
    :param datahub_conn_id: connection to deliver through, instead of the entries' own.
    :param dag_ids: the DAG or DAGs whose entries are delivered; empty for all.
    :param max_seconds: seconds after the start in which deliveries may begin.
    :param entry_seconds: time for the delivery of one entry.
    :param fail_when_waiting: fail if entries stay in the outbox, instead of only logging it.
    """

    template_fields: Sequence[str] = (
        "outbox_location",
        "datahub_conn_id",
        "dag_ids",
        "max_seconds",
    )

    def __init__(
        self,
        *,
        outbox_location: str | None = None,
        datahub_conn_id: str | None = None,
        dag_ids: str | Sequence[str] = (),
        max_seconds: float | str | None = None,
        entry_seconds: float = 60.0,
        fail_when_waiting: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.outbox_location = outbox_location
        self.datahub_conn_id = datahub_conn_id
        self.dag_ids = dag_ids
        self.max_seconds = max_seconds
        self.entry_seconds = entry_seconds
        self.fail_when_waiting = fail_when_waiting

    def execute(self, context: Context) -> dict[str, Any]:
        """Drain the outbox, and return the counts.

        :raises OutboxError: if the outbox cannot be opened.
        :raises AirflowException: if entries stay, see ``fail_when_waiting``.
        """
        dag_ids = [self.dag_ids] if isinstance(self.dag_ids, str) else self.dag_ids
        outbox = hooks.configured_outbox(self.outbox_location)
        seconds, services = (
            None if self.max_seconds is None else float(self.max_seconds),
            hooks.AirflowServices(),
        )
        drained = task.drain(
            outbox,
            hooks.airflow_connections(partial(hooks.final_result, services, context.get("ti"))),
            outboxes.DrainLimits(seconds, self.entry_seconds),
            connection=self.datahub_conn_id,
            wanted=outboxes.EntryFilter(dag_ids=tuple(filter(None, dag_ids))) or None,
        ).run()
        services.ask("metrics", partial(hooks.gauge_outbox, outbox), None)
        self.log.info("%s", drained.sentence)
        for problem in drained.problems:
            self.log.warning("%s", problem)
        if self.fail_when_waiting and drained.waiting:
            raise AirflowException(f"{drained.sentence}: {'; '.join(drained.problems)}")
        return drained.to_obj()
