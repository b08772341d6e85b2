"""The public API: its names, and the producers whose events it converts."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import column_lineage_dataset, nominal_time_run, processing_engine_run, sql_job
from openlineage.client.serde import Serde

from airflow_provider_spark_datahub import conversion
from airflow_provider_spark_datahub.conversion import Ending, EventError, LineageSettings
from tests.conversion.builders import QUERY, Json, dataset, event, find, urn
from tests.oracles.strict import canonical_violations

OPENLINEAGE = "https://github.com/OpenLineage/OpenLineage/tree/1.54.0"


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in conversion.__all__:
        public = getattr(conversion, name)
        assert inspect.getdoc(public)
        assert name in dir(conversion)
    with pytest.raises(AttributeError, match="no attribute 'convert_run_events'"):
        getattr(conversion, "convert_run_events")  # noqa: B009 (no such name)


def test_names_are_imported_when_they_are_used() -> None:
    # DAG files import modules below the package.
    program = (
        "import sys, airflow_provider_spark_datahub.conversion as c\n"
        "below = [one for one in sys.modules if one.startswith(c.__name__ + '.')]\n"
        "assert not below, below\n"
        "c.convert_run_event\n"
        "assert not {'airflow', 'datahub', 'pandas', 'pyspark'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_signatures_are_those_of_the_documentation() -> None:
    # What the stability promise is about.
    signatures = {
        name: list(inspect.signature(getattr(conversion, name)).parameters)
        for name in ("convert_run_event", "convert_events")
    }
    assert signatures == {
        "convert_run_event": ["event", "settings"],
        "convert_events": ["events", "settings", "ending"],
    }


PRODUCERS: dict[str, tuple[Json, str]] = {
    "airflow": (
        event(producer="https://github.com/apache/airflow/tree/providers-openlineage/2.20.3", job="shop.build"),
        "urn:li:dataFlow:(airflow,shop,default)",
    ),
    "trino": (
        event(producer="https://github.com/trinodb/trino/plugin/trino-openlineage", job="q1"),
        "urn:li:dataFlow:(trino,q1,default)",
    ),
    "flink": (
        event(producer=f"{OPENLINEAGE}/integration/flink", job="enrich"),
        "urn:li:dataFlow:(flink,enrich,default)",
    ),
    "dbt": (
        event(producer=f"{OPENLINEAGE}/integration/dbt", job="shop.build.run.orders"),
        "urn:li:dataFlow:(dbt,shop,default)",
    ),
    "hive": (
        event(producer=f"{OPENLINEAGE}/integration/hive", job="createtable_as_select.orders"),
        "urn:li:dataFlow:(hive,createtable_as_select,default)",
    ),
    "debezium": (
        event(
            producer="https://github.com/debezium/debezium/3.2.0",
            job="shop.0",
            run_facets={"processing_engine": {"name": "Debezium", "version": "3.2.0"}},
        ),
        "urn:li:dataFlow:(debezium,shop,default)",
    ),
}


@pytest.mark.parametrize("producer", PRODUCERS)
def test_events_of_other_producers_are_converted(producer: str) -> None:
    recorded, flow = PRODUCERS[producer]
    sent = {
        **recorded,
        "inputs": [dataset("postgres://db:5432", "shop.public.orders")],
        "outputs": [dataset("kafka://broker:9092", "orders")],
    }
    sent["job"]["facets"].pop("jobType", None)
    found = conversion.convert_run_event(json.dumps(sent).encode(), LineageSettings())
    assert find(found, "dataFlowInfo").entity_urn == flow
    assert find(found, "dataJobInfo").entity_urn == f"urn:li:dataJob:({flow},{sent['job']['name']})"
    assert find(found, "dataProcessInstanceInput").aspect == {"inputs": [urn("postgres", "shop.public.orders")]}
    assert find(found, "dataProcessInstanceOutput").aspect == {"outputs": [urn("kafka", "orders")]}
    assert [problem for one in found for problem in canonical_violations(one.to_obj())] == []


def test_events_of_openlineages_python_client_are_converted() -> None:
    columns = column_lineage_dataset.ColumnLineageDatasetFacet(
        fields={
            "total": column_lineage_dataset.Fields(
                inputFields=[
                    column_lineage_dataset.InputField(
                        "postgres://db",
                        "shop.public.orders",
                        "amount",
                        [column_lineage_dataset.Transformation(type="DIRECT", subtype="AGGREGATION")],
                    )
                ]
            )
        }
    )
    written = RunEvent(
        eventTime="2026-01-01T00:00:00Z",
        producer=f"{OPENLINEAGE}/client/python",
        eventType=RunState.COMPLETE,
        run=Run(
            QUERY,
            {
                "nominalTime": nominal_time_run.NominalTimeRunFacet("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
                "processing_engine": processing_engine_run.ProcessingEngineRunFacet("2.2", "pandas", "1.0"),
            },
        ),
        job=Job("nightly", "report.totals", {"sql": sql_job.SQLJobFacet("SELECT sum(amount) AS total FROM orders")}),
        inputs=[InputDataset("postgres://db", "shop.public.orders")],
        outputs=[OutputDataset("s3://lake", "totals", facets={"columnLineage": columns})],
    )
    found = conversion.convert_run_event(Serde.to_json(written).encode(), LineageSettings())
    assert find(found, "dataFlowInfo").entity_urn == "urn:li:dataFlow:(pandas,report,nightly)"
    (lineage,) = find(found, "dataJobInputOutput").aspect["fineGrainedLineages"]
    assert lineage["upstreams"] == [f"urn:li:schemaField:({urn('postgres', 'shop.public.orders')},amount)"]
    assert lineage["downstreams"] == [f"urn:li:schemaField:({urn('s3', 'lake/totals')},total)"]
    assert lineage["transformOperation"] == "-- DIRECT:AGGREGATION\nSELECT sum(amount) AS total FROM orders"
    assert [problem for one in found for problem in canonical_violations(one.to_obj())] == []


def test_the_public_names_suffice_for_a_stream() -> None:
    converted = conversion.convert_events([json.dumps(event()).encode()], LineageSettings(), Ending(succeeded=True))
    assert converted.events == 1
    assert converted.proposals(LineageSettings())


@pytest.mark.parametrize("anything", [b"[]", {"run": {}}, b"{"])
def test_anything_but_a_run_event_raises_an_event_error(anything: Any) -> None:
    with pytest.raises(EventError):
        conversion.convert_run_event(anything, LineageSettings())
