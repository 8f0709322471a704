"""Makes text of others harmless where it goes out: for a terminal, a page, and a spreadsheet."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""What a terminal obeys, what turns the order of letters around or hides, and half letters; not tab and newline."""
KEPT_OF_WORD: Final = 200
KEPT_OF_LINE: Final = 2000
"""Characters of a word (a path, a name) and of a line of an error that are kept of one that is longer by half."""
_LONG_WORD: Final = re.compile(rf"\S{{{KEPT_OF_WORD * 3 // 2},}}")
_LONG_LINE: Final = re.compile(rf".{{{KEPT_OF_LINE * 3 // 2},}}")
_FORMULA: Final = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|[\t\n]")
_NUMBER: Final = re.compile(r"[+-]?(?:\d[\d.,]*(?:e[+-]?\d+)?\s?%?|inf|nan)?", re.IGNORECASE)


def text(value: str) -> str:
    """The text with control characters spelled out: `\\x1b[31m` instead of red."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), value)


def line(value: str) -> str:
    """The same in one line."""
    return text(value).replace("\n", "\\n").replace("\t", "\\t")


def message(value: str) -> str:
    """The text of an error, for a terminal: what it quotes is shortened in its middle where it is very long."""
    return _LONG_LINE.sub(_shortened, _LONG_WORD.sub(_shortened, text(value)))


def _shortened(match: re.Match[str]) -> str:
    kept = KEPT_OF_WORD if match.re is _LONG_WORD else KEPT_OF_LINE
    return f"{match[0][: kept // 2]} … {match[0][-kept // 2 :]}"


def cell(value: object) -> object:
    """A cell of a CSV: text that a spreadsheet would calculate begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    return f"'{text(value)}" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else text(value)
