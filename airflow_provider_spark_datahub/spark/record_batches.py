"""Rows of a task as Arrow record batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

_BATCH_BYTES = 1024 * 1024
_BATCH_ROWS = 10_000
_ROW_BYTES = 64
"""What a row takes beside its texts, roughly."""


def batches_of(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows, one by one, as batches of some megabytes; what is held in memory is one batch.

    :param rows: values in the order of the schema.
    """
    held: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += _ROW_BYTES + sum(len(value) for value in row if type(value) is str or type(value) is bytes)
        if size >= _BATCH_BYTES or len(held) >= _BATCH_ROWS:
            yield _batch(held, schema)
            held, size = [], 0
    if held:
        yield _batch(held, schema)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches, one by one."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _batch(rows: list[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
