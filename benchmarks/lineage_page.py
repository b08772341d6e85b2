"""Time and memory of the page *Spark lineage* with many attempts in the outbox, without HTTP.

Prints the wall-clock and CPU seconds (each the best of three) of the list of runs with 10,000 attempts (every tenth
pending), of the page of one run of them, and of a run whose picture has 500 datasets with 10 columns each; the seconds
that Chromium takes to load that page; then the growth of the process.

    python benchmarks/lineage_page.py [ATTEMPTS]
"""

from __future__ import annotations

import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).parents[1]))

from airflow_provider_spark_datahub.cli.sources import read_sources
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.outbox import LocalStorage, Outbox, OutboxRecords
from airflow_provider_spark_datahub.delivery.sink import Delivery
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.plugins import lineage_page
from airflow_provider_spark_datahub.visualization import Frame, build_graph, render_page
from tests.servers.chromium import chromium

ATTEMPTS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
LAYERS, COLUMNS = 6, 10
EVENTS = Path(__file__).parents[1] / "tests/data/corpus/events/b_multi_sql_hive.ndjson"


def dataset(layer: int, number: int) -> str:
    """Return the URN of a dataset."""
    return f"urn:li:dataset:(urn:li:dataPlatform:hive,layer{layer}.table{number},PROD)"


def lake(datasets: int) -> Iterator[Proposal]:
    """Yield the proposals of a lake of six layers; the same ones every time.

    Each dataset is written by a job that reads one to three of the layers before it.
    """
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


def best(call: Callable[[], object]) -> str:
    """Return the least wall-clock and CPU seconds of three calls."""
    walls, cpus = [], []
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return f"{min(walls):.2f} s ({min(cpus):.2f} s of CPU)"


def loaded(page: Path) -> str:
    """Return the least seconds from navigation to the end of loading, of three."""
    with chromium(page.parent) as browser:
        seconds = []
        for _ in range(3):
            browser.driver.get(page.as_uri())
            seconds.append(browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
    return f"{min(seconds):.2f} s"


def mebibytes() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fill(outbox: Outbox) -> None:
    """Put the attempts into the outbox, one run each; deliver nine of ten."""
    os.fsync = lambda _: None  # filling is not measured, and syncs of 20,000 files take minutes
    proposals, *_ = read_sources([EVENTS], failed=1)
    for number in range(ATTEMPTS):
        key = AttemptKey("shop", f"run{number}", "build", -1, 1)
        entry = outbox.put(key, proposals, spark_succeeded=True, connection_id="sink")
        if number % 10:
            entry.settle(Delivery(len(proposals)), proposals)


def main() -> None:
    """Print a line for each measure."""
    with tempfile.TemporaryDirectory() as folder:
        outbox = Outbox(LocalStorage(Path(folder)))
        fill(outbox)
        before = mebibytes()
        records = OutboxRecords(outbox)

        def runs() -> None:
            newest = records.newest(10 * lineage_page._MOST_RUNS, {"shop"}, undelivered=True)
            rows = [run.row("failed") for run in lineage_page._runs([], newest, set())]
            assert len(rows) == min(ATTEMPTS // 10, 10 * lineage_page._MOST_RUNS)

        def run() -> None:
            found = records.of([AttemptKey("shop", "run7", "", -1, 1), AttemptKey("shop", "run7", "build", -1, 1)])
            render_page(build_graph(proposal for record in found for proposal in record.proposals), frame=Frame("run"))

        size = sum(path.stat().st_size for path in (Path(folder) / "delivered").rglob("*.gz"))
        print(f"{best(runs)}  list of runs, {ATTEMPTS} attempts in the outbox, every tenth pending")
        print(f"{best(run)}  page of one run of them")
        large = list(lake(500))
        seconds = best(lambda: render_page(build_graph(large), frame=Frame("run")))
        print(f"{seconds}  picture of 500 datasets with 10 columns each")
        page = Path(folder) / "page.html"
        page.write_text(render_page(build_graph(large), frame=Frame("run")), encoding="utf-8")
        print(f"{loaded(page)}  Chromium loads that page")
        print(f"{mebibytes() - before:.0f} MB more memory than before (peak)")
        print(f"{size / 2**20:.0f} MB of delivered proposals in the outbox")


if __name__ == "__main__":
    main()
