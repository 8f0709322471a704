"""The one clock: warm-up, order, loop and end of every measurement. Backends only bind and enqueue.

Boundaries (docs/measurement.md), which are sampled in turns:

`device`      inputs resident; from event to event on the stream around one `enqueue`.
`call`        inputs resident; host clock around one `enqueue` and the wait for it.
`end_to_end`  host arrays in → host arrays out; host clock around all stages and one wait.

The stages of end_to_end are measured apart from it with a wait behind each, so they add up to more than end_to_end
wherever it overlaps them. They have a turn after those of the boundaries.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from inferprof import outcomes, progress
from inferprof.case import STAGES, Stage
from inferprof.device import Device
from inferprof.documents.record import SelfCheck
from inferprof.errors import CaseFailed
from inferprof.measure import loop, selfcheck, throughput
from inferprof.measure.lane import Lane
from inferprof.measure.loop import Clock, Protocol, Sample, Series
from inferprof.measure.throughput import Throughput
from inferprof.measure.yardstick import HostSpeed, Yardstick, on_quietest_core
from inferprof.plugins import BOUNDARIES, Boundary, Feeds, Placement, Session

__all__ = [
    "IN_TURNS",
    "Clock",
    "NotMeasured",
    "Protocol",
    "Series",
    "Throughput",
    "Timing",
    "add_pipelined",
    "measure",
    "undisturbed",
]

IN_TURNS = "boundaries and stages"
"""What the terminal says meanwhile."""
NO_DEVICE_CLOCK = "the CPU has no device clock"
MIN_PAIRS, MAX_PAIRS = 3, 30
PAIRS_NS = 200_000_000
"""How long the comparison of the two clocks may take; slow cases have fewer pairs."""
ONE_SESSION = "one session was open; a pipeline needs at least two"
ONE_BOUNDARY = "the round was for one boundary"
FIRST_PASS = "the first of several rounds runs no pipeline; further rounds of the fastest cases do"


@dataclass(frozen=True)
class NotMeasured:
    """What stands in the place of a measurement that there isn't: the reason."""

    reason: str

    def record(self) -> dict[str, Any]:
        """The entry of the record."""
        return {"not_measured": self.reason}


@dataclass(frozen=True)
class Timing:
    """Everything that one process measures of a case."""

    boundaries: Mapping[Boundary, Series | NotMeasured]
    stages: Mapping[Stage, tuple[int, ...] | NotMeasured]
    back_to_back: Throughput | NotMeasured
    pipelined: Throughput | NotMeasured
    first_inference_ns: int
    checks: Mapping[str, SelfCheck]
    outputs: Mapping[str, np.ndarray[Any, Any]]
    host: HostSpeed
    """While boundaries and stages took turns."""
    lane: Lane
    """What was measured, so that a pipeline can go on with it; not part of the record."""

    def record(self) -> dict[str, Any]:
        """Of the record `boundaries`, `stages`, `throughput`, `first` (without `load_ns`), `checks` and `host`."""
        return {
            "boundaries": {name: _entry(value) for name, value in self.boundaries.items()},
            "stages": {name: _entry(value) for name, value in self.stages.items()},
            "throughput": {"back_to_back": self.back_to_back.record(), "pipelined": self.pipelined.record()},
            "first": {"first_inference_ns": self.first_inference_ns},
            "checks": msgspec.to_builtins(self.checks),
            "host": self.host.record(),
        }


def _entry(value: Series | tuple[int, ...] | NotMeasured) -> dict[str, Any]:
    if isinstance(value, NotMeasured):
        return value.record()
    if isinstance(value, Series):
        return {**dataclasses.asdict(value), "samples_ns": list(value.samples_ns)}
    return {"samples_ns": list(value)}


def measure(
    session: Session,
    device: Device,
    feeds: Feeds,
    placement: Placement,
    protocol: Protocol,
    clock: Clock = time.perf_counter_ns,
) -> Timing:
    """Measure a case on a session that is loaded and has not run yet.

    `feeds` are the host arrays of one inference. Raises CaseFailed where a graph was asked for and the runtime
    cannot capture one, or where an output changes its shape. Failed self-checks are in the result, not raised.
    """
    with outcomes.stage("first inference"):
        lane = Lane(session, device, feeds, placement)
        call = _call(lane, clock)
        with undisturbed():
            first = int(call())
    core = on_quietest_core() if protocol.quiet_core and device.where == "cuda" else contextlib.nullcontext()
    with core, undisturbed(), outcomes.stage("measure"):
        if protocol.graph:
            with outcomes.stage("capture the CUDA graph"):
                _capture(session, call, protocol, clock)
        progress.step(IN_TURNS)
        yardstick = Yardstick(clock)
        measured, stages = _in_turns(lane, protocol, clock, yardstick)
        host = yardstick.speed()
        checks = {"outputs_overwritten": selfcheck.outputs_overwritten(lane)}
        back_to_back: Throughput | NotMeasured = NotMeasured(ONE_BOUNDARY)
        if protocol.only is None:
            back_to_back = throughput.back_to_back(lane, measured["call"].median, protocol, clock)
        if protocol.only is None and device.where == "cuda":
            both = _by_both_clocks(lane, measured["call"].median, clock)
            checks["call_not_below_device"] = selfcheck.call_not_below_device(*both)
        lane.begin()
        outputs = lane.finish()
    checks["outputs_finite"] = selfcheck.outputs_finite(outputs)
    return Timing(
        boundaries={**_not_measured(device, protocol), **measured},
        stages=stages,
        back_to_back=back_to_back,
        pipelined=NotMeasured(ONE_BOUNDARY if protocol.only else FIRST_PASS if protocol.first_pass else ONE_SESSION),
        first_inference_ns=first,
        checks=checks,
        outputs=outputs,
        host=host,
        lane=lane,
    )


def add_pipelined(
    timing: Timing,
    lanes: Sequence[tuple[Session, Device]],
    feeds: Feeds,
    placement: Placement,
    protocol: Protocol,
    clock: Clock = time.perf_counter_ns,
) -> Timing:
    """The same timing with a pipeline over `lanes`: sessions of the same case, each on a device with its own stream.

    The measured session may be one of them; the others have not run before. The overlap is the share of the time
    between end_to_end and back to back that the pipeline saves, held to 0 … 1: the three times come from different
    loops, and noise between them must not read as more than everything hidden. Raises ValueError for fewer than two
    lanes, CaseFailed as `measure` does.
    """
    if len(lanes) < 2:
        raise ValueError(ONE_SESSION)
    end_to_end, alone = timing.boundaries["end_to_end"], timing.back_to_back
    assert isinstance(end_to_end, Series) and isinstance(alone, Throughput)

    def ready(session: Session, device: Device) -> Lane:
        if session is timing.lane.session:
            return timing.lane  # a graph that was captured reads and writes this lane's addresses
        lane = Lane(session, device, feeds, placement)
        if protocol.graph:
            _capture(session, _call(lane, clock), protocol, clock)
        else:
            loop.warm_up(_call(lane, clock), protocol, clock)
        return lane

    with undisturbed():
        ring = [ready(session, device) for session, device in lanes]
        run = throughput.pipeline(ring, end_to_end.median / len(ring), protocol, clock)
    hideable = end_to_end.median - alone.ns
    worth_hiding = hideable > protocol.interval * end_to_end.median
    overlap = min(1.0, max(0.0, (end_to_end.median - run.ns) / hideable)) if worth_hiding else None
    return dataclasses.replace(timing, pipelined=dataclasses.replace(run, overlap=overlap))


# --- what one sample is ----------------------------------------------------------------------------------------


def _call(lane: Lane, clock: Clock) -> Sample:
    def sample() -> float:
        start = clock()
        lane.execute()
        lane.device.synchronize()
        return clock() - start

    return sample


def _by_both_clocks(lane: Lane, latency_ns: float, clock: Clock) -> tuple[float, float]:
    """Medians of the host's and of the device's time of the same inferences, in ns."""
    calls, on_device = [], []
    for _ in range(max(MIN_PAIRS, min(MAX_PAIRS, round(PAIRS_NS / latency_ns)))):
        start = clock()
        elapsed = lane.device.timed(lane.execute)
        lane.device.synchronize()
        calls.append(clock() - start)
        on_device.append(elapsed())
    return statistics.median(calls), statistics.median(on_device)


def _end_to_end(lane: Lane, clock: Clock) -> Sample:
    def sample() -> float:
        start = clock()
        lane.begin()
        outputs = lane.finish()
        elapsed = clock() - start
        del outputs  # after the clock: freeing them is the caller's affair
        return elapsed

    return sample


def _not_measured(device: Device, protocol: Protocol) -> dict[Boundary, NotMeasured]:
    """Why a boundary has no samples, of those that may have none."""
    left_out = {name: NotMeasured(ONE_BOUNDARY) for name in BOUNDARIES if protocol.only not in (None, name)}
    return left_out | ({} if device.where == "cuda" else {"device": NotMeasured(NO_DEVICE_CLOCK)})


def _in_turns(
    lane: Lane, protocol: Protocol, clock: Clock, yardstick: Yardstick
) -> tuple[dict[Boundary, Series], dict[Stage, tuple[int, ...] | NotMeasured]]:
    """The boundaries that the device has and the protocol wants, and the samples of each stage."""
    boundaries: dict[Boundary, Sample] = {"call": _call(lane, clock), "end_to_end": _end_to_end(lane, clock)}
    if lane.device.where == "cuda":
        boundaries = {"device": lambda: lane.device.timed(lane.execute)(), **boundaries}
    if protocol.only:
        boundaries = {name: sample for name, sample in boundaries.items() if name == protocol.only}
        series = loop.in_turns(boundaries, protocol, clock, yardstick.read)
        return series, dict.fromkeys(STAGES, NotMeasured(ONE_BOUNDARY))
    rows: list[list[int]] = []
    turn = _stages(lane, protocol, clock, yardstick, rows)
    series = loop.in_turns(boundaries, protocol, clock, yardstick.read, turn)
    columns = dict(zip(lane.steps, zip(*rows, strict=True), strict=True))
    return series, {stage: columns.get(stage) or NotMeasured(lane.missing(stage) or "") for stage in STAGES}


def _stages(
    lane: Lane, protocol: Protocol, clock: Clock, yardstick: Yardstick, rows: list[list[int]]
) -> Callable[[], None]:
    """A turn of all stages with a wait behind each; each sample is a row of `rows`, a column per stage."""

    def sample() -> list[int]:
        row = []
        for stage, step in lane.steps.items():
            with protocol.range(stage):
                start = clock()
                step()
                lane.device.synchronize()
                row.append(clock() - start)
        return row

    def turn() -> None:
        yardstick.read()
        end = clock() + protocol.stages_turn_ns
        with protocol.range("stages"):
            while True:
                with protocol.range("inference"):
                    rows.append(sample())
                if clock() >= end:
                    return

    return turn


# --- around the loop -------------------------------------------------------------------------------------------


def _capture(session: Session, call: Sample, protocol: Protocol, clock: Clock) -> None:
    """Warm up and turn the session's `enqueue` into a graph launch."""
    loop.warm_up(call, protocol, clock)
    if not session.capture_graph():
        raise CaseFailed("the runtime cannot capture this model as a CUDA graph")
    call()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection meanwhile, as in timeit: its pauses fall on samples at random.

    Nor may it free device memory while a CUDA graph is captured, which would end the capture.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
