"""The folder of a backfill's results: on a disk, or in an object store behind an Airflow connection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

from airflow_provider_spark_datahub.backfill.plan import LOCAL, PlanError

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.backfill.delivery import ResultFolder


def result_folder(location: str, conn_id: str | None = None) -> ResultFolder:
    """The folder at a location.

    :param location: as :attr:`BackfillPlan.out` has it; what is no local folder is one of ``ObjectStoragePath``.
    :param conn_id: the connection that reaches the store; None for what the environment says.
    :raises PlanError: where it cannot be reached.
    """
    if location.startswith(LOCAL):
        return Path(location.removeprefix(LOCAL))
    from airflow.sdk import ObjectStoragePath

    try:
        if conn_id:
            BaseHook.get_connection(conn_id)  # a missing one would be taken for access without any keys
        path = ObjectStoragePath(location, conn_id=conn_id)
        path.exists()
    except (AirflowException, ImportError, OSError, ValueError) as error:
        raise PlanError(f"cannot reach {location} from here: {error}") from error
    return cast("ResultFolder", path)
