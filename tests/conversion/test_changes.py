"""What changed since a task's last green run, by the fingerprints of real conversions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from airflow_provider_spark_datahub.conversion.history import changes
from airflow_provider_spark_datahub.conversion.history.changes import (
    Fingerprint,
    changes_since,
    folded,
)
from airflow_provider_spark_datahub.delivery.outbox import Histories
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.cases import cases
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    dataset,
    file,
    only_job,
    query,
    schema,
    spark_properties,
    urn,
    whole_application,
)
from tests.conversion.recordings import lines_of
from tests.delivery.outboxes import outbox_at

DATA = Path(__file__).parents[1] / "data"
DAY_MS = 86_400_000
START_MS = 1_790_000_000_000
"""2026-09-21T14:13:20Z, the start of the runs of day 0."""
ORDERS = (("id", "long"), ("vat", "double"))


def read(name: str, *fields: tuple[str, str], rows: int | None = None, version: str = "") -> Json:
    table = file(f"/lake/{name}", schema=schema(*fields)) if fields else file(f"/lake/{name}")
    table["facets"] |= {"version": {"datasetVersion": version}} if version else {}
    return table | (
        {"inputFacets": {"inputStatistics": {"rowCount": rows, "size": 9}}}
        if rows is not None
        else {}
    )


def written(name: str, *fields: tuple[str, str], rows: int = 5, **facets: Any) -> Json:
    table = file(f"/lake/{name}", schema=schema(*fields), **facets)
    return {**table, "outputFacets": {"outputStatistics": {"rowCount": rows, "size": 9}}}


def run(
    day: int,
    inputs: Sequence[Json] = (),
    outputs: Sequence[Json] = (),
    *,
    task: str = "revenue",
    failure: str | None = None,
    hour: int = 0,
    **properties: Any,
) -> Fingerprint:
    """Return the fingerprint of a run of ten minutes. A failure comes before its query."""
    start_ms = START_MS + day * DAY_MS + hour * 3_600_000
    queries = (
        []
        if failure
        else [query(inputs=inputs, outputs=outputs, run_facets=spark_properties(**properties))]
    )
    job = only_job(whole_application(*queries))
    at = {"start_ms": start_ms + 1000, "time_ms": start_ms + 2000}
    job.operations = [structs.replace(operation, **at) for operation in job.operations]
    key = AttemptKey("shop", f"scheduled__{day}", task, -1, 1)
    bare = Fingerprint(key, start_ms, start_ms + 600_000, failure is None, failure or "")
    return Fingerprint.of(bare, [job])


def green(day: int, *fields: tuple[str, str]) -> Fingerprint:
    """Return a run that reads orders and writes revenue from its column vat."""
    lineage = column_lineage({"vat": [column("/lake/orders", "vat", "DIRECT:IDENTITY")]})
    return run(
        day,
        [read("orders", *(fields or ORDERS))],
        [written("revenue", ("vat", "double"), columnLineage=lineage)],
    )


def words(lines: list[str]) -> list[str]:
    """Return the lines without the run that they compare with."""
    assert all(
        line.startswith("since the green run of 2026-") and " UTC: " in line for line in lines
    )
    return [line.partition(" UTC: ")[2] for line in lines]


def test_a_column_that_the_writer_dropped_comes_first_when_the_reader_fails() -> None:
    build = [run(day, [], [written("orders", *ORDERS)], task="build", hour=-1) for day in (0, 1)]
    build += [
        run(2, [], [written("orders", ("id", "long"), ("tax", "double"))], task="build", hour=-1)
    ]
    failed = run(
        2,
        failure="[UNRESOLVED_COLUMN.WITH_SUGGESTION] `vat` cannot be resolved",
        spark__master="local[2]",
    )
    lines = changes_since(failed, [green(1), green(0)], build)
    assert lines == [
        "since the green run of 2026-09-22 14:23 UTC: /lake/orders lost the column vat and has the new column tax"
    ]


class Month:
    """A task's days, each with what differs every day: partitions, run ids, counts, folders and
    properties.
    """

    def __init__(self, root: Path) -> None:
        self.histories = Histories(outbox_at(root).storage)
        self.random = Random(20261126)

    def day(
        self,
        day: int,
        name: str = "orders",
        columns: Any = ORDERS,
        version: str = "",
        **changed: Any,
    ) -> list[str]:
        """Keep the run of a day with such an input, and return what changed.

        :param changed: rows that it reads and writes, a further input, and properties.
        """
        uuid, letters = (
            UUID(int=self.random.getrandbits(128)),
            "".join(self.random.choices("abcdefghijkxyz_", k=8)),
        )
        date, rows = f"2026-10-{day:02}", changed.get("rows", self.random.randint(700, 1300))
        inputs = [
            read(name, *columns, rows=rows, version=version or str(day)),
            read(f"raw/dt={date}/hour={day % 24:02}/{uuid}", ("id", "long"), rows=rows),
            read(
                f"tmp/{1_790_000_000 + 86_400 * day}/scheduled__{date}T00:00:00+00:00",
                ("id", "long"),
            ),
            *[read(other, ("id", "long")) for other in changed.get("more", ())],
        ]
        lineage = column_lineage({"vat": [column(f"/lake/{name}", "vat", "DIRECT:IDENTITY")]})
        output = written(
            "revenue", ("vat", "double"), rows=changed.get("written", rows), columnLineage=lineage
        )
        properties = {
            "spark__app__name": f"revenue {date}",
            "spark__local__dir": f"/tmp/blockmgr-{uuid}",
            "spark__kubernetes__driver__pod__name": f"revenue-{letters}-driver",
            "spark__master": "local[2]",
        }
        record = run(day, inputs, [output], **properties | changed.get("properties", {}))
        self.histories.write(record, max_age=86_400 * 7)
        return self.histories.changes(record)


@pytest.fixture
def month(tmp_path: Path) -> Month:
    """Return a month that nothing changed in: its days are silent as soon as three others show what
    rotates.
    """
    found = Month(tmp_path)
    lines = [found.day(day) for day in range(1, 31)]
    assert lines[3:] == [[]] * 27
    assert all("driver" in line for before in lines[:3] for line in before)
    return found


@cases("changes")
def test_a_month_is_silent_until_something_changes_which_is_named_first(
    month: Month, changed: Json, line: str
) -> None:
    lines = words(month.day(31, **changed))
    assert lines[:1] == ([lines[0]] if line else [])
    assert not line or lines[0].startswith(line)


def test_a_failed_run_says_nothing_of_what_it_did_not_come_to() -> None:
    assert changes_since(run(1, failure="exit code 1"), [green(0)]) == []


def test_an_edge_to_a_dataset_that_is_no_output_any_more_is_left_out() -> None:
    lineage = column_lineage({"vat": [column("/lake/orders", "vat", "DIRECT:IDENTITY")]})
    output = written("orders", ("vat", "double"), columnLineage=lineage)
    job = only_job(whole_application(query(inputs=[read("orders", *ORDERS)], outputs=[output])))
    job.lineage.outputs.clear()
    bare = Fingerprint(AttemptKey("shop", "r", "t", -1, 1), 1, 2, True)
    assert Fingerprint.of(bare, [job]).edges == ()


def test_each_of_many_inputs_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["x" * number for number in range(1, 201)]
    runs = [
        run(
            day,
            [read(name, ("id", "long")) for name in names],
            [written(f"out/{name}") for name in names],
        )
        for day in (2, 1)
    ]
    looks = list[str]()

    def fold(text: str, run_id: str = "") -> str:
        looks.append(text)
        return folded(text, run_id)

    monkeypatch.setattr(changes, "folded", fold)
    assert changes_since(runs[0], runs[1:]) == []
    assert len(looks) < 20 * len(names)


def test_at_most_five_lines_and_what_the_failure_mentions_first() -> None:
    names = [f"t_{letter}" for letter in "abcdefg"]
    before = run(
        0, [read(name, ("id", "long")) for name in names], [written("out", ("id", "long"))]
    )
    after = run(
        1,
        [read(name, ("id", "long"), ("x", "long")) for name in names],
        [written("out", ("id", "long"))],
    )
    failed = structs.replace(after, succeeded=False, failure="Path does not exist: t_g")
    lines = words(changes_since(failed, [before]))
    assert len(lines) == 5
    assert lines[0] == "/lake/t_g has the new column x"


def test_columns_that_may_reach_an_output_without_an_edge_are_known_as_hidden() -> None:
    lineage = column_lineage({"vat": [column("/lake/orders", "vat", "DIRECT:IDENTITY")]})
    whole = run(
        0, [read("orders", *ORDERS)], [written("out", ("vat", "double"), columnLineage=lineage)]
    )
    assert whole.hidden == ()
    assert whole.edges == ((1, 0, (("vat", "vat"),)),)
    # A column without a known source may come from anywhere.
    unknown = written("out", ("vat", "double"), ("made", "string"), columnLineage=lineage)
    assert run(0, [read("orders", *ORDERS)], [unknown]).hidden == (urn("file", "/lake/orders"),)
    # Another input has no edge at all.
    second = run(
        0,
        [read("orders", *ORDERS), read("rates")],
        [written("out", ("vat", "double"), columnLineage=lineage)],
    )
    assert second.hidden == (urn("file", "/lake/rates"),)


def daily(
    day: int, place: str, *, task: str = "daily", inputs: Sequence[Json] = (), **options: Any
) -> Fingerprint:
    """Return the run of a task that writes a path: ``{0}`` in it is the number of the day, ``{1}``
    the run's id.
    """
    run_id = f"night-{'abcdefgh'[day]}"
    scheme, _, path = place.format(day, run_id).partition("://")
    bucket, _, key = path.partition("/")
    namespace, name = (
        (f"{scheme}://{bucket}", f"/{key}") if path else ("file", scheme.removeprefix("file:"))
    )
    job = only_job(
        whole_application(query(inputs=inputs, outputs=[dataset(namespace, name)])), **options
    )
    start_ms = START_MS + day * DAY_MS
    return Fingerprint.of(
        Fingerprint(AttemptKey("shop", run_id, task, -1, 1), start_ms, start_ms + 1, True), [job]
    )


@cases("changes")
@pytest.mark.parametrize("instance", ["", "eu"])
def test_a_table_a_day_is_named_with_the_path_spec_that_folds_it(
    place: str, spec: Json, made: str, instance: str
) -> None:
    options: Json = {}
    if instance:
        options, made = {"dataset_platform_instance": instance}, f"{instance}.{made}"
        spec = {
            name: {"path_spec_list": texts, "platform_instance": instance}
            for name, texts in spec.items()
        }
    (line,) = words(
        changes_since(daily(3, place, **options), [daily(day, place, **options) for day in (2, 1)])
    )
    assert line.endswith(f"path_specs={json.dumps(spec)} makes them {made}")
    assert changes_since(daily(3, place, **options), [daily(2, place, **options)]) == []
    (one,) = {
        urn for day in (2, 3) for urn in daily(day, place, path_specs=spec, **options).outputs
    }
    assert one.split(",")[1] == made


def test_a_path_spec_that_renames_another_dataset_says_so() -> None:
    place, others = (
        "file:/lake/out/orders_2026112{0}",
        [file("/lake/out"), file("/lake/raw"), file("/lake/raw/rates")],
    )
    (line,) = words(changes_since(*_last(daily(day, place, inputs=others) for day in (1, 2, 3))))
    assert line.endswith("makes them /lake/out, and renames /lake/raw/rates")


def _last(runs: Iterable[Fingerprint]) -> tuple[Fingerprint, list[Fingerprint]]:
    *greens, now = runs
    return now, greens[::-1]


def test_a_fingerprint_has_versions_and_whether_nothing_else_is_left() -> None:
    # Two customers and three orders; the job is jobs/iceberg_writes.py beside the events.
    events = lines_of(DATA / "hard_jobs" / "events" / "iceberg_writes-4.1.4.ndjson")
    record = Fingerprint.of(
        Fingerprint(AttemptKey("shop", "r", "t", -1, 1), 1, 2, True), [only_job(events)]
    )
    sold, days, state = (urn("hive", f"db.{name}") for name in ("sold", "days", "state"))
    # INSERT OVERWRITE was its first write: all of its records are new.
    assert (record.outputs[days].replaces, record.outputs[sold].replaces) == (True, False)
    assert set(record.outputs[days].versions) == {"2793335811928341821", "9115248043645265397"}
    # Written with three rows, and replaced by two: by a query around the query that writes.
    assert record.outputs[state].rows == 5
