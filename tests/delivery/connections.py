"""Airflow connections in the environment; as JSON a connection keeps its type, as a URI it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def connect(monkeypatch: pytest.MonkeyPatch, connection_id: str, **connection: Any) -> None:
    """Define a connection."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{connection_id.upper()}", json.dumps(connection))


def connect_to_files(monkeypatch: pytest.MonkeyPatch, connection_id: str, folder: Path) -> None:
    """Define a connection whose sink writes files into a folder."""
    connect(monkeypatch, connection_id, conn_type="datahub-file", host=str(folder))


def connect_to_gms(
    monkeypatch: pytest.MonkeyPatch, connection_id: str, url: str, **more: Any
) -> None:
    """Define a connection to a GMS."""
    connect(monkeypatch, connection_id, conn_type="datahub-rest", host=url, **more)
