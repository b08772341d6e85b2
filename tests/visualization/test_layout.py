"""Boxes in layers, and their coordinates."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations, pairwise

import pytest

from airflow_provider_spark_datahub.visualization.layout import (
    _GAP_BETWEEN_BOXES,
    Layout,
    _Part,
    _Waypoint,
)
from tests.cases import cases

SIZE = (100.0, 40.0)


def layered(boxes: Iterable[str], links: Iterable[tuple[str, str]]) -> _Part:
    return _Part(dict.fromkeys(boxes, SIZE), links)


def test_a_link_over_several_layers_has_a_waypoint_in_each() -> None:
    layers = layered("abc", [("a", "b"), ("b", "c"), ("a", "c")])
    assert layers.chains["a", "c"] == ("a", _Waypoint("a", 1), "c")


def test_links_from_one_box_pass_together() -> None:
    layers = layered(
        "abcde", [("a", "b"), ("b", "c"), ("c", "d"), ("c", "e"), ("a", "d"), ("a", "e")]
    )
    assert (
        layers.chains["a", "d"][:-1]
        == layers.chains["a", "e"][:-1]
        == ("a", _Waypoint("a", 1), _Waypoint("a", 2))
    )


def test_what_nothing_leads_to_stands_just_before_what_it_leads_to() -> None:
    numbers = layered("abcd", [("a", "b"), ("b", "c"), ("d", "c")]).columns
    assert numbers["d"] == numbers["c"] - 1


@cases("visualization")
def test_cycles_are_laid_out_and_keep_their_direction(links: list[str]) -> None:
    layers = layered("abc", [(link[0], link[1]) for link in links])
    boxes = [place for layer in layers.layers for place in layer if isinstance(place, str)]
    assert sorted(boxes) == ["a", "b", "c"]
    assert {*layers.layout().routes} == {(link[0], link[1]) for link in links if link[0] != link[1]}


def test_a_dataset_that_its_reader_writes_stands_on_one_side_of_it_alone() -> None:
    numbers = layered(
        ["raw", "table", "job"], [("raw", "job"), ("table", "job"), ("job", "table")]
    ).columns
    assert sorted(map(str, numbers)) == ["job", "raw", "table"]
    assert abs(numbers["table"] - numbers["job"]) == 1


def test_links_that_need_not_cross_do_not() -> None:
    links = [("a", "z"), ("b", "y"), ("c", "x")]
    left, right = layered("abcxyz", [*links, ("a", "y"), ("b", "x")]).layers
    rows = {box: row for row, box in enumerate(left)} | {box: row for row, box in enumerate(right)}
    order = [rows[target] for _, target in sorted(links, key=lambda link: rows[link[0]])]
    assert order in ([0, 1, 2], [2, 1, 0])


@pytest.mark.parametrize("seed", range(20))
def test_every_step_leads_to_the_next_layer(seed: int) -> None:
    dice = random.Random(seed)
    boxes = [f"b{number}" for number in range(30)]
    links = [(dice.choice(boxes), dice.choice(boxes)) for _ in range(60)]
    layers = layered(boxes, links)
    numbers = layers.columns
    assert all(
        numbers[place] == number for number, layer in enumerate(layers.layers) for place in layer
    )
    assert len(numbers) == sum(map(len, layers.layers))
    assert all(numbers[right] - numbers[left] == 1 for left, right in layers.steps)
    assert layers.chains.keys() == {link for link in links if link[0] != link[1]}


def network(seed: int) -> tuple[dict[str, tuple[float, float]], list[tuple[str, str]]]:
    dice = random.Random(seed)
    sizes = {
        f"b{number}": (dice.uniform(80, 260), dice.choice([40.0, 44.0])) for number in range(40)
    }
    names = list(sizes)
    links = [(dice.choice(names), dice.choice(names)) for _ in range(60)]
    return sizes, list(dict.fromkeys(link for link in links if link[0] != link[1]))


def middle(layout: Layout, key: str) -> float:
    return layout.corners[key][1] + SIZE[1] / 2


@pytest.mark.parametrize("seed", range(10))
def test_no_two_boxes_overlap_and_all_are_inside(seed: int) -> None:
    sizes, links = network(seed)
    layout = Layout.of(sizes, links)
    assert layout.corners.keys() == sizes.keys()
    for first, second in combinations(sizes, 2):
        (x, y), (to_x, to_y) = layout.corners[first], layout.corners[second]
        apart_x = max(to_x - x - sizes[first][0], x - to_x - sizes[second][0])
        apart_y = max(to_y - y - sizes[first][1], y - to_y - sizes[second][1])
        assert apart_x > 0 or apart_y >= _GAP_BETWEEN_BOXES - 0.2, (first, second)
    for key, (x, y) in layout.corners.items():
        assert x >= 0
        assert y >= 0
        assert x + sizes[key][0] <= layout.width
        assert y + sizes[key][1] <= layout.height + 0.1


@pytest.mark.parametrize("seed", range(10))
def test_a_route_leads_from_the_side_of_its_source_to_the_side_of_its_target(seed: int) -> None:
    sizes, links = network(seed)
    layout = Layout.of(sizes, links)
    assert layout.routes.keys() == set(links)
    for (source, target), route in layout.routes.items():
        for key, (x, y) in ((source, route[0]), (target, route[-1])):
            left, top = layout.corners[key]
            assert x in (left, left + sizes[key][0])
            assert y == pytest.approx(top + sizes[key][1] / 2, abs=0.11)
        assert all(y == to_y for (_, y), (_, to_y) in list(pairwise(route))[1::2])


def test_a_chain_is_straight() -> None:
    layout = Layout.of(dict.fromkeys("abc", SIZE), [("a", "b"), ("b", "c")])
    assert middle(layout, "a") == middle(layout, "b") == middle(layout, "c")
    assert layout.corners["a"][0] < layout.corners["b"][0] < layout.corners["c"][0]
