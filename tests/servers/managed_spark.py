"""Runs of managed Spark services, each a real ``spark-submit`` on this machine with the service's
own defaults.

A driver has what a service gives it: the service's ``spark-defaults.conf``, S3A under ``s3://`` and
the role's keys. What ``spark-submit`` gets is what the request says, but for master and deploy
mode: there is no YARN here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Self

from tests.patience import join
from tests.servers.gcs import Gcs
from tests.servers.process import files_of
from tests.servers.s3 import ACCESS_KEY, S3, SECRET_KEY

Json = dict[str, Any]
_OF_THE_WORKER = ("AIRFLOW", "AWS_", "SPARK_HOME")
_SPARK = Path(__file__).parents[2] / ".venv-spark"


class State(IntEnum):
    """State of a run, which is also the index of a service's name for it."""

    PENDING, RUNNING, STOPPING, SUCCEEDED, FAILED, STOPPED = range(6)


@dataclass(eq=False)
class Run:
    """A run of ``command``, as ``request`` asked for it, with ``defaults`` over those of the
    service.
    """

    id: str
    request: Json
    command: Sequence[str]
    defaults: Mapping[str, str] = field(default_factory=dict)
    state: State = State.PENDING
    process: subprocess.Popen[bytes] | None = None


class Runs:
    """The runs of a service. :ivar folder: has a folder for each, with what the driver printed in
    ``driver.log``.
    """

    def __init__(self, folder: Path, s3: S3, gcs: Gcs | None = None) -> None:
        self.folder = folder
        self.all: dict[str, Run] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._defaults = {
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": s3.url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            **(gcs.spark_properties() if gcs else {}),
        }
        self._env = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(_OF_THE_WORKER)
            },
            "PATH": f"{_SPARK / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(_SPARK / "bin/python"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DIST_CLASSPATH": f"{files_of('s3a')}/*",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def start(self, *runs: Run) -> None:
        """Start them, one after the other."""
        self.all.update({run.id: run for run in runs})
        thread = threading.Thread(
            target=self._run, args=runs, name=f"runs {[run.id for run in runs]}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def stop(self, run: Run, number: signal.Signals = signal.SIGTERM) -> None:
        """End a run by a signal to its processes; one that waits does not start."""
        with self._lock:
            if run.state is State.PENDING:
                run.state = State.STOPPED
            elif run.state < State.SUCCEEDED and run.process:
                run.state = State.STOPPING
                with suppress(ProcessLookupError):
                    os.killpg(run.process.pid, number)

    def _run(self, *runs: Run) -> None:
        for run in runs:
            with self._lock:
                process = run.process = self._begin(run) if run.state is State.PENDING else None
                run.state = State.RUNNING if process else run.state
            if process:
                ended = State.FAILED if process.wait() else State.SUCCEEDED
                with self._lock:
                    run.state = State.STOPPED if run.state is State.STOPPING else ended

    def _begin(self, run: Run) -> subprocess.Popen[bytes]:
        folder = self.folder / run.id
        folder.mkdir(parents=True)
        defaults = {**self._defaults, **run.defaults}
        lines = (f"{name}={value}".replace("\\", "\\\\") for name, value in defaults.items())
        (folder / "spark-defaults.conf").write_text("\n".join(lines))
        command = list(_without_yarn(run.command))
        with (folder / "driver.log").open("wb") as log:
            env = {**self._env, "SPARK_CONF_DIR": str(folder)}
            return subprocess.Popen(
                command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self.all.values():
            self.stop(run, signal.SIGKILL)
        for thread in self._threads:
            join(thread)


def _without_yarn(command: Sequence[str]) -> Iterator[str]:
    words = iter(command)
    for word in words:
        if word in ("--master", "--deploy-mode"):
            next(words)
        else:
            yield word
