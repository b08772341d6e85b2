"""Tables that a job writes and then renames: edges go to the names that are left."""

from __future__ import annotations

from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending, JobLineage
from tests.conversion.builders import (
    Json,
    column,
    column_lineage,
    file,
    file_urns,
    only_job,
    query,
    schema,
    whole_application,
)


def runs(*queries: Json) -> JobLineage:
    """Return the job of these queries, each a run of its own."""
    numbered = [{**one, "run": {**one["run"], "runId": f"run-{number}"}} for number, one in enumerate(queries)]
    return only_job(whole_application(*numbered), Ending(succeeded=True))


def write(source: str, target: str) -> Json:
    facets = {"schema": schema(("id", "long")), "columnLineage": column_lineage({"id": [column(source, "id")]})}
    return query(inputs=[file(source)], outputs=[file(target, **facets)])


def rename(old: str, new: str, kind: str = "COMPLETE") -> Json:
    change = {"lifecycleStateChange": "RENAME", "previousIdentifier": {"namespace": "file", "name": old}}
    return query(kind, outputs=[file(new, lifecycleStateChange=change)])


def drop(path: str) -> Json:
    return query(outputs=[file(path, lifecycleStateChange={"lifecycleStateChange": "DROP"})])


def column_edges(job: JobLineage) -> set[tuple[str, str]]:
    def path(field: str) -> str:
        return field.partition("file,")[2].partition(",")[0]

    return {
        (path(up), path(down))
        for one in job.lineage.fine_grained
        for up in one["upstreams"]
        for down in one["downstreams"]
    }


def test_a_written_and_renamed_table_is_an_output_under_its_new_name() -> None:
    job = runs(write("/a", "/new"), rename("/new", "/orders"))
    assert (list(job.lineage.inputs), list(job.lineage.outputs)) == (file_urns("/a"), file_urns("/orders"))
    assert column_edges(job) == {("/a", "/orders")}


def test_reads_before_the_rename_count_under_the_new_name() -> None:
    job = runs(write("/a", "/new"), write("/new", "/sums"), rename("/new", "/orders"))
    assert (list(job.lineage.inputs), list(job.lineage.outputs)) == (
        file_urns("/a", "/orders"),
        file_urns("/orders", "/sums"),
    )
    assert column_edges(job) == {("/a", "/orders"), ("/orders", "/sums")}


def test_a_table_that_is_swapped_for_a_new_one_keeps_its_name_as_an_input() -> None:
    # The next run of the job reads the table that has the name then.
    job = runs(write("/orders", "/new"), rename("/orders", "/old"), rename("/new", "/orders"), drop("/old"))
    assert (list(job.lineage.inputs), list(job.lineage.outputs)) == (file_urns("/orders"), file_urns("/orders"))


def test_a_table_renamed_twice_has_its_last_name() -> None:
    job = runs(write("/a", "/x"), rename("/x", "/y"), rename("/y", "/z"))
    assert list(job.lineage.outputs) == file_urns("/z")


def test_one_staging_name_may_serve_several_tables() -> None:
    job = runs(write("/a", "/tmp"), rename("/tmp", "/monday"), write("/b", "/tmp"), rename("/tmp", "/tuesday"))
    assert list(job.lineage.outputs) == file_urns("/monday", "/tuesday")
    assert column_edges(job) == {("/a", "/monday"), ("/b", "/tuesday")}


def test_a_name_that_is_written_again_after_the_rename_is_an_output_too() -> None:
    job = runs(write("/a", "/orders"), rename("/orders", "/archive"), write("/b", "/orders"))
    assert list(job.lineage.outputs) == file_urns("/archive", "/orders")


def test_renaming_another_applications_table_is_not_a_write() -> None:
    job = runs(write("/a", "/sums"), rename("/theirs", "/ours"))
    assert list(job.lineage.outputs) == file_urns("/sums")


def test_a_rename_that_failed_changed_no_name() -> None:
    job = runs(write("/a", "/new"), rename("/new", "/orders", "FAIL"))
    assert list(job.lineage.outputs) == file_urns("/new")


def test_a_table_that_keeps_its_path_keeps_its_name() -> None:
    job = runs(write("/a", "/external"), rename("/external", "/external"))
    assert list(job.lineage.outputs) == file_urns("/external")


def test_a_table_that_is_dropped_in_the_end_keeps_its_written_name() -> None:
    job = runs(write("/a", "/daily"), rename("/daily", "/renamed"), drop("/renamed"))
    assert list(job.lineage.outputs) == file_urns("/daily")


def test_a_target_that_is_replaced_is_an_output() -> None:
    day = [write("/a", "/tmp"), drop("/orders"), rename("/tmp", "/orders")]
    assert list(runs(*day, *day).lineage.outputs) == file_urns("/orders")
