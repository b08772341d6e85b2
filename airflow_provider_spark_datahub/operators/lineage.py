"""Lineage around an Airflow task that starts Spark, whichever operator starts it.

:class:`TaskLineage` does the steps; :class:`SparkLineageOperator` puts them around another operator's ``execute``.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    AssetAlias,
    BaseOperator,
    DownstreamTasksSkipped,
    TaskDeferred,
)

from airflow_provider_spark_datahub import capture, conversion, task
from airflow_provider_spark_datahub.gc_tuning import gc_paused
from airflow_provider_spark_datahub.hooks import masking
from airflow_provider_spark_datahub.operators.links import LINKS
from airflow_provider_spark_datahub.printable import printable
from airflow_provider_spark_datahub.task import XCOM_KEY, LineageConfiguration, LineageReport

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_provider_spark_datahub.capture import ParentRun, PropertiesFile, Submission
    from airflow_provider_spark_datahub.conversion import LineageSettings
    from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult
    from airflow_provider_spark_datahub.hooks.airflow_context import AttemptContext
    from airflow_provider_spark_datahub.task import AttemptEnd, AttemptLineage, Launcher, LineageOptions, SparkSubmit

T = TypeVar("T")
_AirflowState = Literal["success", "failed", "skipped"]

_KILL_SECONDS = 4.0
"""Time for lineage in a task that is killed; Airflow ends its process after 5 s."""
_OPTIONS = tuple(signature(LineageConfiguration.resolve).parameters)[1:]
"""Names of the arguments that are options of an attempt."""
_ERROR_CODE = re.compile(r"Error code is: (-?\d+)")
_SHELL_CODES = {"126": " (it cannot be executed)", "127": " (a command was not found)"}
_FAILURE_CHARS = 300
_STOP_SECONDS = 10.0
"""Time for a stopped spark-submit to disappear."""
_DEFERRED = "spark_datahub_events"
_SUBMITTED = "spark_datahub_submitted"
_AWAITS_RETRY = "spark_datahub_awaits_retry"
_LISTENER_FAILED = "spark_datahub_listener_failed"
_UNREPORTED_STEPS = ("announcing", "following", "watching", "finding orphans of", "counting")
"""Steps whose failure costs no lineage."""
_ALIAS = "spark_datahub"
"""Asset alias of the events of tasks with ``emit_assets``. A DAG may be scheduled on it."""
_REPEATED = (
    "execute() was called before in this attempt: the edges of this call are added to those of the earlier ones, and "
    "this report covers this call only"
)


class LineagePendingError(AirflowException):
    """Failure of a task whose Spark job succeeded and whose lineage is not delivered (``lineage_on_failure``)."""


class TaskLineage:
    """Lineage of one execution of a task: before, during and after its Spark job.

    Failures are logged and reported; the task ends as it would end without lineage.

    :param find_options: returns the options that the task gives, and its switch ``enabled``, by name; ``None`` for the
        configured value.
    :param find_launcher: returns the launcher of this execution; called if lineage is switched on.
    :param log: the task's logger.
    :param before: lineage of an earlier call in the same attempt, to which this call's is added.
    :ivar attempt: the lineage of the attempt; ``None`` before :meth:`run`, and if lineage is switched off.
    :ivar killed_at: time of the kill, by ``time.monotonic``; ``None`` if Airflow has not killed the task.
    """

    def __init__(
        self,
        context: Context,
        find_options: Callable[[], Mapping[str, Any]],
        find_launcher: Callable[[], Launcher],
        log: Any,
        *,
        before: AttemptLineage | None = None,
    ) -> None:
        self._context = context
        self._find_options = find_options
        self._find_launcher = find_launcher
        self._log = log
        self._before = before
        self._options: LineageOptions | None = None
        self._airflow: AttemptContext | None = None
        self._launcher: Launcher | None = None
        self._problem: str | None = None
        self._ended: AttemptEnd | None = None
        self.attempt: AttemptLineage | None = None
        self.killed_at: float | None = None

    def is_of(self, context: Context) -> bool:
        """Return whether a context belongs to the same attempt."""
        return self._context["ti"] is context["ti"]

    def run(self, start_spark: Callable[[], T]) -> T | None:
        """Call ``start_spark`` with lineage around it, and return its result.

        :returns: ``None`` if an earlier attempt's Spark job succeeded and only its lineage was to deliver.
        :raises LineagePendingError: if the lineage is not delivered and ``lineage_on_failure`` demands it.
        """
        result = None
        spark_attempt = self.guarded("preparing", self._prepare)
        if spark_attempt is not None:
            self._log.info("Spark succeeded in attempt %s: this attempt only delivers its lineage.", spark_attempt)
            self._conclude(partial(self._end, "SUCCESS", spark_attempt=spark_attempt))
        else:
            with self._around_spark():
                result = start_spark()
        self._apply_failure_policy()
        return result

    @contextmanager
    def around(self) -> Iterator[None]:
        """Return a context with lineage around its body, which runs in each attempt.

        If the task defers itself, nothing resumes the context: its lineage stays in the outbox for a drain.

        :raises LineagePendingError: if the lineage is not delivered and ``lineage_on_failure`` demands it.
        """
        self.guarded("preparing", self._prepare)
        with self._around_spark(resumes=False):
            yield
        self._apply_failure_policy()

    def resume(self, event_files: object, wait: Callable[[], T]) -> T:
        """Call ``wait`` for a job that this attempt started before it was deferred, and return its result.

        :param event_files: where its events are.
        :raises LineagePendingError: if the lineage is not delivered and ``lineage_on_failure`` demands it.
        """
        self.guarded("preparing", self._prepare)
        with self._around_spark(partial(self._reconnect, event_files)):
            result = wait()
        self._apply_failure_policy()
        return result

    def _reconnect(self, event_files: object) -> None:
        if self.attempt is not None:
            self.attempt.reconnect(event_files)

    @contextmanager
    def _around_spark(
        self, begin: Callable[[], AbstractContextManager[None] | None] | None = None, *, resumes: bool = True
    ) -> Iterator[None]:
        launching = self.guarded("preparing", begin or self._inject)
        if self.attempt is not None and self._problem:
            self.attempt.mark_not_injected(self._problem)
        with launching or nullcontext():
            try:
                yield
            except TaskDeferred as deferral:
                # The job goes on without this process; resume_execution() comes back to it.
                if self.attempt is not None:
                    self.attempt.stop_following()
                    if resumes:
                        events = self.guarded("deferring", self.attempt.event_files)
                        deferral.kwargs = {**(deferral.kwargs or {}), _DEFERRED: events}
                raise
            except DownstreamTasksSkipped:
                # A branch or a short circuit, which has succeeded.
                self._conclude(partial(self._end, "SUCCESS"))
                raise
            except BaseException as failure:
                self._conclude(partial(self._end_after_failure, failure))
                raise
        self._conclude(partial(self._end, "SUCCESS"))

    def mark_killed(self) -> None:
        """Record that Airflow kills the task now."""
        self.killed_at = time.monotonic()
        if self.attempt is not None:
            self.attempt.driver_output.mark_killed()

    def settle(self, state: _AirflowState, error: object, *, resumed: bool = False) -> None:
        """Deliver the result that Airflow gave the attempt, if ``execute`` ended otherwise or never ran.

        A task can end before ``execute`` (``pre_execute``) or after it (``post_execute``, a subclass).

        :param error: what the task raised; a text if Airflow has only that.
        :param resumed: the task was deferred by itself, so that Spark ran in an earlier process, if it did.
        """
        if self._ended is not None:
            result = self._result(state, error)
            if result != self._ended.result:
                self.guarded("correcting", partial(self._correct, self._ended, result))
        elif self.attempt is None and self._problem is None:
            self.guarded("preparing", self._prepare)
            if resumed:
                end = self._new_end(self._result(state, error))
                self.guarded("correcting", partial(self._correct, end, end.result))
            else:
                self._settle_without_spark(state, error)

    def _settle_without_spark(self, state: _AirflowState, error: object) -> None:
        if self.attempt is None:
            return
        why = f": {type(error).__name__}: {error}" if isinstance(error, BaseException) else ""
        self.attempt.mark_not_injected(f"the task ended as {state} without starting Spark{why}")
        self._conclude(partial(self._end, self._result(state, error)))

    def _result(self, state: _AirflowState, error: object) -> AttemptResult:
        if state == "failed":
            return self._failed_result(error)
        return "SUCCESS" if state == "success" else "SKIPPED"

    def _correct(self, ended: AttemptEnd, result: AttemptResult) -> None:
        if self.attempt is None or (result == "FAILURE" and self.killed_at is not None):
            # For a killed task, Airflow has been asked for the state already.
            return
        report = self.attempt.correct(replace(ended, result=result))
        before = f"execute() had ended as {ended.result}" if ended.result != result else "it was resumed"
        self._log.info("The task ended as %s after %s. %s", result, before, report.sentence)

    # -- failures of lineage

    def guarded(self, doing: str, step: Callable[[], T]) -> T | None:
        """Call a step of lineage. This is the one place where failures of lineage end, so that none fails the task.

        :returns: ``None`` if the step failed.
        """
        try:
            return step()
        except (Exception, AirflowTaskTimeout) as error:
            if doing == "preparing" and isinstance(error, AirflowTaskTimeout):
                # The job has not run: the task's own time is over.
                raise
            trace = conversion.redacted_trace(error)
            self._log.warning("%s lineage failed; the task is not affected.\n%s", doing.capitalize(), trace)
            if doing not in _UNREPORTED_STEPS:
                problem = conversion.redact_text(f"{doing} lineage failed: {type(error).__name__}: {error}")
                self._problem = self._problem or problem
            return None

    def _conclude(self, step: Callable[[], bool]) -> None:
        """Deliver and report; if that fails, report at least why."""
        if not self.guarded("delivering", step) and self._problem:
            report = self.attempt.report if self.attempt else LineageReport()
            report.failed, report.reason = True, report.reason or self._problem
            self.guarded("reporting", partial(self._report, report))

    def _report(self, report: LineageReport) -> bool:
        if report.is_complete:
            self._log.info("%s", printable(report.sentence))
        else:
            self._log.warning("%s. %s", printable(report.sentence).rstrip("."), self._next_step(report))
        if not report.has_lineage:
            self._log.info("Lineage: for the reasons and what to do, see docs/troubleshooting.md, There is no lineage")
        self._log.debug("The lineage steps took %.3f s.", report.seconds)
        for warning in report.warnings:
            self._log.warning("Lineage: %s", printable(warning))
        for gap in report.gaps:
            self._log.info("Lineage: %s", printable(gap))
        self._context["ti"].xcom_push(key=XCOM_KEY, value=report.to_obj())
        self.guarded("counting", partial(self._count, report))
        return True

    def _count(self, report: LineageReport) -> None:
        from airflow_provider_spark_datahub.hooks.metrics import count_attempt

        ti = self._context["ti"]
        count_attempt(report, ti.dag_id, ti.task_id)

    def _next_step(self, report: LineageReport) -> str:
        if self._options is None or report.outbox_entry is None:
            return "It is not in the outbox: clear the task to have it made again."
        emit = f"spark-datahub emit --outbox {shlex.quote(self._options.outbox_location)}"
        return f'It is kept in the outbox: run "{emit}", or wait for the next attempt or the end of the DAG run.'

    def _apply_failure_policy(self) -> None:
        """Fail the task if its lineage is not delivered and ``lineage_on_failure`` demands it."""
        if self.attempt is None or self._options is None or self.attempt.report.is_complete:
            return
        policy = self._options.on_failure
        has_attempts_left = self._airflow is not None and self._airflow.has_attempts_left
        self._log.debug("Lineage is pending: lineage_on_failure=%s, attempts left: %s", policy, has_attempts_left)
        if policy == "warn":
            return
        if has_attempts_left:
            # Without a record that only lineage is missing, the next attempt would run Spark again: do not fail.
            if not self.remember(_AWAITS_RETRY, partial(self.attempt.delivery.leave_to_retry, self.attempt.written)):
                return
        else:
            self.guarded("remembering", self.attempt.delivery.leave_to_others)
            if policy == "retry":
                return
        next_step = "The next attempt only delivers it." if has_attempts_left else self._next_step(self.attempt.report)
        raise LineagePendingError(
            f"Spark succeeded, but its lineage was not delivered (lineage_on_failure={policy}): "
            f"{self.attempt.report.reason}. {next_step}"
        )

    # -- what an attempt leaves to a later one, if Airflow keeps state of tasks (since 3.3)

    def remember(self, key: str, value: Callable[[], Any]) -> bool:
        """Keep a JSON value for later attempts. Return False if a step failed."""

        def store() -> bool:
            obj = value()
            if (state := self._context.get("task_state_store")) is not None:
                state.set(key, obj)
            return True

        return self.guarded("remembering", store) or False

    def remembered(self, key: str) -> object:
        """Return the value that an earlier attempt kept; ``None`` if there is none."""
        state = self._context.get("task_state_store")
        return state.get(key) if state is not None else None

    # -- before the job

    @gc_paused()
    def _prepare(self) -> int | None:
        """Resolve the options.

        :returns: the earlier attempt whose lineage is all that this one has to deliver, if there is one.
        """
        from airflow_provider_spark_datahub.hooks.airflow_context import AttemptContext, configuration, final_result
        from airflow_provider_spark_datahub.hooks.datahub import open_sink
        from airflow_provider_spark_datahub.hooks.storage import open_outbox, open_store, s3_endpoint

        configured = configuration()
        given = dict(self._find_options())
        if not configured.is_enabled(given.pop("enabled", None)):
            self._log.info("Lineage is switched off (option enabled).")
            return None
        self._options = options = configured.resolve(**given)
        for note in options.notes:
            self._log.info("Lineage option %s", note)
        airflow = self._airflow = AttemptContext(self._context)
        of_others = partial(final_result, self._context["ti"])
        connections = task.Connections(open_sink, open_outbox, of_others, open_store, s3_endpoint)
        self.attempt = task.AttemptLineage(options, airflow.attempt(), connections, airflow.ti_id, self._before)
        if self._before is not None:
            self.attempt.report.warnings.append(_REPEATED)
        if problem := self.attempt.delivery.sink_problem:
            self._log.info("Lineage will stay in the outbox: %s", problem)
        self.guarded("finding orphans of", self.attempt.handle_orphans)
        self.attempt.avoid_failed_listener(self.remembered(_LISTENER_FAILED))
        return self.attempt.delivery.attempt_to_deliver(self.remembered(_AWAITS_RETRY))

    @gc_paused()
    def _inject(self) -> AbstractContextManager[None] | None:
        """Return the context in which Spark starts with lineage; ``None`` if the job must run without it."""
        if self.attempt is None or self._airflow is None:
            return None
        launching = self._with_listener(self.attempt, self._airflow)
        threading.Thread(
            target=self._accompany, args=[self.attempt], name="lineage-of-running-job", daemon=True
        ).start()
        return launching

    def _accompany(self, attempt: AttemptLineage) -> None:
        self.guarded("announcing", attempt.announce)
        self.guarded("following", attempt.follow)

    def _with_listener(self, attempt: AttemptLineage, airflow: AttemptContext) -> AbstractContextManager[None] | None:
        try:
            self._launcher = self._find_launcher()
            return self._launcher.inject(attempt, *airflow.openlineage_runs())
        except (capture.InjectionError, OSError) as error:
            attempt.mark_not_injected(str(error))
            self._log.warning("The job runs without lineage: %s", conversion.redact_text(str(error)))
            return None

    # -- after the job

    def _end_after_failure(self, failure: BaseException) -> bool:
        if isinstance(failure, AirflowTaskTimeout):
            if self.attempt is not None:
                self.attempt.driver_output.mark_killed()
            # Airflow stops the job only after execute() has ended; until then the job still writes events.
            (self._launcher or self._find_launcher()).stop()
        return self._end(self._failed_result(failure), failure=_described(failure))

    def _end(self, result: AttemptResult, spark_attempt: int | None = None, failure: str = "") -> bool:
        """Deliver the lineage of this attempt, or only that of the earlier attempt ``spark_attempt``."""
        if self.attempt is None:
            return False
        end = self._ended = self._new_end(result, failure)
        if spark_attempt is not None:
            report = self.attempt.deliver_only(end, spark_attempt)
        else:
            report = self.attempt.finish(end)
        if result == "SUCCESS":
            self.guarded("emitting assets of", partial(self._emit_assets, self.attempt, report))
        reported = self._report(report)
        # After the report: a killed task has no time for a disk that hangs.
        if failure and self.attempt.listener_failed:
            self.remember(_LISTENER_FAILED, self.attempt.leave_listener_failure)
        return reported

    def _new_end(self, result: AttemptResult, failure: str = "") -> AttemptEnd:
        seconds = self._options.timeout if self._options else _KILL_SECONDS
        if self.killed_at is not None:
            seconds = min(seconds, max(0.0, self.killed_at + _KILL_SECONDS - time.monotonic()))
        spark_succeeded = result == "SUCCESS" and self.killed_at is None
        return task.AttemptEnd(spark_succeeded, result, round(time.time() * 1000), seconds, failure)

    def _emit_assets(self, attempt: AttemptLineage, report: LineageReport) -> None:
        from airflow_provider_spark_datahub.hooks.assets import emit_assets

        emit_assets(self._context, attempt, report)

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


class SubmissionLauncher(ABC):
    """Launcher of one Spark job by a call that has Spark properties, such as ``spark-submit``."""

    process: ClassVar[str] = "_submit_sp"
    """Attribute of the operator's hook with the process of the call, if it is a local one."""

    def __init__(self, operator: Any, context: Context) -> None:
        self._operator = operator
        self._context = context

    @abstractmethod
    def submission(self) -> Submission:
        """Return the properties, jars and packages of the call without lineage."""

    @abstractmethod
    def spark(self) -> SparkSubmit:
        """Return the Spark that the call starts, and where its driver runs."""

    @abstractmethod
    def launching(self, submission: Submission) -> AbstractContextManager[None]:
        """Return a context in which the task makes the call with ``submission``. Its exit restores everything."""

    @contextmanager
    def swapped(self, file: PropertiesFile | None = None, **values: object) -> Iterator[None]:
        """Give the operator other values of its attributes for one call, and remove the call's file afterwards.

        The user's objects stay untouched.
        """
        users = {name: getattr(self._operator, name) for name in values}
        vars(self._operator).update(values)
        try:
            yield
        finally:
            vars(self._operator).update(users)
            if file is not None:
                file.remove()

    def stop(self) -> None:
        """Stop the job, and wait until it writes no more events."""
        # Our own on_kill() is for a task that Airflow kills.
        operator: SparkLineageOperator = self._operator
        super(SparkLineageOperator, operator).on_kill()
        process = getattr(getattr(operator, "_hook", None), self.process, None)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_STOP_SECONDS)

    def inject(self, attempt: AttemptLineage, parent: ParentRun, root: ParentRun) -> AbstractContextManager[None]:
        """Return a context in which the task makes the call with lineage."""
        injection = attempt.inject(self.submission(), self.spark(), parent, root)
        for secret in injection.secrets:
            # These secrets were in a file, and are now on a command line that Airflow logs.
            masking.mask(secret)
        return self.launching(injection.submission)


def _described(failure: BaseException) -> str:
    """Return a failure in a few words. The hook's own message repeats the command, which may hold secrets."""
    code = _ERROR_CODE.search(str(failure))
    if code is None:
        # Cut it afterwards: the end of a secret shows that it is one.
        return conversion.redact_text(f"{type(failure).__name__}: {failure}")[:_FAILURE_CHARS]
    return f"spark-submit ended with exit code {code[1]}{_SHELL_CODES.get(code[1], '')}"


class SparkLineageOperator(BaseOperator):
    """Base of operators that start Spark as another operator does, and deliver its lineage to DataHub.

    A subclass inherits from this class first and from the other operator second, and :meth:`_launcher` returns how
    the other operator starts Spark. It takes every argument of the other operator and behaves in the same way: whatever
    happens to the lineage, the task ends as it would end without. All further arguments are keyword-only and templated,
    and have their defaults in the section ``[spark_datahub]`` of Airflow's configuration.

    :param datahub_conn_id: connection to DataHub, of a type that begins with ``datahub-``.
    :param openlineage_conn_id: connection of type ``openlineage`` to a backend that also gets the raw events.
    :param lineage: settings of the converter: a dict, its JSON, or
        :class:`~airflow_provider_spark_datahub.conversion.settings.LineageSettings`.
    :param lineage_on_failure: effect on the task if Spark succeeded and its lineage was not delivered: ``warn`` (none;
        the lineage stays in the outbox), ``retry`` (the next attempt, if there is one, only delivers) or ``fail`` (the
        same, and without a next attempt the task fails).
    :param events_location: absolute folder for the job's OpenLineage events, on the machine of the driver. If that is
        not the worker, it must be on a disk that both share. Or an address in S3: ``s3://connection@bucket/prefix``.
    :param outbox_location: folder, or URI in an object store (``s3://connection@bucket/key``), for lineage that is not
        delivered yet.
    :param lineage_timeout: seconds after Spark's end within which all lineage steps must finish.
    :param emit_periodically: seconds between two deliveries while the job runs; 0 to deliver only at its end.
    :param openlineage_jar: path, URI or Maven coordinate (with ``{scala}`` for Spark's Scala version) of
        openlineage-spark, or ``provided`` if the cluster has it.
    :param capture: source of the lineage: ``listener``, OpenLineage's; ``event_log``, Spark's own event log alone, with
        nothing injected; ``auto``, the listener, and the log of a job that it did not see.
    :param on_orphan: what happens to a ``spark-submit`` in client mode that an earlier attempt, whose task was killed,
        left running on this machine: ``warn`` (the report names it) or ``kill`` (it is stopped before this job starts).
    :param connect_events: event file of the Spark Connect server whose client the task is by ``SPARK_REMOTE``; for
        operators of the Sparks below a task.
    :param emit_assets: ``True`` for an asset event for each dataset that the job wrote, through the asset alias
        ``spark_datahub`` unless the task's ``outlets`` have one; or the URIs of assets by DataHub's platform, as
        templates (``{"hive": "hive://prod/{path}"}``), for the others as with ``True``. ``False`` for no events even if
        the outlets have an alias. It is not templated by Jinja.
    :param asset_partitions: give the event of a declared outlet the partitions that the job wrote as partition keys, if
        the events name them (Airflow 3.3). Such an event triggers only DAGs that are scheduled on partitions.
    :param enabled: ``False`` to run the other operator without lineage.
    """

    lineage_fields: ClassVar[tuple[str, ...]] = (*_OPTIONS, "enabled")
    """The arguments that this class adds, all of them templated."""
    operator_extra_links: Collection[BaseOperatorLink] = LINKS
    _task_lineage: TaskLineage | None = None
    _resumed = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Add the links, unless a property computes the other operator's, and the template fields."""
        super().__init_subclass__(**arguments)
        joins_operator = len(cls.__bases__) > 1 and issubclass(cls.__bases__[0], SparkLineageOperator)
        if joins_operator and "template_fields" not in vars(cls):
            cls.template_fields = (*super().template_fields, *cls.lineage_fields)
        others = super().operator_extra_links
        if "operator_extra_links" not in vars(cls):
            cls.operator_extra_links = others if isinstance(others, property) else (*others, *LINKS)

    def __init__(
        self,
        *,
        datahub_conn_id: str | None = None,
        openlineage_conn_id: str | None = None,
        lineage: Mapping[str, Any] | LineageSettings | str | None = None,
        lineage_on_failure: str | None = None,
        events_location: str | None = None,
        outbox_location: str | None = None,
        lineage_timeout: float | str | None = None,
        emit_periodically: float | str | None = None,
        openlineage_jar: str | None = None,
        capture: str | None = None,
        on_orphan: str | None = None,
        connect_events: str | None = None,
        emit_assets: bool | Mapping[str, str] | None = None,
        asset_partitions: bool = False,
        enabled: bool | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.datahub_conn_id = datahub_conn_id
        self.openlineage_conn_id = openlineage_conn_id
        self.lineage = lineage
        self.lineage_on_failure = lineage_on_failure
        self.events_location = events_location
        self.outbox_location = outbox_location
        self.lineage_timeout = lineage_timeout
        self.emit_periodically = emit_periodically
        self.openlineage_jar = openlineage_jar
        self.capture = capture
        self.on_orphan = on_orphan
        self.connect_events = connect_events
        self.enabled = enabled
        self.emit_assets = emit_assets
        self.asset_partitions = asset_partitions
        if emit_assets and not any(isinstance(outlet, AssetAlias) for outlet in self.outlets):
            self.outlets = [*self.outlets, AssetAlias(_ALIAS)]

    @property
    def lineage_application(self) -> str | None:
        """Name of the task's Spark application, which may be a template; ``None`` if no argument names it."""
        return getattr(self, "name", None)

    def _launcher(self, context: Context) -> Launcher:
        """Return how this task starts Spark.

        :raises InjectionError: if it starts Spark in a way that lineage cannot be added to.
        """
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Run the task as the other operator does, with lineage around it."""
        lineage = self._task_lineage = self._new_lineage(context)
        return lineage.run(partial(super().execute, context))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue a deferred task as the other operator does, with lineage around it."""
        kwargs = dict(next_kwargs or {})
        resume = partial(super().resume_execution, next_method, kwargs, context)
        if _DEFERRED not in kwargs:
            self._resumed = True
            return resume()
        event_files = kwargs.pop(_DEFERRED)
        self._task_lineage = None  # of the same job, if this is the process that deferred it
        lineage = self._task_lineage = self._new_lineage(context)
        return lineage.resume(event_files, resume)

    def _new_lineage(self, context: Context) -> TaskLineage:
        last = self._task_lineage
        before = last.attempt if last is not None and last.is_of(context) else None
        options, launcher = partial(self._lineage_arguments, context), partial(self._launcher, context)
        return TaskLineage(context, options, launcher, self.log, before=before)

    def _lineage_arguments(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 (the policy renders them)
        """Return the options that the task gives, and its switch ``enabled``."""
        return {name: getattr(self, name, None) for name in self.lineage_fields}

    def settle_lineage(self, context: Context, state: _AirflowState, error: object = None) -> None:
        """Report the result that Airflow gave the attempt, if ``execute`` could not know it. Called by our listener.

        :param error: what the task raised, if it failed.
        """
        (self._task_lineage or self._new_lineage(context)).settle(state, error, resumed=self._resumed)

    def on_kill(self) -> None:
        """Stop the job; Airflow leaves few seconds after it."""
        if self._task_lineage is not None:
            self._task_lineage.mark_killed()
        super().on_kill()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002 (Airflow's signature)
        """Return the datasets of the Spark job, for the Airflow task of OpenLineage and of DataHub's own plugin.

        DataHub's plugin uses the namespace as platform, so it gets each dataset under its name in DataHub.
        """
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import Dataset

        from airflow_provider_spark_datahub.hooks.airflow_context import datahub_plugin_is_active

        attempt = self._task_lineage.attempt if self._task_lineage else None
        if attempt is None:
            return OperatorLineage()
        inputs, outputs = (
            [Dataset(namespace=dataset.namespace, name=dataset.name) for dataset in datasets]
            for datasets in attempt.openlineage_datasets(for_plugin=datahub_plugin_is_active())
        )
        return OperatorLineage(inputs=inputs, outputs=outputs)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Return the datasets of the Spark job of a failed attempt."""
        return self.get_openlineage_facets_on_complete(task_instance)


class ResumableLineageOperator(SparkLineageOperator):
    """Base of operators whose attempts may reconnect to the job of an earlier one.

    The other operator keeps the job's id in the task's state (``ResumableJobMixin``, since Airflow 3.3). It submits
    only if an attempt cannot reconnect to a job.
    """

    _knows_its_job = False

    def execute_resumable(self, context: Context) -> Any:
        """Submit the job or reconnect to it. Called by the parent class if an attempt may reconnect to a driver."""
        self._knows_its_job = False
        return self._other.execute_resumable(context)

    def submit_job(self, context: Context) -> Any:
        """Submit the job. Called by the parent class if an attempt cannot reconnect."""
        self._knows_its_job = True
        if self._task_lineage is not None and (attempt := self._task_lineage.attempt) is not None:
            self._task_lineage.remember(_SUBMITTED, attempt.event_files)
        return self._other.submit_job(context)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for the job. Called by the parent class while a driver runs."""
        self._reconnect()
        self._other.poll_until_complete(external_id, context)

    def get_job_result(self, external_id: Any, context: Context) -> Any:
        """Return the result of the job. Called by the parent class if the driver has succeeded."""
        self._reconnect()
        return self._other.get_job_result(external_id, context)

    @property
    def _other(self) -> Any:
        return super()

    def _reconnect(self) -> None:
        """Read the events of the job that an earlier attempt submitted, if it is not this attempt's own."""
        if self._knows_its_job:
            return
        self._knows_its_job = True
        lineage = self._task_lineage
        if lineage is not None and (attempt := lineage.attempt) is not None:
            lineage.guarded("reconnecting", lambda: attempt.reconnect(lineage.remembered(_SUBMITTED)))
