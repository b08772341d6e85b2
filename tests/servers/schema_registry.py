"""Apicurio Registry, in memory, with the interface of Confluent's schema registry."""

from __future__ import annotations

from pathlib import Path

import requests

from tests.servers.process import Server, files_of, free_port, java


class SchemaRegistry(Server):
    """A registry that forgets everything when it stops.

    :ivar url: what clients are configured with.
    """

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        runner = files_of("schema-registry") / "apicurio-registry-app-2.6.13.Final-runner.jar"
        command = [
            java(),
            "-Xms16m",
            "-Xmx80m",
            "-Xss256k",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
        ]
        command += [
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={port}",
            "-jar",
            str(runner),
        ]
        super().__init__(command, self._answering, folder / "schema-registry.log")

    def _answering(self) -> bool:
        try:
            return requests.get(f"{self.url}/subjects", timeout=2).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    def subjects(self) -> list[str]:
        """Return the subjects that it has schemas of."""
        found: list[str] = requests.get(f"{self.url}/subjects", timeout=10).json()
        return found

    def register(self, subject: str, schema: str) -> None:
        """Make ``schema`` the subject's, which later ones must be compatible with."""
        versions = f"{self.url}/subjects/{subject}/versions"
        requests.post(versions, json={"schema": schema}, timeout=10).raise_for_status()
        requests.put(
            f"{self.url}/config/{subject}", json={"compatibility": "BACKWARD"}, timeout=10
        ).raise_for_status()
