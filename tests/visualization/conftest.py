"""A DAG run as the operator reports it: two Spark tasks in a chain, the first with a failed
attempt.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import Graph, render_terminal

MIDNIGHT = 1_795_132_800_000  # 2026-11-20T00:00:00Z, in milliseconds
DAG = "urn:li:dataFlow:(airflow,daily_sales,prod)"
DAG_RUN = "urn:li:dataProcessInstance:d0"
QUERY = "a990a543c9a2"
RAW = "urn:li:dataset:(urn:li:dataPlatform:s3,shop-raw/2026/{}.csv,PROD)"
TABLE = "urn:li:dataset:(urn:li:dataPlatform:hive,sales.{},PROD)"


def spark_job(name: str) -> str:
    return f"urn:li:dataJob:(urn:li:dataFlow:(spark,{name},default),{name})"


def run_proposals(
    urn: str,
    name: str,
    template: str | None,
    parent: str | None,
    upstreams: Sequence[str],
    created_ms: int = MIDNIGHT,
) -> list[Proposal]:
    relationships: dict[str, Any] = {"upstreamInstances": list(upstreams)}
    if template:
        relationships["parentTemplate"] = template
    if parent:
        relationships["parentInstance"] = parent
    created = {"time": created_ms, "actor": "urn:li:corpuser:datahub"}
    return [
        Proposal(
            "dataProcessInstance",
            urn,
            "dataProcessInstanceProperties",
            {"name": name, "created": created},
        ),
        Proposal("dataProcessInstance", urn, "dataProcessInstanceRelationships", relationships),
    ]


def event(
    urn: str,
    second: float,
    result: str | None = None,
    *,
    attempt: int | None = None,
    lasted: float = 0,
) -> Proposal:
    """Return a run event: STARTED without a result, COMPLETE with one; seconds after midnight."""
    lasted_ms = int(lasted * 1000) if result else None
    return event_at(urn, MIDNIGHT + int(second * 1000), attempt, result, lasted_ms)


def event_at(
    urn: str,
    time_ms: int,
    attempt: int | None = None,
    result: str | None = None,
    lasted_ms: int | None = None,
) -> Proposal:
    content: dict[str, Any] = {"timestampMillis": time_ms, "status": "STARTED"}
    if attempt is not None:
        content["attempt"] = attempt
    if result:
        content |= {"status": "COMPLETE", "result": {"type": result, "nativeResultType": "airflow"}}
    if lasted_ms is not None:
        content["durationMillis"] = lasted_ms
    return Proposal("dataProcessInstance", urn, "dataProcessInstanceRunEvent", content)


def lineage(
    job: str, inputs: list[str], outputs: list[str], columns: list[tuple[str, list[str], str]]
) -> Proposal:
    """Return column lineage of ``(output, inputs, transformation)``, each column as ``<dataset
    URN>#<field>``.
    """

    def field_urn(column: str) -> str:
        dataset, path = column.split("#")
        return f"urn:li:schemaField:({dataset},{path})"

    aspect = {
        "inputDatasets": [],
        "outputDatasets": [],
        "inputDatasetEdges": [{"destinationUrn": urn} for urn in inputs],
        "outputDatasetEdges": [{"destinationUrn": urn} for urn in outputs],
        "inputDatajobs": [f"urn:li:dataJob:({DAG},{job})"],
        "fineGrainedLineages": [
            {
                "upstreamType": "FIELD_SET",
                "downstreamType": "FIELD_SET",
                "upstreams": [field_urn(column) for column in upstreams],
                "downstreams": [field_urn(downstream)],
                "transformOperation": transformation,
                "confidenceScore": 0.5,
            }
            for downstream, upstreams, transformation in columns
        ],
    }
    return Proposal("dataJob", spark_job(job), "dataJobInputOutput", aspect)


def job_of_writes(
    job: str,
    *writes: tuple[list[str], list[str], list[tuple[str, list[str], str]]],
    reads: tuple[str, ...] = (),
    statement: str = "",
) -> list[Proposal]:
    """Return a Spark job with a DataJob for each write: inputs, outputs, columns.

    :param reads: datasets that reach no write.
    """
    own = {f"statement.{QUERY}": statement} if statement else {}
    proposals = [
        Proposal("dataJob", spark_job(job), "dataJobInfo", {"name": job, "customProperties": own}),
        lineage(job, list(reads), [], []),
    ]
    for number, write in enumerate(writes):
        name = f"{job}.{number}"
        info = {"name": name, "customProperties": {"applicationJob": spark_job(job)}}
        proposals += [
            Proposal("dataJob", spark_job(name), "dataJobInfo", info),
            lineage(name, *write),
        ]
    return proposals


def task_run(task: str, upstreams: tuple[str, ...] = ()) -> list[Proposal]:
    urn = f"urn:li:dataProcessInstance:{task}"
    return run_proposals(
        urn, f"daily_sales_{task}_x", f"urn:li:dataJob:({DAG},{task})", DAG_RUN, upstreams
    )


def application_run(urn: str, task: str) -> list[Proposal]:
    return run_proposals(
        urn, urn.split(":")[-1], spark_job(task), f"urn:li:dataProcessInstance:{task}", ()
    )


def shown(proposals: list[Proposal], width: int = 100, *, columns: bool = True) -> str:
    """Return what the terminal shows."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        render_terminal(Graph.of(proposals), console, columns=columns)
    return capture.get()


@pytest.fixture
def daily_sales() -> list[Proposal]:
    return sales_of_a_day()


def sales_of_a_day() -> list[Proposal]:
    build, revenue = "urn:li:dataProcessInstance:build_orders", "urn:li:dataProcessInstance:revenue"
    first_app, second_app = (
        "urn:li:dataProcessInstance:01a1fd23-34f9",
        "urn:li:dataProcessInstance:01a1fd24-77de",
    )
    third_app = "urn:li:dataProcessInstance:01a1fd25-d000"
    orders, customers = RAW.format("orders"), RAW.format("customers")
    clean, daily = TABLE.format("orders"), TABLE.format("daily_revenue")
    return [
        *run_proposals(DAG_RUN, "daily_sales_scheduled__2026-11-20T00:00:00+00:00", DAG, None, ()),
        event(DAG_RUN, 1),
        # revenue first: the order must come from the upstream edge
        *task_run("revenue", (build,)),
        event(revenue, 60, attempt=1),
        event(revenue, 90, "SUCCESS", attempt=1, lasted=30),
        *task_run("build_orders"),
        event(build, 2, attempt=1),
        event(build, 14.3, "UP_FOR_RETRY", attempt=1, lasted=12.3),
        event(build, 20, attempt=2),
        event(build, 55, "SUCCESS", attempt=2, lasted=35),
        *application_run(first_app, "build_orders"),
        event(first_app, 5),
        event(first_app, 14, "FAILURE", lasted=9),
        *application_run(second_app, "build_orders"),
        event(second_app, 23),
        event(second_app, 54, "SUCCESS", lasted=31),
        *application_run(third_app, "revenue"),
        event(third_app, 63),
        event(third_app, 89, "SUCCESS", lasted=26),
        event(DAG_RUN, 91, "SUCCESS", lasted=90),
        lineage(
            "build_orders",
            [orders, customers],
            [clean, TABLE.format("rejects")],
            [
                (f"{clean}#order_id", [f"{orders}#order_id"], "DIRECT:IDENTITY"),
                (
                    f"{clean}#name",
                    [f"{customers}#name"],
                    "-- DIRECT:TRANSFORMATION\nSELECT upper(name) FROM c",
                ),
            ],
        ),
        lineage(
            "revenue",
            [clean, TABLE.format("rates")],
            [daily],
            [
                (
                    f"{daily}#revenue",
                    [f"{clean}#amount", f"{TABLE.format('rates')}#rate"],
                    "DIRECT:AGGREGATION",
                )
            ],
        ),
    ]


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style></svg><script>alert(1)</script>",
    '`${alert(1)}` --> j1; click d1 "javascript:alert(1)"',
    "&lt;b&gt; #35; %3Cscript%3E",
    "\u202egnp.elbat\u202c",
    "\u05d8\u05d1\u05dc\u05d4 \u0637\u0627\u0648\u0644\u0629",
    "a\nb\x00\x1b[31mc\ud800",
    "\u8868" * 200,
    "{{ 7 * 7 }}{% endif %}{# ]]>",
    "\x1b]0;title\x07\x1b[2J\r[bold red]x[/] :boom:",
]
"""Names as an attacker, or a careless person, may give them."""


def dataset(name: str) -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:hive,{name},PROD)"


@pytest.fixture
def hostile() -> list[Proposal]:
    """Return proposals in which every name, type, transformation, result and link is hostile."""
    proposals = []
    for number, name in enumerate(HOSTILE):
        job, run = (
            f"urn:li:dataJob:(urn:li:dataFlow:(spark,{name},x),{name})",
            f"urn:li:dataProcessInstance:{name}",
        )
        source, target = dataset(f"{number}{name}"), dataset(f"{number}{name}/out")
        fields = [{"fieldPath": name, "nativeDataType": name}]
        edges = {
            "inputDatasetEdges": [{"destinationUrn": source}],
            "outputDatasetEdges": [{"destinationUrn": target}],
            "fineGrainedLineages": [
                {
                    "upstreams": [f"urn:li:schemaField:({source},{name})"],
                    "downstreams": [f"urn:li:schemaField:({target},{name})"],
                    "transformOperation": name,
                }
            ],
        }
        properties = {
            "name": name,
            "externalUrl": f"javascript:{name}",
            "customProperties": {"run_id": name},
        }
        relationships = {"parentTemplate": job, "upstreamInstances": [f"{run}/before"]}
        result = {"timestampMillis": MIDNIGHT, "status": "COMPLETE", "result": {"type": name}}
        proposals += [
            Proposal("dataJob", job, "dataJobInfo", {"name": name}),
            Proposal("dataJob", job, "dataJobInputOutput", edges),
            Proposal("dataset", source, "schemaMetadata", {"fields": fields}),
            Proposal("dataProcessInstance", run, "dataProcessInstanceProperties", properties),
            Proposal("dataProcessInstance", run, "dataProcessInstanceRelationships", relationships),
            Proposal("dataProcessInstance", run, "dataProcessInstanceRunEvent", result),
            Proposal("dataJob", name, "dataJobInputOutput", {}),
        ]
    return proposals
