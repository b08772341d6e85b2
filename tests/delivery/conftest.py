from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE


@pytest.fixture(autouse=True)
def _no_delivery_goes_on() -> Iterator[None]:
    """Wait for deliveries that were left behind at their deadline, before the next test begins."""
    yield
    let_deliveries_end()


def let_deliveries_end() -> None:
    """Wait for the deliveries that were left behind at their deadline."""
    for thread in threading.enumerate():
        if thread.name == "lineage-delivery":
            thread.join(PATIENCE)
            assert not thread.is_alive()
