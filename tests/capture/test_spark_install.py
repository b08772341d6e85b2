from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import SparkInstallation, SparkVersions, base_properties, knows_base_file
from tests.capture.installations import SPARK_SQL_SCRIPT, SPARK_SUBMIT_SCRIPT, executable, spark_at
from tests.cases import cases

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


def test_spark_home_wins_over_the_binary(tmp_path: Path) -> None:
    executable(spark_at(tmp_path / "other", "3.5.9", "2.12") / "bin/spark-submit")
    home = spark_at(tmp_path / "spark", more_jars=["ivy-2.5.3.jar"])
    found = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(home), "PATH": str(tmp_path / "other/bin")})
    assert found is not None
    assert (found.home, found.spark_version, found.scala_version) == (home, "4.3.0", "2.13")
    assert found.ivy_jar() == home / "jars/ivy-2.5.3.jar"


def test_spark_home_without_jars_is_not_replaced_by_a_guess(tmp_path: Path) -> None:
    executable(spark_at(tmp_path / "other") / "bin/spark-submit")
    env = {"SPARK_HOME": str(tmp_path / "empty"), "PATH": str(tmp_path / "other/bin")}
    assert SparkInstallation.find("spark-submit", env) is None


def test_distribution_behind_a_link_on_the_path(tmp_path: Path) -> None:
    home = spark_at(tmp_path / "spark-3.5.9", "3.5.9", "2.12")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").symlink_to(executable(home / "bin/spark-submit"))
    found = SparkInstallation.find("spark-submit", {"PATH": str(tmp_path / "bin")})
    assert found is not None
    assert (found.home, found.spark_version, found.scala_version) == (home, "3.5.9", "2.12")


def test_pyspark_of_a_virtual_environment(tmp_path: Path) -> None:
    home = spark_at(tmp_path / "venv/lib/python3.11/site-packages/pyspark", "4.0.0.dev1")
    binary = executable(tmp_path / "venv/bin/spark-submit")
    found = SparkInstallation.find(str(binary), {"PATH": ""})
    assert found is not None
    assert (found.home, found.spark_version) == (home, "4.0.0.dev1")


def test_pyspark_of_the_interpreter_that_find_spark_home_asks(tmp_path: Path) -> None:
    spark_at(tmp_path / "venv/lib/python3.11/site-packages/pyspark", "3.5.9", "2.12")
    executable(tmp_path / "venv/bin/spark-submit")
    asked = spark_at(tmp_path / "asked/lib/python3.12/site-packages/pyspark", "4.3.0")
    python = executable(tmp_path / "asked/bin/python3")
    env = {"PATH": str(tmp_path / "venv/bin"), "PYSPARK_PYTHON": str(python)}
    found = SparkInstallation.find("spark-submit", env)
    assert found is not None
    assert found.home == asked


@pytest.mark.parametrize("more", [["spark-core_2.12-3.5.9.jar"], []])
def test_folder_with_two_sparks_or_none_is_unknown(tmp_path: Path, more: list[str]) -> None:
    home = spark_at(tmp_path / "spark", more_jars=more)
    if not more:
        (home / "jars/spark-core_2.13-4.3.0.jar").unlink()
    assert SparkInstallation.find("spark-submit", {"SPARK_HOME": str(home)}) is None


def test_scala_of_the_library_decides_and_an_unsupported_one_is_unknown(tmp_path: Path) -> None:
    found = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(spark_at(tmp_path / "spark", "2.4.8", "2.11"))})
    assert found is not None
    assert found.scala_version is None


def test_a_binary_that_is_not_on_the_path_has_no_spark(tmp_path: Path) -> None:
    assert SparkInstallation.find("spark-submit", {"PATH": str(tmp_path)}) is None
    assert SparkVersions.from_banner("spark-submit", {"PATH": str(tmp_path)}, 5) is None


def test_defaults_are_those_of_the_conf_dir(tmp_path: Path) -> None:
    home = spark_at(tmp_path / "spark")
    for folder, value in (("spark/conf", "home"), ("etc", "etc")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "spark-defaults.conf").write_text(f"spark.a {value}\nspark.b {value}\n")
    named = tmp_path / "job.conf"
    named.write_text("spark.a=job\n")
    at_home = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(home)})
    in_etc = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(home), "SPARK_CONF_DIR": str(tmp_path / "etc")})
    assert at_home is not None
    assert in_etc is not None
    assert base_properties(at_home, None) == {"spark.a": "home", "spark.b": "home"}
    assert base_properties(in_etc, None) == {"spark.a": "etc", "spark.b": "etc"}
    assert base_properties(in_etc, str(named)) == {"spark.a": "job"}
    assert base_properties(in_etc, str(named), also_defaults=True) == {"spark.a": "job", "spark.b": "etc"}
    assert base_properties(None, None) == {}


def test_without_a_defaults_file_there_are_no_defaults(tmp_path: Path) -> None:
    found = SparkInstallation.find("spark-submit", {"SPARK_HOME": str(spark_at(tmp_path / "spark"))})
    assert found is not None
    assert found.defaults() == {}


@cases("capture")
def test_properties_are_read_by_javas_rules(tmp_path: Path, text: str, properties: dict[str, str]) -> None:
    path = tmp_path / "spark.conf"
    path.write_bytes(text.encode())
    assert base_properties(None, str(path)) == properties


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_properties_are_read_in_utf_8_or_latin_1(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "spark.conf"
    path.write_bytes("spark.a caf\u00e9".encode(encoding))
    assert base_properties(None, str(path)) == {"spark.a": "caf\u00e9"}


def test_the_versions_behind_a_wrapper_are_those_of_its_banner(tmp_path: Path) -> None:
    binary = executable(tmp_path / "bin/spark3-submit", BANNER)
    assert SparkVersions.from_banner(str(binary), {"PATH": os.defpath}, 30) == SparkVersions("3.5.9", "2.12")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["#!/bin/sh\nexec sleep 60\n", "#!/bin/sh\nexit 3\n", "#!/no/such/interpreter\n"])
def test_a_command_without_a_banner_has_no_versions(tmp_path: Path, script: str) -> None:
    binary = executable(tmp_path / "spark3-submit", script)
    assert SparkVersions.from_banner(str(binary), {"PATH": os.defpath}, 0.5) is None


# Script of the command, spark-env.sh, whether the base file is known without and with --properties-file.
LAUNCHES = {
    "Spark's own": (SPARK_SUBMIT_SCRIPT, None, True, True),
    "Spark's own with variables": (SPARK_SUBMIT_SCRIPT, "# SPARK_CONF_DIR\nHADOOP_CONF_DIR=/etc/hadoop\n", True, True),
    "another folder": (SPARK_SUBMIT_SCRIPT, "export SPARK_CONF_DIR=/etc/spark\n", False, True),
    "another file": (SPARK_SUBMIT_SCRIPT, "[ -f /etc/env ] && . /etc/env\n", False, True),
    "a wrapper": ('#!/bin/sh\nexec /opt/spark/bin/spark-submit "$@"\n', None, False, False),
    "a wrapper that adds": (SPARK_SUBMIT_SCRIPT.replace('"$@"', '--conf spark.a.secret=b "$@"'), None, False, False),
    "a wrapper that sets": ("export SPARK_CONF_DIR=/etc/spark\n" + SPARK_SUBMIT_SCRIPT, None, False, False),
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
        without, named = (knows_base_file(installation, file, "spark-submit", env) for file in (None, "/a.conf"))
        found[name] = (without, named)
        assert knows_base_file(installation, None, "spark-sql", env) is without
        assert not knows_base_file(None, None, "spark-submit", env), "its layout is not known"
    assert found == {name: (without, named) for name, (_, _, without, named) in LAUNCHES.items()}
    assert not knows_base_file(None, None, "spark-other", env)
