"""The lineage as Mermaid text, which GitHub, GitLab and many wikis draw where it is pasted."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_spark_datahub.picture.network import Box, Network

MOST_LINKS = 500
"""Mermaid's own limit (``maxEdges``), which GitHub does not raise: it draws nothing where there are more."""

_PLAIN = frozenset(" ._-/:=@+,")


def mermaid(network: Network) -> str:
    """The network as a flowchart. Names are quoted, so that none is read as syntax, markup or a link."""
    return "\n".join(_lines(network)) + "\n"


def _lines(network: Network) -> Iterator[str]:
    yield "flowchart LR"
    for box in network.boxes.values():
        opening, closing = ('(["', '"])') if box.is_job else ('["', '"]')
        yield f"  {box.key}{opening}{_words(box)}{closing}"
    for source, target in network.links:
        yield f"  {source} --> {target}"
    jobs = ",".join(box.key for box in network.boxes.values() if box.is_job)
    if jobs:
        yield "  classDef job stroke:#e36209,stroke-width:2px"
        yield f"  class {jobs} job"


def _words(box: Box) -> str:
    return f"<b>{quoted(box.title)}</b><br>{quoted(box.note)}" if box.note else f"<b>{quoted(box.title)}</b>"


def quoted(text: str) -> str:
    """The text with all that Mermaid, Markdown or HTML may read as theirs as an entity (``#34;``)."""
    return "".join(each if each.isalnum() or each in _PLAIN else f"#{ord(each)};" for each in text)
