"""Facts about the Spark that spark-submit starts, found without starting it if its layout is known."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, Self, cast

import msgspec

from airflow_provider_spark_datahub.foundation.files import exists, is_file, open_regular

ScalaVersion = Literal["2.12", "2.13"]

_CORE_JAR = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<spark>\d.*)\.jar")
# The lines of Spark's own spark-submit and spark-sql (3.5 and 4); a vendor's wrapper has others.
_OWN_LINE = re.compile(
    r"""\#.* | fi
      | if\ \[\ -z\ "\$\{SPARK_HOME\}"\ \];\ then
      | source\ "\$\(dirname\ "\$0"\)"/find-spark-home
      | export\ (?:PYTHONHASHSEED|SPARK_CONNECT_MODE|_SPARK_CMD_USAGE)=[^$`;&|\\]*
      | exec\ "\$\{SPARK_HOME\}"/bin/spark-
        (?:class\ org\.apache\.spark\.deploy\.SparkSubmit|submit\ --class\ org\.apache\.spark\.sql\.\S+)\ "\$@"
    """,
    re.VERBOSE,
)
# Lines of spark-env.sh that may choose another spark-defaults.conf.
_MOVES_CONF_DIR = re.compile(r"SPARK_CONF_DIR|(?:^|[\s;&|({])(?:\.|source|eval)\s")
_BANNER_SPARK = re.compile(r"version (\d+\.\d+\.\d+\S*)")
_BANNER_SCALA = re.compile(r"Using Scala version (\d+\.\d+)")


class SparkInstallation(msgspec.Struct, frozen=True):
    """Spark installation on this machine.

    :param home: its ``SPARK_HOME``; for pip's pyspark the package folder.
    :param spark_version: such as ``4.3.0``; ``None`` if its jars do not say.
    :param scala_version: decides which OpenLineage jar fits.
    :param conf_dir: folder of ``spark-defaults.conf``; it need not exist.
    """

    home: Path
    jars: Path
    spark_version: str | None
    scala_version: ScalaVersion | None
    conf_dir: Path

    @classmethod
    def find(cls, spark_binary: str, env: Mapping[str, str]) -> Self | None:
        """Return the Spark that ``spark_binary`` starts in this environment; ``None`` if its layout
        is not known.

        The order is that of Spark's own ``bin/find-spark-home``: ``SPARK_HOME``; the folder above
        the binary; for pip's ``spark-submit`` the pyspark of its interpreter. A folder's ``jars``
        must hold exactly one ``spark-core``.
        """
        spark_home = env.get("SPARK_HOME")
        homes = iter([Path(spark_home)]) if spark_home else _homes_of_binary(spark_binary, env)
        return next((found for home in homes if (found := cls._at(home, env)) is not None), None)

    @classmethod
    def _at(cls, home: Path, env: Mapping[str, str]) -> Self | None:
        jars = home / "jars"
        try:
            names = [path.name for path in jars.iterdir()]
        except OSError:
            return None
        cores = [match for match in map(_CORE_JAR.fullmatch, names) if match]
        if len(cores) != 1:
            return None
        conf_dir = env.get("SPARK_CONF_DIR")
        return cls(
            home=home,
            jars=jars,
            spark_version=cores[0]["spark"],
            scala_version=scala_version(cores[0]["scala"]),
            conf_dir=Path(conf_dir) if conf_dir else home / "conf",
        )

    @property
    def defaults_file(self) -> Path:
        """Path of ``spark-defaults.conf``, which need not exist."""
        return self.conf_dir / "spark-defaults.conf"

    def defaults(self) -> dict[str, str]:
        """Return the properties of ``spark-defaults.conf``; empty if there is none."""
        return _read_properties(self.defaults_file) if is_file(self.defaults_file) else {}

    def ivy_jar(self) -> Path | None:
        """Return the Ivy with which this Spark resolves ``--packages``."""
        return next(iter(sorted(self.jars.glob("ivy-*.jar"))), None)


def banner_versions(
    spark_binary: str, env: Mapping[str, str], timeout_seconds: float
) -> tuple[str, ScalaVersion | None] | None:
    """Return the versions of Spark and Scala that ``spark-submit --version`` reports.

    It starts a JVM. Return ``None`` if it does not answer in time.
    """
    binary = shutil.which(spark_binary, path=env.get("PATH"))
    if binary is None:
        return None
    command = [binary, "--version"]
    try:
        answer = subprocess.run(
            command, env=dict(env), capture_output=True, timeout=timeout_seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (answer.stdout + answer.stderr).decode("utf-8", "replace")
    spark, scala = _BANNER_SPARK.search(text), _BANNER_SCALA.search(text)
    return (spark[1], scala_version(scala[1] if scala else None)) if spark else None


def java_command(env: Mapping[str, str]) -> str | None:
    """Return the ``java`` that Spark's scripts start; ``None`` if there is none."""
    home = env.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin")) if home else env.get("PATH"))


def names_in(jar: Path) -> Collection[str]:
    """Return the names of the files in a jar; none if it cannot be read."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.NameToInfo.keys()
    except (OSError, zipfile.BadZipFile):
        return ()


def base_properties(
    installation: SparkInstallation | None,
    properties_file: str | None,
    *,
    also_defaults: bool = False,
) -> dict[str, str]:
    """Return the properties below ``--conf``: those of ``--properties-file``, else of
    ``spark-defaults.conf``.

    :param also_defaults: the flag ``--load-spark-defaults`` of Spark 4, which reads both.
    :raises OSError: if the properties file cannot be read; spark-submit will fail for the same
        reason.
    :raises NotRegularFileError: if it is a pipe (``<(...)`` of a shell): whoever reads it first
        takes it from Spark.
    """
    defaults = installation.defaults() if installation else {}
    if properties_file is None:
        return defaults
    named = _read_properties(Path(properties_file))
    return {**defaults, **named} if also_defaults else named


def base_file(installation: SparkInstallation | None, properties_file: str | None) -> Path | None:
    """Return the file that :func:`base_properties` reads; ``None`` if there is none."""
    if properties_file is not None:
        return Path(properties_file)
    return (
        installation.defaults_file if installation and is_file(installation.defaults_file) else None
    )


def knows_base_file(
    installation: SparkInstallation | None,
    properties_file: str | None,
    spark_binary: str,
    env: Mapping[str, str],
) -> bool:
    """Return whether Spark surely reads :func:`base_file` and no other properties below ``--conf``.

    A wrapper around Spark's own script may add options, and ``spark-env.sh`` may choose another
    folder.
    """
    try:
        script = _own_script(shutil.which(spark_binary, path=env.get("PATH")))
        if properties_file is not None or installation is None:
            return properties_file is not None and "bin/spark-class" in script
        if "bin/spark-submit" in script:
            script = _own_script(str(installation.home / "bin" / "spark-submit"))
        env_script = installation.conf_dir / "spark-env.sh"
        lines = (
            _content(env_script).decode(errors="replace").splitlines() if exists(env_script) else []
        )
    except OSError:
        return False
    return "bin/spark-class" in script and not any(
        _MOVES_CONF_DIR.search(line) for line in lines if not line.lstrip().startswith("#")
    )


def _own_script(path: str | None) -> str:
    """Return the text of a script of Spark's own; empty for any other."""
    text = Path(path).read_text(errors="replace") if path else ""
    lines = filter(None, map(str.strip, text.splitlines()))
    return text if all(map(_OWN_LINE.fullmatch, lines)) else ""


def _content(path: Path) -> bytes:
    with open_regular(path, follow=True) as file:
        return file.read()


def _read_properties(path: Path) -> dict[str, str]:
    """Read a file of Java properties as Spark does: ``key value``, ``key=value``, ``key: value``,
    comments, escapes.
    """
    text = _content(path).decode("utf-8", "replace")
    return {key: value.strip() for key, value in map(_key_and_value, _logical_lines(text)) if key}


def _homes_of_binary(spark_binary: str, env: Mapping[str, str]) -> Iterator[Path]:
    binary = shutil.which(spark_binary, path=env.get("PATH"))
    if binary is None:
        return
    folders = list(dict.fromkeys((Path(binary).parent, Path(os.path.realpath(binary)).parent)))
    yield from (folder.parent for folder in folders)
    python = env.get("PYSPARK_DRIVER_PYTHON") or env.get("PYSPARK_PYTHON") or "python3"
    interpreter = shutil.which(python, path=env.get("PATH"))
    prefixes = [Path(interpreter).parent.parent] if interpreter else []
    prefixes += [folder.parent for folder in folders]
    for prefix in prefixes:
        for packages in ("lib*/python3*/site-packages", "lib*/python3*/dist-packages"):
            yield from sorted(prefix.glob(f"{packages}/pyspark"))


def scala_version(text: str | None) -> ScalaVersion | None:
    """Return a version of Scala that Spark runs on; ``None`` for any other text."""
    return cast(ScalaVersion, text) if text in ("2.12", "2.13") else None


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        if trailing_backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.)|$)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _key_and_value(line: str) -> tuple[str, str]:
    key = _KEY.match(line)
    end = key.end() if key else 0
    separator = _SEPARATOR.match(line, end)
    start = separator.end() if separator else end
    return _unescaped(line[:end]), _unescaped(line[start:])


def _unescaped(text: str) -> str:
    def replacement(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        return _CONTROLS.get(escape[2] or "", escape[2] or "")

    # Java escapes the halves of a surrogate pair apart.
    return (
        _ESCAPE.sub(replacement, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
