"""Options and output that commands share: settings, durations, exit statuses, messages, result
files.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer

from airflow_provider_spark_datahub.conversion import LineageSettings, SettingsError
from airflow_provider_spark_datahub.foundation.text import printable, printable_lines

EXIT_INCOMPLETE = 1
"""Some input could not be read, converted or delivered; the rest was."""
EXIT_USAGE = 2
"""Wrong arguments or options; nothing was done."""
EXIT_HELP = 3
"""A person must act: waiting does not help."""

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings of the converter, as YAML or JSON.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting of the converter; repeatable."),
]
ExitCodeOption = Annotated[
    int | None,
    typer.Option("--exit-code", help="Exit code of spark-submit, which decides the run's result."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="File in place of standard output.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")]
SparkSubmitOption = Annotated[
    str, typer.Option("--spark-submit", help="The spark-submit command that tasks call.")
]

_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[wdhms])+")
_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def say(message: str) -> None:
    """Write a message for a person to standard error."""
    typer.echo(printable_lines(message), err=True)


def show_line(text: str) -> None:
    """Write a line of a result for a person to standard output."""
    typer.echo(printable(text))


def show_json(document: object) -> None:
    """Write a result for a program to standard output."""
    typer.echo(json.dumps(document, indent=2))


def airflow_logs_to_stderr() -> AbstractContextManager[object]:
    """Keep standard output for the result, while Airflow is used: from its import on, it logs
    there.
    """
    return redirect_stdout(sys.stderr)


def fail(message: str, status: int = EXIT_USAGE) -> NoReturn:
    """End the command with a message.

    :raises typer.Exit: with ``status``.
    """
    say(message)
    raise typer.Exit(status)


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """Open standard output, or a file that appears whole or not at all.

    A path that is not a file, such as a device or a pipe, is written to and never replaced. A link
    is followed.

    :raises typer.Exit: if it cannot be written.
    """
    try:
        if path is None:
            yield sys.stdout
            return
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
                yield file
            return
        target = path.resolve()
        draft = target.with_name(f".{target.name}.draft")
        try:
            with draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
                yield file
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except BrokenPipeError:  # the reader is gone; app_main handles it
        raise
    except OSError as error:
        fail(
            f"cannot write {path or 'standard output'}: {error.strerror or error}", EXIT_INCOMPLETE
        )


def read_settings(
    config: Path | None, assignments: Sequence[str]
) -> tuple[LineageSettings, list[dict[str, Any]]]:
    """Return the settings, and their layers as :meth:`LineageSettings.from_mapping` takes them;
    print their warnings.

    The layers are the file of ``--config``, and each ``KEY=VALUE`` of ``--set``.

    :raises typer.Exit: if a layer cannot be read, or a setting is wrong.
    """
    try:
        layers = [_config_file(config)] if config else []
        layers += ({key: value} for key, value in assigned("--set", assignments))
        layers = [layer for layer in layers if layer]
        for warning in LineageSettings.notes(*layers):
            say(warning)
        return LineageSettings.from_mapping(*layers), layers
    except SettingsError as error:
        fail(str(error))


def assigned(option: str, assignments: Sequence[str]) -> list[tuple[str, str]]:
    """Split the values of a repeatable ``KEY=VALUE`` option.

    :raises typer.Exit: if a value has no ``=``.
    """
    for assignment in assignments:
        if "=" not in assignment:
            fail(f"{option} {assignment}: want KEY=VALUE")
    pairs = (assignment.split("=", 1) for assignment in assignments)
    return [(key.strip(), value.strip()) for key, value in pairs]


def _parse_duration(text: str) -> timedelta | None:
    """Parse a duration such as ``7d``, ``36h`` or ``1d12h``; ``None`` if the text is something
    else.
    """
    if not _DURATION.fullmatch(text):
        return None
    parts = re.findall(r"([\d.]+)([wdhms])", text)
    try:
        return sum(
            (timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta()
        )
    except OverflowError:
        return None


def parse_hours(option: str, text: str | None) -> float:
    """Parse hours (``36``) or a duration (``36h``, ``2d``), and return it in hours; infinity for
    ``None``.

    :raises typer.Exit: if the text is neither.
    """
    try:
        hours = math.inf if text is None else float(text)
    except ValueError:
        duration = _parse_duration(str(text))
        hours = -1.0 if duration is None else duration.total_seconds() / 3600
    if not hours >= 0:
        fail(f"{option} {text}: want hours, such as 36, or a duration, such as 36h or 2d")
    return hours


def since_now(text: str | None) -> str | None:
    """Return the ISO time that is a duration (``7d``) ago; any other text stays as it is."""
    if text is None or (duration := _parse_duration(text)) is None:
        return text
    try:
        return (datetime.now(UTC) - duration).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        return text


def _config_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{path} is neither YAML nor JSON: {error}")
    if loaded is not None and not isinstance(loaded, dict):
        fail(f"{path} does not contain an object of settings")
    return loaded or {}
