"""Help in the terminal: sections of the troubleshooting page, also where only the wheel is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.cli.help import TOPICS
from tests.cli.commands import ROOT, run

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def test_each_section_of_the_page_is_a_topic() -> None:
    assert set(TOPICS.values()) == set(re.findall(r"^## (.*)$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_a_topic_prints_its_section_without_links_to_files(topic: str) -> None:
    shown = run("help", topic)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"## {TOPICS[topic]}\n")
    assert not re.search(r"^## ", shown.stdout[3:], re.MULTILINE)
    assert ".md" not in shown.stdout


def test_without_a_topic_it_lists_the_topics() -> None:
    shown = run("help")
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()] == list(TOPICS)


def test_an_unknown_topic_names_the_nearest_one() -> None:
    shown = run("help", "no-linage")
    assert shown.exit_code == 2
    assert "did you mean 'no-lineage'?" in shown.stderr


def test_the_wheel_has_the_page(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=200)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("airflow_provider_spark_datahub/cli/troubleshooting.md").decode() == PAGE
