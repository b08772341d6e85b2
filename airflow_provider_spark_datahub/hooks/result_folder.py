"""The folder of a backfill's results: on a disk, or in an object store behind an Airflow connection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_spark_datahub.backfill.plan import LOCAL, PlanError

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.backfill.delivery import ResultFolder


def result_folder(location: str) -> ResultFolder:
    """The folder at a location.

    :param location: as :attr:`BackfillPlan.out` has it; what is no local folder is reached through Airflow's default
        connection for its scheme, as ``ObjectStoragePath`` does.
    :raises PlanError: where it cannot be reached.
    """
    if location.startswith(LOCAL):
        return Path(location.removeprefix(LOCAL))
    from airflow.sdk import ObjectStoragePath

    try:
        path = ObjectStoragePath(location)
        path.exists()
    except (AirflowException, ImportError, OSError, ValueError) as error:
        raise PlanError(f"cannot reach {location} from here: {error}") from error
    return cast("ResultFolder", path)
