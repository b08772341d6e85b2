"""Operator that converts an archive of events with a Spark job, and delivers the result to DataHub."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, Context

from airflow_provider_spark_datahub import backfill, hooks
from airflow_provider_spark_datahub.foundation.text import counted


class BackfillLineageOperator(SparkSubmitOperator):
    """Operator that converts an archive of OpenLineage events with Spark, and delivers the result.

    It takes the arguments of ``SparkSubmitOperator`` that say where and how to submit. A later
    attempt continues where the earlier one ended: nothing is converted or delivered twice. The
    result (XCom ``return_value``) holds the counts.

    :param sources: folders, files or globs of events, as paths or URIs for the cluster.
    :param out: the backfill's own folder: a path on a disk that the worker and the cluster share,
        or a URI in an object store that Spark can reach.
    :param out_conn_id: Airflow connection to that store; ``None`` to use the worker's environment.
    :param since: ISO time; only runs that ended then or later. :attr:`until`: only runs that ended
        before.
    :param applications: names of the applications to convert; ``*`` stands for any text.
    :param run_history: convert every run, not only the last one of each job.
    :param lineage: settings of the converter: a dict, or its JSON.
    :param parts: number of files of proposals; ``None`` to derive it from the size of the archive.
    :param datahub_conn_id: connection to deliver through; ``None`` to convert only.
    :param rate: maximum of proposals per second; 0 for no limit.
    :param threads: number of parts that are delivered at the same time.
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
        super().__init__(**{"name": "", **kwargs, "application": ""})
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
        """Convert and deliver what earlier attempts did not, and return the counts.

        :raises PlanError: if the folder belongs to another backfill, or cannot be reached.
        :raises SettingsError: if a setting of the converter is wrong.
        :raises AirflowException: if the delivery is incomplete; the next attempt continues there.
        """
        plan = self._plan()
        folder = hooks.result_folder(plan.out, self.out_conn_id)
        plan.resumed(folder)
        if not (folder / backfill.CONVERTED_FILE).exists():
            self._convert(context, plan)
        result: dict[str, Any] = json.loads((folder / backfill.SUMMARY).read_text())
        proposals, runs = counted(result["proposals"], "proposal"), counted(result["runs"], "run")
        self.log.info("%s of %s, %s quarantined", proposals, runs, result["quarantined"])
        if connection := self.datahub_conn_id:
            open_sink, rate = partial(hooks.sink_of, connection), backfill.Rate(self.rate)
            delivered = backfill.BackfillDelivery(
                folder, open_sink, rate, threads=self.threads
            ).run()
            self.log.info("%s", delivered.sentence)
            if delivered.complete < delivered.parts:
                raise AirflowException(f"{delivered.sentence}: {'; '.join(delivered.problems)}")
            result |= {"delivered": delivered.delivered, "rejected": delivered.rejected}
        return result

    def _plan(self) -> backfill.BackfillPlan:
        return backfill.BackfillPlan(
            sources=_texts(self.sources),
            out=backfill.folder_uri(self.out),
            options=hooks.configuration().setting_layers(self.lineage),
            since=self.since or None,
            until=self.until or None,
            applications=_texts(self.applications),
            run_history=self.run_history,
            parts=self.parts,
        )

    def _convert(self, context: Context, plan: backfill.BackfillPlan) -> None:
        self.application, self.name = (
            str(backfill.SPARK_MAIN),
            self.name or backfill.APPLICATION_NAME,
        )
        with tempfile.TemporaryDirectory(prefix="spark-datahub-") as folder:
            package = str(backfill.write_package(Path(folder)))
            users_files = self.py_files
            self.py_files = f"{users_files},{package}" if users_files else package
            self.application_args = [plan.to_json()]
            try:
                super().execute(context)
            finally:
                self.py_files = users_files


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    # A template may render to nothing.
    return tuple(filter(None, [value] if isinstance(value, str) else value))
