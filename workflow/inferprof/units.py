"""What turns nanoseconds, bytes and operations into the units of a report."""

from __future__ import annotations

from typing import Final

NS_PER_S: Final = 1e9
NS_PER_MS: Final = 1e6
NS_PER_US: Final = 1000  # whole: with it a Decimal stays exact
MEGA: Final = 1e6
GIGA: Final = 1e9
TERA: Final = 1e12
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
