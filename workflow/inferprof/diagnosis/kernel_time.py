"""How long kernels take within a case's total, and which they are: what checks of engine and kernels share."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from inferprof import registry
from inferprof.diagnosis.times import percent
from inferprof.findings import Finding, Frames, NotAssessed, Threshold
from inferprof.tables import roofs
from inferprof.tables.counters.bounds import BOUNDS
from inferprof.tables.limits import waterfall
from inferprof.tables.nodes import layer_times
from inferprof.tables.nodes.trt_join import layer_of_path
from inferprof.tables.schema import of_first
from inferprof.tables.trace.api_kind import EXPLICIT_SYNC
from inferprof.tables.trace.kernel_class import own_name
from inferprof.tables.trace.kernel_compare import of_iterations, on_gpus, per_iteration
from inferprof.words import counted, ms

if TYPE_CHECKING:
    from inferprof.tables.roofs import Roofs
    from inferprof.tables.schema import Level

KERNEL_SHARE: Final = Threshold(
    "kernel_share", 0.01, "of the kernels' time", "ours: a kernel with less is not worth anybody's afternoon"
)
NEEDS_TRACE: Final = "a trace of the case's kernels: nsys or kineto under `profilers:`"
NEEDS_NODES: Final = "a trace with kernels one by one: CUDA graphs traced by node (nsys --cuda-graph-trace=node)"
VANISHING: Final = 0.01
"""Ours: kernels with less than this of the time that the host waits for the GPU are not what it waits for."""
NAME_LENGTH: Final = 60
DIFFERENCE: Final = 24
"""Characters from where two names differ."""


class Untraced(NamedTuple):
    """Launches of CUDA graphs without their kernels; how long the host waits in synchronises and the kernels at hand
    take, ns."""

    launches: float
    waited_ns: float
    kernels_ns: float


def rows_counted(frames: Frames) -> pd.DataFrame:
    """What was counted of the case's kernels, by the tool that speaks for it."""
    return of_first(frames.profiles, registry.counters())


def counted_by(frames: Frames) -> str:
    """That tool; empty where none looked."""
    return next(iter(rows_counted(frames)["tool"]), "")


def trace_of(frames: Frames) -> pd.DataFrame:
    """The rows of the tracer that speaks for the case, also of one that saw no iterations.

    Raises NotAssessed, also where most kernels are hidden in CUDA graphs that were traced as a whole.
    """
    rows = _traced(frames)
    if hides_kernels(rows):
        raise NotAssessed(NEEDS_NODES)
    return rows


def hides_kernels(rows: pd.DataFrame) -> bool:
    """Whether most of what a tool saw computing is in CUDA graphs that it traced as a whole, or that it has not."""
    if not rows["level"].eq("graph").any():
        return untraced_graphs(rows) is not None
    return bool(_per_iteration(rows, "graph")["value"].sum() > _per_iteration(rows, "kernel")["value"].sum())


def untraced_graphs(rows: pd.DataFrame) -> Untraced | None:
    """CUDA graphs that were launched and of which rows hold nothing: their kernels are VANISHING beside the host's
    wait for the GPU. So tell the sums of `nsys stats`, whose kernels lack those of graphs traced as a whole."""
    totals = rows[rows["metric"].eq("duration_total")]
    if totals["level"].eq("graph").any():
        return None
    calls = totals[totals["level"].eq("api")]
    launches = float(calls.loc[calls["name"].str.contains("GraphLaunch"), "instances"].sum())
    waited = float(calls.loc[calls["name"].str.match(EXPLICIT_SYNC), "value"].sum())
    kernels = float(totals.loc[totals["level"].eq("kernel"), "value"].sum())
    return Untraced(launches, waited, kernels) if launches and kernels < VANISHING * waited else None


def _traced(frames: Frames) -> pd.DataFrame:
    if frames.tool is not None:
        return frames.timeline
    for tool in registry.tracers():
        rows = frames.of_tool(tool)
        if rows["level"].isin(("kernel", "graph")).any():
            return rows
    raise NotAssessed(NEEDS_TRACE)


def whole_graphs(frames: Frames) -> pd.DataFrame:
    """The CUDA graphs that were traced as a whole, the longest first: name, instances and value, ns, per iteration.

    Raises NotAssessed where nothing was traced.
    """
    return _per_iteration(_traced(frames), "graph").sort_values("value", ascending=False, ignore_index=True)


def hidden_in_graphs(frames: Frames) -> Finding | None:
    """The CUDA graphs, the longest by name, that were traced as a whole and hide most kernels; None where none do.

    Raises NotAssessed where nothing was traced.
    """
    if not hides_kernels(_traced(frames)):
        return None
    if untraced := untraced_graphs(_traced(frames)):
        return _without_nodes(frames, untraced)
    graphs = whole_graphs(frames)
    time = float(graphs["value"].sum())
    share = frames.share(time)
    words = f"{percent(share)} of {frames.total.of}" if frames.total else ms(time)
    return Finding(
        subject=str(graphs["name"].iloc[0]),
        bottleneck="kernels",
        share=share,
        reason=f"{words} is in CUDA graphs traced as a whole. Which kernels run in them is not told.",
        evidence={"graph_ns": time, "launches": float(graphs["instances"].sum())},
        source=str(frames.tool or "trace"),
        gain=None,
        advice="Trace their nodes: nsys profile --cuda-graph-trace=node.",
        confidence="medium",
        acts=False,
    )


def _without_nodes(frames: Frames, seen: Untraced) -> Finding:
    """That the kernels at hand are not what the GPU did."""
    return Finding(
        subject="CUDA graphs",
        bottleneck="kernels",
        share=None,
        reason=f"the host waits {ms(seen.waited_ns)} for the GPU, and the kernels here take {ms(seen.kernels_ns)}. "
        f"{counted(seen.launches, 'launch')} of CUDA graphs {'is' if seen.launches == 1 else 'are'} among the calls: "
        "the kernels of these graphs are not in this file.",
        evidence={"launches": seen.launches, "sync_ns": seen.waited_ns, "kernel_ns": seen.kernels_ns},
        source=str(frames.tool or "trace"),
        gain=None,
        advice="Read the report's events: nsys export --type sqlite REPORT.nsys-rep. Which kernels run in the graphs "
        "tells a new capture: nsys profile --cuda-graph-trace=node.",
        confidence="medium",
        acts=False,
    )


def _per_iteration(rows: pd.DataFrame, level: Level) -> pd.DataFrame:
    """name, instances and value (ns) of what was launched in an iteration, or in all of a trace without any."""
    totals = rows[rows["metric"].eq("duration_total")]
    sums = of_iterations(totals, level).groupby("name", as_index=False)[["instances", "value"]].sum()
    return sums.assign(**{column: sums[column] / max(1, on_gpus(rows)) for column in ("instances", "value")})


def kernels_ns(frames: Frames) -> float | None:
    """The kernels' time in one inference: of the bare run where the waterfall has it, else as a profiler saw it."""
    parts = [frames.waterfall.get(f"{part}_ns") for part in (*BOUNDS, "kernels")]
    if any(parts):
        return float(sum(part or 0.0 for part in parts))
    if frames.tool is not None:
        return waterfall.watched(frames.timeline).kernels
    return inference_ns(frames.profiles)


def of_kernels(frames: Frames, share: float | None) -> float | None:
    """So much of the kernels' time in ns, where both are known."""
    total = kernels_ns(frames)
    return None if share is None or total is None else share * total


def inference_ns(profiles: pd.DataFrame) -> float | None:
    """The kernels' time of one inference in a trace without iterations, of an engine alone; None where none tells."""
    traced = profiles[profiles["tool"].isin(registry.tracers())]
    count = layer_times.inferences(traced)
    kernels = traced[traced["level"].eq("kernel") & traced["metric"].eq("duration_total")]
    return float(kernels["value"].sum()) / count if count else None


def longest(frames: Frames) -> pd.DataFrame:
    """The kernels by name, longest first: kernel_compare.per_iteration with `share` of all kernel time, which is also
    that of graphs as a whole."""
    table = per_iteration(trace_of(frames)).query("duration > 0")
    table = table.assign(share=table["duration"] / (table["duration"].sum() + whole_graphs(frames)["value"].sum()))
    return table.sort_values("duration", ascending=False, kind="stable", ignore_index=True)


def owner_of(frames: Frames, kernel: str) -> str | None:
    """The layer of an engine that launches a kernel most, by the ranges of the trace; None where none is told."""
    rows = trace_of(frames)
    own = rows[rows["level"].eq("kernel") & rows["metric"].eq("duration_total") & rows["name"].eq(kernel)]
    layers = own["range"].fillna("").map(lambda path: layer_of_path(path, frozenset()))
    times = own.groupby(layers)["value"].sum()
    return str(times.idxmax()) if len(times) else None


def roofs_of(frames: Frames) -> Roofs:
    """What the GPU reaches, for the options of the case's variant."""
    documents = frames.documents
    machine_roofs = roofs.of_machine(documents.environment, documents.ceilings, documents.bandwidth)
    return machine_roofs.of_variant(options_of(frames))


def options_of(frames: Frames) -> dict[str, Any]:
    """The options of the case's variant, as its records have them."""
    return dict(frames.record.options) if len(frames.records) else {}


def short(kernel: str) -> str:
    """A kernel's own name, of bounded length."""
    return clipped(own_name(kernel))


def distinct(kernels: Sequence[str]) -> list[str]:
    """Their own names; where different kernels have the same, with where their templates' arguments differ."""
    names = [short(kernel) for kernel in kernels]
    alike = {name: [kernel for kernel in kernels if short(kernel) == name] for name in names}
    same = {name: _same(group) for name, group in alike.items() if len(set(group)) > 1}
    return [
        _differing(name, kernel, same[name]) if name in same else name
        for name, kernel in zip(names, kernels, strict=True)
    ]


def _same(names: Sequence[str]) -> int:
    """How many characters the names begin with alike."""
    columns = zip(*names, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda characters: len(set(characters)) == 1, columns))


def _differing(name: str, kernel: str, same: int) -> str:
    """`kernel<…OP_Sin<float>, (in…`: from the argument on that differs after `same` characters."""
    begun = re.split("[<, ]", kernel[:same])[-1]
    return f"{name}<…{begun}{kernel[same:][:DIFFERENCE]}…"


def clipped(name: str) -> str:
    """A name of any length, as far as a sentence has room for it: its beginning and its end."""
    tail = NAME_LENGTH // 3
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - tail - 1]}…{name[-tail:]}"
