"""Names that Airflow's versions have in different places."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

AIRFLOW = tuple(int(part) for part in version("apache-airflow").split(".")[:2])

_SERIALIZATION = importlib.import_module("airflow.serialization.serialized_objects")

DagSerialization: Any = getattr(_SERIALIZATION, "DagSerialization", None) or _SERIALIZATION.SerializedDAG
"""Writes DAGs as the database keeps them; before Airflow 3.2, ``SerializedDAG`` does."""
