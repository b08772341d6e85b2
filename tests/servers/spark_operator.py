"""A stand-in for the Spark operator of a Kubernetes cluster that runs the ``spark-submit`` of its
PATH.

Its arguments are those that the Spark operator makes of a ``SparkApplication`` (``submission.go``
of kubeflow's spark-operator), but for what concerns pods: the driver runs here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

Json = dict[str, Any]
_LISTS = (("jars", "--jars"), ("packages", "--packages"), ("repositories", "--repositories"))


def submit_arguments(name: str, spec: Mapping[str, Any]) -> list[str]:
    """Return the arguments of ``spark-submit`` for an application of this name."""
    arguments = ["--master", "local[1]", "--name", name]
    for field, option in _LISTS:
        entries = spec.get("deps", {}).get(field)
        arguments += [option, ",".join(entries)] if entries else []
    properties = dict(spec.get("sparkConf", {}))
    if java_options := spec.get("driver", {}).get("javaOptions"):
        properties["spark.driver.extraJavaOptions"] = java_options
    arguments += [
        part for key, value in properties.items() for part in ("--conf", f"{key}={value}")
    ]
    return [*arguments, spec["mainApplicationFile"], *spec.get("arguments", ())]


@contextmanager
def spark_operator(monkeypatch: pytest.MonkeyPatch, log: Path) -> Iterator[Sequence[Json]]:
    """While this lasts, ``SparkKubernetesOperator`` creates its applications here.

    :param log: of the drivers.
    :returns: the manifests that were created.
    """
    created: list[Json] = []
    package = "airflow.providers.cncf.kubernetes.operators"
    launcher: Any = import_module(f"{package}.custom_object_launcher").CustomObjectLauncher
    operators: Any = import_module(f"{package}.spark_kubernetes").SparkKubernetesOperator
    pods: Any = import_module(f"{package}.pod").KubernetesPodOperator

    def start(self: Any, **_: Any) -> tuple[Any, Any]:
        manifest = self.template_body["spark"]
        created.append(manifest)
        command = ["spark-submit", *submit_arguments(self.name, manifest["spec"])]
        with log.open("ab") as output:
            self.code = subprocess.run(
                command, stdout=output, stderr=output, check=False, timeout=300
            ).returncode
        return None, None

    def wait(self: Any, context: Any) -> str:  # noqa: ARG001 (the operator's signature)
        if self.launcher.code:
            raise AirflowException(f"Pod returned a failure, code {self.launcher.code}")
        return "done"

    monkeypatch.setattr(
        launcher, "__init__", lambda self, **given: self.__dict__.update(given, pod_spec=None)
    )
    monkeypatch.setattr(launcher, "start_spark_job", start)
    monkeypatch.setattr(operators, "find_spark_job", lambda *_, **__: None)
    for attribute in ("client", "custom_obj_api"):
        monkeypatch.setattr(operators, attribute, None)
    monkeypatch.setattr(pods, "execute", wait)
    yield created
