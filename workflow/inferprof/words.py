"""Numbers in sentences: counts that agree with their noun, durations and shares."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from inferprof.units import NS_PER_MS

LEAST_NS: Final = 100
"""Fewer are hard to read as ms."""
NOTHING: Final = 1e-6
"""Of sums that cancel out, what doubles leave."""
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
    """A duration in words: `2.33 ms`, `1,108 ms`, `50 ns` of less than 100 ns."""
    value = ns / NS_PER_MS
    return f"{figure(ns, digits)} ns" if 0 < abs(ns) < LEAST_NS else f"{figure(value, digits)} ms"


def figure(value: float, digits: int = 3) -> str:
    """A number with so many digits and never an exponent: `3,410`, `2.33`, `0.000213`, `0` of what is rounding."""
    if abs(value) < NOTHING:
        return "0"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
    return f"{Decimal(text):f}" if "e" in text else text
