"""What only a real Spark with the real listener can prove about an injected submission."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture.event_lines import decoded_event
from airflow_provider_spark_datahub.capture.spark_installation import knows_base_file
from tests.servers.openlineage import Backend

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]
CLASS_ARCHIVES = capture.ClassArchives.at(REPOSITORY / ".cache" / "spark-classes")
SPARK_SUBMIT = Path(os.environ.get("SPARK_SUBMIT") or REPOSITORY / ".venv-spark/bin/spark-submit")
OPENLINEAGE_JAR = os.environ.get("OPENLINEAGE_JAR") or str(
    REPOSITORY / ".cache/jars/openlineage-spark_2.13-1.53.0.jar"
)
PARENT = capture.ParentRun("airflow", "shop.build", "01990000-0000-7000-8000-000000000001")
ROOT = capture.ParentRun("airflow", "shop", "01990000-0000-7000-8000-000000000000")

SECRET = "hunter2"
COMMANDS = ("spark-submit", "spark-sql")
TRANSPORT = "spark.openlineage.transport"
JOB = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.text(sys.argv[1]).write.text(sys.argv[2])
lines = [path.read_bytes().replace(b"\\0", b" ") for path in Path("/proc").glob("[0-9]*/cmdline")]
Path(sys.argv[3]).write_bytes(b"\\n".join(line for line in lines if sys.argv[2].encode() in line))
Path(sys.argv[3] + ".kept").write_text(json.dumps(dict(spark.sparkContext.getConf().getAll())))
"""
# The user's own properties, and whether they move into the file.
USERS = {
    "spark.hadoop.fs.s3a.secret.key": (SECRET, True),
    "spark.hadoop.fs.s3a.access.key": ("a=b:c#d!e\\f\\", True),
    "spark.my.#1!.Password": ("\"quoted\" 'words' ${spark.app.name} $HOME `id`", True),
    "spark.my.token": ("of the conf, not of the file", True),
    "spark.my.credential.provider": ("#begins\\u0041", True),
    "spark.openlineage.transport.apiKey": ("!", True),
    "spark.plain": ("p", False),
    "spark.my.secret.number": (17, True),
    # They would be another value in a file, or on a command line whose locale is not the file's.
    "spark.my.secret.begin": (" a", False),
    "spark.my.secret.end": ("a ", False),
    "spark.my.secret.umlaut": ("größe", False),
    "spark.my.secret.tab": ("a\tb", False),
    "spark.my.secret.lines": ("a\nb", False),
    "spark.my.secret.return": ("a\rb", False),
    "spark.my.secret.empty": ("", False),
    # spark-submit ends the name at the first "=", and warns of others than Spark's in a file.
    "spark.my=secret": ("c", False),
    "spark.my secret": ("c", False),
    "my.secret": ("c", False),
}


def submit(
    submission: capture.Submission,
    env: Mapping[str, str],
    application: Path,
    *arguments: Path,
    options: Sequence[str] = (),
) -> str:
    """Run spark-submit as Airflow's hook does; the result is its output."""
    command = [str(SPARK_SUBMIT), "--master", "local[1]", *options]
    for name, value in submission.properties.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--jars", submission.jars] if submission.jars else []
    command += [str(application), *map(str, arguments)]
    done = subprocess.run(
        command,
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def environment(conf_dir: Path) -> dict[str, str]:
    path = f"{SPARK_SUBMIT.parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(conf_dir)}
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | own


def injected(
    properties: Mapping[str, object], env: Mapping[str, str], events_file: Path
) -> capture.Submission:
    spark = capture.SparkSubmit(str(SPARK_SUBMIT), env, True)
    submission = replace(spark.with_base(capture.Submission(properties)), replaceable=True)
    jar = spark.choose_jar(OPENLINEAGE_JAR, submission)
    switches = {"namespace": "analytics", "facets.environment-properties.disabled": "true"}
    lineage = capture.LineageInjection(str(events_file), jar, PARENT, ROOT, switches)
    injected = capture.inject(submission, lineage).submission
    with suppress(capture.ClassArchiveError):  # if `make setup` wrote none
        injected = CLASS_ARCHIVES.find(submission, spark.installation, env, jar).added_to(injected)
    return injected


def events_of(path: Path) -> list[dict[str, Any]]:
    collection = capture.CollectedEvents(path, decoded_event)
    events = list(collection)
    assert collection.report.outcome is capture.Outcome.COMPLETE
    return events


def identity_of(event: dict[str, Any]) -> tuple[str, str, str]:
    return event["run"]["runId"], event["eventType"], event["eventTime"]


@dataclass(frozen=True)
class RealJob:
    """A job whose ``spark-defaults.conf`` has a transport with an API key, and whose own call has
    secrets.

    :ivar backend: events that the user's transport delivered.
    :ivar secrets: the file that the call's secrets moved into.
    :ivar seen: command lines of the job's processes.
    :ivar kept: Spark's properties in the job.
    """

    submission: capture.Submission
    events: list[dict[str, Any]]
    backend: list[dict[str, Any]]
    output: str
    secrets: Path
    seen: str
    kept: dict[str, str]
    classes: str


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> RealJob:
    folder = tmp_path_factory.mktemp("job")
    conf_dir, events_file, application = (
        folder / "conf",
        folder / "new" / "folder" / "ours.ndjson",
        folder / "job.py",
    )
    conf_dir.mkdir()
    application.write_text(JOB)
    classes = folder / "classes.log"
    # As Spark's launcher passes it on: without what spark-submit ignores, and without carriage
    # returns.
    users = {
        name: str(value)
        for name, (value, _) in USERS.items()
        if TRANSPORT not in name and value != "a\rb"
    }
    users["spark.driver.extraJavaOptions"] = f"-Xlog:class+load:file={classes}"
    with Backend(SECRET) as backend:
        (conf_dir / "spark-defaults.conf").write_text(
            f"{TRANSPORT}.type http\n{TRANSPORT}.url {backend.url}\n{TRANSPORT}.auth.type api_key\n"
            f"{TRANSPORT}.auth.apiKey {SECRET}\nspark.my.token of-the-file\nspark.of.the.user größe \\\n"
        )
        env = environment(conf_dir)
        installation = capture.SparkInstallation.find(str(SPARK_SUBMIT), env)
        assert all(
            knows_base_file(installation, None, str(SPARK_SUBMIT.with_name(name)), env)
            for name in COMMANDS
        )
        submission = injected(users, env, events_file)
        properties, handed = submission.hand_over()
        assert handed is not None
        assert stat.S_IMODE(handed.stat().st_mode) == 0o600
        seen = folder / "seen"
        output = submit(
            replace(submission, properties=properties), env, application, application, folder / "out", seen,
            options=("--properties-file", str(handed)),
        )  # fmt: skip
        handed.unlink()
    kept = json.loads((folder / "seen.kept").read_text())
    return RealJob(
        submission,
        events_of(events_file),
        backend.events,
        output,
        handed,
        seen.read_text(),
        kept,
        classes.read_text(),
    )


def test_transport_of_spark_defaults_gets_every_event_beside_ours(job: RealJob) -> None:
    ours = job.events
    assert sorted(map(identity_of, ours)) == sorted(map(identity_of, job.backend))
    assert (ours[0]["eventType"], ours[-1]["eventType"]) == ("START", "COMPLETE")
    assert ours[-1]["job"]["namespace"] == "analytics"
    assert any(event["outputs"] for event in ours)
    parent = ours[0]["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["root"]["run"]["runId"]) == (PARENT.run_id, ROOT.run_id)
    assert parent["job"] == {"namespace": PARENT.namespace, "name": PARENT.job_name}
    assert not any("environment-properties" in event["run"]["facets"] for event in ours)


def test_the_listener_is_loaded_from_the_class_archive(job: RealJob) -> None:
    assert "InaccessibleObjectException" not in job.output
    # The configuration folder is not empty, which Java would refuse in front of Spark's jars.
    (loaded,) = re.findall(r"\.OpenLineageSparkListener (source: .*)", job.classes)
    is_archived = "SharedArchiveFile" in str(
        job.submission.properties["spark.driver.extraJavaOptions"]
    )
    assert ("shared objects file (top)" in loaded) == is_archived


@pytest.mark.attacks
def test_a_real_job_keeps_its_secrets_off_the_command_line(job: RealJob) -> None:
    assert "SparkSubmit" in job.seen
    assert str(job.secrets) in job.seen
    assert SECRET not in job.seen
    changed = {"spark.my=secret", "my.secret"}
    users = {
        name: str(value)
        for name, (value, _) in USERS.items()
        if TRANSPORT not in name and value != "a\rb"
    }
    assert {name: job.kept[name] for name in users.keys() - changed} == {
        name: value for name, value in users.items() if name not in changed
    }
    assert job.kept["spark.my"] == "secret=c"
    assert job.kept["spark.of.the.user"] == "größe"
