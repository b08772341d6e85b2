"""What a failure means for the proposals, and how it is worded."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind


@pytest.mark.parametrize(
    ("statuses", "kind", "may_pass"),
    [
        ([400, 409, 413, 422], FailureKind.REJECTED, False),
        ([401, 403, 407], FailureKind.UNAUTHORISED, False),
        ([404, 405], FailureKind.MISCONFIGURED, False),
        ([429], FailureKind.THROTTLED, True),
        ([500], FailureKind.FAILED, True),
        ([302, 408, 425, 502, 503, 504], FailureKind.UNAVAILABLE, True),
    ],
)
def test_http_statuses_have_a_kind(statuses: list[int], kind: FailureKind, may_pass: bool) -> None:
    assert {FailureKind.from_http_status(status) for status in statuses} == {kind}
    assert kind.may_pass is may_pass


def test_the_text_of_a_server_becomes_one_printable_line() -> None:
    failure = Failure(FailureKind.REJECTED, "no\r\n\x1b]52;c;eA==\x07 key \u202eyek").for_log(
        lambda text: text.replace("key", "***")
    )
    assert failure.text == r"no \x1b]52;c;eA==\x07 *** \u202eyek"
