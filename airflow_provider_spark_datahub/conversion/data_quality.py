"""Results of data-quality checks that a run made, as the ``testResults`` of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    EventDataset,
    RunEvent,
    as_object,
    as_objects,
    as_text,
)
from airflow_provider_spark_datahub.conversion.shared_aspects import audit_stamp

_ASSERTIONS = "dataQualityAssertions"
_PASSED = {"pass": True, "fail": False}


class Check(NamedTuple):
    """What was checked.

    :param dataset: ``None`` where the check is of the run as a whole.
    :param column: empty where the check is of the whole dataset.
    """

    dataset: DatasetId | None
    column: str
    name: str


def checks_of(event: RunEvent) -> dict[Check, bool]:
    """The checks that an event tells of, and whether each was passed; what was skipped is not told.

    From the ``dataQualityAssertions`` facet of datasets (an input facet, which older producers put among the others)
    and the ``test`` run facet.
    """
    found = {check: passed for one in (*event.inputs, *event.outputs) for check, passed in _of_dataset(one)}
    for test in as_objects(event.run_facets["test"].get("tests")):
        name, passed = as_text(test.get("name")).strip(), _PASSED.get(as_text(test.get("status")))
        if name and passed is not None:
            found[Check(None, "", name)] = passed
    return found


def _of_dataset(dataset: EventDataset) -> Iterator[tuple[Check, bool]]:
    facets = dataset.facets[_ASSERTIONS], as_object(as_object(dataset.input_facets).get(_ASSERTIONS))
    for facet in facets:
        for one in as_objects(facet.get("assertions")):
            name = as_text(one.get("name")).strip() or as_text(one.get("assertion")).strip()
            if name and isinstance(one.get("success"), bool):
                yield Check(dataset.id, as_text(one.get("column")).strip(), name), one["success"]


def results_by_test(checks: Iterable[Mapping[Check, bool]], namer: DatasetNamer) -> dict[str, bool]:
    """Whether each test was passed, by its URN, sorted; of one that was made again the last result.

    A test has no entity of its own: its id says what was checked, ``<platform>.<dataset>.<column>.<name>``.
    """
    found: dict[str, bool] = {}
    for one in checks:
        for check, passed in one.items():
            name = namer.name(check.dataset) if check.dataset is not None else None
            if name is not None or check.dataset is None:
                place = (name.platform, name.full_name) if name is not None else ()
                found[urns.test_urn(".".join(part for part in (*place, check.column, check.name) if part))] = passed
    return dict(sorted(found.items()))


def test_results(results: Mapping[str, bool], time_ms: int | None) -> dict[str, Any]:
    """The aspect.

    :param time_ms: when the run ended.
    """
    computed = audit_stamp(time_ms)
    return {
        "failing": [
            {"test": urn, "type": "FAILURE", "lastComputed": computed} for urn, passed in results.items() if not passed
        ],
        "passing": [
            {"test": urn, "type": "SUCCESS", "lastComputed": computed} for urn, passed in results.items() if passed
        ],
    }
