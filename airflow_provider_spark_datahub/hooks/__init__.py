"""Hooks: Airflow's context, and its connections to DataHub and to object stores."""
