"""The job on a real Spark writes the same bytes as the converter in one process, for any layout of
the archive.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import zstandard

from airflow_provider_spark_datahub.backfill.plan import BackfillPlan
from airflow_provider_spark_datahub.conversion.archive import ArchiveFilter
from benchmarks.event_mix import MIXES, mixed_application
from tests.conversion.archive_in_memory import ArchiveConversion, convert_archive
from tests.conversion.builders import CORPUS, event, file, whole_application
from tests.oracles.strict import canonical_violations

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]
SPARK = REPOSITORY / ".venv-spark" / "bin"
OPTIONS = {"datasets": "schemas"}
LARGE_EVENTS = 9000

Place = tuple[str, int, bytes]


@dataclass(frozen=True)
class Done:
    """End of a backfill."""

    code: int
    report: str


@dataclass(frozen=True)
class Backfills:
    """A Spark that runs one backfill after the other; starting one takes longer than most of them."""

    process: subprocess.Popen[str]

    def run(self, plan: BackfillPlan) -> Done:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(plan.to_json() + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                return Done(**json.loads(line))
        raise AssertionError("Spark ended")


@pytest.fixture(scope="module")
def backfills() -> Iterator[Backfills]:
    env = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    env |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(REPOSITORY),
        "PYSPARK_PYTHON": str(SPARK / "python"),
    }
    env["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
    command = [str(SPARK / "python"), "-P", str(Path(__file__).with_name("jobs_in_turn.py"))]
    with subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:  # ends when its standard input is closed
        yield Backfills(process)


def lines(path: str, content: bytes) -> Iterator[Place]:
    """Return the events of a file, as Spark names it."""
    offset = 0
    for line in content.splitlines(keepends=True):
        yield f"file:{path}", offset, line.strip()
        offset += len(line)


def linked_events() -> Iterator[bytes]:
    """Yield events of runs that belong together by their parents and sessions, in many ways."""
    # That "step" is a query shows that it belongs to its parent, whose own events show to which
    # application.
    runs_of_app = [
        event(run_id="load", job="app.load", parent="app", outputs=[file("/middle")]),
        event(
            run_id="step", job="app.step", job_type="TASK", parent="load", inputs=[file("/middle")]
        ),
        event(run_id="step", job="app.step", outputs=[file("/out")]),
    ]
    yield from (
        json.dumps(one).encode() + b"\n"
        for one in whole_application(*runs_of_app, run_id="app", job="app")
    )
    draw = random.Random(5)
    for number in range(80):
        runs = [f"{name}{number}" for name in "abcd"]
        types = dict(
            zip(
                runs,
                draw.choices(("APPLICATION", "SQL_JOB", "TASK", None), k=len(runs)),
                strict=True,
            )
        )
        for _ in range(8):
            run, session = draw.choice(runs), draw.choice([f"S{number}", runs[0], *[None] * 6])
            linked = event(
                run_id=run,
                job=f"job of {run}",
                job_type=draw.choice([types[run], None]),
                parent=draw.choice([*runs, None]),
                namespace=draw.choice(["hive://metastore", "default"]),
                inputs=[{"namespace": "hive", "name": f"t{number}"}],
                run_facets={"hive_session": {"sessionId": session}} if session else {},
            )
            yield json.dumps(linked).encode() + b"\n"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Place]]:
    """Return an archive of every layout, and all of its events."""
    root = tmp_path_factory.mktemp("archive")
    contents: dict[str, bytes] = {}
    recorded = sorted((CORPUS / "events").glob("*.ndjson"))
    for path in recorded[:3]:
        contents[f"tries/dag=d/{path.name}"] = path.read_bytes()
    for number, line in enumerate(
        b"".join(path.read_bytes() for path in recorded[3:6]).splitlines()
    ):
        contents[f"objects/{number:04d}.json"] = line
    mixed = [line for number in range(12) for line in mixed_application(number)]
    contents["mixed/even.ndjson.gz"] = b"".join(mixed[::2])
    contents["mixed/odd.ndjson.zst"] = b"".join(mixed[1::2])
    contents["mixed/edge.ndjson"] = (
        CORPUS / "edge" / "events.ndjson"
    ).read_bytes() + b'no event\n{"run": {}}\n{"cut'
    linked = list(linked_events())
    contents["linked/even.ndjson"], contents["linked/odd.ndjson"] = (
        b"".join(linked[::2]),
        b"".join(linked[1::2]),
    )
    contents["large.ndjson"] = b"".join(islice(MIXES["long"](), LARGE_EVENTS))
    compress: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    events: list[Place] = []
    for name, content in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compress.get(path.suffix, bytes)(content))
        events += lines(str(path), content)
    (root / "mixed" / "_SUCCESS").write_bytes(b"")
    broken = gzip.compress(mixed[0])[:-9]
    (root / "broken.gz").write_bytes(broken)
    # What comes before the cut is read.
    readable = zlib.decompressobj(wbits=31).decompress(broken)
    events += lines(str(root / "broken.gz"), readable[: readable.rfind(b"\n") + 1])
    return root, events


def expected(archive: tuple[Path, list[Place]], plan: BackfillPlan) -> ArchiveConversion:
    root, events = archive
    return convert_archive(
        events, plan.settings(), plan.archive_filter(), damaged=[f"file:{root}/broken.gz"]
    )


def by_entity(proposals: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in proposals:
        found.setdefault(json.loads(line)["entityUrn"], []).append(line)
    return found


def parts(out: Path) -> list[list[str]]:
    files = sorted((out / "proposals").glob("part-*"))
    return [pq.read_table(path).column("proposal").to_pylist() for path in files]


def records(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in folder.glob("part-*") for line in path.read_text().splitlines()
    ]


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "wanted", [ArchiveFilter(), ArchiveFilter(run_history=True, applications=("a*", "b*"))]
)
def test_an_archive_of_any_layout_comes_to_the_bytes_of_the_converter(
    archive: tuple[Path, list[Place]], backfills: Backfills, wanted: ArchiveFilter, tmp_path: Path
) -> None:
    root, _ = archive
    plan = BackfillPlan(
        (str(root),),
        str(tmp_path / "out"),
        (OPTIONS,),
        None,
        None,
        wanted.applications,
        wanted.run_history,
        3,
    )
    done = backfills.run(plan)
    assert done.code == 0, done.report
    reference = expected(archive, plan)
    out = tmp_path / "out"
    written = parts(out)
    assert by_entity([line for part in written for line in part]) == by_entity(
        [kept.proposal.to_json() for kept in reference.kept]
    )
    # All of one entity is in one part, so that its order is kept when parts are delivered at once.
    # Runs have no order.
    entities = [
        {urn for urn in by_entity(part) if "dataProcessInstance" not in urn} for part in written
    ]
    assert sum(map(len, entities)) == len(set().union(*entities))
    assert [
        canonical_violations(json.loads(line)) for part in written for line in part[:500]
    ].count([]) == sum(min(500, len(part)) for part in written)

    quarantined = records(out / "quarantine")
    refused = {(problem.file, problem.offset, problem.reason) for problem in reference.quarantined}
    listed = {(record["file"], record["offset"], record["reason"]) for record in quarantined}
    broken = {record for record in listed if record[0].endswith("broken.gz")}
    assert {(file, offset) for file, offset, _ in listed - broken} == {
        (file, offset) for file, offset, _ in refused
    }
    assert {reason for *_, reason in broken} == {"the compressed file is cut off"}

    summary = json.loads((out / "summary.json").read_text())
    assert summary["events"] == reference.events
    assert (summary["runs"], summary["versions"]) == (reference.applications, reference.versions)
    assert (
        summary["proposals"] == len(reference.kept) == sum(summary["proposals_by_aspect"].values())
    )
    assert summary["quarantined"] == len(quarantined)
    assert not (out / "_work").exists()


def test_a_second_backfill_into_a_folder_is_refused_and_the_same_one_has_nothing_to_do(
    archive: tuple[Path, list[Place]], backfills: Backfills, tmp_path: Path
) -> None:
    root, _ = archive
    plan = BackfillPlan((str(root / "tries"),), str(tmp_path / "out"), dry_run=True)
    assert backfills.run(plan).code == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["runs"] == 3
    assert not (tmp_path / "out" / "proposals").exists()

    # Killed while it converted: files are not read again, and half-written results do not count.
    work = tmp_path / "out" / "_work"
    (work / "converting.json").unlink()
    (work / "converted" / "part-99999.zstd.parquet").write_bytes(b"half of")
    done = backfills.run(replace(plan, dry_run=False))
    assert done.code == 0, done.report
    assert "reading has been done already" in done.report
    assert "converting has been done already" not in done.report
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["runs"] == 3
    first = parts(tmp_path / "out")
    again = backfills.run(replace(plan, dry_run=False))
    assert "has been converted already" in again.report
    assert parts(tmp_path / "out") == first

    refused = backfills.run(replace(plan, run_history=True))
    assert refused.code == 2
    assert "holds the results of another backfill" in refused.report
