from __future__ import annotations

import json
import multiprocessing
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from datahub.emitter.mcp import MetadataChangeProposalWrapper
from datahub.emitter.synchronized_file_emitter import SynchronizedFileEmitter
from datahub.ingestion.source.file import read_metadata_file
from datahub.metadata.schema_classes import MetadataChangeProposalClass, StatusClass
from filelock import FileLock

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import CheckStatus, Deadline, Delivery
from airflow_provider_spark_datahub.delivery.sinks import FileSink
from tests.cases import cases
from tests.delivery.samples import append_one_by_one, dataset_urn, job_urn, patch, upsert, upserts
from tests.patience import HANGS, not_outlasting

BOTH_FORMS = pytest.mark.parametrize("name", ["out.json", "out.jsonl"])


def append(path: Path, proposals: list[Proposal]) -> None:
    assert FileSink(path).deliver(proposals, Deadline.after(30)) == Delivery(len(proposals), stored=True)


def read(path: Path) -> list[Proposal]:
    text = path.read_text(encoding="utf-8")
    objects = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    return [Proposal.from_obj(each) for each in objects]


@pytest.mark.parametrize("name", ["out.json", "out.jsonl", "out.NDJSON", "out"])
def test_proposals_are_appended(tmp_path: Path, name: str) -> None:
    path = tmp_path / "missing" / "folder" / name
    proposals = [*upserts(3), patch("a"), upsert("b", title="half a pair: \ud800, 'ä', line\u2028end")]
    append(path, proposals[:1])
    append(path, proposals[1:4])
    append(path, proposals[4:])
    text = path.read_text(encoding="utf-8")
    is_array = name in ("out.json", "out")
    objects = json.loads(text) if is_array else [json.loads(line) for line in text.rstrip("\n").split("\n")]
    assert objects == [each.to_obj() for each in proposals]


def test_datahub_can_read_the_array(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    append(path, [upsert("a")])
    append(path, [patch("a")])
    first, second = read_metadata_file(path)
    assert isinstance(first, MetadataChangeProposalWrapper)
    assert first.entityUrn == job_urn("a")
    assert first.aspect is not None
    assert first.aspect.to_obj()["customProperties"] == {"größe": "1 €"}
    assert isinstance(second, MetadataChangeProposalClass)
    assert second.changeType == "PATCH"
    assert second.aspect is not None
    assert json.loads(second.aspect.value) == patch("a").aspect


def test_appends_alternate_with_those_of_datahubs_emitter(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    theirs = MetadataChangeProposalWrapper(entityUrn=dataset_urn("orders"), aspect=StatusClass(removed=False))
    emitter = SynchronizedFileEmitter(str(path))
    emitter.emit(theirs)
    append(path, [upsert("a"), patch("a")])
    emitter.emit(theirs)
    append(path, [upsert("b")])
    urns = [each.entityUrn for each in read_metadata_file(path) if not hasattr(each, "proposedSnapshot")]
    assert urns == [dataset_urn("orders"), job_urn("a"), job_urn("a"), dataset_urn("orders"), job_urn("b")]


@pytest.mark.slow
@BOTH_FORMS
def test_two_processes_append_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=append_one_by_one, args=(str(path), prefix, 40)) for prefix in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANGS)
    assert [process.exitcode for process in processes] == [0, 0]
    found = read(path)
    for prefix in ("a", "b"):
        assert [each for each in found if f",{prefix}" in each.entity_urn] == upserts(40, prefix)
    assert len(found) == 80


@pytest.mark.no_cover
@pytest.mark.slow
@BOTH_FORMS
def test_an_append_cut_off_at_any_byte_is_repaired_by_the_next(tmp_path: Path, name: str) -> None:
    whole, path = tmp_path / f"whole-{name}", tmp_path / name
    first, cut, later = upserts(2), [upsert("cut"), patch("cut")], upsert("later")
    append(whole, [*first, *cut])
    content = whole.read_bytes()
    texts = [json.dumps(each.to_obj(), ensure_ascii=False).encode() for each in (first[1], *cut)]
    ends = [content.index(text) + len(text) for text in texts]
    for size in range(ends[0], len(content)):
        path.write_bytes(content[:size])
        append(path, [later])
        survivors = max(number for number, end in enumerate(ends) if end <= size)
        assert read(path) == [*first, *cut[:survivors], later]
        torn = content[ends[survivors] : size]
        kept = list(tmp_path.glob(f"{name}.torn-*"))
        assert [aside.read_bytes() for aside in kept] == ([torn] if torn.strip(b"\n,]") else [])
        for aside in kept:
            aside.unlink()


@BOTH_FORMS
def test_a_torn_end_is_kept_beside_the_file(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / name
    append(path, upserts(1))
    for number in (1, 2):
        content = path.read_bytes()
        torn = b',\n{"entityType": "dataJob", "x": ["\xc3' if name == "out.json" else b'{"entityType": "dataJob", "\xc3'
        path.write_bytes(content.removesuffix(b"\n]\n") + torn)
        append(path, [upsert(f"later{number}")])
        assert torn in (tmp_path / f"{name}.torn-{number}").read_bytes()
        assert f"{name}.torn-{number}" in caplog.text
    assert read(path) == [upsert("job0"), upsert("later1"), upsert("later2")]


@BOTH_FORMS
def test_a_first_append_cut_off_is_repaired(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    opening = b"[\n" if name == "out.json" else b""
    for torn in (b"", b"\n", opening, opening + b"{", opening + b'{"entit', opening + b'{"entityType": "da'):
        path.write_bytes(torn)
        append(path, upserts(2))
        assert read(path) == upserts(2)


@pytest.mark.parametrize("content", ["[]", "[\n]\n", " [ ] ", "[{}]"])
def test_an_array_of_any_layout_can_be_appended_to(tmp_path: Path, content: str) -> None:
    path = tmp_path / "out.json"
    path.write_text(content.replace("{}", json.dumps(upsert("old").to_obj())))
    append(path, upserts(2))
    append(path, [patch("a")])
    assert read(path) == [*([upsert("old")] if "{" in content else []), *upserts(2), patch("a")]


def test_a_last_line_without_line_end_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps(upsert("old").to_obj()))
    append(path, upserts(1))
    assert read(path) == [upsert("old"), *upserts(1)]
    assert sorted(each.suffix for each in tmp_path.iterdir() if "lock" not in each.name) == [".jsonl"]


@cases("file")
def test_a_foreign_file_is_not_touched(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    proposals = upserts(2)
    delivery = FileSink(path).deliver(proposals, Deadline.after(30))
    assert (delivery.delivered, delivery.pending) == (0, tuple(proposals))
    assert delivery.problem is not None
    assert delivery.problem.startswith(f"Nothing was appended to the file {path}: it ")
    assert path.read_text() == content


def bytes_moved() -> int:
    """Return the bytes that this process has read and written, from the page cache or not."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"]) + int(counts["wchar"])


@pytest.mark.slow
def test_an_append_to_a_large_file_reads_and_writes_little(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    line = json.dumps(upsert("old", title="x" * 1000).to_obj())
    with path.open("w") as file:
        file.write("[\n" + ",\n".join([line] * 100_000) + "\n]\n")
    before = bytes_moved()
    for proposal in upserts(20):
        append(path, [proposal])
    assert bytes_moved() - before < path.stat().st_size / 10
    with path.open("rb") as file:
        file.seek(-2, 2)
        assert file.read() == b"]\n"


@contextmanager
def small_disk() -> Iterator[None]:
    """Limit files to 2,000 bytes, as on a full disk; pytest's own output, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@BOTH_FORMS
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    append(path, upserts(2))
    before = path.read_bytes()
    proposals = upserts(20)
    with small_disk():
        delivery = FileSink(path).deliver(proposals, Deadline.after(30))
    assert delivery == Delivery(
        0, pending=tuple(proposals), problem=f"Cannot write the file {path}: File too large.", stored=None
    )
    assert path.read_bytes() == before


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    delivery = FileSink(tmp_path).deliver(upserts(1), Deadline.after(30))
    assert delivery.problem == f"Cannot write the file {tmp_path}: Is a directory."


@pytest.mark.slow
def test_a_lock_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with FileLock(tmp_path / "out.lock"), not_outlasting(0.3):
        delivery = FileSink(path).deliver(upserts(1), Deadline.after(0.3))
    assert len(delivery.pending) == 1
    assert delivery.problem is not None
    assert "before the time for lineage was over" in delivery.problem or "held the lock" in delivery.problem
    assert not path.exists()


def verdicts(path: Path) -> list[tuple[CheckStatus, str]]:
    return [(result.status, result.message) for result in FileSink(path).check(Deadline.after(60))]


@BOTH_FORMS
def test_a_check_writes_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "missing" / name
    assert verdicts(path) == [(CheckStatus.GOOD, f"The file {path} can be written")]
    assert not path.parent.exists()
    append(path, upserts(2))
    before = path.read_bytes()
    assert verdicts(path) == [(CheckStatus.GOOD, f"The file {path} can be written")]
    assert path.read_bytes() == before


def test_a_check_finds_obstacles(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"name": "package"}')
    assert verdicts(foreign) == [
        (CheckStatus.BAD, f"Nothing can be appended to the file {foreign}: it does not hold a JSON array")
    ]
    assert verdicts(foreign / "out.json") == [(CheckStatus.BAD, f"{foreign} cannot be written by this user")]
    assert verdicts(tmp_path) == [(CheckStatus.BAD, f"{tmp_path} cannot be written by this user")]
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)  # opening it would wait for a writer
    assert verdicts(pipe) == [(CheckStatus.BAD, f"{pipe} is not a regular file")]
