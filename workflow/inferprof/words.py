"""Numbers in sentences: counts that agree with their noun, durations and shares."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from inferprof.units import NS_PER_MS

LEAST_NS: Final = 100
"""Fewer are hard to read as ms."""
DIFFER: Final = 1.5
"""Ours: iterations are not alike where one takes half as long again as another, without the tenth at either end."""
NAMED: Final = 5
"""How many names a sentence gives before it counts the rest."""
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


def some(names: Sequence[str], most: int = NAMED) -> str:
    """`a, b, c, d, e and 3 more`: the first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def ms(ns: float, digits: int = 3) -> str:
    """A duration in words: `2.33 ms`, `1,108 ms`, `50 ns` of less than 100 ns."""
    value = ns / NS_PER_MS
    return f"{figure(ns, digits)} ns" if 0 < abs(ns) < LEAST_NS else f"{figure(value, digits)} ms"


def ms_range(low: float, high: float) -> str:
    """Two durations in one unit: `2.04 ms to 2.33 ms`, `66.5 ns to 114 ns`."""
    if 0 < abs(low) < LEAST_NS and abs(high) < LEAST_NS**2:
        return f"{figure(low)} ns to {figure(high)} ns"
    return f"{figure(low / NS_PER_MS)} ms to {figure(high / NS_PER_MS)} ms"


def spread(lengths: Sequence[float]) -> str:
    """Of iterations, ns: ` (median 15.1 ms, 2.85 ms to 19.5 ms)`, and that they differ where they do; empty of one,
    and of those that are alike."""
    ordered = sorted(lengths)
    said = spread_of(ordered[0], statistics.median(ordered), ordered[-1]) if ordered else ""
    if not said:
        return ""
    if (times := times_apart(lengths)) < DIFFER:
        return said
    return f"{said[:-1]}; they differ by {figure(times, 2)} times: shares of the mean may hold for none)"


def times_apart(lengths: Sequence[float]) -> float:
    """How many times as long as the shortest of iterations, ns, the longest is, without the tenth at either end; 1 of
    none."""
    ordered = sorted(lengths)
    tenth = len(ordered) // 10
    return ordered[-1 - tenth] / max(ordered[tenth], 1.0) if ordered else 1.0


def spread_of(low: float, median: float, high: float) -> str:
    """The same of which no more is known; empty where all are alike."""
    return "" if ms(low) == ms(high) else f" (median {ms(median)}, {ms_range(low, high)})"


def figure(value: float, digits: int = 3) -> str:
    """A number with so many digits and never an exponent: `3,410`, `2.33`, `0.000213`, `0` of what is rounding."""
    if abs(value) < NOTHING:
        return "0"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
    return f"{Decimal(text):f}" if "e" in text else text
