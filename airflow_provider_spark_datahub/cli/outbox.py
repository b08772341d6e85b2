"""Commands on the outbox: ``pending``, ``emit``, ``requeue`` and ``retire``."""

from __future__ import annotations

import math
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from airflow_provider_spark_datahub import hooks
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.conversion import JobRecord, retired_job
from airflow_provider_spark_datahub.delivery.outbox import (
    DrainLimits,
    Entry,
    EntryFilter,
    Folder,
    LocalStorage,
    Manifest,
    Outbox,
)
from airflow_provider_spark_datahub.foundation.files import FileAccess, described
from airflow_provider_spark_datahub.foundation.memory import gc_paused, grouped_by
from airflow_provider_spark_datahub.foundation.text import counted, printable
from airflow_provider_spark_datahub.task import (
    OptionError,
    drain,
    may_run,
    unawaited_events,
)

_Summary = dict[str, Any]
OutboxOption = Annotated[
    str | None,
    typer.Option(
        help="The outbox: a folder, or the URI of an object store; default: that of Airflow's configuration."
    ),
]
_DagOption = Annotated[
    list[str] | None, typer.Option("--dag", help="Only entries of this DAG; repeatable.")
]
_RunOption = Annotated[
    list[str] | None, typer.Option("--run", help="Only entries of this DAG run; repeatable.")
]
_TaskOption = Annotated[
    list[str] | None, typer.Option("--task", help="Only entries of this task; repeatable.")
]
_ForOption = Annotated[
    list[str] | None, typer.Option("--for", help="Only entries for this connection; repeatable.")
]
_DAY_MS = 86_400_000
_MOST_REASONS = 5
_REASON_CHARS = 60
"""Of a reason in the command that selects its entries, which may be the beginning of it."""
_OverOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOURS",
        help="Treat an attempt without a recorded end as over after this time: hours (36), or a duration (2d).",
    ),
]


def pending(
    outbox: OutboxOption = None,
    dag: _DagOption = None,
    run: _RunOption = None,
    task: _TaskOption = None,
    connection: _ForOption = None,
    over_after: _OverOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """List the entries that are pending or quarantined, and those of attempts that may still run.

    Exit status: 0 if there is nothing to do, even if attempts run; 1 if something is pending; 2 for
    wrong options; 3 if something is quarantined or corrupt, or the outbox cannot be read.
    """
    wanted = _entry_filter(dag, run, task, connection)
    hours = console.parse_hours("--over-after", over_after)
    waiting: list[_Summary] = []
    running: list[_Summary] = []
    # Tens of thousands of entries are kept, and collecting them takes as long as reading them.
    with opened_outbox(outbox, or_folder=True, failed=console.EXIT_HELP) as opened, gc_paused():
        for entry in opened.entries():
            if not wanted or wanted(entry.manifest):
                listed = running if _may_run(entry, hours) else waiting
                summary = _summary(entry.manifest)
                listed.append({**summary, "entry": str(entry)} if as_json else summary)
        quarantined = [
            {**_summary(entry.manifest), "proposals": len(entry.rejected), "reasons": entry.reasons}
            for entry in opened.quarantined()
            if wanted(entry.manifest)
        ]
        unawaited = unawaited_events(opened) if outbox is None else []
        corrupt = sum(name.endswith(".jsonl") for name in opened.storage.stored(Folder.CORRUPT))
    if as_json:
        found = {
            "pending": waiting,
            "running": running,
            "quarantined": quarantined,
            "corrupt": corrupt,
        }
        console.show_json({**found, "unawaited": unawaited})
    else:
        if lines := list(_lines(waiting, running, quarantined)):
            # One call: there may be tens of thousands of lines.
            typer.echo("\n".join(map(printable, lines)))
        runs = f", {len(running)} of attempts that may still run" if running else ""
        console.say(
            f"{counted(len(waiting), 'entry')} pending{runs}, {len(quarantined)} quarantined, {corrupt} corrupt"
        )
        for line in _next_steps(waiting, running, quarantined, corrupt, _option(outbox)):
            console.say(line)
    _say_unawaited(unawaited)
    if quarantined or corrupt:
        raise typer.Exit(console.EXIT_HELP)
    if waiting:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def emit(
    outbox: OutboxOption = None,
    dag: _DagOption = None,
    run: _RunOption = None,
    task: _TaskOption = None,
    only_for: _ForOption = None,
    connection: Annotated[
        str | None, typer.Option(help="Deliver through this connection, not the entries' own.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds for each entry.", min=0.0)] = 60.0,
    max_seconds: Annotated[
        float | None, typer.Option(help="Begin no delivery after so many seconds.", min=0.0)
    ] = None,
    over_after: _OverOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Deliver the pending entries of the outbox through Airflow's connections.

    Exit status: 0, even if attempts run; 1 if anything else is left or was rejected, or the outbox
    cannot be read; 2 for wrong options.
    """
    wanted, limits = _entry_filter(dag, run, task, only_for), DrainLimits(max_seconds, seconds)
    hours = console.parse_hours("--over-after", over_after)
    with opened_outbox(outbox) as opened, _progress("Delivering", len(opened.names())) as step:
        drained = drain(
            opened,
            hooks.airflow_connections(),
            limits,
            gives_up=lambda entry: entry.age > hours * 3600,
            connection=connection,
            wanted=wanted or None,
            progress=step,
        ).run()
        _say_unawaited(unawaited_events(opened) if outbox is None else [])
        stays = any(
            wanted(entry.manifest) and not _may_run(entry, hours) for entry in opened.entries()
        )
    if as_json:
        console.show_json(drained.to_obj())
    for problem in drained.problems:
        console.say(problem)
    console.say(drained.sentence)
    if drained.rejected:
        console.say(
            f"spark-datahub requeue --all{_option(outbox)} makes rejected proposals pending again."
        )
    if stays or drained.rejected or drained.elsewhere:
        raise typer.Exit(console.EXIT_INCOMPLETE)


def requeue(
    outbox: OutboxOption = None,
    dag: _DagOption = None,
    run: _RunOption = None,
    task: _TaskOption = None,
    connection: _ForOption = None,
    reason: Annotated[
        str | None, typer.Option(help="Only entries whose reason contains this text.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every quarantined entry.")] = False,
    as_json: console.JsonOption = False,
) -> None:
    """Make quarantined entries pending again: of a DAG, a run, a task, a connection, for a reason,
    or all of them.

    Exit status: 0; 1 if the outbox cannot be read or written; 2 for wrong options.
    """
    wanted = _entry_filter(dag, run, task, connection)
    if not (wanted or reason or everything):
        console.fail(
            "Select what to requeue (--dag, --run, --task, --for, --reason), or use --all."
        )
    with opened_outbox(outbox) as opened:
        entries = [
            entry
            for entry in opened.quarantined()
            if wanted(entry.manifest)
            and (reason is None or any(reason in text for text in entry.reasons))
        ]
        for entry in entries:
            opened.requeue(entry)
    proposals = sum(len(entry.rejected) for entry in entries)
    if as_json:
        console.show_json({"entries": len(entries), "proposals": proposals})
    console.say(
        f"Pending again: {counted(len(entries), 'entry')} with {counted(proposals, 'proposal')}"
    )


def retire(
    outbox: OutboxOption = None,
    days: Annotated[
        float, typer.Option(help="Also jobs that did not run for so many days.", min=0.0)
    ] = math.inf,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the jobs.")] = False,
    as_json: console.JsonOption = False,
) -> None:
    """Mark the Spark jobs of tasks that Airflow does not have any more as removed in DataHub.

    Exit status: 0; 1 if Airflow does not answer, or the outbox cannot be read or written; 2 for
    wrong options.
    """
    retired: list[_Summary] = []
    with opened_outbox(outbox) as opened:
        records = [*opened.jobs.all()]
        tasks = _tasks_of(records)
        since_ms = opened.storage.now_ms() - days * _DAY_MS
        remaining = [_remaining(record, tasks, since_ms) for record in records]
        current = {job for record in remaining for job in record.jobs}
        for record, rest in zip(records, remaining, strict=True):
            key, connection = record.key, record.connection_id
            jobs = sorted(record.jobs - current)
            retired += ({"dag": key.dag_id, "task": key.task_id, "job": job} for job in jobs)
            if rest != record and not dry_run:
                proposals = [proposal for job in jobs for proposal in retired_job(job)]
                opened.put(key, proposals, spark_succeeded=False, connection_id=connection)
                opened.jobs.keep(rest)
    if as_json:
        console.show_json({"retired": retired})
    else:
        for summary in retired:
            console.show_line("  ".join(summary.values()))
    next_step = "" if dry_run else f". Next: spark-datahub emit{_option(outbox)}"
    console.say(f"Jobs to remove from DataHub: {len(retired)}{next_step}")
    if tasks is None:
        raise typer.Exit(console.EXIT_INCOMPLETE)


_Tasks = Mapping[str, Collection[str]] | None
"""Ids of the tasks of each DAG; ``None`` if they are not known."""


def _tasks_of(records: Iterable[JobRecord]) -> _Tasks:
    try:
        return hooks.tasks_of_dags({record.key.dag_id for record in records})
    except hooks.NoAnswerError as error:
        console.say(f"No task counts as gone, since Airflow does not answer: {error}")
        return None


def _remaining(record: JobRecord, tasks: _Tasks, since_ms: float) -> JobRecord:
    """Return the record with the applications of a task that exists, and that ran since then."""
    key, applications = record.key, record.applications
    is_gone = tasks is not None and key.task_id not in tasks.get(key.dag_id, ())
    first_ms = math.inf if is_gone else since_ms
    kept = {urn: each for urn, each in applications.items() if each.time_ms >= first_ms}
    return replace(record, applications=kept)


@contextmanager
def opened_outbox(
    location: str | None, *, or_folder: bool = False, failed: int = console.EXIT_INCOMPLETE
) -> Iterator[Outbox]:
    """Open the outbox; end the command with a message if it cannot be read or written.

    :param or_folder: open a named folder without importing Airflow, which takes seconds.
    :param failed: the exit status if it cannot be read or written.
    """
    try:
        with console.airflow_logs_to_stderr():
            folder = Path(location).expanduser() if location and "://" not in location else None
            if folder is not None and not folder.is_dir():
                console.fail(f"--outbox {location}: there is no such folder")
            yield (
                _outbox_in(folder)
                if folder is not None and or_folder
                else hooks.configured_outbox(location)
            )
    except OptionError as error:
        console.fail(str(error))
    except OSError as error:
        console.fail(described(error), failed)


def _outbox_in(folder: Path) -> Outbox:
    """Open the outbox in a folder. If the group may write the folder, it may write what the outbox
    makes there.
    """
    group = bool(folder.stat().st_mode & stat.S_IWGRP)
    return Outbox(LocalStorage(folder, FileAccess.of(group=group)))


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if that is a terminal; it disappears at the end.

    :returns: a function to call with the number of steps since the last call.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    shown_on = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=shown_on, transient=True, disable=not shown_on.is_terminal
    ) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)


def _entry_filter(
    dags: list[str] | None,
    runs: list[str] | None,
    tasks: list[str] | None,
    connections: list[str] | None,
) -> EntryFilter:
    return EntryFilter(
        tuple(dags or ()), tuple(runs or ()), tuple(tasks or ()), tuple(connections or ())
    )


def _may_run(entry: Entry, hours: float) -> bool:
    """Return whether the entry's attempt may still run: no sign shows its end, and it is not older
    than this.
    """
    return may_run(entry.manifest) and entry.age <= hours * 3600


def _option(outbox: str | None) -> str:
    return f" --outbox {shlex.quote(outbox)}" if outbox else ""


def _say_unawaited(files: list[str]) -> None:
    if files:
        console.say(
            f"{counted(len(files), 'event file')} without an entry, the first {files[0]}: kept, of an attempt that "
            "the outbox refused, or of a Spark that outlived its attempt. If nothing writes them any more, read them "
            "with spark-datahub convert, then remove them."
        )


def _summary(manifest: Manifest) -> _Summary:
    key = manifest.key
    return {
        "dag": key.dag_id,
        "run": key.run_id,
        "task": key.task_id,
        "map_index": key.map_index,
        "try": key.try_number,
        "connection": manifest.connection_id,
        "state": manifest.state,
        "created_ms": manifest.created_ms,
        "proposals": manifest.pending,
        "reason": manifest.problem,
    }


def _next_steps(
    waiting: list[_Summary],
    running: list[_Summary],
    quarantined: list[_Summary],
    corrupt: int,
    option: str,
) -> Iterator[str]:
    """Yield for each group of entries why they are there, and what to do about it.

    :param option: names the outbox in commands.
    """
    emit = f"spark-datahub emit{option}"
    converted = (entry for entry in waiting if entry["state"] != "unfinished")
    groups = grouped_by(converted, lambda entry: str(entry["connection"]))
    for connection, entries in groups.items():
        reasons = [entry["reason"] for entry in entries if entry["reason"]]
        why = (
            reasons[-1].rstrip(".")
            if reasons
            else "nothing tried to deliver them since their attempts ended"
        )
        yield f"{len(entries)} for {connection}: {why}. Next: {emit}; the next run of each DAG does the same."
    if killed := sum(entry["state"] == "unfinished" for entry in waiting):
        yield f"{killed} whose attempt was killed, or had no time to convert its events: {emit} converts and delivers."
    if running:
        yield f"{len(running)} may still run. If that cannot be, {emit} --over-after 36h delivers the older ones."
    rejected = Counter(reason for entry in quarantined for reason in entry["reasons"])
    for reason, count in rejected.most_common(_MOST_REASONS):
        again = f"spark-datahub requeue --reason {shlex.quote(reason[:_REASON_CHARS])}{option}"
        yield f"{count} quarantined: {reason.rstrip('.')}. Remove the cause, then run {again}, then {emit}."
    if (more := len(rejected) - _MOST_REASONS) > 0:
        yield f"{counted(more, 'other reason')} of quarantined entries."
    if corrupt:
        yield f"{corrupt} corrupt: a .reason.txt beside each in the folder corrupt says why. Clear their tasks."


def _lines(
    waiting: list[_Summary], running: list[_Summary], quarantined: list[_Summary]
) -> Iterator[str]:
    yield from (f"{_line(summary)} for {summary['connection']}" for summary in waiting)
    yield from (f"{_line(summary)}: its attempt may still run" for summary in running)
    yield from (
        f"{_line(summary)} quarantined: {'; '.join(summary['reasons'])}" for summary in quarantined
    )


def _line(entry: _Summary) -> str:
    mapped = f"[{entry['map_index']}]" if entry["map_index"] >= 0 else ""
    task = f"{entry['task']}{mapped} try {entry['try']}" if entry["task"] else "end of the DAG run"
    is_converted = entry["state"] != "unfinished"
    size = (
        counted(entry["proposals"], "proposal") if is_converted else "events that are not converted"
    )
    return f"{entry['dag']}  {entry['run']}  {task}  {size}"
