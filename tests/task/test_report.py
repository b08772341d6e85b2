from __future__ import annotations

import json
from typing import Any

from airflow_provider_spark_datahub.task.report import LineageReport
from tests.cases import cases


def report(**fields: object) -> LineageReport:
    given: dict[str, Any] = {
        "connection": "datahub",
        "events": 5,
        "inputs": ["a", "b"],
        "outputs": ["c"],
        "proposals": 9,
    }
    return LineageReport(**{**given, **fields})


def test_databases_can_store_the_report() -> None:
    """PostgreSQL refuses NUL and halves of surrogate pairs in JSON, and each XCom is a row."""
    obj = report(
        inputs=["a\0b", *map(str, range(5000))], gaps=["SELECT '\0\ud800é'"], reason="\0"
    ).to_obj()
    assert obj["inputs"][:2] == ["a\ufffdb", "0"]
    assert (obj["gaps"], obj["reason"]) == (["SELECT '\ufffd\ufffdé'"], "\ufffd")
    assert len(obj["inputs"]) == 1000
    assert obj["warnings"] == ["only 1000 of 5001 inputs are listed here"]
    assert report().to_obj()["warnings"] == []


@cases("task")
def test_the_report_is_one_line_with_its_counts_and_reason(
    fields: dict[str, object], sentence: str
) -> None:
    assert report(**fields).sentence == sentence


def test_the_report_in_xcom_is_json_with_every_field() -> None:
    one = report(warnings=["w"], outbox_entry="/outbox/x", seconds=1.5)
    assert LineageReport(**json.loads(json.dumps(one.to_obj()))) == one
