"""A drop-in ``SparkSubmitOperator`` whose job's lineage is in DataHub when the task ends."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseHook,
)

from airflow_provider_spark_datahub.task import XCOM_KEY, LineageConfiguration, LineageReport

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_spark_datahub.capture import Submission
    from airflow_provider_spark_datahub.conversion import LineageSettings
    from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult
    from airflow_provider_spark_datahub.hooks.airflow_context import AttemptContext
    from airflow_provider_spark_datahub.task import AttemptLineage, LineageOptions, SparkSubmit

T = TypeVar("T")

KILL_SECONDS = 4.0
"""Time for lineage in a task that is killed; Airflow ends its process after 5 s."""
STOP_SECONDS = 10.0
"""Time for a stopped spark-submit to disappear."""
_AWAITS_RETRY = "spark_datahub_awaits_retry"
_SUBMITTED = "spark_datahub_submitted"
_OPTIONS = tuple(signature(LineageConfiguration.resolve).parameters)[1:]
"""Names of the arguments that are options of an attempt."""
_UNREPORTED_STEPS = ("announcing", "following", "watching")
"""Steps beside the job whose failure costs no lineage."""


class LineagePendingError(AirflowException):
    """Failure of a task whose Spark job succeeded and whose lineage is not delivered (``lineage_on_failure``)."""


class SparkSubmitDatahubOperator(SparkSubmitOperator):
    """Operator that submits a Spark job, and delivers its lineage to DataHub when the job ends.

    It takes every argument of ``SparkSubmitOperator`` and behaves in the same way: whatever happens to the lineage, the
    task ends as it would have ended without. All further arguments are keyword-only and templated, and have their
    defaults in the section ``[spark_datahub]`` of Airflow's configuration.

    :param datahub_conn_id: connection to DataHub, of a type that begins with ``datahub-``.
    :param openlineage_conn_id: connection of type ``openlineage`` to a backend that also gets the raw events.
    :param lineage: settings of the converter: a dict, its JSON, or
        :class:`~airflow_provider_spark_datahub.conversion.settings.LineageSettings`.
    :param lineage_on_failure: effect on the task if Spark succeeded and its lineage was not delivered: ``warn`` (none;
        the lineage stays in the outbox), ``retry`` (the next attempt, if there is one, only delivers) or ``fail`` (the
        same, and without a next attempt the task fails).
    :param events_location: absolute folder for the job's OpenLineage events, on the machine of the driver. If that is
        not the worker, it must be on a disk that both share.
    :param outbox_location: folder, or URI in an object store (``s3://connection@bucket/key``), for lineage that is not
        delivered yet.
    :param lineage_timeout: seconds after Spark's end within which all lineage steps must finish.
    :param emit_periodically: seconds between two deliveries while the job runs; 0 to deliver only at its end.
    :param openlineage_jar: path, URI or Maven coordinate (with ``{scala}`` for Spark's Scala version) of
        openlineage-spark, or ``provided`` if the cluster has it.
    :param enabled: ``False`` for a plain ``SparkSubmitOperator``.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, *_OPTIONS, "enabled")

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
        self._attempt: AttemptContext | None = None
        self._lineage: AttemptLineage | None = None
        self._killed_at: float | None = None
        self._problem: str | None = None
        self._knows_its_job = False

    def execute(self, context: Context) -> Any:
        """Run the job as ``SparkSubmitOperator`` does, with lineage around it."""
        result = None
        self._attempt = self._lineage = self._killed_at = self._problem = None
        spark_attempt = self._guarded("preparing", partial(self._prepare, context))
        if spark_attempt is not None:
            self.log.info("Spark succeeded in attempt %s: this attempt only delivers its lineage.", spark_attempt)
            self._conclude(context, partial(self._end, context, "SUCCESS", spark_attempt=spark_attempt))
        else:
            result = self._execute_spark(context)
        self._apply_failure_policy(context)
        return result

    def _execute_spark(self, context: Context) -> Any:
        submission = self._guarded("preparing", partial(self._inject, context))
        if self._lineage is not None and self._problem:
            self._lineage.mark_not_injected(self._problem)
        with self._submitting(submission):
            try:
                result: Any = super().execute(context)
            except BaseException as failure:
                self._conclude(context, partial(self._end_after_failure, context, failure))
                raise
        self._conclude(context, partial(self._end, context, "SUCCESS"))
        return result

    def on_kill(self) -> None:
        """Stop the job; Airflow leaves few seconds after it."""
        self._killed_at = time.monotonic()
        super().on_kill()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002 (Airflow's signature)
        """Return the datasets of the Spark job, for the Airflow task of OpenLineage and of DataHub's own plugin.

        DataHub's plugin takes a namespace for the platform, so it gets each dataset under its name in DataHub.
        """
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import Dataset

        from airflow_provider_spark_datahub.hooks.airflow_context import datahub_plugin_is_active

        if self._lineage is None:
            return OperatorLineage()
        inputs, outputs = (
            [Dataset(namespace=dataset.namespace, name=dataset.name) for dataset in datasets]
            for datasets in self._lineage.openlineage_datasets(as_in_datahub=datahub_plugin_is_active())
        )
        return OperatorLineage(inputs=inputs, outputs=outputs)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Return the datasets of the Spark job of a failed attempt."""
        return self.get_openlineage_facets_on_complete(task_instance)

    # -- failures of lineage

    def _guarded(self, doing: str, step: Callable[[], T]) -> T | None:
        """Call a step of lineage. This is the one place where failures of lineage end, so that none fails the task."""
        try:
            return step()
        except (Exception, AirflowTaskTimeout) as error:
            if doing == "preparing" and isinstance(error, AirflowTaskTimeout):
                # The job has not run: the task's own time is over.
                raise
            from airflow_provider_spark_datahub.conversion import redact_text, redacted_trace

            trace = redacted_trace(error)
            self.log.warning("%s lineage failed; the task is not affected.\n%s", doing.capitalize(), trace)
            if doing not in _UNREPORTED_STEPS:
                problem = redact_text(f"{doing} lineage failed: {type(error).__name__}: {error}")
                self._problem = self._problem or problem
            return None

    def _conclude(self, context: Context, step: Callable[[], bool]) -> None:
        """Deliver and report; if that fails, report at least why."""
        if not self._guarded("delivering", step) and self._problem:
            report = self._lineage.report if self._lineage else LineageReport()
            report.failed, report.reason = True, report.reason or self._problem
            self._guarded("reporting", partial(self._report, context, report))

    def _report(self, context: Context, report: LineageReport) -> bool:
        self.log.info("%s", report.sentence)
        self.log.debug("The lineage steps took %.3f s.", report.seconds)
        for warning in report.warnings:
            self.log.warning("Lineage: %s", warning)
        context["ti"].xcom_push(key=XCOM_KEY, value=report.to_obj())
        return True

    def _apply_failure_policy(self, context: Context) -> None:
        """Fail the task if its lineage is not delivered and ``lineage_on_failure`` demands it."""
        if self._lineage is None or self._options is None or self._lineage.report.is_complete:
            return
        policy = self._options.on_failure
        has_attempts_left = self._attempt is not None and self._attempt.has_attempts_left
        self.log.debug("Lineage is pending: lineage_on_failure=%s, attempts left: %s", policy, has_attempts_left)
        if policy == "warn" or (policy == "retry" and not has_attempts_left):
            return
        # If it cannot be recorded that only lineage is missing, the next attempt would run Spark again: do not fail.
        leave = self._lineage.delivery.leave_to_retry
        if has_attempts_left and not self._remember(context, _AWAITS_RETRY, leave):
            return
        raise LineagePendingError(
            f"Spark succeeded, but its lineage was not delivered (lineage_on_failure={policy}): "
            f"{self._lineage.report.reason}"
        )

    def _remember(self, context: Context, key: str, value: Callable[[], Any]) -> bool:
        """Keep a JSON value for later attempts, if Airflow keeps state of tasks (since 3.3).

        :returns: False if a step failed.
        """

        def store() -> bool:
            obj = value()
            if (state := context.get("task_state_store")) is not None:
                state.set(key, obj)
            return True

        return self._guarded("remembering", store) or False

    # -- before the job

    def _prepare(self, context: Context) -> int | None:
        """Resolve the options.

        :returns: the earlier attempt whose lineage is all that this one has to deliver, if there is one.
        """
        from airflow_provider_spark_datahub.hooks.airflow_context import AttemptContext, configuration
        from airflow_provider_spark_datahub.hooks.datahub import open_sink
        from airflow_provider_spark_datahub.hooks.storage import open_outbox
        from airflow_provider_spark_datahub.task import AttemptLineage, Connections

        configured = configuration()
        if not configured.is_enabled(self.enabled):
            self.log.info("Lineage is switched off (enabled).")
            return None
        self._options = options = configured.resolve(**{name: getattr(self, name) for name in _OPTIONS})
        for note in options.notes:
            self.log.info("Lineage option %s", note)
        attempt = self._attempt = AttemptContext(context)
        connections = Connections(open_sink, open_outbox)
        self._lineage = AttemptLineage(options, attempt.attempt(), connections, attempt.ti_id)
        if problem := self._lineage.delivery.sink_problem:
            self.log.warning("Lineage will stay in the outbox: %s", problem)
        return self._lineage.delivery.attempt_to_deliver(_stored_state(context, _AWAITS_RETRY))

    def _inject(self, context: Context) -> Submission | None:
        """Return the submission with lineage; ``None`` if the job is to run without."""
        if self._lineage is None or self._attempt is None:
            return None
        submission = self._with_listener(context, self._lineage, self._attempt)
        threading.Thread(
            target=self._accompany, args=[self._lineage], name="lineage-of-running-job", daemon=True
        ).start()
        return submission

    def _accompany(self, lineage: AttemptLineage) -> None:
        self._guarded("announcing", lineage.announce)
        self._guarded("following", lineage.follow)

    def _with_listener(self, context: Context, lineage: AttemptLineage, attempt: AttemptContext) -> Submission | None:
        from airflow_provider_spark_datahub.capture import InjectionError, Submission
        from airflow_provider_spark_datahub.hooks.airflow_context import mask

        submission = Submission(
            properties=self._conf_with_airflows_transport(context),
            jars=self.jars,
            packages=self.packages,
            driver_class_path=self.driver_class_path,
            repositories=getattr(self, "_repositories", None),
        )
        try:
            injection = lineage.inject(submission, self._spark_submit(), *attempt.openlineage_runs())
        except (InjectionError, OSError) as error:
            lineage.mark_not_injected(str(error))
            self.log.warning("The job runs without lineage: %s", error)
            return None
        for secret in injection.secrets:
            # They were in a file, and come onto a command line that the hook logs.
            mask(secret)
        return injection.submission

    # -- after the job

    def _end_after_failure(self, context: Context, failure: BaseException) -> bool:
        if isinstance(failure, AirflowTaskTimeout):
            # Airflow stops the job only after execute() has ended; until then it would still write events.
            self._stop_spark_submit()
        return self._end(context, self._failed_result(failure))

    def _end(self, context: Context, result: AttemptResult, spark_attempt: int | None = None) -> bool:
        """Deliver the lineage of this attempt, or only that of the earlier attempt ``spark_attempt``."""
        from airflow_provider_spark_datahub.task import AttemptEnd

        if self._lineage is None:
            return False
        seconds = self._options.timeout if self._options else KILL_SECONDS
        if self._killed_at is not None:
            seconds = min(seconds, max(0.0, self._killed_at + KILL_SECONDS - time.monotonic()))
        end = AttemptEnd(result == "SUCCESS", result, round(time.time() * 1000), seconds)
        if spark_attempt is not None:
            return self._report(context, self._lineage.deliver_only(end, spark_attempt))
        return self._report(context, self._lineage.finish(end))

    def _failed_result(self, failure: BaseException) -> AttemptResult:
        if isinstance(failure, AirflowSkipException):
            return "SKIPPED"
        if isinstance(failure, AirflowFailException) or self._killed_at is not None or self._attempt is None:
            return "FAILURE"
        return "UP_FOR_RETRY" if self._attempt.has_attempts_left else "FAILURE"

    # -- what SparkSubmitOperator submits, and how it is changed for one submit

    def _conf_with_airflows_transport(self, context: Context) -> dict[Any, Any]:
        """Return the user's Spark properties with the transport that the parent class would inject.

        The parent class injects none if there is one already, so ours would keep it from doing so.
        """
        conf = dict(self.conf or {})
        if not getattr(self, "_openlineage_inject_transport_info", False):
            return conf
        from airflow.providers.common.compat.openlineage.utils.spark import (
            inject_transport_information_into_spark_properties,
        )

        return dict(inject_transport_information_into_spark_properties(conf, context))

    def _spark_submit(self) -> SparkSubmit:
        """Return the spark-submit that will run, from the operator's arguments and its Spark connection."""
        from airflow_provider_spark_datahub.task import SparkSubmit

        try:
            extra = BaseHook.get_connection(self._conn_id).extra_dejson
        except AirflowException:
            # SparkSubmitHook falls back to YARN in client mode then.
            extra = {}
        return SparkSubmit(
            binary=self._spark_binary or extra.get("spark-binary") or "spark-submit",
            env={**os.environ, **{name: str(value) for name, value in (self.env_vars or {}).items()}},
            local_driver=(self._deploy_mode or extra.get("deploy-mode")) != "cluster",
            properties_file=self.properties_file,
        )

    @contextmanager
    def _submitting(self, submission: Submission | None) -> Iterator[None]:
        """Give the operator the submission's values for one submit; the user's objects stay untouched."""
        if submission is None:
            yield
            return
        users = self.conf, self.jars, self.packages
        self.conf, self.jars, self.packages = dict(submission.properties), submission.jars, submission.packages
        # A hook that was made before would submit without them.
        self._hook = None
        try:
            yield
        finally:
            self.conf, self.jars, self.packages = users

    def _stop_spark_submit(self) -> None:
        """Stop the job, and wait until spark-submit is gone, so that it writes no more events."""
        super().on_kill()
        process = getattr(self._hook, "_submit_sp", None)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STOP_SECONDS)

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        if (lineage := self._lineage) is not None:
            self._guarded("watching", lambda: _watch_output(hook, lineage.driver_output.watched))
        return hook

    # -- an attempt that reconnects to the driver of an earlier one
    #
    # In cluster mode, the parent class keeps the driver's id in the task's state (since Airflow 3.3). It submits only
    # if an attempt cannot reconnect to one.

    def execute_resumable(self, context: Context) -> Any:
        """Submit the job or reconnect to it. Called by the parent class if an attempt may reconnect to a driver."""
        self._knows_its_job = False
        return super().execute_resumable(context)

    def submit_job(self, context: Context) -> str | None:
        """Submit the job. Called by the parent class if an attempt cannot reconnect."""
        self._knows_its_job = True
        if (lineage := self._lineage) is not None:
            self._remember(context, _SUBMITTED, lineage.event_files)
        return super().submit_job(context)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for the job. Called by the parent class while a driver runs."""
        self._reconnect(context)
        super().poll_until_complete(external_id, context)

    def get_job_result(self, external_id: Any, context: Context) -> None:
        """Return the result of the job. Called by the parent class if the driver has succeeded."""
        self._reconnect(context)
        super().get_job_result(external_id, context)

    def _reconnect(self, context: Context) -> None:
        """Read the events of the job that an earlier attempt submitted, if it is not this attempt's own."""
        if self._knows_its_job:
            return
        self._knows_its_job = True
        if (lineage := self._lineage) is not None:
            self._guarded("reconnecting", lambda: lineage.reconnect(_stored_state(context, _SUBMITTED)))


def _watch_output(hook: SparkSubmitHook, watched: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
    """Let ``watched`` see the lines that ``spark-submit`` prints, as they pass."""
    read = hook._process_spark_submit_log

    def read_watched(itr: Iterator[Any]) -> None:
        read(watched(itr))

    hook._process_spark_submit_log = read_watched  # type: ignore[method-assign]


def _stored_state(context: Context, key: str) -> object:
    """Return the value that an earlier attempt kept, if any."""
    state = context.get("task_state_store")
    return state.get(key) if state is not None else None
