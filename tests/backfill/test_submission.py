from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from airflow_provider_spark_datahub.backfill.plan import (
    SPARK_MAIN,
    BackfillPlan,
    Cluster,
    write_package,
)
from airflow_provider_spark_datahub.backfill.spark_job import _HadoopFiles

PLAN = BackfillPlan(("/events",), "file:///out")


def test_the_command_as_a_list() -> None:
    cluster = Cluster("yarn", "cluster", {"spark.executor.memory": "4g", "spark.x": "a=b"}, "/opt/spark-submit")
    assert cluster.command(PLAN, Path("/tmp/package.zip")) == [
        "/opt/spark-submit",
        "--master",
        "yarn",
        "--deploy-mode",
        "cluster",
        "--name",
        "spark-datahub backfill",
        "--conf",
        "spark.executor.memory=4g",
        "--conf",
        "spark.x=a=b",
        "--py-files",
        "/tmp/package.zip",
        str(SPARK_MAIN),
        PLAN.to_json(),
    ]


def test_spark_s_own_configuration_decides_the_rest() -> None:
    command = Cluster().command(PLAN, Path("p.zip"))
    assert not {"--master", "--deploy-mode", "--conf"} & set(command)
    assert SPARK_MAIN.is_file()


def test_the_same_package_is_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first, second = write_package(tmp_path / "a"), write_package(tmp_path)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_the_package_holds_all_that_the_job_imports(tmp_path: Path) -> None:
    # Imported from the file alone: neither Airflow nor DataHub is needed.
    package = write_package(tmp_path)
    names = [name for name in zipfile.ZipFile(package).namelist() if "/backfill/" in name or "/conversion/" in name]
    names.remove(f"{package.stem}/backfill/delivery.py")  # of the side that delivers
    modules = [name.removesuffix(".py").replace("/", ".") for name in names if not name.endswith("__init__.py")]
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
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env={"PATH": ""}
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_result_that_hadoop_does_not_rename_fails_the_job() -> None:
    spark = MagicMock()
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path
    path.return_value.getFileSystem.return_value.rename.return_value = False
    with pytest.raises(OSError, match=r"s3a://out/summary.json cannot be written.*summary.json.draft"):
        _HadoopFiles(spark).write("s3a://out/summary.json", "{}")
