"""Tests of airflow-provider-spark-datahub; the folders mirror the package."""
