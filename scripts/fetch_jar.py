"""Fetch one jar from Maven Central with the Ivy that ships in Spark, and check it against its pinned SHA-256.

    python scripts/fetch_jar.py GROUP:ARTIFACT:VERSION --into DIR --checksums FILE --spark-env VENV

The jar is at DIR/ARTIFACT-VERSION.jar afterwards, whole and checked, or not there at all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path


class FetchError(Exception):
    """The jar could not be had; the message tells why and what to do."""


def pinned_sha256(checksums: Path, jar_name: str) -> str:
    """Return the checksum of `jar_name` in a file of `sha256sum` lines."""
    for line in checksums.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        if name == jar_name:
            return digest
    raise FetchError(f"{checksums} pins no SHA-256 for {jar_name}: add a line 'SHA256  {jar_name}'")


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def ivy_jar(spark_env: Path) -> Path:
    """Return Spark's own Ivy in the virtual environment that pyspark is installed in."""
    found = sorted(spark_env.glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"))
    if not found:
        raise FetchError(f"no pyspark/jars/ivy-*.jar under {spark_env}: is pyspark installed there?")
    return found[-1]


def retrieve(ivy: Path, coordinate: str, scratch: Path) -> Path:
    """Have Ivy download the jar of `coordinate`, without what it depends on, into `scratch`."""
    group, artifact, version = coordinate.split(":")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    command = [java, "-jar", str(ivy), "-cache", str(scratch / "cache")]
    command += ["-dependency", group, artifact, version, "-notransitive", "-types", "jar"]
    command += ["-retrieve", str(scratch / "[artifact]-[revision].[ext]")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    jar = scratch / f"{artifact}-{version}.jar"
    if run.returncode != 0 or not jar.exists():
        raise FetchError(
            f"{run.stdout}{run.stderr}\n{coordinate} could not be downloaded: is this machine offline, or behind a "
            "proxy that Java is not told of (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... -Dhttps.proxyPort=...)?"
        )
    return jar


def fetch(coordinate: str, into: Path, checksums: Path, spark_env: Path) -> Path:
    """Put the jar of `coordinate` into a folder, under its final name only once it is whole and checked."""
    _, artifact, version = coordinate.split(":")
    target = into / f"{artifact}-{version}.jar"
    expected = pinned_sha256(checksums, target.name)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into) as scratch:
        jar = retrieve(ivy_jar(spark_env), coordinate, Path(scratch).resolve())
        actual = sha256(jar)
        if actual != expected:
            raise FetchError(f"{target.name} has SHA-256 {actual}, but {checksums} pins {expected}: do not use it")
        jar.replace(target)
    return target


def main() -> int:
    """Read the arguments, fetch, and tell the outcome by the exit code."""
    parser = argparse.ArgumentParser(description="Fetch one jar from Maven Central with Spark's own Ivy.")
    parser.add_argument("coordinate", metavar="GROUP:ARTIFACT:VERSION")
    parser.add_argument("--into", type=Path, required=True, help="folder for the jar")
    parser.add_argument("--checksums", type=Path, required=True, help="file of lines 'SHA256  NAME.jar'")
    parser.add_argument("--spark-env", type=Path, required=True, help="virtual environment with pyspark")
    options = parser.parse_args()
    try:
        jar = fetch(options.coordinate, options.into, options.checksums, options.spark_env)
    except FetchError as error:
        print(error, file=sys.stderr)
        return 1
    print(jar)
    return 0


if __name__ == "__main__":
    sys.exit(main())
