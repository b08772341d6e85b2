"""The pairs of recorded jobs, written by hand, agree with their datasets and columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conversion.builders import Json

DATA = Path(__file__).parents[1] / "data"


def _truths() -> dict[str, Json]:
    truths: dict[str, Json] = {}
    for corpus in ("field_jobs", "hard_jobs", "more_jobs"):
        text = (DATA / corpus / "truth.json").read_text(encoding="utf-8")
        truths |= json.loads(text)
    return truths


TRUTHS = _truths()


def _members(truth: Json, kind: str) -> set[str]:
    either = truth.get(f"either_{kind}", ())
    return {*truth[kind], *either}


@pytest.mark.parametrize("case", TRUTHS)
def test_pairs_agree_with_datasets_and_columns(case: str) -> None:
    truth = TRUTHS[case]
    inputs, outputs = _members(truth, "inputs"), _members(truth, "outputs")
    certain = {tuple(pair) for pair in truth["pairs"]}
    either = {tuple(pair) for pair in truth.get("either_pairs", ())}
    assert certain.isdisjoint(either)
    for source, target in certain | either:
        assert target in outputs
        # A statement that changes a table may read it.
        assert source in inputs or source == target
    for source, _, target, _ in truth.get("columns", ()):
        assert (source, target) in certain | either
