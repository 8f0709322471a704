"""Which operators ran, on which execution provider of ONNX Runtime, and for how much of the nodes' time.

Rows of level op: `name` is the node's, `parent` its provider and type as a path (`CUDAExecutionProvider > MatMul`).
Nodes without a name are one row per type. The time of a node is the host's: on a GPU it ends with the launch.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from inferprof.tables.aggregate import statistics
from inferprof.tables.ort_json import OrtProfile
from inferprof.tables.schema import conform
from inferprof.tables.timeline import PATH_SEPARATOR

CPU: Final = "CPUExecutionProvider"
RUN: Final = "model_run"
"""The range of a run that may end before the GPU's work does."""
CALL: Final = "call"
"""The same where every node ran on the CPU: it ends with the work, as the boundary `call` does."""
SPANNING: Final = ("If", "Loop", "Scan")
"""Their time is that of the nodes in their bodies, which have rows of their own."""
_COLUMNS: Final = ("name", "provider", "op_type", "executions", "duration", "share")


def tidy(profile: OrtProfile, tool: str) -> pd.DataFrame:
    """Level op: duration_* of each node in ns. Level range: that of the runs, under the name CALL or RUN.

    Without the first run (OrtProfile.settled). There is no range where no run came to its end.
    """
    settled = profile.settled()
    nodes = settled.nodes.assign(parent=settled.nodes["provider"] + PATH_SEPARATOR + settled.nodes["op_type"])
    runs = settled.runs.rename("duration").to_frame()
    runs["name"] = CALL if settled.nodes["provider"].eq(CPU).all() else RUN
    frames = [statistics(nodes, ["name", "parent"]).assign(level="op")]
    if len(runs):
        frames.append(statistics(runs, ["name"]).assign(level="range"))
    return conform(pd.concat(frames, ignore_index=True), tool)


def per_run(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per node of one case, longest first: provider, op_type, executions and duration (ns) of a run, share.

    frame: as `tidy` gives it. Nodes that span others are left out, so that the shares add up to 1.
    """
    totals = frame[frame["metric"] == "duration_total"]
    runs = int(totals.loc[totals["level"] == "range", "instances"].sum()) or 1
    nodes = totals[totals["level"] == "op"]
    paths = nodes["parent"].str.split(PATH_SEPARATOR, regex=False)
    table = nodes.assign(provider=paths.str[0], op_type=paths.str[1], executions=nodes["instances"] / runs)
    table = table[~table["op_type"].isin(SPANNING)]
    table = table.assign(duration=table["value"] / runs, share=table["value"] / table["value"].sum())
    return table[list(_COLUMNS)].sort_values("duration", ascending=False, kind="stable", ignore_index=True)


def by_provider(nodes: pd.DataFrame) -> pd.DataFrame:
    """Of `per_run`, one row per provider, longest first: nodes and `copies` (Memcpy nodes) of a run, and share."""
    copies = nodes["executions"].where(nodes["op_type"].str.startswith("Memcpy"), 0.0)
    table = nodes.assign(copies=copies).groupby("provider", as_index=False)
    summed = table.agg(nodes=("executions", "sum"), copies=("copies", "sum"), share=("share", "sum"))
    return summed.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def on_cpu(nodes: pd.DataFrame) -> pd.DataFrame:
    """Of `per_run`, the nodes on the CPU in a session that has another provider; none in a session of the CPU."""
    cpu = nodes["provider"] == CPU
    return nodes[cpu & (not cpu.all())]
