"""Airflow plugins: what the scheduler and the UI load of this package."""
