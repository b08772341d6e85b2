"""What a backfill is to do, and where its results are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.conversion.archive import Selection
from airflow_provider_spark_datahub.conversion.events import parse_time_ms
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

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
