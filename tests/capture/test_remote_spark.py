"""Batches of Livy and manifests of Kubernetes: their injected settings, and that nothing of the user's is lost."""

from __future__ import annotations

import copy
from typing import Any

from airflow_provider_spark_datahub.capture import (
    JarChoice,
    LineageInjection,
    LivyBatch,
    ParentRun,
    SparkApplication,
    Submission,
    inject,
)

LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
OPENS = "--add-opens=java.base/java.security=ALL-UNNAMED"
PARENT = ParentRun("ns", "shop.build", "01990000-0000-7000-8000-000000000001")
INJECTED = {
    "spark.openlineage.transport.type": "file",
    "spark.openlineage.transport.location": "/shared/events/1.ndjson",
    "spark.openlineage.parentJobNamespace": "ns",
    "spark.openlineage.parentJobName": "shop.build",
    "spark.openlineage.parentRunId": "01990000-0000-7000-8000-000000000001",
    "spark.openlineage.namespace": "default",
}


def with_lineage(submission: Submission, jar: JarChoice) -> Submission:
    return inject(submission, LineageInjection("/shared/events/1.ndjson", jar, PARENT, namespace="default")).submission


def test_a_batch_of_livy_gets_the_listener_and_keeps_its_arguments() -> None:
    batch: dict[str, Any] = {
        "file": "s3://jobs/build.py",
        "args": ["2026-01-01"],
        "jars": ["s3://jobs/users.jar"],
        "conf": {"spark.executor.instances": 3, "spark.extraListeners": "com.example.Own"},
        "driver_memory": "2g",
        "name": None,
    }
    before = copy.deepcopy(batch)
    jar = JarChoice(jars=("s3://jars/openlineage-spark_2.13-1.53.0.jar",))
    assert LivyBatch(batch).with_submission(with_lineage(LivyBatch(batch).submission, jar)) == {
        **before,
        "jars": ["s3://jobs/users.jar", "s3://jars/openlineage-spark_2.13-1.53.0.jar"],
        "conf": {
            "spark.executor.instances": "3",
            "spark.extraListeners": f"com.example.Own,{LISTENER}",
            "spark.driver.extraJavaOptions": OPENS,
            **INJECTED,
        },
    }
    assert batch == before
    package = JarChoice(packages=("io.openlineage:openlineage-spark_2.13:1.53.0",))
    bare = LivyBatch({"file": "x"}).with_submission(with_lineage(LivyBatch({"file": "x"}).submission, package))
    assert bare["conf"]["spark.jars.packages"] == "io.openlineage:openlineage-spark_2.13:1.53.0"
    assert bare.keys() == {"file", "conf"}


def manifest() -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "build"},
        "spec": {
            "sparkVersion": "4.0.1",
            "sparkConf": {"spark.extraListeners": "com.example.Own"},
            "deps": {"packages": ["a:b:1"], "files": ["x.txt"]},
            "driver": {
                "cores": 1,
                "javaOptions": "-Dx=y",
                "env": [{"name": "A", "value": 1}, {"name": "SECRET", "valueFrom": {}}],
            },
            "executor": {"instances": 2},
        },
    }


def test_a_manifest_of_kubernetes_gets_the_listener_and_keeps_its_fields() -> None:
    one = manifest()
    package = JarChoice(packages=("io.openlineage:openlineage-spark_2.13:1.53.0",))
    expected = manifest()
    expected["spec"]["sparkConf"] = {"spark.extraListeners": f"com.example.Own,{LISTENER}", **INJECTED}
    expected["spec"]["deps"]["packages"] = ["a:b:1", "io.openlineage:openlineage-spark_2.13:1.53.0"]
    expected["spec"]["driver"]["javaOptions"] = f"-Dx=y {OPENS}"
    assert SparkApplication(one).with_submission(with_lineage(SparkApplication(one).submission, package)) == expected
    assert one == manifest()
    bare: dict[str, Any] = {"spec": {}}
    injected = SparkApplication(bare).with_submission(with_lineage(SparkApplication(bare).submission, package))["spec"]
    assert injected["sparkConf"]["spark.jars.packages"] == "io.openlineage:openlineage-spark_2.13:1.53.0"
    assert injected["sparkConf"]["spark.driver.extraJavaOptions"] == OPENS
    assert injected.keys() == {"sparkConf"}


def test_a_manifest_gives_the_drivers_environment_and_scala_version() -> None:
    assert SparkApplication(manifest()).environment == {"A": "1"}
    versions = {
        version: SparkApplication({"spec": {"sparkVersion": version}}).scala_version for version in ("3.5.7", "4.1", "")
    }
    assert versions == {"3.5.7": "2.12", "4.1": "2.13", "": None}
    assert SparkApplication({}).scala_version is None
