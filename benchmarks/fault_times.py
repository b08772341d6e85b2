"""How long lineage takes while its destination fails, as a share of the budget that it has (``lineage_timeout``).

    python benchmarks/fault_times.py [PYTEST-OPTIONS]

Runs the tests of the fault matrix and reads what they recorded: one line per fault, the longest of its policies last.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

REPOSITORY = Path(__file__).resolve().parent.parent
TESTS = ("tests/reliability/test_fault_matrix.py", "tests/reliability/test_server_faults.py")


def shares(options: list[str]) -> dict[str, list[float]]:
    """By fault, of each policy."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", "-ojunit_family=xunit1", *TESTS]
        subprocess.run([*command, *options], cwd=REPOSITORY, check=True, stdout=sys.stderr)
        found: dict[str, list[float]] = defaultdict(list)
        for case in ET.parse(report).iter("testcase"):
            name = case.attrib["name"].partition("[")[2].rpartition("-")[0]
            found[name] += [float(one.attrib["value"]) for one in case.iter("property")]
    return found


def main() -> None:
    """Print the shares."""
    found = {fault: values for fault, values in shares(sys.argv[1:]).items() if values}
    for fault, values in found.items():
        print(f"{fault:<40} {' '.join(f'{value:.2f}' for value in sorted(values))}")
    print(f"{'the longest':<40} {max(map(max, found.values())):.2f}")


if __name__ == "__main__":
    main()
