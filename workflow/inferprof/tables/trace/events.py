"""The tidy table of a Timeline: what every trace reader returns."""

from __future__ import annotations

import pandas as pd

from inferprof.tables.schema import joined
from inferprof.tables.trace import aggregate, collectives, derived, one_iteration
from inferprof.tables.trace.timeline import Timeline


def tidy(timeline: Timeline, tool: str) -> pd.DataFrame:
    """Levels kernel, graph, memcpy, memset, api, sync, range, run, collective and event of one capture."""
    frames = [
        aggregate.operations(timeline),
        aggregate.api_calls(timeline),
        aggregate.ranges(timeline),
        derived.rows(timeline),
        collectives.rows(timeline),
        one_iteration.rows(timeline),
    ]
    return joined(frames, tool)
