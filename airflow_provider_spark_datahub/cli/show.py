"""``spark-datahub show``: proposals as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub.cli.console import EXIT_INCOMPLETE, fail
from airflow_provider_spark_datahub.conversion.proposals import Proposal, ProposalFormatError


def show(
    proposals: Annotated[list[Path], typer.Argument(help="Files of proposals: lines, or the array of `datahub`.")],
    columns: Annotated[bool, typer.Option(help="Show column lineage, too.")] = True,
) -> None:
    """Show the run tree and the lineage that proposals tell, in the terminal."""
    from rich.console import Console

    from airflow_provider_spark_datahub.picture.graph import fold
    from airflow_provider_spark_datahub.picture.terminal import render

    read: list[Proposal] = []
    for path in proposals:
        try:
            read.extend(_read_proposals(path))
        except OSError as error:
            fail(f"cannot read {path}: {error.strerror or error}", EXIT_INCOMPLETE)
        except (ProposalFormatError, ValueError) as error:
            fail(f"{path}: {error}", EXIT_INCOMPLETE)
    render(fold(read), Console(), columns=columns)


def _read_proposals(path: Path) -> Iterator[Proposal]:
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        yield from (Proposal.from_obj(obj) for obj in json.loads(text))
    else:
        yield from (Proposal.from_obj(json.loads(line)) for line in text.splitlines() if line.strip())
