"""Whether the listener sees the connectors of a job, whichever class loader has them: real Iceberg
and Delta tables.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture.event_lines import decoded_event
from airflow_provider_spark_datahub.conversion import Ending, LineageSettings, convert_events
from tests.connectors import CONNECTORS, JARS, PACKAGES, PROPERTIES, SPARK_SUBMIT, spark_path

pytestmark = pytest.mark.spark

LISTENER = CONNECTORS.parent / "jars" / "openlineage-spark_2.13-1.53.0.jar"
JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE TABLE ice.shop.orders USING iceberg AS SELECT id AS order_id, id * 2 AS amount FROM range(3)")
spark.sql("CREATE TABLE totals (order_id BIGINT, total BIGINT) USING delta")
spark.sql("INSERT INTO totals SELECT order_id, amount AS total FROM ice.shop.orders")
spark.sql("CREATE TABLE ice.shop.report USING iceberg AS SELECT order_id AS id, total AS revenue FROM totals")
"""
PARENT = capture.ParentRun("airflow", "shop.build", "01990000-0000-7000-8000-000000000001")
ORDERS, REPORT = (
    f"urn:li:dataset:(urn:li:dataPlatform:iceberg,shop.{name},PROD)"
    for name in ("orders", "report")
)
TOTALS = "urn:li:dataset:(urn:li:dataPlatform:delta-lake,default.totals,PROD)"


def packages(folder: Path) -> capture.Submission:
    """Return the connectors as packages, which Ivy resolves from their folder instead of Maven
    Central.
    """
    settings = folder / "ivysettings.xml"
    files = quoteattr(f"{CONNECTORS}/[artifact]-[revision].[ext]")
    settings.write_text(
        '<ivysettings><settings defaultResolver="files"/><resolvers><filesystem name="files">'
        f"<artifact pattern={files}/></filesystem></resolvers></ivysettings>"
    )
    properties = {"spark.jars.ivySettings": str(settings), "spark.jars.ivy": str(folder / "ivy")}
    return capture.Submission(properties, packages=",".join(PACKAGES))


def class_path(folder: Path) -> capture.Submission:  # noqa: ARG001 (the other one's arguments)
    return capture.Submission(driver_class_path=":".join(JARS))


def submitted(submission: capture.Submission, folder: Path) -> tuple[capture.JarChoice, Path]:
    """Run the job, with the listener where the operator puts it; the result is where that is, and
    the events' file.
    """
    own = {
        "spark.sql.catalog.ice.warehouse": f"{folder}/ice",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    properties = {**PROPERTIES, **own, **submission.properties}
    env = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    env |= {"PATH": spark_path(), "SPARK_LOCAL_IP": "127.0.0.1"}
    application = folder / "job.py"
    application.write_text(JOB)
    given = capture.Submission(
        properties,
        packages=submission.packages,
        driver_class_path=submission.driver_class_path,
        application=str(application),
    )
    jar = capture.SparkSubmit(str(SPARK_SUBMIT), env, True).choose_jar(str(LISTENER), given)
    lineage = capture.LineageInjection(
        str(folder / "events.ndjson"), jar, PARENT, PARENT, {"namespace": "analytics"}
    )
    command = [
        str(SPARK_SUBMIT),
        "--master",
        "local[1]",
        *capture.inject(given, lineage).submission.arguments,
    ]
    done = subprocess.run(
        [*command, str(application)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return jar, folder / "events.ndjson"


@pytest.mark.parametrize(
    ("connectors", "is_on_class_path"), [(packages, False), (class_path, True)]
)
def test_lineage_of_iceberg_and_delta_is_complete(
    connectors: Callable[[Path], capture.Submission], is_on_class_path: bool, tmp_path: Path
) -> None:
    jar, events_file = submitted(connectors(tmp_path), tmp_path)
    assert (jar.jars, jar.class_path) == (
        ((), (str(LISTENER),)) if is_on_class_path else ((str(LISTENER),), ())
    )
    events = capture.CollectedEvents(events_file, decoded_event)
    settings = LineageSettings.from_mapping(
        {"catalog_platforms": {"iceberg": "iceberg", "delta": "delta-lake"}}
    )
    conversion = convert_events(events, settings, Ending(succeeded=True))
    assert events.report.outcome is capture.Outcome.COMPLETE
    assert set(conversion.outputs) == {ORDERS, TOTALS, REPORT}
    assert set(conversion.inputs) == {ORDERS, TOTALS}
    columns = {
        (upstream, downstream)
        for job in conversion.jobs
        for lineage in job.lineage.fine_grained
        for upstream in lineage["upstreams"]
        for downstream in lineage["downstreams"]
    }
    assert columns == {
        (f"urn:li:schemaField:({one},{column})", f"urn:li:schemaField:({other},{result})")
        for one, column, other, result in (
            (ORDERS, "order_id", TOTALS, "order_id"),
            (ORDERS, "amount", TOTALS, "total"),
            (TOTALS, "order_id", REPORT, "id"),
            (TOTALS, "total", REPORT, "revenue"),
        )
    }
