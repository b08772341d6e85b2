"""``spark-datahub doctor``, and the results of each of its checks."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.cli import doctor as checks
from airflow_provider_spark_datahub.cli.doctor import _PROBE_PROPOSAL, _HealthChecks
from airflow_provider_spark_datahub.delivery import CheckResult, CheckStatus
from airflow_provider_spark_datahub.delivery.outbox import Folder, LocalStorage, Outbox
from tests.capture.installations import executable, openlineage_jar, spark_at
from tests.cases import cases
from tests.cli.commands import run
from tests.delivery.connections import connect_to_files, connect_to_gms
from tests.delivery.outboxes import key, put
from tests.delivery.samples import delivered
from tests.operators.tries import unfinished_attempt
from tests.oracles.gms import GmsStandIn
from tests.oracles.strict import canonical_violations


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the place of a file sink, with a connection, a Spark and a jar, so that lineage can
    work.
    """
    sink = tmp_path / "sink"
    connect_to_files(monkeypatch, "lineage", sink)
    monkeypatch.setenv("SPARK_HOME", str(spark_at(tmp_path / "spark")))
    executable(tmp_path / "spark/bin/spark-submit")
    monkeypatch.setenv("PATH", f"{tmp_path / 'spark/bin'}{os.pathsep}{os.environ['PATH']}")
    jar = openlineage_jar(tmp_path / "openlineage.jar")
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR", str(jar))
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__DATAHUB_CONN_ID", "lineage")
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION", str(tmp_path / "outbox"))
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION", str(tmp_path / "events"))
    return sink


def test_without_any_problem(sink: Path) -> None:
    result = run("doctor")
    assert (result.exit_code, result.stderr) == (0, "")
    subjects = [line.split(":")[0] for line in result.stdout.splitlines()]
    assert dict.fromkeys(subject[2:] for subject in subjects) == dict.fromkeys(
        ["version", "plugin", "events", "connection", "DataHub", "outbox", "Spark", "OpenLineage"]
    )
    assert {subject[0] for subject in subjects} == {"✓"}
    assert not sink.exists()


def test_a_proposal_is_delivered_on_request(sink: Path) -> None:
    result = run("doctor", "--write")
    assert "✓ delivery: A probe, marked as removed, was stored" in result.stdout
    (proposal,) = delivered(sink)
    assert (proposal["aspectName"], proposal["aspect"]) == ("status", {"json": {"removed": True}})


@pytest.mark.usefixtures("sink")
def test_json() -> None:
    good = json.loads(run("doctor", "--json").stdout)
    assert good["good"] is True
    assert {finding["verdict"] for finding in good["findings"]} == {"good"}
    bad = run("doctor", "--json", "--connection", "nowhere")
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["good"] is False


@pytest.mark.usefixtures("sink")
@cases("cli")
def test_a_spark_that_does_not_start(tmp_path: Path, script: str, words: str) -> None:
    # As after ``pip install pyspark pyspark-client``, which leaves the version and the jars where
    # they were.
    executable(tmp_path / "spark/bin/spark-submit", script)
    result = run("doctor")
    assert result.exit_code == 1
    wrong = next(line for line in result.stdout.splitlines() if line.startswith("✗ Spark"))
    assert re.search(words, wrong)
    assert "pyspark-client" in result.stdout


CHECKS = _HealthChecks("lineage", None, "spark-submit", 5.0, write=True)
README = (Path(__file__).parents[2] / "README.md").read_text()


def test_versions_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        "acryl-datahub>=99",
        "no-such-package>=1",
        'no-such-extra>=1; extra == "more"',
        "msgspec",
    ]
    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    wrong = [finding for finding in CHECKS.check_versions() if finding.status is CheckStatus.BAD]
    assert [finding.advice for finding in wrong] == [
        "pip install 'acryl-datahub>=99'",
        "pip install 'no-such-package>=1'",
    ]


def test_the_versions_are_those_that_the_readme_names() -> None:
    oldest, newest = (
        ".".join(map(str, version)) for version in (checks._OLDEST_SPARK, checks._NEWEST_SPARK)
    )
    assert f"Spark {oldest} to {newest} on Java 17" in README
    assert re.search(
        rf"openlineage-spark\s≥ {'.'.join(map(str, checks._OLDEST_OPENLINEAGE))}", README
    )


def test_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "airflow.plugins_manager.get_plugin_info", lambda: [{"name": "another", "listeners": ["x"]}]
    )
    (finding,) = CHECKS.check_plugin()
    assert finding.status is CheckStatus.BAD
    assert "airflow plugins" in finding.advice


@cases("cli")
def test_the_configuration(
    monkeypatch: pytest.MonkeyPatch, option: str, value: str, verdict: str, said: str
) -> None:
    monkeypatch.setenv(f"AIRFLOW__SPARK_DATAHUB__{option}", value)
    found = [result for result in CHECKS.check_configuration()[1] if result.status == verdict]
    assert said in found[0].message


@pytest.mark.slow
def test_a_connection_to_gms(monkeypatch: pytest.MonkeyPatch) -> None:
    with GmsStandIn("a-token") as gms:
        connect_to_gms(monkeypatch, "lineage", gms.url, password="a-token")
        found = list(CHECKS.check_connection())
        assert [(result.subject, result.status) for result in found] == [
            ("connection", CheckStatus.GOOD),
            ("DataHub", CheckStatus.GOOD),
            ("credentials", CheckStatus.GOOD),
            ("delivery", CheckStatus.GOOD),
        ]
        written = [(proposal["entityUrn"], proposal["aspectName"]) for proposal in gms.stored]
        assert written == [(_PROBE_PROPOSAL.entity_urn, "status")], "nobody sees it"


def test_nothing_is_delivered_with_refused_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with GmsStandIn("a-token") as gms:
        connect_to_gms(monkeypatch, "lineage", gms.url, password="another")
        assert [result.subject for result in CHECKS.check_connection()] == [
            "connection",
            "DataHub",
            "credentials",
        ]
        assert {request.method for request in gms.requests} == {"GET"}


def test_a_rejected_proposal_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with GmsStandIn() as gms:
        gms.reject(_PROBE_PROPOSAL.entity_urn)
        connect_to_gms(monkeypatch, "lineage", gms.url)
        *_, delivery = CHECKS.check_connection()
    assert (delivery.subject, delivery.status) == ("delivery", CheckStatus.BAD)
    assert "was rejected" in delivery.message


def test_the_probe_is_a_proposal_that_datahub_takes() -> None:
    assert canonical_violations(_PROBE_PROPOSAL.to_obj()) == []


def test_an_outbox_without_trouble(tmp_path: Path) -> None:
    found = list(replace(CHECKS, outbox=str(tmp_path)).check_outbox())
    assert {result.status for result in found} == {CheckStatus.GOOD}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_the_outbox_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    put(Outbox(storage))
    redo = unfinished_attempt(tmp_path / "none")
    Outbox(storage).begin(
        key(task_id="runs"), connection_id="datahub", events=None, redo=redo.to_obj()
    )
    storage.write(f"{Folder.QUARANTINED}/a/b.jsonl", [b"{}"])
    storage.write(f"{Folder.CORRUPT}/a/b.jsonl", [b"{}"])
    storage.write(f"{Folder.CORRUPT}/a/b.reason.txt", [b"torn"])
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_MAX_BYTES", "1000")
    words = {
        result.message: result.status
        for result in replace(CHECKS, outbox=str(tmp_path)).check_outbox()
    }
    (pending,) = (
        text for text in words if re.fullmatch(r"1 entry pending, the oldest for \d.*", text)
    )
    assert words[pending] is CheckStatus.WARNING
    assert words["1 entry quarantined"] is CheckStatus.WARNING
    assert words["1 entry corrupt"] is CheckStatus.WARNING


NEEDS_JAVA = '#!/bin/sh\n[ "$JAVA_HOME" ] || { echo JAVA_HOME is not set >&2; exit 1; }\n'


@pytest.mark.slow
@cases("cli")
def test_advice_helps_when_it_is_followed(
    sink: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: dict[str, str | None],
    advice: str,
    mended: dict[str, str],
) -> None:
    """:param mended: the new values, beside the old ones."""
    folder = sink.parent
    (folder / "file").touch()
    executable(folder / "spark/bin/spark-submit", NEEDS_JAVA)
    monkeypatch.setenv("JAVA_HOME", "/jdk")
    if "AIRFLOW__SPARK_DATAHUB__OUTBOX_MAX_BYTES" in broken:
        LocalStorage(folder / "outbox").write(f"{Folder.CORRUPT}/a/b.reason.txt", [b"x" * 950])
    with monkeypatch.context() as patch:
        for name, value in broken.items():
            patch.setenv(
                name, value.replace("{tmp}", str(folder))
            ) if value is not None else patch.delenv(name, raising=False)
        before = run("doctor")
    assert advice in before.stdout
    for name, value in mended.items():
        monkeypatch.setenv(name, value.replace("{tmp}", str(folder)))
    after = run("doctor")
    assert (after.exit_code, "→" in after.stdout) == (0, False), after.stdout


def test_event_files_that_no_entry_awaits_are_named(sink: Path) -> None:
    late = sink.parent / "events/shop/r1/build/late.ndjson"
    late.parent.mkdir(parents=True)
    late.touch()
    assert "→ read them with spark-datahub convert, then remove them" in run("doctor").stdout
    late.unlink()
    assert "→" not in run("doctor").stdout


@pytest.mark.usefixtures("sink")
def test_a_spark_submit_that_is_not_there() -> None:
    done = run("doctor", "--spark-submit", "/nope")
    assert (done.exit_code, "✗ Spark: There is no /nope" in done.stdout) == (1, True)


def spark(monkeypatch: pytest.MonkeyPatch, home: Path, jar: Path) -> list[CheckResult]:
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR", str(jar))
    options, _ = CHECKS.check_configuration()
    return list(CHECKS.check_spark(options))


@cases("cli")
def test_the_version_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, verdict: str
) -> None:
    home = spark_at(tmp_path / "spark", version)
    found, listener = spark(monkeypatch, home, openlineage_jar(tmp_path / "ol.jar"))
    assert (found.status, listener.status) == (verdict, CheckStatus.GOOD)
    assert f"Spark {version} in {home}" in found.message


@cases("cli")
def test_the_version_of_the_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, verdict: str
) -> None:
    *_, listener = spark(
        monkeypatch, spark_at(tmp_path / "spark"), openlineage_jar(tmp_path / name)
    )
    assert listener.status == verdict
