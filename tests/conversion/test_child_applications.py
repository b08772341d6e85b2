"""A real dbt below one Bash command: see ``tests/data/child_sparks``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from airflow_provider_spark_datahub.conversion.convert import convert_events
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from tests.conversion.builders import settings
from tests.system.catalogue import Column, direct_columns

RECORDED = Path(__file__).parents[1] / "data" / "child_sparks"


def test_each_model_of_dbt_has_its_true_edges() -> None:
    truth = json.loads((RECORDED / "truth.json").read_bytes())
    commands = (gzip.decompress((RECORDED / f"dbt_{name}.ndjson.gz").read_bytes()) for name in ("seed", "run", "again"))
    events = [line for command in commands for line in command.splitlines()]
    conversion = convert_events(events, settings(unnamed_as="shop_dbt"), Ending(True, events_complete=True))
    assert len(conversion.jobs) == 3, "each command is a run"
    assert {job.job_urn for job in conversion.jobs} == {truth["job"]}
    assert (conversion.inputs, conversion.outputs) == (truth["inputs"], truth["outputs"])
    columns = {
        pair for job in conversion.jobs for pair in direct_columns({"fineGrainedLineages": job.lineage.fine_grained})
    }
    assert columns == {(Column(*source), Column(*target)) for source, target in truth["columns"]}
    assert conversion.diagnostics.gaps == (), "rows that a statement holds have no input"
