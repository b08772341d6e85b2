"""Check that code, documentation and messages use the project's words: docs/glossary.md.

    python scripts/check_words.py [FILE...]

Without files, checks every Python file, shell script, Makefile and Markdown file of the repository,
except recorded data. Prints file:line, the word and what to write instead, and exits with 1 if
there is any. A line that quotes others and must keep the word ends in a comment with ``words:
quote``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
QUOTE = "words: quote"
RECORDED = "tests/data/"
# Edges of words; in names, an underscore is one.
_START, _END = r"(?<![a-zA-Z0-9])", r"(?![a-zA-Z0-9])"
_COMPARISONS = "longer|more|less|fewer|later|earlier|newer|older|one"

BANNED = {
    r"untold": "unreported",
    r"(told|(?<!\.)tells?|telling)": "report, emit, record, name, know, mark, deliver, say",
    r"alike": "equal, the same, both",
    r"so[ _]far": "until now, incremental; often nothing",
    r"what (is|are|was|were) said": "the name of the thing: a proposal, an event, a message",
    rf"(?<!there )(is|are|was|were) no (?!{_COMPARISONS})[a-z]\w*": "is not a, lacks",
    r"of which": "two sentences, or that/which with a verb",
    r"the one that": "the name of the thing",
    r"all the same": "anyway, nevertheless, still",
    r"what (is|are|was|were)": "the name of the thing",
}
_PATTERNS = [
    (re.compile(f"{_START}{word}{_END}", re.IGNORECASE), better) for word, better in BANNED.items()
]


def problems(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line number of each banned word, the word, and a better one."""
    for number, line in enumerate(text.splitlines(), 1):
        if QUOTE not in line:
            for pattern, better in _PATTERNS:
                for match in pattern.finditer(line):
                    yield number, match.group(), better


def checked_files() -> Iterator[Path]:
    """Yield the repository's files that people write in words."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in sorted(set(names)):
        path = REPOSITORY / name
        is_prose = (
            path.suffix in (".py", ".md")
            or name.startswith(("scripts/", ".ci/"))
            or name == "Makefile"
        )
        if (
            is_prose
            and path.is_file()
            and not name.startswith(RECORDED)
            and path != Path(__file__).resolve()
        ):
            yield path


def main(arguments: list[str]) -> int:
    """Print the problems of the files; return the exit code."""
    files = [
        path for name in arguments if (path := Path(name).resolve()) != Path(__file__).resolve()
    ]
    found = 0
    for path in files or checked_files():
        name = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path
        for number, word, better in problems(path.read_text(encoding="utf-8")):
            print(f"{name}:{number}: {word!r}: write {better}")
            found += 1
    if found:
        print(
            f"{found} words that docs/glossary.md does not want; end a line that quotes others in `{QUOTE}`."
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
