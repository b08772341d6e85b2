"""What the driver's output says of executions that OpenLineage could not see."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_spark_datahub.capture.spark_submit import DriverOutput

SAID = "26/11/21 10:35:32 ERROR ContextFactory: Query execution is null: can't emit event for executionId"


def test_executions_are_listed_once_and_the_lines_stay_as_they_are() -> None:
    lines = ["INFO nothing", f"{SAID} 12", f"[stderr] {SAID} 28\n", f"{SAID} 12", f"{SAID} x", b"bytes"]
    output = DriverOutput()
    assert list(output.watched(lines)) == lines
    assert list(output.missed) == [12, 28]
    assert output.sentence.endswith("missed SQL executions: 12, 28")


def test_an_output_that_says_nothing() -> None:
    output = DriverOutput()
    assert list(output.watched(["a", "b"])) == ["a", "b"]
    assert output.sentence == ""


def test_of_many_the_first_are_listed() -> None:
    output = DriverOutput()
    assert len(list(output.watched(f"{SAID} {number}" for number in range(25)))) == 25
    assert output.sentence.endswith("executions: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 15 more")


def test_lines_are_handed_on_one_by_one() -> None:
    """What a task logs is seen while the job runs, not at its end."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in ("first", "second"):
            taken.append(line)
            yield line

    watched = DriverOutput().watched(lines())
    assert next(watched) == "first"
    assert taken == ["first"]
