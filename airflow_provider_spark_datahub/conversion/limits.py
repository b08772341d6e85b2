"""What is cut off because it would be too long for DataHub, or for the user.

Texts that are kept until the last event has come: long ones compressed, of which a job may have hundreds.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from airflow_provider_spark_datahub.conversion.settings import LineageSettings

LONG_TEXTS = "texts cut to max_string_length"
LONG_STATEMENTS = "SQL statements cut to max_sql_length"
STATEMENTS_LEFT_OUT = "SQL statements left out of column lineage, which would be longer than max_string_length"
COLUMN_EDGES_LEFT_OUT = "column edges left out, for max_column_edges or max_string_length"


def cut(text: str, limit: int) -> str:
    """The text; where it is longer than so many characters its beginning, which then says so."""
    if len(text) <= limit:
        return text
    told = f"… (cut: {len(text)} characters)"
    return text[: limit - len(told)] + told


class Cuts(msgspec.Struct):
    """Cuts texts, and counts what was cut, by what it is: one of the constants above.

    :param longest: how long a text may be, in characters.
    """

    longest: int
    counts: dict[str, int] = {}

    def count(self, kind: str, times: int = 1) -> None:
        """Take note of what was cut elsewhere."""
        self.counts[kind] = self.counts.get(kind, 0) + times

    def text(self, value: str) -> str:
        """:func:`cut`, counted."""
        if len(value) <= self.longest:
            return value
        self.count(LONG_TEXTS)
        return cut(value, self.longest)

    def properties(self, values: dict[str, str]) -> dict[str, str]:
        """The properties, with each value as :meth:`text` has it."""
        if not values or max(map(len, values.values())) <= self.longest:
            return values
        return {key: self.text(value) for key, value in values.items()}

    def schema(self, aspect: dict[str, Any]) -> dict[str, Any]:
        """A ``schemaMetadata`` whose text of the whole schema is as :meth:`text` has it; the given one stays."""
        (kind, platform_schema), *_ = aspect["platformSchema"].items()
        told = platform_schema["tableSchema"]
        if len(told) <= self.longest:
            return aspect
        return {**aspect, "platformSchema": {kind: {**platform_schema, "tableSchema": self.text(told)}}}


def summed(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of several :class:`Cuts` together."""
    total: dict[str, int] = {}
    for counts in several:
        for kind, times in counts.items():
            total[kind] = total.get(kind, 0) + times
    return total


def sentences(several: Iterable[Mapping[str, int]]) -> list[str]:
    """For people, of the counts of several :class:`Cuts`."""
    return [f"{count} {kind}" for kind, count in sorted(summed(several).items())]


def pair_limit(settings: LineageSettings) -> int:
    """How many pairs of columns can be written at most: of more, no aspect could be short enough."""
    by_length = settings.max_string_length // _SHORTEST_COLUMN_URN
    return by_length if settings.max_column_edges is None else min(by_length, settings.max_column_edges)


_SHORTEST_COLUMN_URN = len('"urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:p,t,EI),c)",')


_LONG_BYTES = 4 * 1024
# JSON never begins with the byte that zlib's format does.
_ZLIB = b"x"


def packed(json_text: bytes) -> bytes:
    """The text, smaller where it is long; equal texts stay equal."""
    return zlib.compress(json_text, level=1) if len(json_text) > _LONG_BYTES else json_text


def unpacked(text: bytes) -> bytes:
    """What was :func:`packed`."""
    return zlib.decompress(text) if text.startswith(_ZLIB) else text
