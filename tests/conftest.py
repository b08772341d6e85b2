"""Prepare the environment of all tests, and give files that share servers to one worker.

Airflow reads ``AIRFLOW_HOME`` and writes its configuration there when it is imported. Every process
of the suite, and so every worker of pytest-xdist, gets a home of its own here, before any test
imports Airflow.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

_HOME = tempfile.mkdtemp(prefix="airflow-unit-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

for _name in [name for name in os.environ if name.startswith(("AIRFLOW", "OPENLINEAGE_"))]:
    del os.environ[_name]
os.environ |= {"AIRFLOW_HOME": _HOME, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}

# What Airflow imports builds a grammar of internationalized URIs, which takes a second: nothing
# here checks one, and jsonschema, which wants it, does without.
sys.modules["rfc3987_syntax"] = ModuleType("rfc3987_syntax")

# No test cuts the power, and nothing else shows what a disk has not written yet: tests write
# thousands of files.
os.fsync = lambda fd: None  # noqa: ARG005 (the name of the real one's argument)

# Short Spark jobs spend their time on loading and compiling Java classes. The archives of loaded
# classes (`make setup`) and the first of Java's two compilers make them four times faster. Without
# archives, or with another Java's, Java goes on in silence. This one is for jobs without the
# listener, or with jars of their own.
_CLASSES = Path(__file__).parents[1] / ".cache" / "spark-classes"


def _plain_archive() -> str:
    found = (
        path for path in _CLASSES.glob("*.json") if not json.loads(path.read_text())["listener"]
    )
    return "".join(
        f" -XX:SharedArchiveFile={path.with_suffix('.jsa')}" for path in sorted(found)[-1:]
    )


os.environ["SPARK_SUBMIT_OPTS"] = (
    f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC{_plain_archive()} -Xlog:disable"
)

# No test measures time, and the first example of a process also imports what it tests.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

pytest_plugins = ["tests.servers.fixtures"]

_ROOT = Path(__file__).parent
_OF_TIMEOUTS = ("pytest_timeout.py", "outcomes.py")
_SHARED = "servers"
_OF_RECORDED_JOBS = ("case", "path", "recording")
_SERVERS = frozenset({"kafka", "schema_registry", "s3", "gcs", "lake", "browser"})


class _FileScheduler(LoadScopeScheduling):
    """Scheduler that gives all tests of a file to one worker, and all files that start Kafka or S3
    to the same one.

    It stands in for ``--dist loadgroup``, whose groups pytest-xdist 3.8 loses with pytest 9.2: node
    ids are read-only.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _SHARED if _starts_servers(file) else file


@cache
def _starts_servers(file: str) -> bool:
    text = (_ROOT.parent / file).read_text()
    return any(
        one in text
        for one in ("from tests.servers.kafka import", "from tests.servers.s3 import", "(lake: ")
    )


@pytest.hookimpl(optionalhook=True)  # there is no such hook with -p no:xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _FileScheduler:
    return _FileScheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect garbage neither while tests are collected nor, later, among the modules that they
    import.

    Everything that is imported stays, and looking through it again and again took a third of the
    collection's time.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server or wait long, and put the expensive files first, those of
    each folder in turn.

    The files of some folders compute and those of others wait: whole folders at a time, all workers
    would do the same.
    """
    files: dict[Path, dict[Path, int]] = {}
    for item in items:
        of_folder = files.setdefault(item.path.parent, {})
        of_folder.setdefault(item.path, len(of_folder))
        if item.path.parent.name == "reliability":  # each waits for the deadline of its attempt
            item.add_marker("slow")
        if item.path.parent.name == "attacks":
            item.add_marker("attacks")
        if _is_repetition(item):
            item.add_marker("no_cover")
        if _SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("servers")
        if item.get_closest_marker("airflow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1500))  # its processes have limits of their own
    items.sort(key=lambda item: (_rank(item), files[item.path.parent][item.path]))


def _is_repetition(item: pytest.Item) -> bool:
    """Return whether a test is for all recorded jobs, and this is not its first job.

    Measuring coverage doubles a test's time, and there are dozens of jobs and of such tests.
    """
    callspec = getattr(item, "callspec", None)
    return callspec is not None and any(callspec.indices.get(name) for name in _OF_RECORDED_JOBS)


def _rank(item: pytest.Item) -> int:
    """Return the place of a test in the order of tests: by what it starts, expensive things first."""
    for rank, marker in enumerate(("airflow", "servers", "spark", "slow")):
        if item.get_closest_marker(marker):
            return rank
    return 4


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,  # noqa: ARG001 (the hook's names)
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the lines at which a test hangs in the summary, which is all that some CI shows."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and call.excinfo is not None and "from pytest-timeout" in crash.message:
        stack = [
            entry for entry in call.excinfo.traceback if Path(entry.path).name not in _OF_TIMEOUTS
        ]
        lines = (f"{Path(entry.path).name}:{entry.lineno + 1}" for entry in stack[:-8:-1])
        crash.message = f"hangs at {' in '.join(lines)}: {crash.message}"
    return report
