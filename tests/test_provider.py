"""Provider info, configuration and entry points, as Airflow sees them."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.resources import files
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import BaseHook
from airflow.sdk import BaseOperator

import airflow_provider_spark_datahub
from airflow_provider_spark_datahub import get_provider_info as provider, operators
from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.hooks.datahub import sink_of
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.plugins import dag_run_listener, policy
from airflow_provider_spark_datahub.plugins.spark_datahub import SparkDatahubPlugin
from airflow_provider_spark_datahub.task import OPTIONS
from tests.airflow_versions import CONNECTION_FIELDS, new_listener_manager
from tests.delivery.connections import connect

PACKAGE = "airflow-provider-spark-datahub"


@pytest.fixture
def datahub_plugin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Make importlib believe that DataHub's own Airflow plugin is installed."""
    real = importlib.metadata.distribution

    def install(is_installed: bool) -> None:
        def distribution(name: str) -> Any:
            if name != "acryl-datahub-airflow-plugin":
                return real(name)
            if not is_installed:
                raise importlib.metadata.PackageNotFoundError(name)
            return object()

        monkeypatch.setattr(importlib.metadata, "distribution", distribution)

    return install


def test_provider_info_is_what_airflow_expects(datahub_plugin: Callable[[bool], None]) -> None:
    jsonschema: Any = importlib.import_module("jsonschema")
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    for is_installed in (False, True):
        datahub_plugin(is_installed)
        jsonschema.validate(provider.get_provider_info(), schema)


def test_connection_types_are_registered_once(datahub_plugin: Callable[[bool], None]) -> None:
    datahub_plugin(False)
    types = provider.get_provider_info()["connection-types"]
    assert [one["connection-type"] for one in types] == [
        "datahub-rest",
        "datahub-kafka",
        "datahub-file",
        "datahub-object-store",
    ]
    datahub_plugin(True)
    types = provider.get_provider_info()["connection-types"]
    assert [one["connection-type"] for one in types] == ["datahub-object-store"]


def test_hooks_are_those_of_the_connection_types(datahub_plugin: Callable[[bool], None]) -> None:
    datahub_plugin(False)
    for one in provider.get_provider_info()["connection-types"]:
        module, _, name = one["hook-class-name"].rpartition(".")
        hook = getattr(importlib.import_module(module), name)
        assert issubclass(hook, BaseHook)
        assert (hook.conn_type, hook.hook_name) == (one["connection-type"], one["hook-name"])


def test_every_operator_and_every_hook_is_listed() -> None:
    """Airflow's registry and documentation show what provider info lists."""
    info, package = (
        provider.get_provider_info(),
        Path(airflow_provider_spark_datahub.__file__).parent,
    )
    for section, base in (("operators", BaseOperator), ("hooks", BaseHook)):
        listed = {module for entry in info[section] for module in entry["python-modules"]}
        for path in (package / section).glob("[!_]*.py"):
            module = importlib.import_module(f"{package.name}.{section}.{path.stem}")
            own = (
                value
                for value in vars(module).values()
                if getattr(value, "__module__", "") == module.__name__
            )
            if any(isinstance(value, type) and issubclass(value, base) for value in own):
                assert module.__name__ in listed


def test_the_folder_of_the_operators_offers_them_and_imports_them_late() -> None:
    program = "import sys; from airflow_provider_spark_datahub import operators; print('airflow' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"False\n"
    names = [name for name in dir(operators) if name.endswith("Operator")]
    assert SparkSubmitDatahubOperator in [getattr(operators, name) for name in names]
    page = Path(__file__).parents[1].joinpath("docs/launchers.md").read_text()
    assert {*re.findall(r"`(\w+DatahubOperator)`", page)} <= {*names}


def test_the_fields_of_the_forms_are_settings_of_their_sinks(
    datahub_plugin: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AWS_EC2_METADATA_DISABLED", "true"
    )  # nobody is asked for keys where a connection has none
    samples = {"string": "a", "number": 2, "integer": 2, "boolean": True}
    hosts = {
        "datahub-rest": "http://gms:8080",
        "datahub-kafka": "b:9092",
        "datahub-object-store": "s3://lake",
    }
    datahub_plugin(False)
    for one in provider.get_provider_info()["connection-types"]:
        for name, field in one.get("conn-fields", {}).items():
            schema = field["schema"]
            assert field["label"]
            assert field["description"]
            sample = schema["enum"][1] if "enum" in schema else samples[schema["type"][0]]
            host = hosts[one["connection-type"]]
            extra = {
                name: sample,
                **({"client_certificate_path": "a"} if name == "client_key_path" else {}),
            }
            conn_type = one["connection-type"]
            connect(monkeypatch, "lineage", conn_type=conn_type, host=host, extra=extra)
            connect(monkeypatch, "a", conn_type="aws")
            assert sink_of("lineage").name


@CONNECTION_FIELDS
def test_airflow_has_the_fields_in_its_forms() -> None:
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService

    forms = {form.connection_type: form for form in HookMetaService.hook_meta_data()}
    fields: Any = forms["datahub-kafka"].extra_fields
    assert fields["ssl_private_key"]["schema"]["format"] == "password"
    assert fields["security_protocol"]["schema"]["enum"][-1] == "SASL_SSL"


def test_integrations_of_operators_and_hooks_are_described() -> None:
    info = provider.get_provider_info()
    described = {one["integration-name"] for one in info["integrations"]}
    assert {one["integration-name"] for one in (*info["operators"], *info["hooks"])} <= described


def test_every_argument_has_a_default_in_the_configuration() -> None:
    parameters = signature(SparkSubmitDatahubOperator.__init__).parameters.values()
    arguments = {one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY}
    options = provider.get_provider_info()["config"]["spark_datahub"]["options"]
    assert options.keys() - arguments == {
        "auto",
        "datahub_url",
        "event_log_conn_id",
        "outbox_max_bytes",
        "group_access",
    }
    assert arguments - options.keys() <= {"emit_assets"}, "outlets are a task's own"
    assert all(option["description"] for option in options.values())


def test_the_configuration_page_has_every_option_and_setting() -> None:
    page = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = {
        name
        for row in re.findall(r"^\| (`[^|]*)\|", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    of_datahub = {"capture_ownership_info", "capture_ownership_as_group", "capture_tags_info"}
    settable = [setting.name for setting in fields(LineageSettings) if setting.metadata]
    assert rows == {*OPTIONS, *settable, "emit_assets", *of_datahub}


def test_entry_points() -> None:
    found = {
        (entry.group, entry.name): entry.load()
        for entry in importlib.metadata.distribution(PACKAGE).entry_points
    }
    assert found["apache_airflow_provider", "provider_info"] is provider.get_provider_info
    assert found["airflow.plugins", "spark_datahub"] is SparkDatahubPlugin
    assert callable(found["console_scripts", "spark-datahub"])
    assert found["airflow.policy", "spark_datahub"] is policy
    assert len(found) == 4


def test_airflow_loads_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dag_run_listener in new_listener_manager(monkeypatch).pm.get_plugins()


def test_version_is_the_packages() -> None:
    assert importlib.metadata.version(PACKAGE) == airflow_provider_spark_datahub.__version__
