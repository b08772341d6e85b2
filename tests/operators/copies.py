"""Spark applications of one name. Each copies a table of its own."""

from __future__ import annotations

import json

from tests.conversion.builders import (
    APP,
    QUERY,
    column,
    column_lineage,
    file,
    query,
    urn,
    whole_application,
)
from tests.operators.tries import FakeSpark

SPARK_JOB = "urn:li:dataJob:(urn:li:dataFlow:(spark,shop,default),{})"
"""DataJob of a task's application: the id is ``<dag id>.<task id>``."""


def write_events(spark: FakeSpark, number: int, *, inputs: tuple[str, ...] = ()) -> None:
    """Have each job copy a table of its own into another one of its own."""
    source, target = f"/in/{number}", f"/out/{number}"
    run_id, query_id = APP[:-4] + f"{number:04d}", QUERY[:-5] + f"1{number:04d}"
    output = file(
        target, columnLineage=column_lineage({"id": [column(source, "id", "DIRECT:IDENTITY")]})
    )
    read = [file(path) for path in (inputs or (source,))]
    events = whole_application(
        query("START", run_id=query_id, parent=run_id, inputs=read),
        query(run_id=query_id, parent=run_id, inputs=read, outputs=[output]),
        run_id=run_id,
    )
    spark.writes(
        "".join(f"{json.dumps(event)}\n" for event in events).encode(), argument=str(number)
    )


def datasets(side: str, numbers: range) -> set[str]:
    return {urn("file", f"/{side}/{number}") for number in numbers}
