"""Airflow plugins: the parts of this package that the scheduler and the UI load."""
