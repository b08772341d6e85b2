"""Where a command writes: standard output, or a file that is there whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from airflow_provider_spark_datahub.cli.console import fail


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
