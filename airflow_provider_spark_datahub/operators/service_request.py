"""Operators that start Spark by a request to a service: a document that has a place for Spark
properties.

Tests: ``tests/operators/test_service_request.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from airflow.providers.common.compat.sdk import AirflowException, Context

from airflow_provider_spark_datahub import capture, task
from airflow_provider_spark_datahub.operators.lineage import (
    ResumableLineageOperator,
    SubmissionLauncher,
    conf_with_airflows_transport,
)

Document: TypeAlias = Mapping[str, Any]
"""Request of a service: the values of the operator's attributes that make it, by name. It is never
changed.
"""


def attributes(*names: str) -> Callable[[Any], Document]:
    """Return a function that takes the document from attributes of an operator."""
    return lambda operator: {name: getattr(operator, name) for name in names}


def _nothing(_operator: Any, _document: Document) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class SparkRequest:
    """Place of Spark properties in the requests of a service.

    :param document: returns the document of an operator.
    :param read: returns the jobs of a document that run Spark, as submissions.
    :param write: returns values of the operator's attributes that make other submissions of these
        jobs.
    :param waits: returns whether an operator waits for the end of its job.
    :param how_to_wait: the argument that makes it wait, for users.
    :param store_scheme: as in :class:`.SparkSubmit`, for all documents; and so :attr:`shares_disk`.
    :param spark: returns more of the ``SparkSubmit`` of a document, by name.
    """

    document: Callable[[Any], Document]
    read: Callable[[Document], Sequence[capture.Submission]]
    write: Callable[[Document, Sequence[capture.Submission]], Mapping[str, Any]]
    waits: Callable[[Any], bool]
    how_to_wait: str
    store_scheme: str | None = None
    shares_disk: bool = True
    spark: Callable[[Any, Document], Mapping[str, Any]] = _nothing

    def changed(
        self, document: Document, submissions: Sequence[capture.Submission]
    ) -> Mapping[str, Any]:
        """Return values of the operator's attributes that make other submissions; services take
        texts only.
        """
        properties = (
            {str(name): str(value) for name, value in each.properties.items()}
            for each in submissions
        )
        return self.write(
            document, [replace(each, properties=next(properties)) for each in submissions]
        )


class ServiceRequestOperator(ResumableLineageOperator):
    """Base of operators that start Spark by a request to a service.

    A subclass inherits from the service's operator second, and names the place of Spark properties.
    """

    spark_request: ClassVar[SparkRequest]

    def _launcher(self, context: Context) -> task.Launcher:
        request = self.spark_request
        if not request.waits(self):
            raise capture.InjectionError(
                f"the task does not wait for its job, so that it cannot read the events: set {request.how_to_wait}"
            )
        return _RequestLauncher(self, context, request)


@dataclass
class _RequestLauncher(SubmissionLauncher):
    """Launcher of Spark jobs by a request."""

    _request: SparkRequest

    @cached_property
    def _document(self) -> Document:
        # Not at once: a service may be asked for it, and a job is stopped without it.
        return self._request.document(self._operator)

    def submissions(self) -> list[capture.Submission]:
        submissions = self._request.read(self._document)
        if not submissions:
            raise capture.InjectionError("its request starts no Spark that takes properties")
        wanted = bool(getattr(self._operator, "openlineage_inject_transport_info", False))
        return [
            replace(
                each,
                properties=conf_with_airflows_transport(
                    each.properties, self._context, wanted=wanted
                ),
            )
            for each in submissions
        ]

    def spark(self) -> capture.SparkSubmit:
        of_all = {
            "store_scheme": self._request.store_scheme,
            "shares_disk": self._request.shares_disk,
        }
        known = self._request.spark(self._operator, self._document)
        return capture.SparkSubmit(
            **{"binary": None, "env": {}, "local_driver": False, **of_all, **known}
        )

    def has_submitted(self, failure: BaseException) -> bool:
        """Return whether a job ran: Airflow has its own error for one that failed, and a service's
        client another.
        """
        return isinstance(failure, AirflowException) or not isinstance(
            failure, Exception
        )  # a kill, or a timeout

    def launching(self, submissions: Sequence[capture.Submission]) -> AbstractContextManager[None]:
        return self.swapped(**self._request.changed(self._document, submissions))


def joined(entries: Sequence[str] | str | None) -> str | None:
    """Return entries as a text with commas; ``None`` if there are none."""
    return (entries if isinstance(entries, str) else ",".join(entries)) if entries else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a value of a document if it is a mapping; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def store_scheme(file: object) -> str | None:
    """Return the scheme of the object store from which a driver reads its application; ``None`` if
    it reads none.

    Such a driver has the store's connector.
    """
    scheme = str(file or "").partition("://")[0]
    return scheme if scheme in ("s3", "s3a", "gs") else None
