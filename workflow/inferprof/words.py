"""Numbers in sentences: counts that agree with their noun, durations and shares."""

from __future__ import annotations

from typing import Final

from inferprof.units import NS_PER_MS

_PLURAL_ES: Final = ("s", "x", "ch", "sh")


def counted(count: float, noun: str) -> str:
    """`1 launch`, `9,065 launches`, `2.5 copies`: a count, or a mean of counts, and what is counted."""
    value = round(float(count), 1)
    number = f"{value:,.0f}" if value.is_integer() else f"{value:,.1f}"
    return f"{number} {noun if number == '1' else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun.endswith(_PLURAL_ES) else 's'}"


def ms(ns: float, digits: int = 3) -> str:
    """A duration in words: `2.33 ms`, `1,108 ms`."""
    value = ns / NS_PER_MS
    return f"{value:,.0f} ms" if value >= 1000 else f"{value:.{digits}g} ms"
