from __future__ import annotations

import builtins
import importlib.metadata
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.openlineage.plugins import macros
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, task, task_group
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.utils.types import DagRunType

from airflow_provider_spark_datahub.capture.injection import ParentRun
from airflow_provider_spark_datahub.conversion import run_tree
from airflow_provider_spark_datahub.conversion.facets.run import DataInterval
from airflow_provider_spark_datahub.conversion.history.changes import SilentTasks
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.hooks import AirflowServices, airflow_context as airflow_run
from airflow_provider_spark_datahub.hooks.airflow_context import _UpstreamTasks
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.plugins import policy
from tests.airflow_versions import DagSerialization
from tests.cases import cases
from tests.conversion.builders import find
from tests.operators import tries
from tests.operators.tries import RUN_ID, START_MS, TaskInstance, context_of

DATA = Path(__file__).parents[1] / "data"


class Task:
    """A task that nothing is upstream of."""

    task_id = "build"
    upstream_list: tuple[object, ...] = ()


def configure(monkeypatch: pytest.MonkeyPatch, options: Mapping[str, str]) -> None:
    for option, value in options.items():
        section, _, name = option.partition(".")
        monkeypatch.setenv(f"AIRFLOW__{section.upper()}__{name.upper()}", value)


@cases("airflow")
def test_the_cluster_and_platform_instance_are_those_of_datahubs_plugin(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], site: list[str | None]
) -> None:
    configure(monkeypatch, options)
    found = airflow_run.dag_run_of(tries.DagRun()).site
    assert [found.cluster, found.platform_instance] == site


@cases("airflow")
def test_datahubs_plugin_is_active_if_it_is_installed_and_enabled(
    monkeypatch: pytest.MonkeyPatch, installed: bool, options: dict[str, str], active: bool
) -> None:
    def distribution(name: str) -> object:
        assert name == "acryl-datahub-airflow-plugin"
        if not installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return object()

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    configure(monkeypatch, options)
    assert airflow_run.datahub_plugin_is_active() is active
    assert airflow_run.AttemptContext(context_of(Task())).attempt().written_by_plugin is active


@pytest.mark.parametrize(("given", "expected"), [(-1, -1), (None, -1), (0, 0), (7, 7)])
def test_an_attempt_has_the_key_of_its_task_instance(given: int | None, expected: int) -> None:
    ti = TaskInstance(task_id="group.build", try_number=3, map_index=given)
    context = context_of(Task(), ti)
    attempt = airflow_run.AttemptContext(context)
    assert attempt.attempt().key == AttemptKey("shop", RUN_ID, "group.build", expected, 3)
    assert attempt.ti_id == "01990000-0000-7000-8000-000000000001"


def test_an_attempt_has_its_dag_run_times_and_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, {"api.base_url": "https://airflow/"})
    dag = DAG("shop", schedule=None, description="The shop")
    with dag:
        build = tries_task("build")
    found = airflow_run.AttemptContext(
        context_of(build, TaskInstance(try_number=2, map_index=4))
    ).attempt()
    run_page = "https://airflow/dags/shop/runs/scheduled__2026-01-01T00%3A00%3A00%2B00%3A00"
    assert found == run_tree.TaskAttempt(
        dag_run=run_tree.DagRun(
            run_tree.AirflowSite(),
            "shop",
            RUN_ID,
            "BATCH_SCHEDULED",
            START_MS,
            run_page,
            found.dag_run.dag,
            due_ms=1_767_312_000_000,
            logical_ms=1_767_225_600_000,
        ),
        task_id="build",
        try_number=2,
        map_index=4,
        start_ms=START_MS,
        log_url="http://airflow/log",
        task=found.task,
    )


def test_dag_and_task_look_as_datahubs_own_plugin_writes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file holds what acryl-datahub-airflow-plugin 1.7.0.17 wrote of this DAG on Airflow 3.3.2."""
    configure(monkeypatch, {"api.base_url": "https://airflow"})
    with DAG(
        "shop",
        schedule=None,
        description="The shop",
        doc_md="# Shop",
        tags=["nightly", "b c"],
        default_args={"owner": "ann, team-b"},
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
    ) as dag:
        build = BashOperator(
            task_id="build",
            bash_command="x",
            doc_md="Builds the orders.",
            outlets=[Asset("file:///lake/x")],
        )
        build >> BashOperator(task_id="after", bash_command="x")
    by_plugin: dict[tuple[str, str], Any] = {}
    for line in (DATA / "datahub_plugin/dag_and_task.jsonl").read_text().splitlines():
        one = json.loads(line)
        by_plugin[one["entityUrn"], one["aspectName"]] = one["aspect"]
    attempt = airflow_run.AttemptContext(context_of(build)).attempt()
    ours = {(each.entity_urn, each.aspect_name): each.aspect for each in attempt.proposals()}
    flow, job = run_tree.AirflowSite().flow_urn("shop"), attempt.job_urn
    for urn, info in ((flow, "dataFlowInfo"), (job, "dataJobInfo")):
        aspect = ours[urn, info]
        aspect["customProperties"].pop("fileloc", None)
        # The plugin's address of the DAG is of Airflow 2, and it does not name the flow in the job.
        assert aspect.pop("externalUrl") == by_plugin[urn, info].pop("externalUrl").replace(
            "tree?dag_id=", "dags/"
        )
        assert aspect.pop("flowUrn", flow) == flow
        assert aspect == by_plugin[urn, info]
        for name, members in (("ownership", "owners"), ("globalTags", "tags")):
            added = [operation["value"] for operation in ours[urn, name]["patch"]]
            assert added == by_plugin[urn, name][members]
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert airflow_run.dag_run_of(tries.DagRun(), stored).dag == attempt.dag_run.dag


def test_owners_and_tags_follow_the_options_of_datahubs_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with DAG("shop", schedule=None, tags=["nightly"], default_args={"owner": "etl"}) as dag:
        EmptyOperator(task_id="build", doc="postgres://ann:secret@db/orders")

    def info() -> run_tree.AirflowInfo:
        return airflow_run.AttemptContext(context_of(dag.get_task("build"))).attempt().task

    assert "secret" not in str(info().description)
    configure(monkeypatch, {"datahub.capture_ownership_as_group": "True"})
    assert info().owners == ("urn:li:corpGroup:etl",)
    configure(
        monkeypatch,
        {"datahub.capture_ownership_info": "False", "datahub.capture_tags_info": "False"},
    )
    assert (info().owners, info().tags) == ((), ())


@pytest.mark.parametrize("run_type", DagRunType)
def test_manual_runs_are_ad_hoc_and_all_others_scheduled(run_type: DagRunType) -> None:
    """A task knows the name of a run's type, the scheduler has the type itself."""
    expected = (
        "BATCH_AD_HOC" if run_type.value in ("manual", "operator_triggered") else "BATCH_SCHEDULED"
    )
    run: Any = tries.DagRun()
    for run.run_type in (run_type, run_type.value):
        assert airflow_run.dag_run_of(run).kind == expected


def test_a_run_has_a_data_interval_if_both_ends_are_known() -> None:
    run: Any = tries.DagRun()
    assert airflow_run.dag_run_of(run).interval is None
    run.data_interval_start = datetime(2026, 1, 1, tzinfo=UTC)
    assert airflow_run.dag_run_of(run).interval is None
    run.data_interval_end = datetime(2026, 1, 2, tzinfo=UTC)
    start_ms = 1_767_225_600_000
    assert airflow_run.dag_run_of(run).interval == DataInterval(start_ms, start_ms + 86_400_000)


@pytest.mark.parametrize("plugin", [False, True])
def test_a_run_names_the_runs_that_triggered_it(
    monkeypatch: pytest.MonkeyPatch, plugin: bool
) -> None:
    monkeypatch.setattr(airflow_run, "datahub_plugin_is_active", lambda: plugin)
    source = {
        "source_dag_id": "load",
        "source_task_id": "extract",
        "source_run_id": "r1",
        "source_map_index": 2,
    }
    by_us = run_tree.AirflowSite().task_run_urn("load", "extract", "r1", 2)
    events = [
        SimpleNamespace(**source, extra={"datahub_task_run": by_us}),
        SimpleNamespace(**source, extra={"datahub_task_run": "nonsense"}),
        SimpleNamespace(source_dag_id=None, source_task_id=None, source_run_id=None, extra={}),
    ]
    run: Any = tries.DagRun(run_type="asset_triggered")
    run.consumed_asset_events = events
    # Without the plugin, nobody writes the run of a task that is not ours.
    by_plugin = {run_tree.AirflowSite().task_run_urn("load", "extract", "r1")} if plugin else set()
    found = airflow_run.dag_run_of(run)
    assert set(found.upstream_urns) == {by_us, *by_plugin}
    assert find(found.end_proposals(0, "SUCCESS"), "dataProcessInstanceRelationships").aspect[
        "upstreamInstances"
    ] == (list(found.upstream_urns))

    parent = {"dag_id": "load", "run_id": "r1", "task_id": "trigger"}
    run = tries.DagRun(run_type="operator_triggered", conf={"datahub_parent_run": parent})
    expected = (
        run_tree.AirflowSite().task_run_urn("load", "trigger", "r1")
        if plugin
        else run_tree.DagRun(run_tree.AirflowSite(), "load", "r1").urn
    )
    found = airflow_run.dag_run_of(run)
    assert (found.parent_urn, found.upstream_urns) == (expected, ())
    relationships = find(
        found.end_proposals(0, "SUCCESS"), "dataProcessInstanceRelationships"
    ).aspect
    assert relationships["parentInstance"] == expected
    for nonsense in ({"datahub_parent_run": "r1"}, {"datahub_parent_run": {"run_id": "r1"}}, None):
        assert airflow_run.dag_run_of(tries.DagRun(conf=nonsense or {})).parent_urn is None


def tries_task(task_id: str, **more: Any) -> Any:
    return SparkSubmitDatahubOperator(
        task_id=task_id, application=f"{task_id}.py", name=task_id, **more
    )


def test_tasks_with_lineage_by_policy_are_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_wanted", lambda: frozenset({"SparkSubmitOperator"}))
    with DAG("shop", schedule=None) as dag:
        first, second = (
            SparkSubmitOperator(task_id=name, application="job.py") for name in ("a", "b")
        )
        first >> second
    for each in dag.tasks:
        policy.task_policy(each)
    found = airflow_run.AttemptContext(context_of(second)).attempt()
    assert found.upstream == (run_tree.UpstreamTask("a"),)


def test_a_wrong_switch_of_another_task_costs_no_lineage() -> None:
    with DAG("shop", schedule=None):
        tries_task("wrong", enabled="perhaps") >> (build := tries_task("build"))
    assert airflow_run.AttemptContext(context_of(build)).attempt().upstream == (
        run_tree.UpstreamTask("wrong"),
    )


def behind_mapped_numbers() -> Any:
    """Return a task whose upstream task ``numbers`` is mapped."""

    with DAG("shop", schedule=None):
        build = tries_task("build")
        numbers = SparkSubmitDatahubOperator.partial(task_id="numbers", application="job.py")
        numbers.expand(application_args=[["1"], ["2"], ["3"]]) >> build
    return build


def runs_of(task_id: str, count: int) -> dict[str, dict[str, str]]:
    return {task_id: {f"{task_id}_{index}": "success" for index in range(count)}}


@pytest.mark.parametrize(
    ("states", "indexes"),
    [
        (runs_of("numbers", 3), (0, 1, 2)),
        (runs_of("numbers", 0), ()),
        (runs_of("numbers", 1000), tuple(range(1000))),
        (runs_of("numbers", 1001), ()),
        (
            {"numbers": {"numbers_0": "success", "numbers_1": "skipped", "numbers_2": "failed"}},
            (0, 2),
        ),
        (
            {"numbers": {"numbers": "skipped"}},
            (),
        ),  # an expand over nothing leaves one without map index
        (AirflowException("no supervisor"), ()),
        (OSError("broken pipe"), ()),
    ],
)
def test_each_run_of_a_mapped_upstream_task_is_linked_if_it_ran_up_to_a_limit(
    states: Mapping[str, Mapping[str, str]] | Exception, indexes: tuple[int, ...]
) -> None:
    build = behind_mapped_numbers()
    found = airflow_run.AttemptContext(context_of(build, TaskInstance(states=states))).attempt()
    assert found.upstream == (run_tree.UpstreamTask("numbers", indexes),)


def test_in_a_mapped_group_the_run_of_the_same_index_is_upstream() -> None:
    with DAG("shop", schedule=None) as dag:

        @task_group
        def shops(name: str) -> None:  # noqa: ARG001 (what the group is expanded over)
            tries_task("load") >> tries_task("build")

        after = tries_task("after")
        shops.expand(name=["de", "fr"]) >> after
    inside = TaskInstance(task_id="shops.build", map_index=1, states=runs_of("shops.load", 2))
    build = dag.get_task("shops.build")
    assert airflow_run.AttemptContext(context_of(build, inside)).attempt().upstream == (
        run_tree.UpstreamTask("shops.load", (1,)),
    )
    outside = TaskInstance(task_id="after", states=runs_of("shops.build", 2))
    assert airflow_run.AttemptContext(context_of(after, outside)).attempt().upstream == (
        run_tree.UpstreamTask("shops.build", (0, 1)),
    )


@pytest.mark.parametrize(("map_index", "asked"), [(-1, None), (3, 3)])
def test_a_state_that_airflow_cannot_give_is_not_set_by_others(
    map_index: int, asked: int | None
) -> None:
    ti: Any = TaskInstance(map_index=map_index)
    ti.get_task_states = Mock(
        side_effect=AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
    )
    assert airflow_run.AttemptContext(context_of(Task(), ti)).result_set_by_others() is None
    ti.get_task_states.assert_called_once_with("shop", asked, ["build"], run_ids=[RUN_ID])


def chain(
    plugin: bool, states: Mapping[str, str] | None = None
) -> tuple[run_tree.UpstreamTask, ...]:
    """Return the tasks upstream of the last task of a chain of Spark, Python and empty tasks."""

    with DAG("shop", schedule=None):
        extract, load, last = tries_task("extract"), tries_task("load"), tries_task("last")
        off = tries_task("off", enabled=False)

        @task
        def check() -> None: ...

        extract >> load >> check() >> EmptyOperator(task_id="gate") >> last
        extract >> off >> last
    known = (
        AirflowException("?")
        if states is None
        else {name: {name: state} for name, state in states.items()}
    )
    ti = TaskInstance(task_id="last", states=known)
    return _UpstreamTasks(last, ti, AirflowServices(), written_by_plugin=plugin).find()


@cases("airflow")
def test_runs_that_nobody_writes_are_not_upstream(
    plugin: bool, others: dict[str, str] | None, upstream: list[list[object]]
) -> None:
    ran = dict.fromkeys(("extract", "load", "check", "off"), "success")
    found = chain(plugin, None if others is None else ran | others)
    assert [[each.task_id, [*each.map_indexes], each.is_nearest] for each in found] == upstream


def test_tasks_without_lineage_before_and_after_a_task_are_known() -> None:
    with DAG("shop", schedule=None):
        extract, load, off, last = (
            tries_task(name, enabled=name != "off") for name in ("extract", "load", "off", "last")
        )

        @task
        def check() -> None: ...

        extract >> check() >> EmptyOperator(task_id="gate") >> load >> off >> last
    context = context_of(load, TaskInstance(task_id="load"))
    run: Any = tries.DagRun(run_type="asset_triggered")
    source = {"source_dag_id": "raw", "source_task_id": "land", "source_run_id": "r1"}
    ours = {"datahub_task_run": run_tree.AirflowSite().task_run_urn("raw", "land", "r1")}
    run.consumed_asset_events = [
        SimpleNamespace(**source, extra={}),
        SimpleNamespace(**{**source, "source_task_id": "spark"}, extra=ours),
        SimpleNamespace(**dict.fromkeys(source), extra=None),
    ]
    found = airflow_run.AttemptContext({**context, "dag_run": run}).attempt()
    assert found.silent == SilentTasks(("check",), ("off",), (("raw", "r1", "land"),))
    with DAG("many", schedule=None):
        build = tries_task("build")
        build >> [
            EmptyOperator(task_id="gate"),
            *(PythonOperator(task_id=f"t{n}", python_callable=print) for n in range(51)),
        ]
    silent = airflow_run.AttemptContext(context_of(build)).attempt().silent
    assert silent == SilentTasks(after=("some task",))


LOGICAL_DATE = datetime(2026, 1, 1, tzinfo=UTC)
RUN_AFTER = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_a_run_out_of_turn_is_superseded_by_a_newer_one() -> None:
    newer, older = (
        SimpleNamespace(run_id="another", logical_date=LOGICAL_DATE + timedelta(days=n))
        for n in (1, -1)
    )
    itself = SimpleNamespace(run_id=tries.RUN_ID, logical_date=LOGICAL_DATE + timedelta(days=1))
    cleared: dict[str, Any] = {"clear_number": 1}
    backfill: dict[str, Any] = {"run_type": "backfill"}
    triggered: dict[str, Any] = {
        "run_type": "manual",
        "run_after": LOGICAL_DATE + timedelta(days=2),
    }
    for run, newest, expected in (
        ({}, newer, False),
        (cleared, newer, True),
        (backfill, newer, True),
        (triggered, newer, True),
        ({**triggered, "logical_date": LOGICAL_DATE + timedelta(days=300)}, newer, False),
        ({**triggered, "logical_date": None}, newer, False),
        (cleared, older, False),
        (cleared, itself, False),
        (cleared, None, False),
        (cleared, AirflowException("an Airflow that cannot say it"), True),
    ):
        ti: Any = TaskInstance(dag_run=tries.DagRun(**{"logical_date": LOGICAL_DATE, **run}))
        ti.get_previous_ti = Mock(side_effect=[newest])
        assert airflow_run.AttemptContext(context_of(Task(), ti)).attempt().only_adds is expected, (
            run,
            newest,
        )


@cases("airflow")
def test_the_id_of_a_run_without_a_logical_date_says_which_is_newer(
    others: dict[str, str] | None, expected: bool
) -> None:
    run = tries.DagRun(logical_date=None, run_after=RUN_AFTER, run_type="manual", clear_number=1)
    ti: Any = TaskInstance(dag_run=run)
    known = {run_id: {"build": state} for run_id, state in (others or {}).items()}
    ti.get_task_states = Mock(side_effect=[known or AirflowException("no answer")])
    assert airflow_run.AttemptContext(context_of(Task(), ti)).attempt().only_adds is expected
    ti.get_task_states.assert_called_once_with("shop", task_ids=["build"])


@pytest.mark.parametrize("namespace", [None, "airflow-eu"])
@pytest.mark.parametrize("logical_date", [LOGICAL_DATE, None])
@pytest.mark.parametrize(("try_number", "map_index", "clear_number"), [(1, -1, 0), (3, 7, 2)])
def test_openlineage_run_ids_are_those_of_airflows_provider(
    monkeypatch: pytest.MonkeyPatch,
    namespace: str | None,
    logical_date: datetime | None,
    try_number: int,
    map_index: int,
    clear_number: int,
) -> None:
    if namespace:
        configure(monkeypatch, {"openlineage.namespace": namespace})
        monkeypatch.setattr("airflow.providers.openlineage.conf.namespace", lambda: namespace)
    run = tries.DagRun(logical_date=logical_date, run_after=RUN_AFTER, clear_number=clear_number)
    ti: Any = TaskInstance(
        task_id="group.build", try_number=try_number, map_index=map_index, dag_run=run
    )
    expected = (
        ParentRun(namespace or "default", "shop.group.build", macros.lineage_run_id(ti)),
        ParentRun(namespace or "default", "shop", macros.lineage_root_run_id(ti)),
    )
    assert airflow_run.AttemptContext(context_of(Task(), ti)).openlineage_runs() == expected

    # An old provider has no such macro, and all of them may fail on Airflow 3.
    monkeypatch.delattr(macros, "lineage_root_job_namespace")
    assert airflow_run.AttemptContext(context_of(Task(), ti)).openlineage_runs() == expected
    without_provider(monkeypatch)
    assert airflow_run.AttemptContext(context_of(Task(), ti)).openlineage_runs() == expected


def without_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.startswith("airflow.providers.openlineage"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", missing)
