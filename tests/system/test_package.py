"""The built package, installed where nothing else of the project is."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from email import message_from_bytes
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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
    """The interpreter of a clean environment with the wheel and what it depends on, and nothing
    else.

    The dependencies are links to those that are installed here: to install and compile them again
    takes a minute.
    """
    assert UV.exists(), f"{UV} is missing: run `make setup`"
    (wheel,) = dist.glob("*.whl")
    environment = tmp_path_factory.mktemp("clean") / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, environment)
    interpreter = environment / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--no-deps", "--python", interpreter, wheel)
    (packages,) = environment.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        wheels = message_from_bytes(archive.read(metadata))
    link(installed_for(wheels.get_all("Requires-Dist", [])), packages)
    return interpreter


def installed_for(requirements: Iterable[str]) -> list[Distribution]:
    """Return the distributions installed here for requirements, and for their own requirements."""
    found: dict[str, tuple[Distribution, list[Requirement]]] = {}
    seen: set[tuple[str, str]] = set()
    wanted = [(Requirement(text), "") for text in requirements]
    while wanted:
        requirement, extra = wanted.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for of_extra in {"", *requirement.extras}:
            if (requirement.name, of_extra) not in seen:
                seen.add((requirement.name, of_extra))
                if requirement.name not in found:
                    distribution = importlib.metadata.distribution(requirement.name)
                    found[requirement.name] = (
                        distribution,
                        [Requirement(text) for text in distribution.requires or ()],
                    )
                wanted += [(child, of_extra) for child in found[requirement.name][1]]
    return [distribution for distribution, _ in found.values()]


def link(distributions: list[Distribution], packages: Path) -> None:
    """Link the files of distributions into an environment, by folders where a folder holds nothing
    else.
    """
    wanted = {distribution.name for distribution in distributions}
    owners: dict[Path, set[str]] = defaultdict(set)
    for distribution in importlib.metadata.distributions():
        name = distribution.name  # reads all of the metadata each time
        for file in distribution.files or ():
            for path in (Path(file), *Path(file).parents):
                owners[path].add(name)
    installed = Path(str(distributions[0].locate_file("")))
    folders = [Path()]
    while folders:
        folder = folders.pop()
        for source in (installed / folder).iterdir():
            path = folder / source.name
            if source.name == "__pycache__" or (owners[path] and owners[path] <= wanted):
                (packages / path).symlink_to(source)
            elif owners[path] & wanted:
                (packages / path).mkdir()
                folders.append(path)


def test_the_metadata_of_the_package_is_valid(dist: Path) -> None:
    assert len(list(dist.iterdir())) == 2
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())


@pytest.mark.parametrize(
    ("project_url", "origin", "expected"),
    [
        (
            "https://example.org/team/repository/",
            "https://example.org/fork.git",
            "https://example.org/team/repository",
        ),
        ("", "https://example.org/team/repository.git", "https://example.org/team/repository"),
        ("", "https://user:token@example.org/team/repository", None),
        ("", "/home/somebody/checkout", None),
        ("", None, None),
    ],
)
def test_a_build_names_the_repository_of_project_url_or_of_its_clone(
    tmp_path: Path, project_url: str, origin: str | None, expected: str | None
) -> None:
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    version = Path("airflow_provider_spark_datahub/__init__.py")
    (tmp_path / version).parent.mkdir()
    (tmp_path / version).write_bytes((ROOT / version).read_bytes())
    run("git", "init", "-q", folder=tmp_path)
    if origin is not None:
        run("git", "remote", "add", "origin", origin, folder=tmp_path)
    metadata = json.loads(
        run(sys.executable, "-m", "hatchling", "metadata", folder=tmp_path, PROJECT_URL=project_url)
    )
    assert metadata.get("urls", {}).get("Source") == expected
    assert expected is None or metadata["urls"]["Issues"] == f"{expected}/issues"


def test_an_address_that_is_not_https_is_refused() -> None:
    with pytest.raises(AssertionError, match="it must be the repository's https:// address"):
        run(sys.executable, "-m", "hatchling", "metadata", folder=ROOT, PROJECT_URL="repository")


def test_the_wheel_is_a_provider_and_the_example_parses(python: Path, tmp_path: Path) -> None:
    home = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    providers = run(
        python, "-m", "airflow", "providers", "list", "--output", "json", folder=tmp_path, **home
    )
    assert "airflow-provider-spark-datahub" in providers
    parsed = json.loads(
        run(python, "-c", PARSE, ROOT / "example_dags", folder=tmp_path, **home).splitlines()[-1]
    )
    # Their operators need the extras `livy` and `kubernetes`, or `s3`, and say so.
    errors = {Path(path).name: error for path, error in parsed["errors"].items()}
    assert "No module named 'airflow.providers.apache.livy'" in errors["remote_lineage.py"]
    assert "No module named 'airflow.providers.amazon'" in errors["managed_lineage.py"]
    assert len(errors) == 2
    assert parsed["dags"] == sorted(
        dag_id
        for path in (ROOT / "example_dags").glob("*.py")
        for dag_id in re.findall(r'dag_id="(\w+)"', path.read_text())
        if path.name not in errors
    )


def test_the_installed_command_converts_and_draws(python: Path, tmp_path: Path) -> None:
    events = ROOT / "tests" / "data" / "corpus" / "events" / "a_csv_join_agg.ndjson"
    lines = run(
        python.parent / "spark-datahub", "convert", events, "--exit-code", 0, folder=tmp_path
    ).splitlines()
    assert len(lines) == 14
    run(python.parent / "spark-datahub", "show", events, "-o", "lineage.html", folder=tmp_path)
    assert "<svg" in (tmp_path / "lineage.html").read_text()
