"""Units as Nsight Compute writes them: long ones until about 2023 (`usecond`, `cycle/nsecond`), short ones since."""

from __future__ import annotations

import functools
import re
from typing import Final

TIMES: Final = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
}
_PREFIXES: Final = " KMGT"
_SCALED: Final = re.compile(r"(?P<prefix>[KMGTkmgt]?)(?P<binary>i?)(?:B|[Bb]ytes?|[Hh]z)(?:/.*)?")
_FREQUENCY: Final = re.compile(r"cycle/(?P<time>\w+)")


@functools.cache
def scale_of(unit: str) -> float:
    """What a value in a unit of ncu is multiplied by, for ns, byte and Hz: `us`, `msecond`, `Kbyte/block`, `Ghz`.

    K is 1000, in ncu as in SI, and Ki 1024. What is counted, or a share, is as it is.
    """
    if unit in TIMES:
        return TIMES[unit]
    if match := _SCALED.fullmatch(unit):
        step = 1024.0 if match["binary"] else 1e3
        return step ** _PREFIXES.index(match["prefix"].upper() or " ")
    if (match := _FREQUENCY.fullmatch(unit)) and match["time"] in TIMES:
        return 1e9 / TIMES[match["time"]]
    return 1.0
