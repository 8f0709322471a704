"""Host: does the GPU wait for the program that feeds it, and for what in it?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pandas as pd
from msgspec import structs

from inferprof import registry
from inferprof.diagnosis.fallbacks import fallbacks_of
from inferprof.diagnosis.kernel_time import kernels_ns
from inferprof.diagnosis.times import Time, iteration, launch, part, percent, replays_a_graph, require_undistorted
from inferprof.diagnosis.transfer import HOST_COPY_GB_PER_S
from inferprof.findings import Bottleneck, Change, Clear, Finding, Frames, Gain, Threshold
from inferprof.plugins import check
from inferprof.tables.limits.waterfall import of_ranges
from inferprof.tables.nodes.providers import CPU
from inferprof.tables.trace.api_kind import ALLOCATION, COPY
from inferprof.tables.trace.idle import LAUNCH_PARTS, LAUNCHING
from inferprof.tables.trace.kernel_compare import iterations, of_iterations
from inferprof.words import counted, ms

LAUNCH_BOUND = Threshold(
    "launch_bound", 0.1, "share of the total", "ours: below a tenth a graph gains less than a number format does"
)
HOST_WORK = Threshold("host_work", 0.05, "share of the total", "ours: half of what makes a case launch-bound")
WAITS = Threshold("waits", 0.01, "share of the total", "ours: the interval that a median is measured to")
ALLOCATION_TIME = Threshold("allocation_time", 0.01, "share of the total", "ours: as for waits")
SAVED: Final = (0.7, 1.2)
"""Ours: what a CUDA graph saves, times the time in which the GPU is known neither to compute nor to copy. Of 19 tries
on H200s it saved 0.72 to 1.15 times that: waits do not go for good, and kernels start sooner behind each other. They
were measured end to end; of a trace alone it is never more than the time that the sentence names."""
COPYING: Final = 0.1
"""Ours: a call that copies for less than this part of its time waits for something else."""
CALL_NS: Final = 20_000
"""Ours: what a copy call takes beside the copy, at the upper end."""
WAITS_FOR_STREAM: Final = "See what the GPU does meanwhile. Page-locked memory does not make this wait shorter."
EXECUTE: Final = "stage:execute"
_COPY_STAGES: Final = "stage:h2d|stage:d2h"
_ADVICE: Final[Mapping[re.Pattern[str], tuple[Bottleneck, str]]] = {
    COPY: ("copy", "Copy asynchronously, from and to page-locked memory."),
    ALLOCATION: ("launch", "Allocate once and use it again: an arena, I/O binding, cudaMallocAsync."),
}
"""Kind of call → what it holds up, and what to do instead."""
_ELSE: Final[tuple[Bottleneck, str]] = ("idle", "Wait once, at the end of the inference.")
_NEEDS: Final = ("gpu", "timeline")


@check("launch_bound", "The GPU waits for launches", "host", _NEEDS, by="backend")
def _launch_bound(frames: Frames) -> list[Finding] | Clear:
    """Gain: that of a CUDA graph, which leaves one launch (_saved)."""
    require_undistorted(frames)
    waiting = launch(frames)
    seen = iteration(frames)
    share = frames.share(waiting.ns)
    launches = counted(seen["launches"], "launch")
    reason = f"the GPU waits {waiting.ms} for the host's launches ({percent(share)}; {launches})."
    if in_parts := _wait_in_parts(frames, seen["launches"]):
        reason = f"the GPU {in_parts}"
    evidence = {"launch_ns": waiting.ns, "launches": seen["launches"], "profiled_idle_launch_ns": seen["idle_launch"]}
    if share is None or share < frames.limit(LAUNCH_BOUND):
        return Clear(reason, evidence)
    graph = "" if replays_a_graph(frames) or frames.lost(graph_options(frames)) else " A CUDA graph needs one launch."
    advice = _on_the_cpu(frames) or f"Launch fewer kernels: compile the model, or take a larger batch.{graph}"
    return [_finding(frames, waiting, reason, evidence, _saved(frames, waiting), advice)]


@check("cuda_graph", "A CUDA graph would help", "host", _NEEDS)
def _cuda_graph(frames: Frames) -> list[Finding] | Clear:
    """Gain: SAVED times the time in which the GPU is known neither to compute nor to copy, which are the waterfall's
    launch, idle and unexplained.
    """
    if replays_a_graph(frames):
        return Clear("inference is one CUDA graph already")
    if elsewhere := _on_the_cpu(frames):
        return Clear(f"no CUDA graph holds what the CPU computes. {elsewhere}")
    waiting, seen = launch(frames), iteration(frames)
    nodes = of_ranges(frames.timeline).get(EXECUTE, {}).get("launches", seen["launches"])
    unused, idle = _unused(frames, waiting), _idle(seen)
    gain = _saved(frames, waiting, idle)
    share = frames.share(unused)
    launches = counted(nodes, "launch")
    reason = f"the GPU neither computes nor copies for {ms(unused)} ({percent(share)}; {launches})."
    if in_parts := _wait_in_parts(frames, nodes):
        reason = f"apart from copies the GPU is idle for {ms(idle)} ({percent(frames.share(idle))}). It {in_parts}"
    evidence = {"nodes": nodes, "launch_ns": waiting.ns, "idle_ns": unused}
    if share is None or share < frames.limit(LAUNCH_BOUND):
        return Clear(reason, evidence, gain)
    finding = _finding(frames, replace(waiting, ns=unused), reason, evidence, gain, graph_advice(frames))
    return [structs.replace(finding, change=_change(frames))]


def _unused(frames: Frames, waiting: Time) -> float:
    """ns in which the GPU is known neither to compute nor to copy: the wait for launches, and what is beside it."""
    return waiting.ns + sum(beside.ns for beside in (part(frames, "idle"), part(frames, "unexplained")) if beside)


def _idle(seen: Mapping[str, float]) -> float:
    """ns of an iteration in which the GPU is idle, but not for a copy or another process."""
    return seen["gpu_idle"] - seen["idle_copy"] - seen.get("idle_other_process", 0.0)


def _saved(frames: Frames, waiting: Time, idle: float = 0.0) -> Gain:
    """What one launch instead of many saves: never the kernels, which a graph holds too. Of a trace alone no more
    than the wait for launches, or than all of the time that is `idle`."""
    room = max(0.0, frames.total.ns - (kernels_ns(frames) or 0.0)) if frames.total else float("inf")
    unused = _unused(frames, waiting)
    if part(frames, "launch") is None:
        room = min(room, max(idle, unused))
    low, high = (min(room, times * unused) for times in SAVED)
    return Gain(low, high)


def _wait_in_parts(frames: Frames, launches: float) -> str:
    """The wait for launches in parts that add up to it, of a trace alone; empty where its table tells none."""
    seen, waiting = iteration(frames), launch(frames)
    if LAUNCHING not in seen or part(frames, "launch") is not None:
        return ""
    times = waiting.ns / seen["idle_launch"] if seen["idle_launch"] else 0.0
    calling, starting = (times * seen[name] for name in LAUNCH_PARTS)
    share = percent(frames.share(waiting.ns))
    return (
        f"waits {waiting.ms} for launches ({share}; {counted(launches, 'launch')}): the host works elsewhere for "
        f"{ms(_elsewhere(seen) * times)} and is in launching calls for {ms(calling)}, and after these {ms(starting)} "
        "pass until the GPU starts."
    )


def _elsewhere(seen: Mapping[str, float]) -> float:
    """ns of an iteration in which the GPU waits for a launch and the host launches nothing: outside of launching
    calls, and before the one that comes next. Of tables that do not tell these apart the least that it can be."""
    parts = LAUNCH_PARTS if LAUNCHING in seen else ("launch_overhead",)
    other = sum(seen[name] for name in parts)
    return max(0.0, seen["idle_launch"] - other)


def _on_the_cpu(frames: Frames) -> str:
    """What to do first where the GPU waits while the CPU computes nodes that fell back; empty where none did."""
    fallbacks = fallbacks_of(frames)
    nodes = fallbacks.loc[fallbacks["providers"].str.contains(CPU), "executions"].sum()
    return f"First bring {counted(nodes, 'node')} a run back from the CPU: see the check fallback." if nodes else ""


def graph_advice(frames: Frames) -> str:
    """What makes the case one launch; empty where the study tried that in vain."""
    options = graph_options(frames)
    if frames.lost(options):
        return ""
    if not options:
        return f"Take a runtime that captures CUDA graphs: {frames.case.backend} does not."
    option = ", ".join(f"{name}: {str(value).lower()}" for name, value in options.items())
    return f"Capture a CUDA graph: a variant with `{option}`."


def graph_options(frames: Frames) -> dict[str, bool | str]:
    """Of a variant that captures CUDA graphs; none where the backend has no such option."""
    backend = registry.backends().get(frames.case.backend)
    if backend is None or "cuda_graph" in backend.options:
        return {"cuda_graph": True}
    return {"compile_mode": "reduce-overhead"} if "compile_mode" in backend.options else {}


def _change(frames: Frames) -> Change:
    options = graph_options(frames)
    return Change("variant", options) if options else Change("backend")


@check("host_work", "The host works between launches", "host", _NEEDS, by="backend")
def _host_work(frames: Frames) -> list[Finding] | Clear:
    """What of the wait for launches passes outside of launching calls: the host does something else.

    Of the profile: idle_launch without launching_idle and starting_idle. Tables without these tell idle_launch -
    launch_overhead at least, as if all launching calls fell into idle time. It is scaled to the wait of the bare run.
    Gain: that of a CUDA graph (_saved).
    """
    waiting, seen = launch(frames), iteration(frames)
    least = waiting.ns * _elsewhere(seen) / seen["idle_launch"] if seen["idle_launch"] else 0.0
    bound, sure = ("", "") if LAUNCHING in seen else ("at least ", " for sure")
    share = frames.share(least)
    reason = (
        f"the GPU waits {waiting.ms} for launches. For {bound}{ms(least)} ({percent(share)}) of it the host "
        "launches nothing: it works in the framework or in the interpreter."
    )
    metrics = ("idle_launch", "launch_overhead", "launches", *LAUNCH_PARTS)
    evidence = {key: seen[key] for key in metrics if key in seen} | {"between_ns": least}
    if share is None or share < frames.limit(HOST_WORK):
        return Clear(f"{ms(least)} ({percent(share)}) of host work{sure} between launches", evidence)
    require_undistorted(frames)  # a tool that traces a graph's nodes makes waits longer, not shorter
    graph = "" if replays_a_graph(frames) or frames.lost(graph_options(frames)) else ", or a CUDA graph"
    less = f"Do less work per operator on the host: torch.compile, a runtime without an interpreter{graph}."
    advice = _on_the_cpu(frames) or less
    spent = Time(least, waiting.source, waiting.confidence)
    return [_finding(frames, spent, reason, evidence, _saved(frames, waiting), advice)]


@check("implicit_sync", "Calls wait for the GPU inside an inference", "host", _NEEDS)
def _waits(frames: Frames) -> list[Finding] | Clear:
    """Calls inside an inference that wait for the GPU: those that do so without saying it, apart from the copies of
    inputs and outputs, and any synchronise before the inference's end. Gain: their time at most, perhaps nothing,
    since work that is waited for must be done anyway."""
    rows = of_iterations(frames.timeline, "sync")
    implicit = rows.loc[rows["text"].eq("implicit").fillna(False), "name"].unique()
    parents = rows["range"].fillna("")
    inside = (rows["name"].isin(implicit) & ~parents.str.contains(_COPY_STAGES)) | parents.str.contains(EXECUTE)
    findings = _calls(frames, rows[inside], frames.limit(WAITS))
    return findings or Clear("no call inside an inference waits for the GPU for long")


@check("allocation", "Memory is allocated in each inference", "host", _NEEDS)
def _allocation(frames: Frames) -> list[Finding] | Clear:
    """Calls that allocate or free in each inference. Gain: their time at most, which the GPU's may hide."""
    rows = of_iterations(frames.timeline, "api")
    findings = _calls(frames, rows[rows["name"].str.match(ALLOCATION)], frames.limit(ALLOCATION_TIME))
    count = iteration(frames)["allocations"]
    return findings or Clear(f"{count:.1f} allocations in an inference", {"allocations": count})


def _calls(frames: Frames, rows: pd.DataFrame, limit: float) -> list[Finding]:
    """Those that take `limit` of the total or more in an iteration, longest first.

    A profiler makes calls longer, so that this is what they take at most.
    """
    sums = (
        rows[rows["metric"] == "duration_total"].groupby("name").agg(count=("instances", "sum"), ns=("value", "sum"))
    )
    each = iterations(frames.timeline)
    findings = []
    for name, count, ns in sums.sort_values("ns", ascending=False).itertuples(name=None):
        share = frames.share(float(ns) / each)
        if share is not None and share >= limit:
            findings.append(_call(frames, str(name), float(count) / each, float(ns) / each))
    return findings


def _copied_at_most(frames: Frames, calls: float) -> float:
    """ns that an iteration's copies take on the link, in the host's memory where that is not page-locked, and in so
    many calls; infinite where no copies were traced, or not their bytes."""
    rows = of_iterations(frames.timeline, "memcpy")
    took, moved = (rows[rows["metric"].eq(metric)] for metric in ("duration_total", "bytes_total"))
    if took.empty or set(took["name"]) - set(moved["name"]):
        return math.inf
    ns = float(took["value"].sum() + moved["value"].sum() / HOST_COPY_GB_PER_S)
    return ns / iterations(frames.timeline) + calls * CALL_NS


def _call(frames: Frames, name: str, count: float, ns: float) -> Finding:
    share = frames.share(ns)
    bottleneck, advice = next((then for pattern, then in _ADVICE.items() if pattern.match(name)), _ELSE)
    reason = f"{ms(ns)} of each inference ({percent(share)}), in {counted(count, 'call')}."
    most = min(ns, _copied_at_most(frames, count)) if COPY.match(name) else ns
    waits = most < COPYING * ns
    if waits:
        reason += f" Copying takes at most {ms(most)} of it: the call waits for earlier work of its stream."
        bottleneck, advice = "idle", WAITS_FOR_STREAM
    return Finding(
        subject=name,
        bottleneck=bottleneck,
        share=share,
        reason=reason,
        evidence={"calls": count, "call_ns": ns},
        source=str(frames.tool),
        gain=None if waits else Gain(0.0, most),
        advice=advice,
        confidence="medium",
        acts=not waits,
    )


def _finding(
    frames: Frames, time: Time, reason: str, evidence: Mapping[str, float], gain: Gain, advice: str
) -> Finding:
    """Of the whole case, which waits for launches."""
    share = frames.share(time.ns)
    return Finding("", "launch", share, reason, evidence, time.source, gain, advice, time.confidence)
