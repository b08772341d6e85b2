from __future__ import annotations

import pytest

from tests.system.airflow_home import AirflowHome


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> AirflowHome:
    """One for all tests: its database takes some 15 seconds."""
    return AirflowHome.create(tmp_path_factory.mktemp("airflow"))
