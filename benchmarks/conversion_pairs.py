"""Two versions of the conversion in one process, in turn on the same new events: for a machine that others use as well.

    git worktree add /tmp/before main
    python benchmarks/conversion_pairs.py /tmp/before . 40                      # 40 pairs of each kind
    python benchmarks/conversion_pairs.py /tmp/before . 20 warm:archive:wide    # one kind

Each prints the median of CPU after / CPU before over all pairs with its quartiles, and the least CPU of both. ``warm``,
``daily``, the mixes and ``per event`` and ``coalesced`` are those of ``benchmarks/conversion.py``; ``archive`` is what
the steps of ``spark-datahub backfill`` do with an application. The collector is off.
"""

from __future__ import annotations

import gc
import importlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

import event_mix
from conversion import OPTIONS, Lines

PACKAGE = "airflow_provider_spark_datahub"
KINDS = [
    f"{names}:{way}:{mix}"
    for mix in ("mixed", "wide")
    for names in ("warm", "daily")
    for way in ("per event", "coalesced")
]
AT_ONCE = {"mixed": 9, "wide": 1}
"""Applications in one turn."""
Work = dict[str, Callable[[Lines], None]]


def imported(checkout: Path, name: str, folder: Path) -> Work:
    """Import the package of a checkout under another name, and return what it can do.

    :param folder: for its copy.
    """
    shutil.copytree(checkout / PACKAGE, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / name).rglob("*.py"):
        path.write_text(path.read_text().replace(PACKAGE, name))

    def module(path: str) -> Any:
        return importlib.import_module(f"{name}.conversion.{path}")

    convert, archive, replay = module("convert"), module("archive"), module("archive.replay")
    json_lines, ending = module("proposals").json_lines, module("runs.coalesce").Ending(succeeded=True)
    settings = module("settings").LineageSettings.from_mapping(OPTIONS)

    def per_event(lines: Lines) -> None:
        for line in lines:
            json_lines(convert.convert_run_event(line, settings))

    def coalesced(lines: Lines) -> None:
        converter = convert.Converter(settings)
        for line in lines:
            converter.add(line)
        json_lines(list(converter.proposals(ending)))

    def as_archive(lines: Lines) -> None:
        converter = replay.GroupConverter(settings, replay.ArchiveFilter(), replay.ArchiveFacts())
        for at, line in enumerate(lines):
            converter.add(archive.ArchivedEvent(at, "file", at, line))
        list(converter.finish())

    return {"per event": per_event, "coalesced": coalesced, "archive": as_archive}


def turns(names: str, mix: str) -> Iterator[Lines]:
    """Events of applications, or of runs of jobs, that no turn before had."""
    application = getattr(event_mix, f"{mix}_{'run' if names == 'daily' else 'application'}")
    for start in count(step=AT_ONCE[mix]):
        yield list(chain.from_iterable(application(number) for number in range(start, start + AT_ONCE[mix])))


def compare(versions: list[Work], kind: str, pairs: int) -> None:
    """Print how the second version compares with the first."""
    names, way, mix = kind.split(":")
    events = turns(names, mix)
    used: list[list[float]] = [[], []]
    for turn in range(-4, pairs):
        lines = next(events)
        if turn % 10 == 0:
            gc.collect()
        for which in (0, 1) if turn % 2 else (1, 0):
            started = time.process_time()
            versions[which][way](lines)
            if turn >= 0:
                used[which].append((time.process_time() - started) / len(lines) * 1e6)
    low, median, high = statistics.quantiles([after / before for before, after in zip(*used, strict=True)], n=4)
    least = f"least {min(used[0]):.1f} and {min(used[1]):.1f} us an event"
    print(f"{kind:<24} after / before {median:.2f} (quartiles {low:.2f}, {high:.2f}); {least}", flush=True)


def main(before: str, after: str, pairs: str = "40", *kinds: str) -> None:
    """Compare two checkouts."""
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        checkouts = {"version_before": Path(before), "version_after": Path(after)}
        versions = [imported(checkout, name, Path(folder)) for name, checkout in checkouts.items()]
        gc.freeze()
        gc.disable()
        for kind in kinds or KINDS:
            compare(versions, kind, int(pairs))


if __name__ == "__main__":
    main(*sys.argv[1:])
