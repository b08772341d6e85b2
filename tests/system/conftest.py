from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.system.airflow_home import AirflowHome


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowHome]:
    """Give this worker's home. All workers' homes are copies of one migrated database."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with AirflowHome.create(
        tmp_path_factory.mktemp("airflow"), shared / "airflow-template.db"
    ) as home:
        yield home
