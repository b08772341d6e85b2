"""``spark-datahub help``: the sections of the troubleshooting page, which the wheel contains."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.foundation.text import nearest

TOPICS = {
    "no-lineage": "There is no lineage",
    "wrong-lineage": "Some lineage is missing or wrong",
    "attempt": "Follow one attempt",
    "pending": "Pending entries",
    "quarantine": "Quarantine",
    "failing-task": "A failing task",
}
"""Headings of the page, by topic. Messages of tasks name topics."""

_PAGE = "troubleshooting.md"
# Links to other pages, which a terminal cannot follow.
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def help(  # noqa: A001 (a command has the name of its function)
    topic: Annotated[str, typer.Argument(help="Without it, the topics are listed.", show_default=False)] = "",
) -> None:
    """Show what to do about a problem: for example no-lineage, pending or failing-task.

    Exit status: 0; 2 for an unknown topic.
    """
    if not topic:
        for name, heading in TOPICS.items():
            console.show_line(f"{name:14} {heading}")
        return
    if topic not in TOPICS:
        close = nearest(topic, TOPICS)
        console.fail(f"unknown topic {topic!r}; " + (f"did you mean {close!r}?" if close else ", ".join(TOPICS)))
    text = _section(TOPICS[topic])
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        typer.echo(text)


def _section(heading: str) -> str:
    """Return a section of the page, without its links."""
    installed, checkout = Path(__file__).with_name(_PAGE), Path(__file__).parents[2] / "docs" / _PAGE
    page = (installed if installed.is_file() else checkout).read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return _LINK.sub(r"\1", f"## {heading}\n{section}").rstrip()
