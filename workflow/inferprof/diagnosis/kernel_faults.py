"""What is wrong inside of single kernels, by their counters: one check per fault of tables.counters.kernel_faults.

A fault counts by the kernel's share of the kernels' time in the timeline, never by ncu's own durations. The gain is
at most what the fault wastes of that time, and perhaps nothing: another limit may stand right behind it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from inferprof import registry
from inferprof.diagnosis.kernel_time import KERNEL_SHARE, counted_by, of_kernels, rows_counted, short
from inferprof.findings import Bottleneck, Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.grouping import grouped
from inferprof.plugins import Check, check
from inferprof.tables.counters import kernel_faults, ncu_timeline
from inferprof.tables.counters.kernel_faults import BUSY_PERCENT, OCCUPANCY_PERCENT, FaultName
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.nodes import product_kernels
from inferprof.tables.records import rows_of
from inferprof.tables.schema import by_launch, of_first
from inferprof.words import counted

WARP: Final = 32
Evidence = Mapping[str, float]
INTER_SM: Final = Threshold(
    "inter_sm_traffic",
    0.25,
    "of the bytes that the SMs read and write",
    "ours: beyond it blocks of a cluster pass on more than the borders of their tiles",
)

MORE_BLOCKS: Final = "Launch more blocks, and of equal length: a larger batch, smaller tiles, or split-K."
"""Where as many warps as are wanted would fit."""


@dataclass(frozen=True)
class Fault:
    """How a fault of counters.kernel_faults is told. `waste`: the share of the kernel's time that it may cost."""

    title: str
    bottleneck: Bottleneck
    waste: Callable[[Evidence], float | None]
    advice: str
    advice_by: Callable[[Evidence], str | None] = lambda seen: None
    """Other advice, where what was counted asks for it."""


FAULTS: Final[Mapping[FaultName, Fault]] = {
    "bank_conflicts": Fault(
        "Bank conflicts in shared memory",
        "memory",
        lambda seen: seen["excess_percent"] / 100,
        "Pad or swizzle the tiles in shared memory. Of a library's kernel, try another version or tactic.",
    ),
    "uncoalesced": Fault(
        "Uncoalesced accesses of global memory",
        "memory",
        lambda seen: seen["excess_percent"] / 100,
        "Let neighbouring threads read neighbouring addresses: another layout, or a fused transpose.",
    ),
    "spills": Fault(
        "Spilled registers",
        "memory",
        lambda seen: seen["spill_percent"] / 100,
        "Use fewer registers per thread: smaller tiles, or less unrolling.",
    ),
    "divergence": Fault(
        "Divergent warps",
        "compute",
        lambda seen: 1 - min(seen["threads_per_instruction"], seen["threads_per_instruction_predicated"]) / WARP,
        "Let the threads of a warp take the same branch: sort or pad the work.",
    ),
    "atomics": Fault(
        "Atomics on global memory",
        "memory",
        lambda seen: seen["atomic_percent"] / 100,
        "Add up inside of a block first, and once per block into global memory.",
    ),
    "l2_misses": Fault(
        "Data read again from device memory",
        "memory",
        lambda seen: 1 - 1 / seen["times_read"],
        "Work on less at a time, so that the L2 holds it: another batch, tiling, or fusion.",
    ),
    "tail": Fault(
        "A last wave that is not full",
        "tail",
        lambda seen: seen["tail_waste"] / 100,
        "Choose a batch or a tile with which the blocks fill whole waves.",
    ),
    "small_grid": Fault(
        "Fewer blocks than SMs",
        "tail",
        lambda seen: 1 - seen["blocks"] / seen["sms"],
        "Take a larger batch, smaller tiles or split-K. Or run it beside another kernel.",
    ),
    "low_occupancy": Fault(
        "Too few warps to hide latency",
        "latency",
        lambda seen: 1 - max(value for name, value in seen.items() if "occupancy" not in name) / BUSY_PERCENT,
        "Use fewer registers or less shared memory per block. Or launch more blocks: a larger batch.",
        lambda seen: MORE_BLOCKS if seen["occupancy_theoretical"] >= OCCUPANCY_PERCENT else None,
    ),
    "tensor_cores_unused": Fault(
        "Matrix products without tensor cores",
        "compute",
        lambda seen: None,
        "Use sizes and layouts that tensor cores take (multiples of 16 bytes), TF32 for fp32, or another version.",
    ),
}


def judged(frames: Frames) -> pd.DataFrame:
    """kernel_faults.of_launches of the case's counters, with `time_share` of each launch in the timeline or None."""
    counters = counters_of(frames)
    shares = time_shares(frames, counters)
    table = kernel_faults.of_launches(counters, _must_read(frames, counters))
    return table.assign(time_share=pd.Series([shares.get(launch) for launch in table["launch"]], dtype=object))


def _must_read(frames: Frames, counters: pd.DataFrame) -> dict[str, float]:
    """Kernel → the bytes that it must read, where the nodes that it computes are known, and what they cost."""
    ties = of_first(frames.profiles, registry.joining("node"))
    cost = frames.documents.cost
    if cost is None or ties.empty:
        return {}
    reads = product_kernels.of_functions(ties, cost.nodes or ())
    names = counters.loc[counters["level"] == "kernel", "name"].astype(str).unique()
    return {name: reads[function_name(name)] for name in names if function_name(name) in reads}


def counters_of(frames: Frames) -> pd.DataFrame:
    """What ncu counted of the case. Raises NotAssessed where it could count nothing."""
    rows = rows_counted(frames)
    if not (rows["level"] == "kernel").any():
        refusals = rows.loc[rows["metric"] == "not_measured", "text"]
        raise NotAssessed(
            f"counters of the case's kernels: {refusals.iloc[0]}" if len(refusals) else "counters (ncu)"
        )
    return rows


def time_shares(frames: Frames, counters: pd.DataFrame) -> dict[int, float]:
    """Launch → share of the kernels' time; only those that the timeline has. Launches alike share it evenly. Of what
    only counters are known of, their launches are all there is."""
    if frames.tool is None:
        own = counters[counters["metric"].eq("duration_total") & counters["launch"].notna()]
        alone = frames.records.empty and own["value"].sum()
        return dict(zip(own["launch"].astype(int), own["value"] / alone, strict=True)) if alone else {}
    rows = rows_of(ncu_timeline.against_timeline(counters, frames.timeline))
    timed = [row for row in rows if row["time_share"] is not None]
    alike = [tuple(str(row.get(key)) for key in ("name", "grid", "block")) for row in timed]
    return {row["launch"]: row["time_share"] / alike.count(key) for row, key in zip(timed, alike, strict=True)}


def _run(frames: Frames, fault: FaultName) -> list[Finding] | Clear:
    """Kernels with KERNEL_SHARE of the time that have the fault. Gain: 0 to `waste` of their time (FAULTS)."""
    table = frames.once(judged)
    rows = rows_of(table[table["fault"] == fault])
    assessed = [row for row in rows if row["verdict"] != "not assessed"]
    if not assessed:
        raise NotAssessed(str(rows[0]["reason"]).removeprefix("needs "))
    limit = frames.limit(KERNEL_SHARE)
    amiss = merged([row for row in assessed if row["verdict"] == "found"])
    worth = [row for row in amiss if row["time_share"] is None or row["time_share"] >= limit]
    if not worth:
        rest = f"; and {counted(len(amiss), 'kernel')} with less than {limit:.0%} of the time" if amiss else ""
        return Clear(f"{len(assessed)} of {counted(len(rows), 'counted launch')} tell: {assessed[0]['reason']}{rest}")
    return [_finding(frames, FAULTS[fault], row) for row in worth]


def merged(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per kernel: the launch with the largest share, with that of all of its launches, `alike`."""
    kernels = grouped((row["name"], row) for row in rows)
    largest = []
    for own in kernels.values():
        shares = [row["time_share"] for row in own]
        first = max(own, key=lambda row: row["time_share"] or 0.0)
        present = [share for share in shares if share is not None]
        largest.append({**first, "time_share": sum(present) if present else None, "alike": own})
    return largest


def _finding(frames: Frames, fault: Fault, row: Mapping[str, Any]) -> Finding:
    time = of_kernels(frames, row["time_share"])
    waste = fault.waste(row["evidence"])
    return Finding(
        subject=short(row["name"]),
        bottleneck=fault.bottleneck,
        share=frames.share(time),
        reason=f"{row['reason']}{of_time(row['time_share'])}.",
        evidence={**row["evidence"], **({} if row["time_share"] is None else {"time_share": row["time_share"]})},
        source=counted_by(frames),
        gain=None if time is None or waste is None else Gain(0.0, max(0.0, min(1.0, waste)) * time),
        advice=fault.advice_by(row["evidence"]) or fault.advice,
        confidence="medium",
    )


def of_time(share: float | None) -> str:
    """` (12.3 % of the kernels' time)`, or nothing."""
    return "" if share is None else f" ({100 * share:.1f} % of the kernels' time)"


def _check(fault: FaultName) -> Check:
    run = functools.partial(_run, fault=fault)
    return Check(fault, FAULTS[fault].title, "kernel", ("gpu", "counters"), run, by="kernel")


BANK_CONFLICTS = _check("bank_conflicts")
UNCOALESCED = _check("uncoalesced")
SPILLS = _check("spills")
DIVERGENCE = _check("divergence")
ATOMICS = _check("atomics")
L2_MISSES = _check("l2_misses")
TAIL = _check("tail")
SMALL_GRID = _check("small_grid")
LOW_OCCUPANCY = _check("low_occupancy")
TENSOR_CORES_UNUSED = _check("tensor_cores_unused")


@check("inter_sm_traffic", "Traffic between SMs", "kernel", ("gpu", "counters"), by="kernel")
def _inter_sm(frames: Frames) -> list[Finding] | Clear:
    """Kernels whose SMs read and write INTER_SM of their bytes in each other's memory. Its cost is not known."""
    counters = counters_of(frames)
    parts = [f"{whose}sm_bytes_{way}" for whose in ("inter_", "") for way in ("read", "written")]
    launches = by_launch(counters).reindex(columns=["launch", "name", *parts]).dropna()
    if launches.empty:
        raise NotAssessed(f"{', '.join(parts)}: ncu counts them from compute capability 9.0 on")
    shares, limit = time_shares(frames, counters), frames.limit(INTER_SM)
    findings, highest = [], 0.0
    for row in rows_of(launches):
        between, all_bytes = (
            row[f"{whose}sm_bytes_read"] + row[f"{whose}sm_bytes_written"] for whose in ("inter_", "")
        )
        part = between / all_bytes if all_bytes else 0.0
        highest = max(highest, part)
        if part >= limit:
            time = of_kernels(frames, shares.get(row["launch"]))
            findings.append(_traffic(frames, row, part, time))
    return findings or Clear(f"at most {highest:.1%} of what the SMs read and write is between SMs")


def _traffic(frames: Frames, row: Mapping[str, Any], part: float, time: float | None) -> Finding:
    return Finding(
        subject=short(row["name"]),
        bottleneck="memory",
        share=frames.share(time),
        reason=f"{part:.0%} of what its SMs read and write is between SMs.",
        evidence={"inter_sm_share": part},
        source=counted_by(frames),
        gain=None,
        advice="Use smaller clusters, or tiles that need less of each other.",
        confidence="low",
    )
