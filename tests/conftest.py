"""Airflow reads AIRFLOW_HOME and writes its configuration there when it is imported: not the user's, for a test."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest

_HOME = tempfile.mkdtemp(prefix="airflow-unit-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

for _name in [name for name in os.environ if name.startswith(("AIRFLOW", "OPENLINEAGE_"))]:
    del os.environ[_name]
os.environ |= {"AIRFLOW_HOME": _HOME, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}

pytest_plugins = ["tests.servers.fixtures"]


@pytest.fixture(autouse=True)
def _circuits_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of other tests, of the same name, may have been down."""
    from airflow_provider_spark_datahub.delivery import failure as breaker

    monkeypatch.setattr(breaker, "_breakers", {})
