from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.capture import (
    InjectionError,
    JarChoice,
    LineageInjection,
    ParentRun,
    Submission,
    inject,
)
from tests.cases import cases

OURS = "/ol/openlineage-spark_2.13-1.53.0.jar"
LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
ADD_OPENS = "--add-opens=java.base/java.security=ALL-UNNAMED"
TRANSPORT = "spark.openlineage.transport"
CLASS_PATH = "spark.driver.extraClassPath"

LINEAGE = LineageInjection(
    events_file="/events/try1.ndjson",
    jar=JarChoice(jars=(OURS,)),
    parent=ParentRun("airflow", "shop.build", "01990000-0000-7000-8000-000000000001"),
    root=ParentRun("airflow", "shop", "01990000-0000-7000-8000-000000000000"),
    namespace="analytics",
    facets={"spark.logicalPlan": True, "debug": False},
)


def properties_of(submission: Submission, lineage: LineageInjection = LINEAGE) -> dict[str, object]:
    return dict(inject(submission, lineage).submission.properties)


def transport_of(properties: dict[str, str], *, defaults: dict[str, str] | None = None) -> dict[str, object]:
    """Return the transport properties of a job that has these, without their common prefix."""
    injected = properties_of(Submission(properties, base_properties=defaults or {}))
    return {name.removeprefix(f"{TRANSPORT}."): value for name, value in injected.items() if name.startswith(TRANSPORT)}


def test_a_plain_job_gets_listener_transport_parents_and_jar() -> None:
    injection = inject(Submission(), LINEAGE)
    assert injection.submission == Submission(
        {
            "spark.extraListeners": LISTENER,
            "spark.driver.extraJavaOptions": ADD_OPENS,
            "spark.openlineage.transport.type": "file",
            "spark.openlineage.transport.location": "/events/try1.ndjson",
            "spark.openlineage.parentJobNamespace": "airflow",
            "spark.openlineage.parentJobName": "shop.build",
            "spark.openlineage.parentRunId": "01990000-0000-7000-8000-000000000001",
            "spark.openlineage.rootParentJobNamespace": "airflow",
            "spark.openlineage.rootParentJobName": "shop",
            "spark.openlineage.rootParentRunId": "01990000-0000-7000-8000-000000000000",
            "spark.openlineage.namespace": "analytics",
            "spark.openlineage.facets.spark.logicalPlan.disabled": "false",
            "spark.openlineage.facets.debug.disabled": "true",
            "spark.jars": OURS,
        }
    )
    assert (injection.users_parent, injection.users_transport) == (False, False)


def test_minimal_lineage_sets_nothing_else() -> None:
    least = replace(LINEAGE, root=None, namespace=None, facets={}, jar=JarChoice())
    properties = properties_of(Submission(), least)
    assert not [name for name in properties if "rootParent" in name or "facets" in name or "jars" in name]
    assert "spark.openlineage.namespace" not in properties


@cases("capture")
def test_listener_is_appended_once(conf: str | None, base: str | None, listeners: str) -> None:
    name = "spark.extraListeners"
    submission = Submission({} if conf is None else {name: conf}, base_properties={} if base is None else {name: base})
    assert properties_of(submission)[name] == listeners


@cases("capture")
def test_java_options_are_extended_once(conf: str | None, base: str | None, options: str) -> None:
    name = "spark.driver.extraJavaOptions"
    submission = Submission({} if conf is None else {name: conf}, base_properties={} if base is None else {name: base})
    assert properties_of(submission)[name] == options


@pytest.mark.parametrize("kind", ["jars", "packages"])
@cases("capture")
def test_jars_and_packages_are_merged_where_spark_looks(
    kind: str, option: str | None, conf: str | None, base: str | None, new_option: str | None, new_conf: str | None
) -> None:
    name = {"jars": "spark.jars", "packages": "spark.jars.packages"}[kind]
    submission = Submission(
        {name: conf} if conf else {},
        jars=option if kind == "jars" else None,
        packages=option if kind == "packages" else None,
        base_properties={name: base} if base else {},
    )
    choice = JarChoice(jars=("ours",)) if kind == "jars" else JarChoice(packages=("ours",))
    result = inject(submission, replace(LINEAGE, jar=choice)).submission
    assert (result.jars if kind == "jars" else result.packages) == new_option
    assert result.properties.get(name) == new_conf


@pytest.mark.parametrize(
    "properties",
    [
        {"spark.openlineage.parentRunId": "01980000-0000-7000-8000-000000000009"},
        {"spark.openlineage.context": '{"parent": {"run": {}, "job": {}}}'},
    ],
)
@pytest.mark.parametrize("in_defaults", [False, True])
def test_parent_run_of_the_user_is_left_alone(properties: dict[str, str], in_defaults: bool) -> None:
    submission = Submission(base_properties=properties) if in_defaults else Submission(properties)
    injection = inject(submission, LINEAGE)
    assert injection.users_parent
    parents = {name for name in injection.submission.properties if "arent" in name}
    assert parents == ({name for name in properties if "arent" in name} if not in_defaults else set())


@pytest.mark.parametrize(
    ("submission", "option", "in_conf"),
    [
        (Submission(), None, OURS),
        (Submission({CLASS_PATH: "/conf:/a.jar"}), None, f"/conf:/a.jar:{OURS}"),
        (Submission(base_properties={CLASS_PATH: "/a.jar"}), None, f"/a.jar:{OURS}"),
        (Submission({CLASS_PATH: "/hidden"}, driver_class_path="/lib/*"), f"/lib/*:{OURS}", "/hidden"),
    ],
)
def test_class_path_of_the_user_comes_before_ours(submission: Submission, option: str | None, in_conf: str) -> None:
    result = inject(submission, replace(LINEAGE, jar=JarChoice(class_path=(OURS,)))).submission
    assert (result.driver_class_path, result.properties[CLASS_PATH]) == (option, in_conf)
    assert "spark.jars" not in result.properties


def test_parent_without_a_run_is_completed_by_ours() -> None:
    properties = properties_of(Submission({"spark.openlineage.parentJobName": "stale"}))
    assert properties["spark.openlineage.parentJobName"] == "shop.build"


def test_namespace_and_facets_of_the_user_win() -> None:
    users: dict[str, object] = {"spark.openlineage.namespace": "theirs"}
    base = {"spark.openlineage.facets.debug.disabled": "false"}
    properties = properties_of(Submission(users, base_properties=base))
    assert properties["spark.openlineage.namespace"] == "theirs"
    assert "spark.openlineage.facets.debug.disabled" not in properties


def test_values_of_other_types_stay_as_they_are() -> None:
    users: dict[str, object] = {"spark.a": 1, "spark.b": True, "spark.c": None, "spark.d": ["x"]}
    properties = properties_of(Submission(users))
    assert {name: properties[name] for name in users} == users
    assert all(properties[name] is users[name] for name in users)


COMPOSITE = {
    "type": "composite",
    "continueOnFailure": "true",
    "transports.airflow_datahub.type": "file",
    "transports.airflow_datahub.location": "/events/try1.ndjson",
}


def test_transport_of_the_user_becomes_a_member_beside_ours() -> None:
    users = {f"{TRANSPORT}.type": "kafka", f"{TRANSPORT}.topicName": "t", f"{TRANSPORT}.properties.acks": "all"}
    members = {
        "transports.users.type": "kafka",
        "transports.users.topicName": "t",
        "transports.users.properties.acks": "all",
    }
    leftovers = {"topicName": "t", "properties.acks": "all"}
    assert transport_of(users) == COMPOSITE | members | leftovers
    assert transport_of({}, defaults=users) == COMPOSITE | members
    assert inject(Submission(users), LINEAGE).users_transport


def test_credentials_that_come_onto_the_command_line_are_returned() -> None:
    users = {
        f"{TRANSPORT}.type": "http",
        f"{TRANSPORT}.url": "http://h:1/?api_key=of-the-url",
        f"{TRANSPORT}.headers.Authorization": "Bearer b",
        f"{TRANSPORT}.auth.clientSecret": "c",
        f"{TRANSPORT}.headers.X-Team": "shop",
    }
    injection = inject(Submission(base_properties=users), LINEAGE)
    assert set(injection.secrets) == {"of-the-url", "Bearer b", "c"}
    assert inject(Submission(), LINEAGE).secrets == ()


def test_transport_in_conf_replaces_that_of_the_defaults_key_by_key() -> None:
    defaults = {f"{TRANSPORT}.type": "file", f"{TRANSPORT}.location": "/default"}
    transport = transport_of({f"{TRANSPORT}.location": "/conf"}, defaults=defaults)
    assert (transport["transports.users.type"], transport["transports.users.location"]) == ("file", "/conf")


def test_composite_transport_of_the_user_gets_one_more_member() -> None:
    users = {
        f"{TRANSPORT}.type": "composite",
        f"{TRANSPORT}.transports.marquez.type": "http",
        f"{TRANSPORT}.transports.marquez.headers.X-A": "1",
    }
    marquez = {"transports.marquez.type": "http", "transports.marquez.headers.X-A": "1"}
    assert transport_of(users) == COMPOSITE | marquez
    assert transport_of(users | {f"{TRANSPORT}.continueOnFailure": "false"})["continueOnFailure"] == "false"


@cases("capture")
def test_url_of_an_http_transport_keeps_its_meaning(url: str, understood: dict[str, str]) -> None:
    transport = transport_of({f"{TRANSPORT}.type": "http", f"{TRANSPORT}.url": url})
    prefix = "transports.users."
    assert {name.removeprefix(prefix): value for name, value in transport.items() if name.startswith(prefix)} == {
        "type": "http",
        **understood,
    }


@cases("capture")
def test_transport_that_would_break_beside_ours_is_refused(users: dict[str, str], reason: str) -> None:
    properties = {f"{TRANSPORT}.{name}": value for name, value in users.items()}
    with pytest.raises(InjectionError, match=reason) as caught:
        inject(Submission(properties), LINEAGE)
    assert caught.value.reason == str(caught.value)


def test_a_value_that_no_command_line_takes_is_refused() -> None:
    """Linux takes arguments of 131,071 bytes. A job that was just below would not start; in a file it has no limit."""
    jars = ",".join(f"/shop/jars/{number:05}.jar" for number in range(6_000))
    on_class_path = replace(LINEAGE, jar=JarChoice(class_path=(OURS,)))
    for submission, lineage, name in (
        (Submission(jars=jars), LINEAGE, "--jars"),
        (Submission(base_properties={"spark.jars": jars}), LINEAGE, "spark.jars"),
        (Submission({"spark.extraListeners": jars}), LINEAGE, "spark.extraListeners"),
        (Submission(driver_class_path="ü:" * 45_000), on_class_path, "--driver-class-path"),
    ):
        with pytest.raises(InjectionError, match=f"{name} is longer than 120000 bytes"):
            inject(submission, lineage)
    others = Submission({"spark.app.name": "ü" * 60_000}, jars=jars)
    assert inject(others, on_class_path).submission.jars == jars
    with pytest.raises(InjectionError, match="parentJobName for the listener holds a NUL"):
        inject(Submission(), replace(LINEAGE, parent=ParentRun("airflow", "a\0b", "id")))


def test_blank_transport_properties_are_ignored() -> None:
    assert transport_of({f"{TRANSPORT}.type": " ", f"{TRANSPORT}.url": ""}) == {
        "type": "file",
        "location": "/events/try1.ndjson",
        "url": "",
    }


names = st.sampled_from(
    [
        "spark.extraListeners",
        "spark.jars",
        "spark.jars.packages",
        "spark.driver.extraJavaOptions",
        "spark.openlineage.parentRunId",
        "spark.openlineage.parentJobName",
        "spark.openlineage.namespace",
        "spark.openlineage.facets.debug.disabled",
        f"{TRANSPORT}.location",
        f"{TRANSPORT}.continueOnFailure",
        "spark.app.name",
    ]
)
values = st.text(alphabet="ab, .-/", max_size=12)
confs = st.dictionaries(names, values) | st.builds(
    lambda conf, kind: conf | {f"{TRANSPORT}.type": kind},
    st.dictionaries(names, values),
    st.sampled_from(["file", "console", "composite"]),
)
options = st.none() | values
submissions = st.builds(Submission, confs, options, options, base_properties=confs)
choices = st.sampled_from([JarChoice(), JarChoice(jars=(OURS,)), JarChoice(packages=("g:a:1",))])


@pytest.mark.slow
@given(submissions, choices)
def test_injecting_twice_is_injecting_once_and_the_users_objects_are_unchanged(
    submission: Submission, choice: JarChoice
) -> None:
    lineage = replace(LINEAGE, jar=choice)
    before = copy.deepcopy(submission)
    try:
        once = inject(submission, lineage)
    except InjectionError:
        once = None
    assert submission == before
    if once is not None:
        assert inject(once.submission, lineage).submission == once.submission


@pytest.mark.slow
@given(submissions)
def test_no_jar_package_or_listener_of_the_user_is_lost(submission: Submission) -> None:
    lineage = replace(LINEAGE, jar=JarChoice(jars=(OURS,), packages=("g:a:1",)))
    bare = {name: value for name, value in submission.properties.items() if not name.startswith(TRANSPORT)}
    base = {name: value for name, value in submission.base_properties.items() if not name.startswith(TRANSPORT)}
    users = replace(submission, properties=bare, base_properties=base)
    result = inject(users, lineage).submission
    assert result.effective_jars() == (*users.effective_jars(), OURS)
    assert result.effective_packages() == (*users.effective_packages(), "g:a:1")
    listeners = [entry.strip() for entry in (users.effective("spark.extraListeners") or "").split(",")]
    kept = [entry.strip() for entry in str(result.properties["spark.extraListeners"]).split(",")]
    assert kept == [*filter(None, listeners), LISTENER]
