"""Time for redacting texts that are made to take long, by length: in linear time, the last column stays the same.

python benchmarks/redaction.py
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

from airflow_provider_spark_datahub.conversion import redact_text

TEXTS: dict[str, Callable[[int], str]] = {
    "URLs before as many @": lambda size: "://a:" * (size // 6) + "@" * (size // 6),
    "a URL in a URL": lambda size: "https://" + "a:b@/" * (size // 5),
    "an open quote": lambda size: 'password="' + "x" * size,
    "quotes behind backslashes": lambda size: "password='" + "\\'" * (size // 2),
    "the word alone": lambda size: "password" * (size // 8),
    "spaces": lambda size: ("pwd" + " " * 50) * (size // 53),
    "a statement": lambda size: "SELECT token_count, password_hash FROM users WHERE id = 1\n" * (size // 58),
}


def main() -> None:
    """Print one line for each text and size."""
    for name, text in TEXTS.items():
        for size in (20_000, 200_000, 2_000_000):
            hostile = text(size)
            started = process_time()
            redact_text(hostile)
            seconds = process_time() - started
            per_character = seconds / len(hostile) * 1e6
            print(f"{name:28s} {len(hostile):10,d} characters {seconds:8.3f} s {per_character:8.2f} µs/character")


if __name__ == "__main__":
    main()
