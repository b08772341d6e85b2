"""Archives of Spark's and the listener's Java classes, which a driver's Java maps instead of
loading each class.

This is Java's class data sharing, with dynamic archives (Java 13 and later). An archive fits one
Java, one Spark, and one beginning of the class path. Java refuses archives after a folder that is
not empty, so Spark's jars come before the configuration folder; an archive is not used if a name in
that folder is also in a jar.

A mapped archive is code. It is used only if nobody but this user (or root) could have written it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec

from airflow_provider_spark_datahub.capture.openlineage_jar import JarChoice
from airflow_provider_spark_datahub.capture.spark_installation import (
    SparkInstallation,
    java_command,
    names_in,
)
from airflow_provider_spark_datahub.capture.spark_submit import (
    DRIVER_CLASS_PATH,
    DRIVER_JAVA_OPTIONS,
    Submission,
)
from airflow_provider_spark_datahub.foundation.files import (
    PRIVATE_ACCESS,
    is_file,
    make_folder,
    open_regular,
    replaceable,
    write_durably,
)

_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_JAVA_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_ARCHIVE_OPTION = "-XX:SharedArchiveFile="
# The first ones are the user's own choice about archives. With the others, Java maps no archive.
_CONFLICTING = re.compile(
    r"-Xshare:|-XX:SharedArchiveFile=|-XX:ArchiveClassesAtExit=|-XX:AOT|-javaagent:|-agent(lib|path):"
    r"|--patch-module|--limit-modules|--upgrade-module-path"
)
_OLDEST_JAVA = 13
_ABANDONED_SECONDS = 3600.0
_BUILD = ".build-"
_CHECK_SECONDS = 30.0
_KEY_LENGTH = 20


class ClassArchiveError(Exception):
    """There is no archive for a job, or none can be made; the message says why and what to do."""


@dataclass(frozen=True)
class ClassArchive:
    """An archive and what it fits.

    :param java: the ``java`` that wrote it.
    :param listener: paths of the OpenLineage jar and what it needs, if the archive holds their
        classes.
    :param class_path: entries that the driver's class path must begin with.
    :param names: names of files and folders on the top level of all these jars.
    """

    path: str
    java: str
    spark_home: str
    listener: tuple[str, ...]
    class_path: tuple[str, ...]
    names: tuple[str, ...]

    def added_to(self, submission: Submission) -> Submission:
        """Return the submission with the archive; adding it twice is the same as adding it once."""
        users = submission.effective(DRIVER_JAVA_OPTIONS) or ""
        # If an archive does not fit after all, Java warns on standard output, which may be the
        # job's result.
        options = [
            f"{_ARCHIVE_OPTION}{self.path}",
            "-Xshare:auto",
            *([] if "-Xlog" in users else ["-Xlog:cds*=off"]),
        ]
        missing = [option for option in options if option not in users.split()]
        properties = {
            **submission.properties,
            DRIVER_CLASS_PATH: ":".join(self.class_path),
            DRIVER_JAVA_OPTIONS: " ".join([users, *missing]).strip(),
        }
        return replace(submission, properties=properties, driver_class_path=None)

    def problem(self) -> str:
        """Return why Java would not map the archive, by asking it; empty if it would.

        :raises subprocess.TimeoutExpired: if Java does not answer, or OSError if it cannot be
            started.
        """
        command = [
            self.java,
            "-Xshare:on",
            f"{_ARCHIVE_OPTION}{self.path}",
            "-cp",
            ":".join(self.class_path),
        ]
        answer = subprocess.run(
            [*command, "-version"], capture_output=True, timeout=_CHECK_SECONDS, check=False
        )
        if answer.returncode == 0:
            return ""
        lines = (answer.stdout + answer.stderr).decode("utf-8", "replace").splitlines()
        return next(
            (line for line in lines if "mismatch" in line or "nable" in line), "Java refuses it"
        )


@dataclass(frozen=True)
class ClassArchives:
    """The archives of one folder: two for each Java, Spark and OpenLineage jar (see :meth:`build`).

    :param folder: the real path, without links.
    """

    folder: Path

    @classmethod
    def at(cls, folder: str | Path) -> Self:
        """Return the archives of a folder, which need not exist."""
        return cls(Path(os.path.realpath(folder)))

    def find(
        self,
        submission: Submission,
        installation: SparkInstallation | None,
        env: Mapping[str, str],
        jar: JarChoice,
    ) -> ClassArchive:
        """Return the archive for a job whose driver runs on this machine.

        :param submission: the user's, without the listener.
        :raises ClassArchiveError: if there is none that the job can use.
        """
        if installation is None:
            raise ClassArchiveError("the Spark of this spark-submit is not known")
        if submission.effective_driver_class_path():
            raise ClassArchiveError(
                "the job has a driver class path of its own, which comes before Spark's jars"
            )
        self._refuse_conflicting(submission, env)
        listener = jar.class_path
        java = _java(env)
        path = self.folder / f"{_key(java, installation, listener)}.jsa"
        if not is_file(path):
            raise ClassArchiveError(
                f"{self.folder} has no archive for {java}, {installation.home} and {', '.join(listener) or 'no jar'}: "
                'run "spark-datahub warm"'
            )
        archive = _read(path)
        clashing = sorted(_top_names(installation.conf_dir).intersection(archive.names))
        if clashing:
            raise ClassArchiveError(
                f"{installation.conf_dir} has names that jars of Spark have, too: {clashing[0]}"
            )
        return archive

    def _refuse_conflicting(self, submission: Submission, env: Mapping[str, str]) -> None:
        places = {name: env.get(name) for name in _JAVA_VARIABLES}
        places |= {
            name: submission.effective(name)
            for name in (DRIVER_JAVA_OPTIONS, _DEFAULT_JAVA_OPTIONS)
        }
        for place, options in places.items():
            for option in (options or "").split():
                ours = option == "-Xshare:auto" or option.startswith(
                    f"{_ARCHIVE_OPTION}{self.folder}{os.sep}"
                )
                if _CONFLICTING.match(option) and not ours:
                    raise ClassArchiveError(f"{place} has {option.partition('=')[0]}")

    def build(
        self,
        installation: SparkInstallation,
        env: Mapping[str, str],
        listener: tuple[str, ...],
        beside: tuple[str, ...] = (),
        *,
        seconds: float,
    ) -> ClassArchive:
        """Run a small job that has the listener, and let its Java write an archive.

        :param env: environment of ``spark-submit``. Its Spark configuration is not used.
        :param listener: paths of the OpenLineage jar and its dependencies, for jobs that have the
            jar on the driver's class path. Empty if it is among Spark's jars, and for jobs that
            bring jars of their own.
        :param beside: jars of a job that brings its own, also OpenLineage's. Their classes are not
            in the archive.
        :param seconds: timeout for the job.
        :raises ClassArchiveError: if the job failed or Java wrote no archive.
        """
        java = _java(env)
        _check_java(java)
        if re.search(
            r"[\s,:]", "".join((str(self.folder), str(installation.home), *listener, *beside))
        ):
            raise ClassArchiveError(
                "a path with a blank, comma or colon cannot be part of a class path: use another"
            )
        make_folder(self.folder, access=PRIVATE_ACCESS)
        _refuse_writable(self.folder)
        path = self.folder / f"{_key(java, installation, listener)}.jsa"
        with tempfile.TemporaryDirectory(prefix=_BUILD, dir=self.folder) as place:
            own_env = {**env, "SPARK_HOME": str(installation.home)}
            training = _Training(Path(place), installation, own_env, java, seconds)
            class_path = (*listener, *training.class_path())
            draft = training.run(class_path, beside)
            names = sorted(
                {name.partition("/")[0] for jar in _jars(class_path) for name in names_in(jar)}
            )
            draft.chmod(PRIVATE_ACCESS.file)
            draft.replace(path)
        archive = ClassArchive(
            str(path), str(java), str(installation.home), listener, class_path, tuple(names)
        )
        write_durably(_description(path), [msgspec.json.encode(archive)], access=PRIVATE_ACCESS)
        if problem := archive.problem():
            _remove(path)
            raise ClassArchiveError(f"Java does not map the archive that it wrote: {problem}")
        return archive

    def _outdated(self) -> Iterator[tuple[Path, str]]:
        for path in sorted(self.folder.glob("*.jsa")):
            try:
                archive = _read(path)
                installation = SparkInstallation.find(
                    "spark-submit", {"SPARK_HOME": archive.spark_home}
                )
                if installation is None:
                    yield path, f"{archive.spark_home} is gone"
                elif path.stem != _key(Path(archive.java), installation, archive.listener):
                    yield path, "Java, Spark or the OpenLineage jar has changed"
            except (ClassArchiveError, OSError) as error:
                yield path, str(error)

    def remove_outdated(self) -> list[tuple[Path, str]]:
        """Remove outdated archives and the files of interrupted builds; return the archives with
        the reasons.
        """
        removed = list(self._outdated())
        for path, _ in removed:
            _remove(path)
        for folder in self.folder.glob(f"{_BUILD}*"):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(folder)
        return removed


def _java(env: Mapping[str, str]) -> Path:
    """Return the ``java`` that Spark's scripts start, or raise ClassArchiveError."""
    java = java_command(env)
    if java is None:
        raise ClassArchiveError("there is no java in JAVA_HOME or on the PATH")
    return Path(os.path.realpath(java))


def _check_java(java: Path) -> None:
    release = java.parents[1] / "release"
    version = re.search(
        r'JAVA_VERSION="(\d+)', release.read_text("utf-8", "replace") if is_file(release) else ""
    )
    if version and int(version[1]) < _OLDEST_JAVA:
        raise ClassArchiveError(
            f"{java} is Java {version[1]}: archives need Java {_OLDEST_JAVA} or later"
        )


def _key(java: Path, installation: SparkInstallation, listener: Sequence[str]) -> str:
    """Return a key that changes whenever Java, a jar of Spark or the listener does."""
    java_home = java.parents[1]
    files = [*sorted(installation.jars.glob("*.jar")), *map(Path, listener)]
    files += [java, *filter(Path.is_file, (java_home / "release", java_home / "lib" / "modules"))]
    digest = hashlib.sha256()
    try:
        for file in files:
            status = file.stat()
            digest.update(
                f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(
                    "utf-8", "surrogateescape"
                )
            )
    except OSError as error:
        raise ClassArchiveError(f"{error.filename} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:_KEY_LENGTH]


def _description(path: Path) -> Path:
    return path.with_suffix(".json")


def _remove(path: Path) -> None:
    for file in (path, _description(path)):
        file.unlink(missing_ok=True)


def _read(path: Path) -> ClassArchive:
    """Return an archive, or raise ClassArchiveError if another user could have written it or its
    description.
    """
    for file in (path, _description(path)):
        _refuse_writable(file)
    try:
        with open_regular(_description(path)) as description:
            archive = msgspec.json.decode(description.read(), type=ClassArchive)
    except (OSError, msgspec.MsgspecError) as error:
        raise ClassArchiveError(f"{_description(path)} cannot be read: {error}") from error
    if archive.path != str(path):
        raise ClassArchiveError(f"{path} was moved here from {archive.path}")
    return archive


def _refuse_writable(path: Path) -> None:
    if problem := replaceable(path):
        raise ClassArchiveError(problem)


def _top_names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except OSError:
        return set()


def _jars(class_path: Iterable[str]) -> Iterator[Path]:
    for entry in class_path:
        path = Path(entry)
        yield from sorted(path.parent.glob("*.jar")) if path.name == "*" else [path]


# The job reads, joins and writes files, and runs a streaming query: it should load what most jobs
# load.
_JOB = """
import sys
from pyspark.sql import SparkSession, functions as f

folder = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
orders = spark.range(9).select("id", (f.col("id") % 3).alias("customer"), f.lit(1.5).alias("amount"))
orders.write.option("header", True).csv(f"{folder}/orders")
read = spark.read.csv(f"{folder}/orders", header=True, inferSchema=True)
customers = read.select("customer", f.upper(f.col("customer").cast("string")).alias("name")).distinct()
joined = read.join(customers, "customer").filter("amount > 1").groupBy("name").agg(f.sum("amount").alias("total"))
joined.write.mode("overwrite").partitionBy("name").parquet(f"{folder}/totals")
spark.read.parquet(f"{folder}/totals").createOrReplaceTempView("totals")
spark.sql("SELECT name, count(DISTINCT total) AS n FROM totals GROUP BY name").write.json(f"{folder}/counts")
stream = spark.readStream.schema(read.schema).option("header", True).csv(f"{folder}/orders").filter("amount > 1")
query = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
query.trigger(availableNow=True).start(f"{folder}/stream").awaitTermination()
spark.sparkContext.parallelize(range(4), 2).map(lambda number: number + 1).collect()
spark.stop()
"""


@dataclass(frozen=True)
class _Training:
    """A job that is run for its classes, in a private folder."""

    folder: Path
    installation: SparkInstallation
    env: Mapping[str, str]
    java: Path
    seconds: float

    def class_path(self) -> tuple[str, ...]:
        """Return Spark's own part of the driver's class path, from Spark's launcher."""
        launcher = [
            str(self.java),
            "-cp",
            f"{self.installation.jars}/*",
            "org.apache.spark.launcher.Main",
        ]
        answer = self._run([*launcher, "org.apache.spark.deploy.SparkSubmit", "job.py"], "")
        parts = answer.stdout.split("\0")
        if "-cp" not in parts[:-1]:
            raise ClassArchiveError(f"Spark's launcher names no class path: {_last_line(answer)}")
        entries = parts[parts.index("-cp") + 1].split(":")
        return tuple(entry for entry in entries if entry and Path(entry) != self._conf_dir)

    def run(self, class_path: tuple[str, ...], jars: tuple[str, ...]) -> Path:
        """Return the archive of a job that ran with this class path, and these jars of its own."""
        job, archive = self.folder / "job.py", self.folder / "classes.jsa"
        job.write_text(_JOB)
        properties = {
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": f"{self.folder}/warehouse",
            "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
            "spark.openlineage.transport.type": "file",
            "spark.openlineage.transport.location": f"{self.folder}/events.ndjson",
        }
        command = [str(self.installation.home / "bin" / "spark-submit"), "--master", "local[2]"]
        command += [
            "--driver-class-path",
            ":".join(class_path),
            *(["--jars", ",".join(jars)] if jars else []),
        ]
        command += [
            part for name, value in properties.items() for part in ("--conf", f"{name}={value}")
        ]
        answer = self._run(
            [*command, str(job), str(self.folder)], f"-XX:ArchiveClassesAtExit={archive}"
        )
        if answer.returncode or not archive.is_file():
            raise ClassArchiveError(
                f"the Spark job that was to write the archive failed: {_last_line(answer)}"
            )
        return archive

    @property
    def _conf_dir(self) -> Path:
        return self.folder / "conf"

    def _run(self, command: Sequence[str], java_option: str) -> subprocess.CompletedProcess[str]:
        self._conf_dir.mkdir(exist_ok=True)
        ours = {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", *_JAVA_VARIABLES}
        env = {name: value for name, value in self.env.items() if name not in ours}
        users = [
            option
            for option in self.env.get("SPARK_SUBMIT_OPTS", "").split()
            if not _CONFLICTING.match(option)
        ]
        options = [*users, java_option, "-Xlog:disable"] if java_option else users
        env |= {
            "SPARK_CONF_DIR": str(self._conf_dir),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # As Spark's scripts set it for the launcher.
            "SPARK_SCALA_VERSION": self.installation.scala_version or "",
            "SPARK_SUBMIT_OPTS": " ".join(options),
        }
        try:
            return subprocess.run(
                command,
                env=env,
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClassArchiveError(
                f"{command[0]} did not end within {self.seconds:g} seconds"
            ) from error
        except OSError as error:
            raise ClassArchiveError(f"{command[0]} could not be started: {error}") from error


def _last_line(answer: subprocess.CompletedProcess[str]) -> str:
    lines = [
        line
        for line in f"{answer.stdout}\n{answer.stderr}".replace("\0", " ").splitlines()
        if line.strip()
    ]
    return lines[-1].strip()[:300] if lines else f"exit code {answer.returncode}"
