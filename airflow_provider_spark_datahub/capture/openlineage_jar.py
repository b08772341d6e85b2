"""Which OpenLineage jar a job gets, checked before the submit.

A listener without its jar, a jar of the wrong Scala version or a coordinate that does not resolve kills the *job*: a
jar is only chosen where it will work, and everything else is a :class:`JarProblemError` with the reason.

Where the driver runs elsewhere (cluster deploy mode), the driver's class path cannot be seen from here: the setting
``provided`` and URIs are trusted there, and a coordinate is proven from this machine only.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import unquote, urlsplit

from airflow_provider_spark_datahub.capture.ivy import Coordinate, UnresolvableError
from airflow_provider_spark_datahub.capture.spark_install import ScalaVersion, SparkInstallation
from airflow_provider_spark_datahub.capture.submission import Submission

DEFAULT_OPENLINEAGE_JAR = "io.openlineage:openlineage-spark_{scala}:1.53.0"
PROVIDED = "provided"

_LISTENER_CLASS = "io/openlineage/spark/agent/OpenLineageSparkListener.class"
_ARTIFACT = r"openlineage-spark(?:_(?P<scala>\d+\.\d+))?"
_ARTIFACT_NAME = re.compile(_ARTIFACT)
_FILE_NAME = re.compile(rf"{_ARTIFACT}(?:-\d.*)?\.jar")
_POM = re.compile(r"META-INF/maven/io\.openlineage/openlineage-spark_(?P<scala>\d+\.\d+)/pom\.properties")
# The listener calls Spark methods that return scala.Seq, which is another class in either Scala version.
_SEQ_OF_SCALA: dict[bytes, ScalaVersion] = {
    b"()Lscala/collection/Seq;": "2.12",
    b"()Lscala/collection/immutable/Seq;": "2.13",
}


class JarProblemError(Exception):
    """No OpenLineage jar can be given to the job without a danger for the job.

    :param reason: for the user: what is wrong with which setting or file, and what to do.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class JarChoice:
    """How the listener gets onto the driver's class path.

    :param jars: paths or URIs to add to the job's jars; empty where the jar is there already.
    :param packages: Maven coordinates to add to the job's packages.
    :param origin: for the log: where the jar comes from.
    """

    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    origin: str = ""


class PackageResolver(Protocol):
    """Finds the files of a Maven coordinate: :class:`~airflow_provider_spark_datahub.capture.ivy.IvyResolver`."""

    def resolve(self, coordinate: Coordinate, /) -> tuple[Path, ...]:
        """The artifact's local file and those of its dependencies; raises ``UnresolvableError``."""


def choose_jar(
    setting: str,
    submission: Submission,
    *,
    installation: SparkInstallation | None,
    local_driver: bool,
    resolver: PackageResolver | None = None,
    scala_version: ScalaVersion | None = None,
) -> JarChoice:
    """Decide on the jar for one submission.

    A jar that the job brings itself (jars, packages, driver class path, Spark's own jars folder) is used, and no
    second one is added. Else the setting is: an absolute path or ``file:`` URI; another URI, which Spark fetches
    itself; a Maven coordinate; or ``provided``. ``{scala}`` in it stands for Spark's Scala version.

    :param local_driver: the driver runs on this machine (client deploy mode, or a ``local`` master).
    :param resolver: proves coordinates; a coordinate for a local driver needs it.
    :param scala_version: Spark's, where the installation is not known but its version is.
    :raises JarProblemError: there is no jar with which the job is safe.
    """
    scala = installation.scala_version if installation else scala_version
    chooser = _Chooser(submission, installation, local_driver, resolver, scala)
    return chooser.brought_by_the_job() or chooser.by_setting(setting.strip())


def listener_scala_version(jar: Path) -> ScalaVersion | None:
    """The Scala version that the OpenLineage jar was built for, or None where it does not show.

    :raises JarProblemError: there is no such file, it is no jar, or a jar without the listener.
    """
    try:
        with zipfile.ZipFile(jar) as archive:
            listener = archive.read(_LISTENER_CLASS)
            poms = [match for match in map(_POM.fullmatch, archive.namelist()) if match]
    except FileNotFoundError as error:
        raise JarProblemError(f"the OpenLineage jar {jar} does not exist on this machine") from error
    except KeyError as error:
        raise JarProblemError(f"{jar} is no OpenLineage jar: it does not hold {_LISTENER_CLASS}") from error
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise JarProblemError(f"the OpenLineage jar {jar} cannot be read: {error}") from error
    built_for = {version for marker, version in _SEQ_OF_SCALA.items() if marker in listener}
    if len(built_for) == 1:
        return built_for.pop()
    return _scala_in_name(jar.name) or (_known_scala(poms[0]["scala"]) if poms else None)


@dataclass(frozen=True, slots=True)
class _Chooser:
    submission: Submission
    installation: SparkInstallation | None
    local_driver: bool
    resolver: PackageResolver | None
    scala: ScalaVersion | None

    def brought_by_the_job(self) -> JarChoice | None:
        for entry in self._entries_of_the_job():
            if not _is_openlineage(entry):
                continue
            local = _local_file(entry)
            if local is not None and local.is_file():
                self._check_file(local)
            elif local is not None and self.local_driver:
                # Spark skips a jar that does not exist, and the listener would then kill the job.
                continue
            else:
                self._check_name(entry)
            return JarChoice(origin=f"the job's own {entry}")
        return None

    def by_setting(self, setting: str) -> JarChoice:
        if setting.lower() == PROVIDED:
            return self._provided()
        if "," in setting:
            raise JarProblemError(f"openlineage_jar {setting!r} holds a comma: it names one jar")
        setting = self._filled(setting)
        if (coordinate := Coordinate.parse(setting)) is not None:
            return self._package(coordinate)
        local = _local_file(setting)
        if local is not None and local.is_absolute():
            return self._file(local, setting)
        if local is not None:
            raise JarProblemError(
                f"openlineage_jar {setting!r} is neither an absolute path, nor a URI, nor a Maven coordinate "
                f"(group:artifact:version), nor {PROVIDED!r}"
            )
        self._check_name(setting)
        return JarChoice(jars=(setting,), origin=setting)

    def _entries_of_the_job(self) -> Iterator[str]:
        yield from self.submission.effective_jars()
        yield from self.submission.effective_packages()
        for entry in self.submission.effective_driver_class_path():
            yield entry
            if self.local_driver:
                yield from map(str, _jars_of_class_path_entry(entry))
        if self.installation and self.local_driver:
            yield from map(str, sorted(self.installation.jars.glob("*openlineage*.jar")))

    def _provided(self) -> JarChoice:
        if not self.local_driver or self.installation is None:
            return JarChoice(origin="provided, unchecked: the driver's class path cannot be seen from here")
        class_path = [file for entry in self._entries_of_the_job() if (file := _local_file(entry)) is not None]
        for jar in (*class_path, *sorted(self.installation.jars.glob("*.jar"))):
            if _holds_listener(jar):
                self._check_file(jar)
                return JarChoice(origin=f"provided: {jar}")
        raise JarProblemError(
            "openlineage_jar is 'provided', but the OpenLineage listener is neither in the job's jars or packages, nor "
            f"on the driver's class path, nor in {self.installation.jars}"
        )

    def _file(self, path: Path, setting: str) -> JarChoice:
        if setting.startswith("local:") and not self.local_driver:
            return JarChoice(jars=(setting,), origin=f"{setting}, unchecked: it is on the driver's machine")
        self._check_file(path)
        return JarChoice(jars=(setting,), origin=setting)

    def _filled(self, setting: str) -> str:
        if "{scala}" in setting and self.scala is None:
            raise JarProblemError(
                f"openlineage_jar {setting!r} needs Spark's Scala version, and the Spark of this spark-submit is not "
                "known: name the jar in full (_2.12 for Spark 3.5, _2.13 for Spark 4)"
            )
        return setting.replace("{scala}", self.scala or "")

    def _package(self, coordinate: Coordinate) -> JarChoice:
        self._check_name(str(coordinate))
        if self.resolver is None:
            if self.local_driver:
                raise JarProblemError(
                    f"{coordinate} cannot be proven to resolve: the Spark of this spark-submit is not known"
                )
            return JarChoice(packages=(str(coordinate),), origin=f"{coordinate}, unchecked: no Ivy on this machine")
        try:
            files = self.resolver.resolve(coordinate)
        except UnresolvableError as error:
            raise JarProblemError(f"the OpenLineage package {coordinate} does not resolve: {error}") from error
        self._check_file(files[0])
        if self.local_driver:
            # The resolved files instead of the coordinate: spark-submit then has nothing left to resolve.
            return JarChoice(jars=tuple(map(str, files)), origin=str(coordinate))
        return JarChoice(packages=(str(coordinate),), origin=str(coordinate))

    def _check_file(self, path: Path) -> None:
        self._check(listener_scala_version(path), str(path))

    def _check_name(self, name: str) -> None:
        scala = _scala_in_name(name)
        if scala is not None or self.local_driver:
            self._check(scala, name)

    def _check(self, jar_scala: ScalaVersion | None, jar: str) -> None:
        if jar_scala is None:
            raise JarProblemError(
                f"the Scala version of {jar} is not known: use a published openlineage-spark_2.12 or _2.13 jar"
            )
        if self.scala is None:
            if self.local_driver:
                raise JarProblemError(
                    f"the Scala version of Spark is not known, so {jar} may kill the job; set SPARK_HOME"
                )
            return
        if jar_scala != self.scala:
            version = (self.installation and self.installation.spark_version) or "this version"
            raise JarProblemError(
                f"{jar} is built for Scala {jar_scala}, Spark {version} runs on Scala {self.scala}: "
                f"the job would die of it; use openlineage-spark_{self.scala}"
            )


def _is_openlineage(entry: str) -> bool:
    return _openlineage_name(entry) is not None


def _scala_in_name(entry: str) -> ScalaVersion | None:
    match = _openlineage_name(entry)
    return _known_scala(match["scala"]) if match else None


def _openlineage_name(entry: str) -> re.Match[str] | None:
    if (coordinate := Coordinate.parse(entry)) is not None:
        return _ARTIFACT_NAME.fullmatch(coordinate.artifact)
    return _FILE_NAME.fullmatch(PurePosixPath(urlsplit(entry).path if "://" in entry else entry).name)


def _known_scala(text: str | None) -> ScalaVersion | None:
    return next((version for version in _SEQ_OF_SCALA.values() if version == text), None)


def _local_file(entry: str) -> Path | None:
    """The path of a path, ``file:`` or ``local:`` URI; None for another URI or a coordinate."""
    parts = urlsplit(entry)
    if not parts.scheme:
        return Path(entry)
    return Path(unquote(parts.path)) if parts.scheme in ("file", "local") else None


def _jars_of_class_path_entry(entry: str) -> list[Path]:
    return sorted(Path(entry).parent.glob("*.jar")) if entry.endswith("/*") else []


def _holds_listener(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as archive:
            return _LISTENER_CLASS in archive.NameToInfo
    except (OSError, zipfile.BadZipFile):
        return False
