from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operators.tries import FakeSpark


@pytest.fixture(scope="session", autouse=True)
def _datahub_is_imported() -> None:
    """Importing acryl-datahub takes a second, which would count in what a task's lineage takes."""
    import datahub.emitter.rest_emitter  # noqa: F401


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSpark]:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    for kind in ("events", "outbox"):
        monkeypatch.setenv(f"AIRFLOW__SPARK_DATAHUB__{kind.upper()}_LOCATION", str(tmp_path / kind))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    spark = FakeSpark(tmp_path, monkeypatch.setenv)
    yield spark
    for thread in threading.enumerate():
        if thread.name in ("lineage-announcement", "lineage-delivery"):
            thread.join(20)
            assert not thread.is_alive()
