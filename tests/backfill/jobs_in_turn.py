"""One Spark for several backfills: each line of the standard input is a plan, each line of the
output how it ended.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from airflow_provider_spark_datahub.backfill.spark_job import _main

for plan in sys.stdin:
    report = io.StringIO()
    with contextlib.redirect_stderr(report):
        code = _main(plan)
    print(json.dumps({"code": code, "report": report.getvalue()}), flush=True)  # noqa: T201 (read by the test)
