"""Hooks: Airflow connections to DataHub."""
