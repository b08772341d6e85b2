"""Real servers for tests, on free loopback ports, from the files that `make servers` fetched."""

from pathlib import Path

FILES = Path(__file__).parents[2] / ".cache" / "servers"
