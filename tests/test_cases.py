from pathlib import Path

import pytest

from tests.cases import FOLDER, tables


@pytest.mark.parametrize("section", sorted(path.stem for path in FOLDER.iterdir()))
def test_every_table_is_run_and_every_row_is_whole(section: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob(f"test_{section}.py")]
    for name, (columns, *rows) in tables(section).items():
        own, shared = f'@cases("{section}")\ndef {name}(', f'@cases("{section}", "{name}")'
        assert any(own in source or shared in source for source in sources), name
        assert {len(row) for row in rows} == {len(columns)}, name
