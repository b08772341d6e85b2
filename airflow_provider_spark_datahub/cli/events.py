"""OpenLineage events of files, converted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from airflow_provider_spark_datahub.capture.collect import CollectionReport, EventSource, Outcome, collect_text
from airflow_provider_spark_datahub.capture.event_log import read_event_log
from airflow_provider_spark_datahub.conversion.coalesce import Ending
from airflow_provider_spark_datahub.conversion.convert import Conversion, Converter, convert_by_itself
from airflow_provider_spark_datahub.conversion.events import EventError
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.settings import LineageSettings


class EventConversion:
    """Events of files to proposals, with what went wrong on the way."""

    def __init__(
        self, settings: LineageSettings, sources: Sequence[EventSource], event_log: Path | None = None
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._event_log = event_log
        self.converted = 0
        self.problems: list[str] = []

    def coalesced(self, exit_code: int | None) -> Iterator[Proposal]:
        """All events together."""
        converter = Converter(self._settings)
        report = self._read(converter)
        complete = report.outcome is Outcome.COMPLETE and not report.quarantined_count
        succeeded = None if exit_code is None else exit_code == 0
        log_complete = self._read_event_log(converter)
        yield from converter.proposals(Ending(succeeded, events_complete=complete), log_complete=log_complete)
        self._tell(converter.conversion)

    def _read_event_log(self, converter: Converter) -> bool:
        if self._event_log is None:
            return True
        log = read_event_log(self._event_log, application_ids=converter.application_ids)
        for event in log:
            converter.add_log_event(event)
        self.problems += log.report.problems
        return log.report.complete

    def per_event(self) -> Iterator[Proposal]:
        """Each event by itself."""
        collection = collect_text(self._sources)
        told = Conversion()
        for event in collection:
            try:
                conversion = convert_by_itself(event, self._settings)
            except EventError as error:
                told.reject(error)
            else:
                told.events += 1
                for job in conversion.jobs:
                    told.note(job)
                yield from conversion.proposals(self._settings)
        self._describe(collection.report)
        self._tell(told)

    def _read(self, converter: Converter) -> CollectionReport:
        collection = collect_text(self._sources)
        for event in collection:
            converter.add(event)
            if self._event_log is None:
                converter.keep_few()
        self._describe(collection.report)
        return collection.report

    def _describe(self, report: CollectionReport) -> None:
        self.problems += [f"{one.source}, line {one.line}: {one.reason}" for one in report.quarantined]
        if report.outcome is not Outcome.COMPLETE:
            self.problems.append(report.sentence)

    def _tell(self, conversion: Conversion) -> None:
        self.converted = conversion.events
        self.problems += conversion.problems
        if untold := conversion.rejected - len(conversion.problems):
            self.problems.append(f"{untold} more events cannot be converted")
        self.problems += [
            f"no lineage of SQL execution {one.id} ({one.description}): {one.reason}" for one in conversion.lost
        ]
        self.problems += [f"{one.namespace} {one.name}: {why}" for one, why in conversion.unusable.items()]
        self.problems += conversion.cut
        self.problems += [*conversion.table_gaps, *conversion.column_gaps]
