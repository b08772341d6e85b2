"""A stand-in for Apache Livy's batches that runs the real ``spark-submit`` of its PATH."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.servers.loopback import Answer, AnsweringServer, Request

Json = dict[str, Any]


class Livy(AnsweringServer):
    """Batches, each a process. :ivar batches: the posted requests."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.batches: list[Json] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        super().__init__()

    def post(self, batch: Json) -> Json:
        self.batches.append(batch)
        options = [
            part
            for name, value in batch.get("conf", {}).items()
            for part in ("--conf", f"{name}={value}")
        ]
        options += ["--jars", ",".join(batch["jars"])] if batch.get("jars") else []
        options += ["--name", batch["name"]] if batch.get("name") else []
        command = [
            "spark-submit",
            "--master",
            "local[1]",
            *options,
            batch["file"],
            *map(str, batch.get("args", [])),
        ]
        with self._log.open("ab") as log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        return self.show(len(self.batches) - 1)

    def show(self, number: int) -> Json:
        code = self._processes[number].poll()
        state = "running" if code is None else "dead" if code else "success"
        return {
            "id": number,
            "state": state,
            "appId": f"app-{number}",
            "log": [],
            "total": 0,
            "from": 0,
        }

    def delete(self, number: int) -> Json:
        self._processes[number].kill()
        return {"msg": "deleted"}

    def answer(self, request: Request) -> Answer:
        """Start, show or stop a batch."""
        if request.method == "POST":
            return Answer(200, self.post(json.loads(request.body)))
        number = int(request.path.split("/")[2])
        return Answer(200, self.show(number) if request.method == "GET" else self.delete(number))

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for process in self._processes:
            process.kill()
            process.wait(20)
