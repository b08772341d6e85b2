"""The plan of a backfill, and its way to the cluster."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from airflow_provider_spark_datahub.backfill import plan
from airflow_provider_spark_datahub.backfill.spark_job import _HadoopFiles
from airflow_provider_spark_datahub.conversion.archive import ArchiveFilter
from tests.cases import cases

PLAN = plan.BackfillPlan(
    sources=("/events", "s3a://bucket/events"),
    out="file:///out",
    options=(
        {"env": "DEV"},
        {"path_specs": {"file": {"a": {"path_spec_list": ["/lake/{table}"]}}}},
    ),
    since="2026-01-01",
    until="2026-04-01T00:00:00+02:00",
    applications=("shop*",),
    run_history=True,
    parts=7,
)


def test_a_plan_survives_its_way_to_the_cluster() -> None:
    assert plan.BackfillPlan.from_json(PLAN.to_json()) == PLAN


def test_settings_filter_and_paths_of_a_plan() -> None:
    assert PLAN.settings().env == "DEV"
    assert PLAN.archive_filter() == ArchiveFilter(
        1767225600000, 1774994400000, ("shop*",), run_history=True
    )
    assert PLAN.path("proposals") == "file:///out/proposals"


@cases("backfill")
def test_times_that_make_no_sense_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(plan.PlanError, match=message):
        replace(PLAN, **change).archive_filter()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"sources": []}', PLAN.to_json().replace("parts", "pieces")]
)
def test_text_that_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(plan.PlanError, match="not the plan of a backfill"):
        plan.BackfillPlan.from_json(text)


def test_a_path_is_one_on_a_disk_whatever_the_cluster_takes_it_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan.folder_uri("out") == f"file://{tmp_path}/out"
    assert plan.folder_uri("/out") == "file:///out"
    assert plan.folder_uri("s3a://bucket/out/") == "s3a://bucket/out"


def test_the_same_package_is_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first, second = plan.write_package(tmp_path / "a"), plan.write_package(tmp_path)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_the_package_holds_all_that_the_job_imports(tmp_path: Path) -> None:
    # Imported from the file alone: neither Airflow nor DataHub is needed.
    package = plan.write_package(tmp_path)
    names = [
        name
        for name in zipfile.ZipFile(package).namelist()
        if "/backfill/" in name or "/conversion/" in name
    ]
    names.remove(f"{package.stem}/backfill/delivery.py")  # of the side that delivers
    modules = [
        name.removesuffix(".py").replace("/", ".")
        for name in names
        if not name.endswith("__init__.py")
    ]
    code = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(package)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "import airflow_provider_spark_datahub as package\n"
        f"assert package.__file__.startswith({str(package)!r}), package.__file__\n"
        "imported = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(imported & {'airflow', 'datahub', 'requests', 'pendulum'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": ""},
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_result_that_hadoop_does_not_rename_fails_the_job() -> None:
    spark = MagicMock()
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path
    path.return_value.getFileSystem.return_value.rename.return_value = False
    with pytest.raises(
        OSError, match=r"s3a://out/summary.json cannot be written.*summary.json.draft"
    ):
        _HadoopFiles(spark).write("s3a://out/summary.json", "{}")
