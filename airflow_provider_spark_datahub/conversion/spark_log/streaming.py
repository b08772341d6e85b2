"""Which datasets the descriptions in a ``StreamingQueryProgress`` name (conversion rules, section 8).

Streaming queries as jobs of their own, beside the batch job of their application (conversion rules, section 8).
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.facets.run import RunDetails
from airflow_provider_spark_datahub.conversion.identity import DEFAULT_CLUSTER, FlowIdentity
from airflow_provider_spark_datahub.conversion.paths import FALLBACK_PLATFORM, is_parent_folder
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.runs.coalesce import (
    JOB_TIMES,
    EachOthersEdges,
    Ending,
    JobLineage,
    RunResult,
    coalesce,
    endings,
    time_properties,
    told_of_job,
)
from airflow_provider_spark_datahub.conversion.runs.fold import RDD_JOB, Application, RunState
from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication, StreamingQuery, number_of

_DESCRIPTION = re.compile(r"(?P<kind>[^\[\]]+)\[(?P<inside>.*)\]", re.DOTALL)
# KafkaV2[Subscribe[orders, payments]], KafkaV2[SubscribePattern[orders.*]], KafkaV2[Assign[orders-0, orders-1]]
_KAFKA = re.compile(r"(?:(?P<strategy>\w+)\[)?(?P<topics>[^\[\]]*)")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_PLATFORMS = {
    **dict.fromkeys(("KafkaV2", "KafkaV1", "KafkaSource", "KafkaSourceV1"), "kafka"),
    **dict.fromkeys(("DeltaSink", "DeltaSource"), "delta-lake"),
    **dict.fromkeys(("FileSink", "FileStreamSource"), "file"),
    "CloudFilesSource": "dbfs",
}
_PATHS = frozenset({"delta-lake", "file", "dbfs"})
# They hold no data of their own: made up, in memory, a console, a socket, or the user's code.
_NO_DATASET = re.compile(
    r"(Rate|Memory|Console|Foreach|TextSocket|Socket|Noop|PythonStreaming|AvailableNow)", re.IGNORECASE
)


def platform_of(description: str) -> str:
    """The platform that a description stands for, as :func:`query names <streaming.query_name>` begin with it."""
    kind = description.partition("[")[0].partition("@")[0].strip()
    return _PLATFORMS.get(kind, kind)


def path_of(description: str) -> str:
    """What stands in the brackets of a description, or empty: a path, or the strategy and topics of Kafka."""
    matched = _DESCRIPTION.fullmatch(description.strip())
    return matched["inside"].strip() if matched else ""


def datasets_of(description: str, offset: Any, default_fs: str) -> Iterator[DatasetId]:
    """The datasets that a source or a sink is, named as OpenLineage names what a batch job reads or writes there.

    :param description: ``Namespace[path]``, as ``toString`` of the source or sink gives it.
    :param offset: the latest ``endOffset`` of the source, which knows the topics that a pattern stands for.
    :param default_fs: Hadoop's ``fs.defaultFS``, where a path has no scheme; empty where it is not known.
    """
    inside, platform = path_of(description), platform_of(description)
    if not inside or _NO_DATASET.match(platform.rpartition(".")[2]):
        return
    if platform == "kafka":
        yield from (DatasetId("kafka", topic) for topic in _topics(inside, offset))
    elif platform in _PATHS:
        yield location_of(inside, "dbfs://" if platform == "dbfs" else default_fs)
    else:
        yield DatasetId(platform, inside)


def _topics(inside: str, offset: Any) -> list[str]:
    """The topics as the offset names them; else as the description does."""
    matched = _KAFKA.match(inside)
    if matched is None:
        return []
    listed = [topic.strip() for topic in matched["topics"].split(",") if topic.strip()]
    if matched["strategy"] not in ("SubscribePattern", "Assign"):
        return listed
    known = _offset_keys(offset)
    if known or matched["strategy"] == "SubscribePattern":
        # A pattern by itself is no topic.
        return known
    return list(dict.fromkeys(partition.rpartition("-")[0] for partition in listed))


def _offset_keys(offset: Any) -> list[str]:
    """The topics of a Kafka offset, ``{"orders": {"0": 5}}``, which the event log holds as text."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return []
    return sorted(offset) if isinstance(offset, dict) else []


def location_of(path: str, default_fs: str) -> DatasetId:
    """A path as OpenLineage names it: ``file:/a`` is ``file`` ``/a``, ``s3://b/a`` is ``s3://b`` ``/a``.

    :param default_fs: Hadoop's ``fs.defaultFS``, where the path has no scheme; empty where it is not known.
    """
    matched = _SCHEME.match(path)
    if matched is None:
        # Where the file system is not known, the Java listener takes HDFS.
        scheme, _, host = default_fs.rstrip("/").partition("://")
        namespace = f"{scheme}://{host}" if host else scheme.rstrip(":") or FALLBACK_PLATFORM
        return DatasetId(namespace, _trimmed(path))
    scheme, rest = matched["scheme"], path[matched.end() :]
    if not rest.startswith("//"):
        return DatasetId(scheme, _trimmed(rest))
    host, slash, below = rest[2:].partition("/")
    return DatasetId(f"{scheme}://{host}" if host else scheme, _trimmed(slash + below))


def _trimmed(path: str) -> str:
    return path.rstrip("/") or "/"


_SPECIAL = re.compile(r"[^A-Za-z0-9._-]")
_RATES = ("numInputRows", "inputRowsPerSecond", "processedRowsPerSecond")


@dataclass(frozen=True, slots=True)
class LogReading:
    """What Spark's event logs told, and what must be known to name their queries.

    :param applications: from :class:`~airflow_provider_spark_datahub.conversion.spark_log.log.SparkLog`.
    :param complete: the logs were read to their ends.
    :param namespace: of the Spark jobs, for an application that sent no OpenLineage event.
    :param app_id_prefix: put Spark's application id in front of a query's name (Deviation 20).
    """

    applications: Sequence[LoggedApplication] = ()
    complete: bool = True
    namespace: str = DEFAULT_CLUSTER
    app_id_prefix: bool = False


@dataclass(slots=True)
class _Query:
    """A run of a query with the OpenLineage runs that were its micro-batches.

    :param listings: runs that only list or sample what it reads, and are no reads of anybody.
    """

    query: StreamingQuery
    logged: LoggedApplication
    application: Application | None
    runs: list[RunState] = field(default_factory=list)
    listings: list[RunState] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether what can be told of it will not change: its name, the sources that the files belong to which it
        reads (a progress names them), and the tables behind paths (the end of a micro-batch does)."""
        return bool(self.query.progress) and any(run.ended for run in self.runs)

    @property
    def datasets(self) -> tuple[list[DatasetId], list[DatasetId]]:
        """What its sources and its sink are."""
        fs = self.logged.default_fs
        sources = [one for text, offset in self.query.sources.items() for one in datasets_of(text, offset, fs)]
        return sources, [one for text in self.query.sinks for one in datasets_of(text, None, fs)]


def coalesce_with_queries(
    applications: Sequence[Application],
    log: LogReading,
    symlinks: Mapping[DatasetId, DatasetId],
    settings: LineageSettings,
    ending: Ending,
) -> Iterator[JobLineage]:
    """One job per application, without what its streaming queries did, and one per streaming query.

    A query's job has the sources and the sink that Spark itself names, and what OpenLineage saw of its micro-batches:
    the static sides of joins, what ``foreachBatch`` wrote, column lineage. Its run is a child of the application's.

    :param symlinks: the tables behind paths.
    """
    queries = _queries(applications, log)
    taken = {run.run_id for query in queries for run in (*query.runs, *query.listings)}
    rest = [one for one in (_without(application, taken) for application in applications) if one.runs]
    ends = list(endings(len(rest), ending))
    namer = DatasetNamer(settings, symlinks)
    of_queries = [
        _job(query, log, namer, symlinks, settings, ending) for query in queries if ending.final or query.is_known
    ]
    edges = EachOthersEdges()
    if ending.one_submission:
        edges.learn(told_of_job(one, settings, own) for one, own in zip(rest, ends, strict=True))
        edges.learn((job.job_urn, job.adds_only) for job in of_queries)
    # What many applications came to is more than memory may hold: each is gone when its job has been taken.
    del applications, queries
    waiting = deque(rest)
    del rest
    namer = DatasetNamer(settings, symlinks)
    for own in ends:
        yield edges.keep(coalesce(waiting.popleft(), namer, settings, own))
    yield from map(edges.keep, of_queries)


def _without(application: Application, taken: set[str]) -> Application:
    if not taken:
        return application
    return replace(application, runs=tuple(run for run in application.runs if run.run_id not in taken))


def application_ids(applications: Sequence[Application]) -> set[str]:
    """Spark's ids of the applications, as far as their events tell: whose logs to read where there are others."""
    return {id_ for one in applications for run in one.runs if (id_ := run.flow_property("appId"))}


def query_name(query: StreamingQuery) -> str:
    """A query's name: the user's own, else one made of its sink, the same in each of its runs."""
    if query.name.strip():
        return query.name.strip()
    sink = next(iter(query.sinks), "")
    platform = platform_of(sink)
    path = _SPECIAL.sub("_", path_of(sink).replace("/", ".")).strip(".")
    if path:
        return f"{platform}_sink_{path}"
    kind = re.split(r"[.$]", platform.rstrip("$"))[-1] or "query"
    # The batch's number, by which the Java listener tells nameless ones apart, is another one in each batch.
    return f"unnamed_{kind}_{query.id or query.run_id}"


# -- which OpenLineage runs belong to which query


def _queries(applications: Sequence[Application], log: LogReading) -> list[_Query]:
    found: list[_Query] = []
    for logged in log.applications:
        application = application_of(logged, applications, log.applications)
        queries = {id_: _Query(query, logged, application) for id_, query in logged.queries.items()}
        if application is not None and queries:
            _attribute(application, logged, queries)
        found += queries.values()
    return found


def application_of(
    logged: LoggedApplication, applications: Sequence[Application], logs: Sequence[LoggedApplication]
) -> Application | None:
    """The application that a log tells of, or ``None`` where it cannot be told."""
    by_id = {id_: one for one in applications for run in one.runs if (id_ := run.flow_property("appId"))}
    if logged.id in by_id:
        return by_id[logged.id]
    # Not every event carries the id, nor does a log whose beginning is missing.
    only = len(applications) == len(logs) == 1
    return applications[0] if only and not (by_id and logged.id) else None


def _attribute(application: Application, logged: LoggedApplication, queries: Mapping[str, _Query]) -> None:
    """Hand the runs of micro-batches to their queries."""
    by_time = _ExecutionTimes(logged)
    rest: list[RunState] = []
    for run in application.runs:
        if run.run_id == application.run_id:
            continue
        # Spark runs a query's jobs in a job group that is named after its run; an execution without jobs has none.
        group = run.job_property("jobGroup").lower()
        owner = queries.get(group) or queries.get(by_time.query_of(run))
        (owner.runs if owner is not None else rest).append(run)
    _attribute_listings(rest, queries)


class _ExecutionTimes:
    """When the SQL executions began and ended: OpenLineage's events have the very same times."""

    def __init__(self, logged: LoggedApplication) -> None:
        self._starts: dict[int, set[str]] = {}
        self._ends: dict[int, set[str]] = {}
        for execution in logged.executions.values():
            self._starts.setdefault(execution.start_ms, set()).add(execution.query_run_id)
            if execution.end_ms is not None:
                self._ends.setdefault(execution.end_ms, set()).add(execution.query_run_id)

    def query_of(self, run: RunState) -> str:
        """The run id of the only query whose execution it can be, or empty."""
        told = (
            self._starts.get(run.start_ms) if run.started and run.start_ms is not None else None,
            self._ends.get(run.end_ms) if run.ended and run.end_ms is not None else None,
        )
        candidates = next((one for one in told if one), set())
        return next(iter(candidates)) if len(candidates) == 1 else ""


def _attribute_listings(rest: Sequence[RunState], queries: Mapping[str, _Query]) -> None:
    """RDD jobs that only list or sample what a query reads, which are no reads of the batch job (Deviation 5)."""
    of_batch = {one for run in rest if run.job_type != RDD_JOB for one in (*run.inputs, *run.outputs)}
    listings = [run for run in rest if run.job_type == RDD_JOB and run.inputs and not run.outputs]
    listings = [run for run in listings if not _all_above(run.inputs, of_batch)]
    for query in queries.values() if listings else ():
        touched = {one for micro in query.runs for one in (*micro.inputs, *micro.outputs)}
        touched.update(*query.datasets)
        query.listings += [run for run in listings if _all_above(run.inputs, touched)]


def _all_above(listed: Iterable[DatasetId], touched: set[DatasetId]) -> bool:
    return all(
        one in touched
        or any(one.namespace == two.namespace and is_parent_folder(one.name, two.name) for two in touched)
        for one in listed
    )


# -- a query's job


def _job(
    one: _Query,
    log: LogReading,
    namer: DatasetNamer,
    symlinks: Mapping[DatasetId, DatasetId],
    settings: LineageSettings,
    ending: Ending,
) -> JobLineage:
    query = one.query
    flow = _flow(one, log, settings)
    seen = _seen_by_openlineage(one, symlinks, settings)
    sources, sinks = one.datasets
    start_ms = query.start_ms
    end_ms = query.last_ms if query.last_ms is not None else start_ms
    result = _result(one, ending)
    return JobLineage(
        flow=flow,
        job_id=flow.flow_id,
        job_name=flow.flow_id,
        run_id=query.run_id,
        flow_properties=_flow_properties(one),
        job_properties=_job_properties(query, start_ms, end_ms if result is not None or ending.final else None),
        description=None,
        owners=(),
        tags=settings.tags or None,
        inputs=_with(seen.inputs if seen else {}, sources, namer),
        outputs=_with(seen.outputs if seen else {}, sinks, namer),
        fine_grained=seen.fine_grained if seen else [],
        created_ms=start_ms,
        start_ms=start_ms,
        end_ms=end_ms,
        result=result,
        started=start_ms is not None,
        # A run that found nothing new read and wrote nothing, and says nothing of the query's edges.
        adds_only=settings.use_patch
        or not (query.rows and log.complete and ending.final and ending.events_complete)
        or result is None
        or result.type != "SUCCESS"
        or bool(seen and seen.untold),
        parent_instance=urns.dpi_urn(one.application.run_id) if one.application else None,
        upstream_jobs=(settings.parent_job_urn,) if settings.parent_job_urn else (),
        unusable={**namer.unusable, **(seen.unusable if seen else {})},
        column_gaps=seen.column_gaps if seen else (),
        run=RunDetails(run_type="STREAMING"),
        cut=seen.cut if seen else {},
        untold=seen.untold if seen else (),
        operations=seen.operations if seen else (),
        is_application=False,
    )


def _flow(one: _Query, log: LogReading, settings: LineageSettings) -> FlowIdentity:
    name = query_name(one.query)
    if log.app_id_prefix and one.logged.id:
        name = f"{one.logged.id}.{name}"
    flow_id = settings.flow_id(name)
    if one.application is None:
        cluster = settings.platform_instance or log.namespace
        return FlowIdentity(settings.orchestrator or "spark", flow_id, cluster)
    return replace(one.application.runs[0].flow, flow_id=flow_id)


def _seen_by_openlineage(
    one: _Query, symlinks: Mapping[DatasetId, DatasetId], settings: LineageSettings
) -> JobLineage | None:
    if one.application is None or not one.runs:
        return None
    as_application = replace(one.application, run_id=one.query.run_id, runs=tuple(one.runs), own_run=None)
    namer = DatasetNamer(settings, {**symlinks, **_files_of_sources(one, symlinks)})
    return coalesce(as_application, namer, settings, Ending())


def _files_of_sources(one: _Query, symlinks: Mapping[DatasetId, DatasetId]) -> dict[DatasetId, DatasetId]:
    """Column lineage names the very files of a micro-batch: they are the source that they lie in."""
    sources, _ = one.datasets
    read = {dataset for run in one.runs for dataset in run.inputs}
    for run in one.runs:
        read.update(dataset for _, state in run.written if state.columns for dataset in state.columns.inputs)
    return {
        dataset: symlinks.get(source, source)
        for dataset in read.difference(symlinks, sources)
        for source in sources
        if source.namespace == dataset.namespace and is_parent_folder(source.name, dataset.name)
    }


def _with(known: dict[str, JobDataset], named: Iterable[DatasetId], namer: DatasetNamer) -> dict[str, JobDataset]:
    found = dict(known)
    for dataset in named:
        name = namer.name(dataset)
        if name is not None:
            found.setdefault(name.urn, JobDataset(name, [dataset]))
    return dict(sorted(found.items()))


def _result(one: _Query, ending: Ending) -> RunResult | None:
    query = one.query
    if query.failure:
        return RunResult("FAILURE", "FAIL")
    if query.ended:
        return RunResult("SUCCESS", "COMPLETE")
    if not ending.final:
        return None
    # It ran until its driver ended: well, or by a failure or a kill.
    well = ending.succeeded if ending.succeeded is not None else one.logged.end_ms is not None
    return RunResult("SUCCESS", "COMPLETE") if well else RunResult("FAILURE", "FAIL")


def _flow_properties(one: _Query) -> dict[str, str]:
    properties = {}
    if one.logged.start_ms is not None:
        properties["createdAt"] = str(one.logged.start_ms)
    if one.query.id:
        properties["id"] = one.query.id
    if one.query.progress:
        plan = json.dumps(one.query.progress, ensure_ascii=False, separators=(",", ":"))
        properties["plan"] = redact_text(plan)
    return properties


def _job_properties(query: StreamingQuery, start_ms: int | None, end_ms: int | None) -> dict[str, str]:
    progress = query.progress
    properties = {}
    if progress:
        properties["batchId"] = str(progress.get("batchId", ""))
        sources = [source for source in progress.get("sources") or [] if isinstance(source, dict)]
        for key in _RATES:
            # The event log has the rates of the sources only, of which Spark's own totals are the sums.
            value = sum(number_of(holder, key) for holder in ([progress] if key in progress else sources))
            properties[key] = str(int(value)) if key == "numInputRows" else str(float(value))
    return properties | time_properties(JOB_TIMES, start_ms, end_ms)
