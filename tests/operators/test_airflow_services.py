"""Airflow's own services fail, hang or answer nonsense: the task ends as without lineage, and the
report is true.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowTaskTimeout,
    BaseHook,
    Stats,
    conf,
)
from airflow.providers.openlineage.plugins import macros
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.context import OutletEventAccessor, OutletEventAccessors
from airflow.sdk.execution_time.timeout import timeout

from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
from airflow_provider_spark_datahub.hooks import airflow_services
from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError
from airflow_provider_spark_datahub.task import LineageReport
from tests.operators import tries
from tests.patience import HANGS

ERRORS: dict[str, BaseException] = {
    "an error of the API": AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR)),
    "AirflowException": AirflowException("a"),
    "RuntimeError": RuntimeError("can't start new thread"),
    "KeyError": KeyError("k"),
    "SystemExit": SystemExit(3),
    "AirflowTaskTimeout": AirflowTaskTimeout("of a client"),
}
FAULTS = (*ERRORS, "hang", "wrong type")


CONNECTION = "datahub_file"


@dataclass
class Attempt:
    """One attempt whose Airflow has a fault in one service."""

    monkeypatch: pytest.MonkeyPatch
    fault: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    ti: Any = field(default_factory=lambda: tries.TaskInstance(max_tries=1))

    def run(
        self, spark: tries.FakeSpark, policy: str
    ) -> tuple[LineageReport, BaseException | None]:
        """Return the report, and what the task raised."""
        upstream = tries.operator_with_lineage(spark, task_id="upstream")
        operator = tries.operator_with_lineage(
            spark, dag=upstream.dag, lineage_on_failure=policy, emit_assets=True, **self.arguments
        )
        upstream >> operator
        context = tries.context_of(operator, self.ti, tries.TaskState())
        context |= {"outlet_events": OutletEventAccessors(), "fault": self.fault, **self.context}
        raised = None
        try:
            operator.render_template_fields(context)
            tries.execute(operator, context)
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is compared)
            raised = error
        lineage = operator._task_lineage
        assert lineage is not None
        assert lineage.attempt is not None
        return lineage.attempt.report, raised


def connection(attempt: Attempt) -> None:
    real = BaseHook.get_connection
    attempt.monkeypatch.setattr(
        BaseHook,
        "get_connection",
        staticmethod(lambda name: attempt.fault() if name == CONNECTION else real(name)),
    )


def configuration(attempt: Attempt) -> None:
    real = conf.get

    def get(*names: str, **arguments: Any) -> Any:
        is_asked = names[:1] == ("datahub",) or names == ("spark_datahub", "lineage_timeout")
        return attempt.fault() if is_asked else real(*names, **arguments)

    attempt.monkeypatch.setattr(conf, "get", get)
    airflow_services._warn_once.cache_clear()


def template(attempt: Attempt) -> None:
    attempt.arguments["capture"] = "{{ fault() }}"


def states(attempt: Attempt) -> None:
    attempt.ti.get_task_states = attempt.fault


def later_runs(attempt: Attempt) -> None:
    attempt.ti.dag_run.clear_number = 1
    attempt.ti.get_previous_ti = attempt.fault


def state_store(attempt: Attempt) -> None:
    attempt.ti.try_number = 2
    attempt.context["task_state_store"] = type(
        "Broken", (), {"get": attempt.fault, "set": attempt.fault}
    )()


def provider(attempt: Attempt) -> None:
    attempt.monkeypatch.setattr(macros, "lineage_run_id", attempt.fault)


def asset(attempt: Attempt) -> None:
    attempt.monkeypatch.setattr(
        OutletEventAccessor, "_get_asset_from_db", staticmethod(attempt.fault)
    )


def metrics(attempt: Attempt) -> None:
    attempt.monkeypatch.setattr(Stats, "incr", attempt.fault)


def xcom(attempt: Attempt) -> None:
    attempt.ti.xcom_push = attempt.fault


SERVICES: dict[str, Callable[[Attempt], None]] = {
    "the configuration": configuration,
    "the template of capture": template,
    "the connection datahub_file": connection,
    "states of tasks": states,
    "later runs of the task": later_runs,
    "the task's state": state_store,
    "Airflow's OpenLineage provider": provider,
    "assets of DAGs": asset,
    "metrics": metrics,
    "XCom, for this report": xcom,
}
HARMLESS = {
    # Values that are ignored, or that lineage judges itself; the API says so of assets that no DAG
    # declares.
    ("wrong type", service)
    for service in (
        "the template of capture",
        "the task's state",
        "assets of DAGs",
        "metrics",
        "XCom, for this report",
    )
} | {("an error of the API", "assets of DAGs")}


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def give_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_IN_TASK", "_ELSEWHERE"):
        monkeypatch.setattr(airflow_services, name, Deadline(0.6, clock=lambda: 0.0))


def fault_of(name: str, released: threading.Event) -> Callable[..., Any]:
    def fault(*_: object, **__: object) -> Any:
        if name in ERRORS:
            raise ERRORS[name]
        return 5 if name == "wrong type" else released.wait(HANGS)

    return fault


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ["warn", "retry", "fail"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_task_ends_as_without_lineage_whatever_airflow_does(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    released: threading.Event,
    name: str,
    policy: str,
) -> None:
    for service, break_service in SERVICES.items():
        caplog.clear()
        with pytest.MonkeyPatch.context() as monkeypatch:
            folder = tmp_path / break_service.__name__
            folder.mkdir()
            tries.configure_airflow(folder, monkeypatch.setenv)
            spark = tries.FakeSpark(folder, monkeypatch.setenv)
            spark.writes("a_csv_join_agg")
            give_little_time(monkeypatch)
            attempt = Attempt(monkeypatch, fault_of(name, released))
            break_service(attempt)
            report, raised = attempt.run(spark, policy)
        assert len(spark.runs) == 1, service
        if service == f"the connection {CONNECTION}":
            assert isinstance(raised, LineagePendingError) is (policy != "warn"), service
            assert (report.delivered, report.pending) == (0, report.proposals)
            assert f"Airflow did not answer: {service}: " in str(report.reason)
            continue
        assert raised is None, service
        assert (report.delivered, len(report.outputs)) == (report.proposals, 1), service
        assert report.is_complete, service
        assert (f"Airflow did not answer: {service}: " in caplog.text) is (
            (name, service) not in HARMLESS
        ), service
        assert ("lineage_report" in attempt.ti.xcoms) is (service != "XCom, for this report")


@pytest.mark.parametrize("name", FAULTS)
def test_without_the_tasks_state_a_retry_still_only_delivers(
    spark: tries.FakeSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    released: threading.Event,
    name: str,
) -> None:
    give_little_time(monkeypatch)
    (tmp_path / "sink").write_text("in the way")
    tries.run_try(
        spark, 1, tries.TaskState(), lineage_on_failure="retry", fails=LineagePendingError
    )
    (tmp_path / "sink").unlink()
    broken: Any = type("Broken", (), {"get": fault_of(name, released)})()
    assert tries.run_try(spark, 2, broken, lineage_on_failure="retry")["pending"] == 0
    assert len(spark.runs) == 1


def test_a_retry_that_can_read_neither_record_runs_spark_and_says_why(
    spark: tries.FakeSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    released: threading.Event,
) -> None:
    """The first attempt may have failed for its job; its success must not be made up."""

    def is_stale(*_: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    (tmp_path / "sink").write_text("in the way")
    tries.run_try(
        spark, 1, tries.TaskState(), lineage_on_failure="retry", fails=LineagePendingError
    )
    (tmp_path / "sink").unlink()
    monkeypatch.setattr(LocalStorage, "_list", is_stale)
    broken: Any = type("Broken", (), {"get": fault_of("KeyError", released)})()
    warnings = "\n".join(tries.run_try(spark, 2, broken, lineage_on_failure="retry")["warnings"])
    assert "Spark runs: cannot look into the outbox" in warnings
    assert "Airflow did not answer: the task's state: KeyError" in warnings
    assert len(spark.runs) == 2


def test_a_task_whose_state_cannot_be_kept_does_not_fail_and_runs_spark_again_if_it_is_cleared(
    spark: tries.FakeSpark, tmp_path: Path, released: threading.Event
) -> None:
    (tmp_path / "sink").write_text("in the way")
    # The first attempt asks for nothing.
    asked = {"get": lambda *_: pytest.fail("asked")}
    broken: Any = type("Broken", (), {**asked, "set": fault_of("KeyError", released)})()
    assert tries.run_try(spark, 1, broken, lineage_on_failure="retry")["pending"] == 32
    (tmp_path / "sink").unlink()
    tries.run_try(spark, 2, tries.TaskState(), lineage_on_failure="retry")
    assert len(spark.runs) == 2


@pytest.mark.slow
def test_a_secrets_backend_that_hangs_leaves_the_job_its_time(
    spark: tries.FakeSpark, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    """``execution_timeout`` goes on while Airflow is asked."""
    attempt = Attempt(monkeypatch, fault_of("hang", released))
    connection(attempt)
    monkeypatch.setattr(airflow_services, "_is_task", lambda: True)
    with timeout(8):  # type: ignore[no-untyped-call]
        report, raised = attempt.run(spark, "warn")
    assert raised is None
    assert report.pending == report.proposals
    assert "Airflow did not answer: the connection datahub_file: no answer within" in str(
        report.reason
    )


def test_a_connection_that_answers_after_the_job_is_used(
    spark: tries.FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [KeyError("later"), KeyError("later")]
    real = BaseHook.get_connection

    def late(name: str) -> Any:
        if name == "datahub_file" and answers:
            raise answers.pop()
        return real(name)

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(late))
    assert tries.run_try(spark)["pending"] == 0


@pytest.mark.parametrize("recovers", [True, False])
def test_a_machine_without_threads_keeps_the_lineage(
    spark: tries.FakeSpark, monkeypatch: pytest.MonkeyPatch, recovers: bool
) -> None:
    real = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("lineage-") and not (recovers and spark.runs):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    report = tries.run_try(spark)
    assert len(spark.runs) == 1
    assert (report["delivered"], bool(report["outbox_entry"])) == (
        (32, False) if recovers else (0, True)
    )
