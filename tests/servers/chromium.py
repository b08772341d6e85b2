"""Chromium without a window, driven through its own chromedriver."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # selenium is imported by the tests that drive a browser, not by every session
    from selenium.webdriver.remote.webelement import WebElement

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRIVER = "chromedriver"
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which root cannot have; it opens only pages of ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--window-size=1400,1000",
)
_PICTURES = "SCREENSHOTS"
"""Environment variable with a folder for the pictures that tests take (``make screenshots``)."""


def installed() -> tuple[str, str]:
    """Return the commands of the browser and of its driver.

    Where one is missing the test is skipped, except in CI: there nobody reads the list of skipped
    tests.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which(_DRIVER)
    if browser and driver:
        return browser, driver
    missing = f"no {_DRIVER if browser else 'Chromium'}: install Debian's chromium and chromium-driver, or the like"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


class Chromium:
    """A running browser, with what tests ask of it beside what selenium has."""

    def __init__(self, folder: Path) -> None:
        from selenium.webdriver import Chrome, ChromeOptions, ChromeService

        browser, driver = installed()
        options = ChromeOptions()
        options.binary_location = browser
        for flag in (*_FLAGS, f"--user-data-dir={folder / 'profile'}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # HOME: what it writes beside its profile goes with the test's folder, too.
        service = ChromeService(
            driver, log_output=str(folder / "driver.log"), env={**os.environ, "HOME": str(folder)}
        )
        self.driver = Chrome(options, service)

    def open(self, page: Path, width: int | None = None) -> None:
        """Open a file in place of the page before, as after :meth:`clear`, for a reader with light
        colours.

        :param width: of the window; ``None`` for the usual one.
        """
        self.clear()
        if width is not None:
            self.size(width, 740)
        self.emulate()
        self.driver.get(page.as_uri())

    def size(self, width: int, height: int) -> None:
        """Give the window another size, until :meth:`clear`."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def clear(self) -> None:
        """Leave the page, its logs and all emulation."""
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
        self.complaints()
        self.requests()

    def emulate(self, *, media: str = "", scheme: str = "light") -> None:
        """Show the page as for a reader with this colour scheme, or as it is printed (``print``)."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": features}
        )

    def complaints(self) -> list[str]:
        """Return what the console has said since the last call."""
        return self._log("browser")

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the last call, of files and of the
        network.
        """
        events = [json.loads(message)["message"] for message in self._log("performance")]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _log(self, name: str) -> list[str]:
        """Return what a log has gained since the last call."""
        return [
            entry["message"] for entry in self.driver.execute("getLog", {"type": name})["value"]
        ]

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a piece of JavaScript, and return its result."""
        return self.driver.execute_script(script, *arguments)

    def picture(self, name: str, height: int, width: int = 1400) -> None:
        """Write what the window shows, down to ``height`` pixels, as ``<name>.png``, if pictures
        are wanted.
        """
        if folder := os.environ.get(_PICTURES):
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1050 / 1400}
            result = self.driver.execute_cdp_cmd(
                "Page.captureScreenshot", {"format": "png", "clip": clip}
            )
            (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(result["data"]))

    def press(self, *keys: str) -> None:
        """Types into what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def find(self, selector: str) -> WebElement:
        """Return the first element of a CSS selector."""
        return self.driver.find_element("css selector", selector)


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """Run a browser in this block; it and its driver are ended by their own process ids."""
    browser = Chromium(folder)
    try:
        yield browser
    finally:
        browser.driver.quit()
