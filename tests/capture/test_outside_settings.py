from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import Submission, overridden_transport
from tests.cases import cases

WITH_TRANSPORT = "facets: {}\ntransport:\n  type: http\n"
WITHOUT_TRANSPORT = "facets:\n  transport: {}\n# transport:\n"


@cases("capture")
def test_the_setting_that_switches_the_listener_off_is_named(
    properties: dict[str, object], env: dict[str, str], by: str | None
) -> None:
    assert Submission(properties).disabled_by(env) == by
    defaults = {name: str(value) for name, value in properties.items()}
    assert Submission(base_properties=defaults).disabled_by(env) == by


def test_without_a_transport_outside_spark_nothing_is_overridden(tmp_path: Path) -> None:
    assert overridden_transport({"OPENLINEAGE_URL": "x"}, tmp_path, tmp_path) is None


def test_a_transport_in_the_environment_is_overridden(tmp_path: Path) -> None:
    env = {"OPENLINEAGE__TRANSPORT__URL": "http://h", "OPENLINEAGE__TRANSPORT__TYPE": "http"}
    assert overridden_transport(env, tmp_path, tmp_path) == "the environment variable OPENLINEAGE__TRANSPORT__TYPE"


@pytest.mark.parametrize("name", ["named.yml", "folder/openlineage.yml", "home/.openlineage/openlineage.yml"])
@pytest.mark.parametrize(("text", "replaced"), [(WITH_TRANSPORT, True), (WITHOUT_TRANSPORT, False)])
def test_a_transport_in_a_configuration_file_is_overridden(
    tmp_path: Path, name: str, text: str, replaced: bool
) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    env = {"OPENLINEAGE_CONFIG": str(tmp_path / "named.yml")}
    found = overridden_transport(env, tmp_path / "folder", tmp_path / "home")
    assert found == (str(file) if replaced else None)


def test_only_the_first_configuration_file_counts(tmp_path: Path) -> None:
    (tmp_path / "openlineage.yml").write_text(WITHOUT_TRANSPORT)
    (tmp_path / ".openlineage").mkdir()
    (tmp_path / ".openlineage/openlineage.yml").write_text(WITH_TRANSPORT)
    assert overridden_transport({}, tmp_path, tmp_path) is None


def test_an_unreadable_configuration_file_overrides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "openlineage.yml").touch()

    def refuse(*_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert overridden_transport({}, tmp_path, tmp_path) is None
