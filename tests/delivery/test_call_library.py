"""Calls of libraries whose errors are not documented."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.delivery.failure import LibraryError, call_library


class TheirsError(Exception):
    """An error of a library, unknown to us."""


def fails(error: BaseException) -> None:
    raise error


def test_the_answer_is_returned() -> None:
    assert call_library(lambda: 1) == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [(TheirsError("no such bucket"), "TheirsError: no such bucket"), (TheirsError(), "TheirsError")],
)
def test_an_unknown_error_becomes_a_library_error(error: Exception, words: str) -> None:
    with pytest.raises(LibraryError) as raised:
        call_library(lambda: fails(error), OSError)
    assert str(raised.value) == words
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [FileNotFoundError("x"), TimeoutError("x")])
def test_a_known_error_is_raised_unchanged(error: OSError) -> None:
    with pytest.raises(type(error)):
        call_library(lambda: fails(error), OSError)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_errors_that_end_a_process_are_not_caught(error: BaseException) -> None:
    with pytest.raises(type(error)):
        call_library(lambda: fails(error))
