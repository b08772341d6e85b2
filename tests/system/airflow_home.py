"""A real Airflow with a home of its own, that runs the DAGs of this folder on a real Spark."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from tests.patience import HANGS
from tests.servers.process import free_port
from tests.system.catalogue import Catalogue, file_dataset

Json = dict[str, Any]

REPOSITORY = Path(__file__).parents[2]
SPARK_ENV = REPOSITORY / ".venv-spark"
OPENLINEAGE_JAR = REPOSITORY / ".cache/jars/openlineage-spark_2.13-1.53.0.jar"
SPARK_CONNECTION = {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}
DAG_TEST_SECONDS = 800
SERVER_SECONDS = 500
SCHEDULER_SECONDS = 480
_DATABASE = "airflow.db"


def status_of(url: str) -> int:
    """Return the HTTP status of a page; 0 if the server does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=HANGS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def spark_home() -> Path:
    """Return the home of the Spark that runs the jobs.

    :raises RuntimeError: if it or the OpenLineage jar is missing.
    """
    homes = sorted(SPARK_ENV.glob("lib/python3*/site-packages/pyspark"))
    missing = [
        str(path)
        for path in (SPARK_ENV / "bin/spark-submit", OPENLINEAGE_JAR)
        if not path.is_file()
    ]
    if missing or not homes:
        raise RuntimeError(f"{', '.join(missing) or 'pyspark'} is not there: run `make setup`")
    return homes[0]


def sink_in(folder: Path) -> Path:
    """Return the folder of the connections of :func:`file_connection`."""
    return folder / "lineage"


def file_connection(folder: Path) -> Json:
    """Return a connection that writes files below a folder."""
    return {"conn_type": "datahub-file", "host": str(sink_in(folder))}


@dataclass(frozen=True)
class DagTest:
    """Result of ``airflow dags test``.

    :param succeeded: how the DAG run ended.
    :param output: everything it printed, the logs of its tasks included.
    :param reports: the ``LineageReport`` of every attempt, by ``<task id>[<map index>] try
        <number>``.
    :param folder: that of its data.
    """

    succeeded: bool
    output: str
    reports: Mapping[str, Json]
    folder: Path

    @property
    def catalogue(self) -> Catalogue:
        """What its tasks delivered into :func:`sink_in` its folder."""
        return Catalogue.of_folder(sink_in(self.folder))

    def dataset(self, path: str) -> str:
        """Return a dataset in its folder."""
        return file_dataset(self.folder / path)


@dataclass(frozen=True)
class AirflowHome:
    """``AIRFLOW_HOME`` with a migrated database.

    :param folder: a folder of this home's own.
    """

    folder: Path
    environment: dict[str, str]
    warm: WarmAirflow
    template: Path

    @classmethod
    @contextmanager
    def create(cls, folder: Path, template: Path) -> Iterator[AirflowHome]:
        """Give a new home.

        :param template: the migrated database that all homes are copies of; made if it is missing.
        """
        # Spark starts four times as fast with them.
        (folder / "spark_datahub").mkdir(parents=True, exist_ok=True)
        (folder / "spark_datahub" / "classes").symlink_to(REPOSITORY / ".cache" / "spark-classes")
        environment = _environment(folder)
        with WarmAirflow.connect(environment, template.with_suffix(".socket")) as warm:
            home = cls(folder, environment, warm, template)
            home._migrate()
            yield home

    def _migrate(self) -> None:
        with self.template.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.template.exists():
                code, output = self._airflow("db", "migrate", environment=self.environment)
                assert code == 0, output
                shutil.copyfile(self.folder / _DATABASE, self.template)
        shutil.copyfile(self.template, self.folder / _DATABASE)

    @contextmanager
    def scheduling(
        self, folder: Path, dags: str, connections: Mapping[str, Json], **variables: object
    ) -> Iterator[AirflowHome]:
        """Run a scheduler, a triggerer, an API server and a DAG processor as processes, on a
        database of their own.

        :param folder: their home; and for the package's outbox and events.
        :param dags: the only file of ``dags/`` that they know.
        """
        (folder / "dags").mkdir(parents=True)
        (folder / "dags" / dags).symlink_to(Path(__file__).parent / "dags" / dags)
        port = str(free_port())
        airflow = {
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "CORE__DAGS_FOLDER": folder / "dags",
            "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "CORE__PARALLELISM": 2,
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / _DATABASE}",
            "LOGGING__BASE_LOG_FOLDER": folder / "logs",
            "SPARK_DATAHUB__EVENTS_LOCATION": folder / "events",
            "SPARK_DATAHUB__OUTBOX_LOCATION": folder / "outbox",
        }
        settings = {f"AIRFLOW__{name}": value for name, value in airflow.items()}
        environment = self._environment_with(
            {"spark_default": SPARK_CONNECTION, **connections}, {**settings, **variables}
        )
        home = replace(self, folder=folder, environment=environment)
        home._migrate()
        with ExitStack() as processes:
            for command in (
                (
                    "api-server",
                    "--apps",
                    "execution",
                    "--host",
                    "127.0.0.1",
                    "--port",
                    port,
                    "--workers",
                    "1",
                ),
                ("dag-processor",),
                ("scheduler", "--skip-serve-logs"),
                ("triggerer", "--skip-serve-logs"),
            ):
                log = folder / f"{command[0]}.log"
                processes.enter_context(self.warm.background(command, environment, folder, log))
            yield home

    @contextmanager
    def api_server(
        self,
        folder: Path,
        users: Mapping[str, str],
        connections: Mapping[str, Json],
        path: str = "",
        **variables: object,
    ) -> Iterator[str]:
        """Run the API server with this home's database, and give its URL.

        :param folder: of its files.
        :param users: the role of each user, whose password is ``password of <user>``.
        :param path: of the URL.
        """
        url = f"http://127.0.0.1:{(port := free_port())}{path}"
        passwords, log = folder / "passwords.json", folder / "server.log"
        passwords.write_text(json.dumps({user: f"password of {user}" for user in users}))
        settings = {
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": passwords,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
                f"{user}:{role}" for user, role in users.items()
            ),
        }
        command = ("api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1")
        with self.warm.background(
            command, self._environment_with(connections, {**settings, **variables}), folder, log
        ):
            end = time.monotonic() + SERVER_SECONDS
            while status_of(f"{url}/api/v2/version") != 200:
                assert time.monotonic() < end, log.read_text()[-5000:]
                time.sleep(0.2)
            yield url

    def _environment_with(
        self, connections: Mapping[str, Json], variables: Mapping[str, object]
    ) -> dict[str, str]:
        return {
            **self.environment,
            **{
                f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection)
                for name, connection in connections.items()
            },
            **{name: str(value) for name, value in variables.items()},
        }

    def until(self, check: Callable[[], bool]) -> None:
        """Wait until the processes of :meth:`scheduling` have done something."""
        end = time.monotonic() + SCHEDULER_SECONDS
        while not check():
            if time.monotonic() > end:
                logs = [
                    f"{log}:\n{log.read_text(errors='replace')[-5000:]}"
                    for log in self.folder.glob("*.log")
                ]
                raise AssertionError("\n".join(sorted(logs)))
            time.sleep(0.2)

    def trigger(self, dag_id: str) -> None:
        """Make a run of a DAG that the scheduler is to run."""
        code, output = self._airflow("dags", "trigger", dag_id, environment=self.environment)
        assert code == 0, output

    def query(self, statement: str, *values: object) -> list[Any]:
        """Return rows of Airflow's database."""
        with closing(sqlite3.connect(self.folder / _DATABASE, timeout=60)) as database:
            return database.execute(statement, values).fetchall()

    def dags_test(
        self,
        dag_id: str,
        folder: Path,
        connections: Mapping[str, Json] | None = None,
        *,
        fresh: bool = False,
        **variables: object,
    ) -> DagTest:
        """Run a DAG of ``dags/``.

        :param folder: holds the data that its tasks read and write, and its outbox and events.
        :param connections: Airflow's connections, beside ``spark_default``; default: a file as
            ``datahub_file``.
        :param fresh: in a process of its own, which takes longer: a warm one keeps what Airflow
            reads when it starts.
        :param variables: environment variables.
        """
        reports = folder / "reports"
        reports.mkdir(parents=True)
        if connections is None:
            connections = {"datahub_file": file_connection(folder)}
        environment = self._environment_with(
            {"spark_default": SPARK_CONNECTION, **connections},
            {
                "SYSTEM_FOLDER": folder,
                "AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION": folder / "outbox",
                "AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION": folder / "events",
                **variables,
            },
        )
        if fresh:
            command = [sys.executable, "-m", "airflow", "dags", "test", dag_id]
            done = subprocess.run(
                command, env=environment, cwd=self.folder, capture_output=True, text=True,
                timeout=DAG_TEST_SECONDS, check=False,
            )  # fmt: skip
            code, output = done.returncode, done.stdout + done.stderr
        else:
            code, output = self._airflow("dags", "test", dag_id, environment=environment)
        attempts = {path.stem: json.loads(path.read_text()) for path in sorted(reports.iterdir())}
        return DagTest(code == 0, output, attempts, folder)

    def add_connection(self, name: str, conn_type: str, host: str) -> None:
        """Put a connection into the database, and nowhere else."""
        fields = ("--conn-type", conn_type, "--conn-host", host)
        code, output = self._airflow(
            "connections", "add", name, *fields, environment=self.environment
        )
        assert code == 0, output

    def connection(self, name: str) -> Json:
        """Return a connection of the database as it is, with its secrets."""
        exported = self.folder / "connections.json"
        code, output = self._airflow(
            "connections", "export", str(exported), environment=self.environment
        )
        assert code == 0, output
        return dict(json.loads(exported.read_text())[name])

    def asset_events(self, dag_id: str) -> list[tuple[str, Json]]:
        """Return URI and extra of the asset events that the tasks of a DAG made, in their order."""
        query = (
            "select uri, event.extra from asset_event event join asset on asset.id = asset_id "
            "where source_dag_id = ?"
        )
        return [
            (uri, json.loads(extra))
            for uri, extra in self.query(f"{query} order by event.id", dag_id)
        ]

    def spark_datahub(self, *arguments: str, **variables: object) -> tuple[int, str]:
        """Return the exit status of ``spark-datahub`` and its standard output.

        :param variables: environment variables.
        """
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from airflow_provider_spark_datahub.cli import app_main; app_main()",
                *arguments,
            ],
            env=self._environment_with({}, variables),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DAG_TEST_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def _airflow(self, *arguments: str, environment: Mapping[str, str]) -> tuple[int, str]:
        log = self.folder / f"{'-'.join(arguments[:3]).replace(os.sep, '-')}.log"
        code = self.warm.run(arguments, environment, self.folder, log)
        return code, log.read_text(errors="replace")


@dataclass(frozen=True)
class WarmAirflow:
    """Connection to the process that has imported Airflow, and forks for each command
    (``warm_airflow.py``).
    """

    channel: IO[str]

    @classmethod
    @contextmanager
    def connect(cls, environment: Mapping[str, str], address: Path) -> Iterator[WarmAirflow]:
        """Connect to the process of all workers, which the first one starts, and which ends after
        the last one.

        :param address: its Unix socket.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            with address.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not address.exists():
                    command = [
                        sys.executable,
                        "-P",
                        str(Path(__file__).parent / "warm_airflow.py"),
                        str(address),
                    ]
                    subprocess.run(
                        command,
                        env=dict(environment),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        check=True,
                    )
                connection.connect(str(address))
            with connection.makefile("rw") as channel:
                yield cls(channel)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> int:
        """Return the exit status of ``airflow`` with these arguments."""
        return self._ask(arguments, environment, folder, log, background=False)

    @contextmanager
    def background(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> Iterator[None]:
        """Run ``airflow`` with these arguments while this lasts; then it and its children are
        killed.
        """
        process_id = self._ask(arguments, environment, folder, log, background=True)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process_id, signal.SIGKILL)

    def _ask(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        *,
        background: bool,
    ) -> int:
        command = {
            "arguments": arguments,
            "background": background,
            "environment": dict(environment),
            "folder": str(folder),
            "log": str(log),
            "seconds": DAG_TEST_SECONDS,
        }
        self.channel.write(json.dumps(command) + "\n")
        self.channel.flush()
        return int(self.channel.readline())


def _environment(folder: Path) -> dict[str, str]:
    foreign = ("AIRFLOW", "SPARK_", "PYSPARK_", "OPENLINEAGE_", "DATAHUB_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **kept,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "dags"),
        # Otherwise only the process that writes airflow.cfg has a key: the warm one has read the
        # configuration before.
        "AIRFLOW__CORE__FERNET_KEY": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        # The warm process has read where the home of the first worker is.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / _DATABASE}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
        "AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR": str(OPENLINEAGE_JAR),
        "PATH": f"{SPARK_ENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": str(SPARK_ENV / "bin/python"),
        # The DAGs save their reports with this package.
        "PYTHONPATH": str(REPOSITORY),
        "SPARK_HOME": str(spark_home()),
        # A Spark that is killed leaves its files there.
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"],
    }
