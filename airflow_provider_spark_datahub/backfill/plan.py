"""A backfill: its plan, the files in its folder, and the ``spark-submit`` that carries it out."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_spark_datahub.conversion import LineageSettings, parse_time_ms
from airflow_provider_spark_datahub.conversion.archive import ArchiveFilter

# -- the folder of a backfill

PROPOSALS = "proposals"
"""Folder of the parts: Parquet files of proposals. All proposals of an entity are in one part, in
their order.
"""
PROPOSAL_COLUMN = "proposal"
"""Column of a part: a proposal as one line of JSON."""
QUARANTINE = "quarantine"
"""Folder of unconverted lines and datasets: file, offset and reason, as JSON lines."""
SUMMARY = "summary.json"
STATE = "_state"
"""Folder of the files that a later run needs to continue after a crash."""
WORK = "_work"
"""Folder of Spark's results between two steps; removed when the conversion is complete."""
PLAN_FILE = f"{STATE}/plan.json"
CONVERTED_FILE = f"{STATE}/converted.json"
"""Exists once the conversion is complete."""

LOCAL = "file://"
"""Beginning of the URI of a folder on a disk."""

_BATCH_ROWS = 20  # few, since each proposal may have megabytes


class ResultFolder(Protocol):
    """Folder of a backfill: a ``pathlib.Path``, or a path of an object store with the same methods."""

    @property
    def name(self) -> str:
        """Return the last part of the path."""

    def __truediv__(self, name: str, /) -> Self: ...

    def iterdir(self) -> Iterable[Self]:
        """Return the files and folders in it."""

    def exists(self) -> bool:
        """Return whether the file or folder exists."""

    def open(self, mode: str, /) -> IO[Any]:
        """Open the file."""

    def read_text(self) -> str:
        """Return the text of the file."""

    def write_bytes(self, content: bytes, /) -> Any:
        """Write the content of the file."""


def folder_uri(folder: str) -> str:
    """Return the URI of a folder that a person names: a path means a disk that this machine and the
    cluster share.

    For a path without a scheme, Spark would use the cluster's default file system, which may not be
    that disk.
    """
    return folder.rstrip("/") if "://" in folder else f"{LOCAL}{Path(folder).absolute()}"


def read_part(part: IO[bytes], name: str, start: int = 0) -> Iterator[str]:
    """Yield the proposals of a part as JSON, in their order. A few at a time are in memory.

    :param name: the name of the part for error messages.
    :param start: how many proposals to skip.
    :raises PlanError: if the file is not a part.
    """
    try:
        with pq.ParquetFile(part) as table:
            batches = table.iter_batches(_BATCH_ROWS, columns=[PROPOSAL_COLUMN])
            texts = chain.from_iterable(
                batch.column(PROPOSAL_COLUMN).to_pylist() for batch in batches
            )
            yield from islice(texts, start, None)
    except (pa.ArrowException, KeyError, OSError) as error:
        raise PlanError(f"{name} cannot be read as a part of a backfill: {error}") from error


# -- the plan


class PlanError(ValueError):
    """A plan that cannot be carried out, or a part that cannot be read; the message says why."""


@dataclass(frozen=True)
class BackfillPlan:
    """Plan of a backfill: its sources, its settings, and the place of its results.

    :param sources: folders, files or globs, as Spark on the cluster knows them.
    :param out: URI of the backfill's own folder; see :func:`folder_uri`.
    :param options: layers of the converter's settings, as :meth:`LineageSettings.from_mapping`
        takes them.
    :param since: only runs that ended at this ISO time or later.
    :param until: only runs that ended before this ISO time.
    :param applications: names of flows, with ``*`` for any text; empty for all.
    :param parts: number of parts to write; ``None`` to choose it by the size of the archive.
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
        """Return the converter's settings.

        :raises SettingsError: if one is wrong.
        """
        return LineageSettings.from_mapping(*self.options)

    def archive_filter(self) -> ArchiveFilter:
        """Return the filter that selects the wanted part of the archive.

        :raises PlanError: if ``since`` or ``until`` is not a time.
        """
        since_ms, until_ms = _time_ms("since", self.since), _time_ms("until", self.until)
        if since_ms is not None and until_ms is not None and since_ms >= until_ms:
            raise PlanError(
                f"since {self.since} is not before until {self.until}: no run can match"
            )
        return ArchiveFilter(since_ms, until_ms, self.applications, self.run_history)

    def path(self, name: str) -> str:
        """Return the URI of a file or folder of the backfill."""
        return f"{self.out.rstrip('/')}/{name}"

    def resumed(
        self, folder: ResultFolder, asked: Mapping[str, str | None] | None = None
    ) -> BackfillPlan:
        """Check this plan, and return it as it is carried out in its folder, which is new or
        belongs to it.

        :param asked: ``since`` and ``until`` as the user wrote them; a duration ago is that of the
            first call.
        :raises PlanError: if its times are wrong, or the folder belongs to another plan.
        :raises SettingsError: if a setting of the converter is wrong.
        """
        self.settings()
        self.archive_filter()
        if not (folder / PLAN_FILE).exists():
            return self
        stored = (folder / PLAN_FILE).read_text()
        stored_plan = BackfillPlan.from_json(stored)
        ages = [name for name, text in (asked or {}).items() if text != getattr(self, name)]
        plan = replace(
            self, **{name: time for name in ages if (time := getattr(stored_plan, name))}
        )
        plan.check_folder(stored)
        return plan

    def check_folder(self, stored: str) -> None:
        """Check that the folder belongs to this plan.

        :param stored: the plan that is stored in the folder.
        :raises PlanError: if it is another plan.
        """
        if BackfillPlan.from_json(stored) != self:
            raise PlanError(
                f"{self.out} holds the results of another backfill ({stored}): choose another folder, or remove it"
            )

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    def command(self, package: Path, binary: str, options: Iterable[str]) -> list[str]:
        """Return the command that carries out the conversion.

        :param package: the file that :func:`write_package` wrote.
        :param options: those of ``spark-submit``.
        """
        python_files = ("--py-files", str(package))
        return [
            binary,
            "--name",
            APPLICATION_NAME,
            *options,
            *python_files,
            str(SPARK_MAIN),
            self.to_json(),
        ]

    @classmethod
    def from_json(cls, text: str) -> BackfillPlan:
        """Read the plan that :meth:`to_json` wrote.

        :raises PlanError: if the text is not a plan.
        """
        try:
            values = json.loads(text)
            lists: Sequence[str] = ("sources", "options", "applications")
            return cls(**{**values, **{name: tuple(values[name]) for name in lists}})
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"not the plan of a backfill by this version: {error}") from error


def _time_ms(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    time_ms = parse_time_ms(text)
    if time_ms is None:
        raise PlanError(
            f"{name} is {text!r}, want a time such as 2026-01-31 or 2026-01-31T12:00:00Z"
        )
    return time_ms


# -- spark-submit

_PACKAGE = Path(__file__).resolve().parent.parent
SPARK_MAIN = _PACKAGE / "backfill" / "spark_job.py"
"""The application for ``spark-submit``. Its only argument is the plan."""
APPLICATION_NAME = "spark-datahub backfill"
# Layers that the cluster needs; the others import packages that it does not have.
_SHIPPED = ("", "backfill", "capture", "conversion", "foundation")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def write_package(folder: Path) -> Path:
    """Write this package, as it is installed, for ``--py-files``. The same package gives the same
    bytes.

    Executors also need Python 3.11, pyarrow, msgspec, and zstandard if there are ``.zst`` files.

    :raises OSError: if the folder is not writable.
    """
    path = folder / f"{_PACKAGE.name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in _SHIPPED:
            for module in sorted((_PACKAGE / part).glob("**/*.py" if part else "*.py")):
                name = module.relative_to(_PACKAGE.parent).as_posix()
                archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), module.read_bytes())
    return path
