"""What one huge event or application costs: twice as much for twice the size, if nothing is
quadratic.

    python benchmarks/event_size.py [SHARE]   # CPU, memory and checks of the time, for n and 2 n,
    or a share of them

Shapes: ``inputs`` of one run, and ``outputs``; ``columns`` of one output, with ten inputs each;
``files`` that only column lineage names, below as many folders; ``generations`` of one table,
created and dropped again and again. ``tests/attacks/test_growth.py`` counts the steps of more
shapes.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

RUN = "01a1fd1c-36c1-768b-a400-{:012d}"
SETTINGS = {"datasets": "schemas"}
Event = dict[str, Any]


def event(
    number: int, kind: str, inputs: list[Event], outputs: list[Event], job_type: str = "SQL_JOB"
) -> bytes:
    """Return an event of one application. :param number: of the run; 0 is the application's own."""
    facets: Event = {"processing_engine": {"name": "spark"}, "spark_jobDetails": {}}
    if number:
        facets["parent"] = {"run": {"runId": RUN.format(0)}}
    return json.dumps(
        {
            "eventType": kind,
            "eventTime": f"2026-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
            "producer": "https://github.com/OpenLineage/OpenLineage/tree/1.34.0/integration/spark",
            "run": {"runId": RUN.format(number), "facets": facets},
            "job": {
                "namespace": "default",
                "name": "app.query",
                "facets": {"jobType": {"jobType": job_type}},
            },
            "inputs": inputs,
            "outputs": outputs,
        }
    ).encode()


def dataset(name: str, **facets: Any) -> Event:
    """Return a dataset in a bucket."""
    return {"namespace": "s3://bucket", "name": name, "facets": facets}


def _column(names: list[str], field: str) -> Event:
    return {
        "inputFields": [
            {"namespace": "s3://bucket", "name": name, "field": field} for name in names
        ]
    }


def inputs(count: int) -> Iterator[bytes]:
    """Yield one event with so many inputs."""
    yield event(
        1,
        "COMPLETE",
        [dataset(f"/lake/t{index}") for index in range(count)],
        [dataset("/lake/out")],
    )


def outputs(count: int) -> Iterator[bytes]:
    """Yield one event with so many outputs, each with 2.5 KB of facets."""
    tables = [dataset(f"/lake/t{index}", other={"text": "x" * 2450}) for index in range(count)]
    yield event(1, "COMPLETE", [dataset("/lake/in")], tables)


def columns(count: int) -> Iterator[bytes]:
    """Yield one event with so many output columns, each of ten inputs."""
    names = [f"/lake/t{index}" for index in range(10)]
    lineage = {"fields": {f"c{index}": _column(names, f"s{index}") for index in range(count)}}
    schema = {"fields": [{"name": f"c{index}", "type": "string"} for index in range(count)]}
    yield event(
        1,
        "COMPLETE",
        list(map(dataset, names)),
        [dataset("/out", schema=schema, columnLineage=lineage)],
    )


def files(count: int) -> Iterator[bytes]:
    """Yield one event that names so many folders, and in its column lineage a file of each."""
    lineage = {
        "fields": {f"c{index}": _column([f"/lake/t{index}/f.csv"], "s") for index in range(count)}
    }
    folders = [dataset(f"/lake/t{index}") for index in range(count)]
    yield event(1, "COMPLETE", folders, [dataset("/out", columnLineage=lineage)])


def generations(count: int) -> Iterator[bytes]:
    """Yield the events of an application that creates and drops a table so many times."""
    yield event(0, "START", [], [], "APPLICATION")
    for number in range(1, 2 * count, 2):
        for more, state in ((0, "OVERWRITE"), (1, "DROP")):
            change = {"lifecycleStateChange": state}
            yield event(
                number + more, "COMPLETE", [], [dataset("/lake/t", lifecycleStateChange=change)]
            )


SHAPES: dict[str, tuple[Callable[[int], Iterator[bytes]], int]] = {
    "inputs": (inputs, 50_000),
    "outputs": (outputs, 50_000),
    "columns": (columns, 50_000),
    "files": (files, 10_000),
    "generations": (generations, 5_000),
}
"""Each with its n."""


def convert(shape: str, count: int) -> None:
    """Convert in this process, and print what it took."""
    from airflow_provider_spark_datahub.conversion import (
        Converter,
        Ending,
        LineageSettings,
        time_limit,
    )

    settings, checks = LineageSettings.from_mapping(SETTINGS), 0

    def expired() -> bool:
        nonlocal checks
        checks += 1
        return False

    converter = Converter(settings)
    gc.disable()
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    command = [sys.executable, __file__, shape, str(count), "make"]
    # Made elsewhere, so that the memory of this process is the conversion's alone.
    with time_limit(expired), subprocess.Popen(command, stdout=subprocess.PIPE) as made:
        size = largest = 0
        for text in made.stdout or ():
            converter.add(text)
            size, largest = size + len(text), max(largest, len(text))
        del text
        proposals = converter.finish(Ending(True)).proposals(settings)
    seconds = process_time() - started
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{shape:12s} {count:8,d} {size / 1e6:7.1f} MB {seconds:7.2f} s CPU {memory:6.0f} MiB more, "
        f"{memory * 2**20 / largest:.1f} of a line, {len(proposals):7,d} proposals, {checks:4d} checks of the time"
    )


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    if len(arguments) == 3:
        make, _ = SHAPES[arguments[0]]
        for text in make(int(arguments[1])):
            sys.stdout.buffer.write(text + b"\n")
        return
    if len(arguments) == 2:
        convert(arguments[0], int(arguments[1]))
        return
    share = float(arguments[0]) if arguments else 1.0
    for shape, (_, most) in SHAPES.items():
        for count in (int(most * share), 2 * int(most * share)):
            subprocess.run([sys.executable, __file__, shape, str(count)], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
