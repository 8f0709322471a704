"""What a sentence says apart from its words: its numbers, its names and its decisions.

A test that holds these holds what was measured and decided, and lets the wording change, which golden reports hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

UNITS = frozenset(re.findall(r"\S+", "% ns µs ms s B KB MB GB KiB MiB GiB GB/s TB/s MHz W J dB"))
DECISIONS = frozenset(
    re.findall(
        r"\w+",
        "faster fastest slower slowest above below more most less least longer larger largest smaller "
        "smallest best no not none nothing never cannot only without one all another pass passed passes warn "
        "fail failed broke refused excluded clear unknown true false default device call execution copies "
        "copy launches kernels sync queued nsys ncu kineto torch tensorrt inferprof ",
    )
)
"""Plain words that are a result or a name: a direction, a verdict, how many, a clock, a part of the time, a tool."""

_TOKEN = re.compile(r"`[^`]+`|\S+")
_NUMBER = re.compile(r"[-+±×~]?\d[\d,.]*")
_NAME = re.compile(r"[\d_/*$@\\=]|--\w|\w\.\w|[A-Za-z][A-Z]")


def facts(text: str | None, *names: str) -> list[str]:
    """The numbers (with their units), names, options and decisions in a text, in their order.

    `names`: words that look like any other and are names here.
    """
    assert text is not None
    stated: list[str] = []
    number, begins = False, True
    for match in _TOKEN.finditer(text):
        token = match.group().strip(",;:.!?()[]{}'\"`„“”|").removesuffix("'s")
        if number and token in UNITS:
            stated[-1] += f" {token}"
        elif re.search(r"\w", token) and (
            token in {*DECISIONS, *names}
            or match.group().startswith("`")
            or _NAME.search(token)
            or (token[0].isupper() and not begins)
        ):
            stated.append(token)
        number = bool(_NUMBER.fullmatch(token))
        begins = match.group()[-1] in ".:!?"
    return stated


def states(text: str | None, *expected: str) -> bool:
    """Whether these facts and names stand in a text one after the other, with no other fact between them."""
    given, wanted = facts(text, *expected), list(expected)
    return any(given[at : at + len(wanted)] == wanted for at in range(len(given) - len(wanted) + 1))


def naming(*parts: str) -> str:
    """The pattern, for pytest.raises, of a message that has these in their order, and no word of them in part."""
    return "(?s)" + ".*".join(
        r"\b" * bool(re.match(r"\w", part)) + re.escape(part) + r"\b" * bool(re.search(r"\w\Z", part))
        for part in parts
    )


def mentions(text: str | None, *parts: str) -> bool:
    """Whether a text has these in their order."""
    assert text is not None
    return re.search(naming(*parts), text) is not None


def reason_alone(document: Mapping[str, object]) -> str:
    """Why something was not measured, where a document says that and nothing else."""
    assert set(document) == {"not_measured"}
    return str(document["not_measured"])
