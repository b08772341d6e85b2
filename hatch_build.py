"""Add the addresses of the public repository to a build's metadata (``[project.urls]``).

They are below ``PROJECT_URL``, the address of the repository's page, which ``make release`` and the
workflow set; else below the ``https://`` address that the checkout was cloned from. A build of
anything else names no address: one that nobody owns could be registered by somebody else.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class RepositoryUrls(MetadataHookInterface):
    """The hook that hatchling calls for ``[tool.hatch.metadata.hooks.custom]``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``urls``.

        :raises ValueError: if ``PROJECT_URL`` is not an address that starts with ``https://``.
        """
        repository = (os.environ.get("PROJECT_URL") or self._origin()).rstrip("/")
        if not repository:
            return
        if not repository.startswith("https://"):
            raise ValueError(
                f"PROJECT_URL is {repository!r}: it must be the repository's https:// address"
            )
        metadata["urls"] = {
            "Homepage": repository,
            "Source": repository,
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }

    def _origin(self) -> str:
        """Return the page of the repository that was cloned; empty if it has none."""
        command = ["git", "-C", self.root, "config", "--get", "remote.origin.url"]
        try:
            url = subprocess.run(
                command, capture_output=True, text=True, check=False
            ).stdout.strip()
        except OSError:  # no git here
            return ""
        return url.removesuffix(".git") if url.startswith("https://") and "@" not in url else ""
