"""Puts what is linked into layers: every link leads from left to right, and few of them cross.

The layered drawing of Sugiyama, Tagawa and Toda (1981): circles are opened, each box gets a layer, links over several
layers a waypoint in each, and the boxes of a layer the order in which the fewest links cross.
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
