"""Stands in for ``spark-submit``: notes its arguments, and carries the plan out without Spark."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from airflow_provider_spark_datahub.backfill.plan import BackfillPlan
from tests.backfill.results import carry_out

if __name__ == "__main__":
    with Path(os.environ["FAKE_SPARK_CALLS"]).open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    if status := int(os.environ.get("FAKE_SPARK_STATUS", "0")):
        sys.exit(status)
    carry_out(BackfillPlan.from_json(sys.argv[-1]))
