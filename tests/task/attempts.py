"""An attempt for tests, on real event files, with delivery to a real file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.capture import SparkSubmit
from airflow_provider_spark_datahub.capture.injection import ParentRun
from airflow_provider_spark_datahub.capture.spark_submit import Submission
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.delivery.outbox.entries import Entry
from airflow_provider_spark_datahub.delivery.sink import Sink
from airflow_provider_spark_datahub.delivery.sinks.files import FileSink
from airflow_provider_spark_datahub.task.attempt import AttemptLineage
from airflow_provider_spark_datahub.task.ended import AttemptEnd, EndedAttempt
from airflow_provider_spark_datahub.task.options import Connections, LineageOptions
from airflow_provider_spark_datahub.task.report import LineageReport
from airflow_provider_spark_datahub.task.running import RunningAttempt
from tests.capture.installations import executable, openlineage_jar, spark_at
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered
from tests.operators.tries import CORPUS, RUN_ID, START_MS, connections_to

PARENT = ParentRun("default", "shop.build", "01990000-0000-7000-8000-000000000001")
ROOT = ParentRun("default", "shop", "01990000-0000-7000-8000-000000000002")
ENDED = AttemptEnd(True, "SUCCESS", START_MS + 60_000, 30.0)
FAILED = AttemptEnd(False, "FAILURE", START_MS + 60_000, 30.0)
JOB = "urn:li:dataJob:(urn:li:dataFlow:(spark,a_csv_join_agg,analytics),shop.build)"


@dataclass
class Try:
    """An attempt, its Spark and its sink, below one folder."""

    folder: Path
    number: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    sink: Sink | None = None
    sink_problem: str | None = None
    connections: Connections | None = None
    run_id: str = RUN_ID

    def __post_init__(self) -> None:
        self.sink_folder = self.folder / "lineage"
        given = {
            "connection": "datahub_file",
            "settings": LineageSettings(),
            "on_failure": "warn",
            "events_location": self.folder / "events",
            "outbox_location": str(self.folder / "outbox"),
            "timeout": 30.0,
            "openlineage_jar": str(self.folder / "openlineage-spark_2.13-1.53.0.jar"),
            "capture": "listener",
        }
        sink = None if self.sink_problem else self.sink or FileSink(self.sink_folder)
        self.lineage = AttemptLineage(
            LineageOptions(**{**given, **self.options}),
            TaskAttempt(
                DagRun(AirflowSite(), "shop", self.run_id), "build", self.number, start_ms=START_MS
            ),
            self.connections or connections_to(sink, self.sink_problem),
        )
        self.running = RunningAttempt(self.lineage)

    def finish(self, end: AttemptEnd = ENDED) -> LineageReport:
        return EndedAttempt(self.lineage, end, self.running).finish()

    def spark_submit(self, **env: str) -> SparkSubmit:
        home = self.folder / "spark"
        if not home.exists():
            executable(spark_at(home) / "bin/spark-submit")
            openlineage_jar(self.folder / "openlineage-spark_2.13-1.53.0.jar")
        return SparkSubmit(
            "spark-submit",
            {"PATH": "/usr/bin:/bin", "SPARK_HOME": str(home), **env},
            local_driver=True,
        )

    def inject(self, submission: Submission | None = None, **env: str) -> dict[str, str]:
        """Return the Spark properties that the job would get."""
        [injection] = self.lineage.inject(
            [submission or Submission()], self.spark_submit(**env), PARENT, ROOT
        )
        return injection.submission.effective_properties()

    def job_writes(self, events: str | bytes) -> Path:
        """Inject, and write where the listener would."""
        path = Path(self.inject()["spark.openlineage.transport.location"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            (CORPUS / f"{events}.ndjson").read_bytes() if isinstance(events, str) else events
        )
        return path

    @property
    def delivered(self) -> list[dict[str, Any]]:
        """Return the proposals that the sink got."""
        return delivered(self.sink_folder)

    def aspects(self, name: str, urn: str | None = None, since: int = 0) -> list[dict[str, Any]]:
        """Return the delivered proposals of an aspect, without the first ``since`` proposals."""
        return aspects(self.delivered[since:], name, urn)

    def run_events(self, since: int = 0) -> list[dict[str, Any]]:
        return [
            one["aspect"]["json"]
            for one in self.aspects("dataProcessInstanceRunEvent", since=since)
        ]

    def results(self, since: int = 0) -> set[str]:
        return {event["result"]["type"] for event in self.run_events(since) if "result" in event}

    @property
    def attempts(self) -> list[tuple[int, str]]:
        """The beginnings and results of attempts, in the order of their delivery."""
        events = [event for event in self.run_events() if "attempt" in event]
        return [
            (event["attempt"], event.get("result", {}).get("type", event["status"]))
            for event in events
        ]


def aspects(
    proposals: list[dict[str, Any]], name: str, urn: str | None = None
) -> list[dict[str, Any]]:
    return [
        one for one in proposals if one["aspectName"] == name and urn in (None, one["entityUrn"])
    ]


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def entries(folder: Path) -> list[Entry]:
    """Return the pending entries of the outbox."""
    return list(outbox_at(folder / "outbox").entries())
