"""Events that are far larger than what DataHub takes: the limits hold before the work is done."""

from __future__ import annotations

import io
import json

import pytest
import zstandard

from airflow_provider_spark_datahub.capture.collection import decompressed_zstd
from airflow_provider_spark_datahub.conversion.columns import facet as columns
from airflow_provider_spark_datahub.conversion.convert import Converter
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from tests.operators.tries import CORPUS

COLUMNS, INPUTS, LIMIT = 1000, 10, 95
FACET = {
    "fields": {
        f"c{column}": {
            "inputFields": [{"namespace": "hive://h", "name": f"db.t{table}", "field": "a"} for table in range(INPUTS)]
        }
        for column in range(COLUMNS)
    }
}


@pytest.mark.parametrize("as_text", [True, False])
def test_column_lineage_beyond_the_limit_is_not_decoded(as_text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[object] = []
    decode, tolerant = columns._decode_field, columns._tolerant_inputs

    def counted(text: bytes) -> columns._Field:
        decoded.append(text)
        return decode(text)

    def counted_inputs(items: object) -> list[columns._Input]:
        decoded.extend([items] if items else [])
        return tolerant(items)

    monkeypatch.setattr(columns, "MAX_READ_PAIRS", LIMIT)
    monkeypatch.setattr(columns, "_decode_field", counted)
    monkeypatch.setattr(columns, "_tolerant_inputs", counted_inputs)
    content = columns._read(json.dumps(FACET).encode() if as_text else FACET, b"")
    assert [len(edge.upstreams) for edge in content.edges] == [INPUTS] * (LIMIT // INPUTS)
    assert content.left_out == COLUMNS * INPUTS - LIMIT // INPUTS * INPUTS
    assert len(decoded) == LIMIT // INPUTS


def test_what_is_left_out_is_counted() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "MAX_READ_PAIRS", LIMIT)
        columns._cached_columns.cache_clear()
        converter = Converter(LineageSettings())
        for line in (CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines():
            event = json.loads(line)
            for output in event["outputs"]:
                output["facets"]["columnLineage"] = FACET
            converter.add(json.dumps(event).encode())
        conversion = converter.finish(Ending(True))
    (kind,) = conversion.diagnostics.truncations
    assert "column edges left out" in kind
    assert conversion.diagnostics.truncations[kind] >= COLUMNS * INPUTS - LIMIT
    columns._cached_columns.cache_clear()


def test_a_small_compressed_file_does_not_fill_the_memory() -> None:
    bomb = zstandard.compress(bytes(2**28))
    assert len(bomb) < 2**14
    sizes = list(map(len, decompressed_zstd(io.BytesIO(bomb))))
    assert sum(sizes) == 2**28
    assert max(sizes) <= 2**24
