"""Whatever lineage does, the task ends as it would have ended with SparkSubmitOperator, by the same
exception.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from airflow_provider_spark_datahub import hooks
from airflow_provider_spark_datahub.capture import SparkInstallation, SparkSubmit
from airflow_provider_spark_datahub.capture.event_lines import FileFollower
from airflow_provider_spark_datahub.conversion import Conversion, Converter
from airflow_provider_spark_datahub.conversion.run_tree import TaskAttempt
from airflow_provider_spark_datahub.delivery.outbox import Entry, Lease, Outbox
from airflow_provider_spark_datahub.delivery.sinks import FileSink
from airflow_provider_spark_datahub.hooks import airflow_context as airflow_run, datahub
from airflow_provider_spark_datahub.operators import spark_submit, task_lineage
from airflow_provider_spark_datahub.plugins import dag_run_listener
from airflow_provider_spark_datahub.task import (
    EndedAttempt,
    LineageConfiguration,
    RunningAttempt,
    attempt,
)
from airflow_provider_spark_datahub.task.earlier import EarlierAttempts
from tests.cases import cases, tables
from tests.delivery.samples import delivered_text, task_results
from tests.operators import tries
from tests.patience import HANGS, join_threads


@dataclass(frozen=True)
class Ending:
    """How Spark's part of the task ends: by its exit code, or by an exception while it runs."""

    code: int = 0
    raised: BaseException | None = None

    def arrange(self, spark: tries.FakeSpark) -> Any:
        spark.exits(self.code)
        if self.raised is None:
            return nullcontext()
        spark.signals()
        return tries.raised_by(signal.SIGUSR1, lambda: self.raised)


ENDINGS = {
    "success": Ending(),
    "exit 1": Ending(code=1),
    "AirflowException": Ending(raised=AirflowException("e")),
    "AirflowFailException": Ending(raised=AirflowFailException("f")),
    "AirflowSkipException": Ending(raised=AirflowSkipException("s")),
    "AirflowTaskTimeout": Ending(raised=AirflowTaskTimeout("t")),
    "KeyboardInterrupt": Ending(raised=KeyboardInterrupt("k")),
    "SystemExit": Ending(raised=SystemExit(3)),
}

STEPS: dict[str, tuple[Any, str]] = {
    "the switch": (LineageConfiguration, "is_enabled"),
    "the options": (LineageConfiguration, "resolve"),
    "the sink": (datahub, "open_sink"),
    "the identity": (hooks, "AttemptContext"),
    "the place in the run tree": (airflow_run.AttemptContext, "attempt"),
    "an earlier attempt": (EarlierAttempts, "to_deliver"),
    "OpenLineage's runs": (airflow_run.AttemptContext, "openlineage_runs"),
    "Airflow's transport": (spark_submit, "conf_with_airflows_transport"),
    "spark-submit": (spark_submit._SubmitLauncher, "spark"),
    "the installation": (SparkInstallation, "find"),
    "the jar": (SparkSubmit, "choose_jar"),
    "the location": (attempt, "event_file"),
    "the injection": (attempt, "inject"),
    "the announcement": (RunningAttempt, "announce"),
    "following": (RunningAttempt, "follow"),
    "the end": (EndedAttempt, "finish"),
    "collecting": (FileFollower, "rest"),
    "converting an event": (Converter, "add"),
    "converting": (Converter, "finish"),
    "relating": (TaskAttempt, "proposals"),
    "relating the Spark job": (TaskAttempt, "attach"),
    "the proposals": (Conversion, "proposals"),
    "the outbox before the submit": (Outbox, "begin"),
    "the end in the outbox": (Entry, "update"),
    "the lease": (Lease, "take"),
    "the outbox": (Entry, "finish"),
    "the entries in the outbox": (Outbox, "entries"),
    "delivering": (FileSink, "deliver"),
    "sending": (FileSink, "send"),
    "settling": (Entry, "settle"),
    "the report": (tries.TaskInstance, "xcom_push"),
}


class LineageBugError(Exception):
    """Nobody expects it."""


def outcome(
    operator: SparkSubmitOperator, ending: Ending, spark: tries.FakeSpark
) -> tuple[object, BaseException | None]:
    with ending.arrange(spark):
        try:
            return tries.execute(operator, tries.context_of(operator)), None
        except BaseException as raised:  # noqa: BLE001 (whatever it is, it is compared)
            return None, raised


def plain(**arguments: Any) -> SparkSubmitOperator:
    return SparkSubmitOperator(
        **{
            "task_id": "build",
            "application": "job.py",
            "name": "build",
            "dag": tries.dag(),
            **arguments,
        }
    )


@contextmanager
def case(folder: Path, name: str) -> Iterator[tuple[tries.FakeSpark, pytest.MonkeyPatch]]:
    """Give one case of a table a Spark, and locations, of its own."""
    own = folder / name
    own.mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        tries.configure_airflow(own, monkeypatch.setenv)
        spark = tries.FakeSpark(own, monkeypatch.setenv)
        spark.writes("a_csv_join_agg")
        yield spark, monkeypatch
        join_threads("lineage-")


def plain_outcome(folder: Path, ending: Ending) -> tuple[object, BaseException | None]:
    """Return how a task of the plain operator ends."""
    with case(folder, "plain") as (spark, _):
        found = outcome(plain(), ending, spark)
        assert len(spark.runs) == 1
        return found


def assert_same(
    name: str,
    ending: Ending,
    found: tuple[object, BaseException | None],
    expected: tuple[object, BaseException | None],
) -> None:
    """Compare what the operators returned or raised."""
    assert found[0] == expected[0], name
    if ending.raised is not None:
        assert found[1] is expected[1] is ending.raised, name
    else:
        assert type(found[1]) is type(expected[1]), name
        assert (
            str(found[1]).partition("Error code is")[2]
            == str(expected[1]).partition("Error code is")[2]
        ), name


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_task_with_lineage_ends_as_the_plain_operator(tmp_path: Path, ending: Ending) -> None:
    with case(tmp_path, "with lineage") as (spark, _):
        found = outcome(tries.operator_with_lineage(spark), ending, spark)
        assert len(spark.runs) == 1
    assert_same("with lineage", ending, found, plain_outcome(tmp_path, ending))


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_task_whose_lineage_fails_in_a_step_ends_as_the_plain_operator(
    tmp_path: Path, ending: Ending
) -> None:
    expected = plain_outcome(tmp_path, ending)
    for step in STEPS:
        with case(tmp_path, step) as (spark, monkeypatch):
            fail = Mock(side_effect=LineageBugError(step))
            monkeypatch.setattr(*STEPS[step], fail)
            assert_same(
                step, ending, outcome(tries.operator_with_lineage(spark), ending, spark), expected
            )
            assert len(spark.runs) == 1, step
            join_threads("lineage-")
            assert fail.called, step


@pytest.mark.parametrize(
    "step", [step for step in STEPS if step not in ("the announcement", "following", "the report")]
)
def test_a_failure_in_a_step_of_lineage_is_reported(
    spark: tries.FakeSpark, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:

    def fail(*_: object, **__: object) -> NoReturn:
        raise LineageBugError(f"bug in {step}")

    monkeypatch.setattr(*STEPS[step], fail)
    report = tries.report_of(tries.operator_with_lineage(spark))
    assert f"lineage failed: LineageBugError: bug in {step}" in report["reason"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending", [ENDINGS["success"], ENDINGS["exit 1"]], ids=["success", "exit 1"]
)
def test_a_timeout_in_a_step_after_the_job_does_not_fail_the_task(
    tmp_path: Path, ending: Ending
) -> None:
    expected = plain_outcome(tmp_path, ending)
    for step in ("collecting", "converting", "delivering", "settling", "the report"):
        with case(tmp_path, step) as (spark, monkeypatch):
            monkeypatch.setattr(*STEPS[step], Mock(side_effect=AirflowTaskTimeout(step)))
            if step == "delivering":
                monkeypatch.setattr(RunningAttempt, "announce", lambda self: None)  # noqa: ARG005 (a method)
            assert_same(
                step, ending, outcome(tries.operator_with_lineage(spark), ending, spark), expected
            )
            assert len(spark.runs) == 1, step


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_task_with_wrong_settings_ends_as_the_plain_operator(
    tmp_path: Path, ending: Ending
) -> None:
    expected = plain_outcome(tmp_path, ending)
    for name, arguments in tables("operators")["wrong_settings"][1:]:
        with case(tmp_path, name) as (spark, _):
            found = outcome(tries.operator_with_lineage(spark, **arguments), ending, spark)
            assert_same(name, ending, found, expected)
            assert len(spark.runs) == 1, name


@cases("operators")
def test_the_result_of_the_task_run_is_airflows(
    spark: tries.FakeSpark,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
    max_tries: int,
    should_retry: bool | None,
    result: str,
) -> None:
    results: list[str | None] = []
    real: Callable[..., Any] = TaskAttempt.proposals

    def noting(task_try: TaskAttempt, *arguments: Any) -> Any:
        if task_try.result is not None:
            results.append(task_try.result)
        return real(task_try, *arguments)

    monkeypatch.setattr(TaskAttempt, "proposals", noting)
    operator = tries.operator_with_lineage(spark)
    ti: Any = tries.TaskInstance(max_tries=max_tries)
    if should_retry is not None:
        ti._ti_context_from_server = type("Context", (), {"should_retry": should_retry})()
    with ENDINGS[ending].arrange(spark):
        try:
            tries.execute(operator, tries.context_of(operator, ti))
        except (AirflowException, AirflowTaskTimeout):
            assert result != "SUCCESS"
    assert results == [result]


@cases("operators")
def test_a_killed_task_has_the_state_that_somebody_gave_it(
    spark: tries.FakeSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    set_to: str | None,
    result: str,
) -> None:
    monkeypatch.setattr(task_lineage, "_KILL_SECONDS", HANGS)  # a machine that stalls uses up 4 s
    spark.writes("k_killed")
    spark.signals()
    operator = tries.operator_with_lineage(spark)
    ti = tries.TaskInstance(max_tries=1, set_to=set_to)
    with (
        tries.raised_by(signal.SIGUSR1, operator.on_kill),
        pytest.raises(AirflowException) as killed,
    ):
        tries.execute(operator, tries.context_of(operator, ti))
    # Airflow's task runner knows nothing of the state, and calls the failure's listeners.
    runtime: Any = SimpleNamespace(
        task=operator, get_template_context=lambda: tries.context_of(operator, ti)
    )
    dag_run_listener.on_task_instance_failed("running", runtime, killed.value)
    assert task_results(tmp_path / "sink") == {result}
    sink = delivered_text(tmp_path / "sink")
    assert "REPLACE" not in sink
    assert '"changeType": "UPSERT", "aspectName": "dataJobInputOutput"' not in sink


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_that_defers_itself_after_spark_keeps_its_lineage(
    spark: tries.FakeSpark, tmp_path: Path, fails: bool
) -> None:
    """A process that resumes it has not seen Spark, and only knows how the task ended."""
    context = tries.context_of(tries.operator_with_lineage(spark))
    tries.execute(context["task"], context)
    resumed: Any = tries.operator_with_lineage(spark)
    resumed.done = Mock(side_effect=AirflowException("after the deferral") if fails else None)
    context["task"], sent = resumed, delivered_text(tmp_path / "sink")
    report = context["ti"].xcoms["lineage_report"]

    runtime: Any = SimpleNamespace(task=resumed, get_template_context=lambda: context)
    if fails:
        with pytest.raises(AirflowException, match="after the deferral") as failure:
            resumed.resume_execution("done", None, context)
        dag_run_listener.on_task_instance_failed("running", runtime, failure.value)
    else:
        resumed.resume_execution("done", None, context)
        dag_run_listener.on_task_instance_success("running", runtime)
    more = delivered_text(tmp_path / "sink").removeprefix(sent)
    expected = "FAILURE" if fails else "SUCCESS"
    assert set(re.findall(r'"type": "(\w+)", "nativeResultType": "airflow"', more)) == {expected}
    assert not re.search(
        "dataProcessInstanceInput|dataProcessInstanceOutput|dataJobInputOutput", more
    )
    assert context["ti"].xcoms["lineage_report"] == report


def test_the_listener_leaves_tasks_without_lineage_alone_and_logs_broken_ones(
    spark: tries.FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    switched_off = tries.operator_with_lineage(spark, enabled=False)
    broken = SimpleNamespace(
        task=SimpleNamespace(settle_lineage=1), get_template_context=dict, task_id="broken"
    )
    for ti in (
        SimpleNamespace(task=plain()),
        SimpleNamespace(),
        SimpleNamespace(
            task=switched_off, get_template_context=lambda: tries.context_of(switched_off)
        ),
        broken,
    ):
        dag_run_listener.on_task_instance_success("running", ti)
        dag_run_listener.on_task_instance_skipped("running", ti)

    assert caplog.text.count("Could not report the end of task broken to DataHub") == 2
