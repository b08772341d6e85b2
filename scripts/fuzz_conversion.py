"""Coverage-guided fuzzing of the conversion with atheris: JSON that is valid, and hostile.

    python -m venv /tmp/fuzz && /tmp/fuzz/bin/pip install atheris
    PYTHONPATH=.:.venv/lib/python3.11/site-packages nice -n 19 /tmp/fuzz/bin/python scripts/fuzz_conversion.py \
        -max_total_time=900 -max_len=20000 -timeout=20 /tmp/fuzz-corpus

An input is a few events, one a line. A mutation changes their structure: another type, a missing key, a huge or deeply
nested value, half a surrogate pair, what breaks a URN. Each input must convert without any error but ``EventError``,
twice to the same bytes, from text as from what it decodes to; of some, the strict oracle reads every proposal.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["airflow_provider_spark_datahub.conversion"]):
    from airflow_provider_spark_datahub.conversion.convert import Conversion, convert_events, convert_run_event
    from airflow_provider_spark_datahub.conversion.events import EventError
    from airflow_provider_spark_datahub.conversion.proposals import Proposal
    from airflow_provider_spark_datahub.conversion.settings import LineageSettings

from tests.oracles.strict import violations

CORPUS = Path(__file__).parents[1] / "tests" / "data" / "corpus"
ORACLE_READS_ONE_IN = 16
MAX_EVENTS = 6
SETTINGS = [
    LineageSettings(),
    LineageSettings.from_mapping(
        {
            "datasets": "schemas",
            "dataset_details": ["documentation", "owners", "tags"],
            "capture_test_results": True,
            "max_string_length": 5_000,
            "capture_spark_plan": True,
            "enhanced_merge_into_extraction": True,
            "orchestrator": "spark",
        }
    ),
    LineageSettings.from_mapping(
        {
            "use_patch": True,
            "lower_case_dataset_urns": True,
            "platform_instance": "eu",
            "dataset_platform_instance": "lake",
            "catalog_platforms": {"iceberg": "iceberg"},
            "path_specs": {"s3": ["s3://b/*/{table}"], "file": ["/wh/{table}"]},
            "file_partition_regexp": "/(k|dt)=.*",
        }
    ),
]
HOSTILE: list[Any] = [
    None, True, False, 0, -1, 2**63, 1e308, "", " ", ".", "/", "//", "://", "s3://", "s3a://b//k=1/", "table/a/b",
    "a,b(c", "(", ")", ",", "%", "%2C", "␟",
    "\ud800", "\udfff", "\x00", "é" * 200, "x" * 600, "[version=2.0].[type=struct].a",
    "urn:li:dataset:(urn:li:dataPlatform:hive,a,PROD)", "urn:li:tag:", "~1", "{application}", [], {}, [None],
    {"": None},
    "2026-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "array<struct<a:int>>",
    "APPLICATION", "RDD_JOB", "SQL_JOB", "START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER", "DROP", "RENAME",
    "MERGE INTO t USING s", "password='x", "jdbc:oracle:thin:a/b@c", "http://u:p@h", ("deep", 900),
]  # fmt: skip


def seeds() -> Iterator[bytes]:
    """Real events, a few at a time, and every edge event by itself."""
    for file in sorted((CORPUS / "events").glob("*.ndjson")):
        lines = [line for line in file.read_bytes().splitlines() if b'"eventType"' in line and len(line) < 20_000]
        for start in range(0, len(lines), 3):
            yield b"\n".join(lines[start : start + 3])
    yield from (CORPUS / "edge" / "events.ndjson").read_bytes().splitlines()


LONGEST_WORD = 60
WORDS: list[str] = sorted(
    {word for seed in seeds() for word in seed.decode().split('"')[1::2] if len(word) <= LONGEST_WORD}
)


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change the structure of one to four places, or bytes if the data is not JSON."""
    rng = random.Random(seed)
    try:
        events = [json.loads(line) for line in data.splitlines()[:MAX_EVENTS]]
    except (ValueError, RecursionError):
        return bytes(atheris.Mutate(data, max_size))
    try:
        for _ in range(rng.randint(1, 4)):
            change(events, rng)
        changed = b"\n".join(json.dumps(event).encode() for event in events)
    except RecursionError:
        # What Python's own writer of JSON cannot nest, no test can be made of.
        return data[:max_size]
    return changed if 0 < len(changed) <= max_size else data[:max_size]


def change(value: Any, rng: random.Random) -> None:
    """Change something at a random place below a list or an object."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            if isinstance(value, list):
                value.append(hostile(rng))
            return
        key = rng.choice(keys)
        if isinstance(value[key], list | dict) and value[key] and rng.random() < 0.85:
            value = value[key]
            continue
        act(value, key, rng)
        return


def act(value: Any, key: Any, rng: random.Random) -> None:
    """One change of an item."""
    match rng.randrange(6):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[rng.choice(WORDS)] = value.pop(key)
        case 1 | 2 if isinstance(value, list):
            value.insert(rng.randrange(len(value) + 1), json.loads(json.dumps(value[key])))
        case 3:
            value[key] = [value[key]]
        case 4:
            value[key] = rng.choice(WORDS)
        case _:
            value[key] = hostile(rng)


def hostile(rng: random.Random) -> Any:
    """A value that somebody did not expect."""
    chosen = rng.choice(HOSTILE)
    if isinstance(chosen, tuple):
        nested: Any = {}
        for _ in range(rng.randrange(chosen[1])):
            nested = {"fields": [nested]} if rng.random() < 0.5 else [nested]
        return nested
    return chosen


def _lines(proposals: list[Proposal]) -> str:
    return "".join(proposal.to_json() + "\n" for proposal in proposals)


def converted(events: list[Any], settings: LineageSettings) -> list[Proposal]:
    """All proposals: of the events together, and of each by itself."""
    conversion: Conversion = convert_events(events, settings)
    found = conversion.proposals(settings)
    for event in events:
        with contextlib.suppress(EventError):
            found += convert_run_event(event, settings)
    return found


def test_one_input(data: bytes) -> None:
    """The properties that hold for every input."""
    settings = SETTINGS[len(data) % len(SETTINGS)]
    lines: list[Any] = data.splitlines()[:MAX_EVENTS]
    found = converted(lines, settings)
    text = _lines(found)
    text.encode()
    assert text == _lines(converted(lines, settings)), "not the same bytes"
    try:
        decoded = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return
    assert text == _lines(converted(decoded, settings)), "text and objects differ"
    if len(text) % ORACLE_READS_ONE_IN == 0:
        wrong = [(one.aspect_name, problem) for one in found for problem in violations(one.to_obj())]
        assert not wrong, wrong[:5]


def main() -> None:
    """Write the seeds into the corpus's folder, the last argument, and fuzz."""
    folder = Path(sys.argv[-1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (folder / f"seed-{number}").write_bytes(seed)
    atheris.Setup(sys.argv, test_one_input, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
