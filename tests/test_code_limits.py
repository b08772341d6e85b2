"""Limits that no linter has, but for the size of the whole (scripts/budget.py). Each test lists
every offender.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "airflow_provider_spark_datahub"
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}

MAX_FUNCTION_LINES = 60
MAX_MODULES_IN_A_FOLDER = 15

CATCHING_EVERYTHING = {
    # Lineage's own failures end where the task begins, and where the scheduler does.
    "operators/task_lineage.py": 1,
    "plugins/dag_run_listener.py": 1,
    # Makes a subclass of a user's operator while Airflow parses the DAG, which must not fail.
    "plugins/policy.py": 1,
    # A defect that one outbox entry hits ends the delivery of its task instance; the other entries
    # go on.
    "delivery/outbox/drain.py": 1,
    # Passes the error of a call on to the thread that asked for the call, which raises it.
    "delivery/deadline.py": 1,
    # Events of one attempt that the converter cannot handle must not keep other entries from being
    # delivered.
    "task/recovery.py": 1,
    # Airflow's own services, which may raise anything, become one error with a name.
    "hooks/airflow_services.py": 1,
    # Third-party code does not document which errors it raises; they become one error with a name.
    "delivery/failure.py": 1,
}
RERAISING = {
    # Collects what the job did, whatever ended it, and raises the same again.
    "operators/task_lineage.py": 1
}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of each module."""
    return {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each function's name and its number of lines, without its arguments and docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield node.name, node.end_lineno - body[0].lineno + 1 if body else 0


def broad_handlers(tree: ast.Module) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = {exception.id for exception in caught if isinstance(exception, ast.Name)}
            if node.type is None or names & {"Exception", "BaseException"}:
                yield node


def reraises(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_everything_is_caught_at_the_boundaries_only() -> None:
    catching, reraising = Counter[str](), Counter[str]()
    for name, tree in trees().items():
        for handler in broad_handlers(tree):
            (reraising if reraises(handler) else catching)[name] += 1
    assert catching == CATCHING_EVERYTHING
    assert reraising == RERAISING


def test_functions_are_short() -> None:
    too_long = [
        f"{name}: {function} has {lines} lines"
        for name, tree in trees().items()
        for function, lines in functions(tree)
        if lines > MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_modules_say_their_subject_in_the_first_line() -> None:
    first_lines = {
        name: (ast.get_docstring(tree) or "").partition("\n\n")[0] for name, tree in trees().items()
    }
    assert {name: line for name, line in first_lines.items() if not line.endswith((".", ":"))} == {}


def test_modules_are_named_by_their_subject() -> None:
    vague = {"utils", "helpers", "common", "manager"}
    assert [name for name in MODULES if vague & {*Path(name).with_suffix("").parts}] == []


def test_the_tests_of_a_module_have_its_name_or_are_in_its_docstring() -> None:
    missing: dict[str, list[str]] = {}
    for name, tree in trees().items():
        path = Path(name)
        own = Path("tests", *path.parts[:-1][:1], f"test_{path.stem}.py")
        named = re.findall(
            r"``(tests/[\w/]+\.py)``", (ast.get_docstring(tree) or "").partition("\n\nTests: ")[2]
        )
        files = [Path(text) for text in named] or [own]
        if path.stem != "__init__" and not all((PACKAGE.parent / file).is_file() for file in files):
            missing[name] = [*map(str, files)]
    assert missing == {}


def test_folders_are_small() -> None:
    sizes = Counter(str(Path(name).parent) for name in MODULES if not name.endswith("__init__.py"))
    assert {folder: size for folder, size in sizes.items() if size > MAX_MODULES_IN_A_FOLDER} == {}


def imports() -> dict[str, set[str]]:
    """Return the modules of the package that each module imports, within functions and for types,
    too; no doors.
    """
    dotted = {
        f"{PACKAGE.name}.{name.removesuffix('.py').replace('/', '.')}": name for name in MODULES
    }
    graph: dict[str, set[str]] = {}
    for name, tree in trees().items():
        found: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        graph[name] = {dotted[module] for module in found if module in dotted}
    return graph


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = imports()
    assert sum(map(len, graph.values())) > 200
    while leaves := [name for name, imported in graph.items() if not imported & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert {name: sorted(imported & graph.keys()) for name, imported in graph.items()} == {}
