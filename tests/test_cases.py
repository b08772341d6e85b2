import re
from pathlib import Path

import pytest

from tests.cases import FOLDER, tables


@pytest.mark.parametrize("section", sorted(path.stem for path in FOLDER.iterdir()))
def test_every_table_is_run_and_every_row_is_whole(section: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("*.py")]
    sources = [source for source in sources if f'"{section}"' in source]
    for name, (columns, *rows) in tables(section).items():
        is_run = re.compile(
            rf'@cases\("{section}"\)\n(?:@.*\n)*def {name}\('
            if name.startswith("test_")
            else f'"{name}"'
        )
        assert any(
            is_run.search(source) or f'("{section}", "{name}")' in source for source in sources
        ), name
        if name.startswith("test_"):
            assert {len(row) for row in rows} == {len(columns)}, name
