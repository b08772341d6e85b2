"""Tables that OpenLineage does not name, as it cannot name those of every catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.fold import Application, RunState
from airflow_provider_spark_datahub.conversion.iceberg_names import table_and_selector
from airflow_provider_spark_datahub.conversion.lost_executions import wrote_data
from airflow_provider_spark_datahub.conversion.plans import datasets_of_plans
from airflow_provider_spark_datahub.conversion.spark_log import LoggedApplication

# The roots of plans that write tables of catalogues, as they stand in the names of queries.
_WRITES = frozenset(
    {
        *(f"{atomic}{verb}_table_as_select" for atomic in ("", "atomic_") for verb in ("create", "replace")),
        *("append_data", "overwrite_by_expression", "overwrite_partitions_dynamic", "replace_data", "write_delta"),
    }
)


def untold_outputs(runs: Iterable[RunState]) -> tuple[str, ...]:
    """What of an application ended well and wrote a table, of which no event tells: each as ``<plan node>.<table>``.

    OpenLineage names a query ``<application>.<plan node>.<table>`` (its JobNameBuilder), the table by Spark's plan even
    where it finds no dataset for it. A CREATE TABLE AS SELECT is two such queries, of which one may name the dataset.

    :param runs: of one application.
    """
    silent: dict[str, str] = {}
    told: list[str] = []
    for run in runs:
        _, node, table = _parts(run.job_name)
        if node not in _WRITES:
            continue
        if run.outputs:
            told.append(table)
        elif run.ended and not run.failure:
            silent[f"{node}.{table}"] = table
    return tuple(name for name, table in silent.items() if not any(_are_one(table, other) for other in told))


def _parts(job_name: str) -> Sequence[str]:
    parts = job_name.rsplit(".", 2)
    return parts if len(parts) == 3 else ("", "", "")


def _are_one(table: str, other: str) -> bool:
    """With and without its catalogue, ``ice_sales_orders`` and ``sales_orders``."""
    return f"_{table}".endswith(f"_{other}") or f"_{other}".endswith(f"_{table}")


def untold_tables(
    logged: LoggedApplication, application: Application, symlinks: Mapping[DatasetId, DatasetId]
) -> tuple[str, ...]:
    """Tables that the plans of what wrote data read or write, and no event of the application names.

    Those of other catalogues than the session's, since only their names say so. A table is known by its name and that
    of its database: how the rest is spelled in events depends on the catalogue. Nothing is said of micro-batches and of
    what failed.

    :param symlinks: the tables behind paths.
    """
    known = {tail for name in _names(application, symlinks) for tail in _tails(name)}
    plans = (one.plan for one in logged.executions.values() if not (one.query_run_id or one.failed) and wrote_data(one))
    named = datasets_of_plans(plans)
    tables = {one.table for one in (*named.sources, *named.sinks) if one.table.count(".") > 1}
    return tuple(table for table in sorted(tables) if known.isdisjoint(_tails(table)))


def _names(application: Application, symlinks: Mapping[DatasetId, DatasetId]) -> Iterator[str]:
    for run in application.runs:
        for dataset in (*run.inputs, *run.outputs):
            yield dataset.name
            if dataset in symlinks:
                yield symlinks[dataset].name


def _tails(name: str) -> set[str]:
    """Database and table of a name or a path, as ``database/table``; and of what looks like a table of Iceberg's own
    (``db.orders.snapshots``), those of the table that it is about.
    """
    spelled = (name, table_and_selector(name, "")[0])
    return {"/".join(_SEPARATOR.split(one.lower().rstrip("/"))[-2:]) for one in spelled}


_SEPARATOR = re.compile(r"(?:\.db)?/|\.")


def sentences(queries: Sequence[str], tables: Sequence[str]) -> list[str]:
    """For people, of what :func:`untold_outputs` and :func:`untold_tables` found."""
    why = "it cannot name the tables of every catalogue"
    found = (
        (queries, f"OpenLineage does not name the tables that these queries wrote ({why}): "),
        (tables, f"OpenLineage does not name these tables that the job read or wrote ({why}): "),
    )
    return [begin + ", ".join(names) for names, begin in found if names]
