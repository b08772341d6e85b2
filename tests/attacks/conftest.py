from __future__ import annotations

from tests.operators.conftest import airflow_configuration, spark

__all__ = ["airflow_configuration", "spark"]
