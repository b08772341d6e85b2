from __future__ import annotations

from airflow_provider_spark_datahub.capture import Submission
from tests.cases import cases


@cases("capture")
def test_properties_override_those_of_the_file(
    properties: dict[str, object], base: dict[str, str], seen: str | None
) -> None:
    submission = Submission(properties, base_properties=base)
    assert submission.effective("spark.a") == seen
    assert submission.effective_properties().get("spark.a") == seen


def test_options_override_their_properties() -> None:
    properties = {
        "spark.jars": "conf.jar",
        "spark.jars.packages": "g:conf:1",
        "spark.jars.repositories": "https://conf",
        "spark.driver.extraClassPath": "/conf/*",
    }
    by_conf = Submission(properties)
    by_option = Submission(properties, "/a.jar, /b.jar,", "g:a:1", "/opt:/lib/*", "https://one,https://two")
    assert by_conf.effective_jars() == ("conf.jar",)
    assert by_option.effective_jars() == ("/a.jar", "/b.jar")
    assert by_conf.effective_packages() == ("g:conf:1",)
    assert by_option.effective_packages() == ("g:a:1",)
    assert by_conf.effective_repositories() == ("https://conf",)
    assert by_option.effective_repositories() == ("https://one", "https://two")
    assert by_conf.effective_driver_class_path() == ("/conf/*",)
    assert by_option.effective_driver_class_path() == ("/opt", "/lib/*")


@cases("capture")
def test_the_setting_that_switches_the_listener_off_is_named(
    properties: dict[str, object], env: dict[str, str], by: str | None
) -> None:
    assert Submission(properties).disabled_by(env) == by
    defaults = {name: str(value) for name, value in properties.items()}
    assert Submission(base_properties=defaults).disabled_by(env) == by
