"""Boxes in layers: links lead to the right, and few of them cross."""

from __future__ import annotations

import random

import pytest

from airflow_provider_spark_datahub.visualization.layout import _Layers, _Waypoint
from tests.cases import cases


def layer_of(layers: _Layers) -> dict[object, int]:
    return {place: number for number, layer in enumerate(layers.layers) for place in layer}


def test_a_chain_has_a_layer_for_each_box() -> None:
    assert _Layers.of("abc", [("b", "c"), ("a", "b")]).layers == (("a",), ("b",), ("c",))


def test_a_link_over_several_layers_has_a_waypoint_in_each() -> None:
    layers = _Layers.of("abc", [("a", "b"), ("b", "c"), ("a", "c")])
    assert layers.chains["a", "c"] == ("a", _Waypoint("a", 1), "c")


def test_links_from_one_box_pass_together() -> None:
    layers = _Layers.of("abcde", [("a", "b"), ("b", "c"), ("c", "d"), ("c", "e"), ("a", "d"), ("a", "e")])
    assert layers.chains["a", "d"][:-1] == layers.chains["a", "e"][:-1] == ("a", _Waypoint("a", 1), _Waypoint("a", 2))


def test_what_nothing_leads_to_stands_just_before_what_it_leads_to() -> None:
    numbers = layer_of(_Layers.of("abcd", [("a", "b"), ("b", "c"), ("d", "c")]))
    assert numbers["d"] == numbers["c"] - 1


@cases("visualization")
def test_cycles_are_laid_out_and_keep_their_direction(links: list[str]) -> None:
    layers = _Layers.of("abc", [(link[0], link[1]) for link in links])
    boxes = [place for layer in layers.layers for place in layer if isinstance(place, str)]
    assert sorted(boxes) == ["a", "b", "c"]
    assert {(chain[0], chain[-1]) for chain in layers.chains.values()} == {
        (link[0], link[1]) for link in links if link[0] != link[1]
    }


def test_a_dataset_that_its_reader_writes_stands_on_one_side_of_it_alone() -> None:
    numbers = layer_of(_Layers.of(["raw", "table", "job"], [("raw", "job"), ("table", "job"), ("job", "table")]))
    assert sorted(map(str, numbers)) == ["job", "raw", "table"]
    assert abs(numbers["table"] - numbers["job"]) == 1


def test_links_that_need_not_cross_do_not() -> None:
    links = [("a", "z"), ("b", "y"), ("c", "x")]
    left, right = _Layers.of("abcxyz", [*links, ("a", "y"), ("b", "x")]).layers
    rows = {box: row for row, box in enumerate(left)} | {box: row for row, box in enumerate(right)}
    order = [rows[target] for _, target in sorted(links, key=lambda link: rows[link[0]])]
    assert order in ([0, 1, 2], [2, 1, 0])


@pytest.mark.parametrize("seed", range(20))
def test_every_step_leads_to_the_next_layer(seed: int) -> None:
    dice = random.Random(seed)
    boxes = [f"b{number}" for number in range(30)]
    links = [(dice.choice(boxes), dice.choice(boxes)) for _ in range(60)]
    layers = _Layers.of(boxes, links)
    numbers = layer_of(layers)
    assert len(numbers) == sum(map(len, layers.layers))
    assert all(numbers[right] - numbers[left] == 1 for left, right in layers.steps())
    assert layers.chains.keys() == {link for link in links if link[0] != link[1]}
