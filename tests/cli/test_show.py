"""Pictures of proposals from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import run

JOB = Path(__file__).parents[1] / "data" / "corpus" / "events" / "a_csv_join_agg.ndjson"


@pytest.mark.parametrize("form", ["lines", "datahub"])
def test_show(tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    run("convert", JOB, "--exit-code", 0, "--format", form, "-o", out)
    shown = run("show", out)
    assert shown.exit_code == 0
    assert "a_csv_join_agg" in shown.output
    assert "revenue_by_country" in shown.output


@pytest.mark.parametrize("content", [None, "no json", '{"a": 1}'])
def test_show_of_what_is_no_proposal(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "out"
    if content is not None:
        path.write_text(content)
    result = run("show", path)
    assert result.exit_code == 1
    assert str(path) in result.stderr
