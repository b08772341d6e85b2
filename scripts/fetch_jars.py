"""Fetch a pinned list of jars from Maven Central with the Ivy that ships in Spark, and check each
one's SHA-256.

    python scripts/fetch_jars.py LIST --into DIR --spark-env VENV

A line of LIST is ``SHA256  GROUP:ARTIFACT:VERSION[:CLASSIFIER[:EXTENSION]]``; nothing that is not
listed is fetched. Archives (``tar.gz``) are unpacked. Everything in DIR is then whole and checked,
or the script has failed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr


class FetchError(Exception):
    """Failure to fetch the jars; the message says why and what to do."""


@dataclass(frozen=True)
class Pinned:
    """One line of a list."""

    sha256: str
    group: str
    artifact: str
    version: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """The artifact's name in a Maven repository."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.extension}"

    def as_dependency(self) -> str:
        """The artifact alone, without what it depends on, as an element of an Ivy file."""
        name, extension = quoteattr(self.artifact), quoteattr(self.extension)
        classifier = f" m:classifier={quoteattr(self.classifier)}" if self.classifier else ""
        return (
            f'<dependency org={quoteattr(self.group)} name={name} rev={quoteattr(self.version)} transitive="false" '
            f'conf="default"><artifact name={name} type={extension} ext={extension}{classifier}/></dependency>'
        )


def read_list(file: Path) -> list[Pinned]:
    """The lines of a list; those that are empty or begin with ``#`` say nothing."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    pinned = []
    for line in lines:
        if line and not line.startswith("#"):
            digest, _, coordinate = line.partition("  ")
            parts = coordinate.split(":")
            if not 3 <= len(parts) <= 5:
                raise FetchError(
                    f"{file}: not 'SHA256  GROUP:ARTIFACT:VERSION[:CLASSIFIER[:EXTENSION]]': {line}"
                )
            pinned.append(Pinned(digest, *parts))
    return pinned


def sha256(file: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def ivy_jar(spark_env: Path) -> Path:
    """Spark's own Ivy in the virtual environment that pyspark is installed in."""
    found = sorted(spark_env.glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"))
    if not found:
        raise FetchError(
            f"no pyspark/jars/ivy-*.jar under {spark_env}: is pyspark installed there?"
        )
    return found[-1]


def retrieve(ivy: Path, pinned: list[Pinned], scratch: Path) -> Path:
    """Have Ivy download the listed files; the folder that holds them."""
    description = scratch / "ivy.xml"
    dependencies = "".join(one.as_dependency() for one in pinned)
    description.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="local" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>",
        encoding="utf-8",
    )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    command = [java, "-jar", str(ivy), "-cache", str(scratch / "cache"), "-ivy", str(description)]
    command += ["-retrieve", str(scratch / "out" / "[artifact]-[revision](-[classifier]).[ext]")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    missing = [jar.file_name for jar in pinned if not (scratch / "out" / jar.file_name).exists()]
    if run.returncode != 0 or missing:
        raise FetchError(
            f"{run.stdout}{run.stderr}\nCould not be downloaded: {', '.join(missing)}. Is this machine offline, or "
            "behind a proxy that Java does not know (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... -Dhttps.proxyPort=...)?"
        )
    return scratch / "out"


def fetch(pinned: list[Pinned], into: Path, spark_env: Path) -> None:
    """Put the listed files into a folder, each under its final name only once it is whole and
    checked.
    """
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into) as scratch:
        found = retrieve(ivy_jar(spark_env), pinned, Path(scratch).resolve())
        for jar in pinned:
            actual = sha256(found / jar.file_name)
            if actual != jar.sha256:
                raise FetchError(
                    f"{jar.file_name} has SHA-256 {actual}, but {jar.sha256} is pinned: do not use it"
                )
        for jar in pinned:
            if jar.extension == "tar.gz":
                subprocess.run(
                    ["tar", "-xzf", str(found / jar.file_name), "-C", str(into)], check=True
                )
            else:
                (found / jar.file_name).replace(into / jar.file_name)


def main() -> int:
    """Read the arguments, fetch, and return the exit code."""
    parser = argparse.ArgumentParser(
        description="Fetch pinned jars from Maven Central with Spark's own Ivy."
    )
    parser.add_argument(
        "list", type=Path, help="file of lines 'SHA256  GROUP:ARTIFACT:VERSION[:CLASSIFIER[:EXT]]'"
    )
    parser.add_argument("--into", type=Path, required=True, help="folder for the jars")
    parser.add_argument(
        "--spark-env", type=Path, required=True, help="virtual environment with pyspark"
    )
    options = parser.parse_args()
    try:
        fetch(read_list(options.list), options.into, options.spark_env)
    except FetchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
