"""The DataJobs of an application, and the pairs of datasets that DataHub derives from them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import pytest
from msgspec import structs

from airflow_provider_spark_datahub.conversion import Ending, Proposal
from airflow_provider_spark_datahub.conversion.aspects import _data_jobs_of, _DataJob
from tests.cases import cases
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    dataset,
    file,
    find,
    find_all,
    jobs,
    of_application,
    of_outputs,
    only_job,
    proposals,
    query,
    schema,
    settings,
    urn,
    whole_application,
)
from tests.conversion.pairs import Pair, derived_pairs
from tests.oracles.strict import canonical_violations

FLOW = "urn:li:dataFlow:(spark,shop,default)"
JOB = f"urn:li:dataJob:({FLOW},shop)"
TASK = "urn:li:dataJob:(urn:li:dataFlow:(airflow,dag,prod),task)"

Datasets = Sequence[str | Json]


def write(number: int, inputs: Datasets, outputs: Datasets, kind: str = "COMPLETE") -> Json:
    """Return the event of a query."""
    return query(
        kind,
        run_id=f"01900000-0000-7000-8000-{number:012}",
        second=number % 50,
        inputs=listed(inputs),
        outputs=listed(outputs),
    )


def listed(datasets: Datasets) -> list[Json]:
    return [file(each) if isinstance(each, str) else each for each in datasets]


def application(*writes: tuple[Datasets, Datasets], kind: str = "COMPLETE") -> list[Json]:
    """Return the events of an application with these queries."""
    queries = [write(number, *each, kind) for number, each in enumerate(writes, 1)]
    return whole_application(*queries)


def split(events: Iterable[Json], ending: Ending | None = None, **options: Any) -> list[_DataJob]:
    return _data_jobs_of(only_job(events, ending, **options), settings(**options))


def job_of(output: str) -> str:
    """Return the URN of the DataJob of a file."""
    return f"urn:li:dataJob:({FLOW},shop.file.{output})"


def edges(found: Iterable[_DataJob]) -> dict[str, tuple[list[str], list[str]]]:
    """Return the paths of the inputs and outputs of each DataJob."""
    return {job.urn: (paths(job.inputs), paths(job.outputs)) for job in found}


def paths(urns: Iterable[str]) -> list[str]:
    return [each.split(",")[1] for each in urns]


def pairs_of(*pairs: tuple[str, str]) -> set[Pair]:
    return {(urn("file", source), urn("file", output)) for source, output in pairs}


MEDALLION = application((["/raw"], ["/bronze"]), (["/bronze", "/codes"], ["/silver"]))
MEDALLION_PAIRS = pairs_of(("/raw", "/bronze"), ("/bronze", "/silver"), ("/codes", "/silver"))


@cases("data_jobs")
def test_an_exact_application_is_one_job(
    writes: list[tuple[list[str], list[str]]], inputs: list[str], outputs: list[str]
) -> None:
    assert edges(split(application(*writes))) == {JOB: (inputs, outputs)}


def test_else_each_output_has_a_job_of_its_own() -> None:
    found = split(MEDALLION, parent_job_urn=TASK)
    assert edges(found) == {
        JOB: ([], []),
        job_of("/bronze"): (["/raw"], ["/bronze"]),
        job_of("/silver"): (["/bronze", "/codes"], ["/silver"]),
    }
    assert [job.adds for job in found] == [False] * 3
    # The application's job would carry its inputs to them.
    assert {job.definition.upstream_jobs for job in found} == {(TASK,)}
    assert derived_pairs(proposals(only_job(MEDALLION))) == MEDALLION_PAIRS


def test_what_reaches_no_write_stays_with_the_application() -> None:
    events = application((["/a"], ["/x"]), (["/b"], ["/y"]), (["/c"], []))
    assert edges(split(events))[JOB] == (["/c"], [])
    # Even beside a single output.
    assert edges(split(application((["/a"], ["/x"]), (["/c"], [])))) == {
        JOB: (["/c"], []),
        job_of("/x"): (["/a"], ["/x"]),
    }


def test_columns_belong_to_the_job_of_their_output() -> None:
    def copied(source: str, output: str) -> Json:
        lineage = column_lineage({"c": [column(source, "c", "DIRECT:IDENTITY")]})
        return file(output, schema=schema(("c", "int")), columnLineage=lineage)

    events = application((["/a"], [copied("/a", "/x,1")]), (["/b"], [copied("/b", "/y")]))
    own, *of_each = split(events)
    assert own.fine_grained == ()
    assert [[each["downstreams"] for each in job.fine_grained] for job in of_each] == [
        [[f"urn:li:schemaField:({urn('file', '/x%2C1')},c)"]],
        [[f"urn:li:schemaField:({urn('file', '/y')},c)"]],
    ]


def test_a_job_of_an_output_has_its_name_and_that_of_its_application() -> None:
    found = proposals(only_job(MEDALLION, owners="ann", tags="t"), owners="ann", tags="t")
    infos = {proposal.entity_urn: proposal.aspect for proposal in of_outputs(found, "dataJobInfo")}
    assert {job: (info["name"], info["customProperties"]) for job, info in infos.items()} == {
        job_of("/bronze"): ("bronze", {"applicationJob": JOB}),
        job_of("/silver"): ("silver", {"applicationJob": JOB}),
    }
    assert {info["flowUrn"] for info in infos.values()} == {FLOW}
    owners = {proposal.entity_urn: proposal.aspect for proposal in find_all(found, "ownership")}
    assert owners.keys() == {FLOW, *infos}
    assert {aspect["owners"][0]["owner"] for aspect in owners.values()} == {"urn:li:corpuser:ann"}
    assert [status.aspect for status in of_outputs(found, "status")] == [{"removed": False}] * 2
    assert not [one for one in found if canonical_violations(one.to_obj())]


def test_the_tags_of_a_job_are_those_of_the_jobs_of_its_outputs() -> None:
    job = only_job(MEDALLION)
    job.definition = structs.replace(job.definition, job_tags=("pii",))
    tagged = {one.entity_urn: one.aspect for one in find_all(proposals(job), "globalTags")}
    assert tagged.keys() == {JOB, job_of("/bronze"), job_of("/silver")}
    assert len({str(patch) for patch in tagged.values()}) == 1


@pytest.mark.parametrize(
    ("output", "job_id", "name"),
    [
        (file("/lake/orders/"), "shop.file./lake/orders", "orders"),
        (file("/lake/a,(b)"), "shop.file./lake/a%2C%28b%29", "a,(b)"),
        (dataset("postgres://db:5432", "shop.public.orders"), "shop.postgres.shop.public.orders",
         "orders"),
        (dataset("kafka://broker:9092", "orders"), "shop.kafka.orders", "orders"),
    ],
)  # fmt: skip
def test_ids_have_platform_and_name_of_the_output(output: Json, job_id: str, name: str) -> None:
    found = split(application((["/a"], [output]), (["/b"], ["/y"])))
    names = {job.urn: job.definition.name for job in found}
    assert names == {
        JOB: "shop",
        job_of("/y"): "y",
        f"urn:li:dataJob:({FLOW},{job_id})": name,
    }


def test_a_long_id_ends_in_a_digest() -> None:
    long = "/lake/" + "x" * 380
    events = application((["/a"], [f"{long}/1"]), (["/b"], [f"{long}/2"]))
    ids = [job.definition.id for job in split(events)[1:]]
    assert len({*ids}) == 2
    for job_id in ids:
        assert job_id.startswith("shop.file./lake/xxx")
        assert len(job_id) <= 400


def test_an_id_does_not_depend_on_the_rest_of_the_run() -> None:
    alone = split(application((["/a"], ["/x"]), (["/b"], ["/y"])))
    beside = split(application((["/c"], ["/z"]), (["/d"], ["/x"]), (["/e"], ["/y"])))
    assert {job.urn for job in alone} == {job.urn for job in beside} - {job_of("/z")}


def test_outputs_of_one_name_in_two_environments_have_two_jobs() -> None:
    options = {
        "platform.s3.lake.env": "DEV",
        "platform.s3.eu.platform_instance": "eu",
    }
    outputs = [dataset(f"s3://{bucket}", "orders") for bucket in ("lake", "eu", "other")]
    events = application(*(([f"/{number}"], [each]) for number, each in enumerate(outputs)))
    _, *of_each = split(events, None, **options)
    assert len({job.urn for job in of_each}) == len(of_each) == 3
    for job in of_each:
        (output,) = job.outputs
        assert (".DEV" in job.definition.id) == output.endswith(",DEV)")
        assert ("s3.eu." in job.definition.id) == (",eu." in output)


# -- edges that are only added


FAILED = Ending(succeeded=False)


def test_added_edges_go_to_the_jobs_of_outputs_even_if_they_are_exact() -> None:
    found = split(application((["/a"], ["/x"]), (["/c"], [])), FAILED)
    # What reached no write might meet the outputs of an earlier run.
    assert edges(found) == {JOB: ([], []), job_of("/x"): (["/a"], ["/x"])}
    assert [job.adds for job in found] == [True, True]


def test_a_failed_run_leaves_the_pairs_of_the_complete_one_before_it() -> None:
    complete = proposals(only_job(application((["/a"], ["/x"]))))
    failed = proposals(only_job(application((["/b"], ["/y"]), (["/c"], [])), FAILED))
    only_read = proposals(only_job(application((["/d"], [])), FAILED))
    assert derived_pairs([*complete, *failed, *only_read]) == pairs_of(("/a", "/x"), ("/b", "/y"))


@pytest.mark.parametrize("is_mapped", [False, True])
def test_jobs_that_always_add_keep_what_reaches_no_write(is_mapped: bool) -> None:
    options: dict[str, Any] = {} if is_mapped else {"use_patch": True}
    job = only_job(application((["/a"], ["/x"]), (["/c"], [])), **options)
    job.is_shared = is_mapped
    found = _data_jobs_of(job, settings(**options))
    assert edges(found) == {JOB: (["/c"], []), job_of("/x"): (["/a"], ["/x"])}
    assert [each.adds for each in found] == [True, True]
    added = find_all(proposals(job, **options), "dataJobInputOutput")
    assert {proposal.change_type for proposal in added} == {"PATCH"}


def test_indexes_of_a_mapped_task_do_not_mix() -> None:
    added: list[Proposal] = []
    for source, output in (("/a", "/x"), ("/b", "/y")):
        job = only_job(application(([source], [output])))
        job.is_shared = True
        added += proposals(job)
    assert derived_pairs(added) == pairs_of(("/a", "/x"), ("/b", "/y"))


# -- the listener's shape


@pytest.mark.parametrize("ending", [None, FAILED])
def test_without_exact_pairs_the_application_has_all_edges(ending: Ending | None) -> None:
    (job,) = split(MEDALLION, ending, exact_pairs=False)
    assert job.urn == JOB
    assert paths(job.inputs) == ["/bronze", "/codes", "/raw"]
    assert paths(job.outputs) == ["/bronze", "/silver"]


def test_without_coalescing_each_query_is_a_job() -> None:
    first = write(1, ["/a", "/b"], ["/x", "/y"])
    events = whole_application(
        first, query(job="shop.more", inputs=[file("/c")], outputs=[file("/z")])
    )
    found = [proposals(job, coalesce_jobs=False) for job in jobs(events, coalesce_jobs=False)]
    names = [find(each, "dataJobInfo").aspect["customProperties"] for each in found]
    assert not any("applicationJob" in properties for properties in names)
    assert derived_pairs(one for each in found for one in each) == pairs_of(
        ("/a", "/x"), ("/b", "/x"), ("/a", "/y"), ("/b", "/y"), ("/c", "/z")
    )


# -- many outputs


def of_many(outputs: int, kinds: int) -> list[Json]:
    """Return an application with outputs of so many different sets of inputs."""
    writes = [([f"/in/{number % kinds}"], [f"/out/{number}"]) for number in range(outputs)]
    return application(*writes)


def test_up_to_a_hundred_outputs_have_a_job_each() -> None:
    assert len(split(of_many(100, 3))) == 101


def test_outputs_of_equal_inputs_share_a_job_beyond_a_hundred() -> None:
    job = only_job(of_many(1000, 3))
    own, *shared = _data_jobs_of(job, settings())
    assert edges([own]) == {JOB: ([], [])}
    assert [len(each.outputs) for each in shared] == [334, 333, 333]
    assert [each.definition.name for each in shared] == [
        "0 and 333 more", "1 and 332 more", "101 and 332 more",
    ]  # fmt: skip
    expected = ((f"/in/{number % 3}", f"/out/{number}") for number in range(1000))
    assert derived_pairs(proposals(job)) == pairs_of(*expected)
    # Its id depends on the inputs alone: another run writes other outputs.
    ids = {each.urn for each in _data_jobs_of(only_job(of_many(500, 3)), settings())}
    assert ids == {each.urn for each in (own, *shared)}


def test_twice_as_many_outputs_cost_twice_as_much() -> None:
    def calls(outputs: int) -> int:
        """Return the number of calls of functions that the split makes."""
        job = only_job(of_many(outputs, 3))
        made = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(count)
        _data_jobs_of(job, settings())
        sys.setprofile(None)
        return made

    assert 1000 < calls(1000) < calls(2000) < 2.1 * calls(1000)


def test_the_only_job_of_an_application_names_no_other() -> None:
    found = proposals(only_job(application((["/a"], ["/x"]))))
    assert of_outputs(found, "dataJobInfo") == []
    assert of_application(found, "dataJobInfo").entity_urn == JOB
