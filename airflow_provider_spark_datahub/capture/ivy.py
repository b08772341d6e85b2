"""Proves before the submit that a Maven coordinate resolves, with the Ivy and the cache that spark-submit would use."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from airflow_provider_spark_datahub.capture.spark_install import SparkInstallation
from airflow_provider_spark_datahub.capture.submission import Submission

_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+", re.ASCII)


class UnresolvableError(Exception):
    """A Maven coordinate that spark-submit would not resolve; the message says why."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A Maven coordinate."""

    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Coordinate | None:
        """``group:artifact:version``, or None where ``text`` is something else."""
        return cls(*text.split(":")) if _COORDINATE.fullmatch(text) else None

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True, slots=True)
class IvyResolver:
    """Resolves as one Spark installation would for one submission.

    :param env: the environment of spark-submit (``JAVA_HOME``, ``PATH``, ``DEFAULT_ARTIFACT_REPOSITORY``).
    :param timeout_seconds: for one resolution, download included.
    :param user_home: Java's ``user.home``; default: that of the operating system's user entry.
    """

    installation: SparkInstallation
    submission: Submission
    env: Mapping[str, str]
    timeout_seconds: float
    user_home: Path | None = None

    def ivy_home(self) -> Path:
        """Spark's Ivy folder: ``spark.jars.ivy``, else ``~/.ivy2.5.2`` since Spark 4 and ``~/.ivy2`` before."""
        setting = (self.submission.effective("spark.jars.ivy") or "").strip()
        if setting:
            return Path(setting)
        before_4 = (self.installation.spark_version or "").startswith(("2.", "3."))
        return self._home() / (".ivy2" if before_4 else ".ivy2.5.2")

    def resolve(self, coordinate: Coordinate) -> tuple[Path, ...]:
        """The local files of the artifact and of what it depends on; the artifact first.

        :raises UnresolvableError: not found, no network, no Java or no Ivy, or not within the time.
        """
        cached = self._cached(coordinate)
        return (cached,) if cached else self._resolved_by_ivy(coordinate)

    def _cached(self, coordinate: Coordinate) -> Path | None:
        module = self.ivy_home() / "cache" / coordinate.group / coordinate.artifact
        jar = module / "jars" / f"{coordinate.artifact}-{coordinate.version}.jar"
        try:
            descriptor = (module / f"ivy-{coordinate.version}.xml").read_text("utf-8", "replace")
        except OSError:
            return None
        return jar if "<dependency " not in descriptor and jar.is_file() else None

    def _resolved_by_ivy(self, coordinate: Coordinate) -> tuple[Path, ...]:
        ivy, java = self.installation.ivy_jar(), self._java()
        if ivy is None:
            raise UnresolvableError(f"there is no ivy-*.jar in {self.installation.jars}")
        if java is None:
            raise UnresolvableError("there is no java in JAVA_HOME or on the PATH")
        with tempfile.TemporaryDirectory(prefix="ivy-") as folder:
            class_path = Path(folder, "class-path")
            command = [java, "-cp", str(ivy), "org.apache.ivy.Main", "-settings", str(self._settings(Path(folder)))]
            command += ["-cache", str(self.ivy_home() / "cache"), "-types", "jar", "bundle"]
            command += ["-cachepath", str(class_path)]
            command += ["-dependency", coordinate.group, coordinate.artifact, coordinate.version]
            self._run(command)
            found = class_path.read_text().strip() if class_path.is_file() else ""
        jars = [Path(entry) for entry in found.split(os.pathsep) if entry]
        own = f"{coordinate.artifact}-{coordinate.version}.jar"
        if not any(jar.name == own for jar in jars):
            raise UnresolvableError(f"Ivy resolved it without a jar of the name {own}")
        return tuple(sorted(jars, key=lambda jar: jar.name != own))

    def _run(self, command: list[str]) -> None:
        try:
            answer = subprocess.run(
                command, env=dict(self.env), capture_output=True, timeout=self.timeout_seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnresolvableError(f"Ivy did not finish within {self.timeout_seconds:g} seconds") from error
        except OSError as error:
            raise UnresolvableError(f"Ivy could not be started: {error}") from error
        if answer.returncode:
            output = (answer.stdout + answer.stderr).decode("utf-8", "replace")
            raise UnresolvableError(f"Ivy says: {_last_words(output)}")

    def _java(self) -> str | None:
        java_home = self.env.get("JAVA_HOME")
        return shutil.which("java", path=str(Path(java_home, "bin")) if java_home else self.env.get("PATH"))

    def _home(self) -> Path:
        if self.user_home is not None:
            return self.user_home
        try:
            return Path(pwd.getpwuid(os.getuid()).pw_dir)
        except KeyError:
            return Path.home()

    def _settings(self, folder: Path) -> Path:
        own = (self.submission.effective("spark.jars.ivySettings") or "").strip()
        if own:
            return Path(own.removeprefix("file://").removeprefix("file:"))
        path = folder / "ivysettings.xml"
        path.write_text(self._settings_like_sparks(), "utf-8")
        return path

    def _settings_like_sparks(self) -> str:
        """The resolvers that Spark builds in ``MavenUtils.createRepoResolvers``, by the same names.

        Without an address Ivy takes Maven Central. Spark's last resolver, for the community's Spark packages, is left
        out: OpenLineage is not published there.
        """
        local = f"{self.ivy_home()}/local/[organisation]/[module]/[revision]"
        remote = [("central", self.env.get("DEFAULT_ARTIFACT_REPOSITORY"))]
        remote += [(f"repo-{n}", url) for n, url in enumerate(self.submission.effective_repositories(), start=1)]
        m2 = (self._home() / ".m2" / "repository").as_uri() + "/"
        lines = [
            "<ivysettings>",
            '<property name="ivy.maven.lookup.sources" value="false"/>',
            '<property name="ivy.maven.lookup.javadoc" value="false"/>',
            '<settings defaultResolver="spark-list"/>',
            '<resolvers><chain name="spark-list">',
            _maven_resolver("local-m2-cache", m2),
            '<filesystem name="local-ivy-cache" local="true">',
            f"<ivy pattern={quoteattr(f'{local}/ivys/ivy.xml')}/>",
            f"<artifact pattern={quoteattr(f'{local}/[type]s/[artifact](-[classifier]).[ext]')}/>",
            "</filesystem>",
            *(_maven_resolver(name, url) for name, url in remote),
            "</chain></resolvers>",
            "</ivysettings>",
        ]
        return "\n".join(lines)


def _maven_resolver(name: str, root: str | None) -> str:
    address = f" root={quoteattr(root)}" if root else ""
    return f'<ibiblio name={quoteattr(name)} m2compatible="true" usepoms="true"{address}/>'


_TELLING = re.compile(r": not found|unresolved|error|exception|refused|unknown ?host|timed out", re.IGNORECASE)


def _last_words(output: str) -> str:
    lines = [line.strip(" \t:") for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith("USE VERBOSE")]
    telling = [line for line in lines if _TELLING.search(line) and line != "UNRESOLVED DEPENDENCIES"]
    return (telling or lines or ["nothing"])[-1][:300]
