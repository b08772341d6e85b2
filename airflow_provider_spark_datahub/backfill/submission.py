"""The ``spark-submit`` of a backfill: a command, and this package as a file that executors can import from."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider_spark_datahub.backfill.plan import BackfillPlan

PACKAGE = Path(__file__).resolve().parent.parent
APPLICATION = PACKAGE / "spark" / "submitted.py"
"""What ``spark-submit`` is to run, with the plan as its only argument."""
APPLICATION_NAME = "spark-datahub backfill"
# Their subjects are the cluster's; the others import what is not there.
_SHIPPED = ("", "backfill", "capture", "conversion", "spark")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where to submit.

    :param master: as ``spark-submit`` takes it; ``None`` for what Spark's own configuration says. Likewise
        :attr:`deploy_mode`.
    :param conf: Spark properties.
    :param binary: which ``spark-submit``.
    """

    master: str | None = None
    deploy_mode: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    binary: str = "spark-submit"


def write_package(folder: Path) -> Path:
    """Write this package, as it is installed, for ``--py-files``; the same package is always the same bytes.

    Executors need, beside it, Python 3.11, pyarrow, msgspec, and zstandard where there are ``.zst`` files.

    :raises OSError: the folder cannot be written to.
    """
    path = folder / f"{PACKAGE.name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in _SHIPPED:
            for module in sorted((PACKAGE / part).glob("*.py")):
                name = module.relative_to(PACKAGE.parent).as_posix()
                archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), module.read_bytes())
    return path


def spark_submit(plan: BackfillPlan, cluster: Cluster, package: Path) -> list[str]:
    """The command that carries out the conversion of a plan.

    :param package: what :func:`write_package` wrote.
    """
    command = [cluster.binary]
    if cluster.master:
        command += ["--master", cluster.master]
    if cluster.deploy_mode:
        command += ["--deploy-mode", cluster.deploy_mode]
    command += ["--name", APPLICATION_NAME]
    for key, value in cluster.conf.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, "--py-files", str(package), str(APPLICATION), plan.to_json()]
