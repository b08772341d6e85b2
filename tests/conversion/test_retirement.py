"""Series of runs: what DataHub holds in the end is what the last complete runs wrote.

The proposals are written by hand, in the shape that the conversion gives them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from airflow_provider_spark_datahub.conversion import JobRecord, Proposal, revise
from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxError
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.conversion.pairs import Catalog, Pair
from tests.delivery.outboxes import MemoryStorage

Writes = Mapping[str, Collection[str]]
"""Inputs of each output, both by short names."""
FLOW = "urn:li:dataFlow:(spark,shop,default)"
AIRFLOW_JOB = "urn:li:dataJob:(urn:li:dataFlow:(airflow,shop,prod),build)"


def dataset(name: str) -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:file,/lake/{name},PROD)"


def job(name: str = "shop.build") -> str:
    return f"urn:li:dataJob:({FLOW},{name})"


def pairs(writes: Writes) -> set[Pair]:
    return {
        (dataset(read), dataset(output)) for output, inputs in writes.items() for read in inputs
    }


@dataclass(frozen=True)
class Run:
    """A run of an application: it replaces edges, or only adds them."""

    writes: Writes
    adds: bool = False
    end_ms: int | None = None
    name: str = "shop.build"

    @property
    def is_exact(self) -> bool:
        """Return whether one DataJob is enough."""
        return not self.adds and len({frozenset(inputs) for inputs in self.writes.values()}) < 2

    def jobs(self) -> dict[str, Writes]:
        """Return the writes of each DataJob, that of the application first."""
        if self.is_exact:
            return {job(self.name): self.writes}
        of_outputs: dict[str, Writes] = {
            job(f"{self.name}.file.{output}"): {output: inputs}
            for output, inputs in self.writes.items()
        }
        return {job(self.name): {}, **of_outputs}

    def proposals(self, end_ms: int) -> list[Proposal]:
        made = []
        for urn in self.jobs():
            properties = {} if urn == job(self.name) else {"applicationJob": job(self.name)}
            info = {"customProperties": properties, "name": urn, "flowUrn": FLOW}
            made.append(Proposal("dataJob", urn, "dataJobInfo", info))
            made.append(Proposal("dataJob", urn, "status", {"removed": False}))
        for urn, writes in self.jobs().items():
            made += edges(urn, writes, adds=self.adds)
        event = {"timestampMillis": self.end_ms or end_ms, "status": "COMPLETE"}
        run = "urn:li:dataProcessInstance:run"
        made.append(Proposal("dataProcessInstance", run, "dataProcessInstanceRunEvent", event))
        return made


def edges(urn: str, writes: Writes, *, adds: bool) -> Iterator[Proposal]:
    inputs = sorted({dataset(read) for reads in writes.values() for read in reads})
    lists = {"inputDatasetEdges": inputs, "outputDatasetEdges": [*map(dataset, writes)]}
    if not adds:
        aspect = {name: [{"destinationUrn": urn} for urn in urns] for name, urns in lists.items()}
        aspect |= {"inputDatasets": [], "outputDatasets": [], "inputDatajobs": [AIRFLOW_JOB]}  # type: ignore[list-item]
        yield Proposal("dataJob", urn, "dataJobInputOutput", aspect)
        return
    operations = [
        {
            "op": "add",
            "path": f"/{name}/{each.replace('/', '~1')}",
            "value": {"destinationUrn": each},
        }
        for name, urns in lists.items()
        for each in urns
    ]
    if operations:
        yield Proposal("dataJob", urn, "dataJobInputOutput", operations, "PATCH")


class KilledError(BaseException):
    """The process ends."""


class Storage(MemoryStorage):
    """Storage of a process that is killed at one of its next writes, or that refuses records."""

    kill_in = -1
    refuses = ""

    def write(self, name: str, chunks: Iterable[bytes], *, sync: bool = True) -> None:
        if self.kill_in == 0:
            raise KilledError
        self.kill_in -= 1
        if self.refuses and name.startswith(self.refuses):
            raise OutboxError("it is read-only")
        super().write(name, chunks, sync=sync)


@dataclass
class Task:
    """Runs of a task, and what DataHub holds after them."""

    catalog: Catalog = field(default_factory=Catalog)
    storage: Storage = field(default_factory=Storage)
    task_id: str = "build"
    runs: int = 0

    def sends(self, *runs: Run, kill_in: int = -1) -> list[Proposal]:
        """Put the runs of one attempt into the outbox, and deliver what it holds."""
        self.runs += 1
        key = AttemptKey("shop", f"run{self.runs}", self.task_id, -1, 1)
        made = [one for run in runs for one in run.proposals(self.runs * 1000)]
        self.storage.kill_in = kill_in
        outbox = Outbox(self.storage)
        try:
            outbox.put(key, made, spark_succeeded=True, connection_id="datahub")
        finally:
            self.storage.kill_in = -1
            sent = self._deliver(outbox)
        return sent

    def _deliver(self, outbox: Outbox) -> list[Proposal]:
        sent: list[Proposal] = []
        for entry in outbox.entries():
            sent += entry.items()
            entry.discard()
        self.catalog.apply(sent)
        return sent

    @property
    def live(self) -> set[str]:
        """The DataJobs that have edges, or are not removed."""
        return {urn for urn in self.catalog.jobs if urn not in self.catalog.removed}


ONE = Run({"x": "ab"})
TWO = Run({"x": "ab", "y": "c"})
SAME = Run({"x": "ab", "y": "ab"})
OTHER = Run({"z": "a", "y": "b"})


def holds(task: Task, *runs: Run) -> None:
    """Check that DataHub holds the pairs of these runs, and their DataJobs alone."""
    assert task.catalog.pairs() == set().union(*(pairs(run.writes) for run in runs))
    assert task.live == {urn for run in runs for urn in run.jobs()}


@pytest.mark.parametrize(
    "series",
    [(ONE, TWO, ONE), (TWO, OTHER, TWO), (SAME, TWO, SAME, OTHER), (TWO, Run({}), TWO)],
    ids=["one, two, one", "other outputs on other days", "exact and not", "nothing written"],
)
def test_after_each_run_datahub_holds_what_it_wrote(series: Sequence[Run]) -> None:
    task = Task()
    for run in series:
        task.sends(run)
        holds(task, run)


def test_any_series_with_failed_attempts_ends_as_its_last_complete_run() -> None:
    choice = random.Random(44)
    for _ in range(60):
        task = Task()
        complete = ONE
        added: list[Run] = []
        task.sends(complete)
        for _ in range(8):
            outputs = choice.sample("xyz", choice.randint(0, 3))
            writes = {output: choice.sample("abc", choice.randint(0, 3)) for output in outputs}
            run = Run(writes, adds=choice.random() < 0.4)
            task.sends(run)
            if run.adds:
                added.append(run)
            else:
                complete, added = run, []
                holds(task, run)
            expected = pairs(complete.writes).union(*(pairs(each.writes) for each in added))
            assert task.catalog.pairs() == expected


def test_added_edges_that_a_complete_run_gave_are_not_sent() -> None:
    task = Task()
    task.sends(SAME)
    sent = task.sends(Run({"x": "a", "y": "bc"}, adds=True))
    assert job("shop.build.file.x") not in {one.entity_urn for one in sent}
    assert job("shop.build.file.y") in {one.entity_urn for one in sent}
    assert job() in {one.entity_urn for one in sent}, "its run and properties"
    assert task.catalog.pairs() == pairs({"x": "ab", "y": "abc"})


def test_the_applications_own_job_is_always_sent() -> None:
    """With ``exact_pairs: false``, it has all edges, whatever was added."""
    task = Task()
    task.sends(SAME)
    own, *_, run = Run({}, adds=True).proposals(2000)
    again = [own, *edges(job(), SAME.writes, adds=True), run]
    record = JobRecord(AttemptKey("shop", "r", "build", -1, 1), "datahub")
    (stored,) = Outbox(task.storage).jobs.all()
    assert revise(record, again).proposals == again
    assert revise(stored, again).proposals == again


def test_an_edge_that_was_only_added_is_sent_again() -> None:
    """The first time, it may have been lost, or removed at the end of the DAG run."""
    task = Task()
    task.sends(Run({"x": "a"}, adds=True))
    task.catalog.jobs.clear()
    task.sends(Run({"x": "a"}, adds=True))
    assert task.catalog.pairs() == pairs({"x": "a"})


@pytest.mark.parametrize("kill_in", [0, 1, 2])
@pytest.mark.parametrize(("first", "second"), [*pairwise((ONE, TWO, OTHER, SAME, ONE))])
def test_a_crash_between_the_writes_loses_nothing(first: Run, second: Run, kill_in: int) -> None:
    task = Task()
    task.sends(first)
    with pytest.raises(KilledError):
        task.sends(second, kill_in=kill_in)
    added = Run({"x": "ab"}, adds=True)
    task.sends(added)
    assert task.catalog.pairs() >= pairs(added.writes), "no record claims edges that were lost"
    task.sends(ONE)
    holds(task, ONE)


def test_a_run_that_is_converted_after_a_later_one_retires_nothing() -> None:
    task = Task()
    task.sends(TWO)
    task.sends(Run({"z": "a", "y": "b"}, end_ms=1))
    assert job("shop.build.file.x") in task.live
    task.sends(TWO)
    holds(task, TWO)


def test_two_dags_of_one_script_keep_their_own_jobs() -> None:
    first = Task()
    second = Task(first.catalog, first.storage, task_id="other")
    other = Run({"x": "ab", "z": "c"}, name="shop.other")
    first.sends(TWO)
    second.sends(other)
    first.sends(ONE)
    holds(first, ONE, other)


def test_a_job_whose_application_had_all_edges_before_the_upgrade_becomes_exact() -> None:
    task = Task()
    task.catalog.apply(edges(job(), {"x": "abc", "y": "abc"}, adds=False))
    task.sends(TWO)
    holds(task, TWO)


def test_applications_of_one_name_in_one_attempt_replace_together() -> None:
    task = Task()
    task.sends(Run({"x": "ab", "y": "bc"}))
    task.sends(Run({"x": "a", "z": "b"}), Run({"y": "c"}, adds=True))
    assert task.catalog.pairs() == pairs({"x": "a", "z": "b", "y": "c"})


def test_each_application_of_a_task_has_its_own_jobs() -> None:
    task = Task()
    other = Run({"v": "a", "w": "b"}, name="shop.build.second")
    task.sends(TWO, other)
    task.sends(ONE)
    holds(task, ONE, other)


def test_proposals_without_spark_jobs_stay_as_they_are() -> None:
    info = Proposal("dataJob", AIRFLOW_JOB, "dataJobInfo", {"customProperties": {}})
    others = [info, *edges(AIRFLOW_JOB, {"x": "a"}, adds=False)]
    record = JobRecord(AttemptKey("shop", "r", "build", -1, 1), "datahub")
    revision = revise(record, others)
    assert revision.proposals == others
    assert revision.before == revision.after == record


def test_a_record_that_is_damaged_or_refused_fails_no_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = Task()
    task.sends(TWO)
    (name,) = task.storage.stored("jobs")
    task.storage.objects[name] = b"?"
    task.sends(TWO)
    assert f"memory:{name} cannot be read" in caplog.text
    task.storage.refuses = "jobs/"
    task.sends(ONE)
    assert "Could not record the jobs" in caplog.text
    task.storage.refuses = ""
    task.sends(ONE)
    holds(task, ONE)


def test_a_run_like_the_one_before_writes_its_time_alone() -> None:
    task = Task()
    task.sends(TWO)
    task.sends(TWO, kill_in=2)
    holds(task, TWO)


def test_from_the_third_name_with_another_date_on_the_log_says_what_to_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = Task()
    task.sends(*(Run({"x": "a"}, name=f"part_{part}") for part in range(4)))
    for day in ("2026-11-01", "2026-11-02"):
        task.sends(Run({"x": "a"}, name=f"orders_{day}"))
    assert "pipeline_name" not in caplog.text
    task.sends(Run({"x": "a"}, name="orders_2026-11-03"))
    assert "orders_2026-11-03" in caplog.text
    assert "Set pipeline_name" in caplog.text
