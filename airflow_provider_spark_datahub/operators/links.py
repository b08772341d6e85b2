"""Links of a task to its run and its job in DataHub's UI, and to its page *Spark lineage* in
Airflow's.

Airflow calls :meth:`get_link` in the task's process when the task has ended, and keeps the address
in XCom.
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlencode

from airflow.providers.common.compat.sdk import BaseOperatorLink

from airflow_provider_spark_datahub import hooks, task


class DatahubRunLink(BaseOperatorLink):
    """Link to the task run in DataHub; empty if the task has no lineage, or the address of
    DataHub's UI is unknown.
    """

    name = "DataHub run"
    _urn: ClassVar = "urn"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 (Airflow's signature)
        """Return the address."""
        attempt = _attempt_of(operator)
        return attempt.delivery.page_of(getattr(attempt.task_attempt, self._urn)) if attempt else ""


class DatahubJobLink(DatahubRunLink):
    """Link to the task in DataHub, with the lineage of its runs; empty as :class:`DatahubRunLink`
    is.
    """

    name = "DataHub task"
    _urn = "job_urn"


class LineagePageLink(BaseOperatorLink):
    """Link to the page *Spark lineage* of the task instance; empty if the task has no lineage."""

    name = "Spark lineage"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, relative to Airflow's UI if Airflow does not know its own."""
        if _attempt_of(operator) is None:
            return ""
        scope = {
            name: getattr(ti_key, name) for name in ("dag_id", "run_id", "task_id", "map_index")
        }
        return (
            f"{hooks.page_url('spark-datahub', 'task') or '/spark-datahub/task'}?{urlencode(scope)}"
        )


LINKS = DatahubRunLink(), DatahubJobLink(), LineagePageLink()
"""Links of each operator that has lineage."""


def _attempt_of(operator: Any) -> task.AttemptLineage | None:
    return getattr(getattr(operator, "_task_lineage", None), "attempt", None)
