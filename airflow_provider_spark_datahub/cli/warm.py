"""``spark-datahub warm``: archives of Java classes that make Spark's drivers start faster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub import capture, hooks
from airflow_provider_spark_datahub.cli import console


def warm(
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the archives; default: the folder that tasks use.")
    ] = None,
    spark_binary: console.SparkSubmitOption = "spark-submit",
    openlineage_jar: Annotated[
        str | None, typer.Option(help="The OpenLineage jar; default: [spark_datahub] openlineage_jar.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also rewrite archives that still fit.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds for each Spark job.")] = 1800,
) -> None:
    """Write the archives of Java classes that make Spark's drivers start faster, and remove those that no longer fit.

    It runs two small Spark jobs: one with the listener on the driver's class path, and one for jobs that bring jars of
    their own.

    Exit status: 0 if the archives fit; 1 if one could not be written; 2 for wrong options.
    """
    folder = folder or hooks.configuration().class_archives
    setting = openlineage_jar or hooks.configuration().read("openlineage_jar") or capture.DEFAULT_OPENLINEAGE_JAR
    env = dict(os.environ)
    installation = capture.SparkInstallation.find(spark_binary, env)
    if installation is None:
        console.fail(f"cannot find the Spark that {spark_binary} starts: set SPARK_HOME, or use --spark-submit")
    try:
        jar = capture.SparkSubmit(spark_binary, env, True).choose_jar(setting, capture.Submission(), seconds=seconds)
    except capture.InjectionError as error:
        console.fail(str(error))
    archives = capture.ClassArchives.at(folder)
    for path, reason in archives.remove_outdated():
        console.say(f"Removed {path}: {reason}")
    try:
        for line in _written(archives, installation, env, jar.class_path, force=force, seconds=seconds):
            console.show_line(line)
    except (capture.ClassArchiveError, OSError) as error:
        console.fail(f"The archive was not written: {error}", console.EXIT_INCOMPLETE)


def _written(
    archives: capture.ClassArchives,
    installation: capture.SparkInstallation,
    env: Mapping[str, str],
    listener: tuple[str, ...],
    *,
    force: bool,
    seconds: float,
) -> Iterator[str]:
    """Write the archives, and yield a line for each."""
    for on_class_path in dict.fromkeys((listener, ())):
        what = "with the listener" if on_class_path or not listener else "for jobs with jars of their own"
        try:
            archive = archives.find(
                capture.Submission(), installation, env, capture.JarChoice(class_path=on_class_path)
            )
        except capture.ClassArchiveError:
            archive = None
        if archive is not None and not force:
            yield f"{archive.path} fits ({what})"
            continue
        started = time.monotonic()
        beside = () if on_class_path else listener
        archive = archives.build(installation, env, on_class_path, beside, seconds=seconds)
        size = Path(archive.path).stat().st_size / 2**20
        yield f"{archive.path} written ({what}): {size:.0f} MiB in {time.monotonic() - started:.0f} s"
