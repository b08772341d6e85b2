"""Commands on what the outbox keeps of runs: ``changed``, ``impact``, ``reconcile`` and
``coverage``.

Tests: ``tests/cli/test_histories.py``, ``test_reconcile.py`` and ``test_coverage.py``.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import to_builtins

from airflow_provider_spark_datahub import delivery, hooks, visualization
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.cli.convert import read_sources
from airflow_provider_spark_datahub.cli.outbox import OutboxOption, opened_outbox
from airflow_provider_spark_datahub.conversion import (
    DailyTable,
    Fingerprint,
    Impact,
    LineageSettings,
    Records,
    UnknownWriteError,
    parse_time_ms,
)
from airflow_provider_spark_datahub.delivery import (
    Deadline,
    Reconciliation,
    SinkSettingsError,
    sinks,
)
from airflow_provider_spark_datahub.delivery.outbox import AttemptRecord, Histories
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.text import counted, printable

_DATAHUB_SECONDS = 600.0
"""Time to read the runs that DataHub has."""
_DETAIL = re.compile(r" \([^()]*\)$")
_VARIES = re.compile(r"(?<![\w.])/[^\s:;,'\"]+|\b\d\d:\d\d:\d\d\b|\b\d+\.\d+(?= s\b)")
_NO_REASON = "the report gives no reason"


def changed(
    dag: Annotated[str, typer.Argument(help="The DAG.")],
    task: Annotated[str, typer.Argument(help="The task.")],
    run: Annotated[
        str | None, typer.Option("--run", help="The DAG run; default: the latest.")
    ] = None,
    map_index: Annotated[int, typer.Option(help="The index in a mapped task.")] = -1,
    outbox: OutboxOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show what changed between a task's last green run and its latest run, the likeliest cause of
    a failure first.

    Exit status: 0; 1 if something in the outbox cannot be read; 2 for wrong options, or if no such
    run is recorded.
    """
    with opened_outbox(outbox, or_folder=True) as opened:
        histories = Histories(opened.storage)
        records = histories.of_task(AttemptKey(dag, "", task, map_index, 1))
        record = next((record for record in records if run in (None, record.key.run_id)), None)
        if record is None:
            _say_unread(histories)
            console.fail(f"No run {run or ''} of {dag}.{task} is recorded.".replace("  ", " "))
        lines = histories.changes(record)
    if as_json:
        console.show_json(
            {"run": record.key.run_id, "try": record.key.try_number, "changes": lines}
        )
    else:
        for line in lines:
            console.show_line(line)
        console.say(
            f"{record.key.run_id}: {counted(len(lines), 'change')} since the last green run"
        )
    if _say_unread(histories):
        raise typer.Exit(console.EXIT_INCOMPLETE)


def impact(
    dataset: Annotated[
        str, typer.Argument(help="Its URN, its name, or the end of its name, such as shop.orders.")
    ],
    version: Annotated[str | None, typer.Option(help="The version that is wrong.")] = None,
    column: Annotated[
        str | None, typer.Option(help="Only the values of this column are wrong.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="All writes since an ISO time or a duration (7d) ago are wrong."
        ),
    ] = None,
    outbox: OutboxOption = None,
    connection: Annotated[
        str | None,
        typer.Option(
            help="Airflow connection of type datahub-rest, to read also the runs that DataHub has."
        ),
    ] = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show which task instances read a wrong write of a dataset, and how to clear them; by default,
    its last write.

    Exit status: 0; 1 if something in the outbox, or DataHub, cannot be read; 2 for wrong options,
    or if no such write is recorded.
    """
    since_ms = parse_time_ms(console.since_now(since))
    if since is not None and since_ms is None:
        console.fail(f"--since {since}: want an ISO time, or a duration, such as 7d")
    with opened_outbox(outbox, or_folder=True) as opened:
        histories = Histories(opened.storage)
        records = Records(histories.all())
    is_whole = not _say_unread(histories)
    if connection is not None:
        try:
            deadline = Deadline.after(_DATAHUB_SECONDS)
            settings = _datahub_settings(connection)
            records = records.plus(
                sinks.read_runs(settings, dataset, records.named(dataset), deadline)
            )
        except SinkSettingsError as error:
            console.fail(str(error), console.EXIT_INCOMPLETE)
    try:
        outcome = records.impact(records.writes_of(dataset, version, since_ms), column)
    except UnknownWriteError as error:
        console.fail(str(error))
    if as_json:
        console.show_json(
            {
                **to_builtins(outcome),
                "downstream": outcome.downstream,
                "commands": list(_clears(outcome)),
            }
        )
    else:
        _show(outcome)
    if not is_whole:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def _show(outcome: Impact) -> None:
    console.say(outcome.sentence)
    for instance in outcome.reached:
        name = (
            instance.task_id
            if instance.map_index < 0
            else f"{instance.task_id}[{instance.map_index}]"
        )
        how = f"  {instance.how}" if instance.inferred else ""
        console.say(f"{instance.dag_id}  {instance.run_id}  {name}{how}")
    for command in _clears(outcome):
        console.show_line(command)


def _clears(outcome: Impact) -> Iterator[str]:
    """Yield the commands that clear what a write reached, in order. Each asks, as ``-t`` takes
    parts of ids, too.
    """
    instances = [(one.dag_id, one.run_id, one.task_id, one.logical_ms) for one in outcome.reached]
    for dag_id, run_id, task_id, logical_ms in dict.fromkeys(instances):
        if logical_ms is None:
            yield f"# {dag_id} {run_id} has no logical date: clear {task_id} in Airflow's UI"
            continue
        # Airflow's dates have microseconds, and were rounded.
        start, end = (
            datetime.fromtimestamp((logical_ms + more) / 1000, UTC).isoformat()
            for more in (-0.5, 0.5)
        )
        yield f"airflow tasks clear {shlex.quote(dag_id)} -t {shlex.quote(task_id)} -s {start} -e {end}"


def reconcile(
    lineage: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files of proposals or of OpenLineage events, also .gz and .zst; - for standard input; default: what "
            "the outbox knows of all tasks.",
            show_default=False,
        ),
    ] = None,
    outbox: OutboxOption = None,
    connection: Annotated[
        str, typer.Option(help="Airflow connection of type datahub-rest.")
    ] = "datahub_rest_default",
    config: console.ConfigOption = None,
    set_: console.SetOption = None,
    output: console.OutputOption = None,
) -> None:
    """Find the datasets of DataHub that are tables which our lineage names otherwise: in other
    case, with an instance, by their path, or under another catalogue's platform.

    Writes the setting dataset_urns as JSON, to review, commit and give to the tasks, and path_specs
    for the tables that tasks write to another path in each run. Nothing is guessed: a table with
    several candidates is listed and left out.

    Exit status: 0; 1 if DataHub or a file cannot be read; 2 for wrong options.
    """
    settings, _ = console.read_settings(config, set_ or [])
    ours, daily = _our_datasets(lineage, outbox, settings)
    server = _datahub_settings(connection)
    try:
        reconciliation = delivery.Reconciliation.of(
            ours, sinks.read_datasets(server), settings, daily
        )
    except SinkSettingsError as error:
        console.fail(str(error), console.EXIT_INCOMPLETE)
    for line in _reconciliation_lines(reconciliation):
        console.say(printable(line))
    console.say(f"{counted(len(ours), 'dataset')}: {len(reconciliation.same)} named otherwise in DataHub, "
                f"{len(reconciliation.ambiguous)} ambiguous, {len(reconciliation.ghosts)} known by lineage alone, "
                f"{counted(len(reconciliation.daily), 'table')} with another path in each run")  # fmt: skip
    with console.open_output(output) as file:
        file.write(json.dumps(_proposed(reconciliation, settings), indent=2) + "\n")


def _our_datasets(
    lineage: list[Path] | None, outbox: str | None, settings: LineageSettings
) -> tuple[dict[str, None], list[DailyTable]]:
    """Return the URNs of our lineage, and the tables that tasks write to another path in each run."""
    ours: dict[str, None] = {}
    records: list[Fingerprint] = []
    if lineage:
        proposals, problems, _ = read_sources(lineage, settings=settings)
        for problem in problems:
            console.say(problem)
        jobs = visualization.Graph.of(proposals).jobs
        ours = dict.fromkeys(urn for job in jobs for urn in (*job.inputs, *job.outputs))
    if outbox or not lineage:
        with opened_outbox(outbox, or_folder=True) as opened:
            histories = Histories(opened.storage)
            records = list(histories.all())
        _say_unread(histories)
    ours |= dict.fromkeys(urn for record in records for urn in record.datasets)
    return ours, list(DailyTable.of_tasks(records))


def _reconciliation_lines(reconciliation: Reconciliation) -> Iterator[str]:
    for urn, others in reconciliation.ambiguous.items():
        yield f"{urn} may be any of {', '.join(others)}: left out"
    for table, problem in reconciliation.daily:
        but = f", but {problem}: left out" if problem else ""
        yield f"{counted(len(table.urns), 'dataset')} such as {table.urns[0]}: {table.setting}{but}"
    for urn, count in reconciliation.similar.items():
        yield f"{count} datasets may be one: they differ from {urn} only in digits, dates and UUIDs"
    for urn in reconciliation.ghosts:
        yield f"{urn} is known by lineage alone"


def _proposed(reconciliation: Reconciliation, settings: LineageSettings) -> dict[str, Any]:
    """Return the settings that name datasets as DataHub does, with what such settings already say."""
    same = {
        urn: reconciliation.same.get(other, other) for urn, other in settings.dataset_urns.items()
    } | reconciliation.same
    specs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for spec in settings.path_specs:
        parts = {
            name: getattr(spec, name) for name in ("path_spec_list", "env", "platform_instance")
        }
        of_platform = specs.setdefault(spec.platform, {})
        of_platform[spec.alias or f"spec{len(of_platform)}"] = {
            name: part for name, part in parts.items() if part
        }
    for table, problem in reconciliation.daily:
        if not problem:
            of_platform = specs.setdefault(table.platform, {})
            of_platform[f"spec{len(of_platform)}"] = table.spec
    return {"dataset_urns": dict(sorted(same.items()))} | ({"path_specs": specs} if specs else {})


def _datahub_settings(connection: str) -> sinks.RestSettings:
    """Return the settings of a connection to DataHub's REST API; end the command with a message for
    any other.
    """
    with console.airflow_logs_to_stderr():
        sink, problem = hooks.open_sink(connection)
    if not isinstance(sink, sinks.RestSink):
        console.fail(problem or f"connection {connection!r} is not of type datahub-rest")
    return sink.settings


def _say_unread(histories: Histories) -> bool:
    """Say that fingerprints could not be read; return whether there are any."""
    if histories.unread:
        console.say(
            f"{counted(histories.unread, 'fingerprint')} cannot be read: nobody knows what these runs used."
        )
    return bool(histories.unread)


def coverage(
    since: Annotated[
        str,
        typer.Option(
            help="Only tasks that reported since then: ISO 8601, or a duration ago, such as 7d or 36h."
        ),
    ] = "7d",
    dag: Annotated[
        list[str] | None, typer.Option("--dag", help="Only tasks of this DAG; repeatable.")
    ] = None,
    as_json: console.JsonOption = False,
) -> None:
    """Count the tasks with and without lineage, by the reports of their last attempts and by the
    outbox.

    Pending and quarantined entries of the outbox are counted whatever their age.

    Exit status: 0 if all tasks have lineage and all of it is delivered; 1 if not, or if the outbox
    or Airflow's database cannot be read; 2 for wrong options.
    """
    from sqlalchemy.exc import SQLAlchemyError

    since_ms = parse_time_ms(console.since_now(since))
    if since_ms is None:
        console.fail(
            f"--since {since}: want ISO 8601, such as 2026-01-31, or a duration, such as 7d or 36h"
        )
    moment, dag_ids = datetime.fromtimestamp(since_ms / 1000, UTC), set(dag) if dag else None
    try:
        with console.airflow_logs_to_stderr():
            source = hooks.LineageSource()
            records = source.newest(None, dag_ids, undelivered=True)
            reports = source.reports(dag_ids, most=None, since=moment)
            settled = source.settled(reports)
    except SQLAlchemyError as error:
        console.fail(
            f"cannot read the reports in Airflow's database: {type(error).__name__}",
            console.EXIT_INCOMPLETE,
        )
    counts = _counts(reports, records, settled, time.time())
    counts["since"] = moment.isoformat()
    if as_json:
        console.show_json(counts)
    else:
        for line in _coverage_lines(counts):
            console.show_line(line)
    if counts["without"] or counts["pending"] or counts["quarantined"]:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def _counts(
    reports: Iterable[hooks.TaskReport],
    records: Sequence[AttemptRecord],
    settled: Collection[Any],
    now: float,
) -> dict[str, Any]:
    reasons: Counter[str] = Counter()
    with_lineage = 0
    for task in reports:
        if task.state(settled) != "no lineage":
            with_lineage += 1
        else:
            # Cut paths, times, and the details in brackets at the end: they would make every task's
            # reason another one.
            reasons[_VARIES.sub("…", _DETAIL.sub("", next(iter(task.reasons), _NO_REASON)))] += 1
    states = Counter(record.state for record in records)
    oldest = min(
        (record.created_ms for record in records if record.state != "quarantined"), default=None
    )
    return {
        "tasks": with_lineage + reasons.total(),
        "with_lineage": with_lineage,
        "without": dict(reasons.most_common()),
        **{state: states[state] for state in ("pending", "unfinished", "quarantined")},
        "oldest_pending_seconds": None if oldest is None else max(0, round(now - oldest / 1000)),
    }


def _coverage_lines(counts: dict[str, Any]) -> Iterable[str]:
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
