"""The parts of a backfill arrive once, in order, and no faster than the rate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.backfill import delivery
from airflow_provider_spark_datahub.backfill.delivery import _BATCH, BackfillDelivery, Rate, _Totals
from airflow_provider_spark_datahub.backfill.plan import PlanError
from airflow_provider_spark_datahub.conversion import Proposal, ProposalFormatError
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord
from tests.backfill.results import write_part, write_parts
from tests.delivery.outboxes import Recording
from tests.delivery.samples import upserts

PARTS = [upserts(1200, "a"), upserts(3, "b"), upserts(700, "c")]


class Receiver(Recording):
    """Sink that remembers its batches, and rejects proposals of some URNs."""

    def __init__(
        self, refuses: Callable[[Proposal], bool] = lambda _: False, rejects: str = "never"
    ) -> None:
        super().__init__(refuses)
        self.batches: list[list[Proposal]] = []
        self.opened = 0
        self._rejected_urns = rejects

    def open(self) -> Receiver:
        self.opened += 1
        return self

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        for item in record.pending():
            if self._rejected_urns in item[1].entity_urn:
                record.reject(item, "no such thing")
        before = len(self.arrived)
        super().send(record, deadline)
        self.batches.append(self.arrived[before:])


def deliver(folder: Path, sink: Receiver, *, rate: float = 0, threads: int = 1) -> _Totals:
    return BackfillDelivery(folder, sink.open, Rate(rate), threads=threads).run()


@pytest.mark.slow
def test_every_proposal_arrives_once_and_in_order(tmp_path: Path) -> None:
    sink = Receiver()
    delivered = deliver(write_parts(tmp_path, PARTS), sink)
    assert sink.arrived == [proposal for part in PARTS for proposal in part]
    assert (delivered.parts, delivered.complete, delivered.delivered, delivered.rejected) == (
        3,
        3,
        1903,
        0,
    )
    assert sink.opened == 3


@pytest.mark.no_cover
@pytest.mark.slow
def test_parts_at_the_same_time_keep_the_order_within_each(tmp_path: Path) -> None:
    sink = Receiver()
    assert deliver(write_parts(tmp_path, PARTS), sink, threads=3).complete == 3
    for part in PARTS:
        of_part = {proposal.to_json() for proposal in part}
        assert [proposal for proposal in sink.arrived if proposal.to_json() in of_part] == part


def test_delivery_resumes_with_the_batch_that_failed(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, PARTS)
    broken = Receiver(lambda proposal: proposal == PARTS[0][_BATCH + 10])
    delivered = deliver(folder, broken)
    assert delivered.problems == ["it is full"]
    assert (delivered.complete, delivered.delivered) == (0, _BATCH)
    healed = Receiver()
    assert deliver(folder, healed).complete == 3
    assert healed.arrived == [*PARTS[0][_BATCH:], *PARTS[1], *PARTS[2]]


def test_a_crash_costs_one_batch_at_most(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, PARTS)

    class Crash(BaseException):
        pass

    def crash(_part: str, _state: object) -> None:
        raise Crash

    with pytest.raises(Crash):
        BackfillDelivery(folder, Receiver().open, Rate(0), on_progress=crash).run()
    after = Receiver()
    deliver(folder, after)
    assert after.arrived == [*PARTS[0][_BATCH:], *PARTS[1], *PARTS[2]]


def test_rejected_proposals_are_kept_with_their_reasons_and_do_not_stop_the_rest(
    tmp_path: Path,
) -> None:
    folder = write_parts(tmp_path, PARTS)
    delivered = deliver(folder, Receiver(rejects="a600"))
    assert (delivered.complete, delivered.delivered, delivered.rejected) == (3, 1902, 1)
    (file,) = (folder / "_state/rejected").iterdir()
    record = json.loads(file.read_text())
    assert (record["reason"], Proposal.from_obj(record["proposal"])) == (
        "no such thing",
        PARTS[0][600],
    )


def test_batches_are_not_larger_than_the_rate_allows_at_once(tmp_path: Path) -> None:
    sink = Receiver()
    deliver(write_parts(tmp_path, [upserts(12)]), sink, rate=500_000)
    assert [len(batch) for batch in sink.batches] == [12]
    small = Receiver()
    folder = write_parts(tmp_path / "small", [upserts(5)])
    BackfillDelivery(folder, small.open, Rate(2, sleep=lambda _: None)).run()
    assert [len(batch) for batch in small.batches] == [2, 2, 1]


def test_long_proposals_are_handed_over_in_smaller_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposals = upserts(5)
    lengths = [len(proposal.to_json()) for proposal in proposals]
    monkeypatch.setattr(delivery, "_BATCH_CHARACTERS", 2 * max(lengths))
    sink = Receiver()
    assert deliver(write_parts(tmp_path, [proposals]), sink).complete == 1
    assert [len(batch) for batch in sink.batches] == [2, 2, 1]
    assert sink.arrived == proposals


def test_a_conversion_that_is_not_complete_is_not_delivered(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, PARTS)
    (folder / "_state/converted.json").unlink()
    with pytest.raises(PlanError, match="no complete conversion"):
        deliver(folder, Receiver())


def test_the_error_names_the_row_that_is_not_a_proposal(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, [[]])
    (part,) = (folder / "proposals").iterdir()
    write_part(part, [*(proposal.to_json() for proposal in upserts(2)), "{"])
    with pytest.raises(ProposalFormatError, match=r"part-00000-x\.parquet, row 3"):
        deliver(folder, Receiver())


@pytest.mark.parametrize("content", [b"", b"PAR1", b'{"entityUrn": "x"}'])
def test_the_error_names_a_damaged_part(content: bytes, tmp_path: Path) -> None:
    folder = write_parts(tmp_path, [upserts(2)])
    (part,) = (folder / "proposals").iterdir()
    part.write_bytes(content)
    with pytest.raises(
        PlanError, match=r"part-00000-x\.parquet cannot be read as a part of a backfill: "
    ):
        deliver(folder, Receiver())


class Clock:
    """A clock that goes on only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def test_no_more_pass_than_the_rate_allows() -> None:
    clock = Clock()
    rate = Rate(50, clock, clock.sleep)
    passed = []
    for _ in range(20):
        rate.take(25)
        passed.append(clock.now - 100.0)
    assert passed == pytest.approx([number / 2 for number in range(20)])


def test_time_without_proposals_is_not_saved_up() -> None:
    clock = Clock()
    rate = Rate(10, clock, clock.sleep)
    clock.sleep(1000)
    for expected in (0, 1, 2):
        rate.take(10)
        assert clock.now == pytest.approx(1100 + expected)


@pytest.mark.parametrize(("per_second", "burst"), [(0.5, 1), (7.9, 7), (500, 500)])
def test_at_once_pass_those_of_a_second(per_second: float, burst: int) -> None:
    assert Rate(per_second).burst == burst
