"""What checks ask of a case: how long its parts take, bare where measured, and the model's other measured cases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

import pandas as pd

from inferprof.case import PARALLEL, Case, Stage
from inferprof.documents.machine import Direction
from inferprof.findings import END_TO_END, Confidence, Frames, NotAssessed
from inferprof.plugins import Boundary
from inferprof.tables.limits.waterfall import Part, of_ranges, watched
from inferprof.tables.nodes import providers
from inferprof.tables.records import CASE_KEY, rows_of
from inferprof.tables.trace.kernel_compare import ITERATION, of_iterations, on_gpus
from inferprof.units import NS_PER_MS
from inferprof.words import ms

RECORDS: Final = "records"
ON_GPU: Final = ("kernel", "graph", "memcpy", "memset", "api")
"""Levels of the tidy table that only a case on a GPU has: a capture may hold graphs, copies or calls alone."""


@dataclass(frozen=True)
class Time:
    """ns per iteration, with where they are from and how far to trust them."""

    ns: float
    source: str
    confidence: Confidence

    @property
    def ms(self) -> str:
        """`2.33 ms`."""
        return ms(self.ns)


def percent(share: float | None) -> str:
    """A share in words; of nothing where no total is known."""
    return "an unknown share" if share is None else f"{100 * share:.1f} %"


def bare_ns(latency: pd.DataFrame, boundary: Boundary) -> float | None:
    """The median of a case's bare run; None where that was not measured. latency: Frames.latency."""
    measured = latency[(latency["boundary"] == boundary) & latency["not_measured"].isna()]
    return float(measured["median"].iloc[0]) if len(measured) else None


def on_gpu(frames: Frames) -> bool:
    """Whether the case ran on a GPU, by the clock of the bare run or by a profile."""
    return frames.once(_on_gpu)


def _on_gpu(frames: Frames) -> bool:
    launched = frames.profiles["level"].isin(ON_GPU).any()
    return bare_ns(frames.latency, "device") is not None or bool(launched) or providers.on_gpu(frames.profiles)


def on_several_gpus(frames: Frames) -> bool:
    """Whether the case is divided over several GPUs: by its options, else by what a tracer saw in iterations."""
    if len(frames.records):
        return any(ranks > 1 for ranks in (frames.record.options.get(PARALLEL) or {}).values())
    own = frames.of_tool(str(frames.tool))
    return own.loc[own["name"].eq(ITERATION) & own["metric"].eq("kernel_busy"), "device"].nunique() > 1


def iteration(frames: Frames) -> dict[str, float]:
    """Metric → value of the timeline's iterations, means; of a case that has a timeline."""
    return of_ranges(frames.timeline).get(ITERATION, {})


def part(frames: Frames, name: Part) -> Time | None:
    """A part of the waterfall; None where there is none."""
    ns = frames.waterfall.get(f"{name}_ns")
    return None if ns is None else Time(float(ns), f"{RECORDS}, {frames.tool or 'no timeline'}", "high")


def launch(frames: Frames) -> Time:
    """The GPU waits for the host's launches: the waterfall's `launch`, else what the timeline shows."""
    return part(frames, "launch") or Time(watched(frames.timeline).launch, str(frames.tool), "medium")


def stages(frames: Frames, *names: Stage) -> float | None:
    """ns of the medians of these stages of the bare run together; None where it has none of them."""
    medians = [took for name in names for took in frames.stages[f"{name}_ms"].dropna()]
    return float(sum(medians)) * NS_PER_MS if medians else None


def copying(frames: Frames, *directions: Direction) -> Time:
    """Inputs and outputs cross the link (`h2d`, `d2h`): the stages' medians, else copies and waits for them in the
    profile, both directions. Raises NotAssessed where neither is there."""
    bare = stages(frames, *(directions or get_args(Direction)))
    if bare is not None:
        return Time(bare, RECORDS, "high")
    if frames.tool is None:
        raise NotAssessed("the stages h2d and d2h of a bare run, or a timeline with copies")
    crossing = link_copies(frames)
    total = float(crossing.loc[crossing["metric"] == "duration_total", "value"].sum())
    return Time(total / max(1, on_gpus(frames.timeline)) + iteration(frames)["idle_copy"], frames.tool, "medium")


def link_copies(frames: Frames) -> pd.DataFrame:
    """The profile's copies between host and device inside of iterations."""
    copies = of_iterations(frames.timeline, "memcpy")
    return copies[copies["name"].str.startswith(("HtoD", "DtoH"))]


def replays_a_graph(frames: Frames) -> bool:
    """Whether an inference is one CUDA graph: by the record's protocol, else by the calls of the profile."""
    if len(frames.records):
        return bool(frames.record.protocol.get("graph"))
    return bool(of_iterations(frames.timeline, "api")["name"].str.contains("GraphLaunch").any())


def traced_by_node(frames: Frames) -> bool:
    """Whether all that is known of a case is a profile of a CUDA graph's nodes."""
    bare = frames.total is not None and frames.total.of == END_TO_END
    return not bare and replays_a_graph(frames) and not frames.timeline["level"].eq("graph").any()


def require_undistorted(frames: Frames) -> None:
    """Raise NotAssessed where only a profile that traced the nodes of a CUDA graph speaks: it pulls them apart and
    makes their launch longer."""
    if traced_by_node(frames):
        raise NotAssessed("a bare run: tracing the nodes of a CUDA graph makes its launch and its gaps longer")


Peer = Mapping[str, Any]
"""A row of tables.join.measured."""


def peer_of(peers: pd.DataFrame, case: Case) -> Peer | None:
    """The row of a case; None where it was not measured."""
    return next((row for row in rows_of(peers) if tuple(row[name] for name in CASE_KEY) == case.path.parts), None)


def compared_by(own: Peer, other: Peer) -> Boundary:
    """`device` where both were measured there, else `end_to_end`."""
    return "end_to_end" if any(math.isnan(row["device_ms"]) for row in (own, other)) else "device"
