"""How fast the hosts of two studies were, by their yardsticks, and what of a comparison that may be all of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from inferprof import registry, stats
from inferprof.case import Case
from inferprof.documents.record import Record

DIFFER: Final = 1 + stats.ONE_ROUND_THRESHOLD
Clock = Literal["yardstick_ns", "yardstick_cpu_ns"]


def on_cpu(case: Case, records: Sequence[Record]) -> bool:
    """Whether a case was computed by a CPU: its backend has no other, or no GPU was there."""
    backend = registry.backends().get(case.backend)
    return bool(backend and backend.where == "cpu") or all(record.environment.gpu is None for record in records)


def beyond(ratio: stats.Ratio, a: Sequence[Record], b: Sequence[Record]) -> stats.Ratio:
    """A ratio on CPUs that calls nothing faster or slower by what the hosts' speeds may be all of: what a host that
    is 1.4 times as slow by its yardstick computes takes at least 1.4 times as long."""
    times = _times(a, b, "yardstick_ns")
    explained = (ratio.verdict == "slower" and times >= DIFFER and ratio.low <= times) or (
        ratio.verdict == "faster" and 1 / times >= DIFFER and ratio.high >= times
    )
    if not explained:
        return ratio
    reason = f"{_said(times)} by the clock, which may be all of the difference"
    return replace(ratio, verdict="undecided", reason="; ".join(filter(None, [reason, ratio.reason])))


def slower(a: Sequence[Record], b: Sequence[Record]) -> str:
    """`B's host was 1.45 times as slow`, by yardsticks of one Python; empty where they are alike or not known."""
    times = _times(a, b, "yardstick_cpu_ns")
    return _said(times) if max(times, 1 / times) >= DIFFER else ""


def _said(times: float) -> str:
    return f"{'B' if times > 1 else 'A'}'s host was {max(times, 1 / times):.2f} times as slow"


def _times(a: Sequence[Record], b: Sequence[Record], clock: Clock) -> float:
    """How many times as long the yardstick took on B's host as on A's; NaN of two Pythons, or where it is unknown."""
    one_python = len({record.environment.python for record in (*a, *b)}) == 1
    return yardstick(b, clock) / yardstick(a, clock) if one_python else math.nan


def yardstick(records: Sequence[Record], clock: Clock = "yardstick_cpu_ns") -> float:
    """The median of all readings, ns, by their time on a core or by the clock; NaN where there is none."""
    readings = [ns for record in records if record.host for ns in getattr(record.host, clock)]
    return stats.summarize(readings).median if readings else math.nan


def conditions(records: Sequence[Record]) -> dict[str, set[str]]:
    """What the records say of the conditions that they were made under: name → all values."""
    values: dict[str, set[str]] = {}
    for record in records:
        environment = record.environment
        gpu = environment.gpu or {}
        conditions = {
            "machine": record.machine,
            "GPU": gpu.get("name", "none"),
            "driver": gpu.get("driver", "none"),
            "commit": environment.git or "unknown",
            "Python": environment.python or "unknown",
            **{f"package {name}": version for name, version in environment.packages.items()},
            **{f"protocol {name}": value for name, value in record.protocol.items() if name != "graph"},
        }
        for name, value in conditions.items():
            values.setdefault(name, set()).add(str(value))
    values["rounds"] = {str(count) for count in Counter(record.case.path for record in records).values()}
    return values
