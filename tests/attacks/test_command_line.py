"""Secrets of a file that only its owner may read, and the command line, which everyone on the
machine may read.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import (
    Submission,
    inject,
    remove_abandoned_properties,
    spark_installation,
)
from tests.capture.installations import SPARK_SUBMIT_SCRIPT, executable
from tests.capture.test_injection import LINEAGE
from tests.capture.test_real_spark import SECRET, TRANSPORT, USERS
from tests.operators.tries import FakeSpark, context_of, execute, operator_with_lineage


def test_secrets_of_the_users_properties_move_into_the_file(tmp_path: Path) -> None:
    base = tmp_path / "base.conf"
    base.write_text("spark.my.token of-the-file\nspark.of.the.user u")
    properties = {name: value for name, (value, _) in USERS.items()}
    moving = {name: str(value) for name, (value, moves) in USERS.items() if moves}
    shown, file = Submission(properties, base_file=base, replaceable=True).hand_over()
    assert shown == {name: value for name, (value, moves) in USERS.items() if not moves}
    assert file is not None
    assert spark_installation._read_properties(file) == {**moving, "spark.of.the.user": "u"}
    file.unlink()
    # If Spark may read another file than this one, it must go on to do so.
    assert Submission(properties, base_file=base).hand_over() == (properties, None)
    plain = {"spark.plain": "p"}
    assert Submission(plain, base_file=base, replaceable=True).hand_over() == (plain, None)


@pytest.mark.parametrize("capture", ["listener", "event_log"])
def test_secrets_in_the_operators_conf_are_handed_over_in_a_file(
    capture: str, spark: FakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_folder = tmp_path / "spark" / "bin"
    monkeypatch.setenv("SPARK_HOME", str(bin_folder.parent))
    executable(bin_folder / "spark-class", (bin_folder / "spark-submit").read_text())
    conf = {"spark.my.password": SECRET, "spark.plain": "p"}
    runs = []
    for script in (None, SPARK_SUBMIT_SCRIPT):
        if script:
            executable(bin_folder / "spark-submit", script)
        for disabled in (True, False):
            operator = operator_with_lineage(
                spark, conf=conf, capture=capture, enabled=not disabled
            )
            execute(operator, context_of(operator))
            assert operator.conf == conf
            runs.append("--properties-file" in spark.runs[-1])
            assert (SECRET in spark.runs[-1]) is not runs[-1]
            assert "spark.plain=p" in spark.runs[-1]
    # Of a wrapper, nobody knows which file it lets Spark read. Without lineage, the call is the
    # user's.
    assert runs == [False, False, False, True]


@pytest.mark.parametrize(
    "value",
    [
        SECRET,
        " a b ",
        "a=b:c#d!e",
        "back\\slash\\",
        "größe €",
        "𝄞",
        "line\nend\ttab",
        "\"quoted\" 'words'",
        "",
    ],
)
def test_values_are_the_same_from_the_file(value: str, tmp_path: Path) -> None:
    base = tmp_path / "base.conf"
    base.write_bytes(b"# comment\nspark.a b\nspark.last c\\")
    properties = {"spark.my value": value, "spark.public": "p"}
    submission = Submission(properties, base_file=base, private=frozenset({"spark.my value"}))
    shown, file = submission.hand_over()
    assert shown == {"spark.public": "p"}
    assert file is not None
    read = spark_installation._read_properties(file)
    file.unlink()
    assert read == {"spark.a": "b", "spark.last": "c", "spark.my value": value.strip()}


def test_a_killed_tasks_file_is_removed_by_a_later_attempt_on_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    submission = Submission({"spark.password": "x"}, private=frozenset({"spark.password"}))
    (tmp_path / "spark-datahub-folder").mkdir()
    left = [submission.hand_over(folder)[1] for folder in (None, tmp_path / "spark-datahub-folder")]
    assert remove_abandoned_properties() == [], "a spark-submit may just read it"
    (tmp_path / "spark-datahub-link.conf").symlink_to(tmp_path / "users")
    os.mkfifo(tmp_path / "spark-datahub-fifo.conf")
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    running = submission.hand_over()[1]
    assert running is not None
    assert remove_abandoned_properties() == left
    assert running.exists()


def test_only_properties_that_were_in_a_file_are_private() -> None:
    in_file = {
        f"{TRANSPORT}.type": "http",
        f"{TRANSPORT}.url": "http://h:1",
        f"{TRANSPORT}.auth.apiKey": SECRET,
    }
    members = f"{TRANSPORT}.transports.users"
    injected = inject(Submission(base_properties=in_file), LINEAGE).submission
    assert {f"{members}.auth.apiKey", f"{members}.url", f"{TRANSPORT}.type"} <= injected.private
    assert SECRET not in json.dumps(
        {name: injected.properties[name] for name in injected.properties.keys() - injected.private}
    )
    assert inject(injected, LINEAGE).submission == injected
    assert not inject(Submission(in_file), LINEAGE).submission.private
    options = "spark.driver.extraJavaOptions"
    assert inject(
        Submission(base_properties={options: "-Dkey.password=x"}), LINEAGE
    ).submission.private == {options}
    assert not inject(
        Submission(base_properties={options: "-XX:+UseG1GC"}), LINEAGE
    ).submission.private
