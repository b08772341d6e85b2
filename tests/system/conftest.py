from __future__ import annotations

import os

import pytest

from tests.system.airflow_home import AirflowHome


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> AirflowHome:
    """Return this worker's home. All workers' homes are copies of one migrated database."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    return AirflowHome.create(tmp_path_factory.mktemp("airflow"), shared / "airflow-template.db")
