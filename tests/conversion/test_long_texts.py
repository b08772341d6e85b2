"""Texts that are kept for long."""

from __future__ import annotations

import json

import pytest

from airflow_provider_spark_datahub.conversion.limits import packed, unpacked


@pytest.mark.parametrize("text", [b"", b"null", b"{}", b'{"x":1}', b'"x"', '{"é":"x"}'.encode()])
def test_short_texts_stay_as_they_are(text: bytes) -> None:
    assert packed(text) is text
    assert unpacked(text) == text


def test_long_texts_take_less_and_come_back() -> None:
    text = json.dumps({"fields": [{"name": f"c{number}", "type": "string"} for number in range(300)]}).encode()
    assert len(packed(text)) < len(text) / 4
    assert unpacked(packed(text)) == text
    assert packed(text) == packed(bytes(bytearray(text)))
