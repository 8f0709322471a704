"""Which node of ONNX Runtime launched what: its own profile and a trace of the GPU, of one process, joined.

A launch belongs to the node whose time on the launching thread holds the call; of nodes inside each other (the bodies
of If, Loop and Scan) to the innermost. Where the call is so close to the edge of two nodes that the tie of the clocks
leaves two answers, it belongs to nobody. ONNX Runtime's times are whole microseconds, which counts as part of that.

Rows of the tidy table: levels kernel, memcpy and memset with the node as `owner`, a path of provider, type and name
(`CUDAExecutionProvider > MatMul > /layer.0/MatMul`; missing: nobody's); level op, as of a profile alone, and
kernel_idle; level range, those of the trace and the runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from inferprof.devices.ranges import CLOCK
from inferprof.errors import UserError
from inferprof.tables.nodes import attribution, providers
from inferprof.tables.nodes.providers import OrtProfile
from inferprof.tables.schema import joined
from inferprof.tables.trace import aggregate, one_iteration
from inferprof.tables.trace.intervals import Intervals, Times
from inferprof.tables.trace.timeline import GRAPH, ID_BITS, KERNEL, NO_CALL, PATH_SEPARATOR, Nesting, Timeline


@dataclass(frozen=True)
class Clock:
    """The host's clock on a capture's: `host` times (ns since the epoch) and the same moments by the `capture`;
    `error`: half a look, in ns.

    The run looks at the host's clock inside a range (devices.ranges.mark_clock), at the start and at the end of what
    is collected. A look that the capture saw from a to b shows the time of a moment between the two, so the clocks
    are tied to (b - a) / 2 at the middle; between the looks at the start and the end the offset is taken to change
    evenly.
    """

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


MASK: Final = (1 << ID_BITS) - 1
EXAMPLES: Final = 3
"""Names that an error shows."""
ROUNDING_NS: Final = 1000
"""ONNX Runtime cuts start and duration of a node to whole microseconds."""


def placed(timeline: Timeline, profile: OrtProfile) -> pd.DataFrame:
    """The profile's nodes with `start`, `end` and `thread` on the trace's clock, those of the trace's window alone.

    Raises UserError where the two are not of one process and one run, or nothing ties their clocks.
    """
    threads = _threads(timeline, profile)
    if profile.facts is None:
        raise UserError(
            "the ONNX Runtime profile does not say when its clock began, so it cannot be placed in the trace: "
            "capture both in one run, with `inferprof capture ort_nodes`"
        )
    clock = Clock.of(timeline)
    start = clock.on_capture(profile.nodes["start"].to_numpy() + profile.facts.start_ns)
    nodes = profile.nodes.assign(start=start, end=start + profile.nodes["duration"].to_numpy(), error=clock.error)
    nodes["thread"] = nodes["thread"].map(threads)
    inside = (nodes["start"] >= clock.capture[0]) & (nodes["end"] <= clock.capture[-1])
    own: pd.DataFrame = nodes[inside & nodes["thread"].notna()]
    if own.empty:
        some = ", ".join(dict.fromkeys(nodes["name"].head(EXAMPLES)))
        raise UserError(
            f"none of the {len(nodes):,} nodes that the ONNX Runtime profile has, such as {some}, ran while the "
            "trace was taken: they are of two runs; capture both in one, with `inferprof capture ort_nodes`"
        )
    return own.astype({"thread": np.int64}).reset_index(drop=True)


def _threads(timeline: Timeline, profile: OrtProfile) -> dict[int, int]:
    """Thread of the system → thread of the trace."""
    seen = np.unique(timeline.calls["thread"].to_numpy())
    traced, profiled = set((seen[seen >= 0] >> ID_BITS & MASK).tolist()), set(profile.nodes["process"].tolist())
    if not traced & profiled:
        raise UserError(
            f"the ONNX Runtime profile is of process {_listed(profiled)} and the trace of {_listed(traced)}: a node "
            "and its kernels can be told only within one process; capture both with `inferprof capture ort_nodes`"
        )
    return {int(thread) & MASK: int(thread) for thread in seen if thread >= 0}


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def owners(timeline: Timeline, nodes: pd.DataFrame) -> Times:
    """Per operation of the timeline the row of `nodes` (as `placed` gives them) that launched it; -1: nobody's."""
    nesting = Nesting(nodes[["start", "end", "thread"]].assign(label=np.arange(len(nodes)).astype(str)))
    innermost = np.array([int(path.rpartition(PATH_SEPARATOR)[2] or -1) for path in nesting.paths])
    call = timeline.ops["call"].to_numpy()
    called = timeline.calls.iloc[call[call != NO_CALL]]
    thread, start = called["thread"].to_numpy(), called["start"].to_numpy()
    doubt = int(nodes["error"].max())
    earliest = nesting.path_at(thread, start - doubt - ROUNDING_NS)
    latest = nesting.path_at(thread, start + doubt)
    first, last = innermost[earliest], innermost[latest]
    owner = np.full(call.size, -1, np.int64)
    # Between two nodes nothing is launched: of one node and the gap beside it, it was the node.
    owner[call != NO_CALL] = np.select([first == last, first == -1, last == -1], [first, last, first], -1)
    return owner


def tidy(timeline: Timeline, profile: OrtProfile, tool: str) -> pd.DataFrame:
    """The rows that the module describes."""
    nodes = placed(timeline, profile)
    nodes["owner"] = nodes["provider"] + PATH_SEPARATOR + nodes["op_type"]
    paths = (nodes["owner"] + PATH_SEPARATOR + nodes["name"]).to_numpy(object)
    launched_by = owners(timeline, nodes)
    owner = pd.Series(paths[launched_by]).where(launched_by >= 0)
    seen = dataclasses.replace(profile, nodes=nodes, runs=profile.runs[profile.runs.index.isin(nodes["run"])])
    frames = [
        aggregate.operations(timeline, owner=owner),
        aggregate.ranges(timeline),
        one_iteration.rows(timeline, owner),
        providers.rows(seen),
        _idle(timeline, nodes),
    ]
    return joined(frames, tool)


def _idle(timeline: Timeline, nodes: pd.DataFrame) -> pd.DataFrame:
    """Level op: kernel_idle, how long the GPU computed nothing while the host was in a node; a mean per execution."""
    computing = timeline.ops[timeline.ops["kind"].isin((KERNEL, GRAPH))]
    busy = Intervals.union(computing["start"].to_numpy(), computing["end"].to_numpy())
    start, end = nodes["start"].to_numpy(), nodes["end"].to_numpy()
    idle = nodes.assign(idle=end - start - busy.within(start, end))
    mean = idle.groupby(["name", "owner"], sort=False)["idle"].agg(instances="size", value="mean").reset_index()
    return mean.assign(level="op", metric="kernel_idle")


def attributed(frame: pd.DataFrame) -> pd.DataFrame:
    """The join as attribution.COLUMNS, of one case: frame as `tidy` gives it. Further columns: op_type, provider."""
    rows = attribution.launched(frame)
    parts = rows["owner"].str.split(PATH_SEPARATOR, n=2, expand=True, regex=False).reindex(columns=range(3))
    confidence = np.where(parts[2].notna(), 1.0, np.nan)
    owned = rows.assign(owner=parts[2], owner_level="op", confidence=confidence)
    return attribution.conform(owned.assign(op_type=parts[1], provider=parts[0]))
