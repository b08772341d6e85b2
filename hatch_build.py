"""Add the addresses of the public repository to a build's metadata (``[project.urls]``).

They come from the environment variable ``PROJECT_URL``, the address of the repository's page, which ``make release``
and the workflow set. A build without it names no address: one that nobody owns could be registered by somebody else.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class RepositoryUrls(MetadataHookInterface):
    """The hook that hatchling calls for ``[tool.hatch.metadata.hooks.custom]``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``urls``.

        :raises ValueError: if ``PROJECT_URL`` is not an address that starts with ``https://``.
        """
        repository = os.environ.get("PROJECT_URL", "").rstrip("/")
        if not repository:
            return
        if not repository.startswith("https://"):
            raise ValueError(f"PROJECT_URL is {repository!r}: it must be the repository's https:// address")
        metadata["urls"] = {
            "Homepage": repository,
            "Source": repository,
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
