"""The choice of the listener's jar, and Ivy, which resolves it."""

from __future__ import annotations

import os
import pwd
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from airflow_provider_spark_datahub.capture import SparkInstallation
from airflow_provider_spark_datahub.capture.openlineage_jar import (
    DEFAULT_OPENLINEAGE_JAR,
    JarChoice,
    SparkSubmit,
    _Coordinate,
    _IvyResolver,
    _UnresolvableError,
)
from airflow_provider_spark_datahub.capture.spark_installation import ScalaVersion
from airflow_provider_spark_datahub.capture.spark_submit import InjectionError, Submission
from tests.capture.installations import executable, openlineage_jar, spark_at
from tests.cases import cases, filled

COORDINATE = "io.openlineage:openlineage-spark_2.13:1.53.0"


@dataclass
class Repository:
    """A package resolver that knows the listener, and in another version nothing, and OpenLineage's
    S3 transport.
    """

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
        names = {
            "jar": str(self.jar),
            "tmp": str(self.folder),
            "default": DEFAULT_OPENLINEAGE_JAR,
            "coordinate": COORDINATE,
        }
        return filled(value, names)

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
            transport="s3" if situation.get("s3") else None,
            resolve=Repository(self.folder, files).resolve if is_known else None,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@cases("jars")
def test_the_jar_of_each_job_is_one_that_fits(
    machine: Machine,
    setting: str,
    job: dict[str, Any],
    situation: dict[str, Any],
    choice: dict[str, Any],
) -> None:
    found = machine.choose(setting, job, situation)
    expected = machine.filled(choice)
    for kind in ("class_path", "jars", "packages"):
        assert list(getattr(found, kind)) == expected.get(kind, []), kind
    assert expected.get("origin", "") in found.origin


@cases("jars")
def test_a_jar_that_may_kill_the_job_is_refused(
    machine: Machine,
    setting: str,
    job: dict[str, Any],
    situation: dict[str, Any],
    reasons: list[str],
) -> None:
    with pytest.raises(InjectionError) as caught:
        machine.choose(setting, job, situation)
    for reason in machine.filled(reasons):
        assert reason in str(caught.value)


@cases("capture")
def test_scala_version_is_that_of_the_code_then_of_the_name(
    tmp_path: Path, name: str, code: str | None, scala: str | None
) -> None:
    jar = openlineage_jar(tmp_path / name, code)

    def fits(spark_scala: ScalaVersion) -> bool:
        try:
            SparkSubmit(None, {}, True, scala_version=spark_scala).choose_jar(
                str(jar), Submission()
            )
        except InjectionError:
            return False
        return True

    versions: tuple[ScalaVersion, ...] = ("2.12", "2.13")
    assert [version for version in versions if fits(version)] == ([scala] if scala else [])


OPENLINEAGE = _Coordinate("io.openlineage", "openlineage-spark_2.13", "1.53.0")

# Stands for java: keeps what it was asked, and writes the class path that Ivy would.
FAKE_JAVA = """#!/bin/sh
folder=$(dirname "$0")
echo "$@" > "$folder/asked"
while [ $# -gt 1 ]; do
  [ "$1" = -settings ] && cp "$2" "$folder/settings.xml"
  [ "$1" = -cachepath ] && printf '%s' "$CLASS_PATH_OF_IVY" > "$2"
  shift
done
"""

FAILING_JAVA = """#!/bin/sh
cat <<'END'
:: problems summary ::
        module not found: g#a;1
                :: UNRESOLVED DEPENDENCIES ::
                :: g#a;1: not found
                ::::::::::::::::::::::::::::::::::::::::::::::
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
END
exit 1
"""


def resolver(
    tmp_path: Path,
    properties: Mapping[str, object] | None = None,
    *,
    java: str = FAKE_JAVA,
    spark: str = "4.3.0",
    class_path: str = "",
    env: Mapping[str, str] | None = None,
    timeout_seconds: float = 30,
    repositories: str | None = None,
) -> _IvyResolver:
    home = spark_at(tmp_path / "spark", spark, more_jars=["ivy-2.5.3.jar"])
    executable(tmp_path / "java/bin/java", java)
    installation = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(home)})
    assert installation is not None
    return _IvyResolver(
        installation,
        Submission(properties or {}, repositories=repositories),
        {
            "JAVA_HOME": str(tmp_path / "java"),
            "PATH": os.defpath,
            "CLASS_PATH_OF_IVY": class_path,
            **(env or {}),
        },
        timeout_seconds,
        user_home=tmp_path / "home",
    )


def cached(
    ivy_home: Path, *, descriptor: str = "<ivy-module/>", coordinate: _Coordinate = OPENLINEAGE
) -> Path:
    """Make a module in an Ivy cache, as spark-submit leaves it."""
    module = ivy_home / "cache" / coordinate.group / coordinate.artifact
    jar = module / "jars" / f"{coordinate.artifact}-{coordinate.version}.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    (module / f"ivy-{coordinate.version}.xml").write_text(descriptor)
    return jar


@cases("capture")
def test_only_a_coordinate_of_three_parts_is_one(text: str, is_one: bool) -> None:
    coordinate = _Coordinate.parse(text)
    assert (coordinate is not None) is is_one
    assert coordinate is None or str(coordinate) == text


@cases("capture")
def test_the_ivy_folder_is_that_of_the_sparks_version(
    tmp_path: Path, spark: str, properties: dict[str, object], folder: str
) -> None:
    assert resolver(tmp_path, properties, spark=spark).ivy_home() == tmp_path / folder


def test_the_home_folder_is_that_of_the_user_entry_as_in_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/of/the/shell")
    asked = replace(resolver(tmp_path), user_home=None)
    assert asked.ivy_home() == Path(pwd.getpwuid(os.getuid()).pw_dir, ".ivy2.5.2")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert asked.ivy_home() == Path("/home/of/the/shell/.ivy2.5.2")


def test_a_cached_module_needs_no_java_and_a_link_to_it_is_followed_once(tmp_path: Path) -> None:
    """Whoever owns the link could turn it elsewhere between the check and the submit."""
    jar = cached(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    asked = resolver(tmp_path, {"spark.jars.ivy": str(tmp_path / "link")}, java=FAILING_JAVA)
    assert asked.resolve(OPENLINEAGE) == (jar,)


@pytest.mark.parametrize(
    ("descriptor", "coordinate"),
    [
        pytest.param('<ivy-module><dependency org="g"/>', OPENLINEAGE, id="has dependencies"),
        pytest.param("<ivy-module/>", _Coordinate("g", "a", "1"), id="another module"),
    ],
)
def test_doubtful_cache_is_asked_through_ivy(
    tmp_path: Path, descriptor: str, coordinate: _Coordinate
) -> None:
    cached(tmp_path / "home/.ivy2.5.2", descriptor=descriptor, coordinate=coordinate)
    with pytest.raises(_UnresolvableError):
        resolver(tmp_path, java=FAILING_JAVA).resolve(OPENLINEAGE)


def test_artifact_comes_first_of_what_ivy_resolves(tmp_path: Path) -> None:
    own, other = "/cache/jars/openlineage-spark_2.13-1.53.0.jar", "/cache/jars/a-dependency-1.jar"
    asked = resolver(
        tmp_path, {"spark.jars.ivy": str(tmp_path / "ivy")}, class_path=f"{other}{os.pathsep}{own}"
    )
    assert asked.resolve(OPENLINEAGE) == (Path(own), Path(other))
    arguments = (tmp_path / "java/bin/asked").read_text().split()
    assert arguments[:3] == [
        "-cp",
        str(tmp_path / "spark/jars/ivy-2.5.3.jar"),
        "org.apache.ivy.Main",
    ]
    assert arguments[arguments.index("-cache") + 1] == str(tmp_path / "ivy/cache")
    assert arguments[-4:] == ["-dependency", "io.openlineage", "openlineage-spark_2.13", "1.53.0"]


def test_ivy_looks_where_spark_looks(tmp_path: Path) -> None:
    asked = resolver(
        tmp_path,
        env={"DEFAULT_ARTIFACT_REPOSITORY": "https://mirror.example/m2?a&b"},
        repositories="https://company.example/m2",
        class_path="/openlineage-spark_2.13-1.53.0.jar",
    )
    asked.resolve(OPENLINEAGE)
    chain = ET.parse(tmp_path / "java/bin/settings.xml").find("resolvers/chain")
    assert chain is not None
    assert [(child.get("name"), child.get("root")) for child in chain] == [
        ("local-m2-cache", (tmp_path / "home/.m2/repository").as_uri() + "/"),
        ("local-ivy-cache", None),
        ("central", "https://mirror.example/m2?a&b"),
        ("repo-1", "https://company.example/m2"),
    ]


def test_settings_of_the_user_are_used(tmp_path: Path) -> None:
    own = tmp_path / "own.xml"
    own.write_text("<ivysettings/>")
    properties = {"spark.jars.ivySettings": f"file://{own}"}
    resolver(tmp_path, properties, class_path="/openlineage-spark_2.13-1.53.0.jar").resolve(
        OPENLINEAGE
    )
    assert (tmp_path / "java/bin/settings.xml").read_text() == "<ivysettings/>"


@pytest.mark.slow
@cases("capture")
def test_a_coordinate_that_does_not_resolve_says_why(
    tmp_path: Path, java: str, class_path: str, reason: str
) -> None:
    java = {"fake": FAKE_JAVA, "failing": FAILING_JAVA}.get(java, java)
    with pytest.raises(_UnresolvableError, match=reason):
        resolver(tmp_path, java=java, class_path=class_path, timeout_seconds=0.5).resolve(
            OPENLINEAGE
        )


def test_without_java_or_ivy_nothing_resolves(tmp_path: Path) -> None:
    asked = resolver(tmp_path)
    (tmp_path / "java/bin/java").unlink()
    with pytest.raises(_UnresolvableError, match="no java in JAVA_HOME"):
        asked.resolve(OPENLINEAGE)
    (tmp_path / "spark/jars/ivy-2.5.3.jar").unlink()
    with pytest.raises(_UnresolvableError, match=r"no ivy-\*\.jar"):
        asked.resolve(OPENLINEAGE)
