"""Where the end_to_end median of a case goes: launch, copy, memory, compute, latency, tail, idle, unexplained.

The median comes from the run that nothing watched; profiles only say how to share out a part of it. Three sources,
each of which splits what the one before left whole:

1. **The bare record.** On one stream the GPU's work cannot overlap itself, so these times of the bare run stand one
   behind the other: the copies (stages h2d and d2h), the inference from event to event (boundary `device`), and on
   the host, with nothing queued, stage_inputs in front and extract behind. What the host does while the GPU works
   costs nothing, so `bind` and the wait's return (`call` - `device`) count only as far as end_to_end has room for
   them. What end_to_end has beyond all of these is unexplained.
2. **The timeline** (nsys, else Kineto) splits `device` into kernels and GPU idle. The GPU stamps kernels itself, so
   their length per iteration is taken as it is, up to `device`. The host's part is not: a profiler makes each call
   longer (2 to 4 times for a launch-bound model), so the profiled idle time is an upper bound. The bare idle time is
   `device` - kernels. Where the profile's is longer, its causes shrink alike, since the surplus is the profiler's
   cost; where it is shorter, it is never stretched, and the difference is unexplained: kernels that ran faster under
   the profiler than in the hot loop, or waits that it does not show.
3. **Counters** (ncu) split the kernels by what bounds them (counters.bounds). ncu runs each kernel alone with cold
   caches, so only shares are taken from it, never durations (tables.counters.ncu_timeline.shares).

Parts are whole nanoseconds, rounded down, so that with the rest, `unexplained`, they add up to the median exactly.
No part is ever negative. A split without its source is not made: the time stays in `execution` (no timeline) or in
`kernels` (no counters), and the parts that it would have given are not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast, get_args

import pandas as pd

from inferprof import registry
from inferprof.tables.counters.bounds import BOUNDS, Bound
from inferprof.tables.counters.ncu_timeline import shares
from inferprof.tables.records import KEY, frame_of, key_of, rows_of
from inferprof.tables.schema import of_first
from inferprof.tables.trace import collectives
from inferprof.tables.trace.kernel_compare import ITERATION, of_iterations, on_gpus
from inferprof.units import NS_PER_MS

Part = Literal[
    "launch", "idle", "copy", "memory", "compute", "latency", "tail", "kernels", "execution", "unexplained"
]
"""launch       the GPU waits for the host to launch the next operation; binding the inputs
idle         the GPU waits for anything else (a synchronise, another stream, its own queue), and the wait's return
copy         inputs and outputs between host and device, and on the host into and out of the memory that they pass
             through; copies that the runtime makes inside of the inference
memory, compute, latency, tail   kernel time by what bounds it: tables.counters.bounds
kernels      kernel time of which no counters were read
execution    the inference, its binding and its wait, where no timeline tells kernels from idle
unexplained  what no source accounts for; never spread over the others"""
PARTS: tuple[Part, ...] = get_args(Part)
GpuPart = Literal["computation", "transfer", "waiting", "launch", "idle", "copy", "unexplained"]
"""Of one of several GPUs, with its kernels by what they are:

computation  a kernel runs that computes, whatever runs beside it
transfer     communication that no computation hides; waiting included where collectives are not paired
waiting      in collectives, for the last GPU to begin"""
GPU_PARTS: tuple[GpuPart, ...] = get_args(GpuPart)
P = TypeVar("P", bound=str)
NEEDS_TIMELINE: Final = "needs a timeline of the case's iterations (nsys or kineto)"
NEEDS_COUNTERS: Final = "needs counters of the case's kernels (ncu), of launches that its timeline has"
COLUMNS: Final = (
    *KEY,
    "total_ns",
    *(f"{part}_ns" for part in PARTS),
    "overlap_ns",
    "tool",
    "counted_share",
    "no_timeline",
    "no_counters",
    "not_measured",
)
_OF_TIMELINE: Final[tuple[Part, ...]] = ("launch", "idle", "kernels")
_HOST_STAGES: Final = ("stage:stage_inputs", "stage:bind")
_COPY_STAGES: Final = ("stage:h2d", "stage:d2h")


@dataclass(frozen=True)
class Bare:
    """Medians of the run that nothing watched, ns; a stage that the case does not have is 0."""

    end_to_end: float
    device: float
    call: float
    copies: float
    """h2d and d2h."""
    staging: float
    """stage_inputs and extract."""
    bind: float

    @property
    def wait(self) -> float:
        """How long the host takes to notice that the device is done."""
        return max(0.0, self.call - self.device)

    @property
    def overlap(self) -> float:
        """By how much the pieces, measured one by one, are longer than end_to_end: hidden in it, or noise."""
        pieces = self.copies + self.staging + self.device + self.bind + self.wait
        return max(0.0, pieces - self.end_to_end)


@dataclass(frozen=True)
class Watched:
    """What a profile saw of the inference in an iteration, mean ns."""

    kernels: float
    """Time in which a kernel ran."""
    copies: float
    """Copies and memsets between the kernels, while none ran."""
    launch: float
    idle_copy: float
    idle_other: float
    """GPU idle by cause, without what belongs to the stages around the inference."""


def split(bare: Bare, watched: Watched | None, bounds: Mapping[Bound, float] | None) -> dict[Part, float | None]:
    """The parts in ns; None is "not measured". `bounds`: what shares of the kernels' time are of which BOUNDS."""
    claims: list[tuple[Part, float]] = [("copy", bare.copies), ("copy", bare.staging)]
    if watched is None:
        granted = fill(bare.end_to_end, [*claims, ("execution", bare.device + bare.bind + bare.wait)])
        return {**dict.fromkeys((*_OF_TIMELINE, *BOUNDS)), **granted}
    kernels = min(watched.kernels, bare.device)
    between = min(watched.copies, bare.device - kernels)
    gaps = _idle(bare.device - kernels - between, watched)
    claims = [("kernels", kernels), ("copy", between), *claims, *gaps, ("idle", bare.wait), ("launch", bare.bind)]
    granted = {"launch": 0.0, "idle": 0.0, **fill(bare.end_to_end, claims)}
    if bounds is None:
        return {**dict.fromkeys(BOUNDS), **granted}
    of_bounds: dict[Part, float] = {bound: float(int(granted["kernels"] * bounds.get(bound, 0))) for bound in BOUNDS}
    return {**granted, **of_bounds, "kernels": granted["kernels"] - sum(of_bounds.values())}


def fill(total: float, claims: Iterable[tuple[P, float]]) -> dict[P, float]:
    """Grant each claim in turn, in whole ns, while there is room in `total`; `unexplained` is the room that is left.

    What stands first cannot be hidden behind anything; what stands last is cut first. The parts add up to `total`
    exactly: medians of whole ns are multiples of 0.5, which doubles hold without error.
    """
    granted: dict[P, float] = {}
    room = total
    for part, amount in claims:
        taken = float(int(min(amount, room)))
        granted[part] = granted.get(part, 0.0) + taken
        room -= taken
    return {**granted, cast(P, "unexplained"): room}


def _idle(gap: float, watched: Watched) -> list[tuple[Literal["launch", "copy", "idle"], float]]:
    """The bare idle time `gap` by the profile's causes, each of them at most as long as the profile has it."""
    causes: list[tuple[Literal["launch", "copy", "idle"], float]] = [
        ("launch", watched.launch),
        ("copy", watched.idle_copy),
        ("idle", watched.idle_other),
    ]
    seen = sum(amount for _, amount in causes)
    shrink = min(1.0, gap / seen) if seen else 0.0
    return [(part, amount * shrink) for part, amount in causes]


# --- from frames -----------------------------------------------------------------------------------------------


def of_cases(latency: pd.DataFrame, stages: pd.DataFrame, profiles: pd.DataFrame) -> pd.DataFrame:
    """One row per case with COLUMNS. latency: summary.latency; stages: join.stage_medians; profiles: tidy tables.

    `overlap_ns`: see Bare. `counted_share`: of the kernels' time, how much is of kernels with counters. `no_timeline`
    and `no_counters` say why a split was not made, `not_measured` why there is no waterfall at all.
    """
    seen = dict(iter(profiles.groupby(KEY, sort=False)))
    return frame_of([of_case(row, seen.get(key_of(row))) for row in bare_times(latency, stages)], list(COLUMNS))


def bare_times(latency: pd.DataFrame, stages: pd.DataFrame) -> list[dict[str, Any]]:
    """KEY, the median of each boundary and the stages of each case, as `of_case` takes them."""
    medians = latency[latency["not_measured"].isna()].astype({"median": float})
    wide = medians.pivot_table(index=KEY, columns="boundary", values="median")
    cases = latency[KEY].drop_duplicates().merge(wide.reset_index(), on=KEY, how="left", validate="one_to_one")
    return rows_of(cases.merge(stages, on=KEY, how="left", validate="one_to_one"))


def of_case(row: Mapping[str, Any], profile: pd.DataFrame | None) -> dict[str, Any]:
    """The row of `of_cases` of a case with these bare times and tidy tables."""
    return {**dict.fromkeys(COLUMNS), **{key: row[key] for key in KEY}, **_case(row, profile)}


def of_gpus(row: Mapping[str, Any], profile: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Where the median of `device` goes on each GPU of a case that communicates: KEY, `device`, `tool`, `total_ns`,
    `{part}_ns` of GPU_PARTS and `not_paired`, why waiting is not told. row: of `bare_times`.

    It is the inference of rank 0, from event to event; all ranks end with it.
    """
    tool, frame = _of_tool(profile)
    if frame is None or pd.isna(row.get("device")):
        return []
    talks = frame[frame["level"].eq(collectives.LEVEL)]
    reasons = talks.loc[talks["metric"].eq("not_paired"), "text"]
    gpus = sorted(talks["device"].dropna().astype(int).unique())
    return [
        {
            **{key: row[key] for key in KEY},
            **{"gpu": gpu, "tool": tool, "total_ns": row["device"], "not_paired": next(iter(reasons), None)},
            **{f"{part}_ns": ns for part, ns in _of_gpu(row["device"], frame, gpu).items()},
        }
        for gpu in gpus
    ]


def _of_gpu(total: float, frame: pd.DataFrame, gpu: int) -> dict[GpuPart, float | None]:
    own = _of_device(frame, gpu)
    seen, count = watched(own), collectives.iterations_of(frame)
    rows = own[own["level"].eq(collectives.LEVEL) & own["value"].notna()]
    of_all = rows["name"].eq(collectives.ALL)
    exposed = rows.loc[of_all & rows["metric"].eq("exposed_total"), "value"].sum() / count
    waits = rows.loc[~of_all & rows["metric"].eq("waiting_total"), "value"]
    waiting = min(waits.sum() / count, exposed)
    kernels = min(seen.kernels, total)
    between = min(seen.copies, total - kernels)
    claims: list[tuple[GpuPart, float]] = [
        *(("computation", max(0.0, seen.kernels - exposed)), ("transfer", exposed - waiting), ("waiting", waiting)),
        *(("copy", between), *_idle(total - kernels - between, seen)),
    ]
    return {**fill(total, claims), **({} if len(waits) else {"waiting": None})}


def in_ms(waterfall: pd.DataFrame) -> pd.DataFrame:
    """KEY and `{part}_part_ms` of each case; NaN is "not measured"."""
    parts = waterfall[[f"{part}_ns" for part in PARTS]].astype(float) / NS_PER_MS
    return waterfall[KEY].join(parts.rename(columns={f"{part}_ns": f"{part}_part_ms" for part in PARTS}))


def _case(row: Mapping[str, Any], profile: pd.DataFrame | None) -> dict[str, Any]:
    """The columns of a case beside its key."""
    boundaries = ("device", "call", "end_to_end")
    lacking = [name for name in boundaries if pd.isna(row.get(name))]
    if lacking:
        return {"not_measured": f"{', '.join(lacking)} not measured: the waterfall is of GPUs"}
    tool, timeline = traced(profile)
    bounds, counted, no_counters = _counted(profile, timeline)
    bare = _bare(row)
    parts = split(bare, None if timeline is None else watched(timeline), bounds)
    return {
        "total_ns": row["end_to_end"],
        **{f"{part}_ns": parts.get(part, 0.0) for part in PARTS},
        "overlap_ns": bare.overlap,
        "tool": tool,
        "counted_share": counted,
        "no_timeline": None if tool else NEEDS_TIMELINE,
        "no_counters": no_counters,
    }


def _bare(row: Mapping[str, Any]) -> Bare:
    def stage(*names: str) -> float:
        values = [row[f"{name}_ms"] for name in names]
        return sum(float(ms) * NS_PER_MS for ms in values if not pd.isna(ms))

    return Bare(
        end_to_end=row["end_to_end"],
        device=row["device"],
        call=row["call"],
        copies=stage("h2d", "d2h"),
        staging=stage("stage_inputs", "extract"),
        bind=stage("bind"),
    )


def traced(profile: pd.DataFrame | None) -> tuple[str | None, pd.DataFrame | None]:
    """The tool that speaks for a case, and its rows; None where no tool saw GPU work in iterations."""
    tool, frame = _of_tool(profile)
    return tool, None if frame is None else _of_busiest_device(frame)


def _of_tool(profile: pd.DataFrame | None) -> tuple[str | None, pd.DataFrame | None]:
    """The same, with all devices."""
    if profile is not None:
        for tool in registry.tracers():
            frame = profile[profile["tool"] == tool]
            if "kernel_busy" in of_ranges(frame).get(ITERATION, {}):
                return tool, frame
    return None, None


def _of_busiest_device(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the host and of the device that computed longest: the only one, unless the model is spread."""
    busy = frame[frame["name"].eq(ITERATION) & frame["metric"].eq("kernel_busy")]
    return _of_device(frame, busy.sort_values("value")["device"].iloc[-1])


def _of_device(frame: pd.DataFrame, device: int) -> pd.DataFrame:
    return frame[frame["device"].isna() | frame["device"].eq(device)]


def watched(frame: pd.DataFrame) -> Watched:
    """What a timeline, one tool's rows of one case, saw of the inference.

    The idle time of the whole iteration is counted, since work that was launched in `stage:execute` runs on behind
    it; without that of the stages on the host and of the copies, which have bare times of their own, and without the
    end, when there is nothing left to launch. Only copies that were launched in none of the copy stages count.
    """
    ranges = of_ranges(frame)
    iteration = ranges[ITERATION]
    host = sum(ranges.get(stage, {}).get("gpu_idle", 0.0) for stage in _HOST_STAGES)
    around = [ranges.get(stage, {}) for stage in _COPY_STAGES]
    to_launch, to_copy = (sum(stage.get(cause, 0.0) for stage in around) for cause in ("idle_launch", "idle_copy"))
    return Watched(
        kernels=iteration["kernel_busy"],
        copies=min(_between_kernels(frame), iteration["gpu_busy"] - iteration["kernel_busy"]),
        launch=max(0.0, iteration["idle_launch"] - host - to_launch),
        idle_copy=max(0.0, iteration["idle_copy"] - to_copy),
        idle_other=sum(
            iteration.get(f"idle_{cause}", 0.0) for cause in ("sync", "queued", "unknown", "other_process")
        ),
    )


def of_ranges(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Name → metric → value of the ranges of that name: means per instance."""
    rows = frame[frame["level"].eq("range") & frame["value"].notna()]
    by_name: dict[str, dict[str, float]] = {}
    for name, metric, value in zip(rows["name"], rows["metric"], rows["value"], strict=True):
        by_name.setdefault(str(name), {})[str(metric)] = float(value)
    return by_name


def _between_kernels(frame: pd.DataFrame) -> float:
    """ns per iteration of copies and memsets that no copy stage launched."""
    totals = frame[frame["metric"].eq("duration_total")]
    moves = of_iterations(totals, "memcpy", "memset")
    outside = ~moves["range"].fillna("").str.contains("|".join(_COPY_STAGES), regex=True)
    return float(moves.loc[outside, "value"].sum()) / on_gpus(frame)


def _counted(
    profile: pd.DataFrame | None, timeline: pd.DataFrame | None
) -> tuple[dict[Bound, float] | None, float | None, str | None]:
    """Bound → share of the kernels' time; how much of it has counters at all; and why there is no such split."""
    if timeline is None or profile is None:
        return None, None, NEEDS_TIMELINE
    counters = of_first(profile[profile["level"].eq("kernel")], registry.counters())
    bounds = shares(counters, timeline) if len(counters) else {}
    if not bounds:
        return None, None, NEEDS_COUNTERS
    return bounds, min(1.0, sum(bounds.values())), None
