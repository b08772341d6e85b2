"""How fast proposals get to a GMS, beside acryl-datahub's emitter called once per proposal, as its Airflow plugin does.

The server is a process of its own that reads, counts and answers at once, so only the client is measured. All
clients run in turn, each in a new process; memory is the peak of the client's process, once with a tenth of the
proposals and once with all of them.

    python benchmarks/delivery_load.py [PROPOSALS]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Any

PROPOSALS = 100_000
ENTRY = 500
"""Proposals of one delivery: those of one task."""
ONE_BY_ONE = 2_000
"""Proposals that the plain emitter is given: its rate does not depend on their number."""


def proposals() -> Iterator[Any]:
    """Edges and runs of many jobs, without end."""
    from airflow_provider_spark_datahub.conversion.proposals import Proposal

    number = 0
    while True:
        job = f"urn:li:dataJob:(urn:li:dataFlow:(spark,flow{number % 1000},prod),job{number})"
        tables = [f"urn:li:dataset:(urn:li:dataPlatform:hive,shop.table_{number}_{one},PROD)" for one in range(4)]
        edges = [{"destinationUrn": table} for table in tables]
        yield Proposal("dataJob", job, "dataJobInfo", {"name": f"job{number}", "type": {"string": "COMMAND"}})
        lineage = {"inputDatasets": [], "outputDatasets": [], "inputDatasetEdges": edges[:3]}
        yield Proposal("dataJob", job, "dataJobInputOutput", {**lineage, "outputDatasetEdges": edges[3:]})
        number += 1


def in_batches(url: str, count: int) -> None:
    """This package: a delivery per task, of batches."""
    from airflow_provider_spark_datahub.delivery.deadline import Deadline
    from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink

    sink = RestSink(RestSettings(url))
    for entry in _batched(islice(proposals(), count), ENTRY):
        delivery = sink.deliver(entry, Deadline.after(60))
        if delivery.delivered != len(entry):
            raise SystemExit(f"not delivered: {delivery.problem}")


def one_by_one(url: str, count: int) -> None:
    """acryl-datahub's emitter, a call per proposal."""
    from datahub.emitter.rest_emitter import DatahubRestEmitter

    from airflow_provider_spark_datahub.delivery.sink import to_mcp

    with DatahubRestEmitter(url) as emitter:
        for proposal in islice(proposals(), count):
            emitter.emit_mcp(to_mcp(proposal))


CLIENTS = {"one by one": one_by_one, "in batches": in_batches}


def measure(client: str, url: str, count: int) -> None:
    """Run one client and print its wall seconds, CPU seconds and peak memory in MiB, imports left out of the times."""
    import datahub.emitter.rest_emitter  # noqa: F401

    CLIENTS[client](url, 2)
    wall, cpu = time.perf_counter(), time.process_time()
    CLIENTS[client](url, count)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(time.perf_counter() - wall, time.process_time() - cpu, memory)


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    writes = 0

    def do_GET(self) -> None:
        self._answer({"writes": _Server.writes, "noCode": "true", "versions": {}, "statefulIngestionCapable": True})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        _Server.writes += 1
        self._answer({"value": "success"})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, obj: object) -> None:
        content = json.dumps(obj).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def serve() -> None:
    """Print the port, and serve until the parent ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


def _batched(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(items, size)):
        yield batch


def _run(client: str, url: str, count: int) -> tuple[float, float, float, int]:
    before = _writes(url)
    command = [sys.executable, __file__, "--measure", client, url, str(count)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    wall, cpu, memory = (float(number) for number in answer[-3:])
    return wall, cpu, memory, _writes(url) - before


def _writes(url: str) -> int:
    with urllib.request.urlopen(f"{url}/config") as answer:
        return int(json.load(answer)["writes"])


def main() -> None:
    """Print the rates of both clients, and their ratio."""
    match sys.argv[1:]:
        case ["--serve"]:
            serve()
            return
        case ["--measure", client, url, count]:
            measure(client, url, int(count))
            return
    total = int(sys.argv[1]) if len(sys.argv) > 1 else PROPOSALS
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        rates = {}
        for client, count in (("one by one", ONE_BY_ONE), ("in batches", total // 10), ("in batches", total)):
            wall, cpu, memory, writes = _run(client, url, count)
            rates[client] = count / wall
            print(
                f"{client}: {count} proposals in {writes} requests, {count / wall:.0f}/s, {count / cpu:.0f} per CPU "
                f"second, {memory:.0f} MiB"
            )
        print(f"ratio: {rates['in batches'] / rates['one by one']:.1f}")
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
