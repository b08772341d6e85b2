"""Queries that wrote tables which OpenLineage does not name, as it cannot name those of every catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_provider_spark_datahub.conversion.fold import RunState

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


def sentence(untold: Sequence[str]) -> str:
    """For people, of what :func:`untold_outputs` found."""
    listed = ", ".join(untold)
    return f"OpenLineage does not name the tables that these queries wrote (is their catalogue known to it?): {listed}"
