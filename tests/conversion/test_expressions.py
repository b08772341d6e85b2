"""Texts of expressions: the columns whose values they have, and the fields of the structs that they
make.
"""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Converter, Ending
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import ColumnGraph
from tests.cases import cases
from tests.conversion.builders import settings
from tests.conversion.test_hard_jobs import direct_columns

FOLDER = Path(__file__).parents[1] / "data" / "nested_fields"
TRUTH: dict[str, dict[str, dict[str, list[str]]]] = json.loads((FOLDER / "truth.json").read_text())
# Spark's lists of columns cannot be split there: a text opens a bracket or closes one.
CUT_IN_LOGS = ("literal_paren", "literal_paren_aggregate", "regex_paren", "case_literal_paren")


def lines_of(kind: str) -> list[bytes]:
    packed = (FOLDER / f"{kind}.ndjson.xz").read_bytes()
    return lzma.decompress(packed).splitlines()


def found_columns(*, with_events: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the output, column and source of each direct edge of the recorded jobs."""
    converter = Converter(settings())
    for line in lines_of("events") if with_events else ():
        converter.add(line)
    for line in lines_of("log"):
        converter.add_log_event(json.loads(line))
    for edge in direct_columns(converter.finish(Ending(succeeded=True))):
        source, source_column, target, column = edge
        yield path_of(target), column, f"{path_of(source)}.{source_column}"


def path_of(urn: str) -> str:
    return urn.split(",")[1]


@pytest.mark.parametrize("with_events", [False, True])
def test_fields_of_wrapped_structs_have_their_own_columns(with_events: bool) -> None:
    found = set(found_columns(with_events=with_events))
    true, possible = set(), set()
    for output, columns in TRUTH.items():
        if not with_events and output.startswith(tuple(f"/out/{job}_o" for job in CUT_IN_LOGS)):
            possible |= {edge for edge in found if edge[0] == output}
            continue
        for column, sources in columns.items():
            possible |= {(output, column, source) for source in sources.get("either", ())}
            true |= {(output, column, source) for source in sources.get("direct", ())}
    assert true - possible - found == set(), "missing"
    assert found - true - possible == set(), "false"


def graph_of(*names: str) -> ColumnGraph:
    graph = ColumnGraph()
    for number, name in enumerate(names, start=1):
        graph.names[str(number)] = name
    return graph


@cases("expressions")
def test_values_and_fields_of_expressions(text: str, values: Any, fields: Any) -> None:
    """Values are columns, and ``if`` columns that only decide; of a field, too."""
    graph = graph_of("a", "b", "c", "sum(a, b)", "x (")
    names = {**graph.names, "77": "e"}

    def named(column: str) -> list[str]:
        sources = [names[source] for source in sorted(graph._derived[column])]
        deciding = [f"if {names[source]}" for source in sorted(graph._deciding.get(column, ()))]
        return sources + deciding

    graph.derive_from("9", text)
    assert named("9") == values
    assert {name: named(f"9.{name}") for name in graph.fields.get("9", ())} == fields


def test_a_field_is_taken_from_each_level_and_through_aliases() -> None:
    graph = graph_of("a", "b", "s", "t")
    graph.derive_from("3", "CASE WHEN (b#2 > 1) THEN struct(i, struct(x, a#1, y, b#2)) END")
    graph.derive_from("4", "s#3")
    graph.derive_from("5", "t#4.i.x")
    assert {*graph.path("5")} == {"5", "4.i.x", "3.i.x", "1"}


@cases("expressions")
def test_deep_expressions_take_linear_time(opening: str, middle: str, closing: str) -> None:
    def seconds(depth: int) -> float:
        text = opening * depth + middle + closing * depth
        began = time.process_time()
        graph_of("a", "b").derive_from("9", text)
        return time.process_time() - began

    small = min(seconds(2_500) for _ in range(3))
    assert min(seconds(10_000) for _ in range(3)) < 10 * max(small, 0.02)
