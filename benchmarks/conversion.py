"""How fast events are converted, as a share of what Python's own ``json.loads`` takes for the same
bytes.

    python benchmarks/conversion.py [ROUNDS]          # in this process, and the command as a whole
    python benchmarks/conversion.py memory [BYTES]    # a gigabyte of each mix through the command
    python benchmarks/conversion.py writes            # applications that write up to 1,000 tables

In this process, each round has applications that no round before had, in turn with ``json.loads``
of the same bytes. The command is ``spark-datahub convert``, with the interpreter's start and all
imports. Times are CPU seconds, the best of the rounds, but for ``wall``.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain, count, islice
from pathlib import Path

from event_mix import MIXES, many_writes, mixed_application, of_size, wide_application

from airflow_provider_spark_datahub.conversion import (
    Converter,
    Ending,
    LineageSettings,
    convert_single,
    json_lines,
)

SETTINGS = LineageSettings.from_mapping({"datasets": "schemas"})
APPLICATIONS: dict[str, tuple[Callable[[int], Iterator[bytes]], int]] = {
    "mixed": (mixed_application, 18),
    "wide": (wide_application, 1),
}
"""By mix, how to make an application, and how many of them are a round."""
COMMAND_EVENTS = {"mixed": 413, "wide": 127}
GIGABYTE = 1_000_000_000
Lines = list[bytes]


def load(lines: Lines) -> None:
    """Decode the events: all else is compared with this."""
    for line in lines:
        json.loads(line)


def convert_each(lines: Lines) -> None:
    """Convert each event by itself, to JSON."""
    for line in lines:
        json_lines(convert_single(line, SETTINGS).proposals(SETTINGS))


def convert_together(lines: Lines) -> None:
    """Convert all events together, to JSON."""
    converter = Converter(SETTINGS)
    for line in lines:
        converter.add(line)
    json_lines(list(converter.proposals(Ending(succeeded=True))))


def cpu_seconds(work: Callable[[Lines], None], lines: Lines) -> float:
    """Return the CPU seconds of work in this process; earlier garbage is collected before."""
    gc.collect()
    started = time.process_time()
    work(lines)
    return time.process_time() - started


def in_this_process(rounds: int) -> None:
    """Print the speed of the conversion for each mix, per event and coalesced."""
    for mix, (application, several) in APPLICATIONS.items():
        starts = count(step=several)
        for name, convert in (("per event", convert_each), ("coalesced", convert_together)):
            pairs = []
            for start in islice(starts, rounds + 1):
                lines = list(chain.from_iterable(map(application, range(start, start + several))))
                pairs.append([cpu_seconds(work, lines) / len(lines) for work in (load, convert)])
            # The first round imports.
            loads, ours = map(min, zip(*pairs[1:], strict=True))
            print(
                f"{mix}, {name:<10} {ours * 1e6:7.1f} us CPU an event, {1 / ours:7.0f} events/s, "
                f"{loads / ours:.2f} of json.loads"
            )


def command(rounds: int) -> None:
    """Print what the command takes for some events of each mix."""
    with tempfile.TemporaryDirectory() as folder:
        for mix, events in COMMAND_EVENTS.items():
            path = Path(folder) / f"{mix}.ndjson"
            path.write_bytes(b"".join(islice(MIXES[mix](), events)))
            wall, used, most = map(min, zip(*(_cost(path) for _ in range(rounds)), strict=True))
            size = path.stat().st_size / 1e6
            print(
                f"command, {mix}: {events} events, {size:.1f} MB: {wall:.2f} s wall, {used:.2f} s CPU, {most:.0f} MiB"
            )


def memory(size: int) -> None:
    """Print what the command takes for so many bytes of each mix."""
    with tempfile.TemporaryDirectory() as folder:
        for mix, events in MIXES.items():
            path = Path(folder) / f"{mix}.ndjson"
            with path.open("wb") as file:
                file.writelines(of_size(events(), size))
            wall, used, most = _cost(path)
            print(
                f"memory, {mix}: {size / 1e6:.0f} MB, {wall:.1f} s wall, {used:.1f} s CPU, {most:.0f} MiB"
            )
            path.unlink()


def writes() -> None:
    """Print what an application of many writes costs, and how many DataJobs it becomes."""
    for own_inputs in (True, False):
        for outputs in (100, 300, 1_000):
            lines = many_writes(outputs, own_inputs=own_inputs)
            seconds = min(cpu_seconds(convert_together, lines) for _ in range(3))
            converter = Converter(SETTINGS)
            for line in lines:
                converter.add(line)
            proposals = converter.proposals(Ending(succeeded=True))
            jobs = sum(proposal.aspect_name == "dataJobInputOutput" for proposal in proposals)
            inputs = "own" if own_inputs else "equal"
            print(
                f"{outputs} outputs of {inputs} inputs: {seconds:.2f} s CPU, "
                f"{seconds / outputs * 1e3:.2f} ms each, {jobs} DataJobs"
            )


def _cost(path: Path) -> tuple[float, float, float]:
    """Return wall and CPU seconds and the most memory, in MiB, of ``spark-datahub convert``."""
    # From a small process: Linux counts the memory of a forking parent as its child's.
    program = (
        "import os, subprocess, sys, time\n"
        "started = time.perf_counter()\n"
        "process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "_, status, usage = os.wait4(process.pid, 0)\n"
        "print(status, time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)\n"
    )
    # Of the wide mix, the column lineage is longer than the default.
    options = ["--set", "datasets=schemas", "--set", "max_string_length=50000000"]
    convert = [str(Path(sys.executable).with_name("spark-datahub")), "convert", str(path), *options]
    child = subprocess.run(
        [sys.executable, "-c", program, *convert], check=True, capture_output=True, text=True
    )
    status, wall, used, most = map(float, child.stdout.split())
    if status:
        raise SystemExit(
            f"spark-datahub convert {path} ended with {os.waitstatus_to_exitcode(int(status))}"
        )
    return wall, used, most


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    if arguments[:1] == ["memory"]:
        memory(int(arguments[1]) if arguments[1:] else GIGABYTE)
        return
    if arguments[:1] == ["writes"]:
        writes()
        return
    rounds = int(arguments[0]) if arguments else 7
    in_this_process(rounds)
    command(rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
