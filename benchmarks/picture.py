"""Time and size of a picture of many datasets.

A lake of six layers, each dataset written by a job that reads one to three of the layers before it, with columns and
column lineage. Prints the best of several runs.

    python benchmarks/picture.py [RUNS]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.visualization.export import render_svg
from airflow_provider_spark_datahub.visualization.graph import build_graph
from airflow_provider_spark_datahub.visualization.network import build_network
from airflow_provider_spark_datahub.visualization.page import render_page

LAYERS, COLUMNS = 6, 20


def dataset(layer: int, number: int) -> str:
    """Return the URN of a dataset."""
    return f"urn:li:dataset:(urn:li:dataPlatform:hive,layer{layer}.table{number},PROD)"


def lake(datasets: int) -> Iterator[Proposal]:
    """Yield the proposals of a lake's jobs; the same ones every time."""
    dice = random.Random(2026)
    each = datasets // LAYERS
    names = [f"column{number}" for number in range(COLUMNS)]
    for layer in range(LAYERS):
        for number in range(each):
            urn = dataset(layer, number)
            fields = [{"fieldPath": name, "nativeDataType": "string"} for name in names]
            yield Proposal("dataset", urn, "schemaMetadata", {"fields": fields})
            if layer:
                near = [min(max(number + dice.randint(-2, 2), 0), each - 1) for _ in range(dice.randint(1, 3))]
                sources = [dataset(layer - 1 if dice.random() < 0.85 else dice.randrange(layer), one) for one in near]
                yield job(f"job_{layer}_{number}", list(dict.fromkeys(sources)), urn, names)


def job(name: str, sources: list[str], target: str, columns: list[str]) -> Proposal:
    """A job that takes every column from its first source."""
    lineage = [
        {
            "upstreams": [f"urn:li:schemaField:({sources[0]},{column})"],
            "downstreams": [f"urn:li:schemaField:({target},{column})"],
            "transformOperation": "DIRECT:IDENTITY",
        }
        for column in columns
    ]
    aspect = {
        "inputDatasetEdges": [{"destinationUrn": urn} for urn in sources],
        "outputDatasetEdges": [{"destinationUrn": target}],
        "fineGrainedLineages": lineage,
    }
    return Proposal(
        "dataJob", f"urn:li:dataJob:(urn:li:dataFlow:(spark,{name},x),{name})", "dataJobInputOutput", aspect
    )


def best(runs: int, call: Callable[[], Any]) -> float:
    """CPU seconds of the fastest call."""
    seconds = []
    for _ in range(runs):
        started = time.process_time()
        call()
        seconds.append(time.process_time() - started)
    return min(seconds)


def main(runs: int) -> None:
    """Print the figures."""
    print("datasets  edges   layout     page      KiB   SVG with columns")
    for datasets in (30, 300, 1_200):
        graph = build_graph(lake(datasets))
        edges, size = len(build_network(graph).links), len(render_page(graph).encode())
        layout = best(runs, lambda g=graph: build_network(g))
        whole = best(runs, lambda g=graph: render_page(g))
        drawing = best(runs, lambda g=graph: render_svg(build_network(g, unfolded=True)))
        print(f"{datasets:>8,} {edges:>6,} {layout:>8.3f} {whole:>8.3f} {size / 1024:>8,.0f} {drawing:>8.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
