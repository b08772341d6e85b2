"""What every command shares: exit statuses, and how it speaks to the person at the terminal."""

from __future__ import annotations

from typing import NoReturn

import typer

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
