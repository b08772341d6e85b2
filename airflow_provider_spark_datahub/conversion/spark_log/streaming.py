"""Streaming queries as jobs of their own, beside the batch job of their application.

Spark's event log names each query with its sources and sinks. OpenLineage's runs of its
micro-batches add the rest: static sides of joins, writes in ``foreachBatch``, column lineage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.columns.facet import (
    PARSED_PLAN,
    ColumnEdge,
    ColumnId,
    DatasetColumns,
)
from airflow_provider_spark_datahub.conversion.columns.sql import short_statement
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer, folders_around
from airflow_provider_spark_datahub.conversion.diagnostics import Diagnostics
from airflow_provider_spark_datahub.conversion.events import DatasetId, dataset_id
from airflow_provider_spark_datahub.conversion.facets.run import RunDetails
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.coalesce import (
    JOB_TIMES,
    CoalescedJob,
    Ending,
    JobDefinition,
    JobLineage,
    JobRun,
    RunResult,
    coalesce,
    time_properties,
)
from airflow_provider_spark_datahub.conversion.runs.evidence import STREAMING_PROGRESS
from airflow_provider_spark_datahub.conversion.runs.fold import Application, DatasetState, RunState
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset, Lineage
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.column_graph import ColumnSource
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    Moment,
    StreamingQuery,
)
from airflow_provider_spark_datahub.conversion.spark_log.plan_columns import PlanColumns
from airflow_provider_spark_datahub.conversion.spark_log.plan_names import location_of
from airflow_provider_spark_datahub.conversion.urns import DEFAULT_CLUSTER, FlowIdentity

_DESCRIPTION = re.compile(r"(?P<kind>[^\[\]]+)\[(?P<inside>.*)\]", re.DOTALL)
# KafkaV2[Subscribe[orders, payments]], KafkaV2[SubscribePattern[orders.*]], or
# KafkaV2[Assign[orders-0, orders-1]].
_KAFKA = re.compile(r"(?:(?P<strategy>\w+)\[)?(?P<topics>[^\[\]]*)")
_PLATFORMS = {
    **dict.fromkeys(("KafkaV2", "KafkaV1", "KafkaSource", "KafkaSourceV1"), "kafka"),
    **dict.fromkeys(("DeltaSink", "DeltaSource"), "delta-lake"),
    **dict.fromkeys(("FileSink", "FileStreamSource"), "file"),
    "CloudFilesSource": "dbfs",
}
_PATHS = frozenset({"delta-lake", "file", "dbfs"})
# Sources and sinks without a dataset: generated rows, memory, a console, a socket, the user's code.
_NO_DATASET = re.compile(
    r"(Rate|Memory|Console|Foreach|TextSocket|Socket|Noop|PythonStreaming|AvailableNow)",
    re.IGNORECASE,
)


_SPECIAL = re.compile(r"[^A-Za-z0-9._-]")
_RATES = ("numInputRows", "inputRowsPerSecond", "processedRowsPerSecond")


@dataclass(slots=True)
class _Query:
    """A run of a query, with the OpenLineage runs of its micro-batches."""

    streaming: StreamingQuery
    logged: LoggedApplication
    application: Application | None
    runs: list[RunState] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Return whether later events cannot change names: a progress names the query and the
        sources of its files, and the end of a micro-batch names the tables behind paths.
        """
        return bool(self.streaming.progress) and any(run.ended for run in self.runs)

    @property
    def datasets(self) -> tuple[list[DatasetId], list[DatasetId]]:
        fs = self.logged.default_fs
        sources = self.streaming.sources.items()
        return (
            [
                dataset
                for description, offset in sources
                for dataset in _datasets_of(description, offset, fs)
            ],
            [
                dataset
                for description in self.streaming.sinks
                for dataset in _datasets_of(description, None, fs)
            ],
        )


def coalesce_with_queries(
    applications: Sequence[Application],
    logs: Sequence[LoggedApplication],
    symlinks: Mapping[DatasetId, DatasetId],
    settings: LineageSettings,
    ending: Ending,
    *,
    log_complete: bool = True,
) -> Iterator[JobLineage]:
    """Return one job per application, without its streaming queries, and one per streaming query.

    The run of a query is a child of its application's run.

    :param symlinks: the tables behind paths.
    :param log_complete: whether Spark's event logs were read to their ends.
    """
    queries = _queries(applications, logs)
    namer = DatasetNamer(settings, symlinks)
    query_jobs = [
        _job(query, namer, symlinks, settings, ending, log_complete=log_complete)
        for query in queries
        if ending.final or query.is_settled
    ]
    taken = {run.run_id for query in queries for run in query.runs}
    if taken:
        applications = [
            replace(
                application, runs=tuple(run for run in application.runs if run.run_id not in taken)
            )
            for application in applications
        ]
    return coalesce(applications, symlinks, settings, ending, query_jobs)


# -- descriptions of sources and sinks


def _platform_of(description: str) -> str:
    """Return the platform that a description stands for; generated names of queries begin with it."""
    kind = description.partition("[")[0].partition("@")[0].strip()
    return _PLATFORMS.get(kind, kind)


def _path_of(description: str) -> str:
    """Return the text in the brackets of a description: a path, or the strategy and topics of
    Kafka; else empty.
    """
    matched = _DESCRIPTION.fullmatch(description.strip())
    return matched["inside"].strip() if matched else ""


def _datasets_of(description: str, offset: Any, default_fs: str) -> Iterator[DatasetId]:
    """Yield the datasets of a source or sink, named as OpenLineage names them for a batch job.

    :param description: ``Namespace[path]``, as ``toString`` of the source or sink gives it.
    :param offset: the latest ``endOffset`` of the source, which lists the topics of a pattern.
    :param default_fs: Hadoop's ``fs.defaultFS`` for a path without a scheme; empty if it is not
        known.
    """
    inside, platform = _path_of(description), _platform_of(description)
    if not inside or _NO_DATASET.match(platform.rpartition(".")[2]):
        return
    if platform == "kafka":
        yield from (dataset_id("kafka", topic) for topic in _topics(inside, offset))
    elif platform in _PATHS:
        yield location_of(inside, "dbfs://" if platform == "dbfs" else default_fs)
    else:
        yield dataset_id(platform, inside)


def _topics(inside: str, offset: Any) -> list[str]:
    """Return the topics of a pattern or assignment from the offset, other topics from the
    description.
    """
    matched = _KAFKA.match(inside)
    if matched is None:
        return []
    listed = [topic.strip() for topic in matched["topics"].split(",") if topic.strip()]
    if matched["strategy"] not in ("SubscribePattern", "Assign"):
        return listed
    known = _offset_topics(offset)
    if known or matched["strategy"] == "SubscribePattern":
        # The pattern itself is not a topic.
        return known
    return list(dict.fromkeys(partition.rpartition("-")[0] for partition in listed))


def _offset_topics(offset: Any) -> list[str]:
    """Return the topics of a Kafka offset, ``{"orders": {"0": 5}}``, which the event log holds as
    text.
    """
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return []
    return sorted(offset) if isinstance(offset, dict) else []


def _query_name(query: StreamingQuery) -> str:
    """Return the user's name of a query, or one made of its sink that is the same in each of its
    runs.
    """
    if query.name.strip():
        return query.name.strip()
    sink = next(iter(query.sinks), "")
    platform = _platform_of(sink)
    path = _SPECIAL.sub("_", _path_of(sink).replace("/", ".")).strip(".")
    if path:
        return f"{platform}_sink_{path}"
    kind = re.split(r"[.$]", platform.rstrip("$"))[-1] or "query"
    # The Java listener distinguishes nameless queries by the batch number, which is different in
    # each batch.
    return f"unnamed_{kind}_{query.id or query.run_id}"


# -- micro-batches of queries


def _queries(
    applications: Sequence[Application], logs: Sequence[LoggedApplication]
) -> list[_Query]:
    found: list[_Query] = []
    for logged in logs:
        application = logged.match(applications, logs)
        queries = {
            run_id: _Query(query, logged, application) for run_id, query in logged.queries.items()
        }
        if application is not None and queries:
            _attribute(application, logged, queries)
        found += queries.values()
    return found


def _attribute(
    application: Application, logged: LoggedApplication, queries: Mapping[str, _Query]
) -> None:
    by_moment: dict[Moment, set[str]] = {}
    for execution in logged.executions.values():
        for moment in execution.moments:
            by_moment.setdefault(moment, set()).add(execution.query_run_id)
    for run in application.runs:
        if run.run_id == application.run_id:
            continue
        # Spark names the job group of a query's jobs after the query's run. An execution without
        # jobs has no group.
        group = run.job_property("jobGroup").lower()
        candidates = next(
            (by_moment[moment] for moment in run.moments if moment in by_moment), set()
        )
        owner = queries.get(group) or (queries.get(*candidates) if len(candidates) == 1 else None)
        if owner is not None:
            owner.runs.append(run)


# -- a query's job


def _job(
    query: _Query,
    namer: DatasetNamer,
    symlinks: Mapping[DatasetId, DatasetId],
    settings: LineageSettings,
    ending: Ending,
    *,
    log_complete: bool,
) -> JobLineage:
    streaming = query.streaming
    flow = _flow(query, settings)
    seen = _reported_lineage(query, symlinks, settings)
    start_ms = streaming.start_ms
    end_ms = streaming.last_ms if streaming.last_ms is not None else start_ms
    result = _result(query, ending)
    definition = JobDefinition(
        flow=flow,
        id=flow.flow_id,
        name=flow.flow_id,
        flow_properties=_flow_properties(query),
        properties=_job_properties(
            streaming, start_ms, end_ms if result is not None or ending.final else None
        ),
        tags=settings.tags or None,
        created_ms=start_ms,
        upstream_jobs=settings.upstream_jobs,
    )
    run = JobRun(
        id=streaming.run_id,
        start_ms=start_ms,
        end_ms=end_ms,
        result=result,
        started=start_ms is not None,
        details=RunDetails(run_type="STREAMING"),
        parent_urn=urns.dpi_urn(query.application.run_id) if query.application else None,
        is_application=False,
    )
    lineage = _lineage(query, seen, namer, settings)
    diagnostics = Diagnostics(unusable_datasets=dict(namer.unusable))
    if seen:
        diagnostics.merge(seen.diagnostics)
    diagnostics.gaps += tuple(_gaps(query, lineage, flow.flow_id, settings))
    doubts = query.application.doubts if query.application else ()
    is_complete = log_complete and ending.events_complete
    is_complete = is_complete and not (diagnostics.unreported_queries or doubts)
    # A run without new data read and wrote nothing, so that it does not show all edges of the
    # query.
    succeeded = (
        bool(streaming.rows) and ending.final and result is not None and result.type == "SUCCESS"
    )
    patch_edges = settings.use_patch or not (is_complete and succeeded)
    return JobLineage(
        definition,
        run,
        lineage,
        diagnostics,
        patch_edges,
        operations=seen.operations if seen else (),
    )


def _lineage(
    query: _Query, seen: JobLineage | None, namer: DatasetNamer, settings: LineageSettings
) -> Lineage:
    """Return the lineage that events report, with the sources and sinks that only the query's
    progress names.
    """
    sources, sinks = query.datasets
    progress = {"source": STREAMING_PROGRESS}
    progress |= {"queries": query.streaming.run_id} if settings.capture_evidence else {}
    inputs = _with(seen.lineage.inputs if seen else {}, sources, namer, progress)
    outputs = _with(seen.lineage.outputs if seen else {}, sinks, namer, progress)
    of_sources = {urn: progress for urn in map(namer.urn, sources) if urn is not None}
    writes: dict[str, Mapping[str, Mapping[str, str]]] = {}
    for urn in filter(None, map(namer.urn, sinks)):
        writes[urn] = of_sources
    for urn, reaching in (seen.lineage.writes if seen else {}).items():
        # What a function writes need not come from the stream.
        is_known = reaching or (seen and seen.lineage.inputs)
        writes[urn] = {**writes.get(urn, {}), **(reaching if is_known else of_sources)}
    return Lineage(
        inputs=inputs,
        outputs=outputs,
        writes=writes,
        fine_grained=seen.lineage.fine_grained if seen else (),
        statements=seen.lineage.statements if seen else {},
    )


def _gaps(query: _Query, lineage: Lineage, name: str, settings: LineageSettings) -> Iterator[str]:
    yield from _sink_gaps(query, lineage, name)
    if settings.capture_column_level_lineage:
        yield from _column_gaps(query, lineage, name)


def _sink_gaps(query: _Query, lineage: Lineage, name: str) -> Iterator[str]:
    """Yield a sentence for each sink of a query without outputs, unless the sink never has a
    dataset.
    """
    for sink in query.streaming.sinks if not lineage.outputs else ():
        # Some are objects of Java: org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable@1a.
        kind = re.split(r"[.$]", _platform_of(redact_text(sink)).rstrip("$"))[-1]
        to_function = kind.startswith("Foreach")
        if to_function or not _NO_DATASET.match(kind):
            reason = (
                "its rows go to a function of the job"
                if to_function
                else "Spark's event log does not name its sink"
            )
            yield f"no output of the streaming query {name!r} is known: {reason} ({kind})"


def _column_gaps(query: _Query, lineage: Lineage, name: str) -> Iterator[str]:
    """Yield a sentence for each output of a streaming query without column lineage."""
    unknown = [
        urn
        for urn in lineage.outputs
        if not any(
            urn in downstream for edge in lineage.fine_grained for downstream in edge["downstreams"]
        )
    ]
    reasons = ", and ".join(_ends_of_plans(query)) if unknown else ""
    reason = f". In Spark's plan, {short_statement(reasons, 200)}" if reasons else ""
    for urn in unknown:
        known = f"no column lineage of {urn} is known: OpenLineage reports none for the streaming query {name!r}"
        yield f"{known}{reason}"


def _ends_of_plans(query: _Query) -> tuple[str, ...]:
    """Return why the plans of the query's first micro-batch do not show where columns come from."""
    for parts in query.logged.root_executions():
        if parts[0].query_run_id == query.streaming.run_id and any(part.plan for part in parts):
            return PlanColumns().of(query.logged.plans_of(parts)).ends
    return ()


def _flow(query: _Query, settings: LineageSettings) -> FlowIdentity:
    flow_id = settings.flow_id(_query_name(query.streaming))
    if query.application is None:
        cluster = settings.platform_instance or DEFAULT_CLUSTER
        return FlowIdentity(settings.orchestrator or "spark", flow_id, cluster)
    return replace(query.application.runs[0].flow, flow_id=flow_id)


def _reported_lineage(
    query: _Query, symlinks: Mapping[DatasetId, DatasetId], settings: LineageSettings
) -> JobLineage | None:
    if query.application is None:
        return None
    runs = (
        [*query.runs, *_runs_of_plans(query)]
        if settings.capture_column_level_lineage
        else query.runs
    )
    if not runs:
        return None
    as_application = replace(
        query.application,
        run_id=query.streaming.run_id,
        runs=tuple(runs),
        own_run=None,
    )
    namer = DatasetNamer(settings, {**symlinks, **_files_of_sources(query, runs, symlinks)})
    return CoalescedJob(as_application, settings, Ending()).lineage(namer)


def _runs_of_plans(query: _Query) -> Iterator[RunState]:
    """Yield the micro-batches with the columns that their plans show, if the query has one sink
    with a dataset.
    """
    _, sinks = query.datasets
    if query.application is None or len(sinks) != 1:
        return
    known = {
        column for run in query.runs for _, state in run.written for column in state.direct_columns
    }
    plans, flow, run_id = PlanColumns(), query.application.runs[0].flow, query.streaming.run_id
    for parts in query.logged.root_executions():
        if parts[0].query_run_id != run_id or parts[0].failure:
            continue
        edges = [
            ColumnEdge((column,), upstreams, f"DIRECT:{PARSED_PLAN}")
            for column, sources in plans.of(query.logged.plans_of(parts)).result.items()
            if column not in known
            and (upstreams := tuple(_column_ids(sources, query.logged.default_fs)))
        ]
        if edges:
            outputs = {sinks[0]: DatasetState(columns=DatasetColumns.of(edges, ""))}
            yield RunState(run_id, 0, query.streaming.name, flow, outputs=outputs, is_logged=True)


def _column_ids(sources: Iterable[ColumnSource], default_fs: str) -> Iterator[ColumnId]:
    for source in sources:
        if source.dataset.path and not source.decides:
            yield ColumnId(location_of(source.dataset.path, default_fs), source.column)


def _files_of_sources(
    query: _Query, runs: Sequence[RunState], symlinks: Mapping[DatasetId, DatasetId]
) -> dict[DatasetId, DatasetId]:
    """Return the source of each file of a micro-batch, since column lineage names the single files."""
    sources, _ = query.datasets
    read = {dataset for run in runs for dataset in run.inputs}
    for run in runs:
        read.update(
            dataset for _, state in run.written if state.columns for dataset in state.columns.inputs
        )
    return {
        dataset: symlinks.get(source, source)
        for dataset in read.difference(symlinks, sources)
        for source in sources
        if source in folders_around(dataset)
    }


def _with(
    known: dict[str, JobDataset],
    named: Iterable[DatasetId],
    namer: DatasetNamer,
    evidence: Mapping[str, str],
) -> dict[str, JobDataset]:
    found = dict(known)
    for dataset in named:
        name = namer.name(dataset)
        if name is not None:
            found.setdefault(name.urn, JobDataset(name, (dataset,), edge_properties=evidence))
    return dict(sorted(found.items()))


def _result(query: _Query, ending: Ending) -> RunResult | None:
    if query.streaming.failure:
        return RunResult.of(succeeded=False)
    if query.streaming.ended:
        return RunResult.of(succeeded=True)
    if not ending.final:
        return None
    # The query ran until its driver ended, by success, failure or kill.
    succeeded = (
        ending.succeeded if ending.succeeded is not None else query.logged.end_ms is not None
    )
    return RunResult.of(succeeded)


def _flow_properties(query: _Query) -> dict[str, str]:
    properties = {}
    if query.logged.start_ms is not None:
        properties["createdAt"] = str(query.logged.start_ms)
    if query.streaming.id:
        properties["id"] = query.streaming.id
    if query.streaming.progress:
        plan = json.dumps(query.streaming.progress, ensure_ascii=False, separators=(",", ":"))
        properties["plan"] = redact_text(plan)
    return properties


def _job_properties(
    query: StreamingQuery, start_ms: int | None, end_ms: int | None
) -> dict[str, str]:
    properties = {}
    if query.progress:
        properties["batchId"] = str(query.progress.get("batchId", ""))
        for key in _RATES:
            value = query.metric(key)
            properties[key] = str(int(value)) if key == "numInputRows" else str(float(value))
    return properties | time_properties(JOB_TIMES, start_ms, end_ms)
