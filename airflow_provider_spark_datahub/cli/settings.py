"""The converter's options on the command line: a file of them, and ``--set KEY=VALUE``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.cli.console import EXIT_USAGE, fail, say
from airflow_provider_spark_datahub.conversion.settings import LineageSettings, SettingsError, settings_of_environment


def option_layers(config: Path | None, assignments: Sequence[str]) -> list[dict[str, Any]]:
    """The layers of options, the environment's first, as :meth:`LineageSettings.from_mapping` takes them.

    :param assignments: ``KEY=VALUE`` each.
    :raises typer.Exit: where one cannot be read.
    """
    layers = [_environment(), _config_file(config) if config else {}]
    for assignment in assignments:
        key, found, value = assignment.partition("=")
        if not found:
            fail(f"--set {assignment}: want KEY=VALUE", EXIT_USAGE)
        layers.append({key.strip(): value.strip()})
    return [layer for layer in layers if layer]


def read_settings(layers: Sequence[dict[str, Any]]) -> LineageSettings:
    """The options; what is to be said of them is said.

    :raises typer.Exit: where one is wrong.
    """
    try:
        for note in LineageSettings.notes(*layers):
            say(note)
        return LineageSettings.from_mapping(*layers)
    except SettingsError as error:
        fail(str(error), EXIT_USAGE)


def _environment() -> dict[str, Any]:
    try:
        return dict(settings_of_environment(os.environ))
    except SettingsError as error:
        fail(str(error), EXIT_USAGE)


def _config_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}", EXIT_USAGE)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{path} is neither YAML nor JSON: {error}", EXIT_USAGE)
    if loaded is not None and not isinstance(loaded, dict):
        fail(f"{path} holds no object of options", EXIT_USAGE)
    return loaded or {}
