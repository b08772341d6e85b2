"""Frames of a generated job with the provenance of their columns, and expressions over them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import yaml

DATA = Path(__file__).parents[1] / "data" / "generated_jobs"
EXPRESSIONS: dict[str, Any] = yaml.safe_load((DATA / "expressions.yaml").read_text())
_PLACEHOLDER = re.compile(r"\{([a-z]?)([nt])\}")

Edge = tuple[str, str]
"""A dataset and its column."""
NONE: frozenset[Any] = frozenset()


@dataclass(frozen=True)
class Column:
    """Provenance of a column.

    :param kind: ``n``, a number, or ``t``, a text.
    :param direct: columns of datasets whose values are in it.
    :param fragile: such columns, too, unless Spark proves that another value is never null.
    :param either: columns that may count or not.
    :param reads: datasets that only a subquery of this column reads.
    :param plain: it is a dataset's column, which may be null.
    :param firm: no part of a union has a constant for it, so that Spark folds no condition on it.
    """

    kind: str
    direct: frozenset[Edge] = NONE
    fragile: frozenset[Edge] = NONE
    either: frozenset[Edge] = NONE
    reads: frozenset[str] = NONE
    plain: bool = False
    firm: bool = False

    @classmethod
    def of(
        cls,
        kind: str,
        direct: Iterable[Column],
        fragile: Iterable[Column] = (),
        either: Iterable[Column] = (),
        others: Iterable[Column] = (),
    ) -> Column:
        """Return the column of an expression. :param others: columns that only decide."""
        values, uncertain, maybe = list(direct), list(fragile), list(either)
        return cls(
            kind,
            NONE.union(*(one.direct for one in values)),
            NONE.union(*(one.fragile for one in values), *(one.values for one in uncertain)),
            NONE.union(
                *(one.either for one in [*values, *uncertain]),
                *(one.values | one.either for one in maybe),
            ),
            NONE.union(*(one.reads for one in [*values, *uncertain, *maybe, *others])),
            firm=bool(values or uncertain) and all(one.firm for one in [*values, *uncertain]),
        )

    @property
    def values(self) -> frozenset[Edge]:
        return self.direct | self.fragile

    def settled(self) -> Column:
        """Return the column after a step that takes out nulls."""
        return replace(self, plain=False, fragile=NONE, either=self.either | self.fragile)


@dataclass(frozen=True)
class Frame:
    """A data frame of the job.

    :param name: its variable.
    :param reads: datasets that are read if it is executed.
    :param either: datasets that may be read.
    :param outer: datasets of the optional side of outer joins.
    :param weak: of these, those that Spark leaves out if only distinct rows of other columns are
        wanted.
    """

    name: str
    columns: Mapping[str, Column]
    reads: frozenset[str] = NONE
    either: frozenset[str] = NONE
    outer: frozenset[str] = NONE
    weak: frozenset[str] = NONE

    def names(self, kind: str = "nt", *, firm: bool = False) -> list[str]:
        """Return the columns of a kind. :param firm: only those that conditions and joins may use."""
        return [
            name
            for name, one in self.columns.items()
            if one.kind in kind and (one.firm or not firm)
        ]

    def kinds(self) -> dict[str, str]:
        return {name: column.kind for name, column in self.columns.items()}

    def needing(self, names: Iterable[str]) -> Frame:
        """Return the frame after a step that needs the values of these columns."""
        return replace(self, reads=self.reads.union(*(self.columns[name].reads for name in names)))

    def settled(self) -> Frame:
        return replace(
            self, columns={name: column.settled() for name, column in self.columns.items()}
        )

    def distinct(self) -> Frame:
        return replace(self, weak=self.weak | self.outer)

    def beside(self, other: Frame) -> Frame:
        """Return a frame of both frames' reads, with this one's columns."""
        both = (
            (getattr(self, name) | getattr(other, name))
            for name in ("reads", "either", "outer", "weak")
        )
        return Frame("", self.columns, *both)

    def read_by(self, names: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Return the datasets that are read for these columns, and those that may be."""
        wanted = [self.columns[name] for name in names]
        values = {dataset for one in wanted for dataset, _ in one.direct}
        read = (self.reads - (self.weak - values)).union(*(one.reads for one in wanted))
        return read, self.either.union(
            self.reads, *(one.reads for one in self.columns.values())
        ) - read

    def pinned(self) -> Frame:
        """Return the frame as a cache or a checkpoint holds it: its plan does not change any more."""
        columns = {
            name: replace(one, direct=one.values, fragile=NONE, reads=NONE)
            for name, one in self.columns.items()
        }
        return Frame(self.name, columns, *self.read_by(self.columns))


def expression(
    rng: Random, kind: str, frame: Frame, group: str = "values"
) -> tuple[str, Column] | None:
    """Return an expression over a frame with its provenance, or ``None`` if the frame lacks columns
    for those drawn.
    """
    templates = EXPRESSIONS[group][kind] if kind else EXPRESSIONS[group]
    for template in rng.sample(templates, len(templates))[:6]:
        roles: dict[str, list[Column]] = {}

        def fill(match: re.Match[str], roles: dict[str, list[Column]] = roles) -> str:
            role, wanted = match.groups()
            names = frame.names(wanted, firm=role in ("i", "q"))
            name = rng.choice(
                [one for one in names if role not in ("p", "c", "q") or frame.columns[one].plain]
            )
            roles.setdefault(role, []).append(frame.columns[name])
            return name

        try:
            text = _PLACEHOLDER.sub(fill, template)
        except IndexError:  # there is no such column
            continue
        direct, fragile, others = (
            [column for role in group for column in roles.get(role, ())]
            for group in (["", "p"], ["f", "c"], ["i", "q"])
        )
        return text, Column.of(kind, direct, fragile, roles.get("e", ()), others)
    return None
