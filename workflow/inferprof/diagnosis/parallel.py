"""A case over several GPUs: do its messages suit the link, do its GPUs wait for launches or for another stage, what
does overlap cost, and is it faster than one GPU at all?"""

from __future__ import annotations

from typing import Final

from inferprof.case import PARALLEL
from inferprof.diagnosis.host import LAUNCH_BOUND, graph_advice
from inferprof.diagnosis.ranks import EXPOSED, collective_rows, traced, wide
from inferprof.diagnosis.times import RECORDS, compared_by, peer_of, percent, require_undistorted
from inferprof.findings import Change, Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables.limits import scaling
from inferprof.tables.limits.waterfall import of_ranges
from inferprof.tables.trace.collectives import ALL, BUS, iterations_of
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.units import MEGA, NS_PER_MS
from inferprof.words import ms

SMALL = Threshold(
    "small_messages",
    0.5,
    "share of the link's highest bus bandwidth",
    "ours: below half of it a message pays more for being sent than for its bytes",
)
SLOWED = Threshold("slowed_by_overlap", 0.1, "share of the time alone", "ours: streams on one GPU vary by less")
BUBBLES = Threshold("pipeline_bubbles", 0.05, "share of the total", "ours: as for gaps")
LARGER: Final = (
    "Send fewer and larger messages: more tokens an inference, or fewer GPUs. Or take an all-reduce for small ones."
)
FEWER_BLOCKS: Final = "Leave the computation more of the GPU: fewer blocks for NCCL (NCCL_MAX_CTAS), or copy engines."
PAYS: Final = "The section Several GPUs says from which size on more of them pay."
SIZES: Final = "sizes of messages: kineto under `profilers:`"
_TRACED: Final = ("ranks", "timeline")


@check("small_messages", "Messages are too small for the link", "device", ("ranks", "timeline", "links"))
def _small_messages(frames: Frames) -> list[Finding] | Clear:
    """Messages with which the link does not reach half of its highest bus bandwidth. Gain: from nothing to what
    transfers take beyond the time of their bytes at that bandwidth, if it is not hidden."""
    links = frames.documents.links
    assert links is not None
    rows = frames.profiles[frames.profiles["level"].eq("collective") & frames.profiles["name"].isin(BUS)]
    sized = rows[rows["tool"].isin(rows.loc[rows["metric"].eq("message_total"), "tool"])]
    if sized.empty:
        raise NotAssessed(SIZES)
    tool = str(sized["tool"].iloc[0])
    sized = sized[sized["tool"].eq(tool)]
    if (gpus := sized["device"].nunique()) != links.ranks:
        raise NotAssessed(f"links.json of {gpus} GPUs: inferprof links --gpus {gpus}")
    count = iterations_of(frames.of_tool(tool))
    findings, clear = [], []
    for operation, own in sized.groupby("name"):
        totals = own.groupby("metric")["value"].mean()
        best, each = scaling.best_gb_per_s(links, str(operation)), own["instances"].max()
        alone = scaling.message_ns(links, str(operation), size := totals["message_total"] / each)
        if best is None or alone is None:
            clear.append(f"{operation} of {size:,.0f} bytes was not measured")
            continue
        reached = totals["bus_total"] / each / alone
        beyond = max(0.0, totals["transfer_total"] - totals["bus_total"] / best) / count
        cost = min(beyond, _exposed(frames, tool))
        reason = (
            f"{operation} sends {each / count:,.0f} messages of {size / MEGA:,.3g} MB an inference. With "
            f"these the link does {reached:.3g} GB/s, {percent(reached / best)} of its best. Transfers take "
            f"{ms(totals['transfer_total'] / count)}, {ms(beyond)} beyond their bytes at the best."
        )
        evidence = {"message_bytes": size, "link_gb_s": reached, "best_gb_s": best, "beyond_ns": beyond}
        share = frames.share(cost)
        if reached >= frames.limit(SMALL) * best or (share or 0.0) < frames.limit(EXPOSED):
            clear.append(reason)
            continue
        source, gain = f"links.json, {tool}", Gain(0.0, cost)
        findings.append(Finding(str(operation), "kernels", share, reason, evidence, source, gain, LARGER, "medium"))
    return findings or Clear(" ".join(clear))


def _exposed(frames: Frames, tool: str) -> float:
    """What no computation hides of communication in an iteration, ns, waiting included: the most of any GPU."""
    rows = frames.of_tool(tool)
    whole = rows[rows["name"].eq(ALL) & rows["metric"].eq("exposed_total")]
    return float(whole["value"].max()) / iterations_of(rows)


@check("launch_bound_rank", "A GPU that others wait for waits for launches", "host", _TRACED)
def _launch_bound_rank(frames: Frames) -> list[Finding] | Clear:
    """GPUs that wait for launches and are not the busiest, of which launch_bound speaks: a GPU that waits in a
    collective for one that waits for launches is busy. Gain: from nothing to the longest of these waits."""
    require_undistorted(frames)
    rows = traced(frames)
    others = sorted(set(rows["device"].dropna().astype(int)) - set(frames.timeline["device"].dropna().astype(int)))
    idle = {gpu: of_ranges(rows[rows["device"].eq(gpu)]).get(ITERATION, {}).get("idle_launch", 0.0) for gpu in others}
    late = [gpu for gpu, ns in idle.items() if (frames.share(ns) or 0.0) >= frames.limit(LAUNCH_BOUND)]
    reason = "; ".join(
        f"GPU {gpu} waits {ms(ns)} of an iteration for its host's launches" for gpu, ns in idle.items()
    )
    evidence = {f"gpu{gpu}_idle_launch_ns": ns for gpu, ns in idle.items()}
    if not late:
        return Clear(reason or "the capture has one GPU", evidence)
    most = max(idle.values())
    advice = graph_advice(frames) or "Give each rank cores of its own, and launch fewer kernels."
    return [
        Finding(
            subject=", ".join(f"GPU {gpu}" for gpu in late),
            bottleneck="launch",
            share=frames.share(most),
            reason=f"{reason}. Others wait for that in collectives, and look busy.",
            evidence=evidence,
            source=str(frames.tool),
            gain=Gain(0.0, most),
            advice=advice,
            confidence="medium",
        )
    ]


@check("slower_than_alone", "Several GPUs are slower than one", "device", ("ranks", "record"), scope="model")
def _slower_than_alone(frames: Frames) -> list[Finding] | Clear:
    """The case with the same options on one GPU is faster, by intervals that lie apart. Gain: the difference, by the
    edges of the intervals."""
    case = frames.undivided
    alone, own = (each and peer_of(frames.peers, each) for each in (case, frames.case))
    if not (case and alone and own):
        raise NotAssessed(f"the case on one GPU: a variant with the same options without `{PARALLEL}`")
    boundary = compared_by(own, alone)
    here, there = (
        {edge: float(row[f"{boundary}_{edge}ms"]) * NS_PER_MS for edge in ("", "low_", "high_")}
        for row in (own, alone)
    )
    reason = (
        f"it takes {ms(here[''])} by {boundary}, and {ms(there[''])} on one GPU ({case.variant}): "
        f"{there[''] / here['']:.3g} times as fast."
    )
    evidence = {"divided_ns": here[""], "alone_ns": there[""]}
    least, most = here["low_"] - there["high_"], here["high_"] - there["low_"]
    if not least > 0:
        return Clear(reason, evidence)
    advice = f"Run this size on one GPU: {case.variant}. {PAYS}"
    return [
        Finding(
            subject="",
            bottleneck="kernels",
            share=frames.share(here[""] - there[""]),
            reason=reason,
            evidence=evidence,
            source=RECORDS,
            gain=Gain(least, most),
            advice=advice,
            confidence="high",
            change=Change("variant"),
        )
    ]


@check("slowed_by_overlap", "Communication slows what it hides behind", "device", _TRACED)
def _slowed_by_overlap(frames: Frames) -> list[Finding] | Clear:
    """Kernels take longer beside communication than alone. Gain: from nothing to all of the difference."""
    whole, count = _of_gpus(frames), iterations_of(traced(frames))
    shared = {gpu: own for gpu, own in whole.items() if "slowed_total" in own}
    if not shared:
        raise NotAssessed("kernels that run both beside communication and alone")
    gpu = max(shared, key=lambda each: shared[each]["slowed_total"])
    slowed, beside = (shared[gpu][name] / count for name in ("slowed_total", "beside_total"))
    longer = slowed / max(beside - slowed, 1.0)
    share = frames.share(slowed)
    reason = (
        f"GPU {gpu} computes for {ms(beside)} of an iteration beside communication. That takes {percent(longer)} "
        f"longer than kernels of the same name, grid and block do alone: {ms(max(0.0, slowed))}."
    )
    evidence = {"beside_ns": beside, "slowed_ns": slowed, "longer": longer}
    if longer < frames.limit(SLOWED) or (share or 0.0) < frames.limit(EXPOSED):
        return Clear(reason, evidence)
    gain = Gain(0.0, slowed)
    return [Finding(f"GPU {gpu}", "kernels", share, reason, evidence, str(frames.tool), gain, FEWER_BLOCKS, "low")]


@check("pipeline_bubbles", "Stages of a pipeline wait for each other", "device", _TRACED)
def _pipeline_bubbles(frames: Frames) -> list[Finding] | Clear:
    """The stages of a pipeline have nothing to do while it fills and empties. Gain: from nothing to the shortest of
    the GPUs' bubbles: the longest stage stays."""
    whole, count = _of_gpus(frames), iterations_of(traced(frames))
    idle = {gpu: own["bubble_total"] / count for gpu, own in whole.items() if "bubble_total" in own}
    if not idle:
        raise NotAssessed("GPUs that send to each other in pairs: none do")
    reason = "; ".join(f"GPU {gpu} has nothing to do for {ms(ns)} of an iteration" for gpu, ns in idle.items())
    evidence = {f"gpu{gpu}_bubble_ns": ns for gpu, ns in idle.items()}
    least, most = min(idle.values()), max(idle.values())
    if (frames.share(most) or 0.0) < frames.limit(BUBBLES):
        return Clear(f"{reason}.", evidence)
    subject = f"GPU {max(idle, key=lambda gpu: idle[gpu])}"
    advice = "Cut the batch into more parts, and divide the model so that all stages take as long."
    reason, share = f"{reason}. It waits for another stage there.", frames.share(most)
    return [Finding(subject, "idle", share, reason, evidence, str(frames.tool), Gain(0.0, least), advice, "medium")]


def _of_gpus(frames: Frames) -> dict[int, dict[str, float]]:
    """GPU → metric of its communication as a whole."""
    rows = collective_rows(frames)
    return wide(rows[rows["name"].eq(ALL)])
