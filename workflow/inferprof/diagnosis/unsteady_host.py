"""Environment: did the host change its own speed while the case was measured, and do its numbers show it?"""

from __future__ import annotations

from typing import Final

from inferprof.diagnosis.host import LAUNCH_BOUND, graph_advice
from inferprof.diagnosis.times import RECORDS, on_gpu, part, percent, replays_a_graph
from inferprof.findings import Clear, Finding, Frames, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables import gate, summary
from inferprof.tables.records import hosts, rows_of

HOST_SPREAD = Threshold(
    "host_spread",
    1.2,
    "times, 90th / 10th percentile",
    "ours: of 52 launch-bound runs an interval was wider than 5 % in 13 % below it and in 69 % above",
)
HOST_WAITED = Threshold(
    "host_waited",
    gate.WAITED,
    "of the yardstick's time",
    "ours: five times the interval that a median is measured to",
)
WIDE_INTERVAL = Threshold("wide_interval", 0.02, "of the median", "ours: twice the interval that it is measured to")
_NUMBERS: Final = ("spread", "waited", "yardstick_ns", "readings", "steal_percent", "half_width", "launch_share")


@check("unsteady_host", "The host's own speed varied", "environment", ("record",), by="machine")
def _unsteady(frames: Frames) -> list[Finding] | Clear:
    """The host's speed varied or others had its cores, and the case shows it: a boundary's median is not known well,
    or the GPU waits for launches. Both by the yardstick (measure.yardstick, summary.hosts). It costs trust; what a
    steady host would gain is not known."""
    (host,) = rows_of(summary.hosts(hosts(frames.records)))
    if host["spread"] is None:
        raise NotAssessed(f"a bare run beside the host's yardstick ({host['not_measured']})")
    boundary, width = _least_known(frames)
    waits = part(frames, "launch")
    share = frames.share(waits.ns if waits else None)
    numbers = {**host, "half_width": width, "launch_share": share}
    evidence = {name: float(numbers[name]) for name in _NUMBERS if numbers[name] is not None}
    steal = host["steal_percent"]
    stolen = "" if steal is None else f" The hypervisor took {steal:.1f} % of the CPU time."
    spread = f"varied by a factor of {host['spread']:.2f} (90th / 10th percentile of {host['readings']} readings)"
    waited = f"Its thread waited for a core for {percent(host['waited'])} of its time."
    interval = f"{boundary} has no interval." if width is None else f"{boundary} is known to ±{percent(width)}."
    said = f"the host's own speed {spread}. {waited}{stolen} {interval}"
    wide = width is None or width >= frames.limit(WIDE_INTERVAL)
    waiting = share is not None and share >= frames.limit(LAUNCH_BOUND)
    unsteady = host["spread"] >= frames.limit(HOST_SPREAD) or host["waited"] >= frames.limit(HOST_WAITED)
    if not unsteady or not (wide or waiting):
        return Clear(said, evidence)
    if width is not None and width > host["spread"] / (1 - host["waited"]) - 1:
        said += " This is more than the host alone explains."
    if waiting:
        said += f" The GPU waits {percent(share)} of the time for its launches."
    return [Finding("", "measurement", None, said, evidence, RECORDS, None, _steadier(frames), "high")]


def _least_known(frames: Frames) -> tuple[str, float | None]:
    """The boundary whose median has no interval, or else the widest, and its relative half width."""
    rows = rows_of(frames.latency[frames.latency["not_measured"].isna()])
    widths = {str(row["boundary"]): summary.half_width(row) for row in rows}
    return max(widths.items(), key=lambda pair: float("inf") if pair[1] is None else pair[1])


def _steadier(frames: Frames) -> str:
    """What makes the host steadier, or the numbers less dependent on it."""
    advice = (
        "Measure again on cores of its own: nothing else on the machine, bare metal or whole cores of a rented one, "
        "the performance governor, the process pinned (taskset), more `rounds:` (on a CPU `cpu_rounds:`)."
    )
    if not on_gpu(frames) or replays_a_graph(frames) or not (graph := graph_advice(frames)):
        return advice
    return f"{advice} Or depend less on the host. {graph}"
