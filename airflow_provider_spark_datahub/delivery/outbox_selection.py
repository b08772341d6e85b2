"""Which entries of an outbox are meant, by the ids in their manifests."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_spark_datahub.delivery.outbox_format import Manifest


@dataclass(frozen=True, slots=True)
class Selection:
    """Exact ids; of a kind of which none is given, all are meant."""

    dag_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    connection_ids: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is selected, so that not everything is meant."""
        return bool(self.dag_ids or self.run_ids or self.task_ids or self.connection_ids)

    def __call__(self, manifest: Manifest) -> bool:
        """Whether the entry of this manifest is meant."""
        key = manifest.key
        return (
            _in(key.dag_id, self.dag_ids)
            and _in(key.run_id, self.run_ids)
            and _in(key.task_id, self.task_ids)
            and _in(manifest.connection_id, self.connection_ids)
        )


def _in(value: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or value in wanted
