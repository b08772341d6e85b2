"""No secret reaches the catalogue; everything else stays readable (Deviation 7)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.conversion import event_without_secrets, redact_text, redacted_trace
from airflow_provider_spark_datahub.conversion.redaction import REDACTED, redact

SECRET = "hunter2"


@pytest.mark.parametrize(
    "key",
    [
        # Spark's default of spark.redaction.regex, any case and anywhere in the key.
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
        "SPARK.AUTHENTICATE.SECRET",
        "spark.hadoop.fs.s3a.access.key",
        "fs.s3a.accessKey",
        "spark.datahub.rest.token",
        "spark.openlineage.transport.auth.accessTokenSupplier",
        # And ours.
        "spark.hadoop.google.cloud.auth.service.account.json.credentials",
    ],
)
def test_values_of_secret_keys_are_redacted(key: str) -> None:
    assert redact(key, SECRET) == REDACTED


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.app.name", "token_counter"),
        ("spark.sql.shuffle.partitions", "200"),
        ("spark.executor.cores", "4"),
        ("spark.master", "spark://master:7077"),
        ("spark.sql.warehouse.dir", "abfss://container@account.dfs.core.windows.net/wh"),
        ("spark.jars", "/opt/passwords-1.0.jar,/opt/token.jar"),
        ("spark.driver.extraJavaOptions", "-XX:+UseG1GC -Dfile.encoding=UTF-8"),
        ("spark.hadoop.fs.s3a.endpoint", "http://minio:9000"),
    ],
)
def test_other_values_are_unchanged(key: str, value: str) -> None:
    assert redact(key, value) == value


@pytest.mark.parametrize(
    ("pattern", "key", "is_secret"),
    [
        ("(?i)pin", "app.PIN", True),
        ("pin", "app.other", False),
        ("pin", "app.password", True),
        # No regular expression that is known to take linear time: any key may name a secret.
        ("(?<name", "app.password", True),
        ("(?<name", "app.other", True),
    ],
)
def test_the_jobs_own_pattern_applies_too(pattern: str, key: str, is_secret: bool) -> None:
    assert (redact(key, SECRET, pattern) == REDACTED) == is_secret


@pytest.mark.parametrize(
    "text",
    [
        # URLs.
        f"https://user:{SECRET}@example.com/path",
        f"https://:{SECRET}@example.com/path",
        f"see s3://AKIA:{SECRET}@bucket/a and s3://AKIA:{SECRET}@bucket/b",
        f"mongodb+srv://user:{SECRET}@cluster/db?retryWrites=true",
        f"https://user:p@{SECRET}@example.com",
        f"https://user:p/{SECRET}@example.com",
        f"https://example.com/?token={SECRET}&x=1",
        f"https://account.blob.core.windows.net/c?access_token={SECRET}",
        # JDBC.
        f"jdbc:postgresql://h:5432/db?user=u&password={SECRET}",
        f"jdbc:sqlserver://h:1433;databaseName=x;user=u;password={SECRET};encrypt=true",
        f"jdbc:sqlserver://h:1433;pwd={SECRET}",
        f"jdbc:sqlserver://h:1433;password=p@{SECRET}",
        f"jdbc:sqlserver://h:1433;password={{{SECRET};{SECRET}}};encrypt=true",
        f"jdbc:mysql://u:{SECRET}@h/db",
        f"jdbc:oracle:thin:scott/{SECRET}@//h:1521/service",
        f'jdbc:oracle:thin:scott/"p@{SECRET}"@//h:1521/service',
        # SQL OPTIONS, with = and without, any quotes and case.
        f"CREATE TABLE t USING jdbc OPTIONS (url 'x', password '{SECRET}')",
        f'CREATE TABLE t USING jdbc OPTIONS ("password" "{SECRET}")',
        f"CREATE TABLE t USING jdbc OPTIONS (`password`='{SECRET}', dbtable 'x')",
        f"CREATE TABLE t USING jdbc OPTIONS (PASSWORD = '{SECRET}')",
        f"CREATE TABLE t USING jdbc OPTIONS (password 'it''s {SECRET}')",
        f"CREATE TABLE t USING jdbc OPTIONS (password 'it\\'s {SECRET}')",
        # Cut in the middle, as Spark cuts job descriptions.
        f"CREATE TABLE t USING jdbc OPTIONS (password '{SECRET}",
        f"SET spark.hadoop.fs.s3a.secret.key={SECRET}",
        f"SET fs.azure.account.oauth2.client.secret = {SECRET}",
        f"SET spark.hadoop.fs.s3a.access.key={SECRET}",
        # Assignments in other notations.
        f'{{"password": "{SECRET}", "x": 1}}',
        f'{{\\"password\\": \\"{SECRET}\\", \\"x\\": 1}}',
        f"{{dbPassword={SECRET}, x=1}}",
        f"--conf spark.db.passwd={SECRET} job.py",
        f"credentials => '{SECRET}'",
    ],
)
def test_secrets_in_texts_are_redacted(text: str) -> None:
    assert SECRET not in redact_text(text)
    assert SECRET not in redact("spark.some.property", text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT token_count, password_hash FROM users",
        "SELECT count(*) FROM tokens WHERE day = '2026-01-01'",
        "INSERT INTO access_keys SELECT * FROM secrets",
        "https://example.com/a:b@c",
        "spark://host:7077",
        "jdbc:postgresql://h:5432/db?user=u",
        "jdbc:sqlserver://h:1433;user=me@example.com",
        "jdbc:oracle:thin:@//h:1521/service",
        "mongodb://h1:27017,h2:27017/db",
        "http://host:8080/user@example.com",
        "abfss://container@account.dfs.core.windows.net/path",
        "file:/lake/password/file.csv",
        "SELECT 'a' AS b",
        "save at NativeMethodAccessorImpl.java:0",
        "",
    ],
)
def test_other_texts_are_unchanged(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pw@example.com/path", "https://example.com/path"),
        ("OPTIONS (password 'x', dbtable 'orders')", f"OPTIONS (password {REDACTED}, dbtable 'orders')"),
        ("jdbc:x://h;password=pw;encrypt=true", f"jdbc:x://h;password={REDACTED};encrypt=true"),
    ],
)
def test_text_beside_a_secret_is_unchanged(text: str, expected: str) -> None:
    assert redact_text(text) == expected


pieces = st.sampled_from(
    ["password", "token", "=", ":", " ", "'", '"', "(", ")", ";", "\\", "x", "@", "/", "://", "1", "{", "}"]
)


@given(st.lists(pieces).map("".join))
def test_redacted_text_is_unchanged(text: str) -> None:
    # Redacting twice, as convert and report may do, changes nothing more.
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "password" * 20_000,
        "password " * 20_000,
        "a." * 50_000 + "password",
        "secret" + " " * 100_000 + "x",
        "password='" + "''" * 50_000,
        "pwd" + "\\" * 50_000,
        "://u:" * 20_000,
        "://" + "a:" * 50_000,
        "jdbc:oracle:thin:" + '"' * 50_000,
        "jdbc:oracle:thin:a/" * 10_000,
    ],
)
def test_every_text_takes_linear_time(text: str) -> None:
    # Statements and plans are as long as their authors like. In proportion this is well below a second.
    assert redact_text(text)


def test_a_stack_trace_has_no_secrets() -> None:
    error = RuntimeError("password=hunter2")
    error.__cause__ = OSError("cannot connect to jdbc:mysql://etl:hunter2@db/shop")
    trace = redacted_trace(error)
    assert "hunter2" not in trace
    assert "OSError: cannot connect to jdbc:mysql://db/shop" in trace
    assert "RuntimeError: password=" in trace


def test_an_event_without_secrets_is_unchanged() -> None:
    event = {"run": {"runId": "1", "facets": {"größe": [1, None, True, {"a": "b"}]}}, "job": {"name": "shop"}}
    assert json.loads(event_without_secrets(json.dumps(event).encode())) == event


def test_an_events_own_pattern_redacts_it() -> None:
    properties = {"spark.redaction.regex": "(?i)vault", "spark.my.Vault": SECRET, "spark.app.name": "shop"}
    event = {
        "run": {"facets": {"spark_properties": {"properties": properties}}},
        "inputs": [{"namespace": f"postgres://etl:{SECRET}@db:5432", "name": "orders"}],
    }
    kept = event_without_secrets(json.dumps(event).encode()).decode()
    assert SECRET not in kept
    assert "shop" in kept
    assert "orders" in kept


@pytest.mark.parametrize("event", [{}, {"run": None}, {"run": {"facets": {"spark_properties": 7}}}])
def test_an_event_of_another_shape_is_unchanged(event: dict[str, object]) -> None:
    assert json.loads(event_without_secrets(json.dumps(event).encode())) == event
