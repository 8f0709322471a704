"""Environment: does the machine hold the case back, and can what was measured be believed?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, get_args

from inferprof.diagnosis.times import RECORDS, copying, percent
from inferprof.documents.machine import Direction
from inferprof.documents.telemetry import Gauges
from inferprof.findings import END_TO_END, Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables.records import rows_of
from inferprof.tables.roofs import NO_GPU, gpu_in_use
from inferprof.units import NS_PER_MS
from inferprof.words import ms

ENVIRONMENT_FILE: Final = "environment.json"
POWER_CAP: Final = "power cap"
THROTTLED = Threshold("throttled", 0.05, "share of the samples", "ours: one sample in twenty may be of a loop's edge")
CLOCK_LOSS = Threshold(
    "clock_loss", 0.005, "share of the highest clock", "ours: half of the interval that a median is measured to"
)
LOW_CLOCK = Threshold(
    "low_clock", 0.05, "share of the highest clock", "ours: GPUs under load boost closer to it than this"
)
LINK_REACHED = Threshold(
    "link_reached", 0.6, "share of the link's rate", "ours: large page-locked copies reach 80 to 90 % of it"
)
LANE_GB_PER_S: Final[Mapping[str, float]] = {"3": 0.985, "4": 1.969, "5": 3.938}
"""PCI Express base specification: 8, 16 and 32 GT/s a lane and direction, with 128b/130b encoding."""
NOT_PCIE: Final = "copies do not go over PCIe: the GPU has the host's memory, or a link of its own to it"
SLOW_DOWN = Threshold(
    "slow_down", 2.0, "times bare", "ours: from here on more of the profile is the profiler's than the case's"
)
_MEASURED: Final = ("gpu", "record")


@check("throttling", "The GPU throttles", "environment", _MEASURED, by="machine")
def _throttling(frames: Frames) -> list[Finding] | Clear:
    """Heat or a fault lowered the clock while end_to_end was measured. Gain: see _lowered."""
    return _lowered(frames, lambda reason: reason != POWER_CAP, "Cool it better, and measure again on a cool card.")


@check("power_cap", "The power limit lowers the clock", "environment", _MEASURED, by="machine")
def _power_cap(frames: Frames) -> list[Finding] | Clear:
    """The power limit lowered the clock while end_to_end was measured. Gain: see _lowered."""
    gpu = gpu_in_use(frames.documents.environment) or NO_GPU
    limit, default = gpu.power_limit_w, gpu.power_limit_default_w
    advice = "The card is at its own limit. Only less work, fewer bytes or a narrower format need less power."
    if isinstance(limit, int | float) and isinstance(default, int | float) and limit < default:
        advice = f"Raise the limit of {limit:.0f} W to the card's {default:.0f} W: nvidia-smi --power-limit."
    return _lowered(frames, lambda reason: reason == POWER_CAP, advice)


def _lowered(frames: Frames, counts: Callable[[str], bool], advice: str) -> list[Finding] | Clear:
    """Gain: at most what all of end_to_end would gain if it ran at the card's highest clock, 1 - median / highest."""
    loops = _telemetry(frames)
    if all(loop.throttled_share is None for loop in loops):
        raise NotAssessed("a GPU that tells why its clock is low")
    reasons = sorted({reason for loop in loops for reason in loop.throttle_reasons if counts(reason)})
    share = max(
        (loop.throttled_share or 0.0 for loop in loops if any(map(counts, loop.throttle_reasons))), default=0.0
    )
    reason = f"{', '.join(reasons) or 'nothing'} lowered the clock in {percent(share)} of the samples of end_to_end."
    loss, clocks = _clock_loss(frames, loops)
    evidence = {"throttled_share": share, **({} if loss is None else {"clock_loss": loss})}
    if share < frames.limit(THROTTLED) or (loss is not None and loss < frames.limit(CLOCK_LOSS)):
        return Clear(f"{reason} {clocks}", evidence)
    gain = Gain(0.0, loss * frames.total.ns) if loss is not None and frames.total else None
    subject = ", ".join(reasons)
    return [Finding(subject, "kernels", loss, f"{reason} {clocks}", evidence, RECORDS, gain, advice, "medium")]


def _clock_loss(frames: Frames, loops: list[Gauges]) -> tuple[float | None, str]:
    """1 - median clock of the slowest round / the card's highest, and that in words; None where either is unknown."""
    clocks = [loop.sm_mhz.median for loop in loops if loop.sm_mhz]
    highest = (gpu_in_use(frames.documents.environment) or NO_GPU).clock_sm_max_mhz
    if not clocks or not isinstance(highest, int | float):
        return None, "The clock is unknown."
    return max(0.0, 1 - min(clocks) / highest), f"Its median was {min(clocks):.0f} of {highest:.0f} MHz."


@check("other_process", "Another process on the GPU", "environment", _MEASURED, by="machine")
def _other_process(frames: Frames) -> list[Finding] | Clear:
    """Another process computed on the GPU while the case was measured. What it took is not known."""
    processes = [loop.other_processes for loop in _telemetry(frames) if loop.other_processes is not None]
    if not processes:
        raise NotAssessed("a GPU that tells which processes compute on it, which it hides in some containers")
    if not max(processes):
        return Clear("no other process computed on the GPU")
    reason = f"{max(processes)} other processes computed on the GPU while the case was measured."
    advice = "Measure again on a GPU of its own. These latencies are an upper bound."
    return [
        Finding("", "measurement", None, reason, {"processes": float(max(processes))}, RECORDS, None, advice, "high")
    ]


@check("low_clock", "The clock is locked low", "environment", _MEASURED, by="machine")
def _low_clock(frames: Frames) -> list[Finding] | Clear:
    """The clock is low, and not because the GPU throttles: somebody locked it. Gain: see _lowered."""
    loops = _telemetry(frames)
    loss, clocks = _clock_loss(frames, loops)
    if loss is None:
        raise NotAssessed("the SM's clock in telemetry, and the card's highest in environment.json")
    throttled = max(loop.throttled_share or 0.0 for loop in loops)
    if loss < frames.limit(LOW_CLOCK) or throttled >= frames.limit(THROTTLED):
        return Clear(f"{clocks} It throttled in {percent(throttled)} of the samples.", {"clock_loss": loss})
    gain = Gain(0.0, loss * frames.total.ns) if frames.total else None
    advice = "Unlock the clock, unless it is locked on purpose: nvidia-smi --reset-gpu-clocks."
    reason = f"the SMs' clock is low, though nothing throttles it. {clocks}"
    return [Finding("", "kernels", loss, reason, {"clock_loss": loss}, RECORDS, gain, advice, "medium")]


@check("pcie_width", "The link is narrower than the card's", "environment", ("gpu", "environment"), by="machine")
def _pcie(frames: Frames) -> list[Finding] | Clear:
    """The link has fewer lanes than the card's. Gain: at most the copies' time that the missing lanes would save."""
    gpu = gpu_in_use(frames.documents.environment) or NO_GPU
    if gpu.reads_host_memory:
        return Clear(NOT_PCIE)
    width, widest = gpu.pcie_width, gpu.pcie_width_max
    if not isinstance(width, int) or not isinstance(widest, int):
        raise NotAssessed("a GPU that tells the width of its link")
    reason = f"the link has PCIe x{width} of x{widest}."
    evidence = {"pcie_width": float(width), "pcie_width_max": float(widest)}
    if width >= widest:
        return Clear(reason, evidence)
    gain = copying(frames).ns * (1 - width / widest)
    advice = "Use another slot, or a mainboard that gives the slot all lanes."
    return [
        Finding("", "copy", frames.share(gain), reason, evidence, ENVIRONMENT_FILE, Gain(0.0, gain), advice, "medium")
    ]


@check(
    "slow_link", "The link is slower than its lanes", "environment", ("gpu", "environment", "bandwidth"), by="machine"
)
def _slow_link(frames: Frames) -> list[Finding] | Clear:
    """Large page-locked copies are far slower than the link's lanes and generation allow.

    Gain: at most what the inputs and outputs would gain at the link's own rate: their floor (limits.copies.floors)
    times 1 - measured / rate.
    """
    gpu = gpu_in_use(frames.documents.environment) or NO_GPU
    if gpu.reads_host_memory:
        return Clear(NOT_PCIE)
    lane, width = LANE_GB_PER_S.get(str(gpu.pcie_generation_max)), gpu.pcie_width_max
    if lane is None or not isinstance(width, int):
        raise NotAssessed("a GPU that tells the generation and the width of its link")
    rate = lane * width
    bandwidth = frames.documents.bandwidth
    assert bandwidth is not None  # the check needs it
    link = {direction: bandwidth.link(direction).pinned.gb_per_s / rate for direction in get_args(Direction)}
    shares = ", ".join(f"{direction} {percent(share)}" for direction, share in link.items())
    reason = f"large copies reach {shares} of the link's {rate:.0f} GB/s."
    slow = [direction for direction, share in link.items() if share < frames.limit(LINK_REACHED)]
    if not slow:
        return Clear(reason, {f"{direction}_share": share for direction, share in link.items()})
    gain = sum(
        ms * NS_PER_MS * (1 - link[direction])
        for direction in slow
        for ms in frames.floors[f"{direction}_floor_ms"].dropna()
    )
    advice = "Use the slot's own root port, memory of the GPU's own NUMA node, and no IOMMU translation."
    return [
        Finding(
            subject=", ".join(slow),
            bottleneck="copy",
            share=frames.share(gain),
            reason=reason,
            evidence={f"{direction}_share": share for direction, share in link.items()},
            source="bandwidth.json",
            gain=Gain(0.0, gain),
            advice=advice,
            confidence="medium",
        )
    ]


@check("profiler_overhead", "A profiler distorts the case", "environment", _MEASURED, by="profilers")
def _overhead(frames: Frames) -> list[Finding] | Clear:
    """A profiler makes the case so slow that the shares of its trace are not those of the case."""
    timed = frames.overheads[frames.overheads["slow_down"].notna()]
    if timed.empty:
        raise NotAssessed("the iterations of a profile and end_to_end of a bare run")
    slow = {str(tool): float(times) for tool, times in zip(timed["tool"], timed["slow_down"], strict=True)}
    limit = frames.limit(SLOW_DOWN)
    findings = [
        Finding(
            subject=tool,
            bottleneck="measurement",
            share=None,
            reason=f"the case is {times:.3g} times as slow under it.",
            evidence={"slow_down": times},
            source=tool,
            gain=None,
            advice=f"Believe the kernels' times in {tool}'s trace, and no share of its idle time.",
            confidence="high",
        )
        for tool, times in slow.items()
        if times >= limit
    ]
    return findings or Clear(
        ", ".join(f"{times:.3g} times as slow under {tool}" for tool, times in slow.items()), slow
    )


@check("unsettled", "Measured before it settled", "environment", ("record",), by="protocol")
def _unsettled(frames: Frames) -> list[Finding] | Clear:
    """The warm-up's budget ended before latency and clock settled, the loop's samples drift (stats.drift), or the
    boundaries contradict each other: `end_to_end` contains what `device` measures."""
    rows = rows_of(frames.latency[frames.latency["not_measured"].isna()])
    reasons = [
        f"{row['boundary']} drifted by {100 * row['drift']:+.1f} %." for row in rows if row["drift"] is not None
    ]
    if restless := [row["boundary"] for row in rows if not row["settled"]]:
        reasons.insert(0, f"{', '.join(restless)} had not settled when the warm-up's budget ended.")
    medians = {row["boundary"]: row["median"] for row in rows}
    if (whole := medians.get(END_TO_END, 0.0)) < (part := medians.get("device", 0.0)) and whole:
        reasons.append(f"end_to_end ({ms(whole)}) is shorter than device ({ms(part)}), which is a part of it.")
    if not reasons:
        return Clear("every boundary settled before it was measured, and none drifted")
    advice = "Measure with a longer `budget_s:` under `protocol:`, on a machine that nobody else uses."
    return [Finding("", "measurement", None, " ".join(reasons), {}, RECORDS, None, advice, "high")]


def _telemetry(frames: Frames) -> list[Gauges]:
    """What telemetry says of the loops of end_to_end, by round. Raises NotAssessed where it saw none."""
    every = [record.telemetry for record in frames.records["record"] if record.telemetry]
    loops = [loop for telemetry in every if (loop := telemetry.boundaries.get(END_TO_END))]
    seen = [loop for loop in loops if loop.samples is not None]
    if not seen:
        reasons = [entry.not_measured for entry in (*loops, *every) if entry.not_measured]
        raise NotAssessed(f"telemetry of the loop of end_to_end ({next(iter(reasons), 'the record has none')})")
    return seen
