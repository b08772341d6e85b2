"""Choice of the OpenLineage jar for a job, checked before the submit.

A listener without its jar, a jar for the wrong Scala version, or a coordinate that does not resolve
kills the *job*. So a jar is only chosen if it will work; everything else is an
:class:`InjectionError` with the reason.

If the driver runs elsewhere (cluster deploy mode), its class path is not visible here. Then
``provided`` and URIs are not checked, and a coordinate is resolved on this machine only.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import quoteattr

import msgspec

from airflow_provider_spark_datahub.capture import spark_installation as spark
from airflow_provider_spark_datahub.capture.spark_submit import InjectionError, Submission
from airflow_provider_spark_datahub.foundation.files import is_file, replaceable

_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+", re.ASCII)


class _UnresolvableError(Exception):
    """A Maven coordinate does not resolve; the message says why."""


class _Coordinate(msgspec.Struct, frozen=True):
    """A Maven coordinate."""

    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, text: str) -> _Coordinate | None:
        """Parse ``group:artifact:version``; return ``None`` for any other text."""
        return cls(*text.split(":")) if _COORDINATE.fullmatch(text) else None

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True)
class _IvyResolver:
    """Resolver of Maven coordinates that works as one Spark installation does for one submission.

    :param env: the environment of spark-submit (``JAVA_HOME``, ``PATH``,
        ``DEFAULT_ARTIFACT_REPOSITORY``).
    :param timeout_seconds: for one resolution, download included; a first one is 43 MB.
    :param user_home: Java's ``user.home``; default: the home folder in the operating system's user
        entry.
    """

    installation: spark.SparkInstallation
    submission: Submission
    env: Mapping[str, str]
    timeout_seconds: float = 60.0
    user_home: Path | None = None

    def ivy_home(self) -> Path:
        """Return Spark's Ivy folder: ``spark.jars.ivy``, else ``~/.ivy2.5.2`` since Spark 4 and
        ``~/.ivy2`` before.
        """
        setting = (self.submission.effective("spark.jars.ivy") or "").strip()
        if setting:
            return Path(setting)
        before_4 = (self.installation.spark_version or "").startswith(("2.", "3."))
        return self._home() / (".ivy2" if before_4 else ".ivy2.5.2")

    def resolve(self, coordinate: _Coordinate) -> tuple[Path, ...]:
        """Return the local files of the artifact, which comes first, and of its dependencies.

        :raises _UnresolvableError: if it is not found in time, there is no network, Java or Ivy, or
            another user could replace a file.
        """
        module = self.ivy_home() / "cache" / coordinate.group / coordinate.artifact
        jar = module / "jars" / f"{coordinate.artifact}-{coordinate.version}.jar"
        with suppress(OSError):
            descriptor = (module / f"ivy-{coordinate.version}.xml").read_text("utf-8", "replace")
            if "<dependency " not in descriptor and jar.is_file():
                return self._checked((jar,))
        return self._checked(self._resolved_by_ivy(coordinate))

    @staticmethod
    def _checked(jars: tuple[Path, ...]) -> tuple[Path, ...]:
        # Spark gets the checked paths: another user may turn a link elsewhere after the check.
        jars = tuple(Path(os.path.realpath(jar)) for jar in jars)
        for jar in jars:
            # Not the group: in Airflow's image, all files of the user are writable for his group.
            if is_file(jar) and (problem := replaceable(jar, writers=0o002)):
                raise _UnresolvableError(f"{problem}; see spark.jars.ivy")
        return jars

    def _resolved_by_ivy(self, coordinate: _Coordinate) -> tuple[Path, ...]:
        ivy, java = self.installation.ivy_jar(), spark.java_command(self.env)
        if ivy is None:
            raise _UnresolvableError(f"there is no ivy-*.jar in {self.installation.jars}")
        if java is None:
            raise _UnresolvableError("there is no java in JAVA_HOME or on the PATH")
        with tempfile.TemporaryDirectory(prefix="ivy-") as folder:
            class_path = Path(folder, "class-path")
            command = [
                java,
                "-cp",
                str(ivy),
                "org.apache.ivy.Main",
                "-settings",
                str(self._settings(Path(folder))),
            ]
            command += ["-cache", str(self.ivy_home() / "cache"), "-types", "jar", "bundle"]
            command += ["-cachepath", str(class_path)]
            command += ["-dependency", coordinate.group, coordinate.artifact, coordinate.version]
            self._run(command)
            found = class_path.read_text().strip() if class_path.is_file() else ""
        jars = [Path(entry) for entry in found.split(os.pathsep) if entry]
        own = f"{coordinate.artifact}-{coordinate.version}.jar"
        if not any(jar.name == own for jar in jars):
            raise _UnresolvableError(f"Ivy resolved it without a jar named {own}")
        return tuple(sorted(jars, key=lambda jar: jar.name != own))

    def _run(self, command: list[str]) -> None:
        try:
            answer = subprocess.run(
                command,
                env=dict(self.env),
                capture_output=True,
                timeout=self.timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _UnresolvableError(
                f"Ivy did not finish within {self.timeout_seconds:g} seconds"
            ) from error
        except OSError as error:
            raise _UnresolvableError(f"Ivy could not be started: {error}") from error
        if answer.returncode:
            output = (answer.stdout + answer.stderr).decode("utf-8", "replace")
            raise _UnresolvableError(f"Ivy reports: {_main_message(output)}")

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
        path.write_text(self._default_settings(), "utf-8")
        return path

    def _default_settings(self) -> str:
        """Return the resolvers of Spark's ``MavenUtils.createRepoResolvers`` that may have
        OpenLineage.
        """
        local = f"{self.ivy_home()}/local/[organisation]/[module]/[revision]"
        remote = [("central", self.env.get("DEFAULT_ARTIFACT_REPOSITORY"))]
        remote += [
            (f"repo-{n}", url)
            for n, url in enumerate(self.submission.effective_repositories(), start=1)
        ]
        m2 = (self._home() / ".m2" / "repository").as_uri() + "/"
        ivy = quoteattr(f"{local}/ivys/ivy.xml")
        artifact = quoteattr(f"{local}/[type]s/[artifact](-[classifier]).[ext]")
        return f"""<ivysettings>
<property name="ivy.maven.lookup.sources" value="false"/>
<property name="ivy.maven.lookup.javadoc" value="false"/>
<settings defaultResolver="spark-list"/>
<resolvers><chain name="spark-list">
{_maven_resolver("local-m2-cache", m2)}
<filesystem name="local-ivy-cache" local="true">
<ivy pattern={ivy}/>
<artifact pattern={artifact}/>
</filesystem>
{"".join(_maven_resolver(name, url) for name, url in remote)}
</chain></resolvers>
</ivysettings>
"""


def _maven_resolver(name: str, root: str | None) -> str:
    address = f" root={quoteattr(root)}" if root else ""
    return f'<ibiblio name={quoteattr(name)} m2compatible="true" usepoms="true"{address}/>'


_MEANINGFUL = re.compile(
    r": not found|unresolved|error|exception|refused|unknown ?host|timed out", re.IGNORECASE
)


def _main_message(output: str) -> str:
    lines = [line.strip(" \t:") for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith("USE VERBOSE")]
    meaningful = [
        line for line in lines if _MEANINGFUL.search(line) and line != "UNRESOLVED DEPENDENCIES"
    ]
    return (meaningful or lines or ["nothing"])[-1][:300]


DEFAULT_OPENLINEAGE_JAR = "io.openlineage:openlineage-spark_{scala}:1.53.0"
_PROVIDED = "provided"

_LISTENER_CLASS = "io/openlineage/spark/agent/OpenLineageSparkListener.class"
_ARTIFACT = r"openlineage-spark(?:_(?P<scala>\d+\.\d+))?"
_ARTIFACT_NAME = re.compile(_ARTIFACT)
_FILE_NAME = re.compile(rf"{_ARTIFACT}(?:-\d.*)?\.jar")
_TRANSPORT_NAME = re.compile(r"(transports-(?:s3|gcs))(?:-\d.*\.jar|\.jar)?")
_VERSION = re.compile(r"(?:_\d+\.\d+)?[-:](\d[\w.-]*)")
# The listener calls Spark methods that return scala.Seq, which is another class in either Scala
# version.
_SEQ_OF_SCALA: dict[bytes, spark.ScalaVersion] = {
    b"()Lscala/collection/Seq;": "2.12",
    b"()Lscala/collection/immutable/Seq;": "2.13",
}


class JarChoice(msgspec.Struct, frozen=True):
    """Choice of how the listener gets to the driver; empty if it is there already.

    :param class_path: absolute paths to add to the driver's class path, which no executor fetches.
    :param jars: paths or URIs to add to the job's jars, which every executor fetches.
    :param origin: source of the jar, for the log.
    """

    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    origin: str = ""
    class_path: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The listener's version; empty if the name of its jar has none."""
        version = _VERSION.fullmatch(
            self.origin.rpartition("openlineage-spark")[2].removesuffix(".jar")
        )
        return version[1] if version else ""


@dataclass(frozen=True)
class SparkSubmit:
    """The ``spark-submit`` that will run.

    :param binary: the command; ``None`` if it runs on another machine, whose Spark is not visible
        from here.
    :param env: its whole environment.
    :param local_driver: the driver runs on this machine.
    :param properties_file: the ``--properties-file`` option.
    :param also_defaults: the flag ``--load-spark-defaults``.
    :param scala_version: Scala version of a Spark that is not visible from here, if it is known.
    :param suffixed_name: application name to which the launcher appends a random suffix, if it does
        so.
    :param unnamed_as: name for an application whose script gives it none.
    :param argument_bytes: size of its arguments beyond the submission, such as the application's.
    :param store_scheme: scheme of the object store that a driver elsewhere surely writes to, as
        Spark there spells it: ``s3``, ``s3a`` or ``gs``; ``None`` if that is not known.
    :param shares_disk: whether driver and worker may have a disk in common.
    :param banner_seconds: time for ``spark-submit --version``, which is called if its folder does
        not show its Spark.
    """

    binary: str | None
    env: Mapping[str, str]
    local_driver: bool
    properties_file: str | None = None
    also_defaults: bool = False
    scala_version: spark.ScalaVersion | None = None
    suffixed_name: str | None = None
    unnamed_as: str | None = None
    argument_bytes: int = 0
    store_scheme: str | None = None
    shares_disk: bool = True
    banner_seconds: float = 20.0

    @cached_property
    def installation(self) -> spark.SparkInstallation | None:
        """The Spark that it starts; ``None`` if that is not visible from here."""
        return spark.SparkInstallation.find(self.binary, self.env) if self.binary else None

    def with_base(self, submission: Submission) -> Submission:
        """Return the submission over the properties that Spark reads below ``--conf``.

        :raises OSError: if the properties file cannot be read; spark-submit will fail for the same
            reason.
        """
        installation, file = self.installation, self.properties_file
        # A driver in a container has environment variables that spark-submit does not see.
        names = ("PATH", "SPARK_CONF_DIR", "SPARK_HOME")
        is_ours = self.binary is not None and all(
            self.env.get(name) == os.environ.get(name) for name in names
        )
        return replace(
            submission,
            base_properties=spark.base_properties(
                installation, file, also_defaults=self.also_defaults
            ),
            base_file=spark.base_file(installation, file),
            replaceable=is_ours
            and spark.knows_base_file(installation, file, self.binary or "", self.env),
        )

    def choose_jar(
        self,
        setting: str,
        submission: Submission,
        *,
        transport: str | None = None,
        seconds: float = 60.0,
        resolve: Callable[[_Coordinate], tuple[Path, ...]] | None = None,
    ) -> JarChoice:
        """Choose the jar for one submission.

        A jar that the job brings itself (jars, packages, driver class path, Spark's own jars
        folder) is used. Otherwise ``setting`` decides: an absolute path or ``file:`` URI; another
        URI, which Spark fetches itself; a Maven coordinate; or ``provided``. ``{scala}`` in it
        stands for Spark's Scala version. A file of this machine goes onto the driver's class path
        if the job brings no jars, packages or application jar of its own.

        :param transport: also choose OpenLineage's transport to an object store, ``s3`` or ``gcs``:
            the job's own, or one of the listener's version.
        :param seconds: time to resolve a coordinate.
        :param resolve: resolves coordinates; by default this Spark's Ivy.
        :raises InjectionError: if no jar is safe for the job.
        """
        installation, scala = self.installation, self.scala_version
        if installation is not None:
            scala = installation.scala_version
            resolve = resolve or _IvyResolver(installation, submission, self.env, seconds).resolve
        elif self.binary and self.banner_seconds:
            versions = spark.banner_versions(self.binary, self.env, self.banner_seconds)
            scala = versions[1] if versions else scala
        chooser = _Chooser(submission, installation, self.local_driver, resolve, scala)
        listener = chooser.brought_by_the_job() or chooser.by_setting(setting.strip())
        return chooser.with_transport(listener, transport) if transport else listener


def _listener_scala_version(jar: Path) -> spark.ScalaVersion | None:
    """Return the Scala version that an OpenLineage jar was built for; ``None`` if it is not
    recognisable.

    :raises InjectionError: if the file does not exist, is not a jar, or does not hold the listener.
    """
    try:
        with zipfile.ZipFile(jar) as archive:
            listener = archive.read(_LISTENER_CLASS)
    except FileNotFoundError as error:
        raise InjectionError(
            f"the OpenLineage jar {jar} does not exist on this machine: set openlineage_jar"
        ) from error
    except KeyError as error:
        raise InjectionError(
            f"{jar} does not hold the class {_LISTENER_CLASS}: set openlineage_jar to openlineage-spark"
        ) from error
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise InjectionError(f"the OpenLineage jar {jar} cannot be read: {error}") from error
    return _version_in(listener) or _scala_in_name(jar.name)


def _version_in(listener: bytes) -> spark.ScalaVersion | None:
    found = [version for marker, version in _SEQ_OF_SCALA.items() if marker in listener]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class _Chooser:
    submission: Submission
    installation: spark.SparkInstallation | None
    local_driver: bool
    resolve: Callable[[_Coordinate], tuple[Path, ...]] | None
    scala: spark.ScalaVersion | None

    def brought_by_the_job(self) -> JarChoice | None:
        for entry in self._entries_of_the_job():
            if _openlineage_name(entry) is None:
                continue
            local = _local_file(entry)
            if local is not None and is_file(local):
                self._check_file(local)
            elif local is not None and self.local_driver:
                # Spark skips a jar that does not exist, and the listener would then kill the job.
                continue
            else:
                self._check_name(entry)
            return JarChoice(origin=f"the job's own {entry}")
        return None

    def by_setting(self, setting: str) -> JarChoice:
        if setting.lower() == _PROVIDED:
            return self._provided()
        if "," in setting:
            raise InjectionError(f"openlineage_jar {setting!r} holds a comma: name one jar only")
        setting = self._filled(setting)
        if (coordinate := _Coordinate.parse(setting)) is not None:
            self._check_name(setting)
            return self._package(coordinate, self._check_file)
        local = _local_file(setting)
        if local is not None and local.is_absolute():
            return self._file(local, setting)
        if local is not None:
            raise InjectionError(
                f"openlineage_jar {setting!r} is neither an absolute path, nor a URI, nor a Maven coordinate "
                f"(group:artifact:version), nor {_PROVIDED!r}"
            )
        self._check_name(setting)
        return JarChoice(jars=(setting,), origin=setting)

    def with_transport(self, listener: JarChoice, kind: str) -> JarChoice:
        """Return the choice with a transport. Without its jar, the job runs, and the listener sends
        nothing.
        """
        artifact = f"transports-{kind}"
        for entry in self._entries_of_the_job():
            local = _local_file(entry)
            named = _TRANSPORT_NAME.fullmatch(_artifact_of(entry))
            if (
                named
                and named[1] == artifact
                and (local is None or not self.local_driver or is_file(local))
            ):
                return listener
        if not self.local_driver and listener.origin.startswith(_PROVIDED):
            return listener
        # A coordinate that does not resolve ends the job. For a driver elsewhere, take it only if
        # the listener is one.
        if not listener.version or not (self.local_driver or listener.packages):
            raise InjectionError(
                f"events_location is in an object store, and OpenLineage's {artifact} is not on the driver's class "
                f"path: add its jar to the job's jars, or io.openlineage:{artifact} in the listener's version to its "
                "packages"
            )
        transport = self._package(_Coordinate("io.openlineage", artifact, listener.version))
        return JarChoice(
            # In the listener's class loader, but after Spark's own jars: the transport brings
            # third-party libraries.
            listener.class_path + listener.jars + transport.class_path + transport.jars,
            listener.packages + transport.packages,
            f"{listener.origin}, {transport.origin}",
        )

    def _entries_of_the_job(self) -> Iterator[str]:
        yield from self.submission.effective_jars()
        yield from self.submission.effective_packages()
        for entry in self.submission.effective_driver_class_path():
            yield entry
            if self.local_driver and entry.endswith("/*"):
                yield from map(str, sorted(Path(entry).parent.glob("*.jar")))
        if self.installation and self.local_driver:
            for pattern in ("*openlineage*.jar", "transports-*.jar"):
                yield from map(str, sorted(self.installation.jars.glob(pattern)))

    def _provided(self) -> JarChoice:
        if not self.local_driver or self.installation is None:
            return JarChoice(
                origin="provided, unchecked: the driver's class path is not visible from here"
            )
        class_path = [
            file for entry in self._entries_of_the_job() if (file := _local_file(entry)) is not None
        ]
        for jar in (*class_path, *sorted(self.installation.jars.glob("*.jar"))):
            if _LISTENER_CLASS in spark.names_in(jar):
                self._check_file(jar)
                return JarChoice(origin=f"provided: {jar}")
        raise InjectionError(
            "openlineage_jar is 'provided', but the OpenLineage listener is neither in the job's jars or packages, nor "
            f"on the driver's class path, nor in {self.installation.jars}"
        )

    def _file(self, path: Path, setting: str) -> JarChoice:
        if setting.startswith("local:") and not self.local_driver:
            return JarChoice(
                jars=(setting,), origin=f"{setting}, unchecked: it is on the driver's machine"
            )
        self._check_file(path)
        return self._local((str(path),), setting) or JarChoice(jars=(setting,), origin=setting)

    def _local(self, files: tuple[str, ...], origin: str) -> JarChoice | None:
        """Return files of this machine as the driver's class path; ``None`` if the listener belongs
        to the job's jars.

        On the class path, the listener does not see the connectors in a job's own jars (Iceberg,
        Delta): Spark loads these in a class loader below. Its dependencies go there, too: the class
        path comes before Spark's own jars.
        """
        submission = self.submission
        brings_classes = (
            submission.effective_jars()
            or submission.effective_packages()
            or (submission.application or "").lower().endswith(".jar")
        )
        runs_elsewhere = (
            not self.local_driver or submission.effective("spark.submit.deployMode") == "cluster"
        )
        if (
            brings_classes
            or runs_elsewhere
            or self.installation is None
            or len(files) > 1
            or ":" in files[0]
        ):
            return None
        return JarChoice(class_path=files, origin=origin)

    def _filled(self, setting: str) -> str:
        if "{scala}" in setting and self.scala is None:
            raise InjectionError(
                f"openlineage_jar {setting!r} needs Spark's Scala version, and the Spark of this spark-submit is not "
                "known: name the jar in full (_2.12 for Spark 3.5, _2.13 for Spark 4)"
            )
        return setting.replace("{scala}", self.scala or "")

    def _package(
        self, coordinate: _Coordinate, check: Callable[[Path], None] | None = None
    ) -> JarChoice:
        if self.resolve is None:
            if self.local_driver:
                raise InjectionError(
                    f"cannot check that {coordinate} resolves, since the Spark of this spark-submit is not known: set "
                    "SPARK_HOME, or openlineage_jar to a file"
                )
            return JarChoice(
                packages=(str(coordinate),),
                origin=f"{coordinate}, unchecked: no Ivy on this machine",
            )
        try:
            files = self.resolve(coordinate)
        except _UnresolvableError as error:
            raise InjectionError(
                f"the OpenLineage package {coordinate} does not resolve: {error}"
            ) from error
        if check:
            check(files[0])
        if self.local_driver:
            # Pass the resolved files, so that spark-submit need not resolve the coordinate again.
            paths = tuple(map(str, files))
            return self._local(paths, str(coordinate)) or JarChoice(
                jars=paths, origin=str(coordinate)
            )
        return JarChoice(packages=(str(coordinate),), origin=str(coordinate))

    def _check_file(self, path: Path) -> None:
        self._check(_listener_scala_version(path), str(path))

    def _check_name(self, name: str) -> None:
        scala = _scala_in_name(name)
        if scala is not None or self.local_driver:
            self._check(scala, name)

    def _check(self, jar_scala: spark.ScalaVersion | None, jar: str) -> None:
        if jar_scala is None:
            raise InjectionError(
                f"the Scala version of {jar} is not known: use a published openlineage-spark_2.12 or _2.13 jar"
            )
        if self.scala is None:
            if self.local_driver:
                raise InjectionError(
                    f"the Scala version of Spark is not known, so {jar} may kill the job; set SPARK_HOME"
                )
            return
        if jar_scala != self.scala:
            version = (self.installation and self.installation.spark_version) or "this version"
            raise InjectionError(
                f"{jar} is built for Scala {jar_scala}, Spark {version} runs on Scala {self.scala}: "
                f"it would kill the job; use openlineage-spark_{self.scala}"
            )


def _scala_in_name(entry: str) -> spark.ScalaVersion | None:
    match = _openlineage_name(entry)
    return spark.scala_version(match["scala"]) if match else None


def _openlineage_name(entry: str) -> re.Match[str] | None:
    pattern = _FILE_NAME if _Coordinate.parse(entry) is None else _ARTIFACT_NAME
    return pattern.fullmatch(_artifact_of(entry))


def _artifact_of(entry: str) -> str:
    """Return the artifact of a Maven coordinate, or the name of the file at a path or URI."""
    if (coordinate := _Coordinate.parse(entry)) is not None:
        return coordinate.artifact
    return PurePosixPath(urlsplit(entry).path if "://" in entry else entry).name


def _local_file(entry: str) -> Path | None:
    """Return the path of a path, ``file:`` or ``local:`` URI; ``None`` for another URI or a
    coordinate.
    """
    parts = urlsplit(entry)
    if not parts.scheme:
        return Path(entry)
    return Path(unquote(parts.path)) if parts.scheme in ("file", "local") else None
