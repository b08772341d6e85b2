"""Finds the datasets of DataHub that are tables which conversion names otherwise (``spark-datahub
reconcile``).

Tests: ``tests/cli/test_reconcile.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from airflow_provider_spark_datahub.conversion import (
    FEW_GREENS,
    DailyTable,
    DatasetId,
    DatasetNamer,
    LineageSettings,
    folded,
    parent_folders,
    split_dataset_urn,
)

_CATALOGS = frozenset(
    {"hive", "glue", "iceberg", "delta-lake", "unity-catalog", "databricks", "presto-on-hive"}
)
"""Platforms under which ingestion sources describe one table of a metastore."""
_LEAST_PARTS = 2


class HeldDataset(NamedTuple):
    """Dataset that DataHub has.

    :param is_ghost: only lineage created it: no ingestion source has described it.
    :param location: address of the table's files, if its source says it; likewise :attr:`instance`.
    """

    urn: str
    is_ghost: bool
    location: str = ""
    instance: str = ""


class Reconciliation(NamedTuple):
    """Datasets that conversion names otherwise than other sources of DataHub.

    :param same: for each of ours, the one dataset that is the same table.
    :param ambiguous: for each of ours, several that may be.
    :param ghosts: those of ours that no other source describes, under any name.
    :param daily: our tables with another path in each run, with all their ghosts, and why the path
        spec is wrong.
    :param similar: how many datasets without description differ from one of ours only in digits,
        dates and UUIDs.
    """

    same: dict[str, str]
    ambiguous: dict[str, tuple[str, ...]]
    ghosts: list[str]
    daily: list[tuple[DailyTable, str]]
    similar: dict[str, int]

    @classmethod
    def of(
        cls,
        ours: Iterable[str],
        held: Iterable[HeldDataset],
        settings: LineageSettings,
        daily: Iterable[DailyTable] = (),
    ) -> Self:
        """Compare the URNs of our lineage with the datasets that DataHub has.

        :param settings: those that gave ours their names.
        :param daily: tables that tasks write to another path in each run.
        """
        ours, index = dict.fromkeys(ours), _Index(held, settings)
        paths = dict.fromkeys((*(urn for urn in ours if "/" in urn), *index.paths))
        tables = {(table.folder, folded(table.urns[0])): table for table in daily}
        members = {place: list(table.urns) for place, table in tables.items()}
        ghosts: dict[str, list[str]] = {}
        for urn in (urn for urn in paths if urn not in index.described):
            name = folded(urn)
            place = next(
                ((folder, name) for folder in parent_folders(urn) if (folder, name) in members),
                None,
            )
            (members[place] if place is not None else ghosts.setdefault(name, [])).append(urn)
        result = cls({}, {}, [], [], {})
        for place, urns in members.items():
            table = tables[place]._replace(urns=tuple(dict.fromkeys(urns)))
            result.daily.append((table, index.problem(table, paths)))
        folds = {urn for table, _ in result.daily for urn in table.urns}
        for urn in ours:
            if urn in index.described or urn in folds:
                continue
            found = index.like(urn)
            match tuple(
                other for other, is_sure in found.items() if is_sure or True not in found.values()
            ):
                case ():
                    result.ghosts.append(urn)
                    if (count := len(ghosts.pop(folded(urn), ()))) >= FEW_GREENS:
                        result.similar[urn] = count
                case (other,) if found[other]:
                    result.same[urn] = other
                case several:
                    result.ambiguous[urn] = several
        return result


class _Name(NamedTuple):
    """Parts of a URN that names of one table have in common, whatever their case.

    :param family: the platform; one for all catalogues.
    :param parts: of a table's name, or the path alone.
    """

    family: str
    env: str
    parts: tuple[str, ...]

    @classmethod
    def of(cls, urn: str, schemas: Mapping[str, str], instance: str | None) -> _Name | None:
        """Return the name without an instance; ``None`` if it is not the URN of a dataset."""
        found = split_dataset_urn(urn)
        if found is None:
            return None
        platform, name, env = found
        family = "catalog" if platform in _CATALOGS else platform
        # As GMS and acryl-datahub's resolver of aliases compare names.
        name = name.removeprefix(f"{instance}." if instance else "").lower()
        if "/" in name:
            return cls(platform, env, (name.strip("/"),))
        parts = [part for part in name.split(".") if part] or [name]
        if len(parts) > _LEAST_PARTS and parts[-2] == schemas.get(platform):
            del parts[-2]
        return cls(family, env, tuple(parts))

    def is_like(self, other: _Name) -> tuple[bool, bool]:
        """Return whether both may name one table, and whether they do: one may have a catalogue in
        front.
        """
        least = min(len(self.parts), len(other.parts))
        enough = least >= _LEAST_PARTS or len(self.parts) == len(other.parts)
        is_end = self.parts[-least:] == other.parts[-least:]
        is_table = (
            self.family == "catalog" and self.parts[-_LEAST_PARTS:] == other.parts[-_LEAST_PARTS:]
        )
        return self[:2] == other[:2] and enough and (is_end or is_table), is_end


class _Index:
    """Datasets that other sources describe, by the ends of their names and by their places.

    :ivar paths: all paths that DataHub has.
    """

    def __init__(self, held: Iterable[HeldDataset], settings: LineageSettings) -> None:
        self._settings = settings
        self.described: set[str] = set()
        self.paths: list[str] = []
        self._by_end: dict[tuple[str, str], list[tuple[_Name, str]]] = {}
        self._by_place: dict[str, list[str]] = {}
        namer = DatasetNamer(settings, {})
        for dataset in held:
            if "/" in dataset.urn:
                self.paths.append(dataset.urn)
            name = _Name.of(dataset.urn, settings.default_schemas, dataset.instance)
            if dataset.is_ghost or name is None:
                continue
            self.described.add(dataset.urn)
            self._by_end.setdefault((name.family, name.parts[-1]), []).append((name, dataset.urn))
            scheme, _, rest = dataset.location.rstrip("/").partition(":")
            # file:/lake/x and dbfs:/x have no authority.
            authority, slash, path = (
                rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
            )
            namespace = f"{scheme}://{authority}" if rest.startswith("//") else scheme
            place = namer.urn(DatasetId(namespace, slash + path)) if rest.startswith("/") else None
            if place is not None:
                self._by_place.setdefault(place.lower(), []).append(dataset.urn)

    def problem(self, table: DailyTable, paths: Iterable[str]) -> str:
        """Return why a path spec would give wrong names; empty if it would not."""
        if described := next((urn for urn in table.urns if urn in self.described), None):
            return f"another source describes {described}"
        other = next((urn for urn in paths if table.covers(urn)), None)
        return f"it would rename {other}, too" if other else ""

    def like(self, urn: str) -> dict[str, bool]:
        """Return the datasets that may be this one, and whether they are."""
        name = _Name.of(
            urn, self._settings.default_schemas, self._settings.dataset_platform_instance
        )
        if name is None:
            return {}
        found = dict.fromkeys(self._by_place.get(urn.lower(), ()), True)
        for other, described in self._by_end.get((name.family, name.parts[-1]), ()):
            may_be, is_sure = name.is_like(other)
            if may_be:
                found.setdefault(described, is_sure)
        return found
