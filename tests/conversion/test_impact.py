"""What one write reached: never less than what changes when everything runs again without it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import structs

from airflow_provider_spark_datahub.conversion.history.changes import (
    SOME_TASK,
    Fingerprint,
    SilentTasks,
    Use,
)
from airflow_provider_spark_datahub.conversion.history.impact import (
    Records,
    UnknownWriteError,
    _Spread,
)
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from benchmarks.impact import outcomes
from tests.cases import cases
from tests.conversion.builders import (
    OTHER_QUERY,
    QUERY,
    file,
    file_urns,
    jobs,
    query,
    whole_application,
)

ORDERS, RATES, OUT, REPORT = (
    f"urn:li:dataset:(urn:li:dataPlatform:iceberg,shop.{name},PROD)"
    for name in ("orders", "rates", "out", "report")
)
HOUR_MS = 3_600_000
ONE, TWO, THREE = "7825604658367593245", "4730843823961488510", "1981839165980632111"


def attempt(
    hour: float,
    task: str,
    inputs: dict[str, Use],
    outputs: dict[str, Use],
    pairs: str = "",
    hidden: tuple[str, ...] = (),
    run: str = "",
    **silent: Any,
) -> Fingerprint:
    """Return an attempt of half an hour. :param pairs: of columns, from the first input to the
    first output.
    """
    start_ms = 1_790_000_000_000 + round(hour * HOUR_MS)
    edges = tuple(tuple(pair.split(">"))[::-1] for pair in pairs.split())
    numbered = ((len(inputs), 0, edges),) if pairs else ()
    key = AttemptKey("shop", run or f"run{hour}", task, -1, 1)
    end_ms = start_ms + HOUR_MS // 2
    known = Fingerprint(key, start_ms, end_ms, True, "", inputs, outputs, numbered, hidden)  # type: ignore[arg-type]
    return structs.replace(known, silent=SilentTasks(**silent))


def of(*versions: str, **fields: object) -> Use:
    return Use(versions, **fields)  # type: ignore[arg-type]


def reached(
    records: list[Fingerprint],
    name: str = "shop.orders",
    column: str | None = None,
    **wanted: object,
) -> list[str]:
    """Return the task and run of each reached instance, with a question mark if it is only
    inferred.
    """
    known = Records(records)
    found = known.impact(known.writes_of(name, **wanted), column)  # type: ignore[arg-type]
    return [f"{one.task_id}.{one.run_id}{'?' if one.inferred else ''}" for one in found.reached]


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 12))]
)
@pytest.mark.parametrize(("silent", "by_datahub"), [(0, False), (10, False), (10, True)])
def test_every_instance_whose_output_changes_is_reached(
    seed: int, silent: int, by_datahub: bool
) -> None:
    found = list(outcomes(seed, 12, silent=silent, by_datahub=by_datahub))
    assert [one.changed - one.reached for one in found] == [set()] * 12
    assert any(one.changed for one in found)
    # Something is saved against clearing everything downstream.
    assert sum(len(one.reached) for one in found) < sum(one.found.downstream for one in found)


@pytest.mark.parametrize("is_versioned", [True, False])
def test_a_table_that_every_run_reads_and_writes_is_followed_once(
    monkeypatch: pytest.MonkeyPatch, is_versioned: bool
) -> None:
    count, looks, look = 300, list[Any](), _Spread._seen

    def seen(*arguments: Any) -> Any:
        looks.append(arguments)
        return look(*arguments)

    monkeypatch.setattr(_Spread, "_seen", seen)
    uses = [of(str(hour)) if is_versioned else of() for hour in range(count + 1)]
    known = Records(
        [
            attempt(hour, "load", {ORDERS: uses[hour]}, {ORDERS: uses[hour + 1]})
            for hour in range(count)
        ]
    )
    found = known.impact(known.writes[ORDERS][150:151]).reached
    assert [(one.run_id, one.inferred) for one in found] == [
        (f"run{hour}", not is_versioned) for hour in range(151, count)
    ]
    assert len(looks) < 6 * count


def test_versions_decide_who_read_a_write() -> None:
    writes = [
        attempt(hour, "build", {}, {ORDERS: of(version)}) for hour, version in enumerate((ONE, TWO))
    ]
    early = attempt(3, "early", {ORDERS: of(ONE)}, {OUT: of()})
    # OpenLineage's scan report rounds the snapshot.
    late = attempt(4, "late", {ORDERS: of("4.73084382396148851E18")}, {OUT: of()})
    assert reached([*writes, early, late], version=TWO) == ["late.run4"]
    # An appended version holds the earlier ones.
    assert reached([*writes, early, late], version=ONE) == ["early.run3", "late.run4?"]


def test_of_a_write_with_unknown_versions_a_lower_version_may_be_one() -> None:
    build = attempt(0, "build", {}, {ORDERS: of("5", "6", "?")})
    readers = [
        attempt(1, "lower", {ORDERS: of("4")}, {OUT: of()}),
        attempt(1, "last", {ORDERS: of("6")}, {OUT: of()}),
    ]
    assert reached([build, *readers]) == ["last.run1", "lower.run1?"]


def test_a_read_without_a_version_beside_another_job_s_may_be_of_any() -> None:
    known: dict[str, Use] = {}
    for use in (of("4"), of()):
        use.add_to(known, ORDERS, is_read=True)
    records = [attempt(0, "build", {}, {ORDERS: of("5")}), attempt(1, "both", known, {OUT: of()})]
    assert reached(records) == ["both.run1?"]


@cases("impact")
def test_the_outbox_knows_more_than_datahub_if_it_has_every_attempt(
    known: Any, held: int, is_new: bool
) -> None:
    def task_run(number: int, **datasets: Any) -> Fingerprint:
        return Fingerprint(AttemptKey("shop", "a", "build", -1, number), 0, 1, True, **datasets)

    records = Records([task_run(number) for number in known]).plus(
        [task_run(held, outputs={ORDERS: of()})]
    )
    assert (ORDERS in records.writes) == is_new


def test_a_later_version_that_replaced_everything_ends_the_impact() -> None:
    wrong, right = (
        attempt(0, "build", {}, {ORDERS: of(ONE)}),
        attempt(2, "build", {}, {ORDERS: of(TWO, replaces=True)}),
    )
    readers = [
        attempt(3, "a", {ORDERS: of(TWO)}, {OUT: of()}),
        attempt(4, "b", {ORDERS: of(ONE)}, {REPORT: of()}),
    ]
    known = Records([wrong, right, *readers])
    found = known.impact(known.writes_of("orders", ONE))
    assert ([one.task_id for one in found.reached], found.others, found.downstream) == (["b"], 1, 2)


def test_a_write_of_several_attempts_may_be_older_than_one_that_replaced_it() -> None:
    writes = [
        ("build", of(ONE)),
        ("append", of(TWO, end_ms=1_790_000_000_000 + 5 * HOUR_MS)),
        ("other", of(THREE, replaces=True)),
    ]
    records = [attempt(hour, name, {}, {ORDERS: use}) for hour, (name, use) in enumerate(writes)]
    assert reached([*records, attempt(6, "a", {ORDERS: of(TWO)}, {OUT: of()})], version=ONE) == [
        "a.run6?"
    ]


def test_columns_are_followed_and_what_is_not_known_of_them_counts_as_reached() -> None:
    build = attempt(0, "build", {}, {ORDERS: of(ONE)})
    uses = attempt(1, "uses", {ORDERS: of(ONE)}, {OUT: of(TWO)}, "Amount>total id>id")
    other = attempt(1, "other", {ORDERS: of(ONE)}, {RATES: of(THREE)}, "id>id")
    hidden = attempt(1, "hidden", {ORDERS: of(ONE)}, {RATES: of()}, "id>id", hidden=(ORDERS,))
    by_total = attempt(2, "by_total", {OUT: of(TWO)}, {REPORT: of()}, "total.cents>x")
    by_id = attempt(2, "by_id", {OUT: of(TWO)}, {REPORT: of()}, "id>x")
    records = [build, uses, other, hidden, by_total, by_id]
    assert reached(records, column="amount", version=ONE) == [
        "hidden.run1",
        "uses.run1",
        "by_total.run2",
    ]
    known = Records(records)
    found = known.impact(known.writes_of("orders", ONE), "amount")
    assert (found.other_columns, found.unreached, found.downstream) == (2, 0, 5)


def of_two_writes(pairs: tuple[tuple[int, int], ...] | None) -> list[Fingerprint]:
    """Return an attempt that reads and writes two tables, with a reader of each of these."""
    used = attempt(1, "use", {ORDERS: of("1"), RATES: of("2")}, {OUT: of("3"), REPORT: of("4")})
    return [
        attempt(0, "load", {}, {ORDERS: of("1")}),
        structs.replace(used, pairs=pairs),
        attempt(2, "bill", {OUT: of("3")}, {}),
        attempt(3, "mail", {REPORT: of("4")}, {}),
    ]


def test_an_input_reaches_only_the_outputs_of_its_queries() -> None:
    datasets = [ORDERS, RATES, OUT, REPORT]
    (used,) = [record for record in of_two_writes(()) if record.key.task_id == "use"]
    assert used.datasets == datasets
    records = of_two_writes(((2, 1), (3, 0)))
    assert reached(records) == ["use.run1", "mail.run3"]
    # A table that only counts rows of it reads it and passes nothing on.
    assert reached(of_two_writes(((2, 1),))) == ["use.run1"]


def test_records_of_earlier_versions_do_not_know_which_output_an_input_reaches() -> None:
    old = [json.loads(msgspec.json.encode(record)) for record in of_two_writes(None)]
    assert not any("pairs" in record for record in old)
    records = [msgspec.convert(record, Fingerprint) for record in old]
    assert reached(records) == ["use.run1", "bill.run2", "mail.run3"]


def test_pairs_of_datasets_that_a_record_does_not_have_are_refused() -> None:
    record = json.loads(msgspec.json.encode(of_two_writes(((2, 1),))[1]))
    for pair in ([4, 0], [-1, 0], [0, 1]):
        with pytest.raises(msgspec.ValidationError, match="unknown datasets"):
            msgspec.convert({**record, "pairs": [pair]}, Fingerprint)


def test_a_record_has_the_pairs_of_each_write() -> None:
    events = whole_application(
        query(run_id=QUERY, inputs=[file("/a")], outputs=[file("/x")]),
        query(run_id=OTHER_QUERY, inputs=[file("/b")], outputs=[file("/y")]),
    )
    record = Fingerprint.of(attempt(0, "load", {}, {}), jobs(events))
    a, b, x, y = file_urns("/a", "/b", "/x", "/y")
    assert (record.reached_from(a), record.reached_from(b)) == ([x], [y])
    # Nobody knows what reached what in queries that a long job has forgotten.
    forgotten = Fingerprint.of(attempt(0, "load", {ORDERS: of()}, {OUT: of()}), jobs(events))
    assert set(forgotten.reached_from(a)) == {x, y, OUT}


def test_a_table_that_no_task_writes_is_wrong_since_a_time() -> None:
    readers = [attempt(hour, f"t{hour}", {ORDERS: of()}, {OUT: of()}) for hour in (0, 5)]
    assert reached(readers, since_ms=readers[1].start_ms - 1) == ["t5.run5?"]
    with pytest.raises(UnknownWriteError, match="say since when it is wrong"):
        reached(readers)


def ways(records: list[Fingerprint], column: str | None = None) -> dict[str, str]:
    """Return how each task is reached by the write of orders, in order."""
    known = Records(records)
    return {
        one.task_id: one.how for one in known.impact(known.writes_of("shop.orders"), column).reached
    }


def test_a_task_without_lineage_is_followed_and_never_counts_as_having_read_it() -> None:
    build = attempt(0, "build", {}, {ORDERS: of(ONE)}, run="a", after=("export", "notify"))
    hanging = attempt(
        2, "hanging", {RATES: of()}, {OUT: of(TWO)}, "rate>x", run="a", before=("export",)
    )
    by_table = attempt(3, "by_table", {OUT: of(TWO)}, {REPORT: of()}, "x>y", run="b")
    unrelated = attempt(2, "unrelated", {RATES: of()}, {REPORT: of()}, run="a", before=("begin",))
    other_run = attempt(2, "hanging", {RATES: of()}, {REPORT: of()}, run="b", before=("export",))
    earlier = attempt(-1, "earlier", {RATES: of()}, {REPORT: of()}, run="a", before=("export",))
    records = [build, hanging, by_table, unrelated, other_run, earlier]
    through = "inferred through shop.export, which has no lineage"
    silent = dict.fromkeys(("export", "notify"), "inferred, it has no lineage")
    # Nobody knows the columns that it used.
    for column in (None, "amount"):
        assert ways(records, column) == {**silent, "hanging": through, "by_table": through}
    known = Records(records)
    found = known.impact(known.writes_of("shop.orders"))
    assert (found.downstream, found.unreached) == (4, 0)
    assert found.sentence.startswith(
        "0 of 4 downstream task instances read it; 4 may have, through tasks without "
    )


def test_what_read_the_write_as_well_is_not_inferred_through_a_task_without_lineage() -> None:
    build = attempt(0, "build", {}, {ORDERS: of(ONE)}, run="a", after=("export",))
    both = attempt(
        2, "both", {ORDERS: of(ONE)}, {OUT: of(TWO)}, "amount>x id>id", run="a", before=("export",)
    )
    by_x, by_id = (
        attempt(3, name, {OUT: of(TWO)}, {REPORT: of()}, f"{name}>y") for name in ("x", "id")
    )
    assert ways([build, both, by_x, by_id], "amount") == {
        "export": "inferred, it has no lineage",
        "both": "read",
        "x": "read",
        "id": "inferred through shop.export, which has no lineage",
    }


@pytest.mark.parametrize(
    ("after", "before"), [(SOME_TASK, "export"), ("export", SOME_TASK), (SOME_TASK, SOME_TASK)]
)
def test_if_they_are_too_many_any_of_them_may_pass_it_on(after: str, before: str) -> None:
    build = attempt(0, "build", {}, {ORDERS: of(ONE)}, run="a", after=(after,))
    hanging = attempt(2, "hanging", {RATES: of()}, {}, run="a", before=(before,))
    free = attempt(2, "free", {RATES: of()}, {}, run="a")
    found = ways([build, hanging, free])
    assert found.pop("hanging") == f"inferred through shop.{after}, which has no lineage"
    assert found == ({} if after == SOME_TASK else {"export": "inferred, it has no lineage"})
