"""``spark-datahub pending``, ``emit`` and ``requeue``: what waits in the outbox, and what is in its quarantine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, EXIT_USAGE, fail, progress, say

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import Manifest, Outbox, Selection

_OutboxOption = Annotated[
    str | None,
    typer.Option(help="The outbox: a folder, or the URI of an object store; default: that of Airflow's configuration."),
]
_DagOption = Annotated[list[str] | None, typer.Option("--dag", help="Only of this DAG; may be repeated.")]
_RunOption = Annotated[list[str] | None, typer.Option("--run", help="Only of this DAG run; may be repeated.")]
_TaskOption = Annotated[list[str] | None, typer.Option("--task", help="Only of this task; may be repeated.")]
_ForOption = Annotated[
    list[str] | None, typer.Option("--for", help="Only what is meant for this connection; may be repeated.")
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, for scripts.")]


def pending(
    outbox: _OutboxOption = None,
    dag: _DagOption = None,
    run: _RunOption = None,
    task: _TaskOption = None,
    connection: _ForOption = None,
    as_json: _JsonOption = False,
) -> None:
    """List what waits for its delivery, and what is quarantined.

    Exit status: 0; 1 where something waits, or the outbox cannot be read; 2 for wrong options.
    """
    from airflow_provider_spark_datahub.delivery.outbox import CORRUPT, quarantined

    selection = _selection(dag, run, task, connection)
    with _opened(outbox) as opened:
        waiting = [{**_told(one.manifest), "entry": str(one)} for one in opened.entries() if selection(one.manifest)]
        held = [
            {**_told(one.manifest), "proposals": len(one.held), "reasons": one.reasons}
            for one in quarantined(opened)
            if selection(one.manifest)
        ]
        corrupt = sum(one.name.endswith(".jsonl") for one in opened.storage.stored(CORRUPT))
    if as_json:
        typer.echo(json.dumps({"pending": waiting, "quarantined": held, "corrupt": corrupt}, indent=2))
    else:
        for one in waiting:
            typer.echo(f"{_line(one)}  {_size(one)} for {one['connection']}")
        for one in held:
            typer.echo(f"{_line(one)}  {_size(one)} quarantined: {'; '.join(one['reasons'])}")
        say(f"{len(waiting)} entries pending, {len(held)} quarantined, {corrupt} corrupt")
    if waiting:
        raise typer.Exit(EXIT_INCOMPLETE)


def emit(
    outbox: _OutboxOption = None,
    dag: _DagOption = None,
    run: _RunOption = None,
    task: _TaskOption = None,
    only_for: _ForOption = None,
    connection: Annotated[
        str | None, typer.Option(help="Deliver through this connection, not the entries' own.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for each entry.", min=0.0)] = 60.0,
    max_seconds: Annotated[float | None, typer.Option(help="Begin no delivery later than this.", min=0.0)] = None,
    max_entries: Annotated[int | None, typer.Option(help="Deliver no more entries than this.", min=1)] = None,
    over_after: Annotated[
        float | None, typer.Option(help="Hours after which a try that told no end is taken to be over.", min=0.0)
    ] = None,
    as_json: _JsonOption = False,
) -> None:
    """Deliver what waits in the outbox, through Airflow's connections.

    Exit status: 0; 1 where something stays, or the outbox cannot be read; 2 for wrong options.
    """
    from airflow_provider_spark_datahub.delivery.outbox import Drain, DrainLimits
    from airflow_provider_spark_datahub.hooks.datahub import open_sink
    from airflow_provider_spark_datahub.task import finisher

    selection = _selection(dag, run, task, only_for)
    limits = DrainLimits(max_seconds, seconds, max_entries)
    finish = finisher(seconds, lambda entry: over_after is not None and entry.age > over_after * 3600)
    with _opened(outbox) as opened, progress("Delivering", len(opened.names())) as step:
        wanted = selection or None
        drained = Drain(opened, open_sink, limits, connection, wanted, finish, step).run()
    if as_json:
        typer.echo(json.dumps(drained.to_obj(), indent=2))
    for problem in drained.problems:
        say(problem)
    say(drained.sentence)
    if drained.waiting or drained.elsewhere:
        raise typer.Exit(EXIT_INCOMPLETE)


def requeue(
    outbox: _OutboxOption = None,
    dag: _DagOption = None,
    run: _RunOption = None,
    task: _TaskOption = None,
    connection: _ForOption = None,
    reason: Annotated[str | None, typer.Option(help="Only where a reason holds this text.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that is quarantined.")] = False,
    as_json: _JsonOption = False,
) -> None:
    """Make pending again what is quarantined: of a DAG, a run, a task, a connection, for a reason, or all of it.

    Exit status: 0; 1 where the outbox cannot be read or written; 2 for wrong options.
    """
    from airflow_provider_spark_datahub.delivery.outbox import quarantined, requeue as make_pending

    selection = _selection(dag, run, task, connection)
    if not (selection or reason or everything):
        fail("Say what to requeue (--dag, --run, --task, --for, --reason), or --all.", EXIT_USAGE)
    with _opened(outbox) as opened:
        found = [
            one
            for one in quarantined(opened)
            if selection(one.manifest) and (reason is None or any(reason in text for text in one.reasons))
        ]
        with progress("Requeueing", len(found)) as step:
            for one in found:
                make_pending(opened, one)
                step(1)
    proposals = sum(len(one.held) for one in found)
    if as_json:
        typer.echo(json.dumps({"entries": len(found), "proposals": proposals}))
    say(f"{len(found)} entries with {proposals} proposals are pending again")


@contextmanager
def _opened(location: str | None) -> Iterator[Outbox]:
    """The outbox; where it cannot be read or written, the command ends with what went wrong."""
    from airflow_provider_spark_datahub.hooks.airflow_context import configuration
    from airflow_provider_spark_datahub.hooks.storage import open_outbox
    from airflow_provider_spark_datahub.task import OptionError

    configured = configuration()
    try:
        yield open_outbox(configured.outbox_location(location), configured.outbox_limits())
    except OptionError as error:
        fail(str(error), EXIT_USAGE)
    except OSError as error:
        fail(str(error), EXIT_INCOMPLETE)


def _selection(
    dags: list[str] | None, runs: list[str] | None, tasks: list[str] | None, connections: list[str] | None
) -> Selection:
    from airflow_provider_spark_datahub.delivery.outbox import Selection

    return Selection(tuple(dags or ()), tuple(runs or ()), tuple(tasks or ()), tuple(connections or ()))


def _told(manifest: Manifest) -> dict[str, Any]:
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
    }


def _line(one: dict[str, Any]) -> str:
    mapped = f"[{one['map_index']}]" if one["map_index"] >= 0 else ""
    task = f"{one['task']}{mapped} try {one['try']}" if one["task"] else "end of the DAG run"
    return f"{one['dag']}  {one['run']}  {task}"


def _size(one: dict[str, Any]) -> str:
    return "events that are not converted" if one["state"] == "unfinished" else f"{one['proposals']} proposals"
