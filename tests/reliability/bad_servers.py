"""Servers that fail as GMS may fail, each on a free loopback port for a ``with`` block."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.patience import HANGS, PATIENCE, join

Behaviour = Callable[[socket.socket, threading.Event], None]


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve every connection in this way; when it ends, so do its connections, whatever their
    clients do.

    :returns: its address, ``127.0.0.1:PORT``.
    """
    closing = threading.Event()
    connections: list[tuple[socket.socket, threading.Thread]] = []

    def accept(listener: socket.socket) -> None:
        while not closing.is_set():
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                # Shutting it down at the end does not reach the stream of TLS into which a
                # behaviour may wrap it.
                connection.settimeout(HANGS)
                thread = threading.Thread(
                    target=_serve, args=(connection, behaviour, closing), daemon=True
                )
                connections.append((connection, thread))
                thread.start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        acceptor = threading.Thread(target=accept, args=[listener], daemon=True)
        acceptor.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            closing.set()
            join(acceptor)
            # The kernel would reset them. Then Python's ssl leaves a client's socket open that is
            # about to shake hands.
            listener.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
            for connection, thread in connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                join(thread, HANGS + PATIENCE)


def _serve(connection: socket.socket, behaviour: Behaviour, closing: threading.Event) -> None:
    with connection, suppress(OSError):
        behaviour(connection, closing)


def black_hole(connection: socket.socket, closing: threading.Event) -> None:
    """Read everything, and never answer."""
    connection.settimeout(0.05)
    while not closing.is_set():
        with suppress(TimeoutError):
            if not connection.recv(65536):
                return


def slow_drip(connection: socket.socket, closing: threading.Event) -> None:
    """Answer a byte every tenth of a second, so that no time limit for the next byte ends it."""
    connection.recv(65536)
    for byte in b"HTTP/1.1 200 OK\r\nX-Padding: " + b"." * 100_000:
        if closing.wait(0.1):
            return
        connection.sendall(bytes((byte,)))


def reset_amid_the_body(connection: socket.socket, closing: threading.Event) -> None:  # noqa: ARG001 (a Behaviour)
    """Reset the connection when the first bytes of the request have come."""
    connection.recv(100)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def no_tls(connection: socket.socket, closing: threading.Event) -> None:  # noqa: ARG001 (a Behaviour)
    """Answer in plain text, whatever comes."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def answering(*, status: str, headers: str = "", body: bytes = b"") -> Behaviour:
    """Answer every request in this way."""

    def behaviour(connection: socket.socket, closing: threading.Event) -> None:  # noqa: ARG001 (a Behaviour)
        request = connection.makefile("rb")
        length = 0
        while line := request.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        request.read(length)
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
        connection.sendall(head.encode() + body)

    return behaviour


def endless(head: bytes, piece: bytes, pause: float = 0.0) -> Behaviour:
    """Answer every request with a head, then with one piece after another until the client hangs
    up.
    """

    def behaviour(connection: socket.socket, closing: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(head)
        while not closing.wait(pause):
            connection.sendall(piece)

    return behaviour
