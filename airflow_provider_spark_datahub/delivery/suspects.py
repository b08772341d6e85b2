"""Whose fault it is that a destination fails (HTTP 500): its own, or that of what it fails on."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_spark_datahub.delivery.failure import Failure
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Numbered

FAILED_ATTEMPTS = 2
"""How often the destination has to fail on something that is sent until that is a suspect."""
MOST_SUSPECTS = 5
"""On so many, each alone, the destination failed while it took nothing else: it is the destination's fault."""


class Suspects:
    """Items on which a destination failed, each sent alone, until it is clear whose fault it is.

    An item is to blame where the destination takes others before and after it: the last one that it took, once more.
    Where it took none before, it is enough that it takes a later one.

    :param destination: in a word or two, for the reason of a rejection.
    """

    def __init__(self, record: DeliveryRecord, destination: str) -> None:
        self._record = record
        self._destination = destination
        self._suspects: list[tuple[Numbered, Failure]] = []
        self._witness: Numbered | None = None

    @property
    def last(self) -> Failure | None:
        """The failure of the last item that is still a suspect."""
        return self._suspects[-1][1] if self._suspects else None

    def convict(self, witness: Numbered) -> None:
        """The destination took ``witness``, so it is not the destination's fault."""
        self._witness = witness
        for item, failure in self._suspects:
            self._record.reject(item, f"{self._destination} failed on it alone, not on others: {failure.words}")
        self._suspects.clear()

    def add(self, item: Numbered, failure: Failure, takes: Callable[[Numbered], bool]) -> bool:
        """Take one more.

        :param takes: whether the destination takes an item that it took before; to send it once more is harmless.
        :returns: False where it is the destination's fault, as far as can be told.
        """
        self._suspects.append((item, failure))
        if self._witness is None:
            return len(self._suspects) < MOST_SUSPECTS
        if not takes(self._witness):
            return False
        self.convict(self._witness)
        return True
