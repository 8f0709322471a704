"""Whether a latency may be a headline, a verdict or a recommendation: the one place that decides it.

A self-check that fails makes its record a failed one, so that its case has no latency at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pandas as pd

from inferprof.tables.records import KEY

FEWEST: Final = 5
"""Ours: fewer samples give no median."""
WAITED: Final = 0.05
"""Ours: a thread that waits longer for a core, as a share of its time, measures the machine's other work."""
DRIFT: Final = 0.05
"""Ours: a latency that changes more within a round is no single number."""


def too_few(samples: int) -> str | None:
    """Why so many samples have no median; None where they have one."""
    if samples >= FEWEST:
        return None
    return f"{samples} sample{'' if samples == 1 else 's'}; a median needs {FEWEST}"


def doubt(rounds: Iterable[tuple[bool, float | None]], waited: float | None, limit: float = WAITED) -> str | None:
    """Why a latency is not to be trusted; None where it is. `limit`: the config's.

    rounds: of each whether it settled, and stats.drift's significant change. One bad round among several moves no
    median of all their samples: half of them have to be. waited: share of the time that the thread waited for a core.
    """
    measured = list(rounds)
    bad = [(settled, drift) for settled, drift in measured if not settled or abs(drift or 0) >= DRIFT]
    reasons = []
    if 2 * len(bad) >= len(measured):
        largest = max((drift for _, drift in bad if drift is not None), key=abs, default=0)
        if not all(settled for settled, _ in bad):
            reasons.append("not settled when its warm-up ended")
        if abs(largest) >= DRIFT:
            reasons.append(f"drifted by {100 * largest:+.1f} % within a round")
    if waited is not None and waited >= limit:
        reasons.append(f"its thread waited for a core {waited:.1%} of the time")
    return "; ".join(reasons) or None


def enough(boundaries: pd.DataFrame) -> pd.DataFrame:
    """records.boundaries, in which a case and boundary of too few samples in all rounds is not measured."""
    counts = boundaries["samples"].map(lambda samples: 0 if samples is None else len(samples))
    totals = counts.groupby([boundaries[name] for name in (*KEY, "boundary")]).transform("sum")
    few = boundaries["not_measured"].isna() & (totals < FEWEST)
    frame = boundaries.copy()
    frame.loc[few, "not_measured"] = totals[few].map(lambda total: too_few(int(total)))
    frame.loc[few, "samples"] = None
    return frame
