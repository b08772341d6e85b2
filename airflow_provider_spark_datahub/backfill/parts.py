"""The parts of a backfill: Parquet files of proposals, which Spark writes and a delivery reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_spark_datahub.backfill.plan import PROPOSAL_COLUMN

_ROWS = 20
"""That are decoded at once: few, since each may have megabytes."""


class PartError(ValueError):
    """A file that cannot be read as a part of a backfill: another one, or a damaged one."""


def proposals_of(part: IO[bytes], name: str, start: int = 0) -> Iterator[str]:
    """The proposals of a part as JSON, in their order; a few are in memory at a time.

    :param name: for errors.
    :param start: how many of them are left out.
    :raises PartError: it is none.
    """
    try:
        with pq.ParquetFile(part) as table:
            batches = table.iter_batches(_ROWS, columns=[PROPOSAL_COLUMN])
            texts = chain.from_iterable(batch.column(PROPOSAL_COLUMN).to_pylist() for batch in batches)
            yield from islice(texts, start, None)
    except (pa.ArrowException, KeyError, OSError) as error:
        raise PartError(f"{name} cannot be read as a part of a backfill: {error}") from error
