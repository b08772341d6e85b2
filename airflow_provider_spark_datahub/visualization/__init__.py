"""Views of proposals for people: terminal, HTML page, SVG, Mermaid, JSON, and explanations of
single edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .explanation import Explanation, UnknownNameError
    from .export import MOST_LINKS, read_asset, render_json, render_mermaid, render_svg
    from .model import Graph
    from .names import format_duration
    from .network import Network
    from .page import AttemptRow, Attempts, Frame, page_policy, render_page
    from .terminal import render_terminal
else:
    __getattr__, __dir__ = lazy_exports(__name__)
