"""Archives of Java classes: which one a job gets, which are refused, and when they are outdated.

Java and Spark are scripts here; ``test_real_spark.py`` has a real job with a real archive.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_spark_datahub import capture
from tests.capture.installations import executable, openlineage_jar, spark_at

JAVA = """#!/bin/bash
jars=$FAKE_JARS
case "$*" in
  *launcher.Main*) printf '\\0\\njava\\0-cp\\0%s/:%s/first.jar:%s/*\\0-Xmx1g\\0' "$SPARK_CONF_DIR" "$jars" "$jars" ;;
  *-Xshare:on*) [ -z "$FAKE_MISMATCH" ] || { echo "shared class paths mismatch"; exit 1; } ;;
esac
"""
SPARK_SUBMIT = """#!/bin/bash
echo "$SPARK_SUBMIT_OPTS" > "$SPARK_HOME/options"
[ -z "$FAKE_FAILURE" ] || { echo "no memory"; exit 1; }
archive=${SPARK_SUBMIT_OPTS#*ArchiveClassesAtExit=}
touch "${archive%% *}"
"""


class Worker:
    """A machine with a Java, a Spark and an OpenLineage jar."""

    def __init__(self, folder: Path) -> None:
        home = spark_at(folder / "spark", more_jars=["first.jar"])
        executable(home / "bin" / "spark-submit", SPARK_SUBMIT)
        self.java = executable(folder / "jdk/bin/java", JAVA)
        (folder / "jdk/release").write_text('JAVA_VERSION="17.0.15"\n')
        self.listener = (str(openlineage_jar(folder / "openlineage-spark_2.13-1.53.0.jar")),)
        self.env = {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(folder / "jdk"),
            "FAKE_JARS": str(home / "jars"),
        }
        self.env |= {"PATH": os.environ["PATH"]}
        found = capture.SparkInstallation.find("spark-submit", self.env)
        assert found is not None
        self.installation = found
        self.archives = capture.ClassArchives.at(folder / "classes")

    def build(self, **env: str) -> capture.ClassArchive:
        return self.archives.build(
            self.installation, {**self.env, **env}, self.listener, seconds=60
        )

    def find(
        self, submission: capture.Submission | None = None, **env: str
    ) -> capture.ClassArchive:
        jar = capture.JarChoice(class_path=self.listener)
        return self.archives.find(
            submission or capture.Submission(), self.installation, {**self.env, **env}, jar
        )

    def refusal(self, submission: capture.Submission | None = None, **env: str) -> str:
        with pytest.raises(capture.ClassArchiveError) as caught:
            self.find(submission, **env)
        return str(caught.value)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def test_a_job_gets_the_archive_and_the_class_path_that_it_was_written_for(worker: Worker) -> None:
    assert "spark-datahub warm" in worker.refusal()
    built = worker.build(SPARK_SUBMIT_OPTS="-XX:+UseSerialGC -Xshare:off")
    assert worker.find() == built
    jars = worker.installation.jars
    assert built.class_path == (*worker.listener, f"{jars}/first.jar", f"{jars}/*")
    options = (worker.installation.home / "options").read_text()
    assert "-XX:+UseSerialGC" in options
    assert "-Xshare:off" not in options

    users = capture.Submission(
        {"spark.driver.extraJavaOptions": "-Dusers=1", "spark.a": "b"}, driver_class_path=""
    )
    given = built.added_to(users)
    assert given.properties == {
        "spark.a": "b",
        "spark.driver.extraClassPath": ":".join(built.class_path),
        "spark.driver.extraJavaOptions": (
            f"-Dusers=1 -XX:SharedArchiveFile={built.path} -Xshare:auto -Xlog:cds*=off"
        ),
    }
    assert given.driver_class_path is None
    assert built.added_to(given) == given
    assert "-Xlog:cds" not in str(
        built.added_to(capture.Submission({"spark.driver.extraJavaOptions": "-Xlog:gc"})).properties
    )


def test_only_its_user_can_read_it(worker: Worker) -> None:
    path = Path(worker.build().path)
    modes = [
        place.stat().st_mode & 0o777 for place in (path.parent, path, path.with_suffix(".json"))
    ]
    assert modes == [0o700, 0o600, 0o600]


def test_an_archive_that_another_user_could_write_is_refused(worker: Worker) -> None:
    path = Path(worker.build().path)
    for place, mode in (
        (path, 0o620),
        (path.with_suffix(".json"), 0o602),
        (path.parent, 0o770),
        (path.parents[1], 0o777),
    ):
        before = place.stat().st_mode
        place.chmod(mode)
        assert f"could replace {place}:" in worker.refusal()
        place.chmod(before)
    assert worker.find().path == str(path)
    moved = path.with_name("elsewhere.jsa")
    path.rename(moved)
    path.symlink_to(moved)
    assert f"could replace {path}:" in worker.refusal()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_archive_of_another_user_is_refused(worker: Worker) -> None:
    path = Path(worker.build().path)
    os.chown(path, 12345, -1)
    assert f"could replace {path}:" in worker.refusal()


def test_a_job_with_conflicting_java_options_gets_no_archive(worker: Worker) -> None:
    worker.build()
    refusals = [
        worker.refusal(capture.Submission(driver_class_path="/users.jar")),
        worker.refusal(
            capture.Submission(base_properties={"spark.driver.extraClassPath": "/users.jar"})
        ),
        worker.refusal(
            capture.Submission(
                {"spark.driver.extraJavaOptions": "-Da=b -XX:SharedArchiveFile=/users.jsa"}
            )
        ),
        worker.refusal(
            capture.Submission(
                base_properties={"spark.driver.defaultJavaOptions": "-javaagent:a.jar"}
            )
        ),
        worker.refusal(SPARK_SUBMIT_OPTS="-Xshare:off"),
        worker.refusal(JAVA_TOOL_OPTIONS="--patch-module=java.base=x"),
    ]
    assert refusals == [
        *["the job has a driver class path of its own, which comes before Spark's jars"] * 2,
        "spark.driver.extraJavaOptions has -XX:SharedArchiveFile",
        "spark.driver.defaultJavaOptions has -javaagent:a.jar",
        "SPARK_SUBMIT_OPTS has -Xshare:off",
        "JAVA_TOOL_OPTIONS has --patch-module",
    ]
    again = f"-XX:SharedArchiveFile={worker.archives.folder}/other.jsa -Xshare:auto"
    assert worker.find(SPARK_SUBMIT_OPTS=again).java == str(worker.java)


def test_a_configuration_folder_with_names_of_a_jar_gets_no_archive(worker: Worker) -> None:
    conf = worker.installation.conf_dir
    conf.mkdir()
    (conf / "spark-defaults.conf").touch()
    assert worker.build() == worker.find()
    (conf / "io").mkdir()  # as in the listener's jar
    assert worker.refusal() == f"{conf} has names that jars of Spark have, too: io"


def test_another_java_spark_or_jar_has_another_archive_and_the_old_one_is_removed(
    worker: Worker,
) -> None:
    jars = worker.installation.jars
    changes: list[Callable[[], object]] = [
        lambda: (worker.java.parents[1] / "release").write_text('JAVA_VERSION="21.0.1"\n'),
        lambda: (jars / "first.jar").write_text("patched"),
        (jars / "more.jar").touch,
        lambda: os.utime(worker.listener[0], (1, 1)),
    ]
    for change in changes:
        path = Path(worker.build().path)
        assert worker.archives.remove_outdated() == []
        change()
        assert "spark-datahub warm" in worker.refusal()
        assert worker.archives.remove_outdated() == [
            (path, "Java, Spark or the OpenLineage jar has changed")
        ]
        assert list(worker.archives.folder.iterdir()) == []


def test_what_a_killed_build_left_is_removed(worker: Worker) -> None:
    worker.build()
    for name, age in ((".build-old", 7200), (".build-new", 0)):
        folder = worker.archives.folder / name
        folder.mkdir()
        os.utime(folder, (folder.stat().st_mtime - age,) * 2)
    worker.archives.remove_outdated()
    assert sorted(path.name for path in worker.archives.folder.glob(".build-*")) == [".build-new"]


def test_a_build_that_fails_says_why_and_leaves_nothing(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(capture.ClassArchiveError, match="failed: no memory"):
        worker.build(FAKE_FAILURE="1")
    archives = worker.archives
    (worker.java.parents[1] / "release").write_text('JAVA_VERSION="11.0.2"\n')
    with pytest.raises(
        capture.ClassArchiveError, match="is Java 11: archives need Java 13 or later"
    ):
        worker.build()
    (worker.java.parents[1] / "release").unlink()
    worker.archives = replace(archives, folder=tmp_path / "with blank")
    with pytest.raises(capture.ClassArchiveError, match="with a blank, comma or colon"):
        worker.build()
    with pytest.raises(capture.ClassArchiveError, match="no java in JAVA_HOME"):
        archives.find(
            capture.Submission(),
            worker.installation,
            {"JAVA_HOME": str(tmp_path)},
            capture.JarChoice(),
        )
    with pytest.raises(capture.ClassArchiveError, match="is not known"):
        archives.find(capture.Submission(), None, {}, capture.JarChoice())
    assert list(archives.folder.iterdir()) == []


def test_an_archive_that_java_refuses_is_not_kept(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MISMATCH", "1")
    with pytest.raises(
        capture.ClassArchiveError,
        match="Java does not map the archive that it wrote: shared class paths mis",
    ):
        worker.build()
    assert list(worker.archives.folder.iterdir()) == []
