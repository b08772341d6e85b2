"""Run generated applications with a real Spark, as the operator submits them, and record what they
leave.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub import capture
from tests.generated_jobs.frames import DATA
from tests.generated_jobs.generator import application
from tests.generated_jobs.script import Script

_REPOSITORY = Path(__file__).parents[2]
_BIN = _REPOSITORY / ".venv-spark" / "bin"
_LISTENER = _REPOSITORY / ".cache" / "jars" / "openlineage-spark_2.13-1.53.0.jar"
_PARENT = capture.ParentRun("airflow", "generated.job", "01990000-0000-7000-8000-000000000001")
_OF_JVM = ("spark.jars", "spark.driver.extraJavaOptions")
_SETUP = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
for statement in {}:
    spark.sql(statement)
spark.stop()
"""


def record(applications: Mapping[str, Sequence[Script]], folder: Path) -> dict[str, dict[str, str]]:
    """Run applications in one JVM, and leave the listener's events, the log and the truth in a
    folder of each name.

    Hive's tables are made by an application before them.

    :returns: what Spark refused: errors by application and query.
    """
    folder = folder.resolve()
    env = os.environ | {
        "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    env.pop("SPARK_HOME", None)
    with_hive = [scripts for scripts in applications.values() if scripts[0].hive]
    setup = [f"CREATE DATABASE {scripts[0].database}" for scripts in with_hive]
    setup += [
        statement for scripts in with_hive for script in scripts for statement in script.setup
    ]
    texts = {"setup": (_SETUP.format(setup), True)} if setup else {}
    texts |= {
        name: (application(scripts), scripts[0].hive) for name, scripts in applications.items()
    }
    plan, options = [], list[str]()
    for name, (text, hive) in texts.items():
        place = folder / name
        (place / "log").mkdir(parents=True)
        (place / "job.py").write_text(text)
        submission = _submission(folder, name, env, hive=hive)
        options = options or submission.arguments
        properties = {
            key: str(value) for key, value in submission.properties.items() if key not in _OF_JVM
        }
        plan.append(
            {"job": str(place / "job.py"), "work": str(place / "work"), "properties": properties}
        )
    (folder / "plan.json").write_text(json.dumps(plan))
    command = [
        str(_BIN / "spark-submit"),
        "--master",
        "local[2]",
        *options,
        str(DATA / "driver.py"),
    ]
    with (folder / "output").open("w") as output:
        subprocess.run(
            [*command, str(folder / "plan.json")],
            env=env,
            cwd=folder,
            stdout=output,
            stderr=output,
            check=True,
        )
    return {name: _write_truth(folder / name, scripts) for name, scripts in applications.items()}


def _submission(
    folder: Path, name: str, env: Mapping[str, str], *, hive: bool
) -> capture.Submission:
    properties = {
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.catalogImplementation": "hive" if hive else "in-memory",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    }
    spark = capture.SparkSubmit(str(_BIN / "spark-submit"), env, True)
    given = replace(spark.with_base(capture.Submission(properties)), replaceable=True)
    jar = spark.choose_jar(str(_LISTENER), given)
    lineage = capture.LineageInjection(str(folder / name / "events.ndjson"), jar, _PARENT, _PARENT)
    submission = capture.inject(given, lineage).submission
    with suppress(capture.ClassArchiveError):  # if `make setup` wrote none
        archives = capture.ClassArchives.at(_REPOSITORY / ".cache" / "spark-classes")
        submission = archives.find(given, spark.installation, env, jar).added_to(submission)
    return capture.inject_event_log(submission, folder / name / "log", local_driver=True).submission


def truth_of(script: Script) -> dict[str, Any]:
    """Return the edges of a query as JSON."""
    return {
        "inputs": sorted(script.inputs),
        "either_inputs": sorted(script.either_inputs - script.inputs),
        "outputs": sorted(script.outputs),
        "columns": sorted(script.columns),
        "either_columns": sorted(script.either_columns - script.columns),
        "pairs": sorted(script.pairs),
        "either_pairs": sorted(script.either_pairs - script.pairs),
    }


def _write_truth(folder: Path, scripts: Sequence[Script]) -> dict[str, str]:
    refused: dict[str, str] = json.loads((folder / "work" / "failures.json").read_text())
    queries = {script.name: truth_of(script) for script in scripts if script.name not in refused}
    truth = {"root": str(folder / "work"), "refused": sorted(refused), "queries": queries}
    (folder / "truth.json").write_text(json.dumps(truth))
    return refused
