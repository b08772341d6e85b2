from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import openlineage_jar as openlineage_jar_module
from airflow_provider_spark_datahub.capture.openlineage_jar import (
    DEFAULT_OPENLINEAGE_JAR,
    JarChoice,
    _Coordinate,
    _listener_found,
    _listener_scala_version,
    _UnresolvableError,
    choose_jar,
)
from airflow_provider_spark_datahub.capture.spark_installation import ScalaVersion, SparkInstallation
from airflow_provider_spark_datahub.capture.spark_submit import InjectionError, Submission
from tests.capture.installations import LISTENER_CLASS, SEQ_CALL, openlineage_jar, spark_at
from tests.cases import cases

COORDINATE = "io.openlineage:openlineage-spark_2.13:1.53.0"


@dataclass
class Repository:
    """A package resolver that has the given files for every coordinate."""

    files: tuple[Path, ...] = ()
    asked: list[str] = field(default_factory=list)

    def resolve(self, coordinate: _Coordinate, /) -> tuple[Path, ...]:
        self.asked.append(str(coordinate))
        if not self.files:
            raise _UnresolvableError("Ivy says: not found")
        return self.files


@pytest.fixture
def spark(tmp_path: Path) -> SparkInstallation:
    found = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(spark_at(tmp_path / "spark"))})
    assert found is not None
    return found


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    return openlineage_jar(tmp_path / "openlineage-spark_2.13-1.53.0.jar")


def problem(setting: str, submission: Submission | None = None, **situation: object) -> str:
    """Return the reason why no jar was chosen."""
    installation, resolver = situation.get("installation"), situation.get("resolver")
    assert installation is None or isinstance(installation, SparkInstallation)
    assert resolver is None or isinstance(resolver, Repository)
    with pytest.raises(InjectionError) as caught:
        choose_jar(
            setting,
            submission or Submission(),
            installation=installation,
            local_driver=bool(situation.get("local_driver", True)),
            resolver=resolver,
        )
    assert caught.value.reason == str(caught.value)
    return caught.value.reason


@pytest.mark.parametrize("form", ["{jar}", "file:{jar}", "file://{jar}", "local:{jar}"])
def test_file_that_fits_goes_to_the_driver_alone(spark: SparkInstallation, jar: Path, form: str) -> None:
    choice = choose_jar(form.format(jar=jar), Submission(), installation=spark, local_driver=True)
    assert (choice.class_path, choice.jars) == ((str(jar),), ())


def test_file_is_one_of_the_jobs_jars_if_the_job_may_bring_connectors_or_its_driver_runs_elsewhere(
    spark: SparkInstallation, jar: Path
) -> None:
    submissions = [
        Submission(jars="/delta.jar"),
        Submission({"spark.jars": "/delta.jar"}),
        Submission(packages="org.apache.iceberg:iceberg:1"),
        Submission(base_properties={"spark.jars.packages": "org.apache.iceberg:iceberg:1"}),
        Submission(application="s3a://jobs/shop.JAR"),
        Submission({"spark.submit.deployMode": "cluster"}),
    ]
    choices = [choose_jar(f"file:{jar}", one, installation=spark, local_driver=True) for one in submissions]
    choices.append(choose_jar(f"file:{jar}", Submission(), installation=spark, local_driver=False))
    assert {(choice.class_path, choice.jars) for choice in choices} == {((), (f"file:{jar}",))}
    choice = choose_jar(str(jar), Submission(application="/jobs/shop.py"), installation=spark, local_driver=True)
    assert (choice.class_path, choice.jars) == ((str(jar),), ())


def test_jar_whose_path_would_be_two_entries_of_a_class_path_is_one_of_the_jobs_jars(
    spark: SparkInstallation, tmp_path: Path
) -> None:
    (tmp_path / "a:b").mkdir()
    jar = openlineage_jar(tmp_path / "a:b" / "openlineage-spark_2.13-1.53.0.jar")
    choice = choose_jar(str(jar), Submission(), installation=spark, local_driver=True)
    assert (choice.class_path, choice.jars) == ((), (str(jar),))


def test_scala_in_a_path_is_filled_in(spark: SparkInstallation, jar: Path) -> None:
    setting = str(jar).replace("2.13", "{scala}")
    assert choose_jar(setting, Submission(), installation=spark, local_driver=True).class_path == (str(jar),)


def test_file_of_the_other_scala_version_is_refused(spark: SparkInstallation, tmp_path: Path) -> None:
    wrong = openlineage_jar(tmp_path / "openlineage-spark_2.12-1.53.0.jar", "2.12")
    reason = problem(str(wrong), installation=spark)
    assert "is built for Scala 2.12, Spark 4.3.0 runs on Scala 2.13" in reason
    assert "use openlineage-spark_2.13" in reason


def test_file_that_does_not_exist_is_refused(spark: SparkInstallation, tmp_path: Path) -> None:
    assert "does not exist" in problem(str(tmp_path / "none.jar"), installation=spark)


def test_a_file_that_is_not_a_jar_is_refused(spark: SparkInstallation, tmp_path: Path) -> None:
    (tmp_path / "text.jar").write_text("no zip")
    assert "cannot be read: File is not a zip file" in problem(str(tmp_path / "text.jar"), installation=spark)


def test_jar_without_the_listener_is_refused(spark: SparkInstallation, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.jar", "w") as archive:
        archive.writestr("org/example/Other.class", b"")
    assert "OpenLineageSparkListener.class" in problem(str(tmp_path / "other.jar"), installation=spark)


@cases("capture")
def test_setting_that_cannot_work_is_refused(spark: SparkInstallation, setting: str, reason: str) -> None:
    assert reason in problem(setting, installation=spark)


@cases("capture")
def test_scala_version_is_that_of_the_code_then_of_the_name(
    tmp_path: Path, name: str, code: str | None, pom: str | None, scala: str | None
) -> None:
    jar = openlineage_jar(tmp_path / name, code, pom_scala=pom)

    def fits(spark_scala: ScalaVersion) -> bool:
        try:
            choose_jar(str(jar), Submission(), installation=None, local_driver=True, scala_version=spark_scala)
        except InjectionError:
            return False
        return True

    versions: tuple[ScalaVersion, ...] = ("2.12", "2.13")
    assert [version for version in versions if fits(version)] == ([scala] if scala else [])


def test_the_listeners_class_is_found_without_the_directory_of_the_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = openlineage_jar(tmp_path / "plain.jar").read_bytes()
    with zipfile.ZipFile(tmp_path / "deflated.jar", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"PK and more" * 999
        for name in ("first", LISTENER_CLASS, "last"):
            archive.writestr(name, SEQ_CALL["2.13"] * 9)
    deflated = (tmp_path / "deflated.jar").read_bytes()
    with zipfile.ZipFile(tmp_path / "deflated.jar", "a") as archive:
        archive.writestr(f"shaded/{LISTENER_CLASS}", b"")
    shaded = (tmp_path / "deflated.jar").read_bytes()
    damaged = plain.replace(SEQ_CALL["2.13"], SEQ_CALL["2.13"].replace(b"Seq", b"Set"), 1)
    other = plain.replace(LISTENER_CLASS.encode(), LISTENER_CLASS.swapcase().encode())
    wrong = [damaged, other, plain[:-30], plain[60:], b"", b"PK\5\6" + b"\xff" * 18]
    jars = [plain, deflated, shaded, b"#!/bin/sh" + plain, *wrong]
    found, sought = [], []
    for number, content in enumerate(jars):
        jar = tmp_path / f"{number}.jar"
        jar.write_bytes(content)
        found.append((_listener_found(jar), outcome(jar)))
        with monkeypatch.context() as patched:
            patched.setattr(openlineage_jar_module, "_listener_found", lambda _: b"")
            sought.append(outcome(jar))
    assert [listener for listener, _ in found[:2]] == [SEQ_CALL["2.13"], SEQ_CALL["2.13"] * 9]
    assert [end for _, end in found] == sought
    assert sought[:-6] == ["2.13"] * 4
    assert not {"2.13", None}.intersection(sought[-6:])


def outcome(jar: Path) -> str | None:
    try:
        return _listener_scala_version(jar)
    except InjectionError as error:
        return str(error)


def test_uri_is_left_to_spark(spark: SparkInstallation) -> None:
    uri = "https://jars.example/openlineage-spark_2.13-1.53.0.jar"
    assert choose_jar(uri, Submission(), installation=spark, local_driver=True).jars == (uri,)


def test_uri_is_trusted_where_neither_spark_nor_driver_is_here() -> None:
    for uri in ("local:/opt/openlineage.jar", "s3a://jars/openlineage.jar"):
        assert choose_jar(uri, Submission(), installation=None, local_driver=False).jars == (uri,)


def test_coordinate_for_a_local_driver_becomes_its_files(spark: SparkInstallation, jar: Path, tmp_path: Path) -> None:
    repository = Repository((jar, tmp_path / "dependency.jar"))
    choice = choose_jar(
        DEFAULT_OPENLINEAGE_JAR, Submission(), installation=spark, local_driver=True, resolver=repository
    )
    assert repository.asked == [COORDINATE]
    files = (str(jar), str(tmp_path / "dependency.jar"))
    assert choice == JarChoice(jars=files, origin=COORDINATE)
    alone = Repository((jar,))
    choice = choose_jar(DEFAULT_OPENLINEAGE_JAR, Submission(), installation=spark, local_driver=True, resolver=alone)
    assert choice == JarChoice(class_path=(str(jar),), origin=COORDINATE)


def test_coordinate_for_a_driver_elsewhere_stays_a_package(spark: SparkInstallation, jar: Path) -> None:
    choice = choose_jar(
        DEFAULT_OPENLINEAGE_JAR, Submission(), installation=spark, local_driver=False, resolver=Repository((jar,))
    )
    assert (choice.packages, choice.jars) == ((COORDINATE,), ())


def test_coordinate_that_does_not_resolve_is_refused(spark: SparkInstallation) -> None:
    reason = problem(DEFAULT_OPENLINEAGE_JAR, installation=spark, resolver=Repository())
    assert reason == f"the OpenLineage package {COORDINATE} does not resolve: Ivy says: not found"


def test_coordinate_of_the_other_scala_version_is_not_even_resolved(spark: SparkInstallation) -> None:
    repository = Repository()
    coordinate = "io.openlineage:openlineage-spark_2.12:1.53.0"
    assert "is built for Scala 2.12" in problem(coordinate, installation=spark, resolver=repository)
    assert repository.asked == []


def test_without_a_known_spark_a_local_driver_gets_no_jar(jar: Path) -> None:
    assert "needs Spark's Scala version" in problem(DEFAULT_OPENLINEAGE_JAR)
    assert "the Scala version of Spark is not known" in problem(str(jar))
    assert "the Scala version of Spark is not known" in problem(COORDINATE)


def test_version_from_the_banner_serves_where_the_layout_is_unknown(jar: Path) -> None:
    choice = choose_jar(str(jar), Submission(), installation=None, local_driver=True, scala_version="2.13")
    assert choice.jars == (str(jar),)
    with pytest.raises(InjectionError, match=r"cannot check that .* resolves"):
        choose_jar(COORDINATE, Submission(), installation=None, local_driver=True, scala_version="2.13")


def test_coordinate_is_trusted_where_neither_spark_nor_driver_is_here() -> None:
    choice = choose_jar(COORDINATE, Submission(), installation=None, local_driver=False)
    assert choice.packages == (COORDINATE,)


def test_jar_of_the_job_is_used_and_no_second_one_added(spark: SparkInstallation, jar: Path, tmp_path: Path) -> None:
    base = {"spark.jars": f"/users.jar,{jar}"}
    for submission in (
        Submission(jars=f"/users.jar,{jar}"),
        Submission({"spark.jars": str(jar)}),
        Submission(base_properties=base),
        Submission(packages=f"g:a:1,{COORDINATE}"),
        Submission({"spark.jars.packages": COORDINATE}),
        Submission(driver_class_path=str(jar)),
        Submission({"spark.driver.extraClassPath": f"{tmp_path}/*"}),
    ):
        choice = choose_jar(DEFAULT_OPENLINEAGE_JAR, submission, installation=spark, local_driver=True)
        assert (choice.jars, choice.packages) == ((), ())
        assert choice.origin.startswith("the job's own")


def test_jar_of_the_job_that_does_not_exist_is_none(spark: SparkInstallation, jar: Path) -> None:
    for entry in ("/none/openlineage-spark_2.13-1.53.0.jar", "none/openlineage-spark_2.13-1.53.0.jar"):
        choice = choose_jar(str(jar), Submission(jars=entry), installation=spark, local_driver=True)
        assert choice.jars == (str(jar),)
        elsewhere = choose_jar(str(jar), Submission(jars=entry), installation=spark, local_driver=False)
        assert elsewhere.jars == ()


def test_jar_of_the_job_in_a_store_is_recognised_by_its_name(spark: SparkInstallation, jar: Path) -> None:
    right, wrong = (Submission(jars=f"s3a://jars/openlineage-spark_{scala}-1.53.0.jar") for scala in ("2.13", "2.12"))
    assert choose_jar(str(jar), right, installation=spark, local_driver=True).jars == ()
    assert "is built for Scala 2.12" in problem(str(jar), wrong, installation=spark)


def test_jar_in_sparks_own_folder_is_used(spark: SparkInstallation) -> None:
    openlineage_jar(spark.jars / "openlineage-spark_2.13-1.40.0.jar")
    choice = choose_jar(DEFAULT_OPENLINEAGE_JAR, Submission(), installation=spark, local_driver=True)
    assert choice.jars == ()
    assert "openlineage-spark_2.13-1.40.0.jar" in choice.origin


def test_jar_of_the_job_of_the_other_scala_version_gets_no_listener(spark: SparkInstallation) -> None:
    submission = Submission(packages="io.openlineage:openlineage-spark_2.12:1.53.0")
    assert "is built for Scala 2.12" in problem(DEFAULT_OPENLINEAGE_JAR, submission, installation=spark)


def test_other_artifacts_of_openlineage_are_not_taken_for_the_listener(spark: SparkInstallation, jar: Path) -> None:
    submission = Submission(packages="io.openlineage:openlineage-spark-extension-interfaces_2.13:1.0")
    choice = choose_jar(str(jar), submission, installation=spark, local_driver=True)
    assert choice.jars == (str(jar),)


def test_provided_is_found_under_any_name(spark: SparkInstallation) -> None:
    openlineage_jar(spark.jars / "company-bundle.jar")
    choice = choose_jar("provided", Submission(), installation=spark, local_driver=True)
    assert choice == JarChoice(origin=f"provided: {spark.jars / 'company-bundle.jar'}")


def test_provided_of_the_other_scala_version_is_refused(spark: SparkInstallation, tmp_path: Path) -> None:
    bundle = openlineage_jar(tmp_path / "bundle.jar", "2.12")
    submission = Submission(driver_class_path=f"/etc/conf:{bundle}")
    assert "is built for Scala 2.12" in problem("provided", submission, installation=spark)


def test_provided_but_nowhere_is_refused(spark: SparkInstallation) -> None:
    reason = problem("provided", Submission(jars="/users.jar,s3a://b/c.jar"), installation=spark)
    assert f"nor in {spark.jars}" in reason


def test_provided_is_trusted_where_the_class_path_cannot_be_seen(spark: SparkInstallation) -> None:
    for installation, local_driver in ((spark, False), (None, True)):
        choice = choose_jar("Provided", Submission(), installation=installation, local_driver=local_driver)
        assert (choice.jars, choice.packages) == ((), ())
        assert "unchecked" in choice.origin


# -- the S3 transport, which the listener's jar does not contain

TRANSPORT = "io.openlineage:transports-s3:1.53.0"


def test_the_s3_transport_comes_in_the_listeners_version(spark: SparkInstallation, jar: Path, tmp_path: Path) -> None:
    transport = tmp_path / "transports-s3-1.53.0.jar"

    class Both(Repository):
        def resolve(self, coordinate: _Coordinate, /) -> tuple[Path, ...]:
            self.asked.append(str(coordinate))
            return (transport,) if coordinate.artifact == "transports-s3" else (jar,)

    def choice(setting: str, submission: Submission | None = None, *, local: bool = True) -> JarChoice:
        both = Both()
        return choose_jar(
            setting,
            submission or Submission(),
            installation=spark,
            local_driver=local,
            resolver=both,
            s3_transport=True,
        )

    assert choice(COORDINATE).jars == (str(jar), str(transport))
    assert choice(str(jar)).jars == (str(jar), str(transport))
    assert choice(COORDINATE, local=False).packages == (COORDINATE, TRANSPORT)
    assert choice(COORDINATE, Submission(packages=TRANSPORT), local=False).packages == (COORDINATE,)
    brought = choice(COORDINATE, Submission(packages=f"{COORDINATE},{TRANSPORT}"))
    provided = choice("provided", local=False)
    for one in (brought, provided):
        assert (one.jars, one.packages) == ((), ())


def test_without_the_s3_transport_the_job_gets_no_listener(spark: SparkInstallation, tmp_path: Path) -> None:
    unnumbered = openlineage_jar(tmp_path / "openlineage-spark_2.13.jar")
    for setting, local in ((str(unnumbered), True), ("s3://jars/openlineage-spark_2.13-1.53.0.jar", False)):
        with pytest.raises(InjectionError, match="S3 transport is not on the driver's class path"):
            choose_jar(
                setting,
                Submission(jars="/missing/transports-s3-1.53.0.jar" if local else None),
                installation=spark,
                local_driver=local,
                s3_transport=True,
            )
