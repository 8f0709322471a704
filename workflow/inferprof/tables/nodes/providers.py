"""Which operators ran, on which execution provider of ONNX Runtime, and for how much of the nodes' time.

Rows of level op: `name` is the node's, `owner` its provider and type as a path (`CUDAExecutionProvider > MatMul`).
Nodes without a name are one row per type. The time of a node is the host's: on a GPU it ends with the launch.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from inferprof import registry
from inferprof.tables.nodes.ort_facts import SessionFacts
from inferprof.tables.schema import conform, wide
from inferprof.tables.trace.aggregate import statistics
from inferprof.tables.trace.timeline import PATH_SEPARATOR

TRT_ENGINE: Final = "TRTKernel"
"""Type of a node that is a whole TensorRT engine. ONNX Runtime adds model, hash and number, as to its name."""


@dataclass(frozen=True)
class OrtProfile:
    """What a session ran. `runs`: duration in ns, by run. `facts`: None in a profile of a session that is not ours.

    nodes: run, start and duration (ns on the session's clock), name, op_type, provider, process and thread (ids of
    the system), bytes of the outputs (missing where the file does not say), types (of the inputs, by `, `).
    Runs are those that came to their end, counted from 0. A file without any has one unfinished run, 0, and empty
    `runs`. Nodes may lack a name; it is empty then.
    """

    nodes: pd.DataFrame
    runs: pd.Series[int]
    facts: SessionFacts | None = None

    def settled(self) -> OrtProfile:
        """Without run 0, where each node tunes itself and allocates; a profile of one run keeps it."""
        if len(self.runs) < 2:
            return self
        return replace(self, nodes=self.nodes[self.nodes["run"] > 0], runs=self.runs.iloc[1:])


CPU: Final = "CPUExecutionProvider"
ON_GPU: Final = r"(?i)^\w*(?:cuda|tensorrt|rocm|migraphx|dml|webgpu)\w*ExecutionProvider\b"
"""The providers that compute on a GPU; others may do so too, such as OpenVINO, and nothing tells."""
ON_CPU: Final = r"^(?:CPU|MKLDNN|Dnnl|Xnnpack|ACL|ArmNN|Nuphar)ExecutionProvider\b|^not told"
"""Those whose kernels are the CPU's, libraries for it among them; files of 2019 tell none, and others were rare.
What is in neither list has an accelerator behind it, or nothing tells."""
RUN: Final = "model_run"
"""The range of a run that may end before the GPU's work does."""
CALL: Final = "call"
"""The same where every node ran on the CPU: it ends with the work, as the boundary `call` does."""
FIRST: Final = "first_run"
"""Metric of the first run, in which nodes tune themselves and allocate."""
COPY: Final = "Memcpy"
"""How the types of nodes begin that copy between the memories of two providers."""
SMALLEST: Final = "trt_min_subgraph_size"
EXCLUDED: Final = "trt_op_types_to_exclude"
"""Options of the TensorRT provider that leave nodes to others."""
SPANNING: Final = ("If", "Loop", "Scan")
"""Their time is that of the nodes in their bodies, which have rows of their own."""
KNOWN: Final = ("position", "output_bytes", "input_types", "fallback_reason", "subgraph_nodes", "kernel_idle", FIRST)
"""Metrics of a node beside its time."""
_COLUMNS: Final = ("name", "provider", "op_type", "executions", "duration", "share", "usual_share")
UNEVEN: Final = 0.7
"""Ours: where the medians of all nodes come to less of their mean time, single runs were interrupted."""


def tidy(profile: OrtProfile, tool: str) -> pd.DataFrame:
    """The rows of a profile without its first run (OrtProfile.settled), and that of each node and of the whole."""
    settled = profile.settled()
    frames = [rows(settled), *([_first_run(profile)] if settled is not profile else [])]
    return conform(pd.concat(frames, ignore_index=True), tool)


def _first_run(profile: OrtProfile) -> pd.DataFrame:
    """first_run, in ns, of each node and of the range of the run."""
    nodes = profile.nodes[profile.nodes["run"] == 0]
    nodes = nodes.assign(owner=nodes["provider"] + PATH_SEPARATOR + nodes["op_type"])
    times = nodes.groupby(["name", "owner"], sort=False)["duration"].agg(instances="size", value="sum").reset_index()
    whole = {"level": "range", "name": RUN, "instances": 1, "value": profile.runs.iloc[0]}
    return pd.concat([times.assign(level="op"), pd.DataFrame([whole])], ignore_index=True).assign(metric=FIRST)


def rows(profile: OrtProfile) -> pd.DataFrame:
    """Level op: duration_* of each node in ns, and what is known of it. Level range: the runs, named CALL or RUN.

    There is no range where no run came to its end.
    """
    nodes = profile.nodes.assign(owner=profile.nodes["provider"] + PATH_SEPARATOR + profile.nodes["op_type"])
    runs = profile.runs.rename("duration").to_frame()
    runs["name"] = CALL if nodes["provider"].eq(CPU).all() else RUN
    frames = [statistics(nodes, ["name", "owner"]).assign(level="op"), _known(nodes, profile.facts)]
    if len(runs):
        frames.append(statistics(runs, ["name"]).assign(level="range"))
    return pd.concat(frames, ignore_index=True)


def _known(nodes: pd.DataFrame, facts: SessionFacts | None) -> pd.DataFrame:
    """Level op: position, output_bytes, input_types, fallback_reason and subgraph_nodes, as far as each is told."""
    ordered = nodes.sort_values(["run", "start"], kind="stable")
    ordered = ordered.assign(position=ordered.groupby("run").cumcount())
    by_node = ordered.groupby(["name", "owner"], sort=False).agg(
        instances=("position", "size"),
        position=("position", "min"),
        output_bytes=("bytes", "mean"),
        input_types=("types", "first"),
        provider=("provider", "first"),
    )
    by_node = by_node.sort_values("position").reset_index()
    session = facts or SessionFacts(0)
    by_node["fallback_reason"] = by_node["name"].map({**_by_options(by_node, session), **session.reasons})
    by_node["subgraph_nodes"] = _subgraph_sizes(by_node, session)
    keys = ["name", "owner", "instances"]
    numbers = by_node.melt(keys, ["position", "output_bytes", "subgraph_nodes"], "metric", "value")
    words = by_node.melt(keys, ["input_types", "fallback_reason"], "metric", "text")
    parts = [numbers.dropna(subset=["value"]), words[words["text"].notna() & (words["text"] != "")]]
    return pd.concat(parts, ignore_index=True).assign(level="op")


def _by_options(nodes: pd.DataFrame, facts: SessionFacts) -> dict[str, str]:
    """Node → the option that kept a provider from it: by its type, or because too few of its kind follow each other.

    The latter only of types that the provider does take elsewhere: it may know no other.
    """
    own = nodes[~nodes["owner"].str.contains(COPY, regex=False)]
    types = own["owner"].str.split(PATH_SEPARATOR, regex=False).str[1]
    reasons: dict[str, str] = {}
    for provider, options in facts.options.items():
        taken = {node.op_type for node in facts.assigned if node.provider == provider}
        left = own["provider"] != provider
        length = left.groupby((left != left.shift()).cumsum()).transform("size")
        small = left & types.isin(taken) & (length < int(options.get(SMALLEST, 1)))
        excluded = left & types.isin(options.get(EXCLUDED, "").split(","))
        reasons |= dict.fromkeys(own.loc[small, "name"], SMALLEST)
        reasons |= dict.fromkeys(own.loc[excluded, "name"], EXCLUDED)
    return reasons


def _subgraph_sizes(nodes: pd.DataFrame, facts: SessionFacts) -> list[float]:
    """Nodes of the graph that each node stands for: subgraphs of a provider run in the order of their numbers."""
    sizes = dict.fromkeys(nodes.index, math.nan)
    for provider, own in nodes.groupby("provider"):
        groups = Counter(node.subgraph for node in facts.assigned if node.provider == provider)
        fused = own.index[own["owner"].str.endswith(PATH_SEPARATOR + TRT_ENGINE)]
        if len(fused) == len(groups):
            sizes |= {row: float(groups[number]) for row, number in zip(fused, sorted(groups), strict=True)}
    return list(sizes.values())


def per_run(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per node of one case, longest first: provider, op_type, executions and duration (ns) of a run, share.

    frame: as `tidy` gives it. Nodes that span others are left out, so that the shares add up to 1. usual_share: the
    same by each node's median instead of its mean, where the two are UNEVEN; on a busy machine a run in which a
    thread lost its core would count as much as all others. Behind these the columns KNOWN, missing where the profile
    does not tell them.
    """
    totals = frame[frame["metric"] == "duration_total"]
    runs = runs_of(frame)
    nodes = totals[totals["level"] == "op"]
    paths = nodes["owner"].str.split(PATH_SEPARATOR, regex=False)
    table = nodes.assign(provider=paths.str[0], op_type=paths.str[1], executions=nodes["instances"] / runs)
    table = table[~table["op_type"].isin(SPANNING)].merge(_told(frame), "left", ["name", "owner"])
    table = table.assign(duration=table["value"] / runs, share=table["value"] / table["value"].sum())
    once = table["duration_median"].notna() & (table["executions"] <= 1)
    usual = (table["duration_median"] * table["instances"]).where(once, table["value"])
    uneven = usual.sum() < UNEVEN * table["value"].sum()
    table = table.assign(usual_share=usual / usual.sum() if uneven else table["share"])
    return table[[*_COLUMNS, *KNOWN]].sort_values("duration", ascending=False, kind="stable", ignore_index=True)


def by_type(nodes: pd.DataFrame) -> pd.Series[float]:
    """Of `per_run`, or some of its rows: type of operator → its usual share of all nodes' time, the largest first."""
    return nodes.groupby("op_type")["usual_share"].sum().sort_values(ascending=False, kind="stable")


def runs_of(frame: pd.DataFrame) -> int:
    """How many runs a table of one case is of; 1 where none came to its end."""
    runs = (frame["level"] == "range") & frame["name"].isin((CALL, RUN)) & (frame["metric"] == "duration_total")
    return int(frame.loc[runs, "instances"].sum()) or 1


def on_gpu(frame: pd.DataFrame) -> bool:
    """Whether any node ran with a provider of a GPU: frame as any tool gives it."""
    owners = frame.loc[frame["level"] == "op", "owner"].dropna()
    return bool(owners.str.contains(ON_GPU).any())


def first_run_alone(frame: pd.DataFrame) -> bool:
    """Whether a profile holds the first run and no other, so that its times are no inference's.

    In it engines are built, nodes tune themselves and memory is allocated. frame: as any tool gives it; the first run
    is set apart by those alone that see no kernel.
    """
    own = frame[frame["tool"].isin(set(registry.sessions()) - set(registry.joining("node")))]
    return len(own) > 0 and not own["metric"].eq(FIRST).any()


def _told(frame: pd.DataFrame) -> pd.DataFrame:
    """KNOWN of each node and the median of its times, by name and owner."""
    metrics = ("duration_median", *KNOWN)
    ops = frame[(frame["level"] == "op") & frame["metric"].isin(metrics)]
    return wide(ops, ["name", "owner"]).reindex(columns=["name", "owner", *metrics])


def by_provider(nodes: pd.DataFrame) -> pd.DataFrame:
    """Of `per_run`, a row per provider, longest first: nodes, `copies` (Memcpy nodes), duration in ns, share."""
    copies = nodes["executions"].where(nodes["op_type"].str.startswith(COPY), 0.0)
    table = nodes.assign(copies=copies).groupby("provider", as_index=False)
    summed = table.agg(
        nodes=("executions", "sum"), copies=("copies", "sum"), duration=("duration", "sum"), share=("share", "sum")
    )
    return summed.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def computed_on_cpu(nodes: pd.DataFrame) -> pd.DataFrame:
    """Of `per_run`, the nodes that the CPU computes; what is told of its threads and formats is not of others."""
    return nodes[nodes["provider"].str.contains(ON_CPU)]


def on_cpu(nodes: pd.DataFrame) -> pd.DataFrame:
    """Of `per_run`, the nodes on the CPU in a session that has another provider; none in a session of the CPU."""
    cpu = nodes["provider"] == CPU
    return nodes[cpu & (not cpu.all())]
