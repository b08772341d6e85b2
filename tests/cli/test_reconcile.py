"""Tables that DataHub knows under other names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import LineageSettings, SettingsError
from airflow_provider_spark_datahub.delivery.reconciliation import HeldDataset, reconcile
from tests.cases import cases
from tests.cli.commands import run
from tests.oracles.gms import GmsStandIn


def urn(name: str, platform: str = "hive", env: str = "PROD") -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:{platform},{name},{env})"


def described(*urns: str, location: str = "") -> list[HeldDataset]:
    return [HeldDataset(each, is_ghost=False, location=location) for each in urns]


@cases("cli")
def test_a_table_is_found_under_its_other_name(ours: str, theirs: str) -> None:
    found = reconcile([ours], described(theirs, urn("other.table")), LineageSettings())
    assert found == ({ours: theirs}, {}, ())


@cases("cli")
def test_another_table_is_not_taken_for_ours(ours: str, theirs: str) -> None:
    found = reconcile([ours], described(theirs), LineageSettings())
    assert found == ({}, {}, (ours,))


@pytest.mark.parametrize("platform", ["glue", "iceberg", "delta-lake"])
def test_a_table_behind_a_path_is_found_by_its_place(platform: str) -> None:
    held = described(urn("shop.orders", platform), location="s3a://lake/warehouse/orders")
    path = urn("lake/warehouse/orders", "s3")
    assert reconcile([path], held, LineageSettings()).same == {path: urn("shop.orders", platform)}


def test_several_candidates_are_listed_and_none_is_chosen() -> None:
    ours, several = urn("shop.orders"), [urn("shop.orders", "glue"), urn("Shop.Orders", "iceberg")]
    assert reconcile([ours], described(*several), LineageSettings()) == ({}, {ours: tuple(several)}, ())


def test_what_another_source_describes_keeps_its_name_and_ghosts_are_no_candidates() -> None:
    ours, ghost = urn("shop.orders"), HeldDataset(urn("SHOP.ORDERS"), is_ghost=True)
    assert reconcile([ours], [*described(ours, urn("shop.orders", "glue"))], LineageSettings()) == ({}, {}, ())
    assert reconcile([ours], [ghost, HeldDataset(ours, is_ghost=True)], LineageSettings()) == ({}, {}, (ours,))


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
    (ours, *_) = sorted(one["urn"] for one in before["datasets"] if "dataPlatform:hive" in one["urn"])
    theirs = (
        ours.replace("dataPlatform:hive,", "dataPlatform:glue,acme.")
        .upper()
        .replace("URN:LI:DATASET:(URN:LI:DATAPLATFORM:GLUE", "urn:li:dataset:(urn:li:dataPlatform:glue")
    )
    with GmsStandIn() as gms:
        gms.stored += [proposal(ours, "status", {"removed": False})]
        gms.stored += [proposal(theirs, "datasetProperties", {"name": "t", "customProperties": {}, "tags": []})]
        connection = {"conn_type": "datahub-rest", "host": gms.url}
        monkeypatch.setenv("AIRFLOW_CONN_GMS", json.dumps(connection))
        result = run("reconcile", events, "--connection", "gms", "--output", tmp_path / "map.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "map.json").read_text()) == {"dataset_urns": {ours: theirs}}
    after = run("convert", events, "--config", tmp_path / "map.json").stdout
    assert theirs in after
    assert ours not in after


def test_a_datahub_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Path(__file__).parents[1] / "data/corpus/events/a_csv_join_agg.ndjson"
    with GmsStandIn(token="right") as gms:
        connection = {"conn_type": "datahub-rest", "host": gms.url, "password": "wrong"}
        monkeypatch.setenv("AIRFLOW_CONN_GMS", json.dumps(connection))
        result = run("reconcile", events, "--connection", "gms")
    assert result.exit_code == 1
    assert "cannot be read" in result.stderr


def test_a_map_of_other_texts_is_refused() -> None:
    with pytest.raises(SettingsError, match="want URNs of datasets"):
        LineageSettings.from_mapping({"dataset_urns": {urn("a.b"): "glue.a.b"}})
