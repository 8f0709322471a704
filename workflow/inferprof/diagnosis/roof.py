"""How far a case is from the roofline: its launches where there are counters, else its graph as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from inferprof import registry
from inferprof.diagnosis.kernel_faults import counters_of, merged, of_time, time_shares
from inferprof.diagnosis.kernel_time import (
    KERNEL_SHARE,
    counted_by,
    kernels_ns,
    of_kernels,
    options_of,
    roofs_of,
    rows_counted,
    short,
)
from inferprof.diagnosis.times import bare_ns, peer_of
from inferprof.findings import Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.model.operators import bits
from inferprof.plugins import check
from inferprof.tables import roofs
from inferprof.tables.counters import kernel_roofline
from inferprof.tables.limits import roofline
from inferprof.tables.records import rows_of
from inferprof.units import NS_PER_MS
from inferprof.words import ms

ROOF_DISTANCE: Final = Threshold(
    "roof_distance", 2.0, "times the time at the roof", "ours: good libraries reach 60 to 80 % of a roof"
)
ROOF_DURATION: Final = Threshold(
    "roof_duration", 10_000.0, "ns of a launch", "ours: an H100 takes 2 µs for a kernel that does nothing"
)
UNMERGED: Final = " Each node writes its result to memory for the next."
FUSERS: Final[Mapping[str, tuple[str, ...]]] = {
    "torch.compile": ("torch_compile",),
    "an engine": ("tensorrt", "tensorrt_rtx", "ort_tensorrt", "ort_tensorrt_rtx"),
    "ONNX Runtime's transformer optimizer": (),
}
"""What fuses more → the backends whose cases have it already."""


@check("roof", "Distance from the roofline", "kernel", ("gpu",), by="kernel")
def _roof(frames: Frames) -> list[Finding] | Clear:
    """ROOF_DISTANCE from the roof: launches where there are counters, else the graph and its nodes one by one.

    Gain: 0 to (1 - 1 / distance) · time of the launches; of a graph 0 to device - its roof as one kernel. Nodes that
    are near their roofs leave the memory traffic between them: 0 to the nodes' roofs - the graph's.
    """
    limits = roofs_of(frames)
    if limits.bandwidth is None:
        raise NotAssessed("the GPU's roofs: ceilings.json, bandwidth.json, or its datasheet in peaks.csv")
    if rows_counted(frames)["level"].eq("kernel").any():
        return _kernels_and_roofs(frames, limits)
    return _graph_and_roof(frames, limits)


def _kernels_and_roofs(frames: Frames, limits: roofs.Roofs) -> list[Finding] | Clear:
    counters = counters_of(frames)
    launches = kernel_roofline.of_case(counters, limits)
    compared = launches[launches["distance"].notna()]
    if compared.empty:
        raise NotAssessed("durations and bytes of the counted kernels, and the peaks of their formats")
    taken = time_shares(frames, counters)
    limit, shortest = frames.limit(ROOF_DISTANCE), frames.limit(ROOF_DURATION)
    shared = [{**row, "time_share": taken.get(row["launch"])} for row in rows_of(compared)]
    far = merged([row for row in shared if row["distance"] >= limit and row["duration_ns"] >= shortest])
    worth = [row for row in far if (row["time_share"] or 0.0) >= frames.limit(KERNEL_SHARE)]
    if not worth:
        least, most = (f"{value:.2g}" for value in (compared["distance"].min(), compared["distance"].max()))
        return Clear(f"{len(compared)} counted kernels take {least} to {most} times as long as at their roof")
    return [_far(frames, row) for row in worth]


def _far(frames: Frames, row: Mapping[str, Any]) -> Finding:
    share = row["time_share"]
    time = of_kernels(frames, share)
    lost = sum((1 - 1 / launch["distance"]) * (launch["time_share"] or 0.0) for launch in row["alike"])
    return Finding(
        subject=short(row["name"]),
        bottleneck="kernels",
        share=frames.share(time),
        reason=f"it takes {row['distance']:.3g} times as long as at its roofline, by {row['limit']}{of_time(share)}.",
        evidence={"distance": row["distance"], "roof_ns": row["roof_ns"], "duration_ns": row["duration_ns"]},
        source=counted_by(frames),
        gain=None if time is None else Gain(0.0, lost / share * time),
        advice="See in the counters what its warps wait for.",
        confidence="medium",
        acts=False,
    )


def _graph_and_roof(frames: Frames, limits: roofs.Roofs) -> list[Finding] | Clear:
    cost, device = frames.documents.cost, bare_ns(frames.latency, "device")
    if cost is None or device is None:
        raise NotAssessed("counters (ncu); or the costs of the graph (.cost.json) and the case's device time")
    at_roof = roofline.of_graph(cost, limits)
    if "not_known" in at_roof:
        raise NotAssessed(f"a roof of the graph: {at_roof['not_known']}")
    fused, unfused = at_roof["fused_ms"] * NS_PER_MS, at_roof["unfused_ms"] * NS_PER_MS
    words = (
        f"the device takes {ms(device)}. The graph needs at least {ms(fused)} as one kernel ({at_roof['limit']}), "
        f"and {ms(unfused)} as a kernel per node"
    )
    evidence = {"device_ns": device, "fused_ns": fused, "unfused_ns": unfused}
    limit = frames.limit(ROOF_DISTANCE)
    if device < limit * fused:
        return Clear(words, evidence)
    unmerged = device < limit * unfused
    fuse = _fuse(frames) if unmerged else ""
    finding = Finding(
        subject="",
        bottleneck="memory" if unmerged else "kernels",
        share=frames.share(min(device, kernels_ns(frames) or device)),
        reason=f"{words}.{UNMERGED if unmerged else ''}",
        evidence=evidence,
        source=f"records, {at_roof['source']}",
        gain=Gain(0.0, (min(device, unfused) if unmerged else device) - fused),
        advice=fuse or _look(frames),
        confidence="low",
        acts=bool(fuse),
    )
    return [finding]


def _fuse(frames: Frames) -> str:
    """What might fuse more than the case's own backend, or compute in less; without what the study measured at this
    shape to be no faster."""
    slower = _no_faster(frames)
    others = [
        name
        for name, backends in FUSERS.items()
        if frames.case.backend not in backends and not slower & {(frames.case.precision, other) for other in backends}
    ]
    if others:
        return f"Use a runtime that fuses more: {' or '.join(others)}."
    return "" if slower & {(name, frames.case.backend) for name in _narrower(frames)} else "Use a narrower format."


def _narrower(frames: Frames) -> set[str]:
    """Formats of fewer bits than the case's."""
    formats = registry.precisions()
    own = formats.get(frames.case.precision)
    return {name for name, described in formats.items() if own and bits(described.storage) < bits(own.storage)}


def _no_faster(frames: Frames) -> set[tuple[str, str]]:
    """(precision, backend) whose best measured case at this shape is no faster end to end."""
    peers = frames.peers[frames.peers["shape"].eq(frames.case.shape) & frames.peers["end_to_end_ms"].notna()]
    own = peer_of(peers, frames.case)
    if own is None:
        return set()
    best: dict[tuple[str, str], float] = {}
    for row in rows_of(peers):
        name = row["precision"], row["backend"]
        best[name] = min(row["end_to_end_ms"], best.get(name, math.inf))
    return {name for name, took in best.items() if took >= own["end_to_end_ms"]}


def _look(frames: Frames) -> str:
    """What would tell more. Without a timeline the device's time may be waits for the host, but of a CUDA graph."""
    if frames.tool is None and not options_of(frames).get("cuda_graph"):
        return "Capture a timeline, which tells launches from kernels: nsys under `profilers:`."
    return "Count what the longest kernels do: nsys and ncu under `profilers:`."
