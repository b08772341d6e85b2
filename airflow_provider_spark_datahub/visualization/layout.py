"""Puts what is linked into layers: every link leads from left to right, and few of them cross.

The layered drawing of Sugiyama, Tagawa and Toda (1981): circles are opened, each box gets a layer, links over several
layers a waypoint in each, and the boxes of a layer the order in which the fewest links cross.

Coordinates for layers of boxes: no two overlap, and links are as straight as the boxes allow.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

_SWEEPS = 12
_P = TypeVar("_P")

Link = tuple[str, str]
"""From one box to another, by their keys."""


@dataclass(frozen=True, slots=True)
class Waypoint:
    """Where links pass a layer: all that come from one box on its left pass together, and part behind it."""

    origin: str
    layer: int


Place = str | Waypoint
"""What stands in a layer: a box, by its key, or links that pass."""

_Neighbours = Mapping[Place, Sequence[Place]]


@dataclass(frozen=True, slots=True)
class Layers:
    """Boxes and waypoints in layers.

    :param layers: from left to right, each from top to bottom.
    :param chains: for each link that was given, in its own direction, all places from its source to its target.
    """

    layers: tuple[tuple[Place, ...], ...]
    chains: Mapping[Link, tuple[Place, ...]]

    def steps(self) -> Iterator[tuple[Place, Place]]:
        """The pairs of places in neighbouring layers that are linked, left one first, each once."""
        seen = set()
        layer_of = {place: number for number, layer in enumerate(self.layers) for place in layer}
        for chain in self.chains.values():
            for one, other in pairwise(chain):
                step = (one, other) if layer_of[one] < layer_of[other] else (other, one)
                if step not in seen:
                    seen.add(step)
                    yield step


def in_layers(boxes: Sequence[str], links: Iterable[Link]) -> Layers:
    """The boxes in layers.

    A link that closes a circle leads from right to left; a link of a box to itself is left out.

    :param boxes: their keys, in the order that decides where nothing else does.
    :param links: between these boxes.
    """
    wanted = [link for link in dict.fromkeys(links) if link[0] != link[1]]
    forward = _opened(boxes, wanted)
    layer_of = _layer_numbers(boxes, forward)
    chains = {}
    for source, target in wanted:
        turned = layer_of[source] > layer_of[target]
        link = (target, source) if turned else (source, target)
        between = [Waypoint(link[0], layer) for layer in range(layer_of[link[0]] + 1, layer_of[link[1]])]
        chain: list[Place] = [link[0], *between, link[1]]
        chains[source, target] = tuple(reversed(chain) if turned else chain)
    return _ordered(boxes, layer_of, chains)


def _opened(boxes: Sequence[str], links: Sequence[Link]) -> list[Link]:
    """The links without circles: what closes one is turned round."""
    followers = _neighbours(links)
    position: dict[str, int] = {}  # the order in which the depth-first search left a box
    open_boxes: set[str] = set()
    closing: set[Link] = set()
    for start in boxes:
        waiting = [(start, iter(followers.get(start, ())))] if start not in position else []
        open_boxes.update(box for box, _ in waiting)
        while waiting:
            box, rest = waiting[-1]
            follower = next(rest, None)
            if follower is None:
                position[box] = len(position)
                open_boxes.discard(box)
                waiting.pop()
            elif follower in open_boxes:
                closing.add((box, follower))
            elif follower not in position:
                open_boxes.add(follower)
                waiting.append((follower, iter(followers.get(follower, ()))))
    return list(
        dict.fromkeys((target, source) if (source, target) in closing else (source, target) for source, target in links)
    )


def _layer_numbers(boxes: Sequence[str], links: Sequence[Link]) -> dict[str, int]:
    """Each box one layer behind the last that leads to it; one to which none leads, just before its first follower."""
    followers, leaders = _neighbours(links), _neighbours((target, source) for source, target in links)
    left = {box: len(leaders.get(box, ())) for box in boxes}
    ready = [box for box in boxes if not left[box]]
    numbers: dict[str, int] = {}
    for box in ready:  # grows on the way
        numbers[box] = 1 + max((numbers[leader] for leader in leaders.get(box, ())), default=-1)
        for follower in followers.get(box, ()):
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    for box in boxes:
        if box not in leaders and box in followers:
            numbers[box] = min(numbers[follower] for follower in followers[box]) - 1
    return numbers


def _ordered(boxes: Sequence[str], layer_of: Mapping[str, int], chains: Mapping[Link, tuple[Place, ...]]) -> Layers:
    layers: list[list[Place]] = [[] for _ in range(1 + max(layer_of.values(), default=-1))]
    for box in boxes:
        layers[layer_of[box]].append(box)
    for waypoint in dict.fromkeys(place for chain in chains.values() for place in chain if isinstance(place, Waypoint)):
        layers[waypoint.layer].append(waypoint)
    best = Layers(tuple(map(tuple, layers)), chains)
    steps = list(best.steps())
    before, after = _neighbours((right, left) for left, right in steps), _neighbours(steps)
    least = _crossings(layers, after)
    for sweep in range(_SWEEPS):
        rightwards = sweep % 2 == 0
        neighbours = before if rightwards else after
        for number in range(len(layers)) if rightwards else reversed(range(len(layers))):
            fixed = number - 1 if rightwards else number + 1
            if 0 <= fixed < len(layers):
                _sort_by_neighbours(layers[number], layers[fixed], neighbours)
        crossings = _crossings(layers, after)
        if crossings < least:
            least, best = crossings, Layers(tuple(map(tuple, layers)), chains)
        if not least:
            break
    return best


def _sort_by_neighbours(
    layer: list[Place], fixed: Sequence[Place], neighbours: Mapping[Place, Sequence[Place]]
) -> None:
    """Each place at the mean of its neighbours in the fixed layer; one without any stays where it is."""
    rows = {place: row for row, place in enumerate(fixed)}
    scale = len(fixed) / max(len(layer), 1)
    means: dict[Place, float] = {}
    for row, place in enumerate(layer):
        met = [rows[neighbour] for neighbour in neighbours.get(place, ())]
        means[place] = sum(met) / len(met) if met else row * scale
    layer.sort(key=means.__getitem__)


def _crossings(layers: Sequence[Sequence[Place]], after: _Neighbours) -> int:
    count = 0
    for left, right in pairwise(layers):
        rows = {place: row for row, place in enumerate(right)}
        seen: list[int] = []
        for place in left:
            ends = sorted(rows[end] for end in after.get(place, ()))
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _neighbours(steps: Iterable[tuple[_P, _P]]) -> dict[_P, list[_P]]:
    found: dict[_P, list[_P]] = {}
    for one, other in steps:
        found.setdefault(one, []).append(other)
    return found


GAP_BETWEEN_BOXES = 18.0
GAP_BETWEEN_LINKS = 14.0
GAP_BETWEEN_PARTS = 44.0
_LEAST_GAP_OF_LAYERS, _MOST_GAP_OF_LAYERS = 70.0, 200.0
_ALIGNMENT_SWEEPS = 16
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
        for sweep in range(_ALIGNMENT_SWEEPS):
            rightwards = sweep % 2 == 0
            both = sweep >= _ALIGNMENT_SWEEPS // 2
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
