"""Airflow's command line, without the ten seconds that each command spends on importing Airflow.

This process imports Airflow once, and forks for each command: the child reads its own environment,
initializes Airflow as ``import airflow`` does, and runs the ``main`` that the command ``airflow``
runs. It listens at a Unix socket, the argument, and reads a command from each line of a connection.
It answers with the command's exit status; of one that goes on in the background, with its process
id. Each connection has a fork of its own; the process ends after the last.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

_LIBRARY = "_AIRFLOW__AS_LIBRARY"
_SECONDS_FOR_A_CLIENT = 60.0
_IMPORTED = (
    "a2wsgi",
    "airflow.__main__",
    "airflow.api_fastapi.execution_api.app",
    "airflow.api_fastapi.execution_api.routes",
    "airflow.api_fastapi.execution_api.versions",
    "airflow.cli.commands.connection_command",
    "airflow.cli.commands.dag_command",
    "airflow.cli.commands.db_command",
    "airflow.providers.apache.spark.operators.spark_submit",
    "airflow.providers.standard.operators.python",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "datahub.emitter.mcp",
    "datahub.metadata.schema_classes",
)


def serve(address: Path) -> None:
    """Import Airflow, and listen in a process that goes on after this one has ended."""
    os.environ[_LIBRARY] = "1"  # nothing is initialized before the fork
    gc.disable()
    for module in _IMPORTED:
        importlib.import_module(module)
    importlib.import_module("airflow.models").import_all_models()
    importlib.import_module("sqlalchemy.orm").configure_mappers()
    asyncio.run(
        _build_routes(
            importlib.import_module("airflow.sdk.execution_time.supervisor")
            .in_process_api_server()
            .app
        )
    )
    # Imported modules stay, and are shared with the forks as long as no collector writes to it.
    gc.freeze()
    gc.enable()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        if os.fork():
            os._exit(0)
        os.dup2(2, 1)
        _listen(listener, address)


def _listen(listener: socket.socket, address: Path) -> None:
    clients: set[int] = set()
    end = time.monotonic() + _SECONDS_FOR_A_CLIENT
    while True:
        if select.select([listener], [], [], 0.5)[0]:
            connection, _ = listener.accept()
            child = os.fork()
            if not child:
                listener.close()
                _serve_client(connection)
                return
            connection.close()
            clients.add(child)
            end = 0.0
        clients -= {child for child in clients if os.waitpid(child, os.WNOHANG)[0]}
        if not clients and time.monotonic() > end:
            with address.with_suffix(".lock").open() as lock:  # who connects has it
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not select.select([listener], [], [], 0)[0]:
                    address.unlink()
                    return


def _serve_client(connection: socket.socket) -> None:
    """Run the commands of a connection, one at a time; in the process of a command, only that one."""
    in_background: list[int] = []
    with connection, connection.makefile("rw") as channel:
        for line in channel:
            command = json.loads(line)
            child = os.fork()
            if not child:
                _run(command)
                return
            if command["background"]:
                in_background.append(child)
                print(child, file=channel, flush=True)
                continue
            signal.signal(signal.SIGALRM, lambda *_, pid=child: os.kill(pid, signal.SIGKILL))
            signal.alarm(command["seconds"])
            _, status = os.waitpid(child, 0)
            signal.alarm(0)
            print(os.waitstatus_to_exitcode(status), file=channel, flush=True)
    for child in in_background:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


async def _build_routes(app: Any) -> None:
    """Ask the API of ``dags test`` for nothing: only its first answer takes longer than a small
    DAG.
    """
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://airflow.invalid"
    ) as client:
        await client.get("/nothing")


def _run(command: dict[str, Any]) -> None:
    """Be the process of a command: the interpreter's end is the command's."""
    if command["background"]:
        os.setsid()  # its children end with it
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.argv = ["airflow", *command["arguments"]]
    importlib.import_module("airflow.settings").initialize()
    _read_where_metrics_go()
    importlib.import_module("airflow.__main__").main()


def _read_where_metrics_go() -> None:
    """Send metrics to where this command's environment says: Airflow read that before the fork."""
    with suppress(
        ImportError, AttributeError
    ):  # before Airflow 3.3, a command with metrics needs a fresh process
        initialize = importlib.import_module("airflow.sdk.observability.stats").initialize
        stats_utils = importlib.import_module("airflow.sdk.observability.metrics.stats_utils")
        conf = importlib.import_module("airflow.sdk.configuration").conf
        initialize(
            factory=stats_utils.get_stats_factory(),
            export_legacy_names=conf.getboolean("metrics", "legacy_names_on"),
        )


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
