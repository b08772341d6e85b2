"""The spark-submit call that is extended, and what the driver's output says of a listener that
failed.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import DriverOutput, Submission
from tests.cases import cases


@cases("capture")
def test_properties_override_those_of_the_file(
    properties: dict[str, object], base: dict[str, str], seen: str | None
) -> None:
    submission = Submission(properties, base_properties=base)
    assert submission.effective("spark.a") == seen
    assert submission.effective_properties().get("spark.a") == seen


def test_options_override_their_properties() -> None:
    properties = {
        "spark.jars": "conf.jar",
        "spark.jars.packages": "g:conf:1",
        "spark.jars.repositories": "https://conf",
        "spark.driver.extraClassPath": "/conf/*",
    }
    by_conf = Submission(properties)
    by_option = Submission(
        properties, "/a.jar, /b.jar,", "g:a:1", "/opt:/lib/*", "https://one,https://two"
    )
    assert by_conf.effective_jars() == ("conf.jar",)
    assert by_option.effective_jars() == ("/a.jar", "/b.jar")
    assert by_conf.effective_packages() == ("g:conf:1",)
    assert by_option.effective_packages() == ("g:a:1",)
    assert by_conf.effective_repositories() == ("https://conf",)
    assert by_option.effective_repositories() == ("https://one", "https://two")
    assert by_conf.effective_driver_class_path() == ("/conf/*",)
    assert by_option.effective_driver_class_path() == ("/opt", "/lib/*")


@cases("capture")
def test_the_setting_that_switches_the_listener_off_is_named(
    properties: dict[str, object], env: dict[str, str], by: str | None
) -> None:
    assert Submission(properties).disabled_by(env) == by
    defaults = {name: str(value) for name, value in properties.items()}
    assert Submission(base_properties=defaults).disabled_by(env) == by


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


def test_a_line_without_end_is_not_remembered_whole() -> None:
    output, line = DriverOutput(), "progress " * 1_000_000
    assert list(output.watched([line])) == [line]
    assert len(output.last_line) == len(output._error) == 10_000


OUTPUTS = Path(__file__).parents[1] / "data" / "driver_output"
"""What Spark 4.3.0 printed: with stand-ins of the listener that fail, without its class, and for
other failures.
"""


def output_of(name: str) -> DriverOutput:
    output = DriverOutput()
    lines = (
        gzip.decompress((OUTPUTS / f"{name}.log.gz").read_bytes())
        .decode()
        .splitlines(keepends=True)
    )
    assert list(output.watched(lines)) == lines
    return output


@pytest.mark.parametrize(
    ("name", "queues"), [("dropped", ["eventLog", "shared"]), ("hang", []), ("users_memory", [])]
)
def test_queues_that_drop_events_are_seen(name: str, queues: list[str]) -> None:
    assert list(output_of(name).dropping_queues) == queues


def test_queues_that_nobody_reads_may_drop_events() -> None:
    printed = "26/11/28 18:05:47 WARN AsyncEventQueue: Dropped 9 events from {} since the start\n"
    output = DriverOutput()
    names = ["appStatus", "executorManagement", "shared"]
    assert len(list(output.watched([printed.format(name) for name in names]))) == len(names)
    assert list(output.dropping_queues) == ["shared"]


@cases("capture")
def test_a_listener_that_failed_is_recognized(name: str, failure: str) -> None:
    output = output_of(name)
    output.mark_killed()
    assert output.listener_failure == failure


@cases("capture")
def test_the_cause_of_a_failure_is_its_root_exception(
    name: str, cause: str, last_line: str
) -> None:
    output = output_of(name)
    assert output.cause.startswith(cause)
    assert last_line in output.last_line


@pytest.mark.parametrize(("seconds", "hangs"), [(9.0, False), (35.0, True)])
def test_a_spark_that_does_not_stop_waits_for_its_listeners(
    monkeypatch: pytest.MonkeyPatch, seconds: float, hangs: bool
) -> None:
    clock = iter([100.0, 100.0 + seconds])
    monkeypatch.setattr(
        "airflow_provider_spark_datahub.capture.spark_submit.time.monotonic", lambda: next(clock)
    )
    output = output_of("hang")
    assert output.listener_failure == ""
    output.mark_killed()
    expected = "Spark had been stopping for 35 s when the task was stopped: it waits for its listeners then"
    assert output.listener_failure == (expected if hangs else "")


def test_a_spark_that_stopped_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 200.0])
    monkeypatch.setattr(
        "airflow_provider_spark_datahub.capture.spark_submit.time.monotonic", lambda: next(clock)
    )
    output = output_of("hang")
    list(
        output.watched(
            [
                "26/11/23 05:10:39 INFO SparkContext: Successfully stopped SparkContext (Uptime: 83199 ms)"
            ]
        )
    )
    output.mark_killed()
    assert output.listener_failure == ""
