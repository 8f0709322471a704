"""Several GPUs: who waits for whom in collectives, and is communication hidden behind computation?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from inferprof.diagnosis.times import iteration, on_several_gpus
from inferprof.findings import Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables.limits import scaling
from inferprof.tables.limits.waterfall import of_ranges
from inferprof.tables.trace.collectives import ALL, LEVEL, POINT_TO_POINT, iterations_of
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.units import MEGA
from inferprof.words import ms

WAITS = Threshold("waits_for_gpu", 0.05, "share of the total", "ours: as for gaps")
EXPOSED = Threshold("exposed_communication", 0.05, "share of the total", "ours: as for gaps")
COUNTS: Final = ("instances", "last_count")
MESSAGES: Final = ["bus_total", "message_total", "transfer_total"]
CAUSES: Final[Mapping[str, tuple[str, str]]] = {
    "waiting_compute": ("It computes longer.", "Divide the work evenly: GPU {late} has more of it, or is slower."),
    "waiting_copy": ("It copies longer.", "Take the copies off GPU {late}, or make them asynchronous."),
    "waiting_idle": (
        "It is idle meanwhile: its launches come later.",
        "Capture a CUDA graph on each GPU, and give the process of GPU {late} cores of its own.",
    ),
}
"""What the last GPU does longer → what that means, and what to do."""


@dataclass(frozen=True)
class Work:
    """Of an iteration over several GPUs, ns: least is what the GPU with the most work of its own computes and
    transfers, which all others must wait for; waits is what the busiest GPU's kernels wait for others."""

    least: float = 0.0
    waits: float = 0.0


@check("late_rank", "A GPU waits for another in collectives", "device", ("gpu", "timeline"))
def _late_rank(frames: Frames) -> list[Finding] | Clear:
    """A GPU waits in collectives for one that begins them later. Gain: from nothing to the longest waiting."""
    gpus = _per_iteration(frames)
    waiting = max(gpus, key=lambda gpu: gpus[gpu]["waiting_total"])
    late = max(gpus, key=lambda gpu: gpus[gpu]["last_count"])
    own = gpus[waiting]
    share = frames.share(own["waiting_total"])
    evidence = {name: value for name, value in own.items() if name not in COUNTS}
    reason = (
        f"GPU {waiting} waits {ms(own['waiting_total'])} of an iteration in collectives for other GPUs. Transfers "
        f"take it {ms(own['transfer_total'])}; they differ by {ms(own['spread_total'])} between the GPUs."
    )
    sizes, numbers = _messages(frames, waiting)
    reason, evidence = reason + _clocks(frames) + sizes, evidence | numbers
    if (share or 0.0) < frames.limit(WAITS):
        return Clear(reason, evidence)
    cause = max(CAUSES, key=lambda name: own[name])
    meaning, advice = CAUSES[cause]
    lateness = f"GPU {late} begins {gpus[late]['last_count']:,.0f} of {own['instances']:,.0f} last. {meaning}"
    finding = Finding(
        subject=f"GPU {late}",
        bottleneck="kernels",
        share=share,
        reason=f"{reason} {lateness}",
        evidence=evidence,
        source=str(frames.tool),
        gain=Gain(0.0, own["waiting_total"]),
        advice=advice.format(late=late),
        confidence="medium",
    )
    return [finding]


def _clocks(frames: Frames) -> str:
    """What was taken off the clocks of GPUs."""
    rows = collective_rows(frames)
    offsets = rows[rows["metric"].eq("clock_offset")]
    return "".join(
        f" The clock of GPU {gpu} was {ns / 1e3:+.1f} µs off, which is taken off."
        for gpu, ns in zip(offsets["device"].astype(int), offsets["value"], strict=True)
    )


@check("exposed_communication", "Communication is not hidden behind computation", "device", ("gpu", "timeline"))
def _exposed(frames: Frames) -> list[Finding] | Clear:
    """Communication that no computation of its GPU hides, less waiting where told. Gain: from nothing to it."""
    rows = collective_rows(frames)
    if rows.empty:
        raise NotAssessed("kernels that communicate between GPUs: none ran")
    count = iterations_of(traced(frames))
    whole, paired = wide(rows[rows["name"].eq(ALL)]), wide(rows[rows["name"].ne(ALL)])
    if not whole:
        raise NotAssessed("communication in an iteration: none of it was launched there")
    exposed = {
        gpu: max(0.0, own["exposed_total"] - paired.get(gpu, {}).get("waiting_total", 0.0)) / count
        for gpu, own in whole.items()
    }
    gpu = max(exposed, key=lambda gpu: exposed[gpu])
    talks, share = whole[gpu]["duration_total"] / count, frames.share(exposed[gpu])
    words = "without waiting" if paired else "waiting for other GPUs included"
    reason = (
        f"GPU {gpu} communicates for {ms(talks)} of an iteration. {ms(exposed[gpu])} of it, {words}, is not hidden "
        "behind computation."
    )
    evidence = {"communication_ns": talks, "exposed_ns": exposed[gpu]}
    sizes, numbers = _messages(frames, gpu)
    reason, evidence = reason + sizes, evidence | numbers
    if (share or 0.0) < frames.limit(EXPOSED):
        return Clear(reason, evidence)
    sooner = "Send sooner" if iteration(frames).get("streams_overlap", 0.0) > 0 else "Send on a second stream"
    advice = f"{sooner}, while the next part computes. Or send fewer bytes, or use fewer GPUs."
    gain = Gain(0.0, exposed[gpu])
    return [Finding(f"GPU {gpu}", "kernels", share, reason, evidence, str(frames.tool), gain, advice, "medium")]


def _messages(frames: Frames, gpu: int) -> tuple[str, dict[str, float]]:
    """Of each operation the size of its messages on a GPU and their bus bandwidth without waiting, beside what the
    link does with that size, in words and as evidence; nothing where the tool tells no sizes."""
    rows = collective_rows(frames)
    own = rows[rows["device"].eq(gpu) & rows["name"].ne(ALL)]
    values = own.pivot_table(index="name", columns="metric", values="value").reindex(columns=MESSAGES).dropna()
    counts = own.groupby("name")["instances"].max()
    words = ""
    numbers: dict[str, float] = {}
    for name, bus, total, transfer in values[values["transfer_total"] > 0].itertuples():
        size, bandwidth = total / counts[name], bus / transfer
        numbers |= {f"{name}_bus_gb_s": bandwidth, f"{name}_message_bytes": size}
        words += f" {name} moves messages of {size / MEGA:,.3g} MB at a bus bandwidth of {bandwidth:.3g} GB/s."
        if (links := frames.documents.links) and (alone := scaling.message_ns(links, name, size)):
            numbers[f"{name}_link_gb_s"] = bus / counts[name] / alone
            words += f" The link does {bus / counts[name] / alone:.3g} GB/s with these."
    return words, numbers


def own_work(frames: Frames) -> Work:
    """Of a case over several GPUs: what no end of waiting shortens, and what of the kernels is waiting. Where waiting
    is not told, communication counts as it."""
    if frames.tool is None or not on_several_gpus(frames):
        return Work()
    rows, count = traced(frames), iterations_of(traced(frames))
    talks = collective_rows(frames)
    own = {gpu: of_ranges(part)[ITERATION]["kernel_busy"] for gpu, part in _by_gpu(rows).items()}
    paired = {gpu: values.get("waiting_total", 0.0) for gpu, values in wide(talks[talks["name"].ne(ALL)]).items()}
    whole = {gpu: values.get("exposed_total", 0.0) for gpu, values in wide(talks[talks["name"].eq(ALL)]).items()}
    waits = {
        gpu: min(ns, (paired if any(paired.values()) else whole).get(gpu, 0.0) / count) for gpu, ns in own.items()
    }
    busiest = frames.timeline["device"].dropna()
    return Work(max(own[gpu] - waits[gpu] for gpu in own), waits.get(int(busiest.iloc[0]), 0.0))


def _by_gpu(rows: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """GPU → its rows, of those that compute in iterations."""
    busy = rows[rows["name"].eq(ITERATION) & rows["metric"].eq("kernel_busy")]
    return {int(gpu): rows[rows["device"].eq(gpu)] for gpu in busy["device"].unique()}


def _per_iteration(frames: Frames) -> dict[int, dict[str, float]]:
    """GPU → metric of its collectives, all operations together, per iteration; COUNTS are of the whole capture."""
    rows = collective_rows(frames)
    if rows.empty:
        raise NotAssessed("kernels that communicate between GPUs: none ran")
    reasons = rows.loc[rows["metric"].eq("not_paired"), "text"]
    if len(reasons):
        raise NotAssessed(f"collectives of several GPUs in one capture: {reasons.iloc[0]}")
    count = iterations_of(traced(frames))
    alike = rows[~rows["name"].isin((ALL, POINT_TO_POINT))]
    if alike.empty:
        raise NotAssessed("collectives of all GPUs: only pairs of them send to each other")
    return {
        gpu: {name: value if name in COUNTS else value / count for name, value in own.items()}
        for gpu, own in wide(alike).items()
    }


def wide(rows: pd.DataFrame) -> dict[int, dict[str, float]]:
    """GPU → metric → sum over the operations, with `instances`."""
    numbers = rows[rows["value"].notna()]
    table: dict[int, dict[str, float]] = {}
    for gpu, name, value, count in zip(
        *(numbers[key] for key in ("device", "metric", "value", "instances")), strict=True
    ):
        own = table.setdefault(int(gpu), {"instances": 0.0})
        own[name] = own.get(name, 0.0) + float(value)
        own["instances"] += count if name == "duration_total" else 0
    return table


def collective_rows(frames: Frames) -> pd.DataFrame:
    """What tables.trace.collectives says of the case."""
    rows = traced(frames)
    return rows[rows["level"].eq(LEVEL)]


def traced(frames: Frames) -> pd.DataFrame:
    """What the tool of the timeline saw on all GPUs: the timeline itself is of the busiest."""
    return frames.of_tool(str(frames.tool))
