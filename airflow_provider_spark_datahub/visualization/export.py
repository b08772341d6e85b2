"""Exports: SVG for documents and pages, Mermaid text for GitHub, GitLab and wikis, JSON for other
programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.visualization.layout import Point
from airflow_provider_spark_datahub.visualization.model import Graph, GraphJob
from airflow_provider_spark_datahub.visualization.names import Column, dataset_parts, harmless
from airflow_provider_spark_datahub.visualization.network import (
    COLUMN_HEIGHT,
    DATASET_HEIGHT,
    Network,
    NetworkColumn,
)

_MARGIN = 20
_ASIDE = 6.0
"""Distance in pixels of an edge from the middle line that it shares with one in the opposite
direction.
"""
_LANES = 26.0
"""Height of the part of a job that lines of columns pass through, in pixels."""
_LINE = 20
"""Height of a line of text below the drawing, in pixels."""
_MOST_FAILURES = 5
_MOST_COLUMNS, _LONGEST_REASON = 8, 80
_STATES = frozenset({"SUCCESS", "FAILURE", "UP_FOR_RETRY"})


def read_asset(name: str) -> str:
    """Return the styles or the script in a file of this package."""
    return (files("airflow_provider_spark_datahub.visualization") / "assets" / name).read_text(
        encoding="utf-8"
    )


def template(name: str, filters: Mapping[str, Callable[..., object]], **values: object) -> Template:
    """Return the template in a file of this package, which escapes every text."""
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"harmless": harmless, "counted": counted, **filters}
    return environment.from_string(read_asset(name), values)


@cache
def _drawing() -> Template:
    sizes = {"margin": _MARGIN, "line": _LINE, "head": DATASET_HEIGHT, "row": COLUMN_HEIGHT}
    styles = Markup(read_asset("network.css"))
    return template("network.svg", {"px": "{:g}".format}, **sizes, states=_STATES, styles=styles)


def render_svg(network: Network, *, inside_page: bool = False) -> str:
    """Return the network as SVG.

    :param inside_page: omit the styles, and make each box a link to ``#KEY`` in the page.
    """
    width = round(network.layout.width) + 2 * _MARGIN
    height = bottom = round(network.layout.height) + 2 * _MARGIN
    colours, failures = network.platform_colours, [] if inside_page else _failures(network, width)
    if not inside_page:
        height += _LINE * (bool(colours) + len(failures))
    return _drawing().render(
        network=network,
        inside_page=inside_page,
        width=width,
        height=height,
        bottom=bottom,
        edges=_edges(network),
        column_edges=_column_edges(network) if network.unfolded else (),
        colours=colours,
        failures=failures,
    )


def _failures(network: Network, width: int) -> list[str]:
    """Return a line for each failed job with its reason, cut at the right edge."""
    most = max(round((width - 2 * _MARGIN) / 7.5), 40)
    failed = {box.urn: f"{box.full}: {box.error}" for box in network.boxes.values() if box.error}
    return [
        text if len(text) <= most else f"{text[: most - 1]}…"
        for text in list(failed.values())[:_MOST_FAILURES]
    ]


def _edges(network: Network) -> Iterator[tuple[str, str, str]]:
    both = set(network.links)  # two edges in opposite directions run beside each other
    for source, target in network.links:
        route = network.layout.routes.get((source, target))
        if route:  # a link from a box to itself has none
            route = _to_heads(network, source, target, route)
            if (target, source) in both:
                aside = _ASIDE if source < target else -_ASIDE
                route = tuple((x, y + aside) for x, y in route)
            yield source, target, _path(route)


def _to_heads(
    network: Network, source: str, target: str, route: Sequence[Point]
) -> tuple[Point, ...]:
    """Return a route that begins and ends beside the names of datasets, above their columns."""
    points = list(route)
    for key, place in ((source, 0), (target, -1)):
        if network.unfolded and not network.boxes[key].is_job:
            points[place] = points[place][0], network.layout.corners[key][1] + DATASET_HEIGHT / 2
    return tuple(points)


def _column_edges(network: Network) -> Iterator[str]:
    """Yield a line for each pair of columns whose values go from one to the other, through the job
    between them.

    Lines of one job run beside each other in it, in the order of the written columns.
    """
    rows = {column.key: row for box in network.datasets for row, column in enumerate(box.columns)}
    steps: dict[str, dict[tuple[str, str], None]] = {}
    for box in network.datasets:
        for column in box.columns:
            for source in column.sources:
                if not source.is_indirect:
                    steps.setdefault(source.job, {})[source.column, column.key] = None
    for job, pairs in steps.items():
        for number, (source_column, target_column) in enumerate(pairs):
            start, end = source_column.partition("-")[0], target_column.partition("-")[0]
            before, after = (
                network.layout.routes.get((start, job)),
                network.layout.routes.get((job, end)),
            )
            if before and after:
                lane = _LANES * ((number + 0.5) / len(pairs) - 0.5)
                middle = [(x, y + lane) for x, y in (*before[1:], *after[:-1])]
                first = before[0][0], _row(network, start, rows[source_column])
                last = after[-1][0], _row(network, end, rows[target_column])
                yield _path([first, *middle, last])


def _row(network: Network, key: str, row: int) -> float:
    """Return the middle of a column's row."""
    return network.layout.corners[key][1] + DATASET_HEIGHT + (row + 0.5) * COLUMN_HEIGHT


def _path(route: Sequence[Point]) -> str:
    """Draw a curve from layer to layer, and a straight line through each layer that the link
    passes.
    """
    drawn = f"M{route[0][0]:g},{route[0][1]:g}"
    for number, ((x, y), (to_x, to_y)) in enumerate(pairwise(route), 1):
        if number % 2 and y != to_y:
            bend = (to_x - x) / 2
            drawn += f"C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x:g},{to_y:g}"
        else:
            drawn += f"L{to_x:g},{to_y:g}"
    return drawn


MOST_LINKS = 500
"""Mermaid's limit (``maxEdges``). GitHub does not raise it, and draws nothing if there are more
links.
"""

_PLAIN = frozenset(" ._-/:=@+,")


def render_mermaid(network: Network) -> str:
    """Return the network as a Mermaid flowchart. Names are escaped: none is read as syntax, markup
    or a link.
    """
    lines = ["flowchart LR"]
    for box in network.boxes.values():
        opening, closing = ('(["', '"])') if box.is_job else ('["', '"]')
        more = box.error[:_LONGEST_REASON] if box.is_job else _column_names(box.columns)
        note = "".join(f"<br>{_escaped(line)}" for line in (box.note, more) if line)
        lines.append(f"  {box.key}{opening}<b>{_escaped(box.title)}</b>{note}{closing}")
    lines += [f"  {source} --> {target}" for source, target in network.links]
    jobs = ",".join(box.key for box in network.jobs)
    if jobs:
        lines += ["  classDef job stroke:#e36209,stroke-width:2px", f"  class {jobs} job"]
    failed = ",".join(box.key for box in network.jobs if box.state == "FAILURE")
    if failed:
        lines += ["  classDef failed stroke:#cf222e,stroke-width:3px", f"  class {failed} failed"]
    return "\n".join(lines) + "\n"


def _column_names(columns: Sequence[NetworkColumn]) -> str:
    names = [column.name for column in columns if column.name]
    more = [f"and {len(names) - _MOST_COLUMNS} more"] if len(names) > _MOST_COLUMNS else []
    return ", ".join([*names[:_MOST_COLUMNS], *more])


def _escaped(text: str) -> str:
    """Write every character that Mermaid, Markdown or HTML may interpret as an entity (``#34;``)."""
    return "".join(each if each.isalnum() or each in _PLAIN else f"#{ord(each)};" for each in text)


def render_json(graph: Graph) -> dict[str, Any]:
    """Return runs, jobs, datasets and problems. Times (since 1970 UTC) and durations are in
    milliseconds.

    Runs are a list, parents first; ``parent`` names the run above. Names are not escaped: they are
    as in the proposals.
    """
    datasets = dict.fromkeys(
        [*(urn for job in graph.jobs for urn in (*job.inputs, *job.outputs)), *graph.schemas]
    )
    return {
        "runs": [
            {
                **_parts(run, _RUN),
                "attempts": [_parts(attempt, _ATTEMPT) for attempt in run.attempts()],
            }
            for run in graph.runs()
        ],
        "jobs": [_job(job) for job in graph.jobs],
        "datasets": [_dataset(urn, graph) for urn in datasets],
        "proposals": graph.read,
        "problems": list(graph.problems),
    }


_RUN = "urn kind name error template parent started inputs outputs upstreams external_url"
_ATTEMPT = "number state started ended duration"


def _parts(whole: object, names: str) -> dict[str, Any]:
    values = ((name, getattr(whole, name)) for name in names.split())
    return {
        name: list(value) if isinstance(value, tuple | Mapping) else value for name, value in values
    }


def _job(job: GraphJob) -> dict[str, Any]:
    return {
        **_parts(job, "urn name inputs outputs upstream_jobs"),
        "columns": [
            {
                "output": _column(lineage.output),
                "inputs": [_column(column) for column in lineage.inputs],
                "transformation": lineage.transformation,
            }
            for lineage in job.columns
        ],
        "writes": [_parts(write, "inputs outputs") for write in job.writes],
        "evidence": [evidence for write in job.writes for evidence in _evidence(write)],
    }


def _evidence(write: GraphJob) -> Iterator[dict[str, Any]]:
    for direction, side in (("input", write.inputs), ("output", write.outputs)):
        for urn, evidence in side.items():
            if evidence:
                yield {"dataset": urn, "direction": direction, **evidence.to_obj()}


def _column(column: Column) -> dict[str, Any]:
    return {"dataset": column.dataset, "column": column.path or None}


def _dataset(urn: str, graph: Graph) -> dict[str, Any]:
    parts = dict(
        zip(("platform", "name", "env"), dataset_parts(urn) or (None, None, None), strict=True)
    )
    types = graph.schemas.get(urn)
    columns = (
        None if types is None else [{"path": path, "type": type_} for path, type_ in types.items()]
    )
    return {"urn": urn, **parts, "instance": graph.instances.get(urn), "columns": columns}
