"""What every command shares: exit statuses, and how it speaks to the person at the terminal.

Where a command writes: standard output, or a file that is there whole or not at all.

A progress bar for a person at a terminal, and nothing for a script.

The converter's options on the command line: a file of them, and ``--set KEY=VALUE``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

import typer

from airflow_provider_spark_datahub.conversion import LineageSettings, SettingsError, settings_of_environment

EXIT_INCOMPLETE = 1
"""Something could not be read, converted or delivered; the rest was."""
EXIT_USAGE = 2
"""Wrong arguments or options; nothing was done."""


def say(message: str) -> None:
    """Tell a person something, on standard error."""
    typer.echo(message, err=True)


def fail(message: str, status: int) -> NoReturn:
    """Tell a person why the command ends here.

    :raises typer.Exit: with ``status``.
    """
    say(message)
    raise typer.Exit(status)


@contextmanager
def opened_output(path: Path | None, *, failed: int) -> Iterator[TextIO]:
    """Standard output, or the file; nobody finds half of it: written beside, and moved into place at the end.

    :param failed: the exit status where it cannot be written.
    :raises typer.Exit: there.
    """
    try:
        if path is None:
            yield sys.stdout
            return
        draft = path.with_name(f".{path.name}.draft")
        try:
            with draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
                yield file
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except BrokenPipeError:  # the reader has seen enough: see app.py
        raise
    except OSError as error:
        fail(f"cannot write {path or 'standard output'}: {error.strerror or error}", failed)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, gone when it is done.

    :param total: the number of steps.
    :returns: what to call with the number of steps that are done since the last call.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)


def option_layers(config: Path | None, assignments: Sequence[str]) -> list[dict[str, Any]]:
    """The layers of options, the environment's first, as :meth:`LineageSettings.from_mapping` takes them.

    :param assignments: ``KEY=VALUE`` each.
    :raises typer.Exit: where one cannot be read.
    """
    layers = [_environment(), _config_file(config) if config else {}]
    for assignment in assignments:
        key, found, value = assignment.partition("=")
        if not found:
            fail(f"--set {assignment}: want KEY=VALUE", EXIT_USAGE)
        layers.append({key.strip(): value.strip()})
    return [layer for layer in layers if layer]


def read_settings(layers: Sequence[dict[str, Any]]) -> LineageSettings:
    """The options; what is to be said of them is said.

    :raises typer.Exit: where one is wrong.
    """
    try:
        for note in LineageSettings.notes(*layers):
            say(note)
        return LineageSettings.from_mapping(*layers)
    except SettingsError as error:
        fail(str(error), EXIT_USAGE)


def _environment() -> dict[str, Any]:
    try:
        return dict(settings_of_environment(os.environ))
    except SettingsError as error:
        fail(str(error), EXIT_USAGE)


def _config_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}", EXIT_USAGE)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{path} is neither YAML nor JSON: {error}", EXIT_USAGE)
    if loaded is not None and not isinstance(loaded, dict):
        fail(f"{path} holds no object of options", EXIT_USAGE)
    return loaded or {}
