"""The one guarded door to Airflow's services: configuration, connections, templates, states, XCom,
assets, metrics.

Tests: ``tests/operators/test_airflow_services.py``.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from functools import cache, partial
from typing import Any, TypeVar

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
    conf,
)

from airflow_provider_spark_datahub.conversion import redact_text
from airflow_provider_spark_datahub.delivery import Deadline, step_in_time

log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D")

# Time stands still on their clocks: half of it is for each answer.
_IN_TASK, _ELSEWHERE = (Deadline(seconds, clock=lambda: 0.0) for seconds in (8.0, 20.0))
# A task waits for answers one after the other for so long; it begins anew after a pause.
_TASK_SECONDS, _PAUSE_SECONDS = 8.0, 1.0


class NoAnswerError(AirflowException):
    """A service of Airflow failed, or gave no answer in time; the text says which."""


def _is_task() -> bool:
    """Return whether this is the process of a task, which asks Airflow through its supervisor."""
    runner = sys.modules.get("airflow.sdk.execution_time.task_runner")
    return getattr(runner, "SUPERVISOR_COMMS", None) is not None


def ask(service: str, question: Callable[[], T], deadline: Deadline | None = None) -> T:
    """Return the answer of a service, for which a worker waits: 4 s in a task, 10 s elsewhere.

    :param service: for people. While it owes an answer that nobody waits for any more, it is not
        asked again.
    :param question: also reads the answer, so that one of a wrong type is none.
    :raises AirflowNotFoundException: if there is no such connection, which is an answer.
    :raises NoAnswerError: if the question raises anything else, or takes longer.
    """
    asker = threading.get_ident()

    def answer() -> tuple[list[T], BaseException | None]:
        try:
            return [question()], None
        except BaseException as error:
            if threading.get_ident() == asker and not isinstance(error, Exception):
                raise
            return [], error

    deadline = deadline or (_IN_TASK if _is_task() else _ELSEWHERE)
    try:
        answers, error = step_in_time(service, deadline, partial(copy_context().run, answer))
    except TimeoutError as hang:
        raise NoAnswerError(f"{service}: {hang.strerror}") from hang
    if isinstance(error, AirflowNotFoundException):
        raise error
    if error is not None:
        raise NoAnswerError(redact_text(f"{service}: {type(error).__name__}: {error}")) from error
    return answers[0]


_warn_once = cache(log.warning)


def configured(section: str, option: str, default: T, read: Callable[..., Any] | None = None) -> T:
    """Return a value of Airflow's configuration; the default if there is none, or, after a warning,
    no usable one.
    """

    def question() -> T:
        value = (read or conf.get)(section, option, fallback=default)
        if not isinstance(value, type(default) | None):
            raise TypeError(f"it is {value!r}")
        return default if value is None else value

    try:
        return ask("the configuration", question)
    except NoAnswerError as error:
        _warn_once("[%s] %s is left out: Airflow did not answer: %s", section, option, str(error))
        return default


def connection_of(connection_id: str) -> Any:
    """Return a connection of Airflow: in a task as the task SDK finds it, elsewhere from Airflow's
    database as well.

    Since Airflow 3.1, the SDK knows only the environment and the secrets backend in a process that
    is neither a task nor a server. Airflow's own commands use the model, as here.

    :raises AirflowNotFoundException: if there is no such connection.
    :raises NoAnswerError: if Airflow, or a secrets backend, does not answer.
    """

    def connection() -> Any:
        try:
            found = BaseHook.get_connection(connection_id)
        except AirflowNotFoundException:
            if _is_task():
                raise
            from airflow.models.connection import Connection

            found = Connection.get_connection_from_secrets(connection_id)
        found.extra_dejson.get("")  # anything else than a connection is none
        return found

    return ask(f"the connection {connection_id}", connection)


class AirflowServices:
    """Airflow's services for one task, which does without an answer that it does not get.

    :ivar problems: the services that gave none, and why.
    :ivar ends: time of a kill, before which answers count; ``None`` if there is none.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.ends: Deadline | None = None
        self._deadline, self._asked = Deadline.after(0), 0.0

    def ask(self, service: str, question: Callable[[], T], default: D) -> T | D:
        """Return the answer of a service (:func:`ask`), or the default, after a warning."""
        if time.monotonic() > self._asked + _PAUSE_SECONDS:
            self._deadline = Deadline.after(_TASK_SECONDS)
        try:
            if (self.ends or self._deadline).expired:
                raise NoAnswerError(f"{service}: not asked, since other answers took too long")
            return ask(service, question, self.ends or _IN_TASK)
        except AirflowException as error:
            text = str(error) if isinstance(error, NoAnswerError) else f"{service}: {error}"
            if (problem := f"Airflow did not answer: {text}") not in self.problems:
                self.problems.append(problem)
                log.warning("%s", problem)
            return default
        finally:
            self._asked = time.monotonic()
