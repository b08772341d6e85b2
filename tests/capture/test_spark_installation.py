from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import (
    SparkInstallation,
    banner_versions,
    base_properties,
)
from airflow_provider_spark_datahub.capture.spark_installation import knows_base_file
from tests.capture.installations import SPARK_SQL_SCRIPT, SPARK_SUBMIT_SCRIPT, executable, spark_at
from tests.cases import cases, filled

BANNER = """#!/bin/sh
cat >&2 <<'END'
Welcome to
      ____              __
     / __/__  ___ _____/ /__
    _\\ \\/ _ \\/ _ `/ __/  '_/
   /___/ .__/\\_,_/_/ /_/\\_\\   version 3.5.9
      /_/

Using Scala version 2.12.18, OpenJDK 64-Bit Server VM, 17.0.15
END
"""


@cases("capture")
def test_the_spark_that_a_command_starts_is_found(
    tmp_path: Path,
    sparks: dict[str, list[str]],
    executables: list[str],
    links: dict[str, str],
    command: str,
    env: dict[str, str],
    found: list[str | None] | None,
) -> None:
    for folder, (spark, scala, *more_jars) in sparks.items():
        spark_at(tmp_path / folder, spark, scala, more_jars=more_jars)
    for path in executables:
        executable(tmp_path / path)
    for link, target in links.items():
        (tmp_path / link).parent.mkdir()
        (tmp_path / link).symlink_to(tmp_path / target)
    command, env = filled([command, env], {"tmp": tmp_path})
    spark_here = SparkInstallation.find(command, env)
    assert (spark_here is None) == (found is None)
    if spark_here is not None and found is not None:
        home = spark_here.home.relative_to(tmp_path).as_posix()
        assert [home, spark_here.spark_version, spark_here.scala_version] == found


def test_a_folder_with_jars_of_no_spark_is_unknown(tmp_path: Path) -> None:
    home = spark_at(tmp_path / "spark", more_jars=["ivy-2.5.3.jar"])
    found = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(home)})
    assert found is not None
    assert found.ivy_jar() == home / "jars/ivy-2.5.3.jar"
    (home / "jars/spark-core_2.13-4.3.0.jar").unlink()
    assert SparkInstallation.find("spark-submit", {"SPARK_HOME": str(home)}) is None


def test_a_binary_that_is_not_on_the_path_has_no_banner(tmp_path: Path) -> None:
    assert banner_versions("spark-submit", {"PATH": str(tmp_path)}, 5) is None


def test_defaults_are_those_of_the_conf_dir(tmp_path: Path) -> None:
    home = spark_at(tmp_path / "spark")
    for folder, value in (("spark/conf", "home"), ("etc", "etc")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "spark-defaults.conf").write_text(
            f"spark.a {value}\nspark.b {value}\n"
        )
    named = tmp_path / "job.conf"
    named.write_text("spark.a=job\n")
    at_home = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(home)})
    in_etc = SparkInstallation.find(
        "spark-submit", {"SPARK_HOME": str(home), "SPARK_CONF_DIR": str(tmp_path / "etc")}
    )
    assert at_home is not None
    assert in_etc is not None
    assert base_properties(at_home, None) == {"spark.a": "home", "spark.b": "home"}
    assert base_properties(in_etc, None) == {"spark.a": "etc", "spark.b": "etc"}
    assert base_properties(in_etc, str(named)) == {"spark.a": "job"}
    assert base_properties(in_etc, str(named), also_defaults=True) == {
        "spark.a": "job",
        "spark.b": "etc",
    }
    assert base_properties(None, None) == {}


@cases("capture")
def test_properties_are_read_by_javas_rules(
    tmp_path: Path, text: str, properties: dict[str, str]
) -> None:
    path = tmp_path / "spark.conf"
    path.write_bytes(text.encode())
    assert base_properties(None, str(path)) == properties


@pytest.mark.parametrize(("encoding", "value"), [("utf-8", "caf\u00e9"), ("latin-1", "caf\ufffd")])
def test_properties_are_read_in_utf_8_as_spark_reads_them(
    tmp_path: Path, encoding: str, value: str
) -> None:
    path = tmp_path / "spark.conf"
    path.write_bytes("spark.a caf\u00e9".encode(encoding))
    assert base_properties(None, str(path)) == {"spark.a": value}


def test_the_versions_behind_a_wrapper_are_those_of_its_banner(tmp_path: Path) -> None:
    binary = executable(tmp_path / "bin/spark3-submit", BANNER)
    assert banner_versions(str(binary), {"PATH": os.defpath}, 30) == ("3.5.9", "2.12")


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", ["#!/bin/sh\nexec sleep 60\n", "#!/bin/sh\nexit 3\n", "#!/no/such/interpreter\n"]
)
def test_a_command_without_a_banner_has_no_versions(tmp_path: Path, script: str) -> None:
    binary = executable(tmp_path / "spark3-submit", script)
    assert banner_versions(str(binary), {"PATH": os.defpath}, 0.5) is None


# Script of the command, spark-env.sh, whether the base file is known without and with
# --properties-file.
LAUNCHES = {
    "Spark's own": (SPARK_SUBMIT_SCRIPT, None, True, True),
    "Spark's own with variables": (
        SPARK_SUBMIT_SCRIPT,
        "# SPARK_CONF_DIR\nHADOOP_CONF_DIR=/etc/hadoop\n",
        True,
        True,
    ),
    "another folder": (SPARK_SUBMIT_SCRIPT, "export SPARK_CONF_DIR=/etc/spark\n", False, True),
    "another file": (SPARK_SUBMIT_SCRIPT, "[ -f /etc/env ] && . /etc/env\n", False, True),
    "a wrapper": ('#!/bin/sh\nexec /opt/spark/bin/spark-submit "$@"\n', None, False, False),
    "a wrapper that adds": (
        SPARK_SUBMIT_SCRIPT.replace('"$@"', '--conf spark.a.secret=b "$@"'),
        None,
        False,
        False,
    ),
    "a wrapper that sets": (
        "export SPARK_CONF_DIR=/etc/spark\n" + SPARK_SUBMIT_SCRIPT,
        None,
        False,
        False,
    ),
    "no script": ("\x7fELF\udcff", None, False, False),
}


def test_the_base_file_is_known_if_no_wrapper_can_choose_another_one(tmp_path: Path) -> None:
    home = spark_at(tmp_path / "spark")
    binary, env_script = home / "bin/spark-submit", home / "conf/spark-env.sh"
    env_script.parent.mkdir()
    env = {"PATH": str(binary.parent), "SPARK_HOME": str(home)}
    executable(home / "bin/spark-sql", SPARK_SQL_SCRIPT)
    found = {}
    for name, (script, env_lines, *_) in LAUNCHES.items():
        executable(binary).write_bytes(script.encode(errors="surrogateescape"))
        env_script.unlink(missing_ok=True)
        if env_lines is not None:
            env_script.write_text(env_lines)
        installation = SparkInstallation.find("spark-submit", env)
        without, named = (
            knows_base_file(installation, file, "spark-submit", env) for file in (None, "/a.conf")
        )
        found[name] = (without, named)
        assert knows_base_file(installation, None, "spark-sql", env) is without
        assert not knows_base_file(None, None, "spark-submit", env), "its layout is not known"
    assert found == {name: (without, named) for name, (_, _, without, named) in LAUNCHES.items()}
    assert not knows_base_file(None, None, "spark-other", env)
