"""Check the size of the project against the budget in pyproject.toml, and print the room left.

    make budget

A feature that needs more room makes it first; no commit raises a figure.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "airflow_provider_spark_datahub"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.ENCODING,
    }
)
_OPTION_ROW = re.compile(r"^\| `", re.MULTILINE)


def measured() -> dict[str, int]:
    """Return the project's size: the figures of ``[tool.budget]``."""
    files = sorted(PACKAGE.rglob("*.py"))
    trees = [ast.parse(path.read_bytes()) for path in files]
    return {
        "package-tokens": sum(map(_tokens, files)),
        "modules": sum(path.name != "__init__.py" for path in files),
        "public-names": sum(1 for tree in trees for _ in _public_names(tree)),
        "imports-in-functions": sum(1 for tree in trees for _ in _late_imports(tree)),
        "option-rows": len(
            _OPTION_ROW.findall((ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"))
        ),
        "docs-words": sum(
            len(page.read_text(encoding="utf-8").split()) for page in (ROOT / "docs").rglob("*.md")
        ),
        "test-tokens": sum(map(_tokens, _tests())),
        "benchmark-and-script-tokens": sum(map(_tokens, _programs())),
    }


def _tests() -> Iterator[Path]:
    """Yield the modules of the tests. Recorded jobs are data."""
    for path in (ROOT / "tests").rglob("*.py"):
        if "data" not in path.parts:
            yield path


def _programs() -> Iterator[Path]:
    """Yield the benchmarks and scripts."""
    for folder in ("benchmarks", "scripts"):
        yield from (ROOT / folder).glob("*.py")


def _tokens(path: Path) -> int:
    """Count the tokens of code: no layout squeezes them, unlike lines."""
    text = path.read_text(encoding="utf-8")
    documented = {line for node in ast.walk(ast.parse(text)) for line in _documented_lines(node)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in _LAYOUT and token.start[0] not in documented for token in tokens)


def _documented_lines(node: ast.AST) -> range:
    """Return the lines of a docstring, also of an attribute."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def _public_names(tree: ast.Module) -> Iterator[str]:
    """Yield the public functions and classes of a module."""
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)) and not node.name.startswith("_"):
            yield node.name


def _late_imports(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the import statements inside functions, each once."""
    seen: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, _FUNCTIONS):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno not in seen:
                    seen.add(node.lineno)
                    yield node


def main() -> int:
    """Print size, budget and rest of each figure; return 1 if any is over its budget."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    budget: dict[str, int] = project["tool"]["budget"]
    size = measured()
    if size.keys() != budget.keys():
        print(f"[tool.budget] in pyproject.toml needs exactly these figures: {', '.join(size)}")
        return 1
    print(f"{'':28}{'size':>8}{'budget':>8}{'left':>8}")
    for name, value in size.items():
        print(f"{name:28}{value:8,}{budget[name]:8,}{budget[name] - value:8,}")
    over = [name for name, value in size.items() if value > budget[name]]
    if over:
        print(f"Over budget: {', '.join(over)}. Make room first: no commit raises a figure.")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
