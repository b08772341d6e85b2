"""Two users of one host: whose folder refuses is said, and lineage is delivered without being kept."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture import ParentRun
from airflow_provider_spark_datahub.capture.openlineage_jar import _UnresolvableError
from airflow_provider_spark_datahub.cli import app
from tests.capture.test_openlineage_jar import OPENLINEAGE, cached, resolver
from tests.delivery.connections import connect_to_files
from tests.operators import tries
from tests.patience import waiting_processes

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


def as_nobody(call: Callable[[], Any]) -> Any:
    """Return what a call returns, as JSON, in a process of another user."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            result = call()
            if isinstance(result, subprocess.CompletedProcess):
                result = [result.stdout, result.stderr]
            os.write(writing, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        content = answer.read()
    os.waitpid(process, 0)
    return json.loads(content)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that both users reach, with a Spark, and an Airflow home that is root's alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "home").mkdir(0o700)
        (folder / "tmp").mkdir()
        (folder / "sink").mkdir()
        for place in ("tmp", "sink"):
            (folder / place).chmod(0o1777)
        monkeypatch.setenv("HOME", str(folder / "home"))
        tries.configure_airflow(folder, monkeypatch.setenv)
        monkeypatch.setattr("airflow.configuration.AIRFLOW_HOME", str(folder / "home"))
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
        for kind in ("events", "outbox"):
            monkeypatch.delenv(f"AIRFLOW__SPARK_DATAHUB__{kind.upper()}_LOCATION")
        yield folder


@pytest.mark.parametrize("temporary", ["tmp", "home"])
def test_a_spark_of_another_user_below_a_task_keeps_its_own_configuration(
    shared: Path, monkeypatch: pytest.MonkeyPatch, temporary: str
) -> None:
    """As ``sudo -E`` starts it: the task's variables, another user."""
    monkeypatch.setattr(tempfile, "tempdir", str(shared / temporary))
    conf, umask = shared / "conf", os.umask(0)
    conf.mkdir()
    (conf / "spark-env.sh").write_text("export USERS=1\n")
    os.umask(0o077)
    try:
        with capture.private_folder() as folder:
            changes = capture.ChildInjection(
                str(shared / "events"), ParentRun("ns", "a", "id")
            ).write(Path(folder), {"SPARK_CONF_DIR": str(conf)})
            # As Spark's own load-spark-env.sh.
            script = (
                'file="$SPARK_CONF_DIR/spark-env.sh"; [ ! -f "$file" ] || . "$file"; '
                'echo "$SPARK_CONF_DIR $USERS $*"'
            )
            command = ["bash", "-c", script, "", "org.apache.spark.deploy.SparkSubmit", "job.py"]
            env = {
                "PATH": os.environ["PATH"],
                **{name: value for name, value in changes.items() if value},
            }
            output = as_nobody(
                lambda: subprocess.run(command, env=env, capture_output=True, check=True, text=True)
            )
    finally:
        os.umask(umask)
    assert output == [f"{conf} 1 org.apache.spark.deploy.SparkSubmit job.py\n", ""]


def test_a_process_of_another_user_is_not_the_spark_of_an_attempt(shared: Path) -> None:
    events_file = shared / "home/try1-0.ndjson"
    spark = [f"spark.openlineage.transport.location={events_file}"]
    for user, is_spark in ((NOBODY, False), (0, True)):
        with waiting_processes(spark, user=user) as (process,):
            assert capture.running_submits(str(events_file)) == [process] * is_spark


def test_jars_that_another_user_prepared_are_not_run(shared: Path) -> None:
    jar = cached(shared / "ivy")
    asked = resolver(shared, {"spark.jars.ivy": str(shared / "ivy")})
    assert asked.resolve(OPENLINEAGE) == (jar,)
    os.chown(shared / "ivy", NOBODY, -1)
    with pytest.raises(_UnresolvableError, match=rf"another user could replace {shared}/ivy"):
        asked.resolve(OPENLINEAGE)


def test_the_events_are_the_users_alone_whatever_the_umask(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, umask = tries.FakeSpark(shared, monkeypatch.setenv), os.umask(0)
    spark.writes("a_csv_join_agg")
    try:
        tries.run_try(spark, datahub_conn_id="missing", events_location=str(shared / "events"))
    finally:
        os.umask(umask)
    assert (shared / "events").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "command", [["doctor"], ["pending"], ["emit"], ["changed", "a", "b"], ["convert", "{}"]]
)
def test_a_command_says_in_one_line_whose_folder_refuses(
    shared: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    home = shared / "home"
    monkeypatch.setenv("SPARK_CONF_DIR", str(home))
    connect_to_files(monkeypatch, "datahub_rest_default", home / "sink")
    arguments = [argument.format(home / "events.ndjson") for argument in command]
    CliRunner().invoke(app, arguments)  # imports what the other user cannot read

    def run() -> list[Any]:
        result = CliRunner().invoke(app, arguments)
        return [repr(result.exception), result.output]

    exception, output = as_nobody(run)
    assert exception in ("SystemExit(1)", "SystemExit(3)")
    assert output.count(f"{home} belongs to root alone: share it by") == 1
    assert command == ["doctor"] or len(output.splitlines()) == 1


def test_a_second_user_of_an_airflow_home_delivers_without_keeping(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = tries.FakeSpark(shared, monkeypatch.setenv)
    spark.writes("a_csv_join_agg")
    first = tries.run_try(spark)
    assert (first["delivered"], first["warnings"]) == (32, [])
    for place in ("", "runs", "pid"):
        (shared / "fake-spark" / place).chmod(0o777)
    report = as_nobody(lambda: tries.run_try(spark))
    assert (report["delivered"], report["pending"]) == (32, 0)
    why = f"{shared}/home belongs to root alone: share it by [spark_datahub] group_access"
    assert [why in warning for warning in report["warnings"]] == [True, True, True]
