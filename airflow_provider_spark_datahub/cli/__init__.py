"""The command ``spark-datahub``: its commands, each imported when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.foundation.files import described

_COMMANDS = {
    "convert": ("convert", "Convert OpenLineage events to DataHub proposals."),
    "show": ("views", "Show runs and lineage: in the terminal, as a page or a drawing."),
    "explain": ("views", "Explain an edge: its queries, or why there is none."),
    "changed": ("histories", "Show what changed since a task's last green run."),
    "impact": ("histories", "Show which task instances read a wrong write."),
    "coverage": ("histories", "Count the tasks with and without lineage, with the reasons."),
    "doctor": ("doctor", "Check everything that lineage needs."),
    "warm": ("doctor", "Write archives of Java classes: Spark starts faster."),
    "backfill": ("backfill", "Convert an archive of events with Spark, and deliver it."),
    "reconcile": ("histories", "Find tables that DataHub knows under other names."),
    "pending": ("outbox", "List the entries that are pending or quarantined."),
    "emit": ("outbox", "Deliver the pending entries of the outbox."),
    "requeue": ("outbox", "Make quarantined entries pending again."),
    "retire": ("outbox", "Remove the jobs of tasks that are gone from DataHub."),
}
"""The module of each command, and its line in the list of commands, which imports none of the
modules.
"""


class _Commands(TyperGroup):
    """Group that imports the module of a command when the command is called."""

    def invoke(self, ctx: Any) -> Any:
        """Call the command. A place that cannot be used ends it with one line."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # app_main handles it
            raise
        except OSError as error:
            typer.echo(described(error), err=True)
            raise typer.Exit(1) from error  # as EXIT_INCOMPLETE

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and _load_command(str(name)), rest


def _load_command(name: str) -> Any:
    """Import a command, and return it as typer runs it."""
    function: Callable[..., None] = getattr(import_module(f"{__name__}.{_COMMANDS[name][0]}"), name)
    single = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    single.command(name)(function)
    return get_command(single)


app = typer.Typer(
    cls=_Commands,
    name="spark-datahub",
    help="Deliver the lineage of Spark jobs to DataHub, from their OpenLineage events.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich takes longer than everything else that the help needs
)
for _name, (_, _summary) in _COMMANDS.items():
    app.command(_name, help=_summary)(lambda: None)


def app_main() -> None:
    """Run the command; the entry point of the console script."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Names may have characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:
        # The reader of the pipe is gone. Nothing may be written to it any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)  # as EXIT_INCOMPLETE


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[  # noqa: ARG001 (the option's callback reads it, before typer imports pydantic)
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    # The hooks of object stores look up their connections themselves. As in Airflow's own commands,
    # this lets the task SDK (since Airflow 3.1) read the database, too.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
