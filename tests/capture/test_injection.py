"""The listener added to a submission, and the paths of the events of an attempt."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture import (
    InjectionError,
    Submission,
    event_file,
    event_log_folder,
    inject_event_log,
    unused_path,
)
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.cases import cases, filled

OURS = "/ol/openlineage-spark_2.13-1.53.0.jar"
LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
ADD_OPENS = "--add-opens=java.base/java.security=ALL-UNNAMED"
TRANSPORT = "spark.openlineage.transport"

FACETS = {"facets.spark.logicalPlan.disabled": "false", "facets.debug.disabled": "true"}
LINEAGE = capture.LineageInjection(
    events_file="/events/try1.ndjson",
    jar=capture.JarChoice(jars=(OURS,)),
    parent=capture.ParentRun("airflow", "shop.build", "01990000-0000-7000-8000-000000000001"),
    root=capture.ParentRun("airflow", "shop", "01990000-0000-7000-8000-000000000000"),
    properties={"namespace": "analytics", **FACETS},
)


PLAIN = {
    "spark.extraListeners": LISTENER,
    "spark.driver.extraJavaOptions": ADD_OPENS,
    f"{TRANSPORT}.type": "file",
    f"{TRANSPORT}.location": "/events/try1.ndjson",
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


NAMES = {"listener": LISTENER, "opens": ADD_OPENS, "transport": TRANSPORT}


@cases("injections")
def test_ours_is_added_to_the_users_own(
    job: dict[str, Any], lineage: dict[str, Any], changed: dict[str, Any], others: dict[str, Any]
) -> None:
    job, differing, others = (filled(given, NAMES) for given in (job, changed, others))
    if "jar" in lineage:
        jar: dict[str, Any] = {kind: tuple(paths) for kind, paths in lineage["jar"].items()}
        lineage = {**lineage, "jar": capture.JarChoice(**jar)}
    injection = capture.inject(capture.Submission(**job), replace(LINEAGE, **lineage))
    removed = {name for name, value in differing.items() if value is None}
    # Without a value of ours, the user's own stays.
    ours = {name: value for name, value in {**PLAIN, **differing}.items() if name not in removed}
    assert injection.submission.properties == {**job.get("properties", {}), **ours}
    others = {**others, "private": frozenset(others.get("private", ()))}
    for name in ("jars", "packages", "driver_class_path", "private", "base_properties"):
        expected = others.get(name, job.get(name, {} if name == "base_properties" else None))
        assert getattr(injection.submission, name) == expected, name
    assert (
        capture.inject(injection.submission, replace(LINEAGE, **lineage)).submission
        == injection.submission
    ), "once is enough"
    assert injection.users_parent == others.get("users_parent", False)


def test_credentials_that_come_onto_the_command_line_are_returned() -> None:
    users = {
        f"{TRANSPORT}.type": "http",
        f"{TRANSPORT}.url": "http://h:1",
        f"{TRANSPORT}.auth.apiKey": "k",
        f"{TRANSPORT}.headers.Authorization": "Bearer b",
        f"{TRANSPORT}.auth.clientSecret": "c",
        f"{TRANSPORT}.headers.X-Team": "shop",
    }
    injection = capture.inject(capture.Submission(base_properties=users), LINEAGE)
    assert set(injection.secrets) == {"k", "Bearer b", "c"}
    assert capture.inject(capture.Submission(), LINEAGE).secrets == ()


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/api/v1/lineage"])
def test_the_address_of_an_http_transport_stays(url: str) -> None:
    """As :code:`HttpTransport.getUri` of OpenLineage 1.53 reads it: a path takes the place of the
    endpoint.
    """
    users = capture.Submission({f"{TRANSPORT}.type": "http", f"{TRANSPORT}.url": url})
    assert (
        capture.inject(users, LINEAGE).submission.properties[f"{TRANSPORT}.transports.users.url"]
        == url
    )


@cases("capture")
def test_transport_that_would_break_beside_ours_is_refused(
    users: dict[str, str], reason: str
) -> None:
    properties = {f"{TRANSPORT}.{name}": value for name, value in users.items()}
    with pytest.raises(capture.InjectionError, match=reason):
        capture.inject(capture.Submission(properties), LINEAGE)


def test_an_address_in_a_store_that_openlineage_cannot_write_to_is_refused() -> None:
    with pytest.raises(capture.InjectionError, match="no transport to 'abfs://"):
        capture.inject(
            capture.Submission(), replace(LINEAGE, events_file="abfs://bucket/a/try1.events")
        )


def test_a_value_that_no_command_line_takes_is_refused() -> None:
    """Linux takes arguments of 131,071 bytes. A job that was just below would not start; in a file
    it has no limit.
    """
    jars = ",".join(f"/shop/jars/{number:05}.jar" for number in range(6_000))
    on_class_path = replace(LINEAGE, jar=capture.JarChoice(class_path=(OURS,)))
    for submission, lineage, name in (
        (capture.Submission(jars=jars), LINEAGE, "--jars"),
        (capture.Submission(base_properties={"spark.jars": jars}), LINEAGE, "spark.jars"),
        (capture.Submission({"spark.extraListeners": jars}), LINEAGE, "spark.extraListeners"),
        (capture.Submission(driver_class_path="ü:" * 45_000), on_class_path, "--driver-class-path"),
    ):
        with pytest.raises(capture.InjectionError, match=f"{name} is longer than 120000 bytes"):
            capture.inject(submission, lineage)
    others = capture.Submission({"spark.app.name": "ü" * 60_000}, jars=jars)
    assert capture.inject(others, on_class_path).submission.jars == jars
    with pytest.raises(capture.InjectionError, match="parentJobName for the listener holds a NUL"):
        capture.inject(
            capture.Submission(),
            replace(LINEAGE, parent=capture.ParentRun("airflow", "a\0b", "id")),
        )


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
submissions = st.builds(capture.Submission, confs, options, options, base_properties=confs)


@pytest.mark.slow
@given(submissions)
def test_no_jar_package_or_listener_of_the_user_is_lost(submission: capture.Submission) -> None:
    lineage = replace(LINEAGE, jar=capture.JarChoice(jars=(OURS,), packages=("g:a:1",)))
    bare = {
        name: value
        for name, value in submission.properties.items()
        if not name.startswith(TRANSPORT)
    }
    base = {
        name: value
        for name, value in submission.base_properties.items()
        if not name.startswith(TRANSPORT)
    }
    users = replace(submission, properties=bare, base_properties=base)
    result = capture.inject(users, lineage).submission
    assert result.effective_jars() == (*users.effective_jars(), OURS)
    assert result.effective_packages() == (*users.effective_packages(), "g:a:1")
    listeners = [
        entry.strip() for entry in (users.effective("spark.extraListeners") or "").split(",")
    ]
    kept = [entry.strip() for entry in str(result.properties["spark.extraListeners"]).split(",")]
    assert kept == [*filter(None, listeners), LISTENER]


# -- transports that Spark properties replace

WITH_TRANSPORT = "facets: {}\ntransport:\n  type: http\n"
WITHOUT_TRANSPORT = "facets:\n  transport: {}\n# transport:\n"


@pytest.fixture
def replaced_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that says what ours replaces for a driver in ``folder`` with the home
    ``home``.
    """
    for name in ("folder", "home/.openlineage"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "folder")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def replaced(env: dict[str, str], *, local_driver: bool = True) -> str:
        return capture.check_listener(
            capture.Submission(), capture.SparkSubmit(None, env, local_driver)
        )

    return replaced


def test_without_a_transport_outside_spark_nothing_is_replaced(
    replaced_in: Callable[..., str],
) -> None:
    assert not replaced_in({"OPENLINEAGE_URL": "x"})


def test_a_transport_in_the_environment_is_replaced(replaced_in: Callable[..., str]) -> None:
    env = {"OPENLINEAGE__TRANSPORT__URL": "http://h", "OPENLINEAGE__TRANSPORT__TYPE": "http"}
    assert "the environment variable OPENLINEAGE__TRANSPORT__TYPE gets none" in replaced_in(env)
    assert not replaced_in(env, local_driver=False)


@pytest.mark.parametrize(
    "name", ["named.yml", "folder/openlineage.yml", "home/.openlineage/openlineage.yml"]
)
@pytest.mark.parametrize(("text", "replaced"), [(WITH_TRANSPORT, True), (WITHOUT_TRANSPORT, False)])
def test_a_transport_in_a_configuration_file_is_replaced(
    tmp_path: Path, replaced_in: Callable[..., str], name: str, text: str, replaced: bool
) -> None:
    (tmp_path / name).write_text(text)
    found = replaced_in({"OPENLINEAGE_CONFIG": str(tmp_path / "named.yml")})
    assert found == (
        f"the OpenLineage transport of {tmp_path / name} gets none of this job's events" * replaced
    )


def test_only_the_first_configuration_file_counts(
    tmp_path: Path, replaced_in: Callable[..., str]
) -> None:
    (tmp_path / "folder/openlineage.yml").write_text(WITHOUT_TRANSPORT)
    (tmp_path / "home/.openlineage/openlineage.yml").write_text(WITH_TRANSPORT)
    assert not replaced_in({})


def test_an_unreadable_configuration_file_replaces_nothing(
    tmp_path: Path, replaced_in: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder/openlineage.yml").touch()
    monkeypatch.setattr(
        Path, "read_text", Mock(side_effect=PermissionError(13, "Permission denied"))
    )
    assert not replaced_in({})


FOLDER = Path("/spool/try 1.eventlog")
ENABLED = "spark.eventLog.enabled"
DIR = "spark.eventLog.dir"
FIELDS = "spark.sql.debug.maxToStringFields"
WHOLE_PLANS = {FIELDS: "2000", "spark.sql.maxMetadataStringLength": "10000"}


def test_a_job_without_an_event_log_gets_one_of_its_own() -> None:
    users = Submission({"spark.x": 1}, jars="a.jar", base_properties={DIR: "hdfs://nn/logs"})

    injection = inject_event_log(users, FOLDER, local_driver=True)

    assert (injection.folder, injection.ours, injection.reason) == (FOLDER, True, "")
    properties = dict(injection.submission.properties)
    left_out = str(properties.pop("spark.eventLog.excludedPatterns")).split(",")
    assert properties == {
        "spark.x": 1,
        ENABLED: "true",
        DIR: "file:///spool/try%201.eventlog",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.logBlockUpdates.enabled": "false",
        "spark.eventLog.logStageExecutorMetrics": "false",
        **WHOLE_PLANS,
    }
    assert "SparkListenerTaskEnd" in left_out
    assert not [
        name
        for name in left_out
        if "SQLExecution" in name or "Application" in name or "Environment" in name
    ]
    assert injection.submission.jars == "a.jar"
    assert users.properties == {"spark.x": 1}
    assert inject_event_log(injection.submission, FOLDER, local_driver=True) == injection


@cases("capture")
@pytest.mark.parametrize("in_defaults", [False, True])
def test_the_users_event_log_is_kept_and_read(
    place: str | None, folder: str, in_defaults: bool
) -> None:
    conf = {ENABLED: "TRUE"} | ({DIR: place} if place else {})
    users = Submission(base_properties=conf) if in_defaults else Submission(conf)

    injection = inject_event_log(users, FOLDER, local_driver=True)

    assert injection.submission.properties == {**users.properties, **WHOLE_PLANS}
    assert (injection.folder, injection.ours, injection.reason) == (Path(folder), False, "")
    assert (
        inject_event_log(injection.submission, FOLDER, local_driver=True).submission
        is injection.submission
    )


def test_how_much_a_plan_names_is_the_jobs_own_choice() -> None:
    users = Submission({FIELDS: 30}, base_properties={"spark.sql.maxMetadataStringLength": "200"})
    assert inject_event_log(users, FOLDER, local_driver=True).submission.properties[FIELDS] == 30
    assert (
        "spark.sql.maxMetadataStringLength"
        not in inject_event_log(users, FOLDER, local_driver=True).submission.properties
    )


@cases("capture")
def test_an_event_log_that_cannot_be_read_here_is_left_alone(
    conf: dict[str, object], local_driver: bool, reason: str
) -> None:
    users = Submission(conf)

    injection = inject_event_log(users, FOLDER, local_driver=local_driver)

    assert injection.submission is users
    assert (injection.folder, injection.ours) == (None, False)
    assert reason in injection.reason


ROOT = Path("/events")
KEY = AttemptKey("shop.daily", "scheduled__2026-01-01T00:00:00+00:00", "load.orders", -1, 2)

ids = st.text(max_size=250) | st.sampled_from(
    ["..", ".", "/", "../../etc", "a:b+c", " ", "\ud800", "-rf", "n" * 250]
)
keys = st.builds(AttemptKey, ids, ids, ids, st.integers(-1, 10**6), st.integers(0, 99))


def test_the_path_of_an_event_file_shows_dag_run_task_and_try() -> None:
    path = event_file(ROOT, KEY)
    assert (
        path.parent == ROOT / "shop_daily" / "scheduled__2026-01-01T00_00_00_00_00" / "load_orders"
    )
    assert re.fullmatch(r"try2-[0-9a-f]{16}\.ndjson", path.name)


def test_mapped_task_shows_its_index() -> None:
    assert event_file(ROOT, replace(KEY, map_index=0)).name.startswith("map0-try2-")


@pytest.mark.no_cover
@pytest.mark.slow
@given(keys)
def test_any_id_gives_a_safe_path_below_the_root(key: AttemptKey) -> None:
    path = event_file(ROOT, key)
    parts = PurePosixPath(path).relative_to(ROOT).parts
    assert len(parts) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,59}", part) for part in parts[:3])
    assert re.fullmatch(r"[a-z0-9-]{1,60}\.ndjson", parts[3])


@pytest.mark.slow
@pytest.mark.no_cover
@given(st.tuples(keys, ids), st.tuples(keys, ids))
def test_two_attempts_never_share_a_file(
    first: tuple[AttemptKey, str], other: tuple[AttemptKey, str]
) -> None:
    assert (event_file(ROOT, *first) == event_file(ROOT, *other)) is (first == other)


def test_relative_root_is_refused() -> None:
    with pytest.raises(InjectionError, match="'spool/events', is a relative path"):
        event_file(Path("spool/events"), KEY)


def test_an_unused_path_is_none_of_an_earlier_execution(tmp_path: Path) -> None:
    path = tmp_path / "try1-ab.ndjson"
    assert unused_path(path) == path
    path.touch()
    assert unused_path(path) == tmp_path / "try1-ab-2.ndjson"
    (tmp_path / "try1-ab-2.ndjson").touch()
    assert unused_path(path) == tmp_path / "try1-ab-3.ndjson"


def test_event_log_has_a_folder_beside_the_event_file() -> None:
    path = event_file(Path("/spool"), KEY)
    folder = event_log_folder(path)
    assert (folder.parent, folder.suffix) == (path.parent, ".eventlog")
    assert event_log_folder(path.with_name(f"{path.stem}-2.ndjson")) != folder
