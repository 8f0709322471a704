"""The tidy table of a Timeline: what every trace reader returns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pandas as pd

from inferprof.tables.schema import joined
from inferprof.tables.trace import aggregate, collectives, derived, one_iteration
from inferprof.tables.trace.api_kind import api_kind
from inferprof.tables.trace.timeline import Timeline


def tidy(timeline: Timeline, tool: str) -> pd.DataFrame:
    """Levels kernel, graph, memcpy, memset, api, sync, range, run, collective and event of one capture."""
    api_kind(timeline)  # kept with it, for both threads
    # NumPy lets the other one work meanwhile, and it takes as long as all the rest.
    with ThreadPoolExecutor(1) as other:
        amounts = other.submit(derived.rows, timeline)
        frames = [aggregate.operations(timeline), aggregate.api_calls(timeline), aggregate.ranges(timeline)]
        behind = [collectives.rows(timeline), one_iteration.rows(timeline)]
        frames += [amounts.result(), *behind]
    return joined(frames, tool)
