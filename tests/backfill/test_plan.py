from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.backfill.plan import BackfillPlan, PlanError, folder_uri
from airflow_provider_spark_datahub.conversion import SettingsError
from airflow_provider_spark_datahub.conversion.archive import ArchiveFilter
from tests.cases import cases

PLAN = BackfillPlan(
    sources=("/events", "s3a://bucket/events"),
    out="file:///out",
    options=({"env": "DEV"}, {"path_specs": {"file": {"a": {"path_spec_list": ["/lake/{table}"]}}}}),
    since="2026-01-01",
    until="2026-04-01T00:00:00+02:00",
    applications=("shop*",),
    run_history=True,
    parts=7,
)


def test_a_plan_survives_its_way_to_the_cluster() -> None:
    assert BackfillPlan.from_json(PLAN.to_json()) == PLAN


def test_settings_filter_and_paths_of_a_plan() -> None:
    assert PLAN.settings().env == "DEV"
    assert PLAN.archive_filter() == ArchiveFilter(1767225600000, 1774994400000, ("shop*",), run_history=True)
    assert PLAN.path("proposals") == "file:///out/proposals"


@cases("backfill")
def test_times_that_make_no_sense_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        replace(PLAN, **change).archive_filter()  # type: ignore[arg-type]


def test_the_error_names_a_wrong_option() -> None:
    with pytest.raises(SettingsError, match="enviroment"):
        replace(PLAN, options=({"enviroment": "DEV"},)).settings()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sources": []}', PLAN.to_json().replace("parts", "pieces")])
def test_text_that_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="not the plan of a backfill"):
        BackfillPlan.from_json(text)


def test_a_folder_belongs_to_one_plan() -> None:
    PLAN.check_folder(replace(PLAN, dry_run=True).to_json())
    with pytest.raises(PlanError, match="another backfill"):
        PLAN.check_folder(replace(PLAN, until=None).to_json())


def test_a_path_is_one_on_a_disk_whatever_the_cluster_takes_it_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_uri("out") == f"file://{tmp_path}/out"
    assert folder_uri("/out") == "file:///out"
    assert folder_uri("s3a://bucket/out/") == "s3a://bucket/out"
