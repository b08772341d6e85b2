"""Operators: submit a Spark job with lineage, deliver pending lineage, and convert archives of
events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .backfill import BackfillLineageOperator
    from .child_spark import BashDatahubOperator, PythonDatahubOperator
    from .databricks import DatabricksSubmitRunDatahubOperator
    from .dataproc import DataprocCreateBatchDatahubOperator, DataprocSubmitJobDatahubOperator
    from .deliver_lineage import DeliverLineageOperator
    from .emr import (
        EmrAddStepsDatahubOperator,
        EmrContainerDatahubOperator,
        EmrServerlessStartJobDatahubOperator,
    )
    from .glue import GlueJobDatahubOperator
    from .livy import LivyDatahubOperator
    from .spark_commands import (
        SparkJDBCDatahubOperator,
        SparkPipelinesDatahubOperator,
        SparkSqlDatahubOperator,
    )
    from .spark_kubernetes import SparkKubernetesDatahubOperator
    from .spark_submit import SparkSubmitDatahubOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
