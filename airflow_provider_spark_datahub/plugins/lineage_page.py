"""The page *Spark lineage* in Airflow's API server: lineage and its delivery, by DAG, DAG run and task instance.

Airflow serves the applications of plugins without authentication. So each address here asks Airflow's auth manager:
users who may read a DAG's task instances may look, and users who may edit them may deliver. Requests that change
something need a token that only the page contains, and must come from the page.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, cast
from urllib.parse import urlencode, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.providers.common.compat.sdk import conf
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import JSONResponse, RedirectResponse
from itsdangerous import BadSignature, URLSafeTimedSerializer

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.delivery.outbox import AttemptRecord
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.hooks import LineageSource, Scope, TaskReport

log = logging.getLogger(__name__)

_MOST_RUNS = 200
"""Most runs in a list. At most ten times as many attempts are read for it."""
_TOKEN_SECONDS = 12 * 3600
_REASONS = 3
_WORST_FIRST = ("quarantined", "pending", "unfinished", "unknown", "no lineage", "delivered")
_WHY = {
    "pending": "It waits for its next delivery.",
    "unfinished": "Its events are not converted: the attempt runs, was killed, or had no time left.",
    "unknown": "It was pending when the task ended; the outbox of this server knows nothing of it.",
}
"""Why lineage is in a state, if no report says more."""
_LOOKED_AT = 5
"""Number of a DAG's newest runs among which a run that can be drawn is looked for."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_looks = requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)
_edits = requires_access_dag("PUT", DagAccessEntity.TASK_INSTANCE)


def _one_dag(request: Request) -> None:
    """Refuse an ambiguous DAG: the auth manager reads ``~`` as all DAGs, and only the last one of several."""
    dag_ids = request.query_params.getlist("dag_id")
    if len(dag_ids) != 1 or dag_ids[0] in ("", "~"):
        raise HTTPException(422, "dag_id must name one DAG")


def _scope(dag_id: str, run_id: str, task_id: str | None = None, map_index: Annotated[str, Query()] = "-1") -> Scope:
    # Airflow's UI leaves the placeholder in the address of a task that is not mapped.
    index = int(map_index) if re.fullmatch(r"\d{1,9}", map_index) else -1
    return Scope(dag_id, run_id, task_id or None, index)


_SourceDep = Annotated[LineageSource, Depends(LineageSource)]
_ScopeDep = Annotated[Scope, Depends(_scope)]


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(conf.get_mandatory_value("api", "secret_key"), salt="spark-datahub page")


def _from_the_page(request: Request, user: GetUserDep) -> None:
    """Refuse a request that another site may have made in the user's name."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    hosts = {request.headers.get("host"), urlsplit(conf.get("api", "base_url", fallback="") or "").netloc}
    if site not in (None, "same-origin") or (origin is not None and urlsplit(origin).netloc not in hosts - {""}):
        raise HTTPException(403, "The request comes from another site")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "The request must be JSON")
    try:
        named = _serializer().loads(request.headers.get("x-page-token", ""), max_age=_TOKEN_SECONDS)
    except BadSignature:
        named = None
    if named != str(user.get_id()):
        raise HTTPException(403, "The page is too old or of another user: load it again")


def create_app() -> FastAPI:
    """Return the application."""
    app = FastAPI(title="Spark lineage", openapi_url=None, docs_url=None, redoc_url=None)
    looks = [Depends(_one_dag), Depends(_looks)]
    edits = [Depends(_one_dag), Depends(_edits), Depends(_from_the_page)]
    app.get("/runs")(_list_runs)
    app.get("/run", dependencies=looks)(_show_run)
    app.get("/task", dependencies=looks)(_show_task)
    app.get("/reached", dependencies=looks)(_show_reached)
    app.get("/proposals", dependencies=looks)(_download)
    app.post("/deliver", dependencies=edits)(_deliver)
    app.post("/requeue", dependencies=edits)(_requeue)
    app.add_exception_handler(OSError, _unreadable)
    app.add_exception_handler(401, _log_in)
    return app


async def _log_in(request: Request, error: Exception) -> Response:
    """Lead a person to Airflow's login, and back; programs get the error."""
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return await http_exception_handler(request, cast("HTTPException", error))
    base = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    back = urlencode({"next": f"{request.url.path}?{request.url.query}"})
    return RedirectResponse(f"{base}/api/v2/auth/login?{back}", headers=_HEADERS)


def _unreadable(_: Request, error: Exception) -> JSONResponse:
    log.warning("The outbox cannot be used: %s", error)
    return JSONResponse({"detail": f"The outbox cannot be used: {error}"}, 503, headers=_HEADERS)


def _list_runs(request: Request, user: GetUserDep, source: _SourceDep) -> Response:
    """Return the page of the newest runs of one DAG, with the lineage of its latest, or of all readable DAGs."""
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    dag_id = state = ""
    if any(request.query_params.getlist("dag_id")):
        _one_dag(request)
        _looks(request, user)
        dag_id = request.query_params["dag_id"]
    if request.query_params.get("state") in _WORST_FIRST:
        state = request.query_params["state"]
    wanted = {dag_id} if dag_id else readable
    may_look = cache(partial(_may, _looks, user))
    reports = source.reports(wanted, most=10 * _MOST_RUNS)
    records, settled, problem = [], set[str](), ""
    try:
        records = source.newest(10 * _MOST_RUNS, wanted, undelivered=True)
        settled = source.settled(reports)
    except OSError as error:  # the reports are shown anyway
        problem = f"The outbox cannot be read: {error}"
    if not dag_id:
        reports = [report for report in reports if may_look(report.key.dag_id)]
        records = [record for record in records if may_look(record.key.dag_id)]
    runs = _runs(reports, records, settled)
    graph, drawn = _latest_graph(runs, source) if dag_id else (None, "")
    runs = [run for run in runs if state in ("", run.state)]
    empty = "" if runs else "There is no such run."
    if not (reports or records):
        empty = "No task has reported lineage yet, and the outbox is empty."
    more = f"The newest {_MOST_RUNS} runs." if len(runs) > _MOST_RUNS else empty
    runs = runs[:_MOST_RUNS]
    states = source.run_states([run.key for run in runs])
    columns = ("DAG", "run", "Airflow", "lineage", "in / out", "reason", "when (UTC)")
    filters = {"dag_id": ("all DAGs", dag_id, sorted(readable)), "state": ("all states", state, _WORST_FIRST)}
    notes = " ".join(note for note in (problem, more, drawn) if note)
    rows = [run.row(states.get(run.key, "")) for run in runs]
    attempts = visualization.Attempts("Runs", columns, rows, more=notes, filters=filters)
    return _page(graph, visualization.Frame(f"Spark lineage of {dag_id}" if dag_id else "Spark lineage", attempts))


def _may(check: Callable[[Request, Any], None], user: Any, dag_id: str) -> bool:
    """Return whether a check of Airflow's lets a user see or edit a DAG, as at an address that names the DAG."""
    query = urlencode({"dag_id": dag_id}).encode()
    try:
        check(Request({"type": "http", "query_string": query, "path_params": {}}), user)
    except HTTPException:
        return False
    return True


@dataclass(slots=True)
class _Run:
    """Lineage of a DAG run (its key: DAG and run) in a list."""

    key: tuple[str, str]
    states: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    reasons: dict[str, None] = field(default_factory=dict)
    time: int = 0

    @property
    def state(self) -> str:
        return next(state for state in _WORST_FIRST if state in self.states)

    def add(self, state: str, attempts: Iterable[AttemptRecord | TaskReport], reported: TaskReport | None) -> None:
        self.states.add(state)
        self.time = max(self.time, *(attempt.created_ms for attempt in attempts))
        if reported is not None:
            self.inputs.update(reported.report.get("inputs") or ())
            self.outputs.update(reported.report.get("outputs") or ())
        self.reasons |= dict.fromkeys(_why(state, attempts))

    def row(self, airflow_state: str) -> visualization.AttemptRow:
        return visualization.AttemptRow(
            self.key,
            (airflow_state, self.state),
            f"{len(self.inputs)}\u00a0/\u00a0{len(self.outputs)}",
            tuple(self.reasons)[:_REASONS],
            self.time,
            link=f"run?{_query(Scope(*self.key))}",
        )


def _why(state: str, attempts: Iterable[AttemptRecord | TaskReport]) -> tuple[str, ...]:
    """Return the reasons of a state; none of lineage that is delivered."""
    if state == "delivered":
        return ()
    said = [attempt for attempt in attempts if attempt.reasons]
    # The outbox's reason is of the last delivery, a report's of the task's end.
    last = [attempt for attempt in said if isinstance(attempt, AttemptRecord)] or said
    reasons = dict.fromkeys(reason for attempt in last for reason in attempt.reasons)
    return tuple(reasons) if reasons and state != "unknown" else tuple(filter(None, [_WHY.get(state)]))


def _latest_graph(runs: Sequence[_Run], source: LineageSource) -> tuple[visualization.Graph | None, str]:
    """Return the lineage of a DAG's newest run with proposals in the outbox, and a sentence that names the run."""
    for run in runs[:_LOOKED_AT]:
        try:
            records = source.records(Scope(*run.key))
        except OSError:
            break
        graph = visualization.Graph.of(proposal for record in records for proposal in record.proposals)
        if graph.jobs or graph.roots:
            return graph, f"The drawing is of {run.key[1]}."
    return None, ""


def _runs(reports: Iterable[TaskReport], records: Iterable[AttemptRecord], settled: set[str]) -> list[_Run]:
    """Return the runs, newest first."""
    undelivered: dict[str, list[AttemptRecord]] = {}
    for record in records:
        undelivered.setdefault(record.key.instance, []).append(record)
    reported = {report.key.instance: report for report in reports}
    runs: dict[tuple[str, str], _Run] = {}
    for instance in reported.keys() | undelivered.keys():
        report, waiting = reported.get(instance), undelivered.get(instance, [])
        attempts: list[AttemptRecord | TaskReport] = [*waiting, *([report] if report else [])]
        states = {record.state for record in waiting} or {report.state(settled) if report else ""}
        key = (attempts[0].key.dag_id, attempts[0].key.run_id)
        worst = next(state for state in _WORST_FIRST if state in states)
        runs.setdefault(key, _Run(key)).add(worst, attempts, report)
    return sorted(runs.values(), key=lambda run: -run.time)


def _show_run(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> Response:
    scope = Scope(scope.dag_id, scope.run_id)
    return _scope_page(scope, user, source, f"Spark lineage of {scope.dag_id}, {scope.run_id}")


def _show_task(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> Response:
    if scope.task_id is None:
        raise HTTPException(422, "task_id must name a task")
    return _scope_page(scope, user, source, f"Spark lineage of {_task_name(scope.task_id, scope.map_index)}")


def _scope_page(scope: Scope, user: Any, source: LineageSource, title: str) -> Response:
    reports = source.reports([scope.dag_id], scope)
    records = source.records(scope)
    run = (scope.dag_id, scope.run_id)
    if not (reports or records or source.run_states([run])):
        unknown = visualization.Attempts(
            "Delivery", (), (), more=f"Airflow has no run {scope.run_id} of the DAG {scope.dag_id}."
        )
        return _page(None, visualization.Frame(title, unknown), 404)
    rows = [*_record_rows(records, reports, scope), *_report_rows(reports, records, source.settled(reports), scope)]
    query = _query(scope)
    states = {record.state for record in records}
    actions = []
    if may_edit := _may(_edits, user, scope.dag_id):
        if states & {"pending", "unfinished"}:
            actions.append(visualization.Action("Deliver now", f"deliver?{query}", "Delivering …"))
        if "quarantined" in states:
            actions.append(visualization.Action("Requeue", f"requeue?{query}", "Requeueing …"))
    more = (
        "" if may_edit or not states - {"delivered"} else "You may look, but not deliver: this needs the right to edit."
    )
    columns = ("attempt", "lineage", "content", "reason", "when (UTC)")
    token = str(_serializer().dumps(str(user.get_id()))) if may_edit else ""
    attempts = visualization.Attempts("Delivery", columns, rows, actions, token, more)
    # Add the end of the DAG run: without it, the run tree of a task would show the DAG run as RUNNING for ever.
    ends = [] if scope.task_id is None else source.records(Scope(scope.dag_id, scope.run_id, ""))
    graph = visualization.Graph.of(proposal for record in (*records, *ends) for proposal in record.proposals)
    empty = _why_empty(reports, records)
    reached = f"reached?{query}&dataset="
    return _page(graph, visualization.Frame(title, attempts, visualization.read_asset("actions.js"), empty, reached))


def _show_reached(scope: _ScopeDep, user: GetUserDep, source: _SourceDep, dataset: str = "") -> Response:
    """Return the page of the task instances that read what a DAG run or task instance wrote into a dataset."""
    found, may_look = source.impact(scope, dataset), cache(partial(_may, _looks, user))
    # The way may be a task of a DAG that the user may not see.
    ways = {"", *(f"{one.dag_id}.{one.task_id}" for one in found.reached if may_look(one.dag_id))}
    rows = [
        visualization.AttemptRow(
            (one.dag_id, one.run_id, _task_name(one.task_id, one.map_index)),
            (),
            one.how if one.through in ways else "inferred through a task without lineage",
            time=one.logical_ms,
            link=f"task?{_query(Scope(one.dag_id, one.run_id, one.task_id, one.map_index))}",
        )
        for one in found.reached
        if may_look(one.dag_id)
    ]
    hidden = len(found.reached) - len(rows)
    more = f"{found.sentence}." if found.downstream else "No task instance is known to have read what it wrote."
    more += f" You may not see {counted(hidden, 'other')}." if hidden else ""
    columns = ("DAG", "run", "task", "how", "", "logical date (UTC)")
    attempts = visualization.Attempts(f"Reached through {dataset}", columns, rows, more=more)
    return _page(None, visualization.Frame(f"What {scope.run_id} reached", attempts))


def _why_empty(reports: Sequence[TaskReport], records: Sequence[AttemptRecord]) -> str:
    """Return the sentence for a page without lineage; empty to use the page's own."""
    reasons = [reason for reported in reports for reason in reported.reasons]
    if reasons:
        return f"No lineage: {reasons[0]}"
    if any(record.state == "unfinished" for record in records):
        return "An attempt was killed or ran out of time before its events were converted. Its delivery converts them."
    if any(record.key.task_id for record in records):
        return ""
    if reports:
        return "The outbox of this server no longer has the proposals, or never had them: see the counts above."
    return (
        "No attempt has reported lineage: none has ended yet, Airflow ended it before the task began, or the task is "
        "not one of Spark lineage. Its log says more."
    )


def _record_rows(
    records: Iterable[AttemptRecord], reports: Iterable[TaskReport], scope: Scope
) -> Iterator[visualization.AttemptRow]:
    reported = {report.key.instance: report for report in reports if report.was_pending}
    for record in records:
        key, report = record.key, reported.get(record.key.instance)
        name = f"{_task_name(key.task_id, key.map_index)} try {key.try_number}" if key.task_id else "end of the DAG run"
        content = counted(record.count, "proposal") if record.state != "unfinished" else "events"
        yield visualization.AttemptRow(
            (name,),
            (record.state,),
            f"{content} for {record.connection}",
            tuple(filter(None, [record.failure, *_why(record.state, [record, *([report] if report else [])])])),
            record.created_ms,
            raw=f"proposals?{_query(scope)}" if record.proposals else "",
        )


def _report_rows(
    reports: Iterable[TaskReport], records: Iterable[AttemptRecord], settled: set[str], scope: Scope
) -> Iterator[visualization.AttemptRow]:
    states: dict[str, set[str]] = {}
    failed = {record.key.instance for record in records if record.failure}
    for record in records:
        states.setdefault(record.key.instance, set()).add(record.state)
    for reported in reports:
        report, task = reported.report, (reported.key.task_id, reported.key.map_index)
        counts = [
            counted(report.get("events", 0), "event"),
            counted(len(report.get("inputs") or ()), "input"),
            counted(len(report.get("outputs") or ()), "output"),
            counted(report.get("proposals", 0), "proposal"),
        ]
        known, state = states.get(reported.key.instance, set()), reported.state(settled)
        if known - {"delivered"} or state in known:
            state = ""  # the rows of its entries have it
        lists = (text for name in ("changes", "warnings") for text in report.get(name) or ())
        failure = None if reported.key.instance in failed else report.get("failure")
        said = (failure, *(_why(state, [reported]) if state else ()), *lists)
        notes = tuple(str(note) for note in said if note)
        link = "" if scope.task_id is not None else f"task?{_query(Scope(scope.dag_id, scope.run_id, *task))}"
        name = f"report of {_task_name(*task)}"
        yield visualization.AttemptRow((name,), (state,), ", ".join(counts), notes, reported.created_ms, link)


def _task_name(task_id: str, map_index: int) -> str:
    return task_id if map_index < 0 else f"{task_id}[{map_index}]"


def _query(scope: Scope) -> str:
    parts: dict[str, object] = {"dag_id": scope.dag_id, "run_id": scope.run_id}
    if scope.task_id is not None:
        parts |= {"task_id": scope.task_id, "map_index": scope.map_index}
    return urlencode(parts)


def _page(graph: Any, frame: visualization.Frame, status: int = 200) -> Response:
    policy = f"{visualization.page_policy(frame)}; frame-ancestors 'self'"
    headers = {**_HEADERS, "Content-Security-Policy": policy, "X-Frame-Options": "SAMEORIGIN"}
    return Response(visualization.render_page(graph, frame=frame), status, headers, "text/html; charset=utf-8")


def _download(scope: _ScopeDep, source: _SourceDep) -> Response:
    lines = [proposal.to_json() for record in source.records(scope) for proposal in record.proposals]
    headers = {**_HEADERS, "Content-Security-Policy": "default-src 'none'; sandbox"}
    headers["Content-Disposition"] = 'attachment; filename="proposals.jsonl"'
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
    return Response(text, media_type="application/x-ndjson", headers=headers)


def _deliver(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> JSONResponse:
    log.info("%s delivers the lineage of %s", user.get_id(), scope)
    return JSONResponse({"message": source.deliver(scope)}, headers=_HEADERS)


def _requeue(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> JSONResponse:
    log.info("%s requeues the lineage of %s", user.get_id(), scope)
    return JSONResponse({"message": source.requeue(scope)}, headers=_HEADERS)
