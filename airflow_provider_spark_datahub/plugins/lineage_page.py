"""The page *Spark lineage* in Airflow's API server: lineage and its delivery, by DAG, DAG run and task instance.

Airflow serves the applications of plugins without authentication. So each address here asks Airflow's auth manager:
users who may read a DAG's task instances may look, and users who may edit them may deliver. Requests that change
something need a token that only the page contains, and must come from the page.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.providers.common.compat.sdk import conf
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from itsdangerous import BadSignature, URLSafeTimedSerializer

from airflow_provider_spark_datahub.delivery.outbox import AttemptRecord
from airflow_provider_spark_datahub.hooks import LineageSource, Scope, TaskReport
from airflow_provider_spark_datahub.printable import counted
from airflow_provider_spark_datahub.visualization import (
    Action,
    AttemptRow,
    Attempts,
    Frame,
    Graph,
    build_graph,
    page_policy,
    read_asset,
    render_page,
)

log = logging.getLogger(__name__)

_MOST_RUNS = 200
"""Most runs in a list. At most ten times as many attempts are read for it."""
_TOKEN_SECONDS = 12 * 3600
_REASONS = 3
_WORST_FIRST = ("quarantined", "pending", "unfinished", "no lineage", "was pending")
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


def _token(user: Any) -> str:
    return str(_serializer().dumps(str(user.get_id())))


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
    app.get("/proposals", dependencies=looks)(_download)
    app.post("/deliver", dependencies=edits)(_deliver)
    app.post("/requeue", dependencies=edits)(_requeue)
    app.add_exception_handler(OSError, _unreadable)
    return app


def _unreadable(_: Request, error: Exception) -> JSONResponse:
    log.warning("The outbox cannot be used: %s", error)
    return JSONResponse({"detail": f"The outbox cannot be used: {error}"}, 503, headers=_HEADERS)


def _list_runs(request: Request, user: GetUserDep, source: _SourceDep) -> Response:
    """Return the page of the newest runs of one DAG, with the lineage of its latest, or of all readable DAGs."""
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    dag_id = request.query_params.get("dag_id")
    if dag_id is not None:
        _one_dag(request)
        _looks(request, user)
    may_look = cache(partial(_may_look, request, user))
    wanted = readable if dag_id is None else {dag_id}
    reports = source.reports(wanted, most=10 * _MOST_RUNS)
    records, problem = [], ""
    try:
        records = source.newest(10 * _MOST_RUNS, wanted, undelivered=True)
    except OSError as error:  # the reports are shown anyway
        problem = f"The outbox cannot be read: {error}"
    if dag_id is None:
        reports = [report for report in reports if may_look(report.key.dag_id)]
        records = [record for record in records if may_look(record.key.dag_id)]
    rows = _run_rows(reports, records)
    title = "Spark lineage" if dag_id is None else f"Spark lineage of {dag_id}"
    empty = "No task has reported lineage yet, and the outbox is empty." if not rows else ""
    more = f"The newest {_MOST_RUNS} runs." if len(rows) > _MOST_RUNS else empty
    graph, drawn = (None, "") if dag_id is None else _latest_graph(dag_id, rows, source)
    notes = [note for note in (problem, more, drawn) if note]
    return _page(graph, Frame(title, Attempts("Runs", rows[:_MOST_RUNS], more=" ".join(notes)), below=True))


def _may_look(request: Request, user: Any, dag_id: str) -> bool:
    """Return whether a user may see a DAG's lineage at an address that names the DAG."""
    try:
        _looks(Request({**request.scope, "query_string": urlencode({"dag_id": dag_id}).encode()}), user)
    except HTTPException:
        return False
    return True


def _latest_graph(dag_id: str, rows: Sequence[AttemptRow], source: LineageSource) -> tuple[Graph | None, str]:
    """Return the lineage of a DAG's newest run with proposals in the outbox, and a sentence that names the run."""
    for row in rows[:_LOOKED_AT]:
        run_id = parse_qs(row.link.partition("?")[2])["run_id"][0]
        try:
            records = source.records(Scope(dag_id, run_id))
        except OSError:
            break
        graph = build_graph(proposal for record in records for proposal in record.proposals)
        if graph.jobs or graph.roots:
            return graph, f"The drawing is of {run_id}."
    return None, ""


def _run_rows(reports: Iterable[TaskReport], records: Sequence[AttemptRecord]) -> list[AttemptRow]:
    """Return a row for each run, newest first."""
    undelivered = {record.key.instance for record in records}
    found: list[AttemptRecord | TaskReport] = [*records]
    found += [reported for reported in reports if reported.key.instance not in undelivered]
    runs: dict[tuple[str, str], list[AttemptRecord | TaskReport]] = {}
    for attempt in found:
        runs.setdefault((attempt.key.dag_id, attempt.key.run_id), []).append(attempt)
    rows = []
    for (dag_id, run_id), attempts in runs.items():
        states = Counter(attempt.state for attempt in attempts)
        reasons = dict.fromkeys(reason for attempt in attempts for reason in attempt.reasons)
        rows.append(
            AttemptRow(
                f"{dag_id}  {run_id}",
                next((state for state in _WORST_FIRST if states[state]), "delivered"),
                ", ".join(f"{count} {state}" for state, count in sorted(states.items())),
                tuple(reasons)[:_REASONS],
                max(attempt.created_ms for attempt in attempts),
                link=f"run?{_query(Scope(dag_id, run_id))}",
            )
        )
    return sorted(rows, key=lambda row: -(row.time or 0))


def _show_run(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> Response:
    """Return the page of a DAG run."""
    scope = Scope(scope.dag_id, scope.run_id)
    return _scope_page(scope, user, source, f"Spark lineage of {scope.dag_id}, {scope.run_id}")


def _show_task(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> Response:
    """Return the page of a task instance."""
    if scope.task_id is None:
        raise HTTPException(422, "task_id must name a task")
    return _scope_page(scope, user, source, f"Spark lineage of {_task_name(scope.task_id, scope.map_index)}")


def _scope_page(scope: Scope, user: Any, source: LineageSource, title: str) -> Response:
    reports = source.reports([scope.dag_id], scope)
    records = source.records(scope)
    rows = [*_record_rows(records, scope), *_report_rows(reports, records, scope)]
    query = _query(scope)
    states = {record.state for record in records}
    actions = []
    if may_edit := _may_edit(scope.dag_id, user):
        if states & {"pending", "unfinished"}:
            actions.append(Action("Deliver now", f"deliver?{query}", "Delivering …"))
        if "quarantined" in states:
            actions.append(Action("Requeue", f"requeue?{query}", "Requeueing …"))
    more = (
        "" if may_edit or not states - {"delivered"} else "You may look, but not deliver: this needs the right to edit."
    )
    attempts = Attempts("Delivery", rows, actions, _token(user) if may_edit else "", more)
    # Add the end of the DAG run: without it, the run tree of a task would show the DAG run as RUNNING for ever.
    ends = [] if scope.task_id is None else source.records(Scope(scope.dag_id, scope.run_id, ""))
    graph = build_graph(proposal for record in (*records, *ends) for proposal in record.proposals)
    empty = _why_empty(reports, records)
    return _page(graph, Frame(title, attempts, read_asset("actions.js"), empty))


def _may_edit(dag_id: str, user: Any) -> bool:
    request = Request({"type": "http", "query_string": urlencode({"dag_id": dag_id}).encode(), "path_params": {}})
    try:
        _edits(request, user)
    except HTTPException:
        return False
    return True


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


def _record_rows(records: Iterable[AttemptRecord], scope: Scope) -> list[AttemptRow]:
    return [
        AttemptRow(
            f"{_task_name(record.key.task_id, record.key.map_index)} try {record.key.try_number}"
            if record.key.task_id
            else "end of the DAG run",
            record.state,
            f"{counted(record.count, 'proposal')} for {record.connection}"
            if record.state != "unfinished"
            else f"events that are not converted, for {record.connection}",
            record.reasons,
            record.created_ms,
            raw=f"proposals?{_query(scope)}" if record.proposals else "",
        )
        for record in records
    ]


def _report_rows(reports: Iterable[TaskReport], records: Iterable[AttemptRecord], scope: Scope) -> list[AttemptRow]:
    states: dict[str, set[str]] = {}
    for record in records:
        states.setdefault(record.key.instance, set()).add(record.state)
    rows = []
    for reported in reports:
        report, task = reported.report, (reported.key.task_id, reported.key.map_index)
        counts = [
            counted(report.get("events", 0), "event"),
            counted(len(report.get("inputs") or ()), "input"),
            counted(len(report.get("outputs") or ()), "output"),
            counted(report.get("proposals", 0), "proposal"),
        ]
        known = states.get(reported.key.instance, set()) - {"unfinished"}
        # In a report with lineage, the reason explains why it was not delivered when the task ended.
        outdated = known == {"delivered"} and reported.has_lineage
        notes = (*(() if outdated else reported.reasons), *map(str, report.get("warnings") or ()))
        state = "reported" if known else reported.state
        link = "" if scope.task_id is not None else f"task?{_query(Scope(scope.dag_id, scope.run_id, *task))}"
        rows.append(
            AttemptRow(f"report of {_task_name(*task)}", state, ", ".join(counts), notes, reported.created_ms, link)
        )
    return rows


def _task_name(task_id: str, map_index: int) -> str:
    return task_id if map_index < 0 else f"{task_id}[{map_index}]"


def _query(scope: Scope) -> str:
    parts: dict[str, object] = {"dag_id": scope.dag_id, "run_id": scope.run_id}
    if scope.task_id is not None:
        parts |= {"task_id": scope.task_id, "map_index": scope.map_index}
    return urlencode(parts)


def _page(graph: Any, frame: Frame) -> Response:
    policy = f"{page_policy(frame)}; frame-ancestors 'self'"
    headers = {**_HEADERS, "Content-Security-Policy": policy, "X-Frame-Options": "SAMEORIGIN"}
    return Response(render_page(graph, frame=frame), media_type="text/html; charset=utf-8", headers=headers)


def _download(scope: _ScopeDep, source: _SourceDep) -> Response:
    """Return the proposals as JSON lines."""
    lines = [proposal.to_json() for record in source.records(scope) for proposal in record.proposals]
    headers = {**_HEADERS, "Content-Security-Policy": "default-src 'none'; sandbox"}
    headers["Content-Disposition"] = 'attachment; filename="proposals.jsonl"'
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
    return Response(text, media_type="application/x-ndjson", headers=headers)


def _deliver(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> JSONResponse:
    """Deliver the pending entries."""
    log.info("%s delivers the lineage of %s", user.get_id(), scope)
    return JSONResponse({"message": source.deliver(scope)}, headers=_HEADERS)


def _requeue(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> JSONResponse:
    """Make the quarantined entries pending again."""
    log.info("%s requeues the lineage of %s", user.get_id(), scope)
    return JSONResponse({"message": source.requeue(scope)}, headers=_HEADERS)
