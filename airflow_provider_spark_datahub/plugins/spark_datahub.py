"""Airflow plugin: the listener of DAG runs, and the page *Spark lineage* in Airflow's UI.

Tests: ``tests/plugins/test_dag_run_listener.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.common.compat.sdk import conf

from airflow_provider_spark_datahub.plugins import dag_run_listener

_PREFIX = "/spark-datahub"
_TITLE = "Spark lineage"


class _LineagePage:
    """ASGI application that is created by the first request.

    Airflow loads plugins in every process, but only its API server answers requests, and only it
    needs FastAPI.
    """

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if self._app is None:
            from airflow_provider_spark_datahub.plugins.lineage_page import create_app

            self._app = create_app()
        await self._app(scope, receive, send)


def _view(destination: str, url_route: str, href: str) -> dict[str, str]:
    """Return a tab or menu entry of Airflow's UI. Airflow fills placeholders such as ``{DAG_ID}``
    in its address.
    """
    path = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return {
        "name": _TITLE,
        "href": f"{path}{_PREFIX}/{href}",
        "destination": destination,
        "url_route": url_route,
        **({"category": "browse"} if destination == "nav" else {}),
    }


class SparkDatahubPlugin(AirflowPlugin):
    """Plugin for the entry point ``airflow.plugins``; Airflow does not load plugins of provider
    info by default.
    """

    name = "spark_datahub"
    listeners = [dag_run_listener]  # noqa: RUF012 (AirflowPlugin declares a plain list, as below)
    fastapi_apps = [{"app": _LineagePage(), "url_prefix": _PREFIX, "name": _TITLE}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        _view("nav", "spark_lineage", "runs"),
        _view("dag", "spark_lineage_dag", "runs?dag_id={DAG_ID}"),
        _view("dag_run", "spark_lineage_run", "run?dag_id={DAG_ID}&run_id={RUN_ID}"),
        _view(
            "task_instance",
            "spark_lineage_task",
            "task?dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}",
        ),
    ]
