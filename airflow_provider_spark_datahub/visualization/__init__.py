"""Views of proposals for people: terminal, HTML page, SVG, Mermaid, JSON, and the differences between two sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.visualization.difference import (
        Change as Change,
        ChangedPart as ChangedPart,
        compare as compare,
    )
    from airflow_provider_spark_datahub.visualization.explanation import (
        Explanation as Explanation,
        UnknownNameError as UnknownNameError,
    )
    from airflow_provider_spark_datahub.visualization.export import (
        MOST_LINKS as MOST_LINKS,
        read_asset as read_asset,
        render_json as render_json,
        render_mermaid as render_mermaid,
        render_svg as render_svg,
    )
    from airflow_provider_spark_datahub.visualization.graph import build_graph as build_graph
    from airflow_provider_spark_datahub.visualization.model import Graph as Graph
    from airflow_provider_spark_datahub.visualization.names import (
        harmless as harmless,
        short_name as short_name,
    )
    from airflow_provider_spark_datahub.visualization.network import build_network as build_network
    from airflow_provider_spark_datahub.visualization.page import (
        Action as Action,
        AttemptRow as AttemptRow,
        Attempts as Attempts,
        Frame as Frame,
        page_policy as page_policy,
        render_page as render_page,
    )
    from airflow_provider_spark_datahub.visualization.terminal import render_terminal as render_terminal
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "difference": "Change ChangedPart compare",
            "explanation": "Explanation UnknownNameError",
            "export": "MOST_LINKS read_asset render_json render_mermaid render_svg",
            "graph": "build_graph",
            "model": "Graph",
            "names": "harmless short_name",
            "network": "build_network",
            "page": "Action AttemptRow Attempts Frame page_policy render_page",
            "terminal": "render_terminal",
        },
    )
