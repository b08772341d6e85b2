"""A drop-in: whoever swaps the import loses nothing of SparkSubmitOperator."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import re
import shlex
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout
from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators import spark_submit, task_lineage
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.task import EndedAttempt, LineageConfiguration, LineageReport
from tests.airflow_versions import DURABLE, redact
from tests.cases import cases
from tests.cli.commands import run
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered_text
from tests.operators.tries import (
    FakeSpark,
    TaskInstance,
    context_of,
    dag,
    execute,
    operator_with_lineage,
    raised_by,
    report_of,
)
from tests.patience import HANGS

OURS = (
    "datahub_conn_id",
    "lineage",
    "lineage_on_failure",
    "events_location",
    "outbox_location",
    "lineage_timeout",
    "emit_periodically",
    "openlineage_jar",
    "capture",
    "connect_events",
    "enabled",
)
VALUES = {"bool": True, "int": 3, "str": "text", "dict": {"a": "b"}, "list": ["a", "b"]}
THEIRS = [
    name
    for name, parameter in inspect.signature(SparkSubmitOperator.__init__).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
]
DEPRECATED = "reconnect_on_retry"


def value_for(name: str) -> Any:
    annotation = str(inspect.signature(SparkSubmitOperator.__init__).parameters[name].annotation)
    return next((value for kind, value in VALUES.items() if annotation.startswith(kind)), "text")


@pytest.mark.parametrize("name", [name for name in THEIRS if name != DEPRECATED])
def test_every_argument_is_accepted_and_kept(name: str) -> None:
    arguments = {"task_id": "build", name: value_for(name)}
    plain, ours = SparkSubmitOperator(**arguments), SparkSubmitDatahubOperator(**arguments)
    kept = {key: value for key, value in vars(plain).items() if not key.startswith("_BaseOperator")}
    ignored = {"_task_type", "start_date", "task_group", "_lock_for_execution"}
    for key in kept.keys() - ignored:
        if "init_kwargs" not in key and "instantiated" not in key:
            assert getattr(ours, key) == getattr(plain, key), key


@DURABLE
def test_a_deprecated_argument_warns_as_before() -> None:
    with pytest.warns(DeprecationWarning, match="reconnect_on_retry"):
        assert (
            SparkSubmitDatahubOperator(task_id="build", reconnect_on_retry=False).durable is False
        )


def test_the_template_fields_are_those_of_both_base_classes() -> None:
    assert tuple(SparkSubmitDatahubOperator.template_fields) == (
        *SparkSubmitOperator.template_fields,
        *OURS,
    )


def test_the_lineage_arguments_are_rendered() -> None:
    given: dict[str, Any] = {name: f"{{{{ name }}}}-{name}" for name in OURS}
    operator = SparkSubmitDatahubOperator(
        task_id="build", application="{{ name }}.py", dag=dag(), **given
    )
    context: Any = {"name": "x"}
    operator.render_template_fields(context)
    assert operator.application == "x.py"
    assert {name: getattr(operator, name) for name in OURS} == {name: f"x-{name}" for name in OURS}


def test_the_operator_can_be_mapped() -> None:
    with DAG("shop", schedule=None) as one:
        SparkSubmitDatahubOperator.partial(
            task_id="build", application="job.py", datahub_conn_id="one", lineage={"env": "DEV"}
        ).expand(application_args=[["a"], ["b"]], lineage_timeout=[1, 2])
    mapped: Any = one.get_task("build")
    assert mapped.is_mapped
    task = mapped.unmap({"application_args": ["b"], "lineage_timeout": 2})
    assert isinstance(task, SparkSubmitDatahubOperator)
    given = vars(task)
    assert (task.application_args, given["lineage_timeout"], given["datahub_conn_id"]) == (
        ["b"],
        2,
        "one",
    )
    assert given["lineage"] == {"env": "DEV"}


def test_the_job_gets_the_users_settings_and_ours(spark: FakeSpark, tmp_path: Path) -> None:
    (tmp_path / "users.jar").touch()
    operator = operator_with_lineage(
        spark,
        conf={"spark.extraListeners": "com.example.Own", "spark.executor.memory": "1g"},
        jars=str(tmp_path / "users.jar"),
        application_args=["--day", "2026-01-01"],
    )
    users = {name: copy.deepcopy(getattr(operator, name)) for name in ("conf", "jars", "packages")}
    conf, content = operator.conf, copy.deepcopy(operator.conf)

    assert execute(operator, context_of(operator)) is None

    (run,) = spark.runs
    assert (
        "--conf spark.extraListeners=com.example.Own,io.openlineage.spark.agent.OpenLineageSparkListener"
        in run
    )
    assert "--conf spark.executor.memory=1g" in run
    assert f"--jars {tmp_path / 'users.jar'},{spark.jar}" in run
    assert run.endswith("job.py --day 2026-01-01")
    assert {name: getattr(operator, name) for name in users} == users
    assert operator.conf is conf
    assert conf == content


def test_a_second_execution_in_one_attempt_is_in_the_report(spark: FakeSpark) -> None:
    """A subclass that calls ``super().execute()`` more than once; the report is that of the last
    call.
    """
    operator = operator_with_lineage(spark)
    context = context_of(operator)
    for expected in (0, 1):
        execute(operator, context)
        warnings = context["ti"].xcoms["lineage_report"]["warnings"]
        assert [warning.startswith("execute() was called before") for warning in warnings] == (
            [True] * expected
        )


@pytest.mark.parametrize("how", ["argument", "configuration"])
def test_switched_off_it_is_the_plain_operator(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    if how == "configuration":
        monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__ENABLED", "False")
    operator = operator_with_lineage(spark, **({"enabled": "false"} if how == "argument" else {}))
    context = context_of(operator)
    execute(operator, context)
    execute(
        SparkSubmitOperator(task_id="build", application="job.py", name="build", dag=dag()), context
    )
    ours, plain = spark.runs
    assert ours == plain
    assert context["ti"].xcoms == {}
    assert not (tmp_path / "sink").exists()
    assert not (tmp_path / "outbox").exists()


def test_the_report_is_an_xcom_and_one_line_of_the_log(
    spark: FakeSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(operator_with_lineage(spark))
    assert report["events"] == 23
    assert (len(report["inputs"]), len(report["outputs"]), report["pending"]) == (2, 1, 0)
    count = report["proposals"]
    sentence = (
        f"Lineage: 23 events; 2 inputs, 1 output; {count} proposals: {count} delivered, 0 rejected, 0 pending "
        "(datahub_file)"
    )
    assert capsys.readouterr().out.count(sentence) == 1


def test_the_log_says_why_there_is_no_lineage(
    spark: FakeSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.writes("i_no_lineage")
    spark.prints("the end\n")
    reason = report_of(operator_with_lineage(spark))["reason"]
    assert (
        reason
        == "the job's events name no dataset: it read and wrote nothing that OpenLineage sees"
    )
    shown = capsys.readouterr().out
    assert "the end" in shown
    assert 'see "There is no lineage" in docs/troubleshooting.md' in shown


def test_the_next_steps_in_the_log_deliver_the_lineage(
    spark: FakeSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report_of(operator_with_lineage(spark, datahub_conn_id="nowhere"))["pending"] > 0
    (warning,) = (
        line for line in capsys.readouterr().out.splitlines() if "delivers it at once" in line
    )
    (variable,) = re.findall(r"or (AIRFLOW_CONN_\w+) on a host", warning)
    (emit,) = re.findall(r'"spark-datahub (emit [^"]+)" delivers it at once', warning)
    sink = tmp_path / "found"
    monkeypatch.setenv(variable, json.dumps({"conn_type": "datahub-file", "host": str(sink)}))
    assert run(*shlex.split(emit)).exit_code == 0
    assert delivered_text(sink).count("dataJobInputOutput") == 2


def test_a_mistake_in_the_options_costs_only_itself(spark: FakeSpark) -> None:
    wrong = {"lineage": {"platform_instanc": "eu", "env": "DEV"}, "lineage_on_failure": "fails"}
    operator = operator_with_lineage(spark, **wrong)
    problems = [
        "lineage_on_failure is 'fails', want one of warn, retry, fail; did you mean 'fail'?; it is left out",
        "unknown lineage setting 'platform_instanc'; did you mean 'platform_instance'?; it is left out",
    ]
    report = report_of(operator)
    assert (report["pending"], report["reason"]) == (0, None)
    assert all(urn.endswith(",DEV)") for urn in report["outputs"])
    assert [text for text in report["warnings"] if "left out" in text] == problems


def test_a_failure_before_spark_submit_is_named_as_one(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise ValueError("no HADOOP_CONF_DIR")

    monkeypatch.setattr(SparkSubmitHook, "__init__", refuse)
    operator = operator_with_lineage(spark, deploy_mode="cluster")
    reason = report_of(operator, fails=ValueError)["reason"]
    assert reason == "the job was not started: ValueError: no HADOOP_CONF_DIR"


def test_a_hook_whose_output_cannot_be_watched_still_submits(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AttributeError("no such method in this version")

    monkeypatch.setattr(spark_submit, "_watch_output", refuse)
    assert report_of(operator_with_lineage(spark))["reason"] is None
    assert len(spark.runs) == 1


@pytest.mark.parametrize("beside_the_plugin", [False, True])
@pytest.mark.parametrize("code", [0, 1])
def test_datasets_for_openlineage_and_for_datahubs_plugin(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, code: int, beside_the_plugin: bool
) -> None:
    spark.exits(code)
    operator = operator_with_lineage(spark)
    report_of(operator, fails=AirflowException if code else None, match="Error code is: 1")
    monkeypatch.setattr(
        "airflow_provider_spark_datahub.hooks.datahub_plugin_is_active", lambda: beside_the_plugin
    )
    hook = "get_openlineage_facets_on_failure" if code else "get_openlineage_facets_on_complete"
    lineage = getattr(operator, hook)(None)
    read, written = (
        [(one.namespace, one.name) for one in side] for side in (lineage.inputs, lineage.outputs)
    )
    # In DataHub, the inputs of a task would reach what later tasks write.
    inputs = [("file", "/lake/raw/customers.csv"), ("file", "/lake/raw/orders.csv")]
    assert read == ([] if beside_the_plugin else inputs)
    assert written == [("file", "/lake/out/a/revenue_by_country")]


def test_tables_have_the_name_that_is_in_datahub_beside_the_plugin(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.writes("b_multi_sql_hive")
    operator = operator_with_lineage(spark)
    execute(operator, context_of(operator))
    named: dict[bool, set[tuple[str, str]]] = {}
    for active in (False, True):
        is_active = "airflow_provider_spark_datahub.hooks.datahub_plugin_is_active"
        monkeypatch.setattr(is_active, lambda active=active: active)
        outputs = operator.get_openlineage_facets_on_complete(None).outputs
        named[active] = {(one.namespace, one.name) for one in outputs}
    assert ("hive", "sales.orders_clean") in named[True]
    assert not any(namespace == "hive" for namespace, _ in named[False])


def test_no_datasets_before_and_without_lineage(spark: FakeSpark) -> None:
    operator = operator_with_lineage(spark, enabled=False)
    assert operator.get_openlineage_facets_on_complete(None).inputs == []
    execute(operator, context_of(operator))
    assert operator.get_openlineage_facets_on_complete(None).outputs == []


def test_a_killed_task_has_less_time_for_lineage_than_airflow_leaves_it(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Airflow sends SIGTERM, calls ``on_kill`` in its handler, and kills the process 5 s later."""
    assert task_lineage._KILL_SECONDS < 5
    monkeypatch.setattr(task_lineage, "_KILL_SECONDS", HANGS)  # a machine that stalls uses up 4 s
    spark.writes("k_killed")
    spark.signals()
    seconds: list[float] = []
    finish = EndedAttempt.finish

    def noting(self: EndedAttempt) -> LineageReport:
        seconds.append(self.end.seconds)
        return finish(self)

    monkeypatch.setattr(EndedAttempt, "finish", noting)
    operator = operator_with_lineage(spark, lineage_timeout=10 * HANGS)
    with raised_by(signal.SIGUSR1, operator.on_kill):
        report = report_of(
            operator, TaskInstance(max_tries=5), fails=AirflowException, match="Error code is: -9"
        )

    assert 0 < seconds[0] <= HANGS
    assert not spark.is_running
    assert report["events"] > 0
    sink = delivered_text(tmp_path / "sink")
    assert '"type": "FAILURE", "nativeResultType": "airflow"' in sink
    assert "UP_FOR_RETRY" not in sink


def test_the_handler_of_a_kill_logs_nothing_of_its_own(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow calls it in the handler of SIGTERM, perhaps amid a line of the log, whose lock is not
    reentrant.
    """
    operator = operator_with_lineage(spark)
    execute(operator, context_of(operator))
    lineage = operator._task_lineage
    assert lineage is not None

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("it logs")

    with monkeypatch.context() as patched:
        patched.setattr(SparkSubmitOperator, "on_kill", lambda _: None)
        patched.setattr(logging.Logger, "isEnabledFor", refuse)
        patched.setattr(type(operator), "log", property(refuse))
        patched.setattr(lineage, "_log", None)
        operator.on_kill()
    assert lineage.killed_at is not None


def test_a_killed_task_has_no_more_time_when_the_budget_is_used_up(
    spark: FakeSpark, tmp_path: Path
) -> None:
    spark.writes("k_killed")
    spark.signals()
    operator = operator_with_lineage(spark)

    def kill_late() -> None:
        operator.on_kill()
        assert operator._task_lineage is not None
        assert operator._task_lineage.killed_at is not None
        operator._task_lineage.killed_at -= 60

    with raised_by(signal.SIGUSR1, kill_late):
        assert report_of(operator, fails=AirflowException)["delivered"] == 0
    (entry,) = outbox_at(tmp_path / "outbox").entries()
    assert entry.manifest.state == "unfinished"
    assert entry.manifest.redo is not None
    assert entry.manifest.redo["task_try"]["result"] == "FAILURE", (
        "a drain makes the lineage of the killed attempt"
    )


def test_a_timeout_before_the_job_fails_the_task(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = AirflowTaskTimeout("over")

    def late(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(LineageConfiguration, "resolve", late)
    operator = operator_with_lineage(spark, execution_timeout=timedelta(seconds=1))
    with pytest.raises(AirflowTaskTimeout) as caught:
        execute(operator, context_of(operator))
    assert caught.value is failure
    assert spark.runs == []


def test_secrets_of_a_file_stay_off_the_command_line_and_are_masked(
    spark: FakeSpark, tmp_path: Path
) -> None:
    defaults = tmp_path / "spark" / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir()
    defaults.write_text(
        "spark.openlineage.transport.type http\nspark.openlineage.transport.url http://ol:5000\n"
        "spark.openlineage.transport.auth.type api_key\nspark.openlineage.transport.auth.apiKey a-very-secret-key\n"
    )
    report_of(operator_with_lineage(spark))
    assert "a-very-secret-key" not in spark.runs[0]
    assert redact("key a-very-secret-key") == "key ***"


SECRET_URL = "https://ann:hunter2-and-much-more-of-the-same-so-that-a-cut-falls-into-it@repo.example.com/openlineage.jar"


def test_secrets_in_what_others_say_are_redacted(
    spark: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    """In the reason why there is no listener, in the driver's last line, and in a failure before
    Spark starts.
    """
    reports = [report_of(operator_with_lineage(spark, openlineage_jar=SECRET_URL))]
    before = operator_with_lineage(spark)
    before.settle_lineage(
        context := context_of(before), "failed", AirflowException(f"cannot fetch {SECRET_URL}")
    )
    reports.append(context["ti"].xcoms["lineage_report"])
    spark.writes_nothing()
    spark.prints(f"{'x' * 240} {SECRET_URL}\n")  # cut between the secret and the end of the login
    spark.exits(1)
    reports.append(report_of(operator_with_lineage(spark), fails=AirflowException))
    for report, words in zip(
        reports, ("not known", "cannot fetch https://repo", "it printed: xxx"), strict=True
    ):
        assert words in json.dumps(report)
        assert "hunter2" not in json.dumps(report) + caplog.text


def test_the_report_says_how_a_job_with_events_failed(spark: FakeSpark) -> None:
    spark.prints(
        "Traceback (most recent call last):\nValueError: no rate\n26/11/25 04:00:00 INFO Hook: Deleting /tmp/x\n"
    )
    spark.exits(1)
    report = report_of(operator_with_lineage(spark), fails=AirflowException)
    assert (
        report["failure"] == "spark-submit ended with exit code 1; it printed: ValueError: no rate"
    )
    assert report["events"]


def test_a_properties_file_that_cannot_be_removed_does_not_fail_the_task(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".conf":
            raise OSError(5, "Input/output error", str(path))
        real(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    defaults = Path(spark.jar).parent / "spark/conf/spark-defaults.conf"
    defaults.parent.mkdir()
    defaults.write_text(
        "spark.openlineage.transport.type http\nspark.openlineage.transport.url http://u:p@ol:5000\n"
    )
    assert report_of(operator_with_lineage(spark))["events"] == 23
    assert "--properties-file" in spark.runs[0]


@pytest.mark.slow
def test_a_properties_file_that_renders_to_nothing_is_none(spark: FakeSpark) -> None:
    report_of(operator_with_lineage(spark, properties_file=""))
    assert "--conf spark.extraListeners=" in spark.runs[0]


@cases("operators")
def test_a_job_that_failed_before_spark_started_is_reported_with_its_last_line(
    spark: FakeSpark, code: int, words: str
) -> None:
    spark.writes_nothing()
    spark.prints("starting\nspark-class: No such file\n")
    spark.exits(code)
    reason = report_of(operator_with_lineage(spark), fails=AirflowException)["reason"]
    assert (
        reason
        == f"the job failed before its Spark application started, so there are no events: {words}"
    )
