from tests.operators.conftest import _nothing_goes_on, airflow_configuration, spark

__all__ = ["_nothing_goes_on", "airflow_configuration", "spark"]
