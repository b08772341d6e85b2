"""The servers as fixtures: each starts when the first test asks for it, and ends with the session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.delivery.connections import connect
from tests.servers.chromium import Chromium, chromium
from tests.servers.gcs import Gcs
from tests.servers.kafka import Kafka
from tests.servers.s3 import S3
from tests.servers.schema_registry import SchemaRegistry


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(tmp_path_factory.mktemp("schema-registry")) as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    with Gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(params=["s3", "gcs"])
def lake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a bucket of the test's own, in each store in turn, behind the
    connection ``lake``.
    """
    server: S3 | Gcs = request.getfixturevalue(request.param)
    bucket = f"lineage-{uuid.uuid4().hex}"
    server.make_bucket(bucket)
    connect(monkeypatch, "lake", **server.connection())
    return f"{server.scheme}://lake@{bucket}"


@pytest.fixture(scope="session")
def _running_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def browser(_running_browser: Chromium) -> Chromium:
    """Return the one browser of the tests, without what the test before emulated."""
    _running_browser.clear()
    return _running_browser
