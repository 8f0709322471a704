"""The host's clock on a capture's: what another tool wrote by CLOCK_REALTIME is placed among the capture's events.

The run looks at the host's clock inside a range (devices.ranges.mark_clock), at the start and at the end of what is
collected. A look that the capture saw from a to b shows the time of a moment between the two, so the clocks are tied
to (b - a) / 2 at the middle; between the looks at the start and the end the offset is taken to change evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from inferprof.devices.ranges import CLOCK
from inferprof.errors import UserError
from inferprof.tables.trace.intervals import Times
from inferprof.tables.trace.timeline import Timeline


@dataclass(frozen=True)
class Clock:
    """`host` times (ns since the epoch) and the same moments by the `capture`; `error`: half a look, in ns."""

    host: Times
    capture: Times
    error: int

    @classmethod
    def of(cls, timeline: Timeline) -> Clock:
        """From the marks in a capture. Raises UserError where it has none."""
        looks = _looks(timeline)
        if looks.empty:
            raise UserError(
                "the capture holds no mark of the host's clock, so the runtime's own profile cannot be placed in it: "
                "capture both in one run, with `inferprof capture ort_nodes`"
            )
        at_the_end = looks["host"] > (looks["host"].iloc[0] + looks["host"].iloc[-1]) // 2
        best = looks.loc[looks.groupby(at_the_end)["width"].idxmin()]
        capture = (best["start"] + best["width"] // 2).to_numpy(np.int64)
        return cls(best["host"].to_numpy(np.int64), capture, int(best["width"].max() + 1) // 2)

    def on_capture(self, host: Times) -> Times:
        """The host's moments on the capture's clock. Outside of the looks the offset stays that of the nearest."""
        # Against the first look, since a double does not hold nanoseconds since the epoch.
        begin, offset = self.host[0], self.capture - self.host
        change = np.interp(host - begin, self.host - begin, offset - offset[0])
        placed: Times = host + offset[0] + np.rint(change).astype(np.int64)
        return placed


def _looks(timeline: Timeline) -> pd.DataFrame:
    """start, width and host (the time shown) of each look, in order."""
    labels = np.array(timeline.paths, object)[timeline.ranges["path"].to_numpy()]
    ranges = timeline.ranges.assign(label=labels)
    around = ranges[ranges["label"] == CLOCK]
    shown = ranges[ranges["label"].str.startswith(f"{CLOCK}=")]
    looks = pd.merge_asof(
        shown.assign(host=shown["label"].str.removeprefix(f"{CLOCK}=").astype(np.int64))[["start", "thread", "host"]],
        around.assign(begun=around["start"])[["start", "begun", "end", "thread"]],
        on="start",
        by="thread",
    )
    return pd.DataFrame({"start": looks["begun"], "width": looks["end"] - looks["begun"], "host": looks["host"]})
