"""Makes text of others harmless where it goes out: for a terminal, a page, and a spreadsheet."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""What a terminal obeys, what turns the order of letters around or hides, and half letters; not tab and newline."""
_FORMULA: Final = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|[\t\n]")
_NUMBER: Final = re.compile(r"[+-]?(?:\d[\d.,]*(?:e[+-]?\d+)?\s?%?|inf|nan)?", re.IGNORECASE)


def text(value: str) -> str:
    """The text with control characters spelled out: `\\x1b[31m` instead of red."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), value)


def line(value: str) -> str:
    """The same in one line."""
    return text(value).replace("\n", "\\n").replace("\t", "\\t")


def cell(value: object) -> object:
    """A cell of a CSV: text that a spreadsheet would calculate begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    return f"'{text(value)}" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else text(value)
