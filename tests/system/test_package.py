"""The built package, installed where nothing else of the project is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
UV = ROOT / ".cache" / "uv-venv" / "bin" / "uv"

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(300)]

PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
print(json.dumps({"errors": bag.import_errors, "dags": sorted(bag.dags)}))
"""


def run(*command: object, folder: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a clean environment with the wheel and what it depends on."""
    assert UV.exists(), f"{UV} is missing: run `make setup`"
    (wheel,) = dist.glob("*.whl")
    environment = tmp_path_factory.mktemp("clean") / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, environment)
    interpreter = environment / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", interpreter, "-c", ROOT / "requirements" / "dev.txt", wheel)
    return interpreter


def test_metadata(dist: Path) -> None:
    assert len(list(dist.iterdir())) == 2
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())


def test_the_wheel_is_a_provider_and_the_example_parses(python: Path, tmp_path: Path) -> None:
    home = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    providers = run(python.parent / "airflow", "providers", "list", "--output", "json", folder=tmp_path, **home)
    assert "airflow-provider-spark-datahub" in providers
    parsed = json.loads(run(python, "-c", PARSE, ROOT / "example_dags", folder=tmp_path, **home).splitlines()[-1])
    assert parsed == {
        "errors": {},
        "dags": sorted(
            dag_id
            for path in (ROOT / "example_dags").glob("*.py")
            for dag_id in re.findall(r'dag_id="(\w+)"', path.read_text())
        ),
    }


def test_the_command_works(python: Path, tmp_path: Path) -> None:
    events = ROOT / "tests" / "data" / "corpus" / "events" / "a_csv_join_agg.ndjson"
    lines = run(python.parent / "spark-datahub", "convert", events, "--exit-code", 0, folder=tmp_path).splitlines()
    assert len(lines) == 12
    run(python.parent / "spark-datahub", "show", events, "-o", "lineage.html", folder=tmp_path)
    assert "<svg" in (tmp_path / "lineage.html").read_text()
