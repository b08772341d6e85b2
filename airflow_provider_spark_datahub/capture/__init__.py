"""From the task to the events: what spark-submit is told, and what is read back. Knows neither Airflow nor DataHub."""
