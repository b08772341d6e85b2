"""What decides about the OpenLineage listener from outside the Spark properties, and so behind our back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_provider_spark_datahub.capture.submission import Submission

_DISABLED_PROPERTY = "spark.openlineage.disabled"
_DISABLED_VARIABLE = "OPENLINEAGE_DISABLED"
_TRANSPORT_VARIABLE = "OPENLINEAGE__TRANSPORT"
_TRANSPORT_SECTION = re.compile(r"^[\"']?transport[\"']?\s*:", re.MULTILINE)


def switched_off(submission: Submission, env: Mapping[str, str]) -> str | None:
    """The setting by which the listener sends nothing, for people; None where it is on.

    :param env: the driver's environment.
    """
    in_properties = submission.effective(_DISABLED_PROPERTY)
    if in_properties is not None:
        return f"the property {_DISABLED_PROPERTY}" if _is_true(in_properties) else None
    return f"the environment variable {_DISABLED_VARIABLE}" if _is_true(env.get(_DISABLED_VARIABLE, "")) else None


def replaced_transport(env: Mapping[str, str], folder: Path, home: Path) -> str | None:
    """Where a transport is configured that a transport in Spark's properties replaces; None where there is none.

    OpenLineage reads ``openlineage.yml`` and ``OPENLINEAGE__TRANSPORT...`` variables as well. A transport in the Spark
    properties wins over them and is not combined with them, so the user's would get no more events.

    :param env: the driver's environment.
    :param folder: the driver's working folder.
    :param home: the home folder of the driver's user.
    """
    variables = sorted(name for name in env if name.startswith(_TRANSPORT_VARIABLE))
    if variables:
        return f"the environment variable {variables[0]}"
    file = next((path for path in _configuration_files(env, folder, home) if path.is_file()), None)
    if file is None:
        return None
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return None
    return str(file) if _TRANSPORT_SECTION.search(text) else None


def _configuration_files(env: Mapping[str, str], folder: Path, home: Path) -> Iterator[Path]:
    if env.get("OPENLINEAGE_CONFIG"):
        yield folder / env["OPENLINEAGE_CONFIG"]
    yield folder / "openlineage.yml"
    yield home / ".openlineage" / "openlineage.yml"


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"
