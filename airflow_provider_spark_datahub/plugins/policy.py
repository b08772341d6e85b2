"""Cluster policy that gives lineage to existing operators, for the entry point ``airflow.policy``.

It is off until ``[spark_datahub] auto`` names operators. It may also be called from ``airflow_local_settings.py``.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.policies import hookimpl

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator

log = logging.getLogger(__name__)

_OPERATORS = "airflow_provider_spark_datahub.operators"
_DROP_INS = {
    "SparkSubmitOperator": ("spark_submit", "SparkSubmitDatahubOperator"),
    "SparkJDBCOperator": ("spark_commands", "SparkJDBCDatahubOperator"),
    "SparkSqlOperator": ("spark_commands", "SparkSqlDatahubOperator"),
    "SparkPipelinesOperator": ("spark_commands", "SparkPipelinesDatahubOperator"),
    "LivyOperator": ("livy", "LivyDatahubOperator"),
    "SparkKubernetesOperator": ("spark_kubernetes", "SparkKubernetesDatahubOperator"),
}
_ANY_OTHER = ("child_spark", "ChildSparkOperator")


@hookimpl
def task_policy(task: Any) -> None:
    """Give a task lineage if its operator, or a base class of it, is named in ``[spark_datahub] auto``.

    The options are those of the configuration, and those among the ``default_args`` of the DAG.
    """
    wanted = _wanted()
    if not wanted:
        return
    mapped = getattr(task, "operator_class", None) if getattr(task, "is_mapped", False) else None
    operator: type[BaseOperator] = mapped or type(task)
    with_lineage = _with_lineage(operator, wanted)
    if with_lineage is None:
        return
    if mapped is not None:
        task.operator_class = with_lineage
        task.operator_extra_links = with_lineage.operator_extra_links
        return
    try:
        task.__class__ = with_lineage
    except TypeError as error:
        # A DAG must not fail for its lineage.
        log.warning("Task %s runs without lineage: [spark_datahub] auto does not fit its operator: %s", task, error)


@cache
def _wanted() -> frozenset[str]:
    from airflow.providers.common.compat.sdk import conf

    names = conf.get("spark_datahub", "auto", fallback="") or ""
    return frozenset(name for name in map(str.strip, names.split(",")) if name)


@cache
def _with_lineage(operator: type[BaseOperator], wanted: frozenset[str]) -> type[BaseOperator] | None:
    """Return the class of an operator with lineage, under the operator's own name; ``None`` if it is not wanted."""
    names = [base.__name__ for base in operator.__mro__]
    paths = [f"{base.__module__}.{base.__name__}" for base in operator.__mro__]
    if wanted.isdisjoint(names + paths) or "SparkLineageOperator" in names:
        return None
    module, name = next((_DROP_INS[name] for name in names if name in _DROP_INS), _ANY_OTHER)
    drop_in = getattr(import_module(f"{_OPERATORS}.{module}"), name)
    attributes = {
        "__module__": operator.__module__,
        "__qualname__": operator.__qualname__,
        "__doc__": operator.__doc__,
        # The DAG's author gave no options, so that there is nothing more to render or to serialize.
        "template_fields": operator.template_fields,
        "_lineage_arguments": _from_default_args,
    }
    make: Any = type(operator)
    bases: tuple[type, ...] = (drop_in, operator)
    if _layout(drop_in) is not _layout(operator):
        # Python lets an object change its class only between classes that got their layout from the same base.
        bases = (make("_Layout", (_layout(operator),), {}), *bases)
    with_lineage: type[BaseOperator] = make(operator.__name__, bases, attributes)
    return with_lineage


def _layout(of: type) -> type:
    """Return the base class that gave a class the layout of its objects."""
    while of.__base__ is not None and _measures(of.__base__) == _measures(of):
        of = of.__base__
    return of


def _measures(of: type) -> tuple[int, int, int]:
    # In newer versions of Python, the places of __dict__ and weak references do not count into the size.
    return of.__basicsize__, of.__dictoffset__, of.__weakrefoffset__


def _from_default_args(task: Any) -> dict[str, Any]:
    given = getattr(getattr(task, "dag", None), "default_args", None) or {}
    return {name: given[name] for name in task.lineage_fields if name in given}
