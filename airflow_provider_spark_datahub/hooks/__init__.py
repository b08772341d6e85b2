"""Airflow's side of lineage: connections, configuration, the context of tasks, metrics, assets,
stored lineage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .airflow_context import (
        AttemptContext,
        configuration,
        dag_run_of,
        datahub_plugin_is_active,
        ended_attempt,
        final_result,
        lineage_is_on,
        lineage_option,
        page_url,
        stored_result,
        successful_task_runs,
        tasks_of_dags,
    )
    from .airflow_services import AirflowServices, NoAnswerError, connection_of
    from .assets import emit_assets
    from .datahub import airflow_connections, check_sink, mask, open_sink, sink_of
    from .lineage_source import LineageSource, Scope, TaskReport
    from .metrics import count_attempt, gauge_outbox
    from .storage import configured_outbox, result_folder
else:
    __getattr__, __dir__ = lazy_exports(__name__)
