"""An archive of events through a Spark job, and what came of it to DataHub, as a task."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_spark_datahub.backfill.delivery import Delivered, ResultFolder
    from airflow_provider_spark_datahub.backfill.plan import BackfillPlan


class BackfillIncompleteError(AirflowException):
    """Something of a backfill could not be delivered; the next try goes on there."""


class BackfillLineageOperator(SparkSubmitOperator):
    """Convert an archive of OpenLineage events with Spark, and deliver of each aspect what DataHub is to keep.

    Takes the arguments of ``SparkSubmitOperator`` for where and how to submit. A next try goes on where the one before
    it ended: what is converted is not converted again, and what is delivered is not delivered again. The result (XCom
    ``return_value``) holds the counts.

    :param sources: folders, files or globs of events, as the cluster knows them.
    :param out: the backfill's own folder: a path on a disk that the worker and the cluster share, or a URI in an object
        store that Spark knows.
    :param out_conn_id: connection by which Airflow reaches that store; ``None``: by what the worker's environment says.
    :param since: ISO time: only runs that ended then or later. Likewise :attr:`until`: only those that ended before.
    :param applications: only applications of these names, where ``*`` stands for any text.
    :param run_history: every run, not only the last one of each job.
    :param lineage: the converter's options: a dict, or its JSON.
    :param parts: how many files of proposals; by the size of the archive where it is not told.
    :param datahub_conn_id: connection to deliver through; ``None``: only convert.
    :param rate: proposals a second at most; 0 for no limit.
    :param threads: how many parts are delivered at the same time.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "sources",
        "out",
        "out_conn_id",
        "since",
        "until",
        "applications",
        "lineage",
        "datahub_conn_id",
    )

    def __init__(
        self,
        *,
        sources: str | Sequence[str],
        out: str,
        out_conn_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        applications: str | Sequence[str] = (),
        run_history: bool = False,
        lineage: Mapping[str, Any] | str | None = None,
        parts: int | None = None,
        datahub_conn_id: str | None = None,
        rate: float = 200.0,
        threads: int = 1,
        **kwargs: Any,
    ) -> None:
        from airflow_provider_spark_datahub.backfill.plan import APPLICATION, APPLICATION_NAME

        super().__init__(**{"name": APPLICATION_NAME, **kwargs, "application": str(APPLICATION)})
        self.sources = sources
        self.out = out
        self.out_conn_id = out_conn_id
        self.since = since
        self.until = until
        self.applications = applications
        self.run_history = run_history
        self.lineage = lineage
        self.parts = parts
        self.datahub_conn_id = datahub_conn_id
        self.rate = rate
        self.threads = threads

    def execute(self, context: Context) -> Any:
        """Convert what is not converted yet, and deliver what is not delivered yet.

        :raises PlanError: the folder is that of another backfill, or cannot be reached.
        :raises SettingsError: an option of the converter is wrong.
        :raises BackfillIncompleteError: something could not be delivered.
        """
        from airflow_provider_spark_datahub.backfill.plan import CONVERTED_FILE, PLAN_FILE, SUMMARY, check_plan
        from airflow_provider_spark_datahub.hooks.storage import result_folder

        plan = self._plan()
        plan.settings()
        plan.selection()
        folder = result_folder(plan.out, self.out_conn_id)
        if (folder / PLAN_FILE).exists():
            check_plan(plan, (folder / PLAN_FILE).read_text())
        if not (folder / CONVERTED_FILE).exists():
            self._convert(context, plan)
        result: dict[str, Any] = json.loads((folder / SUMMARY).read_text())
        self.log.info("%s proposals of %s runs, %s quarantined", *map(result.get, ("proposals", "runs", "quarantined")))
        if self.datahub_conn_id:
            delivered = self._deliver(folder, self.datahub_conn_id)
            self.log.info("%s", delivered.sentence)
            if delivered.complete < delivered.parts:
                raise BackfillIncompleteError(f"{delivered.sentence}: {'; '.join(delivered.problems)}")
            result |= {"delivered": delivered.delivered, "rejected": delivered.rejected}
        return result

    def _plan(self) -> BackfillPlan:
        from airflow_provider_spark_datahub.backfill.plan import BackfillPlan, folder_uri
        from airflow_provider_spark_datahub.hooks.airflow_context import configuration

        return BackfillPlan(
            sources=_texts(self.sources),
            out=folder_uri(self.out),
            options=configuration().setting_layers(self.lineage),
            since=self.since or None,
            until=self.until or None,
            applications=_texts(self.applications),
            run_history=self.run_history,
            parts=self.parts,
        )

    def _convert(self, context: Context, plan: BackfillPlan) -> None:
        from airflow_provider_spark_datahub.backfill.plan import write_package

        with tempfile.TemporaryDirectory(prefix="spark-datahub-") as folder:
            package = str(write_package(Path(folder)))
            users = self.py_files
            self.py_files = f"{users},{package}" if users else package
            self.application_args = [plan.to_json()]
            try:
                super().execute(context)
            finally:
                self.py_files = users

    def _deliver(self, folder: ResultFolder, connection: str) -> Delivered:
        from airflow_provider_spark_datahub.backfill.delivery import BackfillDelivery, Rate
        from airflow_provider_spark_datahub.hooks.datahub import sink_of

        rate = Rate(self.rate or None)
        return BackfillDelivery(folder, lambda: sink_of(connection), rate, threads=self.threads).run()


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
