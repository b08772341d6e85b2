"""Memory of a real API server with this package and without it, at rest and after its page was shown.

Without it, its distribution is hidden from the server, so that Airflow finds neither plugin nor provider. Prints the
proportional set size (PSS) of the server's processes: memory that several share counts once.

    python benchmarks/api_server_memory.py
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers.process import free_port

HIDE = """
import importlib.metadata
import importlib_metadata
for module in (importlib.metadata, importlib_metadata):
    def distributions(found=module.distributions, **kwargs):
        return (each for each in found(**kwargs) if "spark-datahub" not in str(each.metadata["Name"]))
    module.distributions = distributions
"""
START_SECONDS = 300


def mebibytes(group: int) -> float:
    """Return the PSS of all processes of a process group."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group:
                total += int(re.search(r"^Pss:\s+(\d+)", (folder / "smaps_rollup").read_text(), re.MULTILINE)[1])  # type: ignore[index]
        except OSError:
            continue
    return total / 1024


def status(url: str) -> int:
    """Return the HTTP status of a request; 0 if the server does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def measured(folder: Path, *, with_package: bool) -> tuple[float, float]:
    """Return the memory of a server at rest, and after its first requests of the page."""
    port = free_port()
    hiding = folder / "hiding"
    hiding.mkdir(exist_ok=True)
    (hiding / "sitecustomize.py").write_text("" if with_package else HIDE)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "PYTHONPATH": os.pathsep.join([str(hiding), str(Path(__file__).parents[1])]),
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
    }
    airflow = str(Path(sys.executable).parent / "airflow")
    with (folder / "log").open("a") as log:
        subprocess.run([airflow, "db", "migrate"], env=environment, stdout=log, stderr=log, check=True)
        command = [airflow, "api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        until = time.monotonic() + START_SECONDS
        while status(f"http://127.0.0.1:{port}/api/v2/version") != 200:
            assert time.monotonic() < until, (folder / "log").read_text()[-3000:]
            time.sleep(1)
        time.sleep(5)
        at_rest = mebibytes(server.pid)
        token = urllib.request.urlopen(f"http://127.0.0.1:{port}/auth/token", timeout=60).read()
        bearer = re.search(rb'"access_token":"([^"]+)"', token)[1].decode()  # type: ignore[index]
        for path in ("spark-datahub/runs", "api/v2/dags"):
            url = f"http://127.0.0.1:{port}/{path}"
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {bearer}"})
            answer = urllib.request.urlopen(request, timeout=120).read()
            assert path != "spark-datahub/runs" or (b"<h1><bdi>Spark lineage" in answer) == with_package, answer[:300]
        return at_rest, mebibytes(server.pid)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        for with_package in (True, False, True, False):
            at_rest, shown = measured(Path(folder), with_package=with_package)
            name = "with" if with_package else "without"
            print(f"{name:8} at rest {at_rest:6.1f} MiB, after requests {shown:6.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
