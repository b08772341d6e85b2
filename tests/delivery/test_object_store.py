from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import CheckStatus, Deadline, Delivery
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.outbox import ObjectStorage
from airflow_provider_spark_datahub.delivery.sinks import ObjectStoreSink
from airflow_provider_spark_datahub.delivery.sinks.files import _object_name
from tests.delivery.samples import upsert, upserts

RUN = "urn:li:dataProcessInstance:1"


def run_event(moment: Any) -> Proposal:
    aspect = {"timestampMillis": moment, "status": "STARTED"}
    return Proposal("dataProcessInstance", RUN, "dataProcessInstanceRunEvent", aspect)


class Store:
    """The used part of one of fsspec's file systems, which does what the test says, attempt by
    attempt.
    """

    def __init__(self, outcomes: Iterable[Callable[[], object]] = ()) -> None:
        self.objects: dict[str, bytes] = {}
        self._outcomes = iter(outcomes)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        return self.objects[path][start:end]

    def pipe_file(self, path: str, value: bytes) -> None:
        next(self._outcomes, lambda: None)()
        self.objects[path] = value


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def deliver(store: Store, proposals: list[Proposal], waits: list[float] | None = None) -> Delivery:
    noted: list[float] = [] if waits is None else waits
    storage = ObjectStorage(cast("Any", store), "bucket/lineage", "s3://bucket/lineage")
    sink = ObjectStoreSink(storage, backoff=Backoff(jitter=lambda: 1.0, sleep=noted.append))
    return sink.deliver(proposals, Deadline.after(20))


def test_an_object_has_one_proposal_a_line() -> None:
    store = Store()
    assert deliver(store, upserts(3)) == Delivery(delivered=3, stored=True)
    ((name, content),) = store.objects.items()
    assert [Proposal.from_obj(each) for each in json.loads(content)] == upserts(3)
    assert len(content.splitlines()) == 3 + 2
    assert name == f"bucket/lineage/undated-{hashlib.sha256(content).hexdigest()}.json"


def test_names_sort_by_the_time_of_the_last_run_event() -> None:
    early = [run_event(1_767_225_600_007), upsert("a"), run_event(1_767_225_599_999)]
    late = [run_event(1_767_225_601_000)]
    names = [_object_name(batch, b"") for batch in (late, early)]
    assert names[1].startswith("2026-01-01T000000.007Z-")
    assert sorted(names) == [names[1], names[0]]


@pytest.mark.parametrize("moment", [None, "1767225600007", -1, 10**18, 1.5])
def test_an_invalid_time_is_not_in_the_name(moment: Any) -> None:
    assert _object_name([run_event(moment)], b"").startswith("undated-")
    assert _object_name([run_event(moment), run_event(0)], b"").startswith(
        "1970-01-01T000000.000Z-"
    )


def test_failures_that_may_pass_are_retried() -> None:
    waits: list[float] = []
    store = Store(
        [
            failing(OSError("reset")),
            failing(RuntimeError("of a client")),
            failing(TimeoutError("slow")),
        ]
    )
    assert deliver(store, upserts(3), waits).delivered == 3
    assert (waits, len(store.objects)) == ([0.5, 1.0, 2.0], 1)


@pytest.mark.parametrize("kept", [None, b"", b"<html>Log in first</html>"])
def test_an_acknowledgement_without_the_object_is_no_delivery(kept: bytes | None) -> None:
    class Forgetful(Store):
        def pipe_file(self, path: str, value: bytes) -> None:
            del value
            if kept is not None:
                self.objects[path] = kept

        def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
            if path not in self.objects:
                raise FileNotFoundError(path)
            return super().cat_file(path, start, end)

    delivery = deliver(Forgetful(), upserts(3))
    assert delivery.pending == tuple(upserts(3))
    assert "does not hold it" in str(delivery.problem)


def test_keys_that_may_only_write_are_enough() -> None:
    class WriteOnly(Store):
        def cat_file(self, *_: object, **__: object) -> bytes:
            raise PermissionError("Access Denied")

    assert deliver(WriteOnly(), upserts(3)).delivered == 3


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (
            PermissionError("Forbidden"),
            "refuses the connection's credentials (Forbidden): check the keys",
        ),
        (
            OSError("Forbidden: b/a"),
            "refuses the connection's credentials (Forbidden: b/a): check the keys",
        ),  # GCS
        (FileNotFoundError("no bucket"), "cannot be used with this connection (no bucket)."),
    ],
)
def test_failures_that_will_not_pass_are_reported_at_once(error: Exception, verdict: str) -> None:
    waits: list[float] = []
    delivery = deliver(Store([failing(OSError("reset")), failing(error)]), upserts(3), waits)
    assert (delivery.pending, waits) == (tuple(upserts(3)), [0.5])
    assert f"the object store at s3://bucket/lineage {verdict}" in str(delivery.problem)


@pytest.mark.parametrize(
    ("error", "verdict", "said"),
    [
        (FileNotFoundError("no such key"), CheckStatus.GOOD, "answers"),
        (
            PermissionError("Access Denied"),
            CheckStatus.WARNING,
            "does not let us read (Access Denied)",
        ),
        (ConnectionError("refused"), CheckStatus.BAD, "is not available (refused)"),
    ],
)
def test_a_check_only_reads(error: Exception, verdict: CheckStatus, said: str) -> None:
    class Asked(Store):
        def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
            del path, start, end
            raise error

    store = Asked()
    (finding,) = ObjectStoreSink(ObjectStorage(cast("Any", store), "bucket", "s3://bucket")).check(
        Deadline.after(60)
    )
    assert (finding.status, store.objects) == (verdict, {})
    assert said in finding.message
