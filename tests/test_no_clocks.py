"""No test depends on the speed of the machine: none is held to seconds, only hangs are ended.

A machine that is shared is 20 times slower at times. `tests.calls` holds what a function costs.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
HANGS = 300  # seconds: what takes longer on a busy machine hangs
CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
ENDING = {"wait", "result"}  # methods whose first argument ends a wait
SUSPECT = re.compile(r"timeout=|\.(?:wait|result)\(\d|_counter\(\)|_time\(\)|monotonic|DEADLINE =")


def number(node: ast.AST | None) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    return None


def asks_a_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", None) in CLOCKS


def is_elapsed(node: ast.AST) -> bool:
    """A difference from a clock, as in `time.monotonic() - began`."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and asks_a_clock(node.left)


def short_limits(text: str) -> Iterator[str]:
    """Lines that end a wait or compare elapsed time with fewer seconds than HANGS."""
    for node in ast.walk(ast.parse(text)):
        limits: list[ast.AST | None] = []
        if isinstance(node, ast.Call):
            limits = [word.value for word in node.keywords if word.arg == "timeout"]
            if isinstance(node.func, ast.Attribute) and node.func.attr in ENDING:
                limits += node.args[:1]
            elif getattr(node.func, "id", "") == "wait":  # of futures that are to wait still
                limits = []
        elif isinstance(node, ast.Compare) and is_elapsed(node.left):
            limits = list(node.comparators)
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DEADLINE":
            limits = [node.value]
        for limit in map(number, limits):
            if limit is not None and limit < HANGS:
                yield f"{node.lineno}: {ast.unparse(node)[:90]}"


def test_no_test_is_held_to_seconds() -> None:
    files = {file: file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py")}
    wrong = [
        f"{file.relative_to(TESTS)}:{line}"
        for file, text in files.items()
        if "browser" not in file.parts and SUSPECT.search(text)
        for line in short_limits(text)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("subprocess.run(words, timeout=60)", 1),
        ("process.wait(5)", 1),
        ("assert time.process_time() - began < 0.5", 1),
        ("DEADLINE = 30", 1),
        ("process.communicate(timeout=DEADLINE)", 0),
        ("process.communicate(timeout=9)", 1),
        ("assert time.monotonic() < deadline", 0),
        ("assert not wait([waiting], timeout=0.5).done", 0),
        ("checkpoints.wait()", 0),
        ("process.wait(600)", 0),
    ],
)
def test_what_counts_as_a_limit(text: str, found: int) -> None:
    assert len(list(short_limits(text))) == found
