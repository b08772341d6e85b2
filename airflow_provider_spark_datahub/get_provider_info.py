"""Provider info of this package, for Airflow's provider manager.

Tests: ``tests/test_provider.py``.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

_PACKAGE = "airflow_provider_spark_datahub"


def datahub_plugin_is_installed() -> bool:
    """Return whether DataHub's own Airflow plugin is installed."""
    try:
        importlib.metadata.distribution("acryl-datahub-airflow-plugin")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description, by Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-spark-datahub",
        "name": "Spark DataHub",
        "description": "Task-scoped lineage of Spark jobs in `DataHub <https://datahub.com/>`__.",
        "integrations": [
            {
                "integration-name": "DataHub for Spark",
                "external-doc-url": "https://docs.datahub.com/docs/metadata-integration/java/acryl-spark-lineage",
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": "DataHub for Spark",
                "python-modules": [
                    f"{_PACKAGE}.operators.{name}"
                    for name in (
                        "backfill",
                        "child_spark",
                        "databricks",
                        "dataproc",
                        "deliver_lineage",
                        "emr",
                        "glue",
                        "lineage",
                        "livy",
                        "service_request",
                        "spark_commands",
                        "spark_kubernetes",
                        "spark_submit",
                    )
                ],
            }
        ],
        "extra-links": [
            f"{_PACKAGE}.operators.links.{name}"
            for name in ("DatahubRunLink", "DatahubJobLink", "LineagePageLink")
        ],
        "task-decorators": [
            {"name": name, "class-name": f"{_PACKAGE}.operators.child_spark.{name}_task"}
            for name in ("spark_lineage", "pyspark_lineage")
        ],
        "hooks": [
            {
                "integration-name": "DataHub for Spark",
                "python-modules": [f"{_PACKAGE}.hooks.datahub"],
            }
        ],
        "connection-types": _connection_types(),
        "config": _config(),
    }


def _connection_types() -> list[dict[str, Any]]:
    """Return our own connection types, and DataHub's unless DataHub's own plugin registers them."""
    own = [_OBJECT_STORE]
    return own if datahub_plugin_is_installed() else [_REST, _KAFKA, _FILE, *own]


def _config() -> dict[str, Any]:
    from airflow_provider_spark_datahub.task import OPTIONS

    return {
        "spark_datahub": {
            "description": "Defaults of SparkSubmitDatahubOperator; most are arguments of the operator, too.",
            "options": {
                name: {
                    "description": option.meaning,
                    "version_added": "0.1.0",
                    "type": option.kind,
                    "example": option.example,
                    "default": option.default,
                }
                for name, option in OPTIONS.items()
            },
        }
    }


def _field(label: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    """Return a field of a connection's form, which Airflow shows since 3.2; its value goes into the
    extra.
    """
    return {
        "label": label,
        "description": description,
        "schema": {"type": [kind, "null"], **schema},
    }


def _secret(label: str, description: str) -> dict[str, Any]:
    return _field(label, description, format="password")


_REST: dict[str, Any] = {
    "connection-type": "datahub-rest",
    "hook-class-name": f"{_PACKAGE}.hooks.datahub.DatahubRestHook",
    "hook-name": "DataHub REST Server",
    "ui-field-behaviour": {
        "hidden-fields": ["port", "schema", "login"],
        "relabeling": {"host": "GMS URL", "password": "Access token"},
        "placeholders": {"host": "http://datahub-gms:8080", "extra": '{"timeout_sec": 10}'},
    },
    "conn-fields": {
        "timeout_sec": _field("Timeout", "Seconds for one request; 10 if empty.", "number"),
        "retry_max_times": _field(
            "Retries", "Of one request at most; empty: until the deadline.", "integer"
        ),
        "emit_mode": _field(
            "Emit mode",
            "The ASYNC modes answer before anything is stored.",
            enum=[None, "SYNC_PRIMARY", "SYNC_WAIT", "ASYNC", "ASYNC_WAIT"],
        ),
        "ca_certificate_path": _field("CA certificates", "PEM file or folder on the workers."),
        "client_certificate_path": _field(
            "Client certificate", "PEM file on the workers, for mutual TLS."
        ),
        "client_key_path": _field(
            "Client key", "PEM file on the workers, if it is not in the certificate's."
        ),
        "disable_ssl_verification": _field("Trust any certificate", "Only for tests.", "boolean"),
    },
}
_KAFKA: dict[str, Any] = {
    "connection-type": "datahub-kafka",
    "hook-class-name": f"{_PACKAGE}.hooks.datahub.DatahubKafkaHook",
    "hook-name": "DataHub Kafka Sink",
    "ui-field-behaviour": {
        "hidden-fields": ["schema"],
        "relabeling": {
            "host": "Kafka brokers",
            "login": "SASL user name",
            "password": "SASL password",
        },
        "placeholders": {
            "host": "broker1:9092,broker2:9092",
            "extra": '{"connection": {"producer_config": {"ssl.ca.location": "/etc/ca.pem"}}}',
        },
    },
    "conn-fields": {
        "schema_registry_url": _field(
            "Schema registry", "URL, such as http://schema-registry:8081."
        ),
        "schema_registry_login": _field("Schema registry user", "Empty: no authentication."),
        "schema_registry_password": _secret(
            "Schema registry password", "Of the schema registry user."
        ),
        "security_protocol": _field(
            "Security protocol",
            "Of the brokers.",
            enum=[None, "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        ),
        "sasl_mechanism": _field("SASL mechanism", "Such as SCRAM-SHA-512."),
        "ssl_private_key": _secret("SSL private key", "PEM text of the client's key."),
    },
}
_FILE: dict[str, Any] = {
    "connection-type": "datahub-file",
    "hook-class-name": f"{_PACKAGE}.hooks.datahub.DatahubFileHook",
    "hook-name": "DataHub File",
    "ui-field-behaviour": {
        "hidden-fields": ["port", "schema", "login", "password", "extra"],
        "relabeling": {"host": "Path of the folder"},
        "placeholders": {"host": "/var/lib/datahub/lineage"},
    },
}
_OBJECT_STORE: dict[str, Any] = {
    "connection-type": "datahub-object-store",
    "hook-class-name": f"{_PACKAGE}.hooks.datahub.DatahubObjectStoreHook",
    "hook-name": "DataHub Object Store",
    "ui-field-behaviour": {
        "hidden-fields": ["port", "schema", "login", "password"],
        "relabeling": {"host": "URI of bucket and prefix"},
        "placeholders": {
            "host": "s3://bucket/lineage",
            "extra": '{"storage_conn_id": "aws_default"}',
        },
    },
    "conn-fields": {
        "storage_conn_id": _field(
            "Connection to the store", "Such as aws_default; empty: the machine's own access."
        ),
    },
}
