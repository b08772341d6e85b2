"""Digests of everything that the conversion writes: compare them before and after a change that is
to change nothing.

    python benchmarks/conversion_digest.py > before.txt python benchmarks/conversion_digest.py |
    diff before.txt - && echo the same bytes python benchmarks/conversion_digest.py --lines
    /tmp/after    # and the lines themselves, a file for each digest

All recorded events, generated applications and damaged events; three sets of settings; as text and
decoded; per event and coalesced, with each ending and as the snapshot of a running job; with
Spark's event logs. The lines are proposals and the sentences of the diagnostics.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import chain, islice
from pathlib import Path
from typing import Any

from event_mix import MIXES, mixed_application, mixed_run, wide_run

from airflow_provider_spark_datahub.conversion.convert import Converter, convert_single
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
WRONG: list[Any] = [
    None, True, -1, 2**70, 1.5, "", " ", "ü\ud800", "a,b(c", "http://u:p@h", "password='x", [], {}, [None],
]  # fmt: skip
MATERIALIZED = {"datasets": "schemas"}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": {
        **MATERIALIZED,
        "capture_spark_plan": True,
        "dataset_details": ["documentation", "owners", "tags"],
        "enhanced_merge_into_extraction": True,
        "max_string_length": 5000,
    },
    "renamed": {
        **MATERIALIZED,
        "use_patch": True,
        "lower_case_dataset_urns": True,
        "platform_instance": "eu",
        "dataset_platform_instance": "lake",
        "tags": "a,b",
        "owners": "me",
        "catalog_platforms": {"iceberg": "iceberg"},
        "path_specs": {"file": ["/lake/*/{table}"], "s3": ["s3://*/{table}"]},
        "file_partition_regexp": "/(k|dt)=.*",
    },
}
_WITH_LOG = ".openlineage.ndjson"
_DECOMPRESS = {".gz": gzip.decompress, ".xz": lzma.decompress}
Lines = list[bytes]


def recorded() -> Iterator[tuple[str, Lines, Lines]]:
    """Yield the name of each recorded job, its events, and the events in Spark's own log of it."""
    for path in sorted(DATA.glob("**/*.ndjson*")):
        lines = _DECOMPRESS.get(path.suffix, bytes)(path.read_bytes()).splitlines()
        if path.name.endswith(_WITH_LOG):
            log = path.with_name(path.name.removesuffix(_WITH_LOG) + ".ndjson")
            yield path.name, lines, log.read_bytes().splitlines()
        elif "logs" not in path.parent.name:
            yield path.name, lines, []


def generated() -> Iterator[tuple[str, Lines, Lines]]:
    """Yield the name and the events of each generated archive."""
    yield "mixed", list(chain.from_iterable(map(mixed_application, range(18)))), []
    yield "daily", list(chain.from_iterable(map(mixed_run, range(18)))), []
    yield "wide", list(chain.from_iterable(map(wide_run, range(2)))), []
    yield "long", list(islice(MIXES["long"](), 1500)), []


def damaged() -> Iterator[tuple[str, Lines, Lines]]:
    """Yield the recorded jobs with something wrong in each event: a value, a key, half of the text."""
    for name, lines, _ in recorded():
        rng = random.Random(name)
        yield f"damaged {name}", [_damage(line, rng) for line in lines if len(line) < 40_000], []


def _damage(line: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return line[: rng.randrange(len(line))]
    event: Any = json.loads(line)
    for _ in range(rng.randint(1, 3)):
        value = event
        while True:
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            if not keys:
                break
            key = rng.choice(keys)
            if not (isinstance(value[key], dict | list) and rng.random() < 0.8):
                if isinstance(value, dict) and rng.random() < 0.3:
                    value[f"{key}_"] = value.pop(key)
                else:
                    # A copy: the same list twice could be put into itself.
                    value[key] = deepcopy(rng.choice(WRONG))
                break
            value = value[key]
    return json.dumps(event, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def per_event(events: Iterable[object], _: Lines, settings: LineageSettings) -> Iterator[str]:
    """Yield what each event by itself becomes."""
    for event in events:
        try:
            conversion = convert_single(event, settings)
        except EventError as error:
            yield f"error: {error}"
        else:
            yield from (proposal.to_json() for proposal in conversion.proposals(settings))
            yield from conversion.diagnostics.messages()


def coalesced(events: Iterable[object], log: Lines, settings: LineageSettings) -> Iterator[str]:
    """Yield what all events together become, with each ending and as a snapshot."""
    converter = Converter(settings)
    for event in events:
        converter.add(event)
    for entry in log:
        converter.add_log_event(json.loads(entry))
    yield from (
        proposal.to_json()
        for proposal in converter.snapshot(with_log=bool(log)).proposals(settings)
    )
    for succeeded in (None, True, False):
        conversion = converter.finish(Ending(succeeded))
        yield from (proposal.to_json() for proposal in conversion.proposals(settings))
        yield from (
            *conversion.diagnostics.messages(),
            *conversion.diagnostics.gaps,
            *map(str, conversion.written),
        )


WAYS: dict[str, Callable[[Iterable[object], Lines, LineageSettings], Iterator[str]]] = {
    "per event": per_event,
    "coalesced": coalesced,
}


def _decoded(lines: Lines) -> list[Any]:
    events: list[Any] = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            events.append(None)
    return events


def main(folder: Path | None) -> None:
    """Print a digest for each archive, set of settings, form of the events and way of converting."""
    total = 0
    for name, lines, log in chain(recorded(), generated(), damaged()):
        for chosen, options in SETTINGS.items():
            settings = LineageSettings.from_mapping(options)
            forms: dict[str, list[Any]] = {"text": [*lines], "decoded": _decoded(lines)}
            for form, events in forms.items():
                for way, convert in WAYS.items():
                    texts = [
                        text.encode("utf-8", "surrogatepass")
                        for text in convert(events, log, settings)
                    ]
                    total += len(texts)
                    output, title = b"\n".join(texts), f"{name}, {chosen}, {form}, {way}"
                    print(hashlib.sha256(output).hexdigest()[:16], len(texts), title)
                    if folder is not None:
                        folder.mkdir(parents=True, exist_ok=True)
                        (folder / title.replace(", ", "-").replace(" ", "_")).write_bytes(output)
    print(total, "lines")


if __name__ == "__main__":
    main(Path(sys.argv[2]) if sys.argv[1:2] == ["--lines"] else None)
