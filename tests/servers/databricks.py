"""A stand-in for the runs of Databricks' jobs, each a real Spark on a cluster of its own."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.loopback import Answer, AnsweringServer, Request
from tests.servers.managed_spark import Json, Run, Runs, State

_LIFE = ("PENDING", "RUNNING", "TERMINATING", "TERMINATED", "TERMINATED", "TERMINATED")
_RESULTS = {State.SUCCEEDED: "SUCCESS", State.FAILED: "FAILED", State.STOPPED: "CANCELED"}


class Databricks(AnsweringServer):
    """One workspace. :ivar runs: all runs, by their ids."""

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self.runs = runs

    def connection(self) -> Json:
        """Return the Airflow connection to it."""
        host, port = self.url.removeprefix("http://").split(":")
        return {
            "conn_type": "databricks",
            "host": host,
            "port": int(port),
            "schema": "http",
            "password": "token",
        }

    def answer(self, request: Request) -> Answer:
        """Start, show or cancel a run of one task."""
        url = urlsplit(request.path)
        body: Any = json.loads(request.body or b"{}")
        if url.path.endswith("/runs/submit"):
            return Answer(200, {"run_id": self._submit(body)})
        run_id = str(body.get("run_id") or parse_qs(url.query).get("run_id", [""])[0])
        if run_id not in self.runs.all:
            return Answer(
                404,
                {
                    "error_code": "RESOURCE_DOES_NOT_EXIST",
                    "message": f"Run {run_id} does not exist.",
                },
            )
        run = self.runs.all[run_id]
        if url.path.endswith("/runs/cancel"):
            self.runs.stop(run)
            return Answer(200, {})
        result = {"result_state": _RESULTS[run.state]} if run.state in _RESULTS else {}
        state = {"life_cycle_state": _LIFE[run.state], "state_message": "", **result}
        page = f"{self.url}/#job/1/run/{run_id}"
        cluster = {"cluster_instance": {"cluster_id": f"cluster-{run_id}"}}
        return Answer(
            200,
            {"run_id": int(run_id), "job_id": 1, "run_page_url": page, "state": state, **cluster},
        )

    def _submit(self, body: Json) -> int:
        python = body["spark_python_task"]
        command = ["spark-submit", python["python_file"], *python["parameters"]]
        conf = body["new_cluster"]["spark_conf"]
        run = Run(str(len(self.runs.all) + 1), body, command, conf)
        self.runs.start(run)
        return int(run.id)
