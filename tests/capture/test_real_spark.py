"""What only a real Spark with the real listener can prove about an injected submission."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.capture.class_archive import ClassArchiveError, ClassArchives
from airflow_provider_spark_datahub.capture.event_lines import CollectedEvents, Outcome, decoded_event
from airflow_provider_spark_datahub.capture.injection import LineageInjection, ParentRun, inject
from airflow_provider_spark_datahub.capture.openlineage_jar import choose_jar
from airflow_provider_spark_datahub.capture.spark_installation import SparkInstallation, base_properties
from airflow_provider_spark_datahub.capture.spark_submit import Submission

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]
CLASS_ARCHIVES = ClassArchives.at(REPOSITORY / ".cache" / "spark-classes")
SPARK_SUBMIT = Path(os.environ.get("SPARK_SUBMIT") or REPOSITORY / ".venv-spark/bin/spark-submit")
OPENLINEAGE_JAR = os.environ.get("OPENLINEAGE_JAR") or str(REPOSITORY / ".cache/jars/openlineage-spark_2.13-1.53.0.jar")
PARENT = ParentRun("airflow", "shop.build", "01990000-0000-7000-8000-000000000001")
ROOT = ParentRun("airflow", "shop", "01990000-0000-7000-8000-000000000000")

COPY_JOB = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.text(sys.argv[1]).write.text(sys.argv[2])
"""


def submit(submission: Submission, env: Mapping[str, str], application: Path, *arguments: Path) -> str:
    """Run spark-submit as Airflow's hook does; the result is its output."""
    command = [str(SPARK_SUBMIT), "--master", "local[1]"]
    for name, value in submission.properties.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--jars", submission.jars] if submission.jars else []
    command += [str(application), *map(str, arguments)]
    done = subprocess.run(
        command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def environment(conf_dir: Path) -> dict[str, str]:
    path = f"{SPARK_SUBMIT.parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(conf_dir)}
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | own


def injected(properties: Mapping[str, object], env: Mapping[str, str], events_file: Path) -> Submission:
    installation = SparkInstallation.find(str(SPARK_SUBMIT), env)
    submission = Submission(properties, base_properties=base_properties(installation, None))
    jar = choose_jar(OPENLINEAGE_JAR, submission, installation=installation, local_driver=True)
    facets = {"environment-properties": False}
    lineage = LineageInjection(str(events_file), jar, PARENT, ROOT, "analytics", facets)
    injected = inject(submission, lineage).submission
    with suppress(ClassArchiveError):  # if `make setup` wrote none
        injected = CLASS_ARCHIVES.find(submission, installation, env, jar).added_to(injected)
    return injected


def events_of(path: Path) -> list[dict[str, Any]]:
    collection = CollectedEvents(path, decoded_event())
    events = list(collection)
    assert collection.report.outcome is Outcome.COMPLETE
    return events


def identity_of(event: dict[str, Any]) -> tuple[str, str, str]:
    return event["run"]["runId"], event["eventType"], event["eventTime"]


def test_transport_of_spark_defaults_gets_every_event_beside_ours(tmp_path: Path) -> None:
    users_file, events_file = tmp_path / "users.ndjson", tmp_path / "new" / "folder" / "ours.ndjson"
    conf_dir = tmp_path / "conf"
    conf_dir.mkdir()
    (conf_dir / "spark-defaults.conf").write_text(
        f"spark.openlineage.transport.type file\nspark.openlineage.transport.location {users_file}\n"
    )
    application = tmp_path / "copy_job.py"
    application.write_text(COPY_JOB)
    env = environment(conf_dir)

    classes = tmp_path / "classes.log"
    users: dict[str, object] = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={classes}"}
    submission = injected(users, env, events_file)
    output = submit(submission, env, application, application, tmp_path / "out")

    ours = events_of(events_file)
    assert sorted(map(identity_of, ours)) == sorted(map(identity_of, events_of(users_file)))
    assert (ours[0]["eventType"], ours[-1]["eventType"]) == ("START", "COMPLETE")
    assert ours[-1]["job"]["namespace"] == "analytics"
    assert any(event["outputs"] for event in ours)
    parent = ours[0]["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["root"]["run"]["runId"]) == (PARENT.run_id, ROOT.run_id)
    assert parent["job"] == {"namespace": PARENT.namespace, "name": PARENT.job_name}
    assert not any("environment-properties" in event["run"]["facets"] for event in ours)
    assert "InaccessibleObjectException" not in output
    # The configuration folder is not empty, which Java would refuse in front of Spark's jars.
    (loaded,) = re.findall(r"\.OpenLineageSparkListener (source: .*)", classes.read_text())
    is_archived = "SharedArchiveFile" in str(submission.properties["spark.driver.extraJavaOptions"])
    assert ("shared objects file (top)" in loaded) == is_archived
