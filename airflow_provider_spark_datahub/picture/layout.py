"""Coordinates for layers of boxes: no two overlap, and links are as straight as the boxes allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from airflow_provider_spark_datahub.picture.layers import Layers, Link, Place, Waypoint, in_layers

GAP_BETWEEN_BOXES = 18.0
GAP_BETWEEN_LINKS = 14.0
GAP_BETWEEN_PARTS = 44.0
_LEAST_GAP_OF_LAYERS, _MOST_GAP_OF_LAYERS = 70.0, 200.0
_SWEEPS = 16
_STRAIGHT = 8.0
"""How much more a link's waypoint holds to its neighbours than a box does."""

Point = tuple[float, float]
Size = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes and links with their coordinates, in pixels from the top left.

    :param corners: the top left corner of each box.
    :param routes: for each link the points that it leads through: out of its source, straight through each layer that
        it passes, into its target.
    """

    corners: Mapping[str, Point]
    routes: Mapping[Link, tuple[Point, ...]]
    width: float
    height: float


def lay_out(sizes: Mapping[str, Size], links: Iterable[Link]) -> Layout:
    """The places of boxes; those that no link connects stand below each other, in the order of their first boxes.

    :param sizes: width and height of each box, by its key.
    """
    wanted = list(links)
    corners: dict[str, Point] = {}
    routes: dict[Link, tuple[Point, ...]] = {}
    width = height = 0.0
    for part in _parts(sizes, wanted):
        inside = set(part)
        layers = in_layers(part, [link for link in wanted if link[0] in inside])
        laid_out = _Part(layers, sizes).layout()
        top = height + GAP_BETWEEN_PARTS if height else 0.0
        corners.update({key: (x, y + top) for key, (x, y) in laid_out.corners.items()})
        routes.update({link: tuple((x, y + top) for x, y in route) for link, route in laid_out.routes.items()})
        width, height = max(width, laid_out.width), top + laid_out.height
    return Layout(corners, routes, width, height)


def _parts(boxes: Iterable[str], links: Iterable[Link]) -> list[list[str]]:
    leaders = {box: box for box in boxes}

    def leader(box: str) -> str:
        while leaders[box] != box:
            leaders[box] = leaders[leaders[box]]
            box = leaders[box]
        return box

    for source, target in links:
        leaders[leader(target)] = leader(source)
    parts: dict[str, list[str]] = {}
    for box in leaders:
        parts.setdefault(leader(box), []).append(box)
    return list(parts.values())


class _Part:
    """Boxes that links connect."""

    def __init__(self, layers: Layers, sizes: Mapping[str, Size]) -> None:
        self.layers = layers.layers
        self.chains = layers.chains
        self.sizes = sizes
        self.steps = list(layers.steps())
        self.neighbours: dict[Place, list[Place]] = {}
        for left, right in self.steps:
            self.neighbours.setdefault(left, []).append(right)
            self.neighbours.setdefault(right, []).append(left)
        self.middles: dict[Place, float] = {}

    def layout(self) -> Layout:
        self._settle()
        top = min(self.middles[place] - self._height(place) / 2 for place in self.middles)
        bottom = max(self.middles[place] + self._height(place) / 2 for place in self.middles)
        lefts, widths = self._columns()
        corners = {
            place: (lefts[number], round(self.middles[place] - self._height(place) / 2 - top, 1))
            for number, layer in enumerate(self.layers)
            for place in layer
            if isinstance(place, str)
        }
        columns = {place: number for number, layer in enumerate(self.layers) for place in layer}
        routes = {}
        for link, chain in self.chains.items():
            points: list[Point] = []
            rightwards = columns[chain[0]] < columns[chain[-1]]
            for place in chain:
                left, y = lefts[columns[place]], round(self.middles[place] - top, 1)
                right = left + (widths[columns[place]] if isinstance(place, Waypoint) else self.sizes[place][0])
                points += [(left, y), (right, y)] if rightwards else [(right, y), (left, y)]
            routes[link] = tuple(points[1:-1])
        return Layout(corners, routes, lefts[-1] + widths[-1], round(bottom - top, 1))

    def _height(self, place: Place) -> float:
        return self.sizes[place][1] if isinstance(place, str) else 0.0

    def _columns(self) -> tuple[list[float], list[float]]:
        """Left edge and width of each layer; where many links go, there is more room between two."""
        columns = {place: number for number, layer in enumerate(self.layers) for place in layer}
        widths = [
            max((self.sizes[place][0] for place in layer if isinstance(place, str)), default=0.0)
            for layer in self.layers
        ]
        rises = [0.0] * len(self.layers)
        for left, right in self.steps:
            rises[columns[left]] = max(rises[columns[left]], abs(self.middles[left] - self.middles[right]))
        lefts = [0.0]
        for width, rise in zip(widths, rises[:-1], strict=False):
            gap = min(max(_LEAST_GAP_OF_LAYERS, rise * 0.35), _MOST_GAP_OF_LAYERS)
            lefts.append(round(lefts[-1] + width + gap, 1))
        return lefts, widths

    def _settle(self) -> None:
        """First below each other, then, layer by layer to and fro, towards the neighbours."""
        for layer in self.layers:
            offsets = self._offsets(layer)
            self.middles.update({place: offset - offsets[-1] / 2 for place, offset in zip(layer, offsets, strict=True)})
        columns = {place: number for number, layer in enumerate(self.layers) for place in layer}
        for sweep in range(_SWEEPS):
            rightwards = sweep % 2 == 0
            both = sweep >= _SWEEPS // 2
            for layer in self.layers if rightwards else reversed(self.layers):
                wanted, weights = [], []
                for place in layer:
                    met = [
                        self.middles[other]
                        for other in self.neighbours.get(place, ())
                        if both or (columns[other] < columns[place]) == rightwards
                    ]
                    wanted.append(sum(met) / len(met) if met else self.middles[place])
                    weights.append((_STRAIGHT if isinstance(place, Waypoint) else 1.0) * max(len(met), 0.1))
                offsets = self._offsets(layer)
                self.middles.update(zip(layer, _spread(wanted, weights, offsets), strict=True))

    def _offsets(self, layer: Sequence[Place]) -> list[float]:
        """The middles of a layer's places where they stand as close as they may."""
        offsets = [0.0]
        for upper, lower in pairwise(layer):
            gap = GAP_BETWEEN_BOXES if isinstance(upper, str) and isinstance(lower, str) else GAP_BETWEEN_LINKS
            offsets.append(offsets[-1] + (self._height(upper) + self._height(lower)) / 2 + gap)
        return offsets


def _spread(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The middles closest to the wanted ones (least squares) that keep the order and the distances.

    Without the offsets that is isotonic regression, solved by pooling neighbours that violate the order.
    """
    pools: list[tuple[float, float, int]] = []
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        pool = (want - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            value, before, count = pools.pop()
            both = before + pool[1]
            pool = ((value * before + pool[0] * pool[1]) / both, both, count + pool[2])
        pools.append(pool)
    values = [value for value, _, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(values, offsets, strict=True)]
