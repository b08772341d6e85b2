"""Install, core tests and demo on the versions of ``docs/compatibility.md``, whose table this
script writes.

    python scripts/matrix.py [ROW ...] [--keep] [--table]

Each row gets an environment in ``.cache/matrix``, and each Spark one more; one row at a time, and
its environment is removed after it unless ``--keep`` is given. What happened goes to
``docs/compatibility.json``: a row that is not there, and a step that is not there, did not run.
``--table`` runs nothing and writes the table of the rows that ran anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MATRIX = ROOT / ".cache" / "matrix"
RESULTS = ROOT / "docs" / "compatibility.json"
PAGE = ROOT / "docs" / "compatibility.md"
UV = ROOT / ".cache" / "uv-venv" / "bin" / "uv"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
NEWEST_SPARK = "4.3.0"
TEST_TOOLS = (
    "hypothesis>=6.100",
    "pytest>=9",
    "pytest-cov>=7",
    "pytest-timeout>=2.4",
    "pytest-xdist>=3.8",
    "selenium>=4.20",
    "zstandard>=0.23",
)
# What depends on versions: the classes that Airflow calls, connections, context, provider info, an
# ending interpreter.
CORE = (
    "tests/operators",
    "tests/hooks",
    "tests/plugins",
    "tests/task",
    "tests/delivery/test_deadline.py",
    "tests/test_provider.py",
)
NOT_CORE = "not spark and not airflow and not servers and not slow"
SHOWN = {
    "Airflow": "apache-airflow",
    "Spark provider": "apache-airflow-providers-apache-spark",
    "OpenLineage provider": "apache-airflow-providers-openlineage",
    "acryl-datahub": "acryl-datahub",
    "openlineage-python": "openlineage-python",
}
NOT_RUN = "not run"
# Airflow 3.1.0 has no upper bound of structlog, so that the resolver takes it, but does not start
# with the newest.
AIRFLOW_3_1 = ("apache-airflow>=3.1.8,<3.2",)


@dataclass(frozen=True)
class Row:
    """Versions that run together.

    :param requirements: requirements beside the package; without a Python, the environment is
        ``.venv``.
    :param resolution: of uv: ``lowest-direct`` takes the lowest version of everything that
        pyproject.toml names.
    :param spark: the version of pyspark that runs the jobs.
    :param tests: run instead of the core tests and the demo.
    """

    name: str
    python: str = ""
    requirements: tuple[str, ...] = ()
    resolution: str = "highest"
    spark: str = NEWEST_SPARK
    tests: str = ""


ROWS = (
    Row("lowest", "3.11", AIRFLOW_3_1, resolution="lowest-direct"),
    Row("airflow-3.1", "3.11", AIRFLOW_3_1),
    # Airflow 3.2.2 has no upper bounds of these two, but its execution API does not work with newer
    # ones: FastAPI 0.165 loses the tags of its unions ("TITerminalStatePayload needs a
    # discriminator field"), svcs 26 its registry.
    Row("airflow-3.2", "3.12", ("apache-airflow==3.2.*", "fastapi<0.137", "svcs<26")),
    Row("airflow-3.3", "3.13", ("apache-airflow==3.3.*",)),
    # Without a word, uv takes an older Airflow for a newer FastAPI.
    Row(
        "spark-provider-6.1",
        "3.11",
        ("apache-airflow==3.3.*", "apache-airflow-providers-apache-spark==6.1.*"),
    ),
    Row("acryl-datahub-1.3", "3.11", ("apache-airflow==3.3.*", "acryl-datahub==1.3.*")),
    # Its OpenLineage provider (2.8) cannot be imported on Airflow 3.2, whose mapped operators have
    # moved.
    Row("openlineage-python-1.38", "3.11", ("openlineage-python==1.38.*", *AIRFLOW_3_1)),
    Row("spark-3.5", spark="3.5.*"),
    Row("spark-4.0", spark="4.0.*"),
    Row("spark-4.1", spark="4.1.*"),
    Row("lowest-spark-3.5", "3.11", AIRFLOW_3_1, resolution="lowest-direct", spark="3.5.*"),
    Row(
        "datahub-plugin",
        "3.11",
        ("apache-airflow==3.3.*", "acryl-datahub-airflow-plugin>=1.7"),
        tests="tests/system/test_beside_datahub_plugin.py",
    ),
)


def main() -> int:
    """Run rows; 0 if every step of them passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"one of {', '.join(row.name for row in ROWS)}"
    )
    parser.add_argument("--keep", action="store_true", help="keep the environments of the rows")
    parser.add_argument("--table", action="store_true", help="run nothing, write the table")
    options = parser.parse_args()
    unknown = set(options.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    failed = False
    for row in () if options.table else ROWS:
        if not options.rows or row.name in options.rows:
            result = _run(row)
            failed |= any(step != "passed" for step in result["steps"].values())
            _save(row, result)
            if not options.keep:
                shutil.rmtree(MATRIX / row.name, ignore_errors=True)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(_results())}\n{END}{rest.partition(END)[2]}")
    return int(failed)


def table(results: Mapping[str, Any]) -> str:
    """Return the table of results, as Markdown."""
    head = ["row", "Python", *SHOWN, "Spark", "install", "core tests", "demo DAG"]
    lines = [head, ["---"] * len(head)]
    for row in ROWS:
        if row.name not in results:
            continue
        versions, steps = results[row.name]["versions"], results[row.name]["steps"]
        known = [versions.get(name, "") for name in ("Python", *SHOWN, "Spark")]
        core = steps.get("core", NOT_RUN) if row.python else "-"
        demo = "-" if row.tests else steps.get("demo", NOT_RUN)
        lines.append([row.name, *known, steps.get("install", NOT_RUN), core, demo])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _results() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def _save(row: Row, result: Mapping[str, Any]) -> None:
    results = {**_results(), row.name: result}
    RESULTS.write_text(
        json.dumps({row.name: results[row.name] for row in ROWS if row.name in results}, indent=2)
        + "\n"
    )


def _run(row: Row) -> dict[str, Any]:
    print(f"==> {row.name}", flush=True)
    steps: dict[str, str] = {}
    result = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "versions": {}, "steps": steps}
    python, spark = (
        MATRIX / row.name / "bin" / "python",
        MATRIX / f"spark-{row.spark.removesuffix('.*')}",
    )
    if not row.python:
        python = ROOT / ".venv" / "bin" / "python"
    if row.spark == NEWEST_SPARK:
        spark = ROOT / ".venv-spark"
    steps["install"] = _step(row, "install", _install_commands(row, python, spark))
    if steps["install"] != "passed":
        return result
    result["versions"] = _versions(python, spark)
    if row.python:  # without a Python, `make test` has run all of the suite
        tests = [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            "-o",
            "filterwarnings=default",
        ]
        selected = [row.tests] if row.tests else ["-m", NOT_CORE, *CORE]
        steps["core"] = _step(row, "core", [[*tests, *selected]], {"PYTHONPATH": str(ROOT)})
    if not row.tests:
        demo = [str(python), str(ROOT / "scripts/demo.py")]
        steps["demo"] = _step(row, "demo", [demo], _demo_environment(row, spark))
        if steps["demo"] == "passed" and not _has_lineage(MATRIX / f"{row.name}-demo" / "lineage"):
            steps["demo"] = "failed: edges are missing"
    return result


def _install_commands(row: Row, python: Path, spark: Path) -> list[list[str]]:
    commands = []
    if row.python and not python.exists():
        wanted = [
            f"{ROOT}[openlineage,sql,kafka,s3,livy,kubernetes]",
            *row.requirements,
            *TEST_TOOLS,
        ]
        commands += [
            [str(UV), "venv", "--quiet", "--python", row.python, str(python.parent.parent)],
            [
                str(UV),
                "pip",
                "install",
                "--python",
                str(python),
                "--resolution",
                row.resolution,
                *wanted,
            ],
        ]
    if not (spark / "bin" / "spark-submit").exists():
        commands += [
            [str(UV), "venv", "--quiet", "--python", "3.11", str(spark)],
            [
                str(UV),
                "pip",
                "install",
                "--python",
                str(spark / "bin/python"),
                f"pyspark=={row.spark}",
            ],
        ]
    return commands


def _demo_environment(row: Row, spark: Path) -> dict[str, str]:
    folder = MATRIX / f"{row.name}-demo"
    shutil.rmtree(folder, ignore_errors=True)
    # The pinned jar fits the newest Spark's Scala; for another Spark, the operator names the jar
    # that fits.
    jar = {} if row.spark == NEWEST_SPARK else {"DEMO_JAR": ""}
    return {
        "DEMO_FOLDER": str(folder),
        "DEMO_SPARK_VENV": str(spark),
        "PYTHONPATH": str(ROOT),
        **jar,
    }


def _has_lineage(sink: Path) -> bool:
    """Return whether both Spark jobs of the demo have inputs and outputs."""
    found = set()
    for proposal in (
        one for path in sorted(sink.glob("*.json")) for one in json.loads(path.read_text())
    ):
        if proposal["aspectName"] == "dataJobInputOutput" and "(spark," in proposal["entityUrn"]:
            edges = proposal["aspect"].get("json") or {}
            if (
                isinstance(edges, dict)
                and edges.get("inputDatasetEdges")
                and edges.get("outputDatasetEdges")
            ):
                found.add(proposal["entityUrn"])
    return len(found) == 2


def _versions(python: Path, spark: Path) -> dict[str, str]:
    freeze = subprocess.run(
        [UV, "pip", "freeze", "--python", python], capture_output=True, text=True, check=True
    )
    installed = dict(re.findall(r"^([\w.-]+)==(\S+)$", freeze.stdout, re.MULTILINE))
    version = subprocess.run(
        [python, "--version"], capture_output=True, text=True, check=True
    ).stdout
    [pyspark] = spark.glob("lib/python3*/site-packages/pyspark-*.dist-info")
    return {
        "Python": version.removeprefix("Python ").strip(),
        **{shown: installed.get(name, "none") for shown, name in SHOWN.items()},
        "Spark": pyspark.name.removeprefix("pyspark-").removesuffix(".dist-info"),
    }


def _step(
    row: Row, name: str, commands: Iterable[list[str]], environment: Mapping[str, str] | None = None
) -> str:
    """Run the commands of a step and return how it ended; what they print is in ``.cache/matrix``."""
    MATRIX.mkdir(parents=True, exist_ok=True)
    log = MATRIX / f"{row.name}.{name}.log"
    interpreters = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
    path = os.pathsep.join([os.environ["PATH"], *map(str, sorted(interpreters, reverse=True))])
    with log.open("w") as stream:
        for command in commands:
            done = subprocess.run(
                command,
                env={**os.environ, "PATH": path, **(environment or {})},
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
                cwd=ROOT,
            )
            if done.returncode != 0:
                print(f"    {name}: failed, see {log}", flush=True)
                last = (log.read_text().splitlines() or [""])[-1]
                counts = re.findall(r"\d+ failed|\d+ passed|\d+ errors?", last)
                return f"failed{': ' if counts else ''}{', '.join(counts)}"
    print(f"    {name}: passed", flush=True)
    return "passed"


if __name__ == "__main__":
    sys.exit(main())
