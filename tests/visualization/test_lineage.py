"""The drawn lines are followed with the finger: each job must be connected with its datasets, and with no others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings, strategies as st

from airflow_provider_spark_datahub.visualization.flow import UNICODE, _Drawing, cell_width, draw_flows
from airflow_provider_spark_datahub.visualization.model import GraphJob
from airflow_provider_spark_datahub.visualization.names import ShortName
from tests.cases import cases

TO_THE_LEFT, TO_THE_RIGHT = set("─╴╮╯┤┴┬┼"), set("─╶╰╭├┴┬┼")
CORNERS = set("╮╯┤┴┬┼╰╭├")
UPWARDS, DOWNWARDS = set("│╵╯┤╰├┴┼"), set("│╷╮┤╭├┬┼")


def job(key: str, reads: str = "", writes: str = "") -> GraphJob:
    return GraphJob(key, key, dict.fromkeys(reads.split()), dict.fromkeys(writes.split()))


def drawn(jobs: list[GraphJob], width: int = 100) -> list[_Drawing]:
    return draw_flows(jobs, width, UNICODE, lambda key: ShortName("p", key))


def text_of(drawing: _Drawing) -> str:
    return "\n".join("".join(text for text, _ in row).rstrip() for row in drawing.rows)


class Finger:
    """Follows the lines of a drawing from a job's box to the names of datasets."""

    def __init__(self, drawing: str) -> None:
        self.lines = drawing.splitlines()
        self.starts, self.ends, self.boxes = {}, {}, {}
        for y, line in enumerate(self.lines):
            for name in re.finditer(r"(?:↳ )?p (d\d+)(?: \(again\))?(?: ↓)?", line):
                self.starts[name.start(), y] = self.ends[name.end() - 1, y] = name[1]
            for box in re.finditer(r"│ +(j\d+) +│", line):
                self.boxes[box[1]] = (box.start(), box.end() - 1, y)

    def at(self, x: int, y: int) -> str:
        return self.lines[y][x] if 0 <= y < len(self.lines) and 0 <= x < len(self.lines[y]) else " "

    def inputs(self, key: str) -> set[str]:
        left, _, y = self.boxes[key]
        return self.side(left - 2, y, -1, self.ends) if self.at(left - 1, y) == "▶" else set()

    def outputs(self, key: str) -> set[str]:
        _, right, y = self.boxes[key]
        return self.side(right + 1, y, 1, self.starts) if self.at(right + 1, y) != " " else set()

    def side(self, x: int, y: int, step: int, names: dict[tuple[int, int], str]) -> set[str]:
        """Follow a line from the box to its vertical part, along that, and from there to the names."""
        onward, back = (TO_THE_LEFT, TO_THE_RIGHT) if step < 0 else (TO_THE_RIGHT, TO_THE_LEFT)
        while self.at(x, y) not in CORNERS & back:
            if self.at(x + step, y) == " ":
                return {names[x + 2 * step, y]}
            x += step
        rows = {y}
        for direction, leads in ((-1, UPWARDS), (1, DOWNWARDS)):
            row = y
            while self.at(x, row) in leads:
                row += direction
                rows.add(row)
        return {self.straight(x, row, step, names) for row in rows if self.at(x, row) in onward}

    def straight(self, x: int, y: int, step: int, names: dict[tuple[int, int], str]) -> str:
        while (x + 2 * step, y) not in names or self.at(x + step, y) != " ":
            x += step
            assert self.at(x, y) in "─│╮╯┤╰╭├┴┬┼▶", f"the line ends at {x}, {y}"
        return names[x + 2 * step, y]


DATASETS = st.lists(st.integers(0, 9).map("d{}".format), max_size=4, unique=True).map(dict.fromkeys)
SIDES = st.lists(st.tuples(DATASETS, DATASETS).filter(any), min_size=1, max_size=7)


@pytest.mark.no_cover
@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(SIDES, st.sampled_from([60, 100, 160]))
def test_every_job_is_joined_to_its_datasets_and_to_no_others(
    sides: list[tuple[dict[str, None], dict[str, None]]], width: int
) -> None:
    jobs = {f"j{number}": GraphJob(f"j{number}", f"j{number}", *side) for number, side in enumerate(sides)}
    joined = {}
    for drawing in drawn(list(jobs.values()), width):
        text = text_of(drawing)
        assert max(map(cell_width, text.splitlines())) <= width
        finger = Finger(text)
        joined.update({key: (finger.inputs(key), finger.outputs(key)) for key in finger.boxes})
    assert joined == {key: (set(job.inputs), set(job.outputs)) for key, job in jobs.items()}


@pytest.mark.slow
def test_a_chain_of_jobs_is_one_line() -> None:
    [drawing] = drawn([job("revenue", "orders", "daily"), job("build", "orders.csv", "orders")])
    assert text_of(drawing).splitlines()[1] == "p orders.csv ───▶│ build │───▶ p orders ───▶│ revenue │───▶ p daily"


def test_many_readers_of_one_dataset_fit_the_width() -> None:
    [drawing] = drawn([job(f"j{number}", "d0", f"d{number + 1}") for number in range(20)], 60)
    finger = Finger(text_of(drawing))
    assert {key: (finger.inputs(key), finger.outputs(key)) for key in finger.boxes} == {
        f"j{number}": ({"d0"}, {f"d{number + 1}"}) for number in range(20)
    }
    assert max(map(cell_width, finger.lines)) <= 60


def test_wide_and_combining_characters_keep_the_lines_in_place() -> None:
    [drawing] = drawn([job("j", "日本 e\u0301 abcde", "out")])
    rows = text_of(drawing).splitlines()
    assert [cell_width(row[: row.index("─")]) for row in rows if row.startswith("p")] == [7, 4, 8]
    assert len({cell_width(re.split("[╮┤┼╯]", row)[0]) for row in rows if row.startswith("p")}) == 1


def test_jobs_that_share_no_dataset_are_drawn_apart() -> None:
    assert len(drawn([job("j1", "a", "b"), job("j2", "c", "d"), job("j3", "b", "e")])) == 2


def test_a_dataset_that_is_read_and_written_stands_on_both_sides() -> None:
    [drawing] = drawn([job("append", "d1", "d1")])
    assert text_of(drawing).splitlines()[1] == "p d1 ───▶│ append │───▶ p d1 (again)"


def test_a_cycle_of_jobs_is_drawn_from_its_first_job_on() -> None:
    [drawing] = drawn([job("j1", "b", "a"), job("j2", "a", "b")])
    assert text_of(drawing).splitlines()[1] == "p b ───▶│ j1 │───▶ p a ───▶│ j2 │───▶ p b (again)"


@pytest.mark.parametrize(("count", "shown", "folded"), [(12, 12, None), (13, 12, "… 1 more"), (19, 12, "… 7 more")])
def test_more_than_twelve_datasets_on_a_side_are_folded(count: int, shown: int, folded: str | None) -> None:
    reads = " ".join(f"d{number}" for number in range(count))
    text = text_of(drawn([job("j", reads, "out")])[0])
    assert len(re.findall(r"p d\d+", text)) == shown
    assert ("more" in text) == (folded is not None)
    assert folded is None or folded in text


def test_a_folded_side_keeps_the_datasets_that_join_jobs() -> None:
    writes = " ".join(f"d{number}" for number in range(20))
    [drawing] = drawn([job("j1", "a", writes), job("j2", "d19", "z")])
    assert "p d19" in text_of(drawing)


def test_a_flow_that_is_too_wide_continues_below_and_says_so() -> None:
    chain = [job(f"job_number_{number}", f"table_number_{number}", f"table_number_{number + 1}") for number in range(6)]
    [drawing] = drawn(chain, 80)
    text = text_of(drawing)
    assert drawing.broken
    assert text.count("table_number_2 ↓") == text.count("↳ p table_number_2") == 1
    assert max(map(cell_width, text.splitlines())) <= 80


def test_a_shortened_name_keeps_its_end_and_is_listed_in_full() -> None:
    long = "lake/a-very-long-folder/another-quite-long-one/yet-another/orders.csv"
    [drawing] = drawn([job("j", long, "out")], 60)
    assert drawing.shortened[f"p {long}"].endswith("/orders.csv")
    assert drawing.shortened[f"p {long}"] in text_of(drawing)


@cases("visualization")
def test_names_are_shortened_where_a_part_of_them_begins(text: str, width: int, expected: str) -> None:
    assert UNICODE.shorten(text, width) == expected
    assert cell_width(expected) <= width
