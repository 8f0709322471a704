"""Open-loop load on stand-in servers: what a schedule comes to, and which runs may not be used."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.facts import facts, mentions

from inferprof import config, documents
from inferprof.documents.serving import Probe, ServingPolicy
from inferprof.errors import UserError
from inferprof.queueing.policy import Curve, Policy, Times, read_trace, schedule, trace_of
from inferprof.queueing.simulate import simulate
from inferprof.serving import bench, foreseen, load, loadgen, measure, search

MS = 1e6
CURVE = Curve.of({1: [3 * MS], 2: [4 * MS], 4: [6 * MS], 8: [10 * MS]})


def policy(**given: Any) -> ServingPolicy:
    asked = {"name": "dynamic", "policy": "dynamic", "max_batch": 8, "slo_ms": 25, "seconds": 20.0}
    return config.serving_entry(asked | given)


class Slow:
    """A server of which each batch takes so long, whatever its size."""

    def __init__(self, ms: float = 0.0) -> None:
        self.ms = ms
        self.batches: list[list[int]] = []

    def serve(self, requests: Sequence[int]) -> None:
        time.sleep(self.ms / 1e3)
        self.batches.append(list(requests))

    def curve(self, seconds: float) -> dict[int, list[float]]:
        return {size: times.tolist() for size, times in CURVE.times.items()}


class Simulated(bench.Bench):
    """A bench whose runs are simulated from the curve, each with service times of its own."""

    def sent(self, due: Times) -> load.Run:
        self.runs += 1
        return load.Run(simulate(self.curve, self.policy, due, seed=self.runs), due, due.size)

    curve: Curve = CURVE
    runs: int = 0


def bench_of(asked: ServingPolicy, kind: type[bench.Bench] = Simulated, server: Any = None, seed: int = 0) -> Any:
    given: Any = server or Slow()
    return kind(given, asked, {}, seed)


# --- a run -----------------------------------------------------------------------------------------------------


def test_requests_that_wait_go_together_up_to_the_cap_and_the_rest_after_the_delay() -> None:
    server = Slow()
    due = np.linspace(1.0, 2.0, 10)
    run = load.run(server.serve, Policy(4, 400 * MS), due)
    assert [len(batch) for batch in server.batches] == [4, 4, 2]
    assert [number for batch in server.batches for number in batch] == list(range(10))
    assert run.kept_up and run.served.formed == {2: 1, 4: 2}
    assert run.served.latency[-1] >= 400 * MS - 10


def test_without_batching_each_request_is_served_by_itself() -> None:
    server = Slow()
    run = load.run(server.serve, Policy(1), np.linspace(1.0, 2.0, 5))
    assert server.batches == [[0], [1], [2], [3], [4]]
    assert run.served.formed == {1: 5}


def test_latency_counts_from_when_a_request_was_due_however_long_the_server_was_busy() -> None:
    """No coordinated omission: 20 requests a millisecond apart, at a server that takes 20 ms for each."""
    due = np.arange(1, 21) * MS
    run = load.run(Slow(20).serve, Policy(1), due)
    latest = np.arange(1, run.served.arrived.size + 1) * 20 * MS
    assert (run.served.latency >= latest - run.served.arrived).all()


def test_a_server_that_does_not_keep_up_ends_on_time_and_says_so() -> None:
    start = time.perf_counter()
    run = load.run(Slow(300).serve, Policy(1), np.arange(1, 101) * MS)
    assert time.perf_counter() - start < 10
    assert not run.kept_up
    assert 0 < run.served.arrived.size < 20


def test_an_exception_of_the_server_ends_the_client_too() -> None:
    def fails(requests: Sequence[int]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        load.run(fails, Policy(1), np.arange(1, 1001) * 1e9)


def test_a_client_that_is_late_by_more_than_a_hundredth_of_the_objective_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(serve: Any, by: Policy, due: Times, core: Any) -> load.Run:
        return load.Run(simulate(CURVE, by, due), due + 0.3 * MS, due.size)

    monkeypatch.setattr(load, "run", late)
    _, refused = bench_of(policy(slo_ms=25), bench.Bench).run(100)
    assert mentions(refused, "0.3 ms", "1%", "25 ms")
    _, refused = bench_of(policy(slo_ms=35), bench.Bench).run(100)
    assert refused is None


# --- a rate, and the highest -----------------------------------------------------------------------------------


def test_a_rate_beyond_the_capacity_is_said_so_and_not_tried() -> None:
    server = Slow()
    point, trial = measure.point(bench_of(policy(), server=server), 1.2)
    assert trial is None
    assert mentions(point.refused, "unstable", "not measured", "800")
    assert (point.requests, point.latency, server.batches) == (0, {}, [])


def test_a_point_has_what_was_predicted_beside_what_came() -> None:
    point = measure.point(bench_of(policy(max_delay_ms=2, seconds=30)), 0.6)[0]
    assert point.predicted and point.replayed
    assert point.rate == pytest.approx(480)
    for name in ("mean", "p99"):
        assert point.predicted.latency[name] == pytest.approx(point.latency[name].value_ns, rel=0.05)
    low, value, high = (getattr(point.latency["p99"], name) for name in ("low_ns", "value_ns", "high_ns"))
    assert low <= value <= high
    assert point.queue_ns is not None and point.service_ns is not None
    assert point.utilization == pytest.approx(point.predicted.utilization, rel=0.05)
    assert sum(int(size) * count for size, count in point.batches.items()) == point.requests


def test_what_is_not_poisson_is_replayed_but_not_predicted() -> None:
    point = measure.point(bench_of(policy(arrivals="gamma:4")), 0.5)[0]
    assert point.predicted is None and point.advised_ns is None and point.replayed is not None


def test_the_highest_rate_is_told_to_two_percent_and_near_the_predicted_one() -> None:
    highest = search.highest_rate(bench_of(policy(max_delay_ms=2, seconds=20)), CURVE)
    assert highest.ended == "bracketed"
    assert highest.rate and highest.low and highest.high and highest.predicted
    assert highest.low <= highest.rate <= highest.high < 1.1 * highest.low
    assert highest.rate == pytest.approx(highest.predicted, rel=0.03)


def test_an_objective_that_no_rate_meets_says_so() -> None:
    highest = search.highest_rate(bench_of(policy(slo_ms=2, seconds=2.0)), CURVE)
    assert highest.rate is None and highest.none_meets
    assert mentions(highest.not_measured, "no rate", "p99", "2 ms")


def test_a_search_whose_runs_are_too_short_for_the_percentile_says_nothing_of_any_rate() -> None:
    highest = search.highest_rate(bench_of(policy(percentile=99.999, seconds=0.5)), CURVE)
    assert (highest.rate, highest.low, highest.high, highest.none_meets) == (
        None,
        None,
        None,
        False,
    )
    assert mentions(highest.not_measured, "p99.999", "too few", "seconds")


class Late(Simulated):
    """A bench whose client is late, and whose latencies are beyond any objective for that alone."""

    def run(self, rate: float, other: int = 0) -> tuple[load.Run, str | None]:
        run, _ = super().run(rate, other)
        served = dataclasses.replace(run.served, done=run.served.done + 1e9)
        return dataclasses.replace(run, served=served), "the client sent late"


def test_what_a_late_client_saw_tells_of_no_rate_that_it_is_too_high() -> None:
    highest = search.highest_rate(bench_of(policy(seconds=2.0), Late), CURVE)
    assert (highest.rate, highest.high, highest.none_meets) == (None, None, False)
    assert mentions(highest.not_measured, "not known", "the client sent late")


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_a_rate_at_which_no_request_is_due_is_refused_and_does_not_wait_for_one(arrivals: str) -> None:
    start = time.perf_counter()
    asked = policy(arrivals=arrivals, seconds=0.01, policy="none", max_batch=1)
    run, refused = bench_of(asked, bench.Bench).run(1e-4)
    assert time.perf_counter() - start < 5
    assert run.served.arrived.size == 0 and mentions(refused, "no request", "seconds")


# --- a machine whose speed drifts --------------------------------------------------------------------------------


class Drifting(Simulated):
    """A bench on a machine whose speed is an AR(1) process that forgets itself within a few runs."""

    drift: Any = None
    table: Any = None

    def sent(self, due: Times) -> load.Run:
        level = np.repeat([next(self.drift) for _ in range(4)], due.size // 8 + 1)
        return load.Run(simulate(CURVE, self.policy, due, factors=level), due, due.size)

    def lasting(self, curve: Curve) -> Any:
        if Drifting.table is None:
            Drifting.table = super().lasting(curve)
        return Drifting.table


def drift(rng: np.random.Generator, spread: float, memory: float) -> Any:
    """Factors of service times, four in each run."""
    keeps, z = np.exp(-0.25 / memory), rng.standard_normal()
    while True:
        z = keeps * z + np.sqrt(1 - keeps**2) * rng.standard_normal()
        yield float(np.exp(spread * z))


def searched(machine: Any, seed: int) -> Any:
    bench_ = bench_of(policy(seconds=1.0, slo_ms=40, max_delay_ms=2, percentile=95), Drifting, seed=seed)
    bench_.drift = machine
    return search.highest_rate(bench_, CURVE)


@pytest.mark.parametrize(("spread", "memory"), [(0.0, 1.0), (0.03, 4.0)])
def test_a_search_that_is_made_again_on_a_machine_that_drifts_lands_in_the_interval_of_the_first(
    monkeypatch: pytest.MonkeyPatch, spread: float, memory: float
) -> None:
    monkeypatch.setattr(foreseen, "REPLAYS", 4)
    inside, told = 0, 0
    for seed in range(12):
        machine = drift(np.random.default_rng(seed), spread, memory)
        first, second = searched(machine, seed), searched(machine, seed + 100)
        if first.rate and second.rate:
            told += 1
            inside += first.low <= second.rate <= first.high
    assert told >= 10
    assert inside >= told - 1


def test_a_machine_whose_speed_changes_a_lot_has_no_highest_rate_and_says_by_how_much_it_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(foreseen, "REPLAYS", 4)
    highest = searched(drift(np.random.default_rng(3), 0.3, 4.0), 3)
    assert highest.rate is None and highest.change > 0.3
    assert mentions(highest.not_measured, "speed", f"{100 * highest.change:.0f}")
    assert not highest.none_meets


# --- the client's CPU --------------------------------------------------------------------------------------------


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_the_client_has_a_cpu_of_its_own_and_what_a_session_starts_has_the_others() -> None:
    every = os.sched_getaffinity(0)
    seen: dict[str, set[int]] = {}

    def serve(_: Sequence[int]) -> None:
        seen["worker"] = os.sched_getaffinity(0)

    def send(*_: Any) -> None:
        seen["client"] = os.sched_getaffinity(0)

    with load.apart(True) as core:
        load.run(serve, Policy(1), np.array([1.0]), core)
        with load.Client(np.array([1.0]), send, lambda: None, core) as client:
            client.join()
    assert seen == {"client": {max(every)}, "worker": every - {max(every)}}
    assert os.sched_getaffinity(0) == every
    with load.apart(False) as core:
        assert core is None and os.sched_getaffinity(0) == every


def test_a_cpu_for_the_client_needs_two_and_a_session_that_leaves_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with pytest.raises(UserError, match="client_core"), load.apart(True):
        pass


# --- the rehearsal -----------------------------------------------------------------------------------------------


class Cold(Simulated):
    """A bench whose server is three times as slow after a pause, and half as slow again else."""

    curve = Curve(
        {size: 1.5 * times for size, times in CURVE.times.items()},
        {size: 3 * times for size, times in CURVE.times.items()},
    )


def rehearsal_of(own: bench.Bench, rate: float) -> foreseen.Rehearsal:
    return own.rehearsed(CURVE, own.trial(rate))


def test_batches_that_were_waited_for_have_service_times_of_their_own() -> None:
    own = bench_of(policy(seconds=4), kind=Cold)
    curve = rehearsal_of(own, 400.0).curve
    assert curve.mean(1, idle=True) == pytest.approx(9 * MS) and curve.mean(1) == pytest.approx(4.5 * MS)
    # What is rare at that rate takes longer by as much as the others do.
    assert curve.mean(8) == pytest.approx(15 * MS)
    assert set(own.samples) | set(own.after_idle) >= {1, 2, 4}


def test_drift_is_what_services_took_over_what_the_rehearsal_has_for_the_same_batches() -> None:
    own = bench_of(policy())
    run, rehearsal = own.run(400)[0], rehearsal_of(own, 400.0)
    assert own.explained(rehearsal, run, 400.0, None)["drift"] == pytest.approx(1.0)
    slower = {size: times / 1.25 for size, times in CURVE.times.items()}
    rehearsal = dataclasses.replace(rehearsal, curve=Curve(slower))
    assert own.explained(rehearsal, run, 400.0, None)["drift"] == pytest.approx(1.25)


class Slowing(Simulated):
    """A bench whose server is slower the later it is: by 1 % with every second of load."""

    def sent(self, due: Times) -> load.Run:
        self.seconds += float(due[-1]) / 2e9
        served = simulate(CURVE.slower(1 + 0.01 * self.seconds), self.policy, due, seed=int(1e3 * self.seconds))
        self.seconds += float(due[-1]) / 2e9
        return load.Run(served, due, due.size)

    seconds: float = 0.0


def drift_of(own: Any, parts: int) -> float:
    kind = type("Parts", (type(own),), {"parts": parts})
    own = bench_of(own.asked, kind)
    trial = own.trial(400.0)
    return float(own.explained(own.rehearsed(CURVE, trial), trial.run, 400.0, None)["drift"])


def test_a_machine_that_gets_slower_does_so_for_rehearsal_and_run() -> None:
    own = bench_of(policy(seconds=20), kind=Slowing)
    assert own.parts == 10
    assert drift_of(own, 1) == pytest.approx(1 + 0.01 * 15 / 1.05, abs=0.02)
    assert drift_of(own, own.parts) == pytest.approx(1.0, abs=0.02)


def test_the_parts_of_a_trial_are_those_of_its_schedule_each_from_an_empty_queue() -> None:
    own = bench_of(policy(seconds=8), kind=Slowing)
    due, run = own.due(400.0), own.trial(400.0).run
    assert run.kept_up and run.served.arrived.size == due.size
    firsts = np.cumsum([0, *(part.size for part in np.array_split(due, own.parts))])[:-1]
    apart = np.setdiff1d(np.arange(1, due.size), firsts)
    assert np.diff(run.served.arrived)[apart - 1] == pytest.approx(np.diff(due)[apart - 1])
    for first in firsts[1:]:
        assert run.served.arrived[first] >= run.served.done[:first].max()
    # The first tenth of each part is left out.
    told = bench.settled(run.served.latency, own.parts)
    assert told.size == sum(part.size - part.size // 10 for part in np.array_split(due, own.parts))


def test_a_trial_ends_with_the_part_in_which_the_server_does_not_keep_up() -> None:
    class Stops(Simulated):
        def sent(self, due: Times) -> load.Run:
            run = super().sent(due)
            cut = run.served if self.runs < 4 else simulate(CURVE, self.policy, due[:-5])
            return load.Run(cut, due[: cut.arrived.size], due.size)

    own = bench_of(policy(seconds=20), kind=Stops)
    trial = own.trial(400.0)
    assert own.runs == 4 and not trial.run.kept_up
    assert trial.run.served.arrived.size < trial.run.asked == own.due(400.0).size


# --- what is told, and what is refused -------------------------------------------------------------------------


def test_a_percentile_with_too_few_requests_is_left_out() -> None:
    assert set(bench.latency_of(np.arange(58.0), [50, 95, 99])) == {"mean", "p50"}
    assert set(bench.latency_of(np.arange(300.0), [50, 95, 99])) == {"mean", "p50", "p95", "p99"}


def test_a_trace_is_read_and_anything_else_is_one_line(tmp_path: Any) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("0.5\n0.7\n1.5\n")
    assert read_trace(path).tolist() == [0.5, 0.7, 1.5]
    for lines in ("3\n2\n", "a\n", "1\n", "nan\n1\n", ""):
        path.write_text(lines)
        with pytest.raises(UserError, match="no trace"):
            read_trace(path)
    with pytest.raises(UserError, match="no trace"):
        trace_of(policy(arrivals=f"trace:{tmp_path / 'none'}"))
    assert bench_of(policy(arrivals=f"trace:{tmp_path / 'none'}")).asked.arrivals.startswith("trace:")


def test_a_trace_gives_the_schedule_at_the_rate_asked_for(tmp_path: Any) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("\n".join(map(str, np.cumsum([0.1, 0.3] * 50))))
    due = bench_of(policy(arrivals=f"trace:{path}")).due(100)
    assert due.size / due[-1] * 1e9 == pytest.approx(100, rel=0.01)


def test_loadgen_that_is_not_installed_is_a_reason_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadgen, "PACKAGE", "no_such_package")
    run = loadgen.run(bench_of(policy()), "Server", CURVE)
    assert mentions(run.not_measured, "mlcommons-loadgen")


def test_the_summary_of_loadgen_is_read_by_its_names() -> None:
    text = "====\nMLPerf Results Summary\n====\nScenario : Server\nMean latency (ns)  : 123\nResult is : INVALID\n"
    assert loadgen.summary_of(text) == {"Scenario": "Server", "Mean latency (ns)": "123", "Result is": "INVALID"}


def test_a_document_of_a_run_is_read_back_as_it_was_written() -> None:
    point = measure.point(bench_of(policy()), 0.5)[0]
    case = dict.fromkeys(("model", "precision", "backend", "variant", "shape"), "x")
    content = {"case": case, "policy": policy(), "curve": {"8": [3e6]}, "capacity": 800.0, "loads": [point]}
    read = documents.decode(msgspec.json.encode(content), "serving")
    assert read.loads[0] == point
    assert read.policy == policy()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy": "none"}, "max_batch"),
        ({"slo_ms": 0}, "slo_ms"),
        ({"arrivals": "uniform"}, "arrivals 'uniform': allowed: poisson"),
        ({"arrivals": "gamma:-1"}, "arrivals 'gamma:-1': allowed: poisson"),
        ({"name": "../x"}, "letters"),
        ({"arrivals": "gamma:0"}, "gamma:0"),
        ({"arrivals": "gamma:0.0000001"}, "from 0.001"),
        ({"percentile": 100}, "percentile"),
        ({"delay": 3}, "delay"),
    ],
)
def test_a_policy_that_cannot_be_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        policy(**given)


def test_a_schedule_of_another_seed_is_another_one() -> None:
    assert not np.array_equal(schedule("poisson", 10, 5, seed=1), schedule("poisson", 10, 5, seed=2))


class Sensors:
    """A sampler that was asked for the energy of a span."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.told = record
        self.asked: dict[str, Any] = {}

    def record(self, run: dict[str, Any]) -> dict[str, Any]:
        self.asked = run
        return self.told


def test_the_energy_of_a_request_is_that_of_a_trial_over_all_its_requests() -> None:
    sensors: Any = Sensors({"energy": {"j_per_inference": 0.25, "mean_w": 100.0}})
    trial = bench_of(policy(seconds=4)).trial(400)
    assert trial.answered == trial.run.served.arrived.size + trial.rehearsal.served.arrived.size
    assert measure.energy(sensors, trial) == {"energy": {"j_per_inference": 0.25, "mean_w": 100.0}}
    asked = sensors.asked["throughput"]["back_to_back"]
    assert asked == {"span_ns": trial.span_ns, "inferences": trial.answered}


def test_without_sensors_or_requests_there_is_no_energy_and_a_reason() -> None:
    trial = bench_of(policy(seconds=4)).trial(400)
    assert mentions(measure.energy(None, trial)["energy"]["not_measured"], "no GPU")
    sensors: Any = Sensors({"not_measured": "NVML: no driver"})
    assert measure.energy(sensors, trial) == {"energy": {"not_measured": "NVML: no driver"}}
    nothing = load.joined([], 0)
    assert measure.energy(sensors, dataclasses.replace(trial, run=nothing, rehearsal=None)) == {}
    assert measure.energy(sensors, None) == {}


def test_a_trial_says_when_it_was() -> None:
    own = bench_of(policy(seconds=0.2), kind=bench.Bench)
    before = time.perf_counter_ns()
    begin, end = own.trial(100).span_ns
    assert before <= begin < end <= time.perf_counter_ns()
    assert end - begin > 0.2e9


def test_a_query_of_multistream_is_over_with_the_last_of_its_samples() -> None:
    own = bench_of(policy(max_batch=2))
    system: Any = loadgen._System(own, None)
    system.came, system.done = [0.0, 0.0, 10e9, 10e9], [1e9, 3e9, 11e9, 12e9]
    run = loadgen.result(own, "MultiStream", system, {"Scenario": "MultiStream"})
    assert run.own["mean"].value_ns == pytest.approx(2.5e9)
    assert run.requests == 4 and run.per_second == pytest.approx(4 / 12)


# --- in a few lines ----------------------------------------------------------------------------------------------


def test_a_rate_is_told_in_a_line_with_what_was_predicted_of_it() -> None:
    point = measure.point(bench_of(policy(seconds=20)), 0.5)[0]
    case = dict.fromkeys(("model", "precision", "backend", "variant", "shape"), "x")
    content = {"status": "ok", "case": case, "policy": msgspec.to_builtins(policy()), "capacity": 800.0}
    lines = measure.render(content | {"loads": [msgspec.to_builtins(point)]}).splitlines()
    assert mentions(lines[0], "dynamic", "800") and mentions(
        lines[1], "400/s", "0.5 of", "mean", "predicted", "p99", "predicted"
    )
    highest = {"rate": 500.0, "low": 490.0, "high": 508.0, "predicted": 512.0, "ended": "bracketed"}
    assert mentions(
        measure.render(content | {"loads": [], "highest": highest}), "p99", "25 ms", "500", "490", "508", "512"
    )
    late = highest | {"ended": f"bracketed; {search.LATE} in 8 of 8 runs"}
    assert mentions(
        measure.render(content | {"loads": [], "highest": late}), "500", "not to be used", "late in 8 of 8"
    )
    assert measure.render({"status": "failed", "reason": "no memory"}) == "failed: no memory"


def test_a_run_too_short_for_its_percentile_says_what_was_predicted_and_how_long_it_must_be() -> None:
    asked, short = policy(seconds=1), 10.0
    point, _ = measure.point(bench_of(asked), short / 800)
    case = dict.fromkeys(("model", "precision", "backend", "variant", "shape"), "x")
    content = {"status": "ok", "case": case, "policy": msgspec.to_builtins(asked), "capacity": 800.0}
    text = measure.render(content | {"loads": [msgspec.to_builtins(point)]}).splitlines()[1]
    assert mentions(
        text, "mean", "p99 predicted", "ms", "p99 not measured", f"{point.requests} requests", "333", "10"
    )
    assert bench_of(policy(seconds=10)).due(short).size >= 333


def test_a_generative_model_is_told_by_its_tokens() -> None:
    load_ = {"rate": 2.0, "share": 0.25, "latency": {}, "predicted": {"ttft": {"p99": 1e6}}}
    load_ |= {"tokens": {"ttft": {"p99": {"value_ns": 2e6}}, "tpot": {}, "per_s": 30.0, "good_share": 0.5}}
    asked = msgspec.to_builtins(policy(policy="continuous", prompts=[2, 4], new_tokens=[2, 3]))
    case = dict.fromkeys(("model", "precision", "backend", "variant", "shape"), "x")
    said = measure.render({"status": "ok", "case": case, "policy": asked, "capacity": 8.0, "loads": [load_]})
    assert mentions(said, "TTFT p99 2 ms", "predicted 1", "30 tokens/s", "50 %")


def test_a_search_without_an_answer_says_which_rates_met_the_objective_and_which_missed_it() -> None:
    probes = [Probe(rate=175.0, meets=True), Probe(rate=212.0, meets=False), Probe(rate=150.0, meets=True)]
    assert facts(search._seen(probes), "met", "missed") == ["met", "175/s", "missed", "212/s"]
    assert search._seen([]) == ""
