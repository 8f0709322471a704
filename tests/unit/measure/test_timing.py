from __future__ import annotations

import contextlib
import functools
import gc
import heapq
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import facts, mentions, naming, reason_alone

from inferprof.device import Buffer, Device, Where
from inferprof.devices.cpu import CpuDevice
from inferprof.errors import CaseFailed
from inferprof.measure import loop, throughput, timing
from inferprof.measure.lane import Lane, host_buffer
from inferprof.measure.timing import NotMeasured, Protocol, Series
from inferprof.measure.yardstick import Yardstick
from inferprof.plugins import Session

MS = 1_000_000
QUICK = Protocol(budget_s=1.0, max_samples=300, throughput_min_s=0.5, min_s=0.0)
FEEDS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


class Machine:
    """A simulated host clock, and engines (compute, copies) that work off what streams queue on them."""

    def __init__(self) -> None:
        self.ns = 0
        self.engines: dict[str, int] = {}
        self.effects: list[tuple[int, int, Callable[[], object]]] = []
        self.order = itertools.count()

    def __call__(self) -> int:
        return self.ns

    def spend(self, ns: float) -> None:
        self.ns += round(ns)
        while self.effects and self.effects[0][0] <= self.ns:
            heapq.heappop(self.effects)[2]()

    def wait_until(self, ns: int) -> None:
        self.spend(max(0, ns - self.ns))

    def submit(self, engine: str, not_before: int, duration: float, effect) -> int:
        end = max(self.ns, not_before, self.engines.get(engine, 0)) + round(duration)
        self.engines[engine] = end
        heapq.heappush(self.effects, (end, next(self.order), effect))
        return end


class Gpu:
    """device.Device on the simulated machine: 1 ms to upload, 0.5 ms to download, 20 µs to stage."""

    where: Where = "cuda"
    stream: int | None = 1

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.busy_until = 0

    def queue(self, engine, duration, effect) -> None:
        self.busy_until = self.machine.submit(engine, self.busy_until, duration, effect)

    def allocate(self, shape, dtype):
        array = np.zeros(shape, dtype)
        return Buffer("cuda", array.ctypes.data, tuple(shape), array.dtype, owner=array)

    def allocate_host(self, shape, dtype, pinned):
        return replace(host_buffer(np.zeros(shape, dtype)), owner="pinned" if pinned else "pageable")

    def copy(self, target, source) -> None:
        up = target.where == "cuda"
        to, of = (target.owner, source.array) if up else (target.array, source.owner)
        self.queue("h2d" if up else "d2h", MS if up else MS / 2, lambda: np.copyto(to, of))

    def fill(self, target, byte) -> None:
        self.queue("compute", 100, lambda: target.owner.reshape(-1).view(np.uint8).fill(byte))

    def synchronize(self) -> None:
        self.machine.wait_until(self.busy_until)

    def drain(self) -> None:
        self.machine.wait_until(max(self.machine.engines.values(), default=0))

    def timed(self, work):
        begin = max(self.machine.ns, self.busy_until)
        work()
        end = self.busy_until

        def wait() -> float:
            self.machine.wait_until(end)
            return float(end - begin)

        return wait

    def capture(self, work):
        raise AssertionError("sessions capture their graphs")

    def memory_used(self):
        return None


class GpuSession:
    """Doubles its input. 10 µs of host time to enqueue, then `duration(i)` on the device for the i-th inference."""

    graph: bool | None = None

    def __init__(self, device, duration=lambda i: 5 * MS) -> None:
        self.device = device
        self.duration = duration
        self.count = 0
        self.result = device.allocate((2, 3), np.dtype(np.float32))
        self.captured = False

    def bind(self, inputs) -> None:
        self.device.machine.spend(2_000)
        self.x = inputs["x"].owner

    def enqueue(self) -> None:
        self.device.machine.spend(1_000 if self.captured else 10_000)
        self.count += 1
        self.device.queue("compute", self.duration(self.count), self.compute)

    def compute(self) -> None:
        np.multiply(self.x, 2, out=self.result.owner)

    def outputs(self):
        return {"y": self.result}

    def capture_graph(self) -> bool:
        self.captured = bool(self.graph)
        return self.captured

    def memory(self):
        return {}

    def close(self) -> None:
        pass


def measure(session, placement="pageable", protocol=QUICK) -> timing.Timing:
    return timing.measure(session, session.device, FEEDS, placement, protocol, clock=session.device.machine)


def pipeline(result: timing.Timing, sessions: Sequence[GpuSession]) -> timing.Throughput:
    lanes: list[tuple[Session, Device]] = [(session, session.device) for session in sessions]
    machine = sessions[0].device.machine
    pipelined = timing.add_pipelined(result, lanes, FEEDS, "pinned", QUICK, machine).pipelined
    assert isinstance(pipelined, timing.Throughput)
    return pipelined


def series(result: timing.Timing, boundary) -> Series:
    found = result.boundaries[boundary]
    assert isinstance(found, Series)
    return found


def test_the_boundaries_cover_what_their_names_say():
    result = measure(GpuSession(Gpu(Machine())))
    assert series(result, "device").median == 5 * MS + 10_000  # an idle stream waits for the host's enqueue
    assert series(result, "call").median == 5 * MS + 10_000
    assert series(result, "end_to_end").median == 6.5 * MS
    assert result.first_inference_ns == 5 * MS + 10_000
    np.testing.assert_array_equal(result.outputs["y"], FEEDS["x"] * 2)
    assert all(check.passed for check in result.checks.values())


def test_the_stages_are_measured_one_by_one():
    stages = measure(GpuSession(Gpu(Machine()))).stages
    medians = {name: float(np.median(samples)) for name, samples in stages.items() if isinstance(samples, tuple)}
    assert medians == {
        "stage_inputs": 0,
        "h2d": MS,
        "bind": 2_000,
        "execute": 5 * MS + 10_000,
        "d2h": MS / 2,
        "extract": 0,
    }


def test_inputs_on_the_device_are_neither_staged_nor_uploaded():
    result = measure(GpuSession(Gpu(Machine())), placement="device")
    assert result.stages["h2d"] == NotMeasured("the inputs are placed on the device before the clock starts")
    assert series(result, "end_to_end").median == 5.5 * MS + 12_000
    np.testing.assert_array_equal(result.outputs["y"], FEEDS["x"] * 2)


@pytest.mark.parametrize(("placement", "uploads"), [("pinned", {"pinned"}), ("pageable", {"the caller's array"})])
def test_inputs_are_uploaded_from_where_the_placement_says(placement, uploads):
    seen = set()

    class Watched(Gpu):
        def copy(self, target, source) -> None:
            if target.where == "cuda":
                seen.add(source.owner if isinstance(source.owner, str) else "the caller's array")
            super().copy(target, source)

    measure(GpuSession(Watched(Machine())), placement)
    assert seen == uploads


def test_mapped_inputs_are_staged_and_then_read_where_they_lie():
    class Shared(Gpu):
        def allocate_host(self, shape, dtype, pinned):
            buffer = host_buffer(np.zeros(shape, dtype))
            return replace(buffer, owner=buffer.array if pinned else "pageable")

        def copy(self, target, source) -> None:
            assert target.where == "cpu", "inputs are not copied to the device"
            super().copy(target, source)

    session = GpuSession(Shared(Machine()))
    result = measure(session, placement="mapped")
    assert result.stages["h2d"] == NotMeasured("the GPU reads the inputs out of the host's memory")
    assert result.stages["stage_inputs"]
    assert series(result, "end_to_end").median == 5.5 * MS + 12_000
    np.testing.assert_array_equal(result.outputs["y"], FEEDS["x"] * 2)
    assert session.x.ctypes.data != FEEDS["x"].ctypes.data


def test_a_steady_case_stops_by_its_interval():
    found = series(measure(GpuSession(Gpu(Machine()))), "device")
    assert (found.stopped_by, found.settled, found.interval, len(found.samples_ns)) == ("interval", True, 0.0, 25)


def test_a_steady_case_is_watched_for_a_while_all_the_same():
    found = series(measure(GpuSession(Gpu(Machine())), protocol=replace(QUICK, min_s=0.3)), "device")
    assert found.stopped_by == "interval"
    assert 0.3e9 <= sum(found.samples_ns) < 0.3e9 * 1.3


def test_a_noisy_case_stops_by_its_budget():
    noise = np.random.default_rng(0).uniform(1, 9, 10_000)
    session = GpuSession(Gpu(Machine()), lambda i: noise[i] * MS)
    found = series(measure(session, protocol=replace(QUICK, interval=0.001)), "device")
    assert found.stopped_by == "budget"
    assert found.interval is not None
    assert found.interval > 0.001
    assert 1e9 <= sum(found.samples_ns) < 1e9 + 10 * MS


def alone(result: timing.Timing) -> throughput.Throughput:
    assert isinstance(result.back_to_back, throughput.Throughput)
    return result.back_to_back


@pytest.mark.parametrize(
    ("latency_ms", "spread", "samples", "stopped_by"),
    [
        (5, 0.0, 50, "interval"),  # at once, but for min_s
        (5, 0.5, 100, "budget"),  # half of it
        (40, 0.5, 20, "budget"),  # as many as a whole budget ends with at the least
        (200, 0.5, 5, "budget"),  # a whole budget, which is not enough
    ],
)
def test_a_first_pass_ends_sooner_but_not_with_fewer_samples(latency_ms, spread, samples, stopped_by):
    noise = np.random.default_rng(0).uniform(1 - spread, 1 + spread, 10_000)
    session = GpuSession(Gpu(Machine()), lambda i: latency_ms * noise[i] * MS)
    protocol = replace(QUICK, first_pass=True, min_s=0.2, interval=1e-9 if spread else 0.01)
    found = series(measure(session, protocol=protocol), "device")
    assert found.stopped_by == stopped_by
    assert len(found.samples_ns) == pytest.approx(samples, rel=0.2)


def test_a_first_pass_is_content_with_half_of_the_smallest_difference_that_one_round_may_call():
    noise = np.random.default_rng(0).uniform(0.93, 1.07, 10_000)
    session = GpuSession(Gpu(Machine()), lambda i: 5 * noise[i] * MS)
    found = series(measure(session, protocol=replace(QUICK, first_pass=True, budget_s=4.0)), "device")
    assert (found.stopped_by, loop.FIRST_INTERVAL) == ("interval", 0.025)
    assert found.interval is not None
    assert 0.01 < found.interval <= 0.025


@pytest.mark.parametrize("only", ["device", "call", "end_to_end"])
def test_of_a_round_for_one_boundary_nothing_else_is_measured(only):
    result = measure(GpuSession(Gpu(Machine())), protocol=replace(QUICK, first_pass=True, only=only))
    assert [name for name, entry in result.boundaries.items() if isinstance(entry, Series)] == [only]
    others = [*result.boundaries.values(), *result.stages.values(), result.back_to_back, result.pipelined]
    assert sum(isinstance(entry, NotMeasured) for entry in others) == len(others) - 1
    assert set(result.checks) == {"outputs_overwritten", "outputs_finite"}


def test_a_first_pass_runs_no_pipeline_and_back_to_back_as_long_as_one_would():
    result = measure(GpuSession(Gpu(Machine())), protocol=replace(QUICK, first_pass=True, throughput_min_s=1.2))
    assert alone(result).seconds == pytest.approx(QUICK.budget_s / 2, rel=0.02)
    assert result.pipelined == NotMeasured(timing.FIRST_PASS)


def test_the_number_of_samples_is_limited():
    noise = np.random.default_rng(0).uniform(1, 9, 10_000)
    session = GpuSession(Gpu(Machine()), lambda i: noise[i] * MS)
    found = series(measure(session, protocol=replace(QUICK, interval=0.0001, max_samples=50)), "device")
    assert (found.stopped_by, len(found.samples_ns)) == ("count", 50)


def test_warm_up_lasts_until_latency_has_settled():
    session = GpuSession(Gpu(Machine()), lambda i: 5 * MS * (1 + max(0, 1 - i / 100)))
    found = series(measure(session, protocol=replace(QUICK, budget_s=3.0)), "device")
    assert found.settled
    assert found.warmup >= 80
    assert max(found.samples_ns) < 5 * MS * 1.05


def test_a_case_that_never_settles_is_marked():
    session = GpuSession(Gpu(Machine()), lambda i: 5 * MS * 1.01**i)
    found = series(measure(session, protocol=replace(QUICK, budget_s=0.3)), "device")
    assert not found.settled


def test_a_case_slower_than_its_budget_still_has_the_samples_of_an_interval():
    session = GpuSession(Gpu(Machine()), lambda i: 3_000 * MS)
    found = series(measure(session), "device")
    assert (len(found.samples_ns), found.stopped_by, found.interval) == (6, "budget", 0.0)
    assert not found.settled


@pytest.mark.parametrize(
    ("ms", "noise", "trend", "settled"),
    [
        (14, 0.07, 0.0, True),  # windows of a latency that only varies
        (14, 0.0, -0.01, False),  # it still falls
        (14, 0.02, -0.01, False),
        (86, 0.04, 0.0, True),  # three windows of three samples overrun the budget
        (86, 0.0, 0.03, False),
    ],
)
def test_warm_up_tells_noise_from_a_trend(ms: float, noise: float, trend: float, settled: bool) -> None:
    outcomes = []
    for seed in range(50):
        machine, random, steps = Machine(), np.random.default_rng(seed), itertools.count()

        def sample(machine: Machine = machine, random: Any = random, steps: Any = steps) -> float:
            ns = ms * MS * (1 + trend) ** next(steps) * random.normal(1, noise)
            machine.spend(ns)
            return float(ns)

        outcomes.append(loop.warm_up(sample, replace(QUICK, budget_s=0.7), machine)[1])
    assert (sum(outcomes) >= 45) if settled else (sum(outcomes) <= 5)


def test_back_to_back_hides_the_cost_of_enqueueing():
    result = measure(GpuSession(Gpu(Machine())))
    assert alone(result).inferences == 100
    assert alone(result).ns == pytest.approx(5 * MS + 10_000 / 100)
    assert result.pipelined == NotMeasured("one session was open; a pipeline needs at least two")


def test_back_to_back_ends_by_the_clock_where_inferences_take_longer_than_alone():
    machine = Machine()
    session = GpuSession(Gpu(machine))
    session.enqueue = lambda: machine.spend(10 * MS)  # type: ignore[method-assign]
    lane = Lane(session, session.device, FEEDS, "pageable")
    found = throughput.back_to_back(lane, 1 * MS, QUICK, machine)
    assert (found.inferences, found.seconds) == (50, 0.5)


def test_a_pipeline_hides_copies_behind_compute():
    machine = Machine()
    result = measure(GpuSession(Gpu(machine)), placement="pinned")
    pipelined = pipeline(result, [GpuSession(Gpu(machine)), GpuSession(Gpu(machine))])
    assert pipelined.sessions == 2
    assert pipelined.ns == pytest.approx(5 * MS, rel=0.01)
    assert pipelined.overlap == pytest.approx(1.0, abs=0.02)


def test_a_pipeline_goes_on_with_the_lane_that_was_measured():
    machine = Machine()
    sessions = [GpuSession(Gpu(machine)), GpuSession(Gpu(machine))]
    for session in sessions:
        session.graph = True
    result = measure(sessions[0], placement="pinned", protocol=replace(QUICK, graph=True))
    bound = sessions[0].x
    sessions[0].graph = False  # a second capture would fail
    lanes: list[tuple[Session, Device]] = [(session, session.device) for session in sessions]
    timing.add_pipelined(result, lanes, FEEDS, "pinned", replace(QUICK, graph=True), machine)
    assert sessions[0].x is bound
    assert sessions[1].captured


def test_the_spans_of_the_loops_are_on_the_clock():
    machine = Machine()
    result = measure(GpuSession(Gpu(machine)))
    begin, end = series(result, "device").span_ns
    assert end - begin == 25 * (5 * MS + 10_000)
    assert series(result, "call").span_ns[0] == end
    assert alone(result).span_ns[1] <= machine.ns


def test_a_slow_spell_of_the_machine_falls_on_all_boundaries_alike():
    machine = Machine()
    spell = 400 * MS
    session = GpuSession(Gpu(machine), lambda i: 7 * MS if machine.ns // spell % 2 else 5 * MS)
    result = measure(session, protocol=replace(QUICK, interval=0.0001, budget_s=2.0))
    shares = [np.mean(np.array(series(result, name).samples_ns) > 6.9 * MS) for name in ("device", "call")]
    shares.append(np.mean(np.array(series(result, "end_to_end").samples_ns) > 8.4 * MS))
    assert max(shares) - min(shares) < 0.2, shares
    assert min(shares) > 0.2, shares
    assert series(result, "call").span_ns[0] < series(result, "device").span_ns[1]


def test_a_steady_boundary_goes_on_beside_one_that_is_not():
    machine = Machine()
    noise = iter(np.random.default_rng(0).uniform(1, 9, 10_000))

    def lasting(duration: Callable[[], float]) -> Callable[[], float]:
        def sample() -> float:
            start = machine.ns
            machine.spend(duration())
            return machine.ns - start

        return sample

    samplers = {"steady": lasting(lambda: 5 * MS), "noisy": lasting(lambda: next(noise) * MS)}
    found = loop.in_turns(samplers, replace(QUICK, interval=0.001), machine)
    assert found["noisy"].stopped_by == "budget"
    assert found["steady"].stopped_by in ("interval", "budget")
    assert sum(found["steady"].samples_ns) == pytest.approx(sum(found["noisy"].samples_ns), rel=0.2)


def test_the_yardstick_is_read_while_the_gpu_has_nothing_to_do_and_is_in_no_sample(monkeypatch):
    machine = Machine()
    gpu = Gpu(machine)
    idle = []

    def work() -> None:
        idle.append(gpu.busy_until <= machine.ns)
        machine.spend(MS)

    monkeypatch.setattr(timing, "Yardstick", functools.partial(Yardstick, cpu_clock=machine, work=work))
    noise = np.random.default_rng(0).uniform(1, 9, 10_000)
    result = measure(GpuSession(gpu, lambda i: noise[i] * MS), protocol=replace(QUICK, interval=0.0001))
    assert all(idle)
    assert set(result.host.yardstick_ns) == set(result.host.yardstick_cpu_ns) == {MS}
    assert len(result.host.yardstick_ns) == 4 * QUICK.turns  # device, call, end_to_end and the stages
    assert sum(series(result, "device").samples_ns) < 1e9 + 10 * MS


def test_lanes_on_one_stream_hide_nothing():
    machine = Machine()
    gpu = Gpu(machine)
    result = measure(GpuSession(Gpu(machine)), placement="pinned")
    pipelined = pipeline(result, [GpuSession(gpu), GpuSession(gpu)])
    assert pipelined.overlap == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(("later_ms", "overlap"), [(4, 1.0), (9, 0.0)])
def test_a_pipeline_beside_a_slower_or_faster_latency_hides_all_or_nothing(later_ms, overlap):
    machine = Machine()
    result = measure(GpuSession(Gpu(machine)), placement="pinned")
    sessions = [GpuSession(Gpu(machine), duration=lambda i: later_ms * MS) for _ in range(2)]
    assert pipeline(result, sessions).overlap == overlap


def test_a_pipeline_of_one_is_refused():
    machine = Machine()
    session = GpuSession(Gpu(machine))
    with pytest.raises(ValueError, match="at least two"):
        pipeline(measure(session), [session])


def test_a_graph_is_captured_before_the_samples():
    session = GpuSession(Gpu(Machine()))
    session.graph = True
    result = measure(session, protocol=replace(QUICK, graph=True))
    assert series(result, "call").median == 5 * MS + 1_000
    assert result.first_inference_ns == 5 * MS + 10_000


def test_a_graph_that_cannot_be_captured_fails_the_case():
    with pytest.raises(CaseFailed, match=naming("cannot", "CUDA", "graph")):
        measure(GpuSession(Gpu(Machine())), protocol=replace(QUICK, graph=True))


def test_an_output_of_changing_shape_fails_the_case():
    session = GpuSession(Gpu(Machine()))
    shapes = itertools.count(2)
    session.outputs = lambda: {"y": session.device.allocate((next(shapes), 3), np.dtype(np.float32))}  # type: ignore[method-assign]
    with pytest.raises(CaseFailed, match=naming("output y", "shape")):
        measure(session)


# --- faults that the self-checks must catch ---------------------------------------------------------------------


def failed(result: timing.Timing) -> dict[str, str]:
    return {name: str(check.detail) for name, check in result.checks.items() if not check.passed}


@pytest.mark.parametrize(("launch", "engine", "compute"), [(0.01, "compute", 5), (2.6, "other", 3)])
def test_a_backend_that_works_on_another_stream_is_caught(launch, engine, compute):
    """Its event times and its host times are both too short, so only the data can tell.

    Of the second the runs of the loops before would write the right outputs over the poison. Times in ms.
    """
    machine = Machine()
    session = GpuSession(Gpu(machine))
    other = Gpu(machine)

    def enqueue() -> None:
        machine.spend(launch * MS)
        other.queue(engine, compute * MS, session.compute)

    session.enqueue = enqueue  # type: ignore[method-assign]
    result = measure(session, protocol=replace(QUICK, budget_s=0.1))
    assert series(result, "call").median < compute * MS
    assert facts(failed(result)["outputs_overwritten"], "poison", "y") == ["y", "poison", "6", "6"]


def test_a_device_that_does_not_wait_is_caught():
    class Early(Gpu):
        def synchronize(self) -> None:
            pass

    result = measure(GpuSession(Early(Machine()), lambda i: 5 * MS), protocol=replace(QUICK, budget_s=0.1))
    assert "call_not_below_device" in failed(result)
    assert "outputs_overwritten" in failed(result)


def test_a_session_that_computes_nothing_is_caught():
    session = GpuSession(Gpu(Machine()))
    session.compute = lambda: None  # type: ignore[method-assign]
    assert "poison" in failed(measure(session))["outputs_overwritten"]


def test_outputs_that_are_not_finite_are_caught():
    session = GpuSession(Gpu(Machine()))
    session.compute = lambda: np.divide(session.x, 0, out=session.result.owner)  # type: ignore[method-assign]
    with np.errstate(all="ignore"):
        result = measure(session)
    assert set(failed(result)) == {"outputs_finite"}
    assert facts(failed(result)["outputs_finite"], "y") == ["y", "6", "6", "NaN"]


@pytest.mark.parametrize(("noise", "passed"), [(1e-4, True), (0.012, True), (0.04, False)])
def test_runs_may_differ_by_rounding_only(noise, passed):
    session = GpuSession(Gpu(Machine()))

    def compute() -> None:
        np.multiply(session.x, 2 + 2 * noise * (session.count % 2), out=session.result.owner)

    session.compute = compute  # type: ignore[method-assign]
    check = measure(session).checks["outputs_overwritten"]
    assert check.passed is passed
    assert "of the largest output" in str(check.detail)


# --- the CPU, and the record ------------------------------------------------------------------------------------


class CpuSession:
    """Doubles its input on the CPU."""

    def __init__(self) -> None:
        self.result = np.zeros((2, 3), np.float32)

    def bind(self, inputs) -> None:
        self.x = inputs["x"].array

    def enqueue(self) -> None:
        np.multiply(self.x, 2, out=self.result)

    def outputs(self):
        return {"y": host_buffer(self.result)}

    def capture_graph(self) -> bool:
        return False

    def memory(self):
        return {}

    def close(self) -> None:
        pass


def test_the_cpu_has_no_device_boundary_and_no_copies():
    quick = Protocol(budget_s=0.2, max_samples=50, throughput_min_s=0.1)
    result = timing.measure(CpuSession(), CpuDevice(), FEEDS, "pageable", quick)
    assert result.boundaries["device"] == NotMeasured("the CPU has no device clock")
    for stage in ("h2d", "d2h"):
        assert result.stages[stage] == NotMeasured("the CPU reads and writes the host's arrays, so nothing is copied")
    assert set(result.checks) == {"outputs_overwritten", "outputs_finite"}
    assert failed(result) == {}
    np.testing.assert_array_equal(result.outputs["y"], FEEDS["x"] * 2)


def test_the_record_is_json_with_all_raw_samples():
    result = measure(GpuSession(Gpu(Machine())))
    record = json.loads(json.dumps(result.record(), allow_nan=False))
    assert set(record) == {"boundaries", "stages", "throughput", "first", "checks", "host"}
    assert record["boundaries"]["device"] == {
        "samples_ns": [5 * MS + 10_000] * 25,
        "span_ns": record["boundaries"]["device"]["span_ns"],
        "warmup": record["boundaries"]["device"]["warmup"],
        "settled": True,
        "stopped_by": "interval",
        "interval": 0.0,
    }
    assert record["stages"]["h2d"]["samples_ns"] == [MS] * len(record["stages"]["h2d"]["samples_ns"])
    assert record["throughput"]["back_to_back"]["inferences"] == 100
    assert mentions(reason_alone(record["throughput"]["pipelined"]), "one session", "at least two")
    assert record["first"] == {"first_inference_ns": 5 * MS + 10_000}
    overwritten = record["checks"]["outputs_overwritten"]
    assert overwritten["passed"] is True and facts(overwritten["detail"], "same") == ["3", "same"]


def test_the_protocol_is_recorded_without_its_range():
    assert Protocol(budget_s=1.5).record() == {
        "warmup_min": 1,
        "settle": 0.02,
        "interval": 0.01,
        "min_s": 0.2,
        "budget_s": 1.5,
        "turns": 8,
        "min_samples": 20,
        "max_samples": 20_000,
        "first_pass": False,
        "only": None,
        "quiet_core": False,
        "throughput_min_s": 1.2,
        "graph": False,
    }


def test_a_profiler_sees_a_range_per_boundary_inference_and_stage():
    opened: list[str] = []

    @contextlib.contextmanager
    def mark(name: str):
        opened.append(name)
        yield

    measure(GpuSession(Gpu(Machine())), protocol=replace(QUICK, range=mark, max_samples=20))
    assert list(dict.fromkeys(opened)) == [
        "device",
        "inference",
        "call",
        "end_to_end",
        "stages",
        "stage_inputs",
        "h2d",
        "bind",
        "execute",
        "d2h",
        "extract",
        "back_to_back",
    ]


def test_garbage_collection_is_off_while_measuring_and_on_again_afterwards():
    session = GpuSession(Gpu(Machine()), lambda i: 5 * MS + gc.isenabled())
    assert series(measure(session), "device").median == 5 * MS + 10_000
    assert gc.isenabled()


@pytest.mark.parametrize("latency_ms", [1, 40, 90, 140, 200, 290])
def test_no_boundary_takes_over_three_budgets_unless_the_samples_of_an_interval_do(latency_ms):
    machine = Machine()
    protocol = replace(QUICK, budget_s=0.2, interval=1e-9)

    def sample() -> float:
        machine.spend(latency_ms * MS)
        return float(latency_ms * MS)

    found = loop.run("x", sample, protocol, machine)
    assert machine.ns <= max(3 * 0.2e9, max(0.2e9, latency_ms * MS) + 6 * latency_ms * MS)
    assert found.warmup >= 1 and len(found.samples_ns) >= 6
    assert found.settled == (latency_ms == 1)
