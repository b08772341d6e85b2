"""Layout of boxes and links: layers from left to right with few crossings, and coordinates without
overlaps.

This is the layered drawing of Sugiyama, Tagawa and Toda (1981). Cycles are broken, each box gets a
layer, a link gets a waypoint in each layer that it passes, and the boxes of a layer are sorted so
that few links cross. Coordinates are then chosen so that links are as straight as the boxes allow.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from airflow_provider_spark_datahub.foundation.memory import grouped

_GAP_BETWEEN_BOXES = 18.0
_GAP_BETWEEN_LINKS = 14.0
_GAP_BETWEEN_PARTS = 44.0
_LEAST_GAP_OF_LAYERS, _MOST_GAP_OF_LAYERS = 70.0, 200.0
_ALIGNMENT_SWEEPS = 16
_STRAIGHT = 8.0
"""Weight of a waypoint compared with that of a box: long links stay straight."""
_SWEEPS = 12

Point = tuple[float, float]
Size = tuple[float, float]
Link = tuple[str, str]
"""From one box to another, by their keys."""


class _Waypoint(NamedTuple):
    """Place where links pass a layer: all links from the same box pass it together."""

    origin: str
    layer: int


_Place = str | _Waypoint
"""An item of a layer: the key of a box, or a waypoint."""

_Neighbours = Mapping[_Place, Sequence[_Place]]


def _layer_numbers(boxes: Iterable[str], links: Iterable[Link]) -> dict[str, int]:
    """Put each box one layer after its last predecessor, or just before its first follower if it
    has none.

    A link that closes a cycle leads from right to left.
    """
    left, closing = _depth_first(boxes, links)
    forwards = dict.fromkeys(
        (target, source) if (source, target) in closing else (source, target)
        for source, target in links
    )
    followers, leaders = (
        grouped(forwards),
        grouped((target, source) for source, target in forwards),
    )
    numbers: dict[str, int] = {}
    for box in reversed(left):
        numbers[box] = 1 + max((numbers[leader] for leader in leaders.get(box, ())), default=-1)
    for box in boxes:
        if box not in leaders and box in followers:
            numbers[box] = min(numbers[follower] for follower in followers[box]) - 1
    return numbers


def _depth_first(boxes: Iterable[str], links: Iterable[Link]) -> tuple[list[str], set[Link]]:
    """Return the boxes in the order in which a depth-first search leaves them, and the links that
    close a cycle.
    """
    followers = grouped(links)
    left: dict[str, None] = {}
    open_boxes: set[str] = set()
    closing: set[Link] = set()
    for start in boxes:
        waiting = [(start, iter(followers.get(start, ())))] if start not in left else []
        open_boxes.update(box for box, _ in waiting)
        while waiting:
            box, rest = waiting[-1]
            follower = next(rest, None)
            if follower is None:
                left[box] = None
                open_boxes.discard(box)
                waiting.pop()
            elif follower in open_boxes:
                closing.add((box, follower))
            elif follower not in left:
                open_boxes.add(follower)
                waiting.append((follower, iter(followers.get(follower, ()))))
    return list(left), closing


def _sort_by_neighbours(
    layer: list[_Place], fixed: Sequence[_Place], neighbours: _Neighbours
) -> None:
    """Sort places by the mean position of their neighbours in the fixed layer; a place without any
    keeps its own.
    """
    rows = {place: row for row, place in enumerate(fixed)}
    scale = len(fixed) / max(len(layer), 1)
    means: dict[_Place, float] = {}
    for row, place in enumerate(layer):
        met = [rows[neighbour] for neighbour in neighbours.get(place, ())]
        means[place] = sum(met) / len(met) if met else row * scale
    layer.sort(key=means.__getitem__)


def _crossings(layers: Sequence[Sequence[_Place]], after: _Neighbours) -> int:
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


@dataclass(frozen=True)
class Layout:
    """Coordinates of boxes and links, in pixels from the top left.

    :param corners: the top left corner of each box.
    :param routes: the points of each link: out of its source, straight through each layer that it
        passes, into its target.
    """

    corners: Mapping[str, Point]
    routes: Mapping[Link, tuple[Point, ...]]
    width: float
    height: float

    @classmethod
    def of(cls, sizes: Mapping[str, Size], links: Iterable[Link]) -> Layout:
        """Lay out boxes and links; groups that no link connects are placed below each other.

        :param sizes: width and height of each box, by its key.
        """
        wanted = list(links)
        corners: dict[str, Point] = {}
        routes: dict[Link, tuple[Point, ...]] = {}
        width = height = 0.0
        for boxes, inside in _connected_groups(sizes, wanted):
            laid_out = _Part({box: sizes[box] for box in boxes}, inside).layout()
            top = height + _GAP_BETWEEN_PARTS if height else 0.0
            corners.update({key: (x, y + top) for key, (x, y) in laid_out.corners.items()})
            routes.update(
                {
                    link: tuple((x, y + top) for x, y in route)
                    for link, route in laid_out.routes.items()
                }
            )
            width, height = max(width, laid_out.width), top + laid_out.height
        return cls(corners, routes, width, height)


def _connected_groups(
    boxes: Iterable[str], links: Sequence[Link]
) -> list[tuple[list[str], list[Link]]]:
    """Return the groups of boxes that links connect, directly or through other boxes, each with its
    links.
    """
    leaders = {box: box for box in boxes}

    def leader(box: str) -> str:
        while leaders[box] != box:
            leaders[box] = leaders[leaders[box]]
            box = leaders[box]
        return box

    for source, target in links:
        leaders[leader(target)] = leader(source)
    groups: dict[str, tuple[list[str], list[Link]]] = {}
    for box in leaders:
        groups.setdefault(leader(box), ([], []))[0].append(box)
    for link in links:
        groups[leader(link[0])][1].append(link)
    return list(groups.values())


class _Part:
    """Boxes that links connect, in layers.

    :param sizes: of the boxes; their order decides ties.
    :param links: a link from a box to itself is ignored.
    :ivar layers: boxes and waypoints from left to right, each layer from top to bottom.
    :ivar chains: for each link, all places that it passes, from left to right.
    :ivar steps: the pairs of linked places in neighbouring layers, left place first.
    """

    def __init__(self, sizes: Mapping[str, Size], links: Iterable[Link]) -> None:
        wanted = [link for link in dict.fromkeys(links) if link[0] != link[1]]
        numbers = _layer_numbers(sizes, wanted)
        self.sizes = sizes
        self.columns: dict[_Place, int] = {box: numbers[box] for box in sizes}
        self.chains: dict[Link, tuple[_Place, ...]] = {}
        for source, target in wanted:
            left, right = sorted((source, target), key=numbers.__getitem__)
            between = [
                _Waypoint(left, number) for number in range(numbers[left] + 1, numbers[right])
            ]
            self.columns.update((place, place.layer) for place in between)
            self.chains[source, target] = left, *between, right
        self.layers: list[list[_Place]] = [[] for _ in range(1 + max(numbers.values(), default=-1))]
        for place, number in self.columns.items():
            self.layers[number].append(place)
        pairs = (pair for chain in self.chains.values() for pair in pairwise(chain))
        self.steps = list(dict.fromkeys(pairs))
        self.before, self.after = (
            grouped((right, left) for left, right in self.steps),
            grouped(self.steps),
        )
        self.middles: dict[_Place, float] = {}
        self._sort()

    def _sort(self) -> None:
        """Sort each layer so that few links cross."""
        best, least = list(map(list, self.layers)), _crossings(self.layers, self.after)
        for sweep in range(_SWEEPS):
            rightwards = sweep % 2 == 0
            for fixed, layer in pairwise(self.layers if rightwards else self.layers[::-1]):
                _sort_by_neighbours(layer, fixed, self.before if rightwards else self.after)
            crossings = _crossings(self.layers, self.after)
            if crossings < least:
                best, least = list(map(list, self.layers)), crossings
            if not least:
                break
        self.layers = best

    def layout(self) -> Layout:
        """Return the coordinates."""
        self._settle()
        top = min(self.middles[place] - self._height(place) / 2 for place in self.middles)
        bottom = max(self.middles[place] + self._height(place) / 2 for place in self.middles)
        lefts, widths = self._lefts_and_widths()
        corners = {
            box: (lefts[self.columns[box]], round(self.middles[box] - size[1] / 2 - top, 1))
            for box, size in self.sizes.items()
        }
        routes = {}
        for link, chain in self.chains.items():
            points: list[Point] = []
            for place in chain:
                left, y = lefts[self.columns[place]], round(self.middles[place] - top, 1)
                right = left + (
                    widths[self.columns[place]]
                    if isinstance(place, _Waypoint)
                    else self.sizes[place][0]
                )
                points += [(left, y), (right, y)]
            if chain[0] != link[0]:
                points.reverse()
            routes[link] = tuple(points[1:-1])
        return Layout(corners, routes, lefts[-1] + widths[-1], round(bottom - top, 1))

    def _height(self, place: _Place) -> float:
        return self.sizes[place][1] if isinstance(place, str) else 0.0

    def _lefts_and_widths(self) -> tuple[list[float], list[float]]:
        """Return left edge and width of each layer; the gap after a layer grows with the steepness
        of its links.
        """
        widths = [
            max((self.sizes[place][0] for place in layer if isinstance(place, str)), default=0.0)
            for layer in self.layers
        ]
        rises = [0.0] * len(self.layers)
        for left, right in self.steps:
            column = self.columns[left]
            rises[column] = max(rises[column], abs(self.middles[left] - self.middles[right]))
        lefts = [0.0]
        for width, rise in zip(widths, rises[:-1], strict=False):
            gap = min(max(_LEAST_GAP_OF_LAYERS, rise * 0.35), _MOST_GAP_OF_LAYERS)
            lefts.append(round(lefts[-1] + width + gap, 1))
        return lefts, widths

    def _settle(self) -> None:
        """Stack the places of each layer, then move them towards their neighbours, layer by layer,
        to and fro.
        """
        packed = [(layer, self._offsets(layer)) for layer in self.layers]
        for layer, offsets in packed:
            self.middles.update(
                {
                    place: offset - offsets[-1] / 2
                    for place, offset in zip(layer, offsets, strict=True)
                }
            )
        both = grouped(
            pair for left, right in self.steps for pair in ((left, right), (right, left))
        )
        for sweep in range(_ALIGNMENT_SWEEPS):
            rightwards = sweep % 2 == 0
            one_side = self.before if rightwards else self.after
            neighbours = one_side if sweep < _ALIGNMENT_SWEEPS // 2 else both
            for layer, offsets in packed if rightwards else reversed(packed):
                wanted, weights = [], []
                for place in layer:
                    met = [self.middles[other] for other in neighbours.get(place, ())]
                    wanted.append(sum(met) / len(met) if met else self.middles[place])
                    weights.append(
                        (_STRAIGHT if isinstance(place, _Waypoint) else 1.0) * max(len(met), 0.1)
                    )
                self.middles.update(zip(layer, _spread(wanted, weights, offsets), strict=True))

    def _offsets(self, layer: Sequence[_Place]) -> list[float]:
        """Return the middles of a layer's places if they are packed as closely as allowed."""
        offsets = [0.0]
        for upper, lower in pairwise(layer):
            gap = (
                _GAP_BETWEEN_BOXES
                if isinstance(upper, str) and isinstance(lower, str)
                else _GAP_BETWEEN_LINKS
            )
            offsets.append(offsets[-1] + (self._height(upper) + self._height(lower)) / 2 + gap)
        return offsets


def _spread(
    wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]
) -> list[float]:
    """Return the middles closest to the wanted ones (least squares) that keep the order and the
    distances.

    Without the offsets this is isotonic regression, solved by pooling neighbours that violate the
    order.
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
