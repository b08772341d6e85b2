"""Tables that DataHub knows under other names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datahub.utilities.urn_aliases.resolver import UrnAliasResolver

from airflow_provider_spark_datahub.conversion import LineageSettings, SettingsError
from airflow_provider_spark_datahub.conversion.history.changes import Fingerprint, Use
from airflow_provider_spark_datahub.delivery.outbox import Histories
from airflow_provider_spark_datahub.delivery.reconciliation import HeldDataset, Reconciliation
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.cases import cases
from tests.cli.commands import run
from tests.conversion.builders import Json, file, query, texts, whole_application
from tests.delivery.connections import connect_to_gms
from tests.delivery.outboxes import outbox_at
from tests.oracles.gms import GmsStandIn

reconcile = Reconciliation.of


def urn(name: str, platform: str = "hive", env: str = "PROD") -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:{platform},{name},{env})"


def described(*urns: str, location: str = "") -> list[HeldDataset]:
    return [HeldDataset(each, is_ghost=False, location=location) for each in urns]


@cases("cli")
def test_a_table_is_found_under_its_other_name(ours: str, theirs: str) -> None:
    found = reconcile([ours], described(theirs, urn("other.table")), LineageSettings())
    assert found[:3] == ({ours: theirs}, {}, [])


@cases("cli")
def test_another_table_is_not_taken_for_ours(ours: str, theirs: str) -> None:
    found = reconcile([ours], described(theirs), LineageSettings())
    assert found[:3] == ({}, {}, [ours])


@pytest.mark.parametrize("platform", ["glue", "iceberg", "delta-lake"])
def test_a_table_behind_a_path_is_found_by_its_place(platform: str) -> None:
    held = described(urn("shop.orders", platform), location="s3a://lake/warehouse/orders")
    path = urn("lake/warehouse/orders", "s3")
    assert reconcile([path], held, LineageSettings()).same == {path: urn("shop.orders", platform)}


@pytest.mark.parametrize("location", ["file:/lake/orders", "file:///lake/orders/"])
def test_the_place_of_a_table_may_have_no_authority(location: str) -> None:
    held, path = described(urn("shop.orders"), location=location), urn("/lake/orders", "file")
    assert reconcile([path], held, LineageSettings()).same == {path: urn("shop.orders")}


@pytest.mark.parametrize("name", ["lake/orders", "shop.orders"])
def test_only_one_of_two_sources_has_an_instance(name: str) -> None:
    bare, held = urn(name, "s3"), urn(f"eu.{name}", "s3")
    assert reconcile(
        [bare], [HeldDataset(held, is_ghost=False, instance="eu")], LineageSettings()
    ).same == {bare: held}
    settings = LineageSettings(dataset_platform_instance="eu")
    assert reconcile([held], described(bare), settings).same == {held: bare}


def test_tables_of_two_catalogues_are_never_taken_for_one() -> None:
    ours, dev, prod = (
        urn("main.shop.orders"),
        urn("dev.shop.orders", "unity-catalog"),
        urn("main.shop.orders", "glue"),
    )
    assert reconcile([ours], described(dev), LineageSettings())[:2] == ({}, {ours: (dev,)})
    assert reconcile([ours], described(dev, prod), LineageSettings())[:2] == ({ours: prod}, {})


@pytest.mark.parametrize(
    "names", [("db.Straße", "db.STRASSE"), ("db.straße", "DB.STRAßE"), ("db.ÄΣ", "DB.äς")]
)
def test_names_that_differ_in_case_are_one_for_acryl_datahubs_resolver_too(
    names: tuple[str, str],
) -> None:
    ours, held = map(urn, names)
    resolver = UrnAliasResolver()
    resolver.add(held)
    assert [
        *reconcile([ours], described(held), LineageSettings()).same.values()
    ] == resolver.find_match(ours)


def test_several_candidates_are_listed_and_none_is_chosen() -> None:
    ours, several = urn("shop.orders"), [urn("shop.orders", "glue"), urn("Shop.Orders", "iceberg")]
    assert reconcile([ours], described(*several), LineageSettings())[:3] == (
        {},
        {ours: tuple(several)},
        [],
    )


def test_what_another_source_describes_keeps_its_name_and_ghosts_are_no_candidates() -> None:
    ours, ghost = urn("shop.orders"), HeldDataset(urn("SHOP.ORDERS"), is_ghost=True)
    assert reconcile([ours], [*described(ours, urn("shop.orders", "glue"))], LineageSettings())[
        :3
    ] == ({}, {}, [])
    assert reconcile([ours], [ghost, HeldDataset(ours, is_ghost=True)], LineageSettings())[:3] == (
        {},
        {},
        [ours],
    )


def proposal(dataset: str, aspect: str, content: dict[str, object]) -> dict[str, object]:
    return {
        "entityType": "dataset",
        "entityUrn": dataset,
        "changeType": "UPSERT",
        "aspectName": aspect,
        "aspect": {"contentType": "application/json", "value": json.dumps(content)},
    }


def test_the_map_of_datahubs_datasets_names_them_in_the_next_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Path(__file__).parents[1] / "data/corpus/events/b_multi_sql_hive.ndjson"
    before = json.loads(run("show", events, "--json").stdout)
    (ours, *_) = sorted(
        one["urn"] for one in before["datasets"] if "dataPlatform:hive" in one["urn"]
    )
    theirs = (
        ours.replace("dataPlatform:hive,", "dataPlatform:glue,acme.")
        .upper()
        .replace(
            "URN:LI:DATASET:(URN:LI:DATAPLATFORM:GLUE", "urn:li:dataset:(urn:li:dataPlatform:glue"
        )
    )
    with GmsStandIn() as gms:
        gms.stored += [proposal(ours, "status", {"removed": False})]
        gms.stored += [
            proposal(theirs, "datasetProperties", {"name": "t", "customProperties": {}, "tags": []})
        ]
        connect_to_gms(monkeypatch, "gms", gms.url)
        result = run("reconcile", events, "--connection", "gms", "--output", tmp_path / "map.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "map.json").read_text()) == {"dataset_urns": {ours: theirs}}
    after = run("convert", events, "--config", tmp_path / "map.json").stdout
    assert theirs in after
    assert ours not in after


def keep(histories: Histories, *paths: str, day: int = 1, task: str = "build") -> None:
    """Keep the fingerprint of a run that wrote these datasets."""
    key = AttemptKey("shop", f"scheduled__{day}", task, -1, 1)
    outputs = {path: Use() for path in paths}
    histories.write(
        Fingerprint(key, 10**12 + day, 10**12 + day + 1, True, outputs=outputs), max_age=1e9
    )


def a_path_a_day(histories: Histories, name: str, task: str = "build") -> list[str]:
    """Keep the fingerprints of a task that wrote another path on each of three days; return the
    URNs.
    """
    paths = [urn(name.format(day), "file") for day in (1, 2, 3)]
    for day, path in enumerate(paths, 1):
        keep(histories, path, day=day, task=task)
    return paths


def reconciled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *stored: Json, options: Sequence[object] = ()
) -> Any:
    """Return the map and the messages if DataHub has these aspects and our lineage is in the
    outbox.
    """
    with GmsStandIn() as gms:
        gms.stored += stored
        connect_to_gms(monkeypatch, "gms", gms.url)
        result = run("reconcile", "--outbox", tmp_path, "--connection", "gms", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def ghost(dataset: str) -> Json:
    return proposal(dataset, "status", {"removed": False})


def test_a_table_a_day_gets_one_path_spec_with_which_the_next_day_is_no_new_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = a_path_a_day(Histories(outbox_at(tmp_path).storage), "/lake/out/orders_2026112{}")
    older = [urn(f"/lake/out/orders_202610{day}", "file") for day in range(10, 31)]
    before = tmp_path / "before.json"
    before.write_text(
        json.dumps({"path_specs": {"file": {"a": ["/raw/{table}"], "b": {"env": "QA"}}}})
    )
    found, said = reconciled(
        tmp_path, monkeypatch, *map(ghost, [*ours, *older]), options=["--config", before]
    )
    counts = "0 known by lineage alone, 1 table with another path in each run"
    new = {"path_spec_list": ["/lake/{table}"]}
    expected = {"a": {"path_spec_list": ["/raw/{table}"]}, "b": {"env": "QA"}, "spec2": new}
    assert found == {"dataset_urns": {}, "path_specs": {"file": expected}}
    assert said.splitlines() == [
        f'24 datasets such as {ours[2]}: path_specs={{"file": ["/lake/{{table}}"]}} makes them /lake/out',
        f"3 datasets: 0 named otherwise in DataHub, 0 ambiguous, {counts}",
    ]
    (tmp_path / "map.json").write_text(json.dumps(found))
    events = tmp_path / "events.ndjson"
    events.write_bytes(
        b"\n".join(texts(whole_application(query(outputs=[file("/lake/out/orders_20261124")]))))
    )
    converted = run("convert", events, "--config", tmp_path / "map.json").stdout
    assert urn("/lake/out", "file") in converted
    assert "orders_2026" not in converted


@cases("cli")
def test_a_path_spec_with_another_effect_is_listed_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, task: str, reason: str
) -> None:
    histories = Histories(outbox_at(tmp_path).storage)
    a_path_a_day(histories, "/lake/out/orders_2026112{}")
    if task:
        a_path_a_day(histories, task, task="other")
    content: Json = {"customProperties": {}, "tags": []}
    held = [proposal(urn(other, "file"), "datasetProperties", content)] if other else []
    found, said = reconciled(tmp_path, monkeypatch, *held)
    assert found == {"dataset_urns": {}}
    reason = re.sub("<urn:(.*?)>", lambda name: urn(name[1], "file"), reason)
    assert f"makes them /lake/out, but {reason}: left out\n" in said


def test_tables_whose_names_differ_in_digits_too_get_a_path_spec_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = Histories(outbox_at(tmp_path).storage)
    for day in (1, 2, 3):
        paths = [urn(f"/lake/area{area}/out/day_{day}", "file") for area in (1, 2)]
        keep(histories, *paths, day=day)
    ghosts = [
        ghost(urn(f"/lake/area{area}/out/day_{day}", "file"))
        for area in (1, 2)
        for day in range(10, 20)
    ]
    found, said = reconciled(tmp_path, monkeypatch, *ghosts)
    specs = [spec["path_spec_list"] for spec in found["path_specs"]["file"].values()]
    assert sorted(specs) == [["/lake/area1/{table}"], ["/lake/area2/{table}"]]
    assert said.count("13 datasets such as ") == 2


def test_the_instance_of_a_path_is_known_from_datahub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, ghosts, held = (
        urn("lake/orders", "s3"),
        urn("us.lake/orders", "s3"),
        urn("eu.lake/orders", "s3"),
    )
    keep(Histories(outbox_at(tmp_path).storage), ours)
    stored = []
    for dataset, name in ((held, "eu"), (ghosts, "us")):
        instance = f"urn:li:dataPlatformInstance:(urn:li:dataPlatform:s3,{name})"
        content: Json = {"platform": "urn:li:dataPlatform:s3", "instance": instance}
        stored.append(proposal(dataset, "dataPlatformInstance", content))
    stored.append(proposal(held, "datasetProperties", {"customProperties": {}, "tags": []}))
    assert reconciled(tmp_path, monkeypatch, *stored)[0] == {"dataset_urns": {ours: held}}


def test_datasets_that_differ_only_in_digits_are_counted_and_no_table_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One run wrote them: they may be parts of one table, or tables.
    paths = [urn(f"/lake/sensor_{number}", "file") for number in (1, 2)]
    keep(Histories(outbox_at(tmp_path).storage), *paths)
    found, said = reconciled(tmp_path, monkeypatch, ghost(urn("/lake/sensor_3", "file")))
    assert found == {"dataset_urns": {}}
    assert (
        f"3 datasets may be one: they differ from {paths[0]} only in digits, dates and UUIDs"
        in said
    )


def test_a_datahub_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Path(__file__).parents[1] / "data/corpus/events/a_csv_join_agg.ndjson"
    with GmsStandIn(token="right") as gms:
        connect_to_gms(monkeypatch, "gms", gms.url, password="wrong")
        result = run("reconcile", events, "--connection", "gms")
    assert result.exit_code == 1
    assert "cannot be read" in result.stderr


def test_a_map_of_other_texts_is_refused() -> None:
    with pytest.raises(SettingsError, match="want URNs of datasets"):
        LineageSettings.from_mapping({"dataset_urns": {urn("a.b"): "glue.a.b"}})
