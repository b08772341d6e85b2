"""Copies a CSV file to parquet, lets the task's time run out, and hangs until its JVM is gone."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

source, target, jvm_pid, task_pid = sys.argv[1:5]
jvm = os.getppid()
spark = SparkSession.builder.getOrCreate()
spark.read.csv(source, header=True).write.mode("overwrite").parquet(target)
events = Path(spark.conf.get("spark.openlineage.transport.location", "") or "")
# The listener writes behind the job's back.
while not any(
    '"eventType":"COMPLETE"' in line and f'"name":"{target}"' in line for line in events.open()
):
    time.sleep(0.1)
Path(jvm_pid).write_text(str(jvm))
# The task's execution_timeout, which is this signal, at the one moment that does not depend on the
# machine's speed.
os.kill(int(task_pid), signal.SIGALRM)
while os.getppid() == jvm:
    time.sleep(0.1)
