from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.capture.openlineage_jar import (
    DEFAULT_OPENLINEAGE_JAR,
    JarChoice,
    SparkSubmit,
    _Coordinate,
    _UnresolvableError,
)
from airflow_provider_spark_datahub.capture.spark_installation import ScalaVersion
from airflow_provider_spark_datahub.capture.spark_submit import InjectionError, Submission
from tests.capture.installations import openlineage_jar, spark_at
from tests.cases import cases

COORDINATE = "io.openlineage:openlineage-spark_2.13:1.53.0"


@dataclass
class Repository:
    """A package resolver that knows the listener, and in another version nothing, and OpenLineage's S3 transport."""

    folder: Path
    files: list[str]

    def resolve(self, coordinate: _Coordinate, /) -> tuple[Path, ...]:
        if coordinate.artifact == "transports-s3":
            return (self.folder / f"transports-s3-{coordinate.version}.jar",)
        if not self.files:
            raise _UnresolvableError("Ivy says: not found")
        assert str(coordinate) == COORDINATE
        return tuple(map(Path, self.files))


class Machine:
    """A machine with a Spark and OpenLineage's jars, as the tables of cases describe it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jar = openlineage_jar(folder / "openlineage-spark_2.13-1.53.0.jar")
        for name, scala in (("spark_2.12-1.53.0", "2.12"), ("spark_2.13", "2.13")):
            openlineage_jar(folder / f"openlineage-{name}.jar", scala)
        openlineage_jar(folder / "bundle.jar", "2.12")
        for name in ("lib", "a:b"):
            (folder / name).mkdir()
            openlineage_jar(folder / name / self.jar.name)
        (folder / "text.jar").write_text("no zip")
        with zipfile.ZipFile(folder / "other.jar", "w") as archive:
            archive.writestr("org/example/Other.class", b"")
        spark_at(folder / "spark")

    def filled(self, value: Any) -> Any:
        """Return a value of a table with the machine's names in it."""
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        names = {"jar": self.jar, "tmp": self.folder, "default": DEFAULT_OPENLINEAGE_JAR, "coordinate": COORDINATE}
        for name, text in names.items() if isinstance(value, str) else ():
            value = value.replace(f"<{name}>", str(text))
        return value

    def choose(self, setting: str, job: dict[str, Any], situation: dict[str, Any]) -> JarChoice:
        """Return the choice for a row of a table."""
        for name in situation.get("beside", ()):
            openlineage_jar(self.folder / "spark" / "jars" / name)
        is_known, files = situation.get("spark", True), self.filled(situation.get("resolves", []))
        env = {"SPARK_HOME": str(self.folder / "spark")}
        spark = SparkSubmit(
            "spark-submit" if is_known else None,
            env,
            situation.get("local", True),
            scala_version=situation.get("scala"),
        )
        return spark.choose_jar(
            self.filled(setting),
            Submission(**self.filled(job)),
            s3_transport=situation.get("s3", False),
            resolver=Repository(self.folder, files) if is_known else None,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@cases("jars")
def test_the_jar_of_each_job_is_one_that_fits(
    machine: Machine, setting: str, job: dict[str, Any], situation: dict[str, Any], choice: dict[str, Any]
) -> None:
    found = machine.choose(setting, job, situation)
    expected = machine.filled(choice)
    for kind in ("class_path", "jars", "packages"):
        assert list(getattr(found, kind)) == expected.get(kind, []), kind
    assert expected.get("origin", "") in found.origin


@cases("jars")
def test_a_jar_that_may_kill_the_job_is_refused(
    machine: Machine, setting: str, job: dict[str, Any], situation: dict[str, Any], reasons: list[str]
) -> None:
    with pytest.raises(InjectionError) as caught:
        machine.choose(setting, job, situation)
    for reason in machine.filled(reasons):
        assert reason in str(caught.value)


@cases("capture")
def test_scala_version_is_that_of_the_code_then_of_the_name(
    tmp_path: Path, name: str, code: str | None, pom: str | None, scala: str | None
) -> None:
    jar = openlineage_jar(tmp_path / name, code, pom_scala=pom)

    def fits(spark_scala: ScalaVersion) -> bool:
        try:
            SparkSubmit(None, {}, True, scala_version=spark_scala).choose_jar(str(jar), Submission())
        except InjectionError:
            return False
        return True

    versions: tuple[ScalaVersion, ...] = ("2.12", "2.13")
    assert [version for version in versions if fits(version)] == ([scala] if scala else [])
