"""``datahub check metadata-file`` and ``datahub ingest`` of acryl-datahub read the files that this
package writes.
"""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.sinks import FileSink
from tests.cli.commands import run

HARD_JOBS = Path(__file__).parents[1] / "data" / "hard_jobs" / "events"
FULL = ("datasets=schemas", "capture_evidence=true")


def with_decoded_patch(proposal: dict[str, Any]) -> dict[str, Any]:
    """Return the proposal with its patch as JSON, as acryl-datahub's file sink writes it."""
    aspect = proposal["aspect"]
    return (
        {**proposal, "aspect": {"json": json.loads(aspect["value"])}}
        if "value" in aspect
        else proposal
    )


@pytest.mark.slow
def test_both_commands_read_the_files_of_convert_and_of_the_file_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A job that replaces its edges and one that failed, whose edges are a patch; all kinds of
    # aspects.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # acryl-datahub's own, when its pipeline is imported
        from datahub.cli.json_file import check_mce_file
        from datahub.ingestion.run import pipeline as run_pipeline
        from datahub.ingestion.run.pipeline import Pipeline
    # It asks the internet for newer versions of acryl-datahub, and leaves its connections open.
    monkeypatch.setattr(run_pipeline, "retrieve_version_stats", lambda **_: None)

    events = tmp_path / "events.ndjson"
    for recording, exit_code in (
        ("folders-4.3.0", 0),
        ("hidden_columns-4.3.0", 0),
        ("sigterm-4.3.0", 143),
    ):
        events.write_bytes(gzip.decompress((HARD_JOBS / f"{recording}.ndjson.gz").read_bytes()))
        converted = tmp_path / f"{recording}.json"
        options = [part for setting in FULL for part in ("--set", setting)]
        done = run(
            "convert",
            events,
            "--format",
            "datahub",
            "-o",
            converted,
            "--exit-code",
            exit_code,
            *options,
        )
        assert done.exit_code == 0, done.stderr
        proposals = json.loads(converted.read_text())
        assert ("PATCH" in {proposal["changeType"] for proposal in proposals}) == (exit_code != 0)

        delivery = FileSink(tmp_path / recording).deliver(
            [Proposal.from_obj(each) for each in proposals], Deadline.after(30)
        )
        assert not delivery.pending
        (delivered,) = (tmp_path / recording).iterdir()

        for file in (converted, delivered):
            assert check_mce_file(str(file)) == f"{len(proposals)} MCEs found - all valid"
            copy = file.with_suffix(".copy.json")
            pipeline = Pipeline.create(
                {
                    "source": {"type": "file", "config": {"path": str(file)}},
                    "sink": {"type": "file", "config": {"filename": str(copy)}},
                    "flags": {"set_system_metadata": False},
                },
                report_to=None,
            )
            pipeline.run()
            pipeline.raise_from_status(raise_warnings=True)
            assert list(map(with_decoded_patch, json.loads(copy.read_text()))) == list(
                map(with_decoded_patch, proposals)
            )
