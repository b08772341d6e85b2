from pathlib import Path

import pytest

from tests.operators.conftest import _nothing_goes_on, airflow_configuration, spark
from tests.task.attempts import Try

__all__ = ["_nothing_goes_on", "airflow_configuration", "spark"]


@pytest.fixture
def one(tmp_path: Path) -> Try:
    return Try(tmp_path)
