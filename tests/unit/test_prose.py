"""Tests hold behaviour, not prose: those that compare with sentences are counted, and may only become fewer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
WORDS = 5
"""Of so many words a string is a sentence."""
_WORD = re.compile(r"\S*[A-Za-z]\S*")
CEILING = 13
"""Test functions that compare with one: lower it when there are fewer, never raise it; wording is for the goldens."""
READS = frozenset(["startswith", "endswith", "index", "count", "find", "search", "match", "fullmatch", "findall"])
"""Calls that compare with what they are given; what other calls are given is input."""


def sentences(node: ast.AST) -> Iterator[str]:
    """The strings of so many words that an expression compares with."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    else:
        for part in ast.iter_child_nodes(node) if not isinstance(node, ast.Call) else parts_of_call(node):
            yield from sentences(part)
        return
    if len(_WORD.findall(text)) >= WORDS:
        yield text


def parts_of_call(node: ast.Call) -> list[ast.expr]:
    """What of a call takes part in a comparison."""
    reads = isinstance(node.func, ast.Attribute) and node.func.attr in READS
    return [node.func, *(node.args if reads else [])]


def asserted(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What a test asserts, and the patterns of the errors that it expects."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            yield node.test
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("raises", "warns")
        ):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "match")


def pinned(source: str) -> list[str]:
    """The test functions of a module that compare with sentences."""
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    tests = (function for function in functions if function.name.startswith("test_"))
    return [test.name for test in tests if any(True for part in asserted(test) for _ in sentences(part))]


def test_no_more_tests_than_before_compare_with_sentences() -> None:
    counts = {
        str(path.relative_to(TESTS)): len(pinned(path.read_text(encoding="utf-8")))
        for path in sorted(TESTS.rglob("test_*.py"))
    }
    total = sum(counts.values())
    report = "\n".join(f"{count:4} {path}" for path, count in counts.items() if count)
    assert total <= CEILING, f"{total} tests compare with sentences, {CEILING} are allowed:\n{report}"


def test_the_counter_counts_what_is_compared_and_not_what_is_given() -> None:
    source = """
def test_a(): assert x == ("b", f"five words with {n} in it")
def test_b(): assert x.startswith("one two three four five") and y
def test_c():
    with pytest.raises(E, match="one two three four five"):
        f()
def test_d(): assert f("one two three four five") == "one two three four"
def helper(): assert x == "one two three four five"
"""
    assert pinned(source) == ["test_a", "test_b", "test_c"]
