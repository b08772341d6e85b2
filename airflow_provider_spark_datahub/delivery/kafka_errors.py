"""What an error of Kafka says about sending the same once more.

Imports confluent-kafka at once; import this module where something is about to be sent.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from airflow_provider_spark_datahub.delivery.failure import FailureKind

_KINDS = {
    # Of the message, or of the batch that it was in.
    KafkaError.MSG_SIZE_TOO_LARGE: FailureKind.REJECTED,
    KafkaError.RECORD_LIST_TOO_LARGE: FailureKind.REJECTED,
    KafkaError.INVALID_RECORD: FailureKind.REJECTED,
    KafkaError._AUTHENTICATION: FailureKind.UNAUTHORISED,
    KafkaError.SASL_AUTHENTICATION_FAILED: FailureKind.UNAUTHORISED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: FailureKind.UNAUTHORISED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: FailureKind.UNAUTHORISED,
    KafkaError._SSL: FailureKind.MISCONFIGURED,
    KafkaError._UNKNOWN_TOPIC: FailureKind.MISCONFIGURED,
    KafkaError.UNKNOWN_TOPIC_OR_PART: FailureKind.MISCONFIGURED,
    KafkaError.TOPIC_EXCEPTION: FailureKind.MISCONFIGURED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: FailureKind.MISCONFIGURED,
}


def kind_of_kafka_error(error: KafkaError) -> FailureKind:
    """The kind of failure that it is; what is not known may pass."""
    return _KINDS.get(error.code(), FailureKind.UNAVAILABLE)
