"""How fast events are converted, as a share of what Python's own ``json.loads`` takes for the same bytes.

    python benchmarks/conversion.py              # all of it but the gigabytes
    python benchmarks/conversion.py warm 9       # one part, so many rounds
    python benchmarks/conversion.py memory       # a gigabyte of each mix through the command line
    python benchmarks/conversion.py instructions # instructions (valgrind), which do not depend on the machine's load
    python benchmarks/conversion.py profile mixed coalesced

Each in turn with ``json.loads`` of the same bytes. In one process: ``daily``: each round the next runs of the same jobs
on the same tables, with other run ids and times; ``warm``: each round applications that no round before had.
``command``: ``spark-datahub convert`` as a whole, coalesced, with the interpreter's start and all imports. Times are
CPU seconds, the best of the rounds, but for ``wall``.
"""

from __future__ import annotations

import cProfile
import gc
import json
import os
import pstats
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from event_mix import MIXES, mixed_application, mixed_run, of_size, wide_application, wide_run

OPTIONS = {"datasets": "schemas"}
Applications = dict[str, tuple[Callable[[int], Iterator[bytes]], int]]
APPLICATIONS: Applications = {"mixed": (mixed_application, 18), "wide": (wide_application, 1)}
"""Per mix how to make one application, and how many of them are a round."""
DAILY: Applications = {"mixed": (mixed_run, 18), "wide": (wide_run, 1)}
"""Likewise one run of a job that runs every day."""
COMMAND_EVENTS = {"mixed": 413, "wide": 127}
GIGABYTE = 1_000_000_000
MOST_ROUNDS = 9
"""Rounds that `instructions` generates in any case, so that generating them costs the same for each count."""
Lines = list[bytes]


def load(lines: Lines) -> None:
    """What all else is compared with."""
    for line in lines:
        json.loads(line)


@cache
def _settings() -> Any:
    """Read once, as whoever converts many events does."""
    from airflow_provider_spark_datahub.conversion.settings import LineageSettings

    return LineageSettings.from_mapping(OPTIONS)


def convert_single(lines: Lines) -> None:
    """Each event by itself, to JSON."""
    from airflow_provider_spark_datahub.conversion.convert import convert_run_event
    from airflow_provider_spark_datahub.conversion.proposals import json_lines

    settings = _settings()
    for line in lines:
        json_lines(convert_run_event(line, settings))


def convert_coalesced(lines: Lines) -> None:
    """All events together, to JSON."""
    from airflow_provider_spark_datahub.conversion.convert import Converter
    from airflow_provider_spark_datahub.conversion.proposals import json_lines
    from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending

    converter = Converter(_settings())
    for line in lines:
        converter.add(line)
    json_lines(list(converter.proposals(Ending(succeeded=True))))


WORK: dict[str, Callable[[Lines], None]] = {
    "json.loads": load,
    "per event": convert_single,
    "coalesced": convert_coalesced,
}


def rounds(mix: str, applications: Applications = APPLICATIONS) -> Iterator[Lines]:
    """Events of applications that no round before had."""
    application, several = applications[mix]
    for start in count(step=several):
        yield list(chain.from_iterable(application(number) for number in range(start, start + several)))


def cpu_seconds(work: Callable[[Lines], None], lines: Lines) -> float:
    """Of this process; what earlier work left to the garbage collector is not counted."""
    gc.collect()
    started = time.process_time()
    work(lines)
    return time.process_time() - started


def in_new_applications(name: str, applications: Applications, times: int) -> None:
    """Print the ratios of a process that has converted other applications before."""
    for mix in applications:
        events = rounds(mix, applications)
        for kind in ("per event", "coalesced"):
            WORK[kind](next(events))
            pairs = []
            for lines in islice(events, times):
                before, ours, after = (cpu_seconds(work, lines) for work in (load, WORK[kind], load))
                pairs.append((min(before, after) / len(lines), ours / len(lines)))
            _print_ratio(f"{name}, {mix}, {kind}", pairs)


def _print_ratio(name: str, pairs: Iterable[tuple[float, float]]) -> None:
    """Print a ratio. :param pairs: CPU seconds per event of ``json.loads`` and of the conversion, per round."""
    pairs = list(pairs)
    loads, ours = (min(pair[which] for pair in pairs) for which in (0, 1))
    median = statistics.median(before / after for before, after in pairs)
    print(
        f"{name:<28} {ours * 1e6:7.1f} us CPU an event, {1 / ours:7.0f} events/s, "
        f"{loads / ours:.2f} of json.loads (median of the rounds {median:.2f})"
    )


def command(times: int) -> None:
    """Print what the command line takes for as many events as the JVM was measured with."""
    with tempfile.TemporaryDirectory() as folder:
        for mix, events in COMMAND_EVENTS.items():
            path = Path(folder) / f"{mix}.ndjson"
            path.write_bytes(b"".join(islice(MIXES[mix](), events)))
            lines = path.read_bytes().splitlines(keepends=True)
            loads = min(cpu_seconds(load, lines) for _ in range(times))
            runs = [_command(path) for _ in range(times)]
            wall, used, memory = min(one[0] for one in runs), min(one[1] for one in runs), max(one[2] for one in runs)
            size = path.stat().st_size / 1e6
            print(
                f"command, {mix}: {events} events, {size:.1f} MB: {wall:.2f} s wall, {used:.2f} s CPU, "
                f"{memory:.0f} MiB; json.loads {loads * 1000:.1f} ms"
            )


def _command(path: Path) -> tuple[float, float, float]:
    """Wall and CPU seconds and the most memory, in MiB, of ``spark-datahub convert``."""
    # Run it from a small process: Linux counts the memory of a forking parent as its child's.
    child = subprocess.run(
        [sys.executable, __file__, "--command", str(path)], check=True, capture_output=True, text=True
    )
    wall, used, most = map(float, child.stdout.split())
    return wall, used, most


def run_command(path: Path) -> None:
    """Print wall and CPU seconds and the most memory, in MiB, of ``spark-datahub convert``."""
    script = "from airflow_provider_spark_datahub.cli import app_main; app_main()"
    options = [part for name in OPTIONS for part in ("--set", f"{name}=true")]
    arguments = [sys.executable, "-c", script, "convert", str(path), *options]
    started = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"spark-datahub convert {path} ended with {os.waitstatus_to_exitcode(status)}")
    print(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def memory(size: int) -> None:
    """Print what the command line takes for so many bytes of each mix."""
    with tempfile.TemporaryDirectory() as folder:
        for mix, events in MIXES.items():
            path = Path(folder) / f"{mix}.ndjson"
            with path.open("wb") as file:
                file.writelines(of_size(events(), size))
            wall, used, most = _command(path)
            print(f"memory, {mix}: {size / 1e6:.0f} MB, {wall:.1f} s wall, {used:.1f} s CPU, {most:.0f} MiB")
            path.unlink()


def instructions(times: int) -> None:
    """Print the instructions of converting mixed events, after a first round, without the garbage collector."""
    for name in ("daily", "warm"):
        per_event = {}
        for kind in WORK:
            few, many = (_instructions(name, kind, several) for several in (1, 1 + times))
            per_event[kind] = (many[0] - few[0]) / (many[1] - few[1])
        for kind, ours in per_event.items():
            ratio = per_event["json.loads"] / ours
            print(f"{name + ', mixed, ' + kind:<28} {ours:9,.0f} instructions an event, {ratio:.2f} of json.loads")


def _instructions(name: str, kind: str, several: int) -> tuple[int, int]:
    """Return the instructions and the events of a process that works through so many rounds."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise SystemExit("valgrind is not installed")
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, __file__]
    run = subprocess.run(
        [*command, "--rounds", name, kind, str(several)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"Collected : (\d+)", run.stderr)
    if found is None:
        raise SystemExit(run.stderr)
    return int(found[1]), int(run.stdout)


def in_rounds(name: str, kind: str, several: int) -> None:
    """Generate the most rounds, work through so many of them, and print the number of events in these."""
    events = list(islice(rounds("mixed", DAILY if name == "daily" else APPLICATIONS), 1 + MOST_ROUNDS))
    gc.disable()
    for lines in events[:several]:
        WORK[kind](lines)
    print(sum(map(len, events[:several])))


def profile(mix: str, kind: str) -> None:
    """Print where the time goes in a warm process."""
    events = rounds(mix)
    WORK[kind](next(events))
    lines = list(chain.from_iterable(islice(events, 5)))
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(WORK[kind], lines)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    part, *rest = arguments or ["all"]
    if part == "--command":
        run_command(Path(rest[0]))
    elif part == "--rounds":
        in_rounds(rest[0], rest[1], int(rest[2]))
    elif part == "instructions":
        instructions(min(int(rest[0]), MOST_ROUNDS) if rest else 3)
    elif part == "memory":
        memory(int(rest[0]) if rest else GIGABYTE)
    elif part == "profile":
        profile(*rest)
    else:
        times = int(rest[0]) if rest else 7
        parts = {
            "daily": partial(in_new_applications, "daily", DAILY),
            "warm": partial(in_new_applications, "warm", APPLICATIONS),
            "command": command,
        }
        for measure in parts.values() if part == "all" else [parts[part]]:
            measure(times)


if __name__ == "__main__":
    main(sys.argv[1:])
