from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.capture import InjectionError, event_file, event_log_folder, unused_path
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.cases import cases

ROOT = Path("/events")
KEY = AttemptKey("shop.daily", "scheduled__2026-01-01T00:00:00+00:00", "load.orders", -1, 2)
TI_ID = "0199-aa"

ids = st.text(max_size=250) | st.sampled_from(["..", ".", "/", "../../etc", "a:b+c", " ", "\ud800", "-rf", "n" * 250])
keys = st.builds(AttemptKey, ids, ids, ids, st.integers(-1, 10**6), st.integers(0, 99))


def test_the_path_of_an_event_file_shows_dag_run_task_and_try() -> None:
    path = event_file(ROOT, KEY)
    assert path.parent == ROOT / "shop_daily" / "scheduled__2026-01-01T00_00_00_00_00" / "load_orders"
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
def test_two_attempts_never_share_a_file(first: tuple[AttemptKey, str], other: tuple[AttemptKey, str]) -> None:
    assert (event_file(ROOT, *first) == event_file(ROOT, *other)) is (first == other)


@cases("capture")
def test_attempts_with_similar_paths_have_files_of_their_own(other: dict[str, Any]) -> None:
    assert event_file(ROOT, replace(KEY, **other)) != event_file(ROOT, KEY)


def test_an_attempt_that_is_run_again_has_a_file_of_its_own() -> None:
    assert event_file(ROOT, KEY, TI_ID) != event_file(ROOT, KEY, "0199-ab")


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
