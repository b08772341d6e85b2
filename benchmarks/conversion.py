"""How fast events are converted, as a share of what Python's own ``json.loads`` takes for the same bytes.

Two mixes: all events of the recorded Spark jobs, and wide ones (300 columns, 30 tables, each told four times, as
OpenLineage does). Every measurement runs in a new process, once, so that nothing is warm but the machine; the best of
several is told, and its ratio to the best ``json.loads`` of the same run.

    python benchmarks/conversion.py [RUNS]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "data" / "corpus" / "events"
TABLES, COLUMNS = 30, 300
OPTIONS = {"materialize_dataset": True, "include_schema_metadata": True}
KINDS = ("json.loads", "per event", "coalesced")


def mixed_events() -> Iterator[bytes]:
    """The recorded events."""
    for path in sorted(CORPUS.glob("*.ndjson")):
        if path.stem != "streaming_progress":
            yield from path.read_bytes().splitlines(keepends=True)


def wide_events() -> Iterator[bytes]:
    """Events of writes of wide tables, modelled on a recorded one."""
    recorded = (CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines(keepends=True)
    model = next(event for event in map(json.loads, recorded) if event.get("outputs"))
    yield recorded[0]
    for table in range(TABLES):
        for event_type in ("START", "RUNNING", "RUNNING", "COMPLETE"):
            yield json.dumps(_wide_event(model, table, event_type)).encode() + b"\n"
    yield recorded[-1]


def _wide_event(model: dict[str, object], table: int, event_type: str) -> dict[str, object]:
    event = json.loads(json.dumps(model))
    event["eventType"], event["run"]["runId"] = event_type, f"01a1fd1c-36c1-768b-a4e2-{table:012d}"
    output = event["outputs"][0]
    output["name"] = f"/lake/out/t{table}"
    output["facets"]["schema"]["fields"] = [{"name": f"c{number}", "type": "string"} for number in range(COLUMNS)]
    output["facets"]["columnLineage"]["fields"] = {
        f"c{number}": {"inputFields": [_input("orders", number, "IDENTITY"), _input("customers", number, "JOIN")]}
        for number in range(COLUMNS)
    }
    return dict(event)


def _input(table: str, number: int, subtype: str) -> dict[str, object]:
    kind = "DIRECT" if subtype == "IDENTITY" else "INDIRECT"
    transformation = {"type": kind, "subtype": subtype, "description": "", "masking": False}
    name = f"/lake/raw/{table}.csv"
    return {"namespace": "file", "name": name, "field": f"s{number}", "transformations": [transformation]}


def measure(kind: str, path: Path) -> None:
    """Run one measurement in this process and print its CPU seconds and the process's peak memory in MiB."""
    from airflow_provider_spark_datahub.conversion.coalesce import Ending
    from airflow_provider_spark_datahub.conversion.convert import Converter, convert_run_event
    from airflow_provider_spark_datahub.conversion.settings import LineageSettings

    settings = LineageSettings.from_mapping(OPTIONS)
    lines = path.read_bytes().splitlines(keepends=True)
    started = time.process_time()
    if kind == "json.loads":
        for line in lines:
            json.loads(line)
    elif kind == "per event":
        for line in lines:
            for proposal in convert_run_event(line, settings):
                proposal.to_json()
    else:
        converter = Converter(settings)
        for line in lines:
            converter.add(line)
        for proposal in converter.finish(Ending(succeeded=True)).proposals(settings):
            proposal.to_json()
    used = time.process_time() - started
    print(used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def best(kind: str, path: Path, runs: int) -> tuple[float, float]:
    """The fewest CPU seconds of several new processes, and the most memory in MiB."""
    command = [sys.executable, __file__, "--measure", kind, str(path)]
    answers = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(runs)]
    return min(float(seconds) for seconds, _ in answers), max(float(memory) for _, memory in answers)


def main() -> None:
    """Print the ratios of both mixes."""
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], Path(sys.argv[3]))
        return
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        for name, events in (("mixed", mixed_events()), ("wide", wide_events())):
            path = Path(folder) / f"{name}.ndjson"
            lines = list(events)
            path.write_bytes(b"".join(lines))
            loads, _ = best("json.loads", path, runs)
            print(f"{name}: {len(lines)} events, {path.stat().st_size / 1e6:.1f} MB, json.loads {loads * 1000:.1f} ms")
            for kind in KINDS[1:]:
                seconds, memory = best(kind, path, runs)
                print(
                    f"  {kind:<10} {seconds * 1000:7.1f} ms CPU, {len(lines) / seconds:8.0f} events/s, "
                    f"{loads / seconds:.2f} of json.loads, {memory:.0f} MiB"
                )


if __name__ == "__main__":
    main()
