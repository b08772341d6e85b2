"""Steps of the conversion that once compared each query, batch or dataset with each other one.

Twice as many of them may take twice as many steps of the interpreter, and hardly more. Steps are
counted, not timed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, cast

from msgspec.structs import replace

from airflow_provider_spark_datahub.conversion import (
    DatasetId,
    DatasetNamer,
    Diagnostics,
    LineageSettings,
)
from airflow_provider_spark_datahub.conversion.columns.facet import (
    ColumnEdge,
    ColumnId,
    DatasetColumns,
)
from airflow_provider_spark_datahub.conversion.datasets import Symlinks
from airflow_provider_spark_datahub.conversion.events import APPLICATION
from airflow_provider_spark_datahub.conversion.facets.run import PropertyLayers, RunDetails, _Layer
from airflow_provider_spark_datahub.conversion.runs import effects
from airflow_provider_spark_datahub.conversion.runs.effects import outer_runs
from airflow_provider_spark_datahub.conversion.runs.evidence import Evidence, rejected_edges
from airflow_provider_spark_datahub.conversion.runs.fold import (
    Application,
    DatasetState,
    RunState,
)
from airflow_provider_spark_datahub.conversion.runs.lineage import Lineage
from airflow_provider_spark_datahub.conversion.spark_log import LoggedApplication, queries_of_logs
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import (
    ColumnSource,
    Derivation,
)
from airflow_provider_spark_datahub.conversion.spark_log.log import SqlExecution
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import (
    ExecutionColumns,
    WrittenColumns,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_edges import PlanEdges
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import PlanNames
from airflow_provider_spark_datahub.conversion.spark_log.plan_runs import PlanRun, PlanRuns
from airflow_provider_spark_datahub.conversion.spark_log.plans import PlanDataset
from airflow_provider_spark_datahub.conversion.urns import FlowIdentity

FLOW = FlowIdentity("spark", "shop", "default")
CTAS = "shop.execute_create_data_source_table_as_select_command.t"


def path(name: object) -> DatasetId:
    return DatasetId("file", f"/data/{name}")


def run(
    number: int,
    *,
    job: str = CTAS,
    inputs: Sequence[DatasetId] = (),
    outputs: Sequence[DatasetId] = (),
    **more: Any,
) -> RunState:
    defaults = {
        "job_type": "SQL_JOB",
        "start_ms": number,
        "end_ms": number,
        "started": True,
        "ended": True,
    }
    known: dict[str, Any] = {
        "inputs": {dataset: DatasetState() for dataset in inputs},
        "outputs": {dataset: DatasetState() for dataset in outputs},
        **defaults,
        **more,
    }
    return RunState(f"run-{number}", number, job, FLOW, **known)


def application(runs: Sequence[RunState]) -> Application:
    own = run(-1, job="shop", job_type=APPLICATION, start_ms=0, end_ms=10**9)
    return Application("app", (own, *runs), own)


def steps(call: Callable[[], object]) -> int:
    """Return how many lines of Python run."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def refused(many: int) -> Callable[[], object]:
    wrote = [
        run(index, job="shop.insert.t", outputs=[path("t")], worked=True) for index in range(many)
    ]
    created = [run(many + index, outputs=[path("t")]) for index in range(many)]
    return lambda: effects.with_effects(application([*wrote, *created]))


def replaced(many: int) -> Callable[[], object]:
    command = "shop.atomic_replace_table_as_select.t"
    around = [run(index, job=command, outputs=[path("t")]) for index in range(many)]
    return lambda: outer_runs(
        [*around, *(run(index, job="shop.append.t", outputs=[path("t")]) for index in range(many))]
    )


def micro_batches(many: int) -> Callable[[], object]:
    batches = [
        run(
            index,
            inputs=[path("static/a.csv"), path(f"s/{index}.csv")],
            details=RunDetails(run_type="STREAMING"),
            properties={PropertyLayers((_Layer({"jobGroup": "query"}),), ()): 0},
        )
        for index in range(many)
    ]
    return lambda: effects.with_whole_folders(application(batches))


def renamed(many: int) -> Callable[[], object]:
    before = run(0, inputs=[path(f"a{index}/f") for index in range(many)])
    after = run(0, inputs=[path(f"b{index}") for index in range(many)])
    return lambda: list(rejected_edges([before], [after], str, in_flight=(), phantoms=()))


def models(many: int) -> Callable[[], object]:
    stages = [path(f"m{index}/stages/0_Scaler_0123456789ab") for index in range(many)]
    return lambda: effects.with_whole_folders(application([run(0, outputs=stages)]))


def silent_queries(many: int) -> Callable[[], object]:
    silent = [run(index, job=f"shop.append_data.s{index}") for index in range(many)]
    known = [
        run(index, job=f"shop.append_data.k{index}", outputs=[path(index)]) for index in range(many)
    ]
    return lambda: application([*silent, *known]).unreported_queries


def lost(many: int) -> Callable[[], object]:
    executions = {
        index: SqlExecution(
            index, "", "InsertIntoHadoopFsRelationCommand", index, 5 * index, end_ms=5 * index + 1
        )
        for index in range(many)
    }
    logged = LoggedApplication("app", executions=executions)
    reported = application([run(10**6, job="shop.x")])
    return lambda: queries_of_logs([reported], [logged], {}, LineageSettings())


def lost_edges(many: int) -> Callable[[], object]:
    executions = {
        index: SqlExecution(
            index, "", write_of("/data/out"), index, 5 * index + 1, end_ms=5 * index + 2
        )
        for index in range(many)
    }
    logged = LoggedApplication("app", executions=executions)
    reported = application([run(10**6, job="shop.x", start_ms=10**6)])
    settings = LineageSettings()

    def add() -> Lineage:
        (merged,) = queries_of_logs([reported], [logged], {}, settings).applications
        namer = DatasetNamer(settings, {})
        return Lineage.of(merged.runs, namer, settings, Diagnostics(), with_gaps=True, has_log=True)

    return add


def write_of(location: str) -> str:
    return (
        "== Physical Plan ==\nExecute InsertIntoHadoopFsRelationCommand (1)\n\n\n"
        f"(1) Execute InsertIntoHadoopFsRelationCommand\nInput: []\nArguments: file:{location}, false, Parquet, [], "
        "Append, [a]\n"
    )


def schema(columns: Sequence[str]) -> bytes:
    return json.dumps({"fields": [{"name": column} for column in columns]}).encode()


def written_to(
    target: PlanDataset, *sources: PlanDataset, column: str = "c"
) -> tuple[PlanDataset, WrittenColumns]:
    return target, {
        column: {ColumnSource(source, column): Derivation.IDENTITY for source in sources}
    }


def plan_columns_of(
    runs: Sequence[RunState], written: Iterable[tuple[PlanDataset, WrittenColumns]]
) -> Callable[[], object]:
    settings, logged = LineageSettings(), LoggedApplication("app")
    names, columns = PlanNames(logged, runs), ExecutionColumns([*written], {}, ())
    plans = PlanRuns(logged, names, Symlinks(), settings)
    edges = PlanEdges(names, DatasetNamer(settings, {}), settings)
    plan = PlanRun(
        [SqlExecution(0, "", "a plan", 0, 0, end_ms=0)], columns, {}, {}, plans.written(columns, {})
    )
    return lambda: [edges.added(one, plan) for one in runs]


def file(name: str) -> PlanDataset:
    return PlanDataset(path=f"file:/data/{name}")


def several_tables_of_one_insert(many: int) -> Callable[[], object]:
    targets = [f"t{index}" for index in range(many)]
    inserts = run(0, inputs=[path("read"), *map(path, range(many))], outputs=[*map(path, targets)])
    return plan_columns_of(
        [inserts], [written_to(file(target), file("read")) for target in targets]
    )


def relations_of_databases(many: int) -> Callable[[], object]:
    names = [f"public.t{index}" for index in range(many)]
    tables = [DatasetId("postgres://db:5432", f"shop.{name}") for name in names]
    written = written_to(file("t"), *(PlanDataset(relation=name) for name in names))
    return plan_columns_of([run(0, inputs=tables, outputs=[path("t")])], [written])


def sources_of_edges(many: int) -> Callable[[], object]:
    read = [path(f"r{index}") for index in range(many)]
    edges = [ColumnEdge(("c",), (ColumnId(dataset, "c"),), "x") for dataset in read]
    outputs = {path("t"): DatasetState(columns=DatasetColumns.of(edges, ""))}
    touched = [(replace(run(0), outputs=outputs), [(dataset, str(dataset)) for dataset in read])]
    return lambda: Evidence().properties("input", touched)


CASES = [
    *(refused, replaced, micro_batches, renamed, models, silent_queries, lost),
    *(several_tables_of_one_insert, relations_of_databases, sources_of_edges, lost_edges),
]


def test_an_edge_names_a_few_of_its_lost_executions() -> None:
    """All of their numbers would be as long as the number of edges of many executions, times
    itself.
    """
    (dataset,) = cast("Lineage", lost_edges(1_000)()).outputs.values()
    executions = ", ".join(map(str, range(20)))
    assert dataset.edge_properties == {
        "source": "SPARK_PLAN",
        "executions": executions,
        "moreExecutions": "980",
    }


def test_twice_as_many_take_twice_as_many_steps() -> None:
    many = 60
    for case in CASES:
        case(2 * many)()  # names are cached, and would else be new for the larger number alone
    found = {case.__name__: steps(case(2 * many)) / steps(case(many)) for case in CASES}
    assert {name: round(ratio, 2) for name, ratio in found.items() if ratio > 2.4} == {}
