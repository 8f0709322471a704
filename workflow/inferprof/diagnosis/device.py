"""Device: is the GPU idle for another reason than launches, do copies hide behind it, is the batch large enough?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inferprof.case import BATCH, Shape
from inferprof.diagnosis.times import RECORDS, bare_ns, copying, iteration, part, percent, require_undistorted
from inferprof.findings import Change, Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.plugins import Boundary, check
from inferprof.tables.limits.saturation import rest_of, smallest
from inferprof.tables.limits.waterfall import watched
from inferprof.tables.records import throughput
from inferprof.units import NS_PER_S
from inferprof.words import ms

GAPS = Threshold("gaps", 0.05, "share of the total", "ours: as for copies")
NO_OVERLAP = Threshold("no_overlap", 0.25, "share of copies hidden", "ours: a pipeline that works hides most of them")
HIDEABLE = Threshold("hideable", 0.1, "share of the total", "ours: below it a pipeline has little to hide")
BELOW_PEAK = Threshold(
    "below_peak", 0.05, "share of peak throughput", "tables.limits.saturation: 95 % of the peak is saturated"
)
UNKNOWN: Final = "unknown"
OTHER_PROCESS: Final = "other_process"
"""Seen only where another process worked on the device."""
IDLE: Final[Mapping[str, tuple[str, str]]] = {
    "sync": ("The host sits in a synchronise.", "Wait once, at the end of the inference."),
    "copy": ("The host is in a copy call.", "Copy asynchronously, from and to page-locked memory."),
    "queued": (
        "The next operation is launched already. No two streams are busy at once.",
        "Start what follows sooner: a CUDA graph, fewer and longer kernels, all of it in one stream.",
    ),
    UNKNOWN: ("The capture does not say for what.", "Capture with nsys, which ties operations to launches."),
    OTHER_PROCESS: ("It computes for another process.", "Measure again on a GPU of its own."),
}
"""Cause of tables.trace.idle → what it means inside an inference, and what to do. Launches are the host's level."""
BETWEEN_STREAMS: Final = (
    "The next operation is launched already. Streams overlap here, so that it may wait for another one.",
    "See which event of another stream it waits for (cudaStreamWaitEvent), and leave out waits that no data needs.",
)
"""The same of a queued operation where streams overlap: neither one nor more of them is advised."""


@check("gaps", "The GPU is idle inside inferences", "device", ("gpu", "timeline"))
def _gaps(frames: Frames) -> list[Finding] | Clear:
    """GPU idle inside of inferences by cause, apart from launches, and from copies that stage:h2d and stage:d2h make.

    Shares are of the profile's iteration. Gain: from nothing to the idle time, for waits together no more than the
    waterfall's `idle`, which is of the bare run.
    """
    require_undistorted(frames)
    seen, inside = iteration(frames), watched(frames.timeline)
    total = seen["gpu_busy"] + seen["gpu_idle"]
    causes = [cause for cause in IDLE if cause != OTHER_PROCESS or f"idle_{cause}" in seen]
    idle = {cause: seen[f"idle_{cause}"] for cause in causes} | {"copy": inside.idle_copy}
    findings = [
        _gap(frames, cause, ns, total)
        for cause, ns in sorted(idle.items(), key=lambda pair: -pair[1])
        if ns >= frames.limit(GAPS) * total
    ]
    by_cause = ", ".join(f"{cause} {100 * ns / total:.1f} %" for cause, ns in idle.items())
    return findings or Clear(
        f"GPU idle in an iteration: {by_cause}", {f"idle_{cause}_ns": ns for cause, ns in idle.items()}
    )


def _gap(frames: Frames, cause: str, ns: float, total: float) -> Finding:
    between_streams = cause == "queued" and iteration(frames).get("streams_overlap", 0.0) > 0
    why, advice = BETWEEN_STREAMS if between_streams else IDLE[cause]
    bare = None if cause == "copy" else part(frames, "idle")
    most = min(ns, bare.ns) if bare else ns
    return Finding(
        subject=cause,
        bottleneck="copy" if cause == "copy" else "idle",
        share=frames.share(most),
        reason=f"the GPU is idle for {ms(ns)} of an iteration under {frames.tool} ({100 * ns / total:.1f} %). {why}",
        evidence={f"idle_{cause}_ns": ns, "iteration_ns": total},
        source=str(frames.tool),
        gain=Gain(0.0, most),
        advice=advice,
        confidence="low" if cause == UNKNOWN else "medium",
        acts=cause not in (UNKNOWN, OTHER_PROCESS),
    )


@check("no_overlap", "Copies do not hide behind the GPU", "device", ("gpu", "record"))
def _no_overlap(frames: Frames) -> list[Finding] | Clear:
    """A pipeline of two sessions hides few of the copies. No gain for one inference: throughput gains.

    At best all copies hide, so that each inference takes as long as the longer of its copies and `device`.
    """
    rows = throughput(frames.records)
    pipelined = rows[(rows["mode"] == "pipelined") & rows["not_measured"].isna() & rows["overlap"].notna()]
    if pipelined.empty:
        reasons = rows.loc[rows["mode"] == "pipelined", "not_measured"].dropna()
        raise NotAssessed(f"a pipelined throughput with copies to hide ({next(iter(reasons), 'none was measured')})")
    overlap, rate = (float(pipelined[column].astype(float).median()) for column in ("overlap", "inferences_per_s"))
    time = copying(frames)
    share, best = frames.share(time.ns), NS_PER_S / max(time.ns, bare_ns(frames.latency, "device") or 0.0)
    reason = (
        f"a pipeline hides {percent(overlap)} of staging and copies. These take {time.ms} ({percent(share)}). It "
        f"does {rate:.4g} inferences/s, at best {best:.4g}."
    )
    evidence = {"overlap": overlap, "copy_ns": time.ns, "inferences_per_s": rate, "best_inferences_per_s": best}
    if overlap >= frames.limit(NO_OVERLAP) or (share or 0.0) < frames.limit(HIDEABLE):
        return Clear(reason, evidence)
    advice = "Copy one batch while the other computes: page-locked arrays and two streams. Only throughput gains."
    return [Finding("", "copy", share, reason, evidence, RECORDS, None, advice, "high")]


@check("small_batch", "The batch is too small", "device", ("gpu", "record"), by="shape", scope="model")
def _small_batch(frames: Frames) -> list[Finding] | Clear:
    """Throughput (batch / median of `device`) is below its peak over the measured batches, and a larger one has more.

    No share and no gain: one inference of a larger batch takes longer.
    """
    series = _series(frames)
    own = Shape.parse(frames.case.shape).batch
    if len(series) < 2 or own not in series:
        raise NotAssessed("the case at two batches and more: `shapes:`")
    peak, enough = max(series.values()), smallest(series, series.values())
    rate = series[own]
    reason = f"b{own} does {rate:,.0f} items/s on the device, {percent(rate / peak)} of the peak's {peak:,.0f}."
    evidence = {"items_per_s": rate, "peak_items_per_s": peak, "saturated_batch": float(enough)}
    if own >= enough or 1 - rate / peak < frames.limit(BELOW_PEAK):
        return Clear(reason, evidence)
    caller = _series(frames, "end_to_end")
    if caller.get(own, 0.0) >= max((rate for batch, rate in caller.items() if batch >= enough), default=float("inf")):
        return Clear(f"{reason} A caller gets no more items/s from larger batches.", evidence)
    more = "" if enough < max(series) else " or more. None larger was measured"
    change = Change("shape", {**Shape.parse(frames.case.shape).as_dict(), BATCH: enough})
    advice = f"Take batches of {enough}{more}. Only throughput gains."
    return [Finding("", "latency", None, reason, evidence, RECORDS, None, advice, "high", change=change)]


def _series(frames: Frames, boundary: Boundary = "device") -> dict[int, float]:
    """Batch → items per second of the case's other batches and its own, in ascending order."""
    peers, case = frames.peers, frames.case
    alike = (peers[["precision", "backend", "variant"]] == [case.precision, case.backend, case.variant]).all(axis=1)
    rest = peers["shape"].map(rest_of) == rest_of(case.shape)
    times = f"{boundary}_ms"
    rows = peers[alike & rest & peers[times].notna()].sort_values("batch")
    return {int(b): float(b) / float(took) * 1e3 for b, took in zip(rows["batch"], rows[times], strict=True)}
