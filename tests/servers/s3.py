"""S3Proxy on a folder: an S3 server that checks signatures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.servers.process import Server, files_of, free_port, java

ACCESS_KEY, SECRET_KEY = "lineage-key", "canary-s3-secret"


class S3(Server):
    """An S3 server with one pair of keys; its buckets are the folders of :attr:`folder`.

    :ivar url: its end point.
    """

    scheme = "s3"

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.folder = folder / "buckets"
        self.folder.mkdir()
        properties = folder / "s3proxy.conf"
        properties.write_text(
            f"s3proxy.endpoint={self.url}\n"
            "s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={ACCESS_KEY}\n"
            f"s3proxy.credential={SECRET_KEY}\n"
            # It does not know the checksums that newer clients send.
            "s3proxy.ignore-unknown-headers=true\n"
            "jclouds.provider=filesystem-nio2\n"
            f"jclouds.filesystem.basedir={self.folder}\n"
            "jclouds.identity=unused\n"
            "jclouds.credential=unused\n"
        )
        jar = files_of("s3") / "s3proxy-2.9.0-jar-with-dependencies.jar"
        command = [
            java(),
            "-Xmx32m",
            "-Xss256k",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-jar",
            str(jar),
        ]
        super().__init__(
            [*command, "--properties", str(properties)], self._answering, folder / "s3.log"
        )

    def make_bucket(self, name: str) -> Path:
        """Make a bucket, and return its folder."""
        bucket = self.folder / name
        bucket.mkdir()
        return bucket

    def connection(self, **changes: object) -> dict[str, object]:
        """Return the Airflow connection that reaches it."""
        extra = {"endpoint_url": self.url, "region_name": "us-east-1"}
        return {
            "conn_type": "aws",
            "login": ACCESS_KEY,
            "password": SECRET_KEY,
            "extra": extra,
            **changes,
        }

    def _answering(self) -> bool:
        try:
            return requests.get(self.url, timeout=2).status_code == 403
        except (requests.ConnectionError, requests.Timeout):
            return False

    @contextmanager
    def without_bucket(self, name: str) -> Iterator[None]:
        """While this lasts, the bucket is gone."""
        aside = self.folder.parent / name
        (self.folder / name).rename(aside)
        try:
            yield
        finally:
            aside.rename(self.folder / name)
