"""Cluster policy that gives lineage to existing operators, for the entry point ``airflow.policy``.

It is off until ``[spark_datahub] auto`` names operators. It may also be called from
``airflow_local_settings.py``.
"""

from __future__ import annotations

import logging
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.policies import hookimpl

from airflow_provider_spark_datahub import hooks

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context

log = logging.getLogger(__name__)

_OPERATORS = "airflow_provider_spark_datahub.operators"
DROP_INS = {
    "SparkSubmitOperator": "spark_submit",
    "SparkJDBCOperator": "spark_commands",
    "SparkSqlOperator": "spark_commands",
    "SparkPipelinesOperator": "spark_commands",
    "LivyOperator": "livy",
    "SparkKubernetesOperator": "spark_kubernetes",
    "EmrServerlessStartJobOperator": "emr",
    "EmrAddStepsOperator": "emr",
    "EmrContainerOperator": "emr",
    "GlueJobOperator": "glue",
    "DataprocSubmitJobOperator": "dataproc",
    "DataprocCreateBatchOperator": "dataproc",
    "DatabricksSubmitRunOperator": "databricks",
    "_PySparkDecoratedOperator": "child_spark",
}
"""Module of the drop-in for each operator. Its class has the operator's name, with ``Datahub``."""


@hookimpl
def task_policy(task: Any) -> None:
    """Give a task lineage if its operator, or a base class of it, is named in ``[spark_datahub]
    auto``.

    The options are those of the configuration, and those among the ``default_args`` of the DAG and
    the task group.
    """
    mapped = getattr(task, "operator_class", None) if getattr(task, "is_mapped", False) else None
    operator: type[BaseOperator] = mapped or type(task)
    try:
        with_lineage = _with_lineage(operator, wanted) if (wanted := _wanted()) else None
        if with_lineage is None:
            return
        if mapped is None:
            task.__class__ = with_lineage
        else:
            task.operator_class = with_lineage
            task.operator_extra_links = with_lineage.operator_extra_links
    except Exception as error:  # noqa: BLE001 (a DAG must not fail for its lineage; making a class calls users' code)
        name = f"{task.dag_id}.{task.task_id}"
        log.warning(
            "Task %s runs without lineage: [spark_datahub] auto does not fit its operator: %s",
            name,
            error,
        )


@cache
def _wanted() -> frozenset[str]:
    from airflow.providers.common.compat.sdk import conf

    names = conf.get("spark_datahub", "auto", fallback="") or ""
    return frozenset(name for name in map(str.strip, names.split(",")) if name)


@cache
def _with_lineage(
    operator: type[BaseOperator], wanted: frozenset[str]
) -> type[BaseOperator] | None:
    """Return the class of an operator with lineage, under the operator's own name; ``None`` if it
    is not wanted.
    """
    names = [base.__name__ for base in operator.__mro__]
    paths = [f"{base.__module__}.{base.__name__}" for base in operator.__mro__]
    decorator = getattr(operator, "custom_operator_name", None)  # @task.pyspark
    if wanted.isdisjoint([*names, *paths, decorator]) or "SparkLineageOperator" in names:
        return None
    name = next((name for name in names if name in DROP_INS), "")
    module = import_module(f"{_OPERATORS}.{DROP_INS.get(name, 'child_spark')}")
    kind = f"{name.removesuffix('Operator')}DatahubOperator" if name else "ChildSparkOperator"
    drop_in = getattr(module, kind)
    attributes: dict[str, Any] = {
        "__module__": operator.__module__,
        "__qualname__": operator.__qualname__,
        "__doc__": operator.__doc__,
        # No lineage options are given in the DAG, so there is nothing more to render or to
        # serialize.
        "template_fields": operator.template_fields,
        "_lineage_arguments": _from_default_args,
        "lineage_by_policy": True,
    }
    if decorator is not None:
        attributes["custom_operator_name"] = decorator
    make: Any = type(operator)
    bases: tuple[type, ...] = (drop_in, operator)
    if name and operator not in drop_in.__mro__:
        from airflow_provider_spark_datahub.operators.links import LINKS

        # Lineage begins at super().execute() of a subclass: before, its own code may overwrite the
        # arguments that lineage extends, and leave the listener without its jar.
        bases = (operator, drop_in)
        links = operator.operator_extra_links
        attributes["operator_extra_links"] = (
            links if isinstance(links, property) else (*links, *LINKS)
        )
    if _layout(drop_in) is not _layout(operator):
        # Python lets an object change its class only if both classes have their layout from the
        # same base class.
        bases = (make("_Layout", (_layout(operator),), {}), *bases)
    with_lineage: type[BaseOperator] = make(operator.__name__, bases, attributes)
    return with_lineage


def _layout(of: type) -> type:
    """Return the base class that gave a class the layout of its objects."""
    while of.__base__ is not None and _measures(of.__base__) == _measures(of):
        of = of.__base__
    return of


def _measures(of: type) -> tuple[int, int, int]:
    # Compare these too: in newer versions of Python, __dict__ and weak references are not part of
    # the size.
    return of.__basicsize__, of.__dictoffset__, of.__weakrefoffset__


def _from_default_args(task: Any, context: Context) -> dict[str, Any]:
    given = {
        name: hooks.lineage_option(getattr(task, "dag", None), task, name)
        for name in task.lineage_fields
    }
    return {
        name: task.rendered_option(name, value, partial(task.render_template, value, context))
        for name, value in given.items()
    }
