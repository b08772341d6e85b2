"""Whether a try submits a job, or goes back to one of an earlier try (``durable`` of the Spark provider).

What a try submits: read from the operator, replaced for the time of one submit, and stopped.

A drop-in SparkSubmitOperator whose job's lineage is in DataHub when the task ends.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseHook,
)

from airflow_provider_spark_datahub.task import XCOM_KEY, LineageOptions, LineageReport

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_spark_datahub.capture import Submission
    from airflow_provider_spark_datahub.conversion import LineageSettings
    from airflow_provider_spark_datahub.conversion.run_tree import TryResult
    from airflow_provider_spark_datahub.task import SparkSubmit, TaskLineage, TryEnd


class ResumableSparkSubmitOperator(SparkSubmitOperator):
    """Says so in :meth:`before_submit` and :meth:`reconnected`.

    In cluster mode, ``SparkSubmitOperator`` keeps the driver's id in the task's state (since Airflow 3.3), and calls
    :meth:`submit_job` only where there is no driver to go back to.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._knows_its_job = False

    def before_submit(self, context: Context) -> None:
        """Called before a job is submitted whose driver a later try may go back to."""

    def reconnected(self, context: Context) -> None:
        """Called, once, where the job is that of an earlier try."""

    def execute_resumable(self, context: Context) -> Any:
        """Called by the parent class where a try may go back to a driver."""
        self._knows_its_job = False
        return super().execute_resumable(context)

    def submit_job(self, context: Context) -> str | None:
        """Called by the parent class where there is no driver to go back to."""
        self._knows_its_job = True
        self.before_submit(context)
        return super().submit_job(context)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Called by the parent class where a driver runs."""
        self._look(context)
        super().poll_until_complete(external_id, context)

    def get_job_result(self, external_id: Any, context: Context) -> None:
        """Called by the parent class where the driver has succeeded."""
        self._look(context)
        super().get_job_result(external_id, context)

    def _look(self, context: Context) -> None:
        if not self._knows_its_job:
            self._knows_its_job = True
            self.reconnected(context)


def remember(context: Context, key: str, value: Any) -> bool:
    """Keep a JSON value for later tries. :returns: False where Airflow keeps no state of tasks (before 3.3)."""
    state = context.get("task_state_store")
    if state is not None:
        state.set(key, value)
    return state is not None


def remembered(context: Context, key: str) -> object:
    """What an earlier try kept; ``None`` where it kept nothing."""
    state = context.get("task_state_store")
    return state.get(key) if state is not None else None


STOP_SECONDS = 10.0
"""How long a stopped spark-submit may take to disappear."""


class AlterableSparkSubmitOperator(ResumableSparkSubmitOperator):
    """A ``SparkSubmitOperator`` that can submit something else than its arguments say."""

    def _submission(self, context: Context) -> Submission:
        """What the arguments say."""
        from airflow_provider_spark_datahub.capture import Submission

        return Submission(
            properties=self._conf_with_airflows_transport(context),
            jars=self.jars,
            packages=self.packages,
            driver_class_path=self.driver_class_path,
            repositories=getattr(self, "_repositories", None),
        )

    def _conf_with_airflows_transport(self, context: Context) -> dict[Any, Any]:
        """The user's Spark properties, with the transport that the parent class would inject.

        It injects none where there is one already, so ours would keep it from doing so.
        """
        conf = dict(self.conf or {})
        if not getattr(self, "_openlineage_inject_transport_info", False):
            return conf
        from airflow.providers.common.compat.openlineage.utils.spark import (
            inject_transport_information_into_spark_properties,
        )

        return dict(inject_transport_information_into_spark_properties(conf, context))

    def _spark_submit(self) -> SparkSubmit:
        """Which spark-submit will run where, from the operator's arguments and its Spark connection."""
        from airflow_provider_spark_datahub.task import SparkSubmit

        try:
            extra = BaseHook.get_connection(self._conn_id).extra_dejson
        except AirflowException:
            # SparkSubmitHook falls back to YARN in client mode then.
            extra = {}
        deploy_mode = self._deploy_mode or extra.get("deploy-mode")
        env = {**os.environ, **{name: str(value) for name, value in (self.env_vars or {}).items()}}
        return SparkSubmit(
            binary=self._spark_binary or extra.get("spark-binary") or "spark-submit",
            env=env,
            local_driver=deploy_mode != "cluster",
            properties_file=self.properties_file,
        )

    @contextmanager
    def _submitting(self, submission: Submission | None) -> Iterator[None]:
        """The operator with the submission's values for the time of one submit; the user's objects stay untouched."""
        if submission is None:
            yield
            return
        users = self.conf, self.jars, self.packages
        self.conf, self.jars, self.packages = dict(submission.properties), submission.jars, submission.packages
        # A hook made before would submit without them.
        self._hook = None
        try:
            yield
        finally:
            self.conf, self.jars, self.packages = users

    def _stop_spark_submit(self) -> None:
        """Stop the job, and wait until spark-submit is gone, so that nothing of it writes any more."""
        super().on_kill()
        process = getattr(self._hook, "_submit_sp", None)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STOP_SECONDS)


def watch_output(hook: SparkSubmitHook, watched: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
    """Let someone else see what ``spark-submit`` prints, in passing.

    :param watched: the lines as they are.
    """
    read = hook._process_spark_submit_log

    def read_watched(itr: Iterator[Any]) -> None:
        read(watched(itr))

    hook._process_spark_submit_log = read_watched  # type: ignore[method-assign]


T = TypeVar("T")

KILL_SECONDS = 4.0
"""Airflow kills a task 5 s after it asked it to end: what lineage may take of them."""
_AWAITS_RETRY = "spark_datahub_awaits_retry"
_SUBMITTED = "spark_datahub_submitted"


class LineagePendingError(AirflowException):
    """Spark succeeded, its lineage did not arrive, and the task was told to fail then (``lineage_on_failure``)."""


class SparkSubmitDatahubOperator(AlterableSparkSubmitOperator):
    """Submit a Spark job, and deliver its lineage to DataHub when it ends.

    Takes every argument of ``SparkSubmitOperator`` and behaves as it does: whatever becomes of lineage, the task ends
    as it would have ended without. All further arguments are keyword-only and templated, and have their default in
    the section ``[spark_datahub]`` of Airflow's configuration.

    :param datahub_conn_id: connection to DataHub, of a type that begins with ``datahub-``.
    :param openlineage_conn_id: connection of type ``openlineage``, to a backend that gets the raw events, too.
    :param lineage: the converter's options: a dict, its JSON, or
        :class:`~airflow_provider_spark_datahub.conversion.settings.LineageSettings`.
    :param lineage_on_failure: what becomes of the task when Spark succeeded and its lineage did not arrive: ``warn``
        (nothing; the lineage stays in the outbox), ``retry`` (the next try, where there is one, only delivers) or
        ``fail`` (likewise, and without one the task fails).
    :param events_location: absolute folder for the job's OpenLineage events, on the machine of the driver; where that
        is not the worker, on a disk that both share.
    :param outbox_location: folder, or URI in an object store (``s3://connection@bucket/key``), for what waits for its
        delivery.
    :param lineage_timeout: seconds after Spark's end in which all lineage steps must be over.
    :param emit_periodically: seconds between two deliveries of what the job did so far, while it runs; 0 for none.
    :param openlineage_jar: path, URI or Maven coordinate (with ``{scala}`` for Spark's Scala version) of
        openlineage-spark, or ``provided`` where the cluster has it.
    :param enabled: ``False``: a plain ``SparkSubmitOperator``.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "datahub_conn_id",
        "openlineage_conn_id",
        "lineage",
        "lineage_on_failure",
        "events_location",
        "outbox_location",
        "lineage_timeout",
        "emit_periodically",
        "openlineage_jar",
        "enabled",
    )

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
        self.enabled = enabled
        self._options: LineageOptions | None = None
        self._lineage: TaskLineage | None = None
        self._killed_at: float | None = None
        self._problem: str | None = None

    def execute(self, context: Context) -> Any:
        """Run the job as ``SparkSubmitOperator`` does, with lineage around it."""
        result = None
        self._lineage, self._killed_at, self._problem = None, None, None
        awaited = self._guarded("preparing", partial(self._prepare, context))
        if awaited is not None:
            self.log.info("Spark succeeded in try %s: this try only delivers its lineage.", awaited)
            self._conclude(context, partial(self._redeliver, context, awaited))
        else:
            result = self._execute_spark(context)
        self._fail_if_told_to(context)
        return result

    def _execute_spark(self, context: Context) -> Any:
        submission = self._guarded("preparing", partial(self._inject, context))
        if self._lineage is not None and self._problem:
            self._lineage.not_injected(self._problem)
        with self._submitting(submission):
            try:
                result: Any = super().execute(context)
            except BaseException as failure:
                self._conclude(context, partial(self._end_badly, context, failure))
                raise
        self._conclude(context, partial(self._end, context, "SUCCESS", spark_succeeded=True))
        return result

    def before_submit(self, context: Context) -> None:
        """Remember where the events of the job will be, for a try that reconnects to it."""
        if (lineage := self._lineage) is not None:
            self._guarded("remembering", lambda: remember(context, _SUBMITTED, lineage.events_location()))

    def reconnected(self, context: Context) -> None:
        """Go on with the events of the job that an earlier try submitted."""
        if (lineage := self._lineage) is not None:
            self._guarded("reconnecting", lambda: lineage.reconnect(remembered(context, _SUBMITTED)))

    def on_kill(self) -> None:
        """Stop the job; Airflow leaves few seconds after it."""
        self._killed_at = time.monotonic()
        super().on_kill()

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        if (lineage := self._lineage) is not None:
            self._guarded("watching", lambda: watch_output(hook, lineage.driver_output.watched))
        return hook

    def _guarded(self, doing: str, step: Callable[[], T]) -> T | None:
        """The one place where lineage's own failures end: none of them reaches the task."""
        try:
            return step()
        except (Exception, AirflowTaskTimeout) as error:
            if doing == "preparing" and isinstance(error, AirflowTaskTimeout):
                # The job has not run: this is the task's own time that is over.
                raise
            from airflow_provider_spark_datahub.conversion import redact_text, redacted_trace

            trace = redacted_trace(error)
            self.log.warning("%s lineage failed; the task is not affected.\n%s", doing.capitalize(), trace)
            if doing not in ("announcing", "following", "watching"):
                words = redact_text(f"{doing} lineage failed: {type(error).__name__}: {error}")
                self._problem = self._problem or words
            return None

    def _conclude(self, context: Context, step: Callable[[], bool]) -> None:
        """Deliver and report; where that fails, report at least why."""
        if not self._guarded("delivering", step) and self._problem:
            report = self._lineage.report if self._lineage else LineageReport()
            report.failed, report.reason = True, report.reason or self._problem
            self._guarded("reporting", partial(self._tell, context, report))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002 (Airflow's signature)
        """The datasets of the Spark job, for the Airflow task of OpenLineage and of DataHub's own plugin.

        DataHub's plugin takes a namespace for the platform: it gets each dataset under the name that is in DataHub.
        """
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import Dataset

        from airflow_provider_spark_datahub.hooks.airflow_context import datahub_plugin_is_active

        if self._lineage is None:
            return OperatorLineage()
        inputs, outputs = self._lineage.openlineage_datasets(as_in_datahub=datahub_plugin_is_active())
        return OperatorLineage(
            inputs=[Dataset(namespace=one.namespace, name=one.name) for one in inputs],
            outputs=[Dataset(namespace=one.namespace, name=one.name) for one in outputs],
        )

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """The same for a try that failed."""
        return self.get_openlineage_facets_on_complete(task_instance)

    # -- before the job

    def _prepare(self, context: Context) -> int | None:
        """Resolve the options; the earlier try whose lineage is all that this one has to deliver, if there is one."""
        from airflow_provider_spark_datahub.hooks.airflow_context import configuration

        configured = configuration()
        if not configured.is_enabled(self.enabled):
            self.log.info("Lineage is switched off (enabled).")
            return None
        self._options = configured.resolve(
            datahub_conn_id=self.datahub_conn_id,
            openlineage_conn_id=self.openlineage_conn_id,
            lineage=self.lineage,
            lineage_on_failure=self.lineage_on_failure,
            events_location=self.events_location,
            outbox_location=self.outbox_location,
            lineage_timeout=self.lineage_timeout,
            emit_periodically=self.emit_periodically,
            openlineage_jar=self.openlineage_jar,
        )
        for note in self._options.notes:
            self.log.info("Lineage option %s", note)
        self._lineage = self._task_lineage(context, self._options)
        return self._lineage.delivery.awaited_try(remembered(context, _AWAITS_RETRY))

    def _task_lineage(self, context: Context, options: LineageOptions) -> TaskLineage:
        from airflow_provider_spark_datahub.hooks import airflow_context
        from airflow_provider_spark_datahub.hooks.datahub import open_sink
        from airflow_provider_spark_datahub.hooks.storage import open_outbox
        from airflow_provider_spark_datahub.task import Connections, TaskLineage

        lineage = TaskLineage(
            options,
            airflow_context.attempt_key(context),
            airflow_context.task_try(context),
            Connections(open_sink, open_outbox),
            airflow_context.task_instance_id(context),
        )
        if lineage.delivery.sink_problem:
            self.log.warning("Lineage will stay in the outbox: %s", lineage.delivery.sink_problem)
        return lineage

    def _inject(self, context: Context) -> Submission | None:
        """The submission with lineage, or ``None`` where the job is to run without."""
        lineage = self._lineage
        if lineage is None:
            return None
        submission = self._injected(context, lineage)
        threading.Thread(target=self._accompany, args=[lineage], name="lineage-of-running-job", daemon=True).start()
        return submission

    def _accompany(self, lineage: TaskLineage) -> None:
        self._guarded("announcing", lineage.announce)
        self._guarded("following", lineage.follow)

    def _injected(self, context: Context, lineage: TaskLineage) -> Submission | None:
        from airflow_provider_spark_datahub.capture import (
            JarProblemError,
            RelativeEventsRootError,
            TransportNotCombinableError,
        )
        from airflow_provider_spark_datahub.hooks import airflow_context
        from airflow_provider_spark_datahub.task import ListenerOffError

        submission = self._submission(context)
        try:
            injection = lineage.inject(submission, self._spark_submit(), *airflow_context.openlineage_runs(context))
        except (
            JarProblemError,
            ListenerOffError,
            OSError,
            RelativeEventsRootError,
            TransportNotCombinableError,
        ) as error:
            lineage.not_injected(str(error))
            self.log.warning("The job runs without lineage: %s", error)
            return None
        for secret in injection.secrets:
            # They were in a file, and come onto a command line that the hook logs.
            airflow_context.mask(secret)
        return injection.submission

    # -- after the job

    def _end_badly(self, context: Context, failure: BaseException) -> bool:
        if isinstance(failure, AirflowTaskTimeout):
            # Airflow stops the job only after execute() has ended; until then it would still write events.
            self._stop_spark_submit()
        return self._end(context, self._try_result(context, failure), spark_succeeded=False)

    def _end(self, context: Context, result: TryResult, *, spark_succeeded: bool) -> bool:
        if self._lineage is None:
            return False
        return self._tell(context, self._lineage.finish(self._try_end(result, spark_succeeded)))

    def _redeliver(self, context: Context, awaited: int) -> bool:
        if self._lineage is None:
            return False
        return self._tell(context, self._lineage.redeliver(self._try_end("SUCCESS", spark_succeeded=True), awaited))

    def _tell(self, context: Context, report: LineageReport) -> bool:
        self.log.info("%s", report.sentence)
        for warning in report.warnings:
            self.log.warning("Lineage: %s", warning)
        context["ti"].xcom_push(key=XCOM_KEY, value=report.to_obj())
        return True

    def _try_end(self, result: TryResult, spark_succeeded: bool) -> TryEnd:
        from airflow_provider_spark_datahub.task import TryEnd

        seconds = self._options.timeout if self._options else KILL_SECONDS
        if self._killed_at is not None:
            seconds = min(seconds, max(0.0, self._killed_at + KILL_SECONDS - time.monotonic()))
        return TryEnd(spark_succeeded, result, round(time.time() * 1000), seconds)

    def _try_result(self, context: Context, failure: BaseException) -> TryResult:
        from airflow_provider_spark_datahub.hooks import airflow_context

        if isinstance(failure, AirflowSkipException):
            return "SKIPPED"
        if isinstance(failure, AirflowFailException) or self._killed_at is not None:
            return "FAILURE"
        return "UP_FOR_RETRY" if airflow_context.has_tries_left(context) else "FAILURE"

    def _fail_if_told_to(self, context: Context) -> None:
        if self._lineage is None or self._options is None or self._lineage.report.is_complete:
            return
        from airflow_provider_spark_datahub.hooks import airflow_context

        policy, has_tries_left = self._options.on_failure, airflow_context.has_tries_left(context)
        if policy == "warn" or (policy == "retry" and not has_tries_left):
            return
        # Where it cannot be recorded that only lineage is missing, the next try would run Spark again: no failure then.
        await_retry = self._lineage.delivery.await_retry
        remembering = partial(self._guarded, "remembering", lambda: remember(context, _AWAITS_RETRY, await_retry()))
        if has_tries_left and remembering() is None:
            return
        raise LineagePendingError(
            f"Spark succeeded, but its lineage did not arrive (lineage_on_failure={policy}): "
            f"{self._lineage.report.reason}"
        )
