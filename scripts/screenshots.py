"""Take the screenshots of the documentation: ``PYTHONPATH=. python scripts/screenshots.py``.

A real Chromium opens the pages that ``spark-datahub show`` makes of recorded events.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers.chromium import Chromium, chromium

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "screenshots"
EVENTS = ROOT / "tests" / "data" / "corpus" / "events"


def page_of(events: Path, folder: Path) -> Path:
    """Return the page of recorded events."""
    page = folder / f"{events.stem}.html"
    command = [str(Path(sys.executable).with_name("spark-datahub")), "show", str(events), "-o", str(page)]
    subprocess.run(command, check=True)
    return page


def take(browser: Chromium, name: str, height: int) -> None:
    """Write what the window shows, from the top to ``height`` pixels."""
    clip = {"x": 0, "y": 0, "width": 1400, "height": height, "scale": 0.75}
    result = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "clip": clip})
    (PICTURES / name).write_bytes(base64.b64decode(result["data"]))


def main() -> None:
    """Write all screenshots into ``docs/screenshots``."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        page = page_of(EVENTS / "b_multi_sql_hive.ndjson", folder)
        with chromium(folder) as browser:
            browser.open(page)
            take(browser, "lineage.png", 670)
            browser.emulate(scheme="dark")
            browser.find("#unfold").click()
            take(browser, "columns.png", 760)


if __name__ == "__main__":
    main()
