"""Commands on the histories that an outbox keeps: ``changed`` and ``impact``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer
from msgspec import to_builtins

from airflow_provider_spark_datahub import hooks
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.cli.outbox import OutboxOption, opened_outbox
from airflow_provider_spark_datahub.conversion import Impact, Records, UnknownWriteError, parse_time_ms
from airflow_provider_spark_datahub.delivery import Deadline, SinkSettingsError, sinks
from airflow_provider_spark_datahub.delivery.outbox import Histories
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.text import counted

_DATAHUB_SECONDS = 600.0
"""Time to read the runs that DataHub has."""


def changed(
    dag: Annotated[str, typer.Argument(help="The DAG.")],
    task: Annotated[str, typer.Argument(help="The task.")],
    run: Annotated[str | None, typer.Option("--run", help="The DAG run; default: the latest.")] = None,
    map_index: Annotated[int, typer.Option(help="The index in a mapped task.")] = -1,
    outbox: OutboxOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show what changed between a task's last green run and its latest run, the likeliest cause of a failure first.

    Exit status: 0; 1 if something in the outbox cannot be read; 2 for wrong options, or if no such run is recorded.
    """
    with opened_outbox(outbox, or_folder=True) as opened:
        histories = Histories(opened.storage)
        records = histories.of_task(AttemptKey(dag, "", task, map_index, 1))
        record = next((record for record in records if run in (None, record.key.run_id)), None)
        if record is None:
            say_unread(histories)
            console.fail(f"No run {run or ''} of {dag}.{task} is recorded.".replace("  ", " "))
        lines = histories.changes(record)
    if as_json:
        console.show_json({"run": record.key.run_id, "try": record.key.try_number, "changes": lines})
    else:
        for line in lines:
            console.show_line(line)
        console.say(f"{record.key.run_id}: {counted(len(lines), 'change')} since the last green run")
    if say_unread(histories):
        raise typer.Exit(console.EXIT_INCOMPLETE)


def impact(
    dataset: Annotated[str, typer.Argument(help="Its URN, its name, or the end of its name, such as shop.orders.")],
    version: Annotated[str | None, typer.Option(help="The version that is wrong.")] = None,
    column: Annotated[str | None, typer.Option(help="Only the values of this column are wrong.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="All writes since an ISO time or a duration (7d) ago are wrong.")
    ] = None,
    outbox: OutboxOption = None,
    connection: Annotated[
        str | None,
        typer.Option(help="Airflow connection of type datahub-rest, to read also the runs that DataHub has."),
    ] = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show which task instances read a wrong write of a dataset, and how to clear them; by default, its last write.

    Exit status: 0; 1 if something in the outbox, or DataHub, cannot be read; 2 for wrong options, or if no such write
    is recorded.
    """
    since_ms = parse_time_ms(console.since_now(since))
    if since is not None and since_ms is None:
        console.fail(f"--since {since}: want an ISO time, or a duration, such as 7d")
    with opened_outbox(outbox, or_folder=True) as opened:
        histories = Histories(opened.storage)
        records = Records(histories.all())
    is_whole = not say_unread(histories)
    if connection is not None:
        try:
            deadline = Deadline.after(_DATAHUB_SECONDS)
            settings = datahub_settings(connection)
            records = records.plus(sinks.read_runs(settings, dataset, records.named(dataset), deadline))
        except SinkSettingsError as error:
            console.fail(str(error), console.EXIT_INCOMPLETE)
    try:
        outcome = records.impact(records.writes_of(dataset, version, since_ms), column)
    except UnknownWriteError as error:
        console.fail(str(error))
    if as_json:
        console.show_json(
            {**to_builtins(outcome), "downstream": outcome.downstream, "commands": list(_clears(outcome))}
        )
    else:
        _show(outcome)
    if not is_whole:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def datahub_settings(connection: str) -> sinks.RestSettings:
    """Return the settings of a connection to DataHub's REST API; end the command with a message for any other."""
    with console.airflow_logs_to_stderr():
        sink, problem = hooks.open_sink(connection)
    if not isinstance(sink, sinks.RestSink):
        console.fail(problem or f"connection {connection!r} is not of type datahub-rest")
    return sink.settings


def say_unread(histories: Histories) -> bool:
    """Say that fingerprints could not be read; return whether there are any."""
    if histories.unread:
        console.say(f"{counted(histories.unread, 'fingerprint')} cannot be read: nobody knows what these runs used.")
    return bool(histories.unread)


def _show(outcome: Impact) -> None:
    console.say(outcome.sentence)
    for instance in outcome.reached:
        name = instance.task_id if instance.map_index < 0 else f"{instance.task_id}[{instance.map_index}]"
        how = f"  {instance.how}" if instance.inferred else ""
        console.say(f"{instance.dag_id}  {instance.run_id}  {name}{how}")
    for command in _clears(outcome):
        console.show_line(command)


def _clears(outcome: Impact) -> Iterator[str]:
    """Yield the commands that clear what a write reached, in order. Each asks, as ``-t`` takes parts of ids, too."""
    instances = [(one.dag_id, one.run_id, one.task_id, one.logical_ms) for one in outcome.reached]
    for dag_id, run_id, task_id, logical_ms in dict.fromkeys(instances):
        if logical_ms is None:
            yield f"# {dag_id} {run_id} has no logical date: clear {task_id} in Airflow's UI"
            continue
        # Logical dates have microseconds.
        start, end = (datetime.fromtimestamp((logical_ms + more) / 1000, UTC).isoformat() for more in (0, 1))
        yield f"airflow tasks clear {shlex.quote(dag_id)} -t {shlex.quote(task_id)} -s {start} -e {end}"
