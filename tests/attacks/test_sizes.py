"""Events that are far larger than what DataHub takes: the limits hold before the work is done."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import (
    Conversion,
    Converter,
    Ending,
    LineageSettings,
    OutOfTimeError,
    redact_text,
    redaction,
    time_limit,
)
from airflow_provider_spark_datahub.conversion.columns import facet as columns
from airflow_provider_spark_datahub.conversion.columns.sql import short_statement
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.task.job_events import JobEvents
from airflow_provider_spark_datahub.task.submitted import SubmittedJob
from tests.operators.tries import CORPUS

COLUMNS, INPUTS, LIMIT = 1000, 10, 95
ATTEMPT = TaskAttempt(DagRun(AirflowSite(), "shop", "run"), "build", 1)
FACET = {
    "fields": {
        f"c{column}": {
            "inputFields": [
                {"namespace": "hive://h", "name": f"db.t{table}", "field": "a"}
                for table in range(INPUTS)
            ]
        }
        for column in range(COLUMNS)
    }
}


@pytest.mark.parametrize("is_typed", [True, False])
def test_column_lineage_beyond_the_limit_is_left_out(
    is_typed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_READ_PAIRS", LIMIT)
    facet = FACET if is_typed else {**FACET, "dataset": None}
    content = columns._read(json.dumps(facet).encode(), b"")
    assert [len(edge.upstreams) for edge in content.edges] == [INPUTS] * (LIMIT // INPUTS)
    assert content.left_out == COLUMNS * INPUTS - LIMIT // INPUTS * INPUTS


def _wide_event(many: int) -> bytes:
    """Return an event with so many inputs, and so many columns of its output."""
    event = json.loads((CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines()[2])
    event["inputs"] = [
        {"namespace": "s3://b", "name": f"/t{index}", "facets": {}} for index in range(many)
    ]
    fields = {
        f"c{index}": {"inputFields": [{"namespace": "s3://b", "name": f"/t{index}", "field": "a"}]}
        for index in range(many)
    }
    event["outputs"] = [
        {"namespace": "s3://b", "name": "/out", "facets": {"columnLineage": {"fields": fields}}}
    ]
    return json.dumps(event).encode()


def test_the_time_is_checked_within_one_event() -> None:
    many = 3000
    text = _wide_event(many)

    def convert(until: int) -> tuple[int, int]:
        """Return how many inputs there are, and how often the time was checked."""
        checks = count()
        with time_limit(lambda: next(checks) >= until):
            converter = Converter(LineageSettings())
            converter.add(text)
            conversion = converter.finish(Ending(True))
            made = next(checks)
            conversion.proposals(LineageSettings(use_patch=True))
            proposed.append(next(checks) - made)
            return len(conversion.inputs), made

    proposed: list[int] = []
    found, needed = convert(10**6)
    # The datasets are read, folded and named; the columns are decoded, read and written.
    assert (found, needed >= 6 * many // 1000) == (many, True)
    # Proposals of the datasets, their edges, and the columns.
    assert proposed[0] > 3 * many // 1000
    for until in (0, 4):
        # An interrupted conversion leaves nothing behind that a later conversion would take for a
        # result.
        with pytest.raises(OutOfTimeError):
            convert(until)
    assert convert(10**6)[0] == many


def _with_statement(path: Path, statement: str, outputs: int, columns: Mapping[str, Any]) -> None:
    event = json.loads((CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines()[2])
    event["job"]["facets"]["sql"] = {"query": statement}
    event["outputs"] = [
        {"namespace": "s3://b", "name": f"/out{number}", "facets": columns}
        for number in range(outputs)
    ]
    path.write_text(json.dumps(event) + "\n")


@pytest.mark.parametrize("columns", [{}, {"columnLineage": FACET}], ids=["no columns", "columns"])
def test_a_statement_is_searched_once_however_many_outputs_share_it(
    columns: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []
    substitute = redaction._replaced

    def counted(*arguments: Any) -> str:
        searched.append(len(arguments[-1]))
        return substitute(*arguments)

    monkeypatch.setattr(redaction, "_replaced", counted)
    path, statement = tmp_path / "events.ndjson", "INSERT INTO t VALUES (password = 'x') " * 5000
    _with_statement(path, statement, 50, columns)
    events = JobEvents(SubmittedJob(LineageSettings(), path))
    events.collect(Deadline.after(600))
    conversion, _ = events.lineage(True, ATTEMPT)
    assert len(conversion.outputs) == 50
    assert sum(searched) < 2 * len(statement)


@pytest.mark.parametrize(
    ("selects", "outputs", "facets"),
    [(1_000_000, 20, {}), (1, 3000, {"other": {"text": "x" * 2450}})],
)
def test_a_long_line_takes_six_times_its_size(
    tmp_path: Path, selects: int, outputs: int, facets: Mapping[str, Any]
) -> None:
    path = tmp_path / "events.ndjson"
    _with_statement(path, "SELECT a, 'ö\\' FROM t " * selects, outputs, facets)
    tracemalloc.start()
    events = JobEvents(SubmittedJob(LineageSettings(), path))
    events.collect(Deadline.after(600))
    conversion, _ = events.lineage(True, ATTEMPT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(conversion.outputs) == outputs
    assert peak < 6 * path.stat().st_size


@pytest.mark.parametrize("behind", range(0, 1200, 37))
def test_a_cut_leaves_no_part_of_a_secret(behind: int) -> None:
    """Wherever a text is cut, in a login or in a value."""
    for secret in (
        f"jdbc:mysql://etl:{'s3cr3t' * 40}@host/shop ",
        f"OPTIONS (password '{'s3cr3t' * 90}') ",
    ):
        text = "x" * behind + " " + secret + "y " * 2000
        for shown in (short_statement(text, 1100), redact_text(text, 1300)):
            assert "s3cr" not in shown


def _checks_within(text: str) -> int:
    checks = count()
    with time_limit(lambda: next(checks) < 0):
        redact_text(text)
    return next(checks)


@pytest.mark.slow
def test_the_time_is_checked_within_one_text() -> None:
    for text in ("password " * 50_000, "://a:" * 50_000 + "@" * 50_000, "pwd='x' " * 50_000):
        assert _checks_within(text) >= len(text) // 2**17
        redaction._redact_long_again.cache_clear()
        with pytest.raises(OutOfTimeError), time_limit(lambda: True):
            redact_text(text)


def test_a_long_text_is_redacted_as_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, as by one substitution."""
    words = [
        "password",
        "token=",
        "pwd",
        "://u:p@h",
        "://a:12345",
        "jdbc:oracle:thin:a/b@",
        "accessKey=>'",
        "Secret",
    ]
    words += [*" ='\"\\{}@/\n", "x" * 30, "é", "123"]
    rng = random.Random(1)
    texts = ["".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(500)]
    expected = list(map(redact_text, texts))
    monkeypatch.setattr(redaction, "_UNCHECKED_CHARACTERS", 7)
    assert list(map(redact_text, texts)) == expected


@pytest.mark.slow
def test_events_that_took_too_long_are_left_with_their_position(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    small = (CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines()[0]
    path.write_bytes(small + b"\n" + _wide_event(5000) + b"\n")
    never = Deadline.after(3600)

    def deadline_after(checks: int) -> Deadline:
        times = iter(range(checks))
        return Deadline(1.0, lambda: float(next(times, None) is None))

    def collected(deadline: Deadline, until: Deadline) -> tuple[JobEvents, Conversion | None]:
        events = JobEvents(SubmittedJob(LineageSettings(), path))
        assert events.collect(deadline).events == 2
        lineage = events.lineage_in_time(True, ATTEMPT, until)
        return events, lineage[0] if lineage else None

    for times, where in (
        ((deadline_after(6), never), "within event 2"),
        ((never, deadline_after(2)), "they were read, but not converted"),
    ):
        events, conversion = collected(*times)
        assert (conversion, events.out_of_time) == (None, True)
        assert where in events._report.sentence
    events, conversion = collected(never, never)
    assert conversion is not None
    assert len(conversion.inputs) == 5000
