from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.patience import join_threads


@pytest.fixture(autouse=True)
def _no_delivery_goes_on() -> Iterator[None]:
    """Wait for deliveries that were left behind at their deadline, before the next test begins."""
    yield
    join_threads("lineage-delivery")
