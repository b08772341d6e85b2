"""The documentation: links lead somewhere, rules that the code cites exist, and named code is where
a page says.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_provider_spark_datahub"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
]
RULES = (ROOT / "docs" / "conversion.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()

_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_CITATION = re.compile(
    r"(?P<foreign>java-listener\.md, )?"
    r"(?P<kind>\bsections?|\b[Dd]eviations?) (?P<numbers>\d+(?:\.\d+)*(?:(?:, | and )\d+(?:\.\d+)*)*)"
)


def without_code(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {anchor_of(heading) for heading in _HEADING.findall(without_code(page))}


def broken_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(without_code(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: {link} does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{page.relative_to(ROOT)}: {link} has no such heading"


def test_relative_links_lead_somewhere() -> None:
    assert [problem for page in PAGES for problem in broken_links(page)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, found = {ROOT / "README.md"}, [ROOT / "README.md"]
    while found:
        page = found.pop()
        targets = {
            (page.parent / link.partition("#")[0]).resolve()
            for link in _LINK.findall(without_code(page))
        }
        new = {target for target in targets if target.suffix == ".md" and target.exists()} - reached
        reached |= new
        found += new
    assert [
        str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if page not in reached
    ] == []


def citations() -> Iterator[tuple[str, str, str]]:
    """Yield the place, kind and number of each rule that code cites."""
    modules = [*PACKAGE.rglob("*.py"), *(ROOT / "tests" / "conversion").glob("*.py")]
    for module in sorted(modules):
        for line, text in enumerate(module.read_text().splitlines(), 1):
            for match in _CITATION.finditer(text):
                if not match["foreign"]:
                    for number in re.findall(r"\d+(?:\.\d+)*", match["numbers"]):
                        yield (
                            f"{module.relative_to(ROOT)}:{line}",
                            match["kind"].lower().rstrip("s"),
                            number,
                        )


def test_cited_rules_exist() -> None:
    sections = set(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", RULES, re.MULTILINE))
    deviations = set(re.findall(r"^\| (\d+) \|", RULES.partition("## Deviations")[2], re.MULTILINE))
    known = {"section": sections, "deviation": deviations}
    cited = list(citations())
    assert len(cited) > 30
    assert [
        f"{place}: {kind} {number}" for place, kind, number in cited if number not in known[kind]
    ] == []


def test_pages_name_files_of_the_project_that_exist() -> None:
    folders = "benchmarks|docs|example_dags|requirements|scripts|tests"
    found = {
        (page.relative_to(ROOT).as_posix(), path.rstrip("."))
        for page in PAGES
        for path in re.findall(rf"(?<![\w./-])((?:{folders})/[\w./-]*\w)", page.read_text())
    }
    assert len(found) > 50
    assert sorted((page, path) for page, path in found if not (ROOT / path).exists()) == []


def test_every_benchmark_runs_in_the_nightly_workflow() -> None:
    nightly = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    programs = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    # It makes events for the others.
    assert programs - set(re.findall(r"benchmarks/(\w+\.py)", nightly)) <= {"event_mix.py"}


def test_the_architecture_names_files_and_folders_that_exist() -> None:
    paths = re.findall(r"`((?:[\w.]+/)+(?:[\w.]+\.\w+)?|\w+\.py)`", ARCHITECTURE)
    assert len(paths) > 50
    assert [
        path for path in paths if not any((base / path).exists() for base in (PACKAGE, ROOT))
    ] == []


def test_the_architecture_says_in_which_module_an_answer_is() -> None:
    answers = ARCHITECTURE.partition("## Where is the answer?")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*\? \| `([\w/]+\.py)` \| (.+) \|$", answers, re.MULTILINE)
    assert len(rows) > 5
    wrong = []
    for module, cell in rows:
        source = (PACKAGE / module).read_text() if (PACKAGE / module).exists() else ""
        wrong += [
            f"{module}: {name}"
            for name in re.findall(r"`(\w+)`", cell)
            if not re.search(rf"\b{name}\b", source)
        ]
    assert wrong == []


def test_identifiers_that_the_architecture_names_exist() -> None:
    identifiers = set(re.findall(r"`([A-Za-z]\w*)`", ARCHITECTURE))
    source = "\n".join(module.read_text() for module in PACKAGE.rglob("*.py"))
    assert len(identifiers) > 20
    assert sorted(name for name in identifiers if not re.search(rf"\b{name}\b", source)) == []


def test_the_table_of_versions_is_that_of_the_results() -> None:
    matrix = runpy.run_path(str(ROOT / "scripts" / "matrix.py"))
    results = json.loads(matrix["RESULTS"].read_text())
    page = matrix["PAGE"].read_text()
    table = page.partition(matrix["BEGIN"])[2].partition(matrix["END"])[0].strip()
    assert table == matrix["table"](results).strip(), "run `python scripts/matrix.py --table`"
    nightly = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())
    assert nightly["jobs"]["matrix"]["strategy"]["matrix"]["row"] == [
        row.name for row in matrix["ROWS"]
    ]


def test_debug_lines_appear_as_the_docs_say() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    (name, value), *_ = re.findall(r"^export (AIRFLOW\w+)=(.+)$", page, re.MULTILINE)
    program = """if True:
        import logging, sys
        from airflow.sdk.log import configure_logging
        configure_logging(output=sys.stdout.buffer, json_output=True, sending_to_supervisor=True)  # as a task does
        logging.getLogger("airflow_provider_spark_datahub.task.attempt").debug("a step")
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, name: value},
        capture_output=True,
        check=True,
    )
    assert b"a step" in done.stdout
