"""OpenLineage events for measurements: as many as wanted, the same on every run, and like those of
real applications.

Every event is a recorded one with other names in it. Within an application the same parts come
again byte by byte, as OpenLineage sends them. Two applications differ in run ids, times, names,
paths, tables and columns, so that what a converter remembers of one does not help with the next;
only what depends on Spark's version alone stays the same.

    mixed   all recorded jobs in turn: 271 events of nine applications, 4.5 KB each; then the same
    again as others wide    applications that write 30 tables of 300 columns each: 122 events, 130
    KB each long    one application that never ends, with query after query on 200 sets of tables, 5
    KB an event
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "data" / "corpus" / "events"
TABLES, COLUMNS = 30, 300
TABLE_SETS = 200
_APART = timedelta(minutes=7)

_RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RUN_DIGITS = 7
_APPLICATION_ID = re.compile(r"local-\d+")
_DATABASE = re.compile(r"\b(sales|dl)\.(?!db\b)")
# Where a recorded event is to differ: characters that stand in JSON only escaped.
_OWN, _NAME, _RUN, _TIME, _CALLED = "\x01", "\x02", "\x03", "\x04", "\x05"
_PLACES = (_OWN, _NAME, _RUN, _TIME, _CALLED)
_PLACE = re.compile(f"([{''.join(_PLACES)}])")


class RecordedJob:
    """The recorded events of one application, with places for what differs.

    :param events: the first one is the start of the application.
    """

    def __init__(self, events: Iterable[dict[str, Any]]) -> None:
        start, *others = events
        facets = start["run"]["facets"]
        # What the application is called, by itself and in the names of its jobs.
        self._names = (
            facets["spark_properties"]["properties"]["spark.app.name"],
            start["job"]["name"],
            "my_dag",
        )
        self._own_runs = set(_RUN_ID.findall(json.dumps(start)))
        self.events = [self._split(event) for event in (start, *others)]

    def line(self, index: int, *, own: int, called: int, names: int, runs: int) -> bytes:
        """One event as one line of JSON. The numbers are below ten million.

        :param index: of the event.
        :param own: number of the application's own run.
        :param called: number in its name.
        :param names: number of its paths, tables and columns.
        :param runs: number of the runs of its queries, and of its times.
        """
        time, parts = self.events[index]
        moment = (time + runs * _APART).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        numbers = {_OWN: own, _CALLED: called, _RUN: runs}
        values = {place: f"{number:0{_RUN_DIGITS}d}" for place, number in numbers.items()}
        values |= {_NAME: f"{names:d}", _TIME: moment}
        return "".join([values.get(part, part) for part in parts]).encode()

    def _split(self, event: dict[str, Any]) -> tuple[datetime, list[str]]:
        text = json.dumps(
            self._marked(event) | {"eventTime": _TIME}, ensure_ascii=False, separators=(",", ":")
        )
        for place in _PLACES:
            text = text.replace(json.dumps(place)[1:-1], place)
        return datetime.fromisoformat(event["eventTime"]), [*_PLACE.split(text), "\n"]

    def _marked(self, value: Any, above: str = "") -> Any:
        """The value with marks in its texts.

        :param above: the key under which the value stands, or the list that it is in.
        """
        if isinstance(value, list):
            return [self._marked(item, above) for item in value]
        if isinstance(value, dict):
            return {
                _marked_key(key, item): self._marked_item(key, item, above)
                for key, item in value.items()
            }
        return self._marked_text(value) if isinstance(value, str) else value

    def _marked_item(self, key: str, item: Any, above: str) -> Any:
        is_column = key == "field" or (above == "fields" and key == "name")
        return f"{item}_{_NAME}" if is_column else self._marked(item, key)

    def _marked_text(self, text: str) -> str:
        text = _RUN_ID.sub(self._marked_run, text)
        text = _APPLICATION_ID.sub(rf"\g<0>{_OWN}", text)
        text = text.replace("/lake/", f"/lake/{_NAME}/")
        text = _DATABASE.sub(rf"\1_{_NAME}.", text)
        for name in self._names:
            if text == name or text.startswith(f"{name}."):
                return f"{name}_{_CALLED}{text[len(name) :]}"
        return text

    def _marked_run(self, found: re.Match[str]) -> str:
        return found.group()[:-_RUN_DIGITS] + (_OWN if found.group() in self._own_runs else _RUN)


def _marked_key(key: str, item: Any) -> str:
    """The keys of column lineage are columns."""
    return f"{key}_{_NAME}" if isinstance(item, dict) and "inputFields" in item else key


def _recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / f"{name}.ndjson").read_bytes().splitlines()]


@cache
def _mixed_jobs() -> list[RecordedJob]:
    names = sorted(
        path.stem for path in CORPUS.glob("*.ndjson") if path.stem != "streaming_progress"
    )
    return [RecordedJob(_recorded(name)) for name in names]


@cache
def _wide_job() -> RecordedJob:
    start, *others = _recorded("a_csv_join_agg")
    model = next(event for event in others if event.get("outputs"))
    types = ("START", "RUNNING", "RUNNING", "COMPLETE")
    queries = (
        _wide_event(model, table, event_type) for table in range(TABLES) for event_type in types
    )
    return RecordedJob([start, *queries, others[-1]])


def _wide_event(model: dict[str, Any], table: int, event_type: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(json.dumps(model))
    event["eventType"], event["run"]["runId"] = (
        event_type,
        f"01a1fd1c-36c1-768b-a4{table:02d}-000000000000",
    )
    for dataset in event["inputs"]:
        # The model's tables do not have these columns.
        del dataset["facets"]["schema"]
    output = event["outputs"][0]
    output["name"] = f"/lake/out/t{table}"
    output["facets"]["schema"]["fields"] = [
        {"name": f"c{number}", "type": "string"} for number in range(COLUMNS)
    ]
    output["facets"]["columnLineage"]["fields"] = {
        f"c{number}": {
            "inputFields": [
                _input("orders", number, "IDENTITY"),
                _input("customers", number, "JOIN"),
            ]
        }
        for number in range(COLUMNS)
    }
    return event


def many_writes(outputs: int, *, own_inputs: bool) -> list[bytes]:
    """The events of one application that writes so many tables.

    :param own_inputs: each from a table of its own; else all from the same.
    """
    start, *others = _recorded("a_csv_join_agg")
    model = json.dumps(next(event for event in others if event.get("outputs")))
    queries = []
    for table in range(outputs):
        source = f"raw/orders{table}.csv" if own_inputs else "raw/orders.csv"
        query = json.loads(model.replace("raw/orders.csv", source))
        query["run"]["runId"] = f"01a1fd1c-36c1-768b-a400-{table:012d}"
        query["outputs"][0]["name"] = f"/lake/out/t{table}"
        queries += [query | {"eventType": event_type} for event_type in ("START", "COMPLETE")]
    return [json.dumps(event).encode() for event in (start, *queries, others[-1])]


def _input(table: str, number: int, subtype: str) -> dict[str, Any]:
    kind = "DIRECT" if subtype == "IDENTITY" else "INDIRECT"
    transformation = {"type": kind, "subtype": subtype, "description": "", "masking": False}
    name = f"/lake/raw/{table}.csv"
    return {
        "namespace": "file",
        "name": name,
        "field": f"s{number}",
        "transformations": [transformation],
    }


def mixed_application(number: int) -> Iterator[bytes]:
    """The events of one application: nine in a row run all of the recorded jobs.

    :param number: below ten million; two numbers are two applications.
    """
    jobs = _mixed_jobs()
    return _whole(jobs[number % len(jobs)], number)


def wide_application(number: int) -> Iterator[bytes]:
    """The events of one application that writes wide tables. :param number: below ten million."""
    return _whole(_wide_job(), number)


def _whole(job: RecordedJob, number: int) -> Iterator[bytes]:
    return _run(job, number, called=number)


def _run(job: RecordedJob, number: int, called: int) -> Iterator[bytes]:
    return (
        job.line(index, own=number, called=called, names=called, runs=number)
        for index in range(len(job.events))
    )


def mixed_run(number: int) -> Iterator[bytes]:
    """The events of one run of a job that runs every day, on the same tables: nine in a row run all
    recorded jobs.

    :param number: below ten million; two numbers are two runs.
    """
    jobs = _mixed_jobs()
    return _run(jobs[number % len(jobs)], number, called=0)


def wide_run(number: int) -> Iterator[bytes]:
    """The events of one run of a job that writes the same wide tables every day. :param number: as
    above.
    """
    return _run(_wide_job(), number, called=0)


def long_application() -> Iterator[bytes]:
    """The events of one application without end: the same queries again and again as other runs, on
    other tables.
    """
    job = RecordedJob(_recorded("b_multi_sql_hive"))
    yield job.line(0, own=0, called=0, names=0, runs=0)
    for turn in count():
        for index in range(1, len(job.events) - 1):
            yield job.line(index, own=0, called=0, names=turn % TABLE_SETS, runs=turn)


MIXES: dict[str, Callable[[], Iterator[bytes]]] = {
    "mixed": lambda: chain.from_iterable(map(mixed_application, count())),
    "wide": lambda: chain.from_iterable(map(wide_application, count())),
    "long": long_application,
}
"""Events without end."""


def of_size(events: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The first events that are together as large as wanted, or a little larger.

    :param size: in bytes.
    """
    written = 0
    for event in events:
        yield event
        written += len(event)
        if written >= size:
            return
