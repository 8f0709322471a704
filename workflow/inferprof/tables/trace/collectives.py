"""Collectives over several GPUs: how long each waits for the slowest, how long the transfer takes, what hides it.

A kernel of NCCL, or of a custom all-reduce, begins when its rank arrives and ends when the data is there. Those of
one collective are paired over the GPUs by operation and order: NCCL requires ranks to issue them alike. Of each:

waiting    latest begin over the ranks - own begin: until the last rank arrived
transfer   own end - latest begin; its spread over the ranks is the error that a capture gives for free
inside     earliest end - latest begin: all ranks were inside

So waiting + transfer is the duration of the kernel. TraceLens pairs by order as well, within a process group, and
takes the shortest kernel as the transfer; where nobody is late all three are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from inferprof.tables.trace import beside
from inferprof.tables.trace.aggregate import tidy_rows
from inferprof.tables.trace.intervals import Intervals, Times
from inferprof.tables.trace.kernel_class import classify, own_name
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.tables.trace.timeline import KERNEL, NOT_TOLD, PATH_SEPARATOR, Timeline
from inferprof.units import NS_PER_US

LEVEL: Final = "collective"
ALL: Final = "all"
"""The row of a GPU's communication as a whole: `hidden` behind its computation, and `exposed`."""
OPERATIONS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "AllReduce": r"all_?reduce|cross_device_reduce",
        "AllGather": r"all_?gather",
        "ReduceScatter": r"reduce_?scatter",
        "AllToAll": r"all_?to_?all",
        "Broadcast": r"broadcast",
        "SendRecv": r"send_?recv",
        "Reduce": r"reduce",
    }.items()
}
"""What a kernel's name calls the operation; the first that matches, since names of some hold those of others."""
SAME_END: Final = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll")
"""Operations that no rank leaves before all have sent."""
BUS: Final[Mapping[str, Callable[[int], float]]] = {
    "AllReduce": lambda ranks: 2 * (ranks - 1) / ranks,
    **dict.fromkeys(("AllGather", "ReduceScatter", "AllToAll"), lambda ranks: (ranks - 1) / ranks),
    **dict.fromkeys(("Broadcast", "Reduce"), lambda ranks: 1.0),
}
"""Of a message, what crosses the slowest link: so bandwidths of operations and numbers of ranks can be compared.
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""
POINT_TO_POINT: Final = "SendRecv"
"""Between two ranks. Where there are only two, all of them issue it alike; of more, order does not pair them."""
APART: Final = 0.05
"""Share of pairs that may lie apart in time: kernels of one collective overlap, so more means that the order of the
kernels does not tell which belong together (process groups, ranks that the capture lacks)."""


CLOCKS_APART: Final = 3.0
"""Two clocks are the same unless they differ by more than so many times the spread of the ends."""
LEAST_TIED: Final = 8
"""Of fewer collectives the ends may be apart by chance."""
NONE_RAN: Final = "no collective ran in an iteration"


@dataclass(frozen=True)
class NotPaired:
    """Why collectives have no waiting and no transfer."""

    reason: str


@dataclass(frozen=True)
class Paired:
    """Collectives by place, a row per collective in order of time, and a column per GPU in `devices`."""

    operation: np.ndarray
    devices: Times
    start: Times
    end: Times
    message: Times
    """Bytes, as nccl-tests counts them; NOT_TOLD where the tool does not tell."""
    clock: Times
    """ns by which the clock of each GPU is ahead of the first one's, by the ends of collectives: taken off here."""

    def only(self, chosen: np.ndarray) -> Paired:
        """Some of them."""
        parts = {name: getattr(self, name)[chosen] for name in ("operation", "start", "end", "message")}
        return replace(self, **parts)

    @property
    def last(self) -> Times:
        """When the last rank began; shape [collectives, 1]."""
        last: Times = self.start.max(axis=1, keepdims=True)
        return last

    @property
    def waiting(self) -> Times:
        """ns, shape [collectives, GPUs]."""
        waiting: Times = np.minimum(self.last, self.end) - self.start
        return waiting

    @property
    def transfer(self) -> Times:
        """ns, shape [collectives, GPUs]."""
        transfer: Times = np.maximum(self.end - self.last, 0)
        return transfer

    def transfers(self) -> dict[int, Intervals]:
        """GPU → when it is in a collective that all ranks have reached."""
        begun, end = np.minimum(self.last, self.end) + self.clock, self.end + self.clock
        columns = enumerate(self.devices.tolist())
        return {device: Intervals.union(begun[:, place], end[:, place]) for place, device in columns}

    @property
    def inside(self) -> Times:
        """ns, shape [collectives]."""
        inside: Times = np.maximum(self.end.min(axis=1) - self.last[:, 0], 0)
        return inside


def communication(timeline: Timeline) -> pd.DataFrame:
    """start, end, device and `operation` of the kernels that communicate, in order of time."""
    communicates = np.array([classify(name).kernel_class == "communication" for name in timeline.names], bool)
    if not communicates.any():  # as mostly: saves a look at five million rows
        return pd.DataFrame({"start": [], "end": [], "device": [], "operation": []})
    kernel = np.flatnonzero(timeline.ops["kind"].to_numpy() == KERNEL)
    chosen = timeline.ops.take(kernel[communicates[timeline.ops["name"].to_numpy()[kernel]]])
    operations = {code: operation_of(timeline.names[code]) for code in chosen["name"].unique()}
    return chosen.assign(operation=chosen["name"].map(operations))


def operation_of(kernel: str) -> str:
    """`ncclDevKernel_AllReduce_Sum_bf16_RING_LL` → AllReduce; the kernel's own name where it tells none."""
    name = own_name(kernel)
    return next((operation for operation, pattern in OPERATIONS.items() if pattern.search(name)), name)


def paired(timeline: Timeline, kernels: pd.DataFrame) -> Paired | NotPaired:
    """Pair the collectives of all GPUs by operation and order; those of iterations alone, where there are any.

    kernels: `communication` of the timeline.
    """
    devices = np.unique(timeline.ops["device"].to_numpy()[timeline.ops["kind"].to_numpy() == KERNEL])
    if len(devices) < 2:
        return NotPaired("the capture has one GPU: how long it waits for others is not told")
    rounds, inside = [], []
    for (operation, _), own in _groups(_issued_alike(kernels, len(devices))):
        if partial := len(devices) - own["device"].nunique():
            return NotPaired(f"{operation} of a process group ran without {partial} of {len(devices)} GPUs")
        per_device = [own[own["device"] == device] for device in devices]
        counts = [len(rows) for rows in per_device]
        if len(set(counts)) > 1:
            return NotPaired(f"{operation} ran {' and '.join(f'{count:,}' for count in counts)} times on the GPUs")
        start, end = (
            np.stack([rows[column].to_numpy() for rows in per_device], axis=1) for column in ("start", "end")
        )
        message = own.get("message", pd.Series(NOT_TOLD, own.index))[per_device[0].index].to_numpy()
        every = Paired(np.full(len(start), operation), devices, start, end, message, np.zeros_like(devices))
        rounds.append(every)
        inside.append(np.logical_and.reduce([_in_iteration(timeline, rows) for rows in per_device]))
    if not any(chosen.any() for chosen in inside):
        return NotPaired(NONE_RAN)
    return _judged(_tied(rounds, np.concatenate(inside)))


def _tied(rounds: Sequence[Paired], chosen: np.ndarray) -> Paired:
    """The chosen ones of all operations in order of time, on the clock of the first GPU.

    All of them tie the clocks: the ends of a few, beside computation that delays them, lie apart by more than clocks.
    """
    fields = ("operation", "start", "end", "message")
    joined = {name: np.concatenate([getattr(part, name) for part in rounds]) for name in fields}
    same = np.isin(joined["operation"], SAME_END)
    ends = joined["end"][same]
    ends = ends if len(ends) >= LEAST_TIED else ends[:0]
    clock = np.array([clock_offset(ends[:, place] - ends[:, 0])[0] for place in range(ends.shape[1])], np.int64)
    joined |= {name: joined[name] - clock for name in ("start", "end")}
    joined = {name: values[chosen] for name, values in joined.items()}
    order = np.argsort(joined["start"].max(axis=1), kind="stable")
    return Paired(devices=rounds[0].devices, clock=clock, **{name: values[order] for name, values in joined.items()})


def clock_offset(apart: Times) -> tuple[int, int]:
    """By how much a clock is fast, ns, and the median spread of that; 0 where it differs by no more than that tells.

    apart: the ends of collectives that no rank leaves before all have sent, less those on the other clock.
    """
    if not apart.size:
        return 0, 0
    offset = int(np.median(apart))
    spread = int(np.median(np.abs(apart - offset)))
    return (offset if abs(offset) > max(CLOCKS_APART * spread, NS_PER_US) else 0), spread


def _judged(pairs: Paired) -> Paired | NotPaired:
    """The pairs, if they overlap in time. Sends that do not are left out: they may be done before they are there."""
    separate = pairs.end.min(axis=1) < pairs.start.max(axis=1)
    between = pairs.operation == POINT_TO_POINT
    if between.any() and separate[between].mean() > APART:
        pairs, separate = pairs.only(~between), separate[~between]
    if not len(separate):
        return NotPaired(NONE_RAN)
    if (apart := int(separate.sum())) > APART * len(separate):
        return NotPaired(
            f"{apart:,} of {len(separate):,} pairs do not overlap in time: order does not tell which belong together"
        )
    return pairs


def _issued_alike(kernels: pd.DataFrame, devices: int) -> pd.DataFrame:
    """Without SendRecv, unless all of it is between the two GPUs that there are."""
    between = kernels["operation"].eq(POINT_TO_POINT)
    counts = kernels[between].groupby("device").size()
    return kernels if devices == 2 == len(counts) and counts.nunique() == 1 else kernels[~between]


def _groups(kernels: pd.DataFrame) -> Iterator[tuple[tuple[str, int], pd.DataFrame]]:
    """The kernels of each operation in each process group; of tools that tell no groups there is one."""
    group = kernels["group"] if "group" in kernels else pd.Series(NOT_TOLD, kernels.index)
    for (operation, code), own in kernels.groupby([kernels["operation"], group], sort=True):
        yield (str(operation), int(str(code))), own


def _in_iteration(timeline: Timeline, rows: pd.DataFrame) -> np.ndarray:
    """Which of the operations were launched in an iteration; all where the capture has no iterations."""
    inside = np.array([ITERATION in path.split(PATH_SEPARATOR) for path in timeline.paths])
    if not inside.any():
        return np.ones(len(rows), bool)
    launched_inside: np.ndarray = inside[timeline.op_path[rows.index.to_numpy()]]
    return launched_inside


def by_cause(timeline: Timeline, pairs: Paired, kernels: pd.DataFrame) -> pd.DataFrame:
    """What the last rank did longer than each that waits for it, between the collective before and this one.

    Shape [collectives · GPUs, …]: columns `compute`, `copy` and `idle`, ns, one row per element of `pairs.waiting`
    in its order. Their sum is the waiting plus what the rank left the collective before earlier; of the first
    collective, and of the last rank itself, nothing is told (0).
    """
    before = np.vstack([pairs.start[:1], pairs.end[:-1]])
    begin = np.minimum(before, pairs.start)
    amounts = {name: np.zeros_like(pairs.start) for name in ("compute", "copy")}
    for column, device in enumerate(pairs.devices):
        for name, busy in zip(amounts, beside.busy(timeline, device, kernels), strict=True):
            clock = pairs.clock[column]
            amounts[name][:, column] = busy.within(begin[:, column] + clock, pairs.start[:, column] + clock)
    amounts["idle"] = pairs.start - begin - amounts["compute"] - amounts["copy"]
    late = pairs.start.argmax(axis=1)[:, None]
    more = {name: np.take_along_axis(values, late, axis=1) - values for name, values in amounts.items()}
    return pd.DataFrame({name: values.ravel() for name, values in more.items()})


def rows(timeline: Timeline) -> pd.DataFrame:
    """Level collective: per operation and GPU the totals of all its collectives; none without communication.

    duration_total, waiting_total, transfer_total, inside_total, spread_total, last_count, of by_cause
    waiting_compute, waiting_copy, waiting_idle, and where the tool tells sizes message_total and bus_total (METRICS
    says what each is). Row `all`: duration_total of the GPU's communication in iterations, merged, of it hidden_total
    and exposed_total, what that costs, and the bubbles of a pipeline; and not_paired, why there is no more.
    """
    kernels = communication(timeline)
    if kernels.empty:
        return pd.DataFrame()
    pairs = paired(timeline, kernels)
    frames = [_whole(timeline, pairs, kernels)]
    if isinstance(pairs, NotPaired):
        frames.append(
            pd.DataFrame([{"name": ALL, "instances": len(kernels), "metric": "not_paired", "text": pairs.reason}])
        )
    else:
        frames.append(tidy_rows(_totals(timeline, pairs, kernels)))
    return pd.concat(frames, ignore_index=True).assign(level=LEVEL)


def iterations_of(rows: pd.DataFrame) -> int:
    """How many iterations each GPU ran, by one tool's rows of the tidy table."""
    own = rows[rows["level"].eq("range") & rows["name"].eq(ITERATION) & rows["metric"].eq("gpu_busy")]
    return max(1, int(own.groupby("device")["instances"].sum().max()))


def _whole(timeline: Timeline, pairs: Paired | NotPaired, kernels: pd.DataFrame) -> pd.DataFrame:
    """The row `all` of each GPU that communicates in iterations."""
    table = []
    inside = kernels[_in_iteration(timeline, kernels)]
    talks = {
        int(str(device)): Intervals.union(own["start"].to_numpy(), own["end"].to_numpy())
        for device, own in inside.groupby("device")
    }
    idle = {}
    if inside["operation"].eq(POINT_TO_POINT).any():
        sends = isinstance(pairs, Paired) and POINT_TO_POINT in pairs.operation
        idle = beside.bubbles(timeline, kernels, pairs.transfers() if isinstance(pairs, Paired) and sends else talks)
    for device, own in talks.items():
        amounts = beside.overlap(timeline, device, kernels, own)
        amounts |= {"bubble_total": idle[device]} if device in idle else {}
        if isinstance(pairs, Paired) and (clock := int(pairs.clock[pairs.devices == device][0])):
            amounts["clock_offset"] = clock
        table.append({"name": ALL, "device": device, "instances": int(inside["device"].eq(device).sum()), **amounts})
    return tidy_rows(pd.DataFrame(table)) if table else pd.DataFrame()


def _totals(timeline: Timeline, pairs: Paired, kernels: pd.DataFrame) -> pd.DataFrame:
    count, width = pairs.start.shape
    flat = pd.DataFrame(
        {
            "name": np.repeat(pairs.operation, width),
            "device": np.tile(pairs.devices, count),
            "instances": 1,
            "duration_total": (pairs.end - pairs.start).ravel(),
            "waiting_total": pairs.waiting.ravel(),
            "transfer_total": pairs.transfer.ravel(),
            "inside_total": np.repeat(pairs.inside, width),
            "spread_total": np.repeat(np.ptp(pairs.transfer, axis=1), width),
            "last_count": (pairs.start == pairs.last).ravel(),
        }
    )
    flat = flat.join(by_cause(timeline, pairs, kernels).add_prefix("waiting_"))
    return flat.join(_messages(pairs)).groupby(["name", "device"], as_index=False, sort=True).sum(min_count=1)


def _messages(pairs: Paired) -> pd.DataFrame:
    """message_total and bus_total, bytes, of each element of `pairs.waiting`; NaN where not told."""
    count, width = pairs.start.shape
    message = np.where(pairs.message == NOT_TOLD, np.nan, pairs.message.astype(float))
    factor = [BUS[name](width) if name in BUS else np.nan for name in pairs.operation]
    amounts = {"message_total": message, "bus_total": message * np.array(factor, float)}
    return pd.DataFrame({name: np.repeat(values, width) for name, values in amounts.items()}, range(count * width))
