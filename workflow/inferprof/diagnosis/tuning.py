"""Choices of autotuned kernels: is another one faster, what did choosing take, and does the choice move with size?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from inferprof import registry
from inferprof.diagnosis.times import RECORDS, bare_ns, percent
from inferprof.findings import Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables import tuning
from inferprof.tables.records import rows_of
from inferprof.tables.schema import of_first
from inferprof.tables.trace.kernel_class import own_name
from inferprof.tables.trace.kernel_compare import per_iteration
from inferprof.units import NS_PER_US

CHOICE_COST = Threshold("choice_cost", 0.05, "over the best known choice", "ours: timings of one kernel vary by less")
TUNING_SHARE = Threshold("tuning_share", 0.5, "share of the first inference", "ours: it is what to shorten first")
TUNING_S = Threshold("tuning_s", 1.0, "s", "ours: a start takes longer than that anyway")
ORIGIN: Final[Mapping[str, str]] = {
    "tried": "tuned here",
    "one left": "the only one that its library offers",
    "remembered": "taken over from another record",
    "disk": "from Triton's cache on disk",
}
COUNTED: Final = {
    "pipe_tensor": "tensor cores",
    "l2_hit_rate": "L2 hits",
    "dram_throughput": "DRAM",
    "occupancy_achieved": "warps active",
}
"""What of ncu's counters tells two configurations apart, all in percent."""
Row = Mapping[str, Any]


@check("tuning", "Choices of autotuned kernels", "engine", ("gpu", "record"), scope="model")
def _tuning(frames: Frames) -> list[Finding] | Clear:
    """Choices against the best that any record of the model knows for the same kernel and key, what choosing took of
    the first inference, and what the winner costs at the model's other shapes.

    Gain of a better choice: 0 to (1 - its time / the own one's) · the kernel's time, or the device's without a trace.
    """
    choices = rows_of(tuning.choices(frames.records))
    if not choices:
        raise NotAssessed("kernels that were chosen by trying: Triton's autotuner")
    own = list({(row["kernel"], row["key"]): row for row in choices}.values())  # of the last round
    findings = [*_better(frames, own), *_first(frames, choices), *_moves(frames, own)]
    return findings or Clear(f"{'; '.join(map(_chosen, own))}: none known is faster")


def _better(frames: Frames, own: Sequence[Row]) -> Iterator[Finding]:
    """Choices that another record knows a faster configuration for."""
    for choice in own:
        best = tuning.best_known(frames.trials, choice["kernel"], choice["key"])
        if best is None or choice["median_ns"] is None:
            continue
        lost = 1 - best["median_ns"] / choice["median_ns"]
        if choice["median_ns"] < (1 + frames.limit(CHOICE_COST)) * best["median_ns"]:
            continue
        time = _time_of(frames, choice["kernel"])
        yield Finding(
            subject=choice["kernel"],
            bottleneck="kernels",
            share=frames.share(time),
            reason=f"it runs {choice['config']} ({ORIGIN[choice['source']]}), which takes {_us(choice)}. "
            f"{best['config']} takes {_us(best)} ({best['variant']} at {best['shape']}){_why(frames, choice, best)}.",
            evidence={"median_ns": choice["median_ns"], "best_ns": best["median_ns"], "lost_share": lost},
            source=RECORDS,
            gain=None if time is None else Gain(0.0, lost * time),
            advice="Tune this kernel anew at this size, with this GPU and these versions. Keep that choice.",
            confidence="high",
        )


def _why(frames: Frames, choice: Row, best: Row) -> str:
    """What a launch of the two differs in, by the records; and by counters, where ncu watched both."""
    trial = next(
        row
        for row in rows_of(tuning.trials(frames.records))
        if (row["kernel"], row["key"]) == (choice["kernel"], choice["key"]) and row["won"]
    )
    said = []
    if trial["waves"] is not None and best["waves"] is not None:
        said += [f"{trial['programs']:,} against {best['programs']:,} blocks"]
        said += [f"{trial['waves']:.3g} against {best['waves']:.3g} waves"]
        said += [f"occupancy {percent(trial['occupancy'])} against {percent(best['occupancy'])}"]
    own = _counters(frames.profiles, choice["kernel"])
    other = _counters(frames.best_counters.get(choice["kernel"], frames.profiles.iloc[:0]), choice["kernel"])
    both = [name for name in COUNTED if name in own and name in other]
    said += [f"{COUNTED[name]} {own[name]:.0f} % against {other[name]:.0f} %" for name in both]
    return f": {', '.join(said)}" if said else ""


def _counters(profiles: pd.DataFrame, kernel: str) -> dict[str, float]:
    """Metric → what ncu counted of the first launch of a kernel."""
    rows = of_first(profiles[profiles["level"].eq("kernel") & profiles["value"].notna()], registry.counters())
    rows = rows[rows["name"].map(own_name).eq(kernel)].drop_duplicates("metric")
    return dict(zip(rows["metric"], rows["value"].astype(float), strict=True))


def _time_of(frames: Frames, kernel: str) -> float | None:
    """The kernel's time in an inference; without a trace that of all that the device does."""
    if frames.tool is not None:
        table = per_iteration(frames.timeline)
        return float(table.loc[table["name"].map(own_name) == kernel, "duration"].sum())
    return bare_ns(frames.latency, "device")


def _first(frames: Frames, every: Sequence[Row]) -> Iterator[Finding]:
    """Choosing among several that the first inference waits for."""
    choices = [row for row in every if row["source"] == "tried"]
    seconds, share = (sum(row[name] or 0.0 for row in choices) for name in ("seconds", "first_share"))
    if seconds < frames.limit(TUNING_S) or share < frames.limit(TUNING_SHARE):
        return
    tried, compile_s = (sum(row[name] for row in choices) for name in ("tried", "compile_s"))
    reused = [row for row in rows_of(frames.trials) if row["source"] != "tried" and _among(row, choices)]
    again = f" Taken over, the choice takes {reused[0]['seconds']:.3g} s." if reused else ""
    yield Finding(
        subject="the first inference",
        bottleneck="tuning",
        share=None,
        reason=f"{seconds:.3g} s of the first inference ({percent(share)}) go to {tried:.0f} configurations of "
        f"{_kernels(len(choices))}. Compiling them takes {compile_s:.3g} s of it.{again}",
        evidence={"tuning_s": seconds, "compile_s": compile_s, "first_share": share, "tried": float(tried)},
        source=RECORDS,
        gain=None,
        advice="Keep the choices from one start to the next (the library's own cache, or Triton's: "
        "TRITON_CACHE_AUTOTUNING=1), and the compiled kernels (TRITON_CACHE_DIR).",
        confidence="high",
    )


def _kernels(count: int) -> str:
    return "one kernel" if count == 1 else f"{count} kernels"


def _among(row: Row, choices: Sequence[Row]) -> bool:
    return any((row["kernel"], row["key"]) == (choice["kernel"], choice["key"]) for choice in choices)


def _moves(frames: Frames, own: Sequence[Row]) -> Iterator[Finding]:
    """Winners of this case that cost time at another shape of the model."""
    case = frames.case
    pairs = [
        row
        for row in rows_of(tuning.elsewhere(frames.trials))
        if (row["variant"], row["shape"]) == (case.variant, case.shape) and row["relative"] is not None
    ]
    for choice in own:
        mine = [row for row in pairs if (row["kernel"], row["config"]) == (choice["kernel"], choice["config"])]
        worst = max(mine, key=lambda row: row["relative"], default=None)
        if worst is None or worst["relative"] < 1 + frames.limit(CHOICE_COST):
            continue
        yield Finding(
            subject=choice["kernel"],
            bottleneck="tuning",
            share=None,
            reason=f"the choice moves with the size. {choice['config']}, the best of {choice['tried']} here, takes "
            f"{worst['relative']:.3g} times as long as the best at {worst['at_shape']}. Here the middle one takes "
            f"{choice['typical']:.3g} times, the slowest {choice['worst']:.3g} times as long as the best.",
            evidence={name: float(choice[name]) for name in ("second", "typical", "worst")}
            | {"elsewhere": float(worst["relative"])},
            source=RECORDS,
            gain=None,
            advice="Tune at every size that is served, or at bounds between which the choice is the same.",
            confidence="high",
        )


def _chosen(choice: Row) -> str:
    origin = ORIGIN[choice["source"]]
    return f"{choice['kernel']} runs {choice['config']}, {origin}, {_us(choice)}"


def _us(row: Row) -> str:
    return "an unknown time" if row["median_ns"] is None else f"{row['median_ns'] / NS_PER_US:.3g} µs"
