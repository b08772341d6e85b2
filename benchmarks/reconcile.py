"""Time and memory of ``reconcile`` beside a DataHub of many datasets, from a stand-in in another thread.

python benchmarks/reconcile.py [DATASETS]
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.delivery import reconcile
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, read_datasets
from tests.oracles.gms import GmsStandIn

OURS = 10_000


class LargeGms(GmsStandIn):
    """A GMS with many tables of Glue, which finds each at once."""

    def __init__(self, count: int) -> None:
        self.urns = [urn("glue", f"Acme.Db{number % 50}.Table_{number}") for number in range(count)]
        self.stored_names = frozenset(self.urns)
        super().__init__()
        self.stored = [{"entityUrn": each, "entityType": "dataset", "aspectName": "status"} for each in self.urns]

    def _held(self, urn: str, aspect_name: str) -> dict[str, Any] | None:
        known = aspect_name == "datasetProperties" and urn in self.stored_names
        return {"customProperties": {"Location": f"s3://lake/{urn[-20:]}"}, "tags": []} if known else None


def urn(platform: str, name: str) -> str:
    """Return a dataset's URN."""
    return f"urn:li:dataset:(urn:li:dataPlatform:{platform},{name},PROD)"


def main() -> None:
    """Print how long it takes, and how much it finds."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    ours = [urn("hive", f"db{number % 50}.table_{number}") for number in range(0, 2 * OURS, 2)]
    with LargeGms(count) as gms:
        began, cpu = time.perf_counter(), time.process_time()
        found = reconcile(ours, read_datasets(RestSettings(server=gms.url)), LineageSettings())
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} datasets in DataHub, {len(ours)} of ours: {len(found.same)} the same, {len(found.ambiguous)} "
          f"ambiguous; {wall:.0f} s, {cpu:.0f} s of CPU with the stand-in's, {memory:.0f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
