"""What a backfill is to do, and where its results are.

The parts of a backfill: Parquet files of proposals, which Spark writes and a delivery reads.

The ``spark-submit`` of a backfill: a command, and this package as a file that executors can import from.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_spark_datahub.conversion import LineageSettings, parse_time_ms
from airflow_provider_spark_datahub.conversion.archive import Selection

PROPOSALS = "proposals"
"""Folder of the parts: a table (Parquet) of proposals. All of one entity are in one file, in their order."""
PROPOSAL_COLUMN = "proposal"
"""Of that table: one line of JSON."""
QUARANTINE = "quarantine"
"""Folder of what came to nothing: file, offset and reason, as JSON lines."""
SUMMARY = "summary.json"
STATE = "_state"
"""Folder of what is needed to go on after a crash."""
WORK = "_work"
"""Folder of what Spark keeps between two steps; gone when the conversion is complete."""
PLAN_FILE = f"{STATE}/plan.json"
CONVERTED_FILE = f"{STATE}/converted.json"
"""Is there when the conversion is complete."""


LOCAL = "file://"
"""How the URI of a folder on a disk begins."""


class PlanError(ValueError):
    """A plan that cannot be carried out; the message says what is wrong with it and what to do."""


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What to convert, how, and where to.

    :param sources: folders, files or globs, as Spark on the cluster knows them.
    :param out: URI of the backfill's own folder; see :func:`folder_uri`.
    :param options: layers of the converter's options, as :meth:`LineageSettings.from_mapping` takes them.
    :param since: ISO time: only runs that ended then or later. Likewise :attr:`until`: only those that ended before.
    :param applications: names of flows, where ``*`` stands for any text.
    :param parts: how many files of proposals; by the size of the archive where it is not told.
    """

    sources: tuple[str, ...]
    out: str
    options: tuple[Mapping[str, Any], ...] = ()
    since: str | None = None
    until: str | None = None
    applications: tuple[str, ...] = ()
    run_history: bool = False
    parts: int | None = None
    dry_run: bool = field(default=False, compare=False)

    def settings(self) -> LineageSettings:
        """The converter's options.

        :raises SettingsError: where one is wrong.
        """
        return LineageSettings.from_mapping(*self.options)

    def selection(self) -> Selection:
        """Which part of the archive is wanted.

        :raises PlanError: where a time is none.
        """
        since_ms, until_ms = _time_ms("since", self.since), _time_ms("until", self.until)
        if since_ms is not None and until_ms is not None and since_ms >= until_ms:
            raise PlanError(f"nothing is since {self.since} and until {self.until}")
        return Selection(since_ms, until_ms, self.applications, self.run_history)

    def place(self, name: str) -> str:
        """A file or folder of the backfill."""
        return f"{self.out.rstrip('/')}/{name}"

    def to_json(self) -> str:
        """The plan as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BackfillPlan:
        """The plan that :meth:`to_json` wrote.

        :raises PlanError: where it is none.
        """
        try:
            values = json.loads(text)
            lists: Sequence[str] = ("sources", "options", "applications")
            return cls(**{**values, **{name: tuple(values[name]) for name in lists}})
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"not the plan of a backfill by this version: {error}") from error


def folder_uri(folder: str) -> str:
    """The URI of a folder that a person names: a path is one on a disk that this machine and the cluster share.

    Without a scheme Spark would take it for one of the cluster's default file system, which may be another one.
    """
    return folder.rstrip("/") if "://" in folder else f"{LOCAL}{Path(folder).absolute()}"


def check_plan(plan: BackfillPlan, known: str) -> None:
    """Make sure that a folder is that of a plan.

    :param known: the plan that is in the folder.
    :raises PlanError: it is another one.
    """
    if BackfillPlan.from_json(known) != plan:
        raise PlanError(
            f"{plan.out} holds the results of another backfill ({known}): choose another folder, or remove it"
        )


def _time_ms(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    time_ms = parse_time_ms(text)
    if time_ms is None:
        raise PlanError(f"{name} is {text!r}, want a time such as 2026-01-31 or 2026-01-31T12:00:00Z")
    return time_ms


_ROWS = 20
"""That are decoded at once: few, since each may have megabytes."""


class PartError(ValueError):
    """A file that cannot be read as a part of a backfill: another one, or a damaged one."""


def proposals_of(part: IO[bytes], name: str, start: int = 0) -> Iterator[str]:
    """The proposals of a part as JSON, in their order; a few are in memory at a time.

    :param name: for errors.
    :param start: how many of them are left out.
    :raises PartError: it is none.
    """
    try:
        with pq.ParquetFile(part) as table:
            batches = table.iter_batches(_ROWS, columns=[PROPOSAL_COLUMN])
            texts = chain.from_iterable(batch.column(PROPOSAL_COLUMN).to_pylist() for batch in batches)
            yield from islice(texts, start, None)
    except (pa.ArrowException, KeyError, OSError) as error:
        raise PartError(f"{name} cannot be read as a part of a backfill: {error}") from error


PACKAGE = Path(__file__).resolve().parent.parent
APPLICATION = PACKAGE / "backfill" / "spark_main.py"
"""What ``spark-submit`` is to run, with the plan as its only argument."""
APPLICATION_NAME = "spark-datahub backfill"
# Their subjects are the cluster's; the others import what is not there.
_SHIPPED = ("", "backfill", "capture", "conversion")
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
            for module in sorted((PACKAGE / part).glob("**/*.py" if part else "*.py")):
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
