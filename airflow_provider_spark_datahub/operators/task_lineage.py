"""Lineage around an Airflow task that starts Spark: before, during and after its job.

Everything that needs Airflow is here; :mod:`airflow_provider_spark_datahub.task` does the work.

Tests: ``tests/operators/test_outcomes.py``.
"""

from __future__ import annotations

import gc
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    Context,
    DownstreamTasksSkipped,
    TaskDeferred,
)

from airflow_provider_spark_datahub import capture, conversion, hooks, task
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.foundation.memory import gc_paused
from airflow_provider_spark_datahub.foundation.text import printable

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult

T = TypeVar("T")
AirflowState = Literal["success", "failed", "skipped"]

DEFERRED = "spark_datahub_events"
"""Argument of a deferred task's ``resume_execution`` with the place of its job's events."""
_KILL_SECONDS = 4.0
"""Time for lineage in a task that is killed; Airflow ends its process after 5 s."""
_ERROR_CODE = re.compile(r"Error code is: (-?\d+)")
_SHELL_CODES = {"126": " (it cannot be executed)", "127": " (a command was not found)"}
_FAILURE_CHARS = 300
_AWAITS_RETRY = "spark_datahub_awaits_retry"
_STATE_STORE = "the task's state"
_LISTENER_FAILED = "spark_datahub_listener_failed"
_REPEATED = (
    "execute() was called before in this attempt: the edges of this call are added to those of the earlier ones, and "
    "this report covers this call only"
)


class LineagePendingError(AirflowException):
    """Failure of a task whose Spark job succeeded and whose lineage is not delivered
    (``lineage_on_failure``).
    """


@dataclass
class TaskLineage:
    """Lineage of one execution of a task: before, during and after its Spark job.

    Failures are logged and reported; the task ends as it would end without lineage.

    :param find_options: returns the options that the task gives, and its switch ``enabled``, by
        name; ``None`` for the configured value.
    :param find_launcher: returns the launcher of this execution; called if lineage is switched on.
    :param log: the task's logger.
    :param services: Airflow's, which may have been asked before, e.g. for the options.
    :param before: jobs of earlier calls in the same attempt, to whose lineage this call's is added.
    :param by_policy: the task has lineage by ``[spark_datahub] auto``; it may have nothing to do
        with Spark.
    :ivar attempt: the attempt until its submit; ``None`` before :meth:`run`, and if lineage is
        switched off.
    :ivar ended: the attempt after its job; ``None`` before.
    :ivar killed_at: time of the kill, by ``time.monotonic``; ``None`` if Airflow has not killed the
        task.
    """

    _context: Context
    _find_options: Callable[[], Mapping[str, Any]]
    _find_launcher: Callable[[], task.Launcher]
    _log: Any
    services: hooks.AirflowServices
    before: Sequence[conversion.JobLineage] | None = None
    by_policy: bool = False
    _airflow: hooks.AttemptContext | None = None
    _launcher: task.Launcher | None = None
    _problem: str | None = None
    _running: task.RunningAttempt | None = None
    attempt: task.AttemptLineage | None = None
    ended: task.EndedAttempt | None = None
    killed_at: float | None = None

    def is_of(self, context: Context) -> bool:
        """Return whether a context belongs to the same attempt."""
        return self._context["ti"] is context["ti"]

    def run(self, start_spark: Callable[[], T]) -> T | None:
        """Call ``start_spark`` with lineage around it, and return its result.

        :returns: ``None`` if an earlier attempt's Spark job succeeded and only its lineage was to
            deliver.
        :raises LineagePendingError: if the lineage is not delivered and ``lineage_on_failure``
            demands it.
        """
        succeeded = self.guarded("preparing", self._prepare)
        if succeeded is None:
            with self._around_spark():
                return start_spark()
        number = succeeded.try_number
        self._log.info(
            "Spark succeeded in attempt %s: this attempt only delivers its lineage.", number
        )
        self._conclude(partial(self._end, "SUCCESS", succeeded=succeeded))
        self._apply_failure_policy()
        return None

    @contextmanager
    def around(self) -> Iterator[None]:
        """Return a context with lineage around its body, which runs in each attempt.

        If the task defers itself, nothing resumes the context: its lineage stays in the outbox for
        a drain.

        :raises LineagePendingError: if the lineage is not delivered and ``lineage_on_failure``
            demands it.
        """
        self.guarded("preparing", self._prepare)
        with self._around_spark(resumes=False):
            yield

    def resume(self, event_files: object, wait: Callable[[], T]) -> T:
        """Call ``wait`` for a job that this attempt started before it was deferred, and return its
        result.

        :param event_files: where its events are.
        :raises LineagePendingError: if the lineage is not delivered and ``lineage_on_failure``
            demands it.
        """
        self.guarded("preparing", self._prepare)
        with self._around_spark(partial(self._reconnect, event_files)):
            return wait()

    def _reconnect(self, event_files: object) -> None:
        if self.attempt is not None:
            self.attempt.reconnect(event_files)

    @contextmanager
    def _around_spark(
        self,
        begin: Callable[[], AbstractContextManager[None] | None] | None = None,
        *,
        resumes: bool = True,
    ) -> Iterator[None]:
        launching = self.guarded("preparing", begin or self._inject)
        if self.attempt is not None and self._problem:
            self.attempt.run_without_lineage(self._problem)
        try:
            with launching or nullcontext():
                try:
                    yield
                except TaskDeferred as deferral:
                    # The job goes on without this process; resume_execution() comes back to it.
                    if self.attempt is not None and resumes:
                        self.guarded("deferring", self.attempt.mark_deferred, costs_lineage=False)
                        deferral.kwargs = {
                            **(deferral.kwargs or {}),
                            DEFERRED: self.attempt.event_files,
                        }
                    raise
                except DownstreamTasksSkipped:
                    # A branch or a short circuit, which has succeeded.
                    self._conclude(partial(self._end, "SUCCESS"))
                    raise
                except BaseException as failure:
                    self._conclude(partial(self._end_after_failure, failure))
                    raise
            self._conclude(partial(self._end, "SUCCESS"))
        finally:
            if self._running is not None:
                self._running.stop()
        self._apply_failure_policy()

    def mark_killed(self) -> None:
        """Record that Airflow kills the task now."""
        self.killed_at = time.monotonic()
        self.services.ends = Deadline(self.killed_at + _KILL_SECONDS + 0.5)  # the report comes last
        if self.attempt is not None:
            self.attempt.driver_output.mark_killed()

    def settle(self, state: AirflowState, error: object, *, resumed: bool = False) -> None:
        """Deliver the result that Airflow gave the attempt, if ``execute`` ended otherwise or never
        ran.

        A task can end before ``execute`` (``pre_execute``) or after it (``post_execute``, a
        subclass).

        :param error: what the task raised; a text if Airflow has only that.
        :param resumed: the task was deferred by itself, so that Spark ran in an earlier process, if
            it did.
        """
        if self.ended is not None:
            result = self._result(state, error)
            if result != self.ended.end.result:
                self.guarded("correcting", partial(self._correct, self.ended.end, result))
        elif self.attempt is None and self._problem is None:
            self.guarded("preparing", self._prepare)
            if resumed:
                end = self._new_end(self._result(state, error))
                self.guarded("correcting", partial(self._correct, end, end.result))
            else:
                self._settle_without_spark(state, error)

    def _settle_without_spark(self, state: AirflowState, error: object) -> None:
        if self.attempt is None:
            return
        why = f": {type(error).__name__}: {error}" if isinstance(error, BaseException) else ""
        self.attempt.run_without_lineage(f"the task ended as {state} without starting Spark{why}")
        self._conclude(partial(self._end, self._result(state, error)))

    def _result(self, state: AirflowState, error: object) -> AttemptResult:
        if state == "failed":
            return self._failed_result(error)
        return "SUCCESS" if state == "success" else "SKIPPED"

    def _correct(self, ended: task.AttemptEnd, result: AttemptResult) -> None:
        if self.attempt is None or (result == "FAILURE" and self.killed_at is not None):
            # For a killed task, Airflow has been asked for the state already.
            return
        report = task.EndedAttempt(self.attempt, replace(ended, result=result)).correct()
        before = (
            f"execute() had ended as {ended.result}" if ended.result != result else "it was resumed"
        )
        self._log.info("The task ended as %s after %s. %s", result, before, report.sentence)

    # -- failures of lineage

    def guarded(self, doing: str, step: Callable[[], T], *, costs_lineage: bool = True) -> T | None:
        """Call a step of lineage. This is the one place where failures of lineage end, so that none
        fails the task.

        :param costs_lineage: whether lineage is missing if the step fails, so that the report names
            the failure.
        :returns: ``None`` if the step failed.
        """
        try:
            return step()
        except (Exception, AirflowTaskTimeout) as error:
            if doing == "preparing" and isinstance(error, AirflowTaskTimeout):
                # The job has not run: the task's own time is over.
                raise
            trace = conversion.redacted_trace(error)
            self._log.warning(
                "%s lineage failed; the task is not affected.\n%s", doing.capitalize(), trace
            )
            if costs_lineage:
                problem = conversion.redact_text(
                    f"{doing} lineage failed: {type(error).__name__}: {error}"
                )
                self._problem = self._problem or problem
            return None

    def _conclude(self, step: Callable[[], bool]) -> None:
        """Deliver and report; if that fails, report at least why."""
        if not self.guarded("delivering", step) and self._problem:
            report = self.attempt.report if self.attempt else task.LineageReport()
            report.failed, report.reason = True, report.reason or self._problem
            self.guarded("reporting", partial(self._report, report))

    def _report(self, report: task.LineageReport) -> bool:
        if self.by_policy and not report.started_spark and report.is_complete:
            self._log.debug("The task started no Spark.")
            return True
        sentence = printable(report.sentence)
        if not report.is_complete:
            self._log.warning("%s. %s", sentence.rstrip("."), self._next_step(report))
        elif not report.has_lineage and self.ended is not None and self.ended.end.spark_succeeded:
            self._log.warning("%s", sentence)
        else:
            self._log.info("%s", sentence)
        if not report.has_lineage:
            self._log.info(
                'Lineage: for the reasons and what to do, see "There is no lineage" in docs/troubleshooting.md'
            )
        self._log.debug("The lineage steps took %.3f s.", report.seconds)
        for line in (*report.warnings, *report.changes):
            self._log.warning("Lineage: %s", printable(line))
        for gap in report.gaps:
            self._log.info("Lineage: %s", printable(gap))
        ti = self._context["ti"]
        self.services.ask(
            "metrics", lambda: hooks.count_attempt(report, ti.dag_id, ti.task_id), None
        )
        report.warnings += self.services.problems  # already in the log
        self.services.ask(
            "XCom, for this report", lambda: ti.xcom_push(task.XCOM_KEY, report.to_obj()), None
        )
        return True

    def _next_step(self, report: task.LineageReport) -> str:
        if self.attempt is None or report.outbox_entry is None:
            return "It is not in the outbox: clear the task to have it made again."
        emit = f"spark-datahub emit --outbox {shlex.quote(self.attempt.options.outbox_location)}"
        is_retried = self.ended is not None and self.ended.end.result == "UP_FOR_RETRY"
        who = (
            "the next attempt"
            if is_retried
            else "the end of a DAG run, if the scheduler sees the outbox,"
        )
        return f'It is kept in the outbox: {who} delivers it, and "{emit}" delivers it at once.'

    def _apply_failure_policy(self) -> None:
        """Fail the task if its lineage is not delivered and ``lineage_on_failure`` demands it."""
        if self.attempt is None or self.attempt.report.is_complete:
            return
        policy, written = self.attempt.options.on_failure, self.ended.written if self.ended else ()
        has_attempts_left = self._airflow is not None and self._airflow.has_attempts_left
        if policy == "warn":
            return
        if has_attempts_left:
            # Without a record that only lineage is missing, the next attempt would run Spark again:
            # do not fail.
            if not self.remember(
                _AWAITS_RETRY, partial(self.attempt.earlier.leave_to_retry, written)
            ):
                self.guarded("forgetting", self.attempt.earlier.leave_to_others)
                return
        else:
            self.guarded("remembering", self.attempt.earlier.leave_to_others)
            if policy == "retry":
                return
        next_step = (
            "The next attempt only delivers it."
            if has_attempts_left
            else self._next_step(self.attempt.report)
        )
        raise LineagePendingError(
            f"Spark succeeded, but its lineage was not delivered (lineage_on_failure={policy}): "
            f"{self.attempt.report.reason}. {next_step}"
        )

    # -- what an attempt leaves to a later one, if Airflow keeps state of tasks (since 3.3)

    def remember(self, key: str, value: Callable[[], Any]) -> bool:
        """Keep a JSON value for later attempts. Return False if a step failed."""
        obj, state = self.guarded("remembering", value), self._context.get("task_state_store")
        if obj is None or state is None:
            return obj is not None
        return self.services.ask(_STATE_STORE, partial(state.set, key, obj), False) is not False

    def remembered(self, key: str) -> object:
        """Return the value that an earlier attempt kept; ``None`` if there is none."""
        state = self._context.get("task_state_store")
        return (
            self.services.ask(_STATE_STORE, lambda: state.get(key), None)
            if state is not None
            else None
        )

    # -- before the job

    @gc_paused()
    def _prepare(self) -> task.SucceededAttempt | None:
        """Resolve the options, and return the earlier attempt whose lineage is all that this one
        has to deliver.
        """
        # The next collection, which may come before the submit, would look at all of Airflow, and
        # free nothing.
        gc.freeze()
        configured = hooks.configuration()
        given = dict(self._find_options())
        if not configured.is_enabled(given.get("enabled")):
            self._log.info("Lineage is switched off (option enabled).")
            return None
        options = configured.resolve(**given)
        for note in options.notes:
            self._log.info("Lineage option %s", note)
        airflow = self._airflow = hooks.AttemptContext(self._context, self.services)
        connections = hooks.airflow_connections(
            partial(hooks.final_result, self.services, self._context["ti"])
        )
        self.attempt = task.AttemptLineage(
            options, airflow.attempt(), connections, airflow.ti_id, self.before
        )
        self.attempt.report.warnings += [
            f"{problem}; it is left out" for problem in options.problems
        ]
        if self.before is not None:
            self.attempt.report.warnings.append(_REPEATED)
        if problem := self.attempt.delivery.sink_problem:
            self._log.info("Lineage will stay in the outbox: %s", problem)
        self.guarded(
            "finding orphans of", self.attempt.earlier.warn_of_orphans, costs_lineage=False
        )
        # The first job of the first attempt would only learn, by a 404 each, that nothing is
        # remembered.
        may_know = self.attempt.task_attempt.key.try_number > 1 or self.before is not None
        self.attempt.avoid_failed_listener(self.remembered(_LISTENER_FAILED) if may_know else None)
        return self.attempt.earlier.to_deliver(self.remembered(_AWAITS_RETRY) if may_know else None)

    @gc_paused()
    def _inject(self) -> AbstractContextManager[None] | None:
        """Return the context in which Spark starts with lineage; ``None`` if the job must run
        without it.
        """
        if self.attempt is None or self._airflow is None:
            return None
        launching = self._with_listener(self.attempt, self._airflow)
        running = self._running = task.RunningAttempt(self.attempt)
        thread = threading.Thread(
            target=self._accompany, args=[running], name="lineage-of-running-job", daemon=True
        )
        self.guarded(
            "following", thread.start, costs_lineage=False
        )  # the machine may have no thread left
        return launching

    def _accompany(self, running: task.RunningAttempt) -> None:
        self.guarded("announcing", running.announce, costs_lineage=False)
        self.guarded("following", running.follow, costs_lineage=False)

    def _with_listener(
        self, attempt: task.AttemptLineage, airflow: hooks.AttemptContext
    ) -> AbstractContextManager[None] | None:
        try:
            self._launcher = self._find_launcher()
            return self._launcher.inject(attempt, *airflow.openlineage_runs())
        except (capture.InjectionError, OSError) as error:
            attempt.run_without_lineage(str(error))
            self._log.warning(
                "The job runs without lineage: %s", conversion.redact_text(str(error))
            )
            return None

    # -- after the job

    def _end_after_failure(self, failure: BaseException) -> bool:
        if isinstance(failure, AirflowTaskTimeout):
            if self.attempt is not None:
                self.attempt.driver_output.mark_killed()
            # Airflow stops the job only after execute() has ended; until then the job still writes
            # events.
            (self._launcher or self._find_launcher()).stop()
        has_submitted = getattr(self._launcher, "has_submitted", lambda _: True)
        submitted = has_submitted(failure)
        return self._end(
            self._failed_result(failure), failure=_described(failure), submitted=submitted
        )

    def _end(
        self,
        result: AttemptResult,
        succeeded: task.SucceededAttempt | None = None,
        failure: str = "",
        *,
        submitted: bool = True,
    ) -> bool:
        """Deliver the lineage of this attempt, or only that of an earlier one whose Spark job
        succeeded.
        """
        if (attempt := self.attempt) is None:
            return False
        end = replace(self._new_end(result, failure), submitted=submitted)
        ended = self.ended = task.EndedAttempt(attempt, end, self._running)
        report = ended.finish() if succeeded is None else ended.deliver_only(succeeded)
        self.guarded("comparing", ended.compare, costs_lineage=False)
        if result == "SUCCESS":
            given = (
                self._context,
                attempt.task_attempt.urn,
                ended.written,
                attempt.report,
                self.services,
            )
            self.guarded("emitting assets of", partial(hooks.emit_assets, *given))
        reported = self._report(report)
        # After the report: a killed task has no time for a disk that hangs.
        if listener_failure := ended.listener_failure:
            self.remember(
                _LISTENER_FAILED, partial(attempt.earlier.leave_listener_failure, listener_failure)
            )
        return reported

    def _new_end(self, result: AttemptResult, failure: str = "") -> task.AttemptEnd:
        seconds = self.attempt.options.timeout if self.attempt else _KILL_SECONDS
        if self.killed_at is not None:
            seconds = min(seconds, max(0.0, self.killed_at + _KILL_SECONDS - time.monotonic()))
        spark_succeeded = result == "SUCCESS" and self.killed_at is None
        return task.AttemptEnd(spark_succeeded, result, round(time.time() * 1000), seconds, failure)

    def _failed_result(self, failure: object) -> AttemptResult:
        if isinstance(failure, AirflowSkipException):
            return "SKIPPED"
        if self._airflow is None:
            return "FAILURE"
        if self.killed_at is not None:
            # Airflow kills a task if somebody set its state, or if its worker shuts down.
            return self._airflow.result_set_by_others() or "FAILURE"
        if isinstance(failure, AirflowFailException):
            return "FAILURE"
        return "UP_FOR_RETRY" if self._airflow.has_attempts_left else "FAILURE"


def _described(failure: BaseException) -> str:
    """Return a failure in a few words. The hook's own message repeats the command, which may hold
    secrets.
    """
    code = _ERROR_CODE.search(str(failure))
    if code is None:
        # Cut it afterwards: the end of a secret shows that it is one.
        return conversion.redact_text(f"{type(failure).__name__}: {failure}")[:_FAILURE_CHARS]
    return f"spark-submit ended with exit code {code[1]}{_SHELL_CODES.get(code[1], '')}"
