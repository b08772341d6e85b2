"""The lineage as SVG: a file of its own for documents and tickets, or a part of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from airflow_provider_spark_datahub.picture.layout import Point
from airflow_provider_spark_datahub.picture.network import Box, Network
from airflow_provider_spark_datahub.picture.urns import dataset_parts

_MARGIN = 20
_RADIUS = {True: 20, False: 5}
_PLATFORM_COLOURS = 6
_STATES = frozenset({"SUCCESS", "FAILURE", "UP_FOR_RETRY"})


def asset(name: str) -> str:
    """A file that goes into a picture: styles or a script."""
    return (files("airflow_provider_spark_datahub.picture") / "assets" / name).read_text(encoding="utf-8")


def svg(network: Network, *, inside_page: bool = False) -> str:
    """The network as SVG.

    :param inside_page: without its own styles, and each box a link to the part ``#KEY`` of the page.
    """
    width = round(network.layout.width) + 2 * _MARGIN
    height = round(network.layout.height) + 2 * _MARGIN
    colours = _colours(network)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    role = f'role="{"group" if inside_page else "img"}" aria-label="{escape(_summary(network))}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="network" {size} {role}>',
        "" if inside_page else f"<title>{escape(_summary(network))}</title>\n<style>{asset('network.css')}</style>",
        f'<rect class="sheet" width="{width}" height="{height}"/>',
        _marker("head"),
        _marker("head-lit") if inside_page else "",
        f'<g transform="translate({_MARGIN} {_MARGIN})">',
        *_edges(network),
        *(_box(box, network, colours, inside_page) for box in network.boxes.values()),
        "</g>",
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _summary(network: Network) -> str:
    jobs = sum(box.is_job for box in network.boxes.values())
    datasets = len(network.boxes) - jobs
    return f"Lineage of {jobs} job{'s' * (jobs != 1)} and {datasets} dataset{'s' * (datasets != 1)}"


def _marker(name: str) -> str:
    return (
        f'<marker id="{name}" class="{name}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0.5 8 4 0 7.5z"/></marker>'
    )


def _colours(network: Network) -> dict[str, int]:
    """Per platform a colour, in the order of appearance; the seventh has the first one's."""
    platforms = [parts[0] for box in network.boxes.values() if (parts := dataset_parts(box.urn))]
    return {platform: number % _PLATFORM_COLOURS for number, platform in enumerate(dict.fromkeys(platforms))}


def _edges(network: Network) -> Iterator[str]:
    for source, target in network.links:
        route = network.layout.routes.get((source, target))
        if route:  # a job that reads what it is has none
            yield (
                f'<path class="edge" data-from="{source}" data-to="{target}" d="{_path(route)}" '
                f'marker-end="url(#head)"/>'
            )


def _path(route: Sequence[Point]) -> str:
    """A curve from layer to layer, a straight line through each layer that is passed."""
    drawn = f"M{_at(route[0])}"
    for number in range(1, len(route)):
        (x, y), (to_x, to_y) = route[number - 1], route[number]
        if number % 2 and y != to_y:
            bend = (to_x - x) / 2
            drawn += f"C{_at((x + bend, y))} {_at((to_x - bend, to_y))} {_at((to_x, to_y))}"
        else:
            drawn += f"L{_at((to_x, to_y))}"
    return drawn


def _at(point: Point) -> str:
    return f"{point[0]:g},{point[1]:g}"


def _box(box: Box, network: Network, colours: dict[str, int], inside_page: bool) -> str:
    x, y = network.layout.corners[box.key]
    width, height = network.sizes[box.key]
    parts = dataset_parts(box.urn)
    kind = "job" if box.is_job else "dataset"
    state = f" {box.state}" if box.state in _STATES else ""
    link = f'<a href="#{box.key}"' if inside_page else "<g"
    left = x + (width / 2 if box.is_job else 14)
    anchor = ' text-anchor="middle"' if box.is_job else ""
    note = escape(box.note)
    if box.state and box.note.endswith(box.state):
        note = f'{escape(box.note.removesuffix(box.state))}<tspan class="state">{escape(box.state)}</tspan>'
    drawn = [
        f'{link} class="box {kind}{state}" data-key="{box.key}">',
        f"<title>{escape(box.full)}</title>",
        f'<rect class="body" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{_RADIUS[box.is_job]}"/>',
        f'<rect class="p{colours[parts[0]]}" x="{x:g}" y="{y:g}" width="5" height="{height:g}" rx="2.5"/>'
        if parts
        else "",
        f'<text class="title" x="{left:g}" y="{y + height / 2 - 3:g}"{anchor}>{escape(box.title)}</text>',
        f'<text class="note" x="{left:g}" y="{y + height / 2 + 13:g}"{anchor}>{note}</text>',
        "</a>" if inside_page else "</g>",
    ]
    return "".join(drawn)
