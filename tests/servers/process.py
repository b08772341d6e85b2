"""A server of a test: a process of its own with its log, ended by its own id."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import FILES


class ServerError(RuntimeError):
    """A server that did not start; the message holds the end of its log."""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def files_of(server: str) -> Path:
    """Return the folder that `make servers` made for a server."""
    folder = FILES / server
    if not (folder / ".ready").exists():
        raise ServerError(f"{folder} is not there: run `make servers`")
    return folder


def free_port() -> int:
    """Return a port for a server that starts soon: none that the system gives to others meanwhile."""
    lowest_given, _ = (
        int(port) for port in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    )
    while True:
        port = random.randrange(_FIRST_PORT, lowest_given)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


_FIRST_PORT = 12_000


def closed_port() -> int:
    """Return a port at which nothing listens, and which nobody else gets while this process lives."""
    holder = socket.socket()
    atexit.register(holder.close)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return port


class Server:
    """A server's process, which can be stopped and started again with the same address and data.

    :param answers: whether the server does its work; an open port is not enough.
    :param log: what it prints.
    """

    def __init__(
        self,
        command: Sequence[str],
        answers: Callable[[], bool],
        log: Path,
        *,
        seconds: float = 180,
    ) -> None:
        self._command = command
        self._answers = answers
        self._log = log
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + self._seconds
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise ServerError(
                    f"{self._command[0]} does not answer:\n{self._log.read_text()[-3000:]}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """End it; nothing of it is left when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While this lasts, the server is down."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While this lasts, the server keeps its connections and answers nothing."""
        process = self._process
        if process is None:
            raise ServerError("a server that is down cannot be frozen")
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
