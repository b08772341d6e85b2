"""``spark-datahub coverage``: how many tasks have lineage, and why the others have none."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider_spark_datahub import hooks
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.foundation.text import counted

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import AttemptRecord

_DETAIL = re.compile(r" \([^()]*\)$")
_PATH = re.compile(r"(?<![\w.])/[^\s:;,'\"]+")
_NO_REASON = "the report gives no reason"


def coverage(
    since: Annotated[
        str, typer.Option(help="Only tasks that reported since then: ISO 8601, or a duration ago, such as 7d or 36h.")
    ] = "7d",
    dag: Annotated[list[str] | None, typer.Option("--dag", help="Only tasks of this DAG; repeatable.")] = None,
    as_json: console.JsonOption = False,
) -> None:
    """Count the tasks with and without lineage, by the reports of their last attempts and by the outbox.

    Pending and quarantined entries of the outbox are counted whatever their age.

    Exit status: 0 if all tasks have lineage and all of it is delivered; 1 if not, or if the outbox or Airflow's
    database cannot be read; 2 for wrong options.
    """
    import pendulum
    from sqlalchemy.exc import SQLAlchemyError

    try:
        moment = pendulum.parse(str(console.since_now(since)))
    except ValueError:
        moment = None
    if not isinstance(moment, pendulum.DateTime):
        console.fail(f"--since {since}: want ISO 8601, such as 2026-01-31, or a duration, such as 7d or 36h")
    dag_ids = set(dag) if dag else None
    try:
        with console.airflow_logs_to_stderr():
            source = hooks.LineageSource()
            records = source.newest(None, dag_ids, undelivered=True)
            reports = source.reports(dag_ids, most=None, since=moment)
    except OSError as error:
        console.fail(f"cannot read the outbox: {error}", console.EXIT_INCOMPLETE)
    except SQLAlchemyError as error:
        console.fail(f"cannot read the reports in Airflow's database: {type(error).__name__}", console.EXIT_INCOMPLETE)
    counts = _count(reports, records, time.time())
    counts["since"] = moment.isoformat()
    if as_json:
        console.show_json(counts)
    else:
        for line in _lines(counts):
            console.show_line(line)
    if counts["without"] or counts["pending"] or counts["quarantined"]:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def _count(reports: Iterable[hooks.TaskReport], records: Sequence[AttemptRecord], now: float) -> dict[str, Any]:
    """Return the counts.

    :param now: in seconds since 1970 UTC.
    """
    reasons: Counter[str] = Counter()
    with_lineage = 0
    for task in reports:
        if task.has_lineage:
            with_lineage += 1
        else:
            # Cut paths, and the details in brackets at the end: they would make every task's reason a different one.
            reasons[_PATH.sub("…", _DETAIL.sub("", next(iter(task.reasons), _NO_REASON)))] += 1
    states = Counter(record.state for record in records)
    oldest = min((record.created_ms for record in records if record.state != "quarantined"), default=None)
    return {
        "tasks": with_lineage + reasons.total(),
        "with_lineage": with_lineage,
        "without": dict(reasons.most_common()),
        **{state: states[state] for state in ("pending", "unfinished", "quarantined")},
        "oldest_pending_seconds": None if oldest is None else max(0, round(now - oldest / 1000)),
    }


def _lines(counts: dict[str, Any]) -> Iterable[str]:
    share = f" ({100 * counts['with_lineage'] / counts['tasks']:.1f} %)" if counts["tasks"] else ""
    yield f"{counts['with_lineage']} of {counted(counts['tasks'], 'task')} with lineage{share} since {counts['since']}"
    for reason, count in counts["without"].items():
        yield f"  {count} without: {reason}"
    oldest = counts["oldest_pending_seconds"]
    age = "" if oldest is None else f", the oldest for {oldest / 3600:.1f} h"
    yield (
        f"outbox: {counted(counts['pending'], 'entry')} pending and {counts['unfinished']} not converted{age}; "
        f"{counts['quarantined']} quarantined"
    )
