"""What other runs, Airflow's assets and DataHub's own plugin need of an ended attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.conversion import DatasetId
from airflow_provider_spark_datahub.delivery.outbox import EdgeRecord

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Conversion, JobDataset, JobLineage, WrittenDataset
    from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult, TaskAttempt
    from airflow_provider_spark_datahub.task.delivery import TaskDelivery


class EndedAttempt:
    """Converted Spark jobs of an attempt, with their datasets and edges.

    :param connection: connection to DataHub.
    :param before: an earlier call of Spark in the same attempt.
    :ivar conversion: of this call's job; ``None`` until it is converted.
    """

    def __init__(
        self, attempt: TaskAttempt, connection: str, delivery: TaskDelivery, before: EndedAttempt | None
    ) -> None:
        self._attempt = attempt
        self._connection = connection
        self._delivery = delivery
        self._before = before
        self._names_all_edges = False
        self.conversion: Conversion | None = None

    @property
    def jobs(self) -> list[JobLineage]:
        """All converted jobs of the attempt."""
        return [*(self._before.jobs if self._before else []), *(self.conversion.jobs if self.conversion else [])]

    @property
    def written(self) -> list[WrittenDataset]:
        """Datasets that the job wrote, or that the job wrote whose lineage this attempt delivers for an earlier one."""
        return self.conversion.written if self.conversion is not None else self._delivery.written

    def followed_by(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return the same attempt for one more Spark job, whose lineage is added to that of the jobs before it."""
        read = {urn for job in self.jobs for urn in job.lineage.inputs}
        written = {urn for job in self.jobs for urn in job.lineage.outputs}
        return replace(attempt, only_adds=True, read_before=tuple(sorted(read)), written_before=tuple(sorted(written)))

    def keep_edges(self, edges: Mapping[str, set[str]], result: AttemptResult) -> None:
        """Record the edges of a complete attempt, if other runs of the task or DataHub's plugin need them."""
        jobs = self.conversion.jobs if self.conversion else []
        if self._before is not None or result != "SUCCESS" or not jobs or any(job.patch_edges for job in jobs):
            return
        self._names_all_edges = not self._attempt.is_mapped
        shared = {*(job.job_urn for job in jobs if job.is_shared)}
        if self._attempt.is_mapped:
            shared.add(self._attempt.job_urn)
        if not shared and not self._attempt.written_by_plugin:
            return
        inputs, outputs = self._datasets_in_datahub()
        record = EdgeRecord(
            self._attempt.key,
            self._connection,
            self._attempt.dag_run.start_ms or 0,
            self._attempt.dag_run.due_ms or self._attempt.dag_run.start_ms or 0,
            {urn: tuple(sorted(paths)) for urn, paths in edges.items() if urn in shared},
            tuple((dataset.namespace, dataset.name) for dataset in inputs),
            tuple((dataset.namespace, dataset.name) for dataset in outputs),
        )
        self._delivery.keep_edges(record)

    def openlineage_datasets(self, *, for_plugin: bool) -> tuple[list[DatasetId], list[DatasetId]]:
        """Return the inputs and outputs of the jobs.

        :param for_plugin: for DataHub's own Airflow plugin, by platform and name as in DataHub. It replaces the edges
            of the task's DataJob by them, even after a failure and for each index of a mapped task. If this attempt
            does not name all of the task's edges, datasets that other runs of the task named are added.
        """
        if not for_plugin:
            return self._datasets(lambda dataset: dataset.ids)
        own = self._datasets_in_datahub()
        if self._names_all_edges:
            return own
        records = self._delivery.kept_edges()
        inputs = {DatasetId(*dataset) for record in records for dataset in record.inputs}
        outputs = {DatasetId(*dataset) for record in records for dataset in record.outputs}
        return sorted(inputs.union(own[0])), sorted(outputs.union(own[1]))

    def _datasets_in_datahub(self) -> tuple[list[DatasetId], list[DatasetId]]:
        return self._datasets(lambda dataset: [DatasetId(dataset.name.platform, dataset.name.full_name)])

    def _datasets(self, ids: Callable[[JobDataset], Iterable[DatasetId]]) -> tuple[list[DatasetId], list[DatasetId]]:
        read = (dataset for job in self.jobs for dataset in job.lineage.inputs.values())
        written = (dataset for job in self.jobs for dataset in job.lineage.outputs.values())
        inputs, outputs = ({one for dataset in datasets for one in ids(dataset)} for datasets in (read, written))
        return sorted(inputs), sorted(outputs)
