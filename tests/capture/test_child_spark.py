"""Arguments of a spark-submit that a task starts below itself, as Spark parses them and as they are
rewritten.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import (
    ChildInjection,
    InjectionError,
    ParentRun,
    Submission,
)
from airflow_provider_spark_datahub.capture.child_spark import SubmitArguments, _main, _rewrite
from airflow_provider_spark_datahub.foundation.files import NotRegularFileError
from tests.capture.installations import openlineage_jar, spark_at
from tests.capture.test_class_archive import Worker
from tests.cases import cases

LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"


@cases("capture")
def test_arguments_are_parsed_as_spark_parses_them(
    arguments: list[str], properties: dict[str, str], jars: str | None, application: str | None
) -> None:
    parsed = SubmitArguments.parse(arguments)
    assert (parsed.properties, parsed.value("--jars"), parsed.application) == (
        properties,
        jars,
        application,
    )


def test_only_changed_arguments_are_replaced() -> None:
    before = [
        "--conf",
        "spark.a=1",
        "--jars",
        "x.jar",
        "--conf",
        "spark.b=2",
        "-v",
        "job.py",
        "--jars",
        "theirs",
    ]
    parsed = SubmitArguments.parse(before)
    assert parsed.with_submission(parsed.submission) == before
    changed = Submission(
        {"spark.a": "9", "spark.b": "2", "spark.c": "3"}, jars="x.jar,y.jar", packages="a:b:1"
    )
    assert parsed.with_submission(changed) == [
        *(
            "--conf",
            "spark.a=9",
            "--conf",
            "spark.c=3",
            "--jars",
            "x.jar,y.jar",
            "--packages",
            "a:b:1",
        ),
        *("--conf", "spark.b=2", "-v", "job.py", "--jars", "theirs"),
    ]
    changed = Submission(parsed.properties, jars="x.jar", driver_class_path="/ours.jar")
    assert parsed.with_submission(changed) == ["--driver-class-path", "/ours.jar", *before]
    shell = SubmitArguments.parse(["pyspark-shell-main", "--name", "x"])
    assert shell.with_submission(Submission({"spark.a": "1"}))[:3] == [
        "pyspark-shell-main",
        "--conf",
        "spark.a=1",
    ]


def injection(tmp_path: Path) -> ChildInjection:
    jar = openlineage_jar(tmp_path / "openlineage-spark_2.13-1.53.0.jar")
    return ChildInjection(
        str(tmp_path / "events"), ParentRun("ns", "dag.task", "id"), openlineage_jar=str(jar)
    )


def test_the_listener_is_added_to_the_users_own(tmp_path: Path) -> None:
    env = {
        "SPARK_HOME": str(spark_at(tmp_path / "spark")),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
    }
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text(
        "spark.extraListeners com.example.Own\nspark.jars base.jar\n"
    )
    one = injection(tmp_path)
    rewritten, note = _rewrite(
        ["--jars", "users.jar", "job.py"], one, env, "/events/1.ndjson", tmp_path
    )
    parsed = SubmitArguments.parse(rewritten)
    assert note == ""
    assert parsed.properties["spark.extraListeners"] == f"com.example.Own,{LISTENER}"
    assert parsed.properties["spark.openlineage.transport.location"] == "/events/1.ndjson"
    assert parsed.value("--jars") == f"users.jar,{one.openlineage_jar}"
    assert "spark.jars" not in parsed.properties, "--jars hides it"
    assert rewritten[-1] == "job.py"
    assert _rewrite(["--version"], one, env, "/events/1.ndjson", tmp_path) == (["--version"], "")


def test_credentials_of_a_file_stay_off_the_command_line(tmp_path: Path) -> None:
    env = {
        "SPARK_HOME": str(spark_at(tmp_path / "spark")),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
    }
    transport = "spark.openlineage.transport"
    users = f"{transport}.type http\n{transport}.url http://h:1\n{transport}.auth.apiKey hunter2\nspark.a b\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text(users)
    (tmp_path / "users.conf").write_text(users)
    (tmp_path / "task").mkdir()
    for arguments in (["job.py"], ["--properties-file", str(tmp_path / "users.conf"), "job.py"]):
        rewritten, _ = _rewrite(
            arguments, injection(tmp_path), env, "/events/1.ndjson", tmp_path / "task"
        )
        assert "hunter2" not in " ".join(rewritten)
        assert rewritten.count("--properties-file") == 1
        file = Path(str(SubmitArguments.parse(rewritten).value("--properties-file")))
        assert (file.parent, file.stat().st_mode & 0o777) == (tmp_path / "task", 0o600)
        assert f"{transport}.transports.users.auth.apiKey=hunter2" in file.read_text().splitlines()
        assert "spark.a b" in file.read_text()


def test_a_launch_gets_the_archive_of_java_classes(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    one = replace(injection(tmp_path), class_archives=str(worker.archives.folder))
    archive = worker.build()
    rewritten, _ = _rewrite(["job.py"], one, worker.env, "/events/1.ndjson", tmp_path)
    properties = SubmitArguments.parse(rewritten).properties
    assert f"-XX:SharedArchiveFile={archive.path}" in properties["spark.driver.extraJavaOptions"]
    assert properties["spark.driver.extraClassPath"] == ":".join(archive.class_path)
    rewritten, _ = _rewrite(
        ["--driver-class-path", "/own.jar", "job.py"], one, worker.env, "/events/1.ndjson", tmp_path
    )
    parsed = SubmitArguments.parse(rewritten)
    assert "-XX:" not in parsed.properties["spark.driver.extraJavaOptions"]
    assert parsed.value("--driver-class-path") == f"/own.jar:{worker.listener[0]}"


@cases("capture")
def test_a_launch_that_cannot_have_lineage_is_refused(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    env = {"SPARK_HOME": str(spark_at(tmp_path / "spark"))}
    with pytest.raises(InjectionError, match=reason):
        _rewrite(arguments, injection(tmp_path), env, "/events/1.ndjson", tmp_path)


def test_a_pipe_is_left_to_spark(tmp_path: Path) -> None:
    """As a shell passes the output of a command, ``--properties-file <(...)``: it can be read once."""
    env = {"SPARK_HOME": str(spark_at(tmp_path / "spark"))}
    reader, writer = os.pipe()
    os.write(writer, b"spark.users own")
    with pytest.raises(NotRegularFileError, match=f"/dev/fd/{reader} is not a regular file"):
        _rewrite(
            ["--properties-file", f"/dev/fd/{reader}", "job.py"],
            injection(tmp_path),
            env,
            "/1",
            tmp_path,
        )
    assert os.read(reader, 100) == b"spark.users own"
    os.close(reader)
    os.close(writer)


def test_a_configuration_folder_that_cannot_be_listed_stays_in_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may still open files in it."""
    (tmp_path / "events").mkdir()
    (tmp_path / "conf").mkdir()
    injection(tmp_path).write(tmp_path, {})
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setattr(
        sys, "argv", ["-c", str(tmp_path), str(tmp_path / "answer"), SUBMIT, "job.py"]
    )

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refuse)
        _main()
    assert not (tmp_path / "answer").exists()
    (note,) = ChildInjection.notes(tmp_path / "events")
    assert note.startswith("a Spark of this task ran without lineage: [Errno 13] Permission denied")


def test_notes_of_launches_are_read_in_order_and_bounded(tmp_path: Path) -> None:
    (tmp_path / "1.note").write_text("the first")
    os.mkfifo(tmp_path / "2.note")
    (tmp_path / "3.note").symlink_to("/dev/zero")
    (tmp_path / "4.note").write_bytes(b"\xff" + b"x" * 100_000)
    first, pipe, link, long = ChildInjection.notes(tmp_path)
    assert first == "the first"
    for text in (pipe, link):
        assert text.startswith("the note of a launch cannot be read: ")
        assert "is not a regular file" in text
    assert long == "\N{REPLACEMENT CHARACTER}" + "x" * 4095


def test_a_folder_with_a_blank_in_its_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InjectionError, match="TMPDIR"):
        injection(tmp_path).write(tmp_path / "a b", {})
