"""Airflow provider that delivers the lineage of Spark jobs, recorded by OpenLineage, to DataHub."""

from __future__ import annotations

__version__ = "0.1.0"
