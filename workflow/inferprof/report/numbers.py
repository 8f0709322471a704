"""How numbers are written: four significant digits, one unit per column."""

from __future__ import annotations

import math

from inferprof.units import MIB, NS_PER_MS, NS_PER_US


def significant(value: float, digits: int = 4) -> str:
    """`1234.56` → `1,235`, `0.0123456` → `0.01235`; not finite: as Python writes it."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def three_digits(value: float) -> str:
    """`1234.56` → `1,235`, `0.0123456` → `0.0123`."""
    return significant(value, 3)


def count(value: float) -> str:
    """A mean number of things: `261`, `2.5`."""
    return f"{value:,.0f}" if float(value).is_integer() else three_digits(value)


def milliseconds(ns: float) -> str:
    """Nanoseconds as milliseconds, without the unit."""
    return significant(ns / NS_PER_MS)


def microseconds(ns: float) -> str:
    """Nanoseconds as microseconds, without the unit."""
    return three_digits(ns / NS_PER_US)


def ratio(value: float) -> str:
    """`3.1049` → `3.10×`."""
    return f"{three_digits(value)}×"


def interval(low: float, high: float) -> str:
    """`0.123 to 0.125`: both ends to the same number of decimals, enough to tell them apart."""
    if low == high:
        return f"{significant(low)} to {significant(high)}"
    decimals = min(max(-math.floor(math.log10(high - low)), 2), 6)
    return f"{low:,.{decimals}f} to {high:,.{decimals}f}"


def half_width(value: float, low: float, high: float) -> str:
    """`0.4 %`: how far the farther end of an interval is from its value."""
    return percent(max(high - value, value - low) / value * 100)


def percent(value: float) -> str:
    """`0.4 %`, `12 %`."""
    return "<0.01 %" if 0 < value < 0.01 else f"{significant(value, 2)} %"


def mebibytes(count: float) -> str:
    """Bytes as MiB, without the unit."""
    return three_digits(count / MIB)
