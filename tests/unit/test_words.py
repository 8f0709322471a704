"""The words that docs/glossary.md does without, counted: each number may only fall."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = sorted((REPOSITORY / "workflow/inferprof").rglob("*.py"))
PAGES = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
GLOSSARY = REPOSITORY / "docs/glossary.md"
VARIABLES = dict.fromkeys(("one", "found", "known", "told"), 0)
"""Variable of the package → how many places may still give one of that name a value."""
IDENTIFIERS = dict.fromkeys(("stay", "lesser", "twin", "dearest", "mendable"), 0)
"""Word → how many names of the package (of variables, attributes, functions, classes, columns) may still have it."""
TEXTS = dict.fromkeys(("lesser provider", "twin", "dearest", "mendable"), 0)
"""Word → how often it may still stand in the package's texts and in the pages. `stay` is a verb too."""


def variables(tree: ast.AST) -> Iterator[str]:
    """Each name that is given a value: assigned, looped over, caught, or a parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Each name that is written, and each text that could be one: a column, a key."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(name := getattr(node, field, None), str):
                yield name
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


def words(names: Iterator[str]) -> Iterator[str]:
    """The words of names, in the singular: of `twins_without` and `_TwinCase` it is `twin`."""
    for name in names:
        for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name):
            yield word.lower().removesuffix("s")


def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in MODULES]


def test_no_more_variables_hide_what_they_hold() -> None:
    count = Counter(name for tree in trees() for name in variables(tree))
    assert {name: count[name] for name, most in VARIABLES.items() if count[name] > most} == {}


def test_no_more_names_have_words_of_our_own() -> None:
    count = Counter(word for tree in trees() for word in words(identifiers(tree)))
    assert {word: count[word] for word, most in IDENTIFIERS.items() if count[word] > most} == {}


def test_no_more_texts_have_words_of_our_own() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*MODULES, *PAGES) if path != GLOSSARY)
    count = {word: len(re.findall(rf"\b{word}s?\b", " ".join(text.split()), re.IGNORECASE)) for word in TEXTS}
    assert {word: count[word] for word, most in TEXTS.items() if count[word] > most} == {}


def test_the_glossary_has_every_word_that_is_counted() -> None:
    section = GLOSSARY.read_text(encoding="utf-8").split("## Words that are not used")[1]
    listed = [word.strip("`") for word in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[2:]]
    counted = {*VARIABLES, *IDENTIFIERS, *TEXTS} - {"lesser"}
    assert sorted(listed) == sorted(counted)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("for one in rows:\n    known = one", ["known", "one"]),
        ("def f(told): return found", ["told"]),
        ("found: int = 1\n[x for x in (y := [])]", ["found", "x", "y"]),
        ("found()", []),
    ],
)
def test_a_variable_is_what_is_given_a_value(code: str, expected: list[str]) -> None:
    assert sorted(variables(ast.parse(code))) == expected


def test_words_of_names_are_counted_one_by_one() -> None:
    code = "class _TwinCase: pass\nfrom a import mendable\nrow['stays_high']; x.twins_without('a stay')"
    count = Counter(words(identifiers(ast.parse(code))))
    assert (count["twin"], count["mendable"], count["stay"], count["case"]) == (2, 1, 1, 1)


def test_the_glossary_points_at_what_there_is() -> None:
    text = GLOSSARY.read_text(encoding="utf-8").split("## Words that are not used")[0]
    places = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|", text, re.MULTILINE)
    named = {word.rstrip(":").split(".")[-1] for place in places for word in re.findall(r"`([\w.]+:?)`", place)}
    source = "".join(path.read_text(encoding="utf-8") for path in MODULES)
    assert len(named) > 30
    assert {name for name in named if not re.search(rf"\b{name}\b", source)} == set()
