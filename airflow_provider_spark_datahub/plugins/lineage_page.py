"""The page *Spark lineage* in Airflow's API server: lineage and its delivery, by DAG, DAG run and
task instance.

Airflow serves the applications of plugins without authentication. So each address here asks
Airflow's auth manager: users who may read a DAG's task instances may look, and users who may edit
them may deliver. Requests that change something need a token that only the page contains, and must
come from the page.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import attrgetter, itemgetter
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
from airflow_provider_spark_datahub.conversion import json_lines
from airflow_provider_spark_datahub.delivery.outbox import AttemptRecord
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.memory import grouped
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.hooks import LineageSource, Scope, TaskReport

log = logging.getLogger(__name__)

_MOST_RUNS = 200
"""Most runs in a list. At most ten times as many attempts are read for it."""
_TOKEN_SECONDS = 12 * 3600
_REASONS = 3
_WORST_FIRST = (
    "quarantined",
    "pending",
    "unfinished",
    "unknown",
    "no lineage",
    "in progress",
    "delivered",
)
_WHY = {
    "pending": "Its lineage waits for the next delivery.",
    "unfinished": "Its events are not converted: the attempt was killed, or had no time left.",
    "unknown": "Its lineage was pending when the task ended; the outbox of this server knows nothing of it.",
}
"""Why lineage is in a state, if no report says more."""
_NEXT = {
    "quarantined": "Mend what the reason names, then press Requeue and Deliver now.",
    **dict.fromkeys(
        ("pending", "unfinished"), "The task's next run delivers the lineage, or press Deliver now."
    ),
}
_RUNS = frozenset({"running", "deferred", "restarting"})
"""Airflow's states of an attempt whose lineage is still to come."""
_SIDES = ("inputs", "outputs")
_FINE = frozenset({"", "success", "skipped", "delivered", "in progress", *_RUNS})
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
    """Refuse an ambiguous DAG: the auth manager reads ``~`` as all DAGs, and only the last one of
    several.
    """
    dag_ids = request.query_params.getlist("dag_id")
    if len(dag_ids) != 1 or dag_ids[0] in ("", "~"):
        raise HTTPException(422, "dag_id must name one DAG")


def _scope(
    dag_id: str, run_id: str, task_id: str | None = None, map_index: Annotated[str, Query()] = "-1"
) -> Scope:
    # Airflow's UI leaves the placeholder in the address of a task that is not mapped.
    index = int(map_index) if re.fullmatch(r"\d{1,9}", map_index) else -1
    return Scope(dag_id, run_id, task_id or None, index)


_Settled = set[tuple[str, int, str]]
_SourceDep = Annotated[LineageSource, Depends(LineageSource)]
_ScopeDep = Annotated[Scope, Depends(_scope)]


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(
        conf.get_mandatory_value("api", "secret_key"), salt="spark-datahub page"
    )


def _from_the_page(request: Request, user: GetUserDep) -> None:
    """Refuse a request that another site may have made in the user's name."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    hosts = {
        request.headers.get("host"),
        urlsplit(conf.get("api", "base_url", fallback="") or "").netloc,
    }
    if site not in (None, "same-origin") or (
        origin is not None and urlsplit(origin).netloc not in hosts - {""}
    ):
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
    """Return the page of the newest runs of one DAG, with the lineage of its latest, or of all
    readable DAGs.
    """
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
    records, settled, problem = [], _Settled(), ""
    try:
        records = source.newest(10 * _MOST_RUNS, wanted, undelivered=True)
        settled = source.settled(reports)
    except OSError as error:  # the reports are shown anyway
        problem = f"The outbox cannot be read: {error}"
    reports = [report for report in reports if may_look(report.key.dag_id)]
    records = [record for record in records if may_look(record.key.dag_id)]
    waiting = {
        (record.key.dag_id, record.key.run_id) for record in records if record.state == "unfinished"
    }
    states = {key: state for run in waiting for key, state in source.attempts(Scope(*run)).items()}
    runs = _runs(reports, [_as_airflow_says(record, states) for record in records], settled)
    graph, drawn = _latest_graph(runs, source) if dag_id else (None, "")
    runs = [run for run in runs if state in ("", run.state)]
    nothing = "No task has reported lineage yet, and the outbox is empty."
    empty = "" if runs else "There is no such run." if reports or records else nothing
    more = f"The newest {_MOST_RUNS} runs." if len(runs) > _MOST_RUNS else empty
    runs = runs[:_MOST_RUNS]
    run_states = source.run_states([run.key for run in runs])
    columns = (
        *([] if dag_id else ["DAG"]),
        "DAG run",
        "Airflow",
        "lineage",
        "in / out",
        "when (UTC)",
    )
    filters = {
        "dag_id": ("all DAGs", dag_id, sorted(readable)),
        "state": ("all states", state, _WORST_FIRST),
    }
    notes = " ".join(note for note in (problem, more, drawn) if note)
    rows = [run.row(run_states.get(run.key, ""), len(columns) - 4) for run in runs]
    attempts = visualization.Attempts("Runs", columns, rows, more=notes, filters=filters)
    return _page(
        graph,
        visualization.Frame(f"Spark lineage of {dag_id}" if dag_id else "Spark lineage", attempts),
    )


def _may(check: Callable[[Request, Any], None], user: Any, dag_id: str) -> bool:
    """Return whether a check of Airflow's lets a user see or edit a DAG, as at an address that
    names the DAG.
    """
    query = urlencode({"dag_id": dag_id}).encode()
    try:
        check(Request({"type": "http", "query_string": query, "path_params": {}}), user)
    except HTTPException:
        return False
    return True


@dataclass
class _Run:
    """Lineage of a DAG run (its key: DAG and run) in a list."""

    key: tuple[str, str]
    state: str = _WORST_FIRST[-1]
    edges: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    reasons: dict[str, str] = field(default_factory=dict)
    time: int = 0

    def add(
        self,
        state: str,
        attempts: Iterable[AttemptRecord | TaskReport],
        reported: TaskReport | None,
    ) -> None:
        self.state = min(state, self.state, key=_WORST_FIRST.index)
        self.time = max(self.time, *(attempt.created_ms for attempt in attempts))
        for urns, side in zip(self.edges, _SIDES, strict=True):
            urns.update(reported.report.get(side) or () if reported else ())
        # The same reason may have different details in brackets: numbers of requests, seconds.
        self.reasons |= {why.partition(" (")[0]: why for why in _why(state, attempts)}

    def row(self, airflow_state: str, names: int) -> visualization.AttemptRow:
        states, reasons = (airflow_state, self.state), tuple(self.reasons.values())[:_REASONS]
        link = f"run?{_query(Scope(*self.key))}"
        return visualization.AttemptRow(
            self.key[-names:], states, (_in_out(self.edges),), reasons, self.time, link
        )


def _why(state: str, attempts: Iterable[AttemptRecord | TaskReport]) -> tuple[str, ...]:
    """Return the reasons of a state; none of lineage that is delivered."""
    if state == "delivered":
        return ()
    said = [attempt for attempt in attempts if attempt.reasons]
    # The outbox's reason is of the last delivery, a report's of the task's end.
    last = [attempt for attempt in said if isinstance(attempt, AttemptRecord)] or said
    reasons = dict.fromkeys(reason for attempt in last for reason in attempt.reasons)
    return (
        tuple(reasons) if reasons and state != "unknown" else tuple(filter(None, [_WHY.get(state)]))
    )


def _latest_graph(
    runs: Sequence[_Run], source: LineageSource
) -> tuple[visualization.Graph | None, str]:
    """Return the lineage of a DAG's newest run with proposals in the outbox, and a sentence that
    names the run.
    """
    for run in runs[:_LOOKED_AT]:
        try:
            records = source.records(Scope(*run.key))
        except OSError:
            break
        graph = visualization.Graph.of(
            proposal for record in records for proposal in record.proposals
        )
        if graph.jobs or graph.roots:
            return graph, f"The drawing is of {run.key[1]}."
    return None, ""


def _in_out(edges: Iterable[Sized]) -> str:
    return "\u00a0/\u00a0".join(str(len(urns)) for urns in edges)


def _as_airflow_says(record: AttemptRecord, states: Mapping[AttemptKey, str]) -> AttemptRecord:
    """Return a record whose events are only not converted yet, because its attempt runs, as in
    progress.
    """
    waits = record.state == "unfinished" and states.get(record.key) in _RUNS
    return replace(record, state="in progress") if waits else record


def _state(
    records: Sequence[AttemptRecord], reported: TaskReport | None, settled: _Settled
) -> tuple[str, list[AttemptRecord | TaskReport]]:
    """Return the worst state of an attempt's lineage, and all that is known of the attempt."""
    states = {record.state for record in records} or {reported.state(settled) if reported else ""}
    return min(states, key=_WORST_FIRST.index), [*records, *([reported] if reported else [])]


def _runs(
    reports: Iterable[TaskReport], records: Iterable[AttemptRecord], settled: _Settled
) -> list[_Run]:
    """Return the runs, newest first."""
    undelivered = grouped((record.key.instance, record) for record in records)
    reported = {report.key.instance: report for report in reports}
    runs: dict[tuple[str, str], _Run] = {}
    for instance in reported.keys() | undelivered.keys():
        state, attempts = _state(undelivered.get(instance, []), reported.get(instance), settled)
        key = (attempts[0].key.dag_id, attempts[0].key.run_id)
        runs.setdefault(key, _Run(key)).add(state, attempts, reported.get(instance))
    return sorted(runs.values(), key=lambda run: -run.time)


def _show_run(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> Response:
    scope = Scope(scope.dag_id, scope.run_id)
    return _scope_page(scope, user, source, f"Spark lineage of {scope.dag_id}, {scope.run_id}")


def _show_task(
    task_id: Annotated[str, Query(min_length=1)],
    scope: _ScopeDep,
    user: GetUserDep,
    source: _SourceDep,
) -> Response:
    return _scope_page(
        scope, user, source, f"Spark lineage of {_task_name(task_id, scope.map_index)}"
    )


def _scope_page(scope: Scope, user: Any, source: LineageSource, title: str) -> Response:
    reports, airflow = (
        source.reports([scope.dag_id], scope),
        source.attempts(scope, source.MOST_TASKS + 1),
    )
    records = [_as_airflow_says(record, airflow) for record in source.records(scope)]
    if not (reports or records or source.run_states([(scope.dag_id, scope.run_id)])):
        unknown = f"Airflow has no run {scope.run_id} of the DAG {scope.dag_id}."
        return _page(
            None,
            visualization.Frame(title, visualization.Attempts("Attempts", (), (), more=unknown)),
            404,
        )
    rows = _attempt_rows(records, reports, airflow, source.settled(reports), scope)
    query, actions = _query(scope), list[tuple[str, str, str]]()
    states = {record.state for record in records}
    more = _NEXT.get(min(states, key=_WORST_FIRST.index, default=""), "")
    if may_edit := _may(_edits, user, scope.dag_id):
        actions += [("Deliver now", f"deliver?{query}", "Delivering …")] * bool(
            states & {"pending", "unfinished"}
        )
        actions += [("Requeue", f"requeue?{query}", "Requeueing …")] * ("quarantined" in states)
    elif more:
        more = "You may look, but not deliver: this needs the right to edit."
    if len({key.instance for key in airflow}) > source.MOST_TASKS:
        more = f"The newest {source.MOST_TASKS} task instances, and all that the outbox has. {more}"
    columns = ("task", "try", "Airflow", "Spark", "lineage", "in / out", "proposals", "when (UTC)")
    token = str(_serializer().dumps(str(user.get_id()))) if may_edit else ""
    attempts = visualization.Attempts("Attempts", columns, rows, actions, token, more)
    # Add the end of the DAG run: without it, the run tree of a task would show the DAG run as
    # RUNNING for ever.
    ends = [] if scope.task_id is None else source.records(Scope(scope.dag_id, scope.run_id, ""))
    graph = visualization.Graph.of(
        proposal for record in (*records, *ends) for proposal in record.proposals
    )
    says = _why_empty(reports, records), f"reached?{query}&dataset="
    return _page(
        graph, visualization.Frame(title, attempts, visualization.read_asset("actions.js"), *says)
    )


def _show_reached(
    scope: _ScopeDep, user: GetUserDep, source: _SourceDep, dataset: str = ""
) -> Response:
    """Return the page of the task instances that read what a DAG run or task instance wrote into a
    dataset.
    """
    found, may_look = source.impact(scope, dataset), cache(partial(_may, _looks, user))
    # The way may be a task of a DAG that the user may not see.
    ways = {"", *(f"{one.dag_id}.{one.task_id}" for one in found.reached if may_look(one.dag_id))}
    rows = [
        visualization.AttemptRow(
            (one.dag_id, one.run_id, _task_name(one.task_id, one.map_index)),
            (),
            (one.how if one.through in ways else "inferred through a task without lineage",),
            time=one.logical_ms,
            link=f"task?{_query(Scope(one.dag_id, one.run_id, one.task_id, one.map_index))}",
        )
        for one in found.reached
        if may_look(one.dag_id)
    ]
    hidden = len(found.reached) - len(rows)
    more = (
        f"{found.sentence}."
        if found.downstream
        else "No task instance is known to have read what it wrote."
    )
    more += f" You may not see {counted(hidden, 'other')}." if hidden else ""
    columns = ("DAG", "DAG run", "task", "how", "logical date (UTC)")
    attempts = visualization.Attempts(f"Reached through {dataset}", columns, rows, more=more)
    return _page(None, visualization.Frame(f"What {scope.run_id} reached", attempts))


def _why_empty(reports: Sequence[TaskReport], records: Sequence[AttemptRecord]) -> str:
    """Return the sentence for a page without lineage; empty to use the page's own."""
    reasons = [reason for reported in reports for reason in reported.reasons]
    if reasons:
        return f"No lineage: {reasons[0]}"
    if any(record.key.task_id for record in records):
        return ""
    if reports:
        return "The outbox of this server no longer has the proposals, or never had them: see the counts above."
    return (
        "No attempt has reported lineage: none has ended yet, Airflow ended it before the task began, or the task is "
        "not one of Spark lineage. Its log says more."
    )


def _attempt_rows(
    records: Iterable[AttemptRecord], reports: Iterable[TaskReport], airflow: Mapping[AttemptKey, str],
    settled: _Settled, scope: Scope,
) -> list[visualization.AttemptRow]:  # fmt: skip
    """Return a row for each attempt: those that need somebody first, then the newest."""
    by_attempt = grouped((record.key, record) for record in records)
    begun = [
        *by_attempt,
        *(key for key, state in airflow.items() if state not in ("scheduled", "queued")),
    ]
    last = {key.instance: key for key in sorted(begun, key=attrgetter("try_number"))}
    reported = {last.get(report.key.instance, report.key): report for report in reports}
    rows = []
    for key in {**by_attempt, **reported}:
        row = _attempt_row(
            key, by_attempt.get(key, []), reported.get(key), airflow.get(key, ""), settled, scope
        )
        # What failed does not matter after the next attempt; lineage that is not delivered does.
        matters = row.states if last.get(key.instance, key) == key else row.states[-1:]
        rank = (
            "failed" not in matters,
            _FINE.issuperset(matters),
            not key.task_id,
            -(row.time or 0),
        )
        rows.append((rank, replace(row, is_problem=not rank[1])))
    return [row for _, row in sorted(rows, key=itemgetter(0))]


def _attempt_row(
    key: AttemptKey, records: Sequence[AttemptRecord], reported: TaskReport | None, airflow: str, settled: _Settled,
    scope: Scope,
) -> visualization.AttemptRow:  # fmt: skip
    report = reported.report if reported else {}
    state, attempts = _state(records, reported, settled)
    graph = visualization.Graph.of(proposal for record in records for proposal in record.proposals)
    edges = [set(report.get(side) or ()) for side in _SIDES]
    if not any(edges):
        edges = [{urn for job in graph.jobs for urn in getattr(job, side)} for side in _SIDES]
    failure = next((record.failure for record in records if record.failure), report.get("failure"))
    ends = ["SUCCESS"] * bool(report.get("events")) + [
        run.state for run in graph.runs() if run.kind == "application"
    ]
    spark = (
        "failed" if failure or ends[-1:] == ["FAILURE"] else "success" if "SUCCESS" in ends else ""
    )
    lists = (text for name in ("changes", "warnings") for text in report.get(name) or ())
    task = _task_name(key.task_id, key.map_index) if key.task_id else "end of the DAG run"
    there = Scope(scope.dag_id, scope.run_id, key.task_id, key.map_index) if key.task_id else scope
    return visualization.AttemptRow(
        (task, str(key.try_number or "") if key.task_id else ""),
        (airflow, spark, state),
        (
            _in_out(edges) if any(edges) else "",
            ", ".join(f"{one.count or 'events'} for {one.connection}" for one in records),
        ),
        tuple(str(note) for note in (failure, *_why(state, attempts), *lists) if note),
        max(attempt.created_ms for attempt in attempts),
        f"task?{_query(there)}" if key.task_id and scope.task_id is None else "",
        f"proposals?{_query(there)}" if graph.read else "",
    )


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
    return Response(
        visualization.render_page(graph, frame=frame), status, headers, "text/html; charset=utf-8"
    )


def _download(scope: _ScopeDep, source: _SourceDep) -> Response:
    text = json_lines(proposal for record in source.records(scope) for proposal in record.proposals)
    headers = {**_HEADERS, "Content-Security-Policy": "default-src 'none'; sandbox"}
    headers["Content-Disposition"] = 'attachment; filename="proposals.jsonl"'
    return Response(text, media_type="application/x-ndjson", headers=headers)


def _deliver(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> JSONResponse:
    log.info("%s delivers the lineage of %s", user.get_id(), scope)
    return JSONResponse({"message": source.deliver(scope)}, headers=_HEADERS)


def _requeue(scope: _ScopeDep, user: GetUserDep, source: _SourceDep) -> JSONResponse:
    log.info("%s requeues the lineage of %s", user.get_id(), scope)
    return JSONResponse({"message": source.requeue(scope)}, headers=_HEADERS)
