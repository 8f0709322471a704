"""A case under load: its curve, what that predicts, what comes at each rate, and the highest rate that will do."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec
import numpy as np

from inferprof import outcomes, progress, registry
from inferprof.documents.serving import Load, Predicted, ServingPolicy
from inferprof.errors import UserError
from inferprof.machine import hardware, provenance
from inferprof.measure import timing
from inferprof.measure.gpu_lock import gpu_lock
from inferprof.measure.telemetry import Telemetry
from inferprof.plugins import Backend
from inferprof.queueing import advice, theory
from inferprof.queueing.policy import NS_PER_S, Curve
from inferprof.queueing.simulate import simulate
from inferprof.run_request import RunRequest
from inferprof.serving import loadgen, search
from inferprof.serving.bench import CURVE_S, Bench, latency_of, name_of, percents_of, settled, trace_of
from inferprof.serving.server import opened

SCHEMA: Final = 1
NO_GPU: Final = "no GPU, whose sensors tell its energy"


def point(bench: Bench, share: float) -> Load:
    """What a rate comes to: predicted first, then measured. A rate beyond the capacity is not tried."""
    curve = bench.measure_curve()
    capacity = curve.capacity(bench.asked.max_batch)
    rate = share * capacity
    percents = percents_of(bench.asked)
    try:
        foreseen = theory.predict(curve, bench.policy, rate)
    except theory.Unstable as error:
        return Load(rate=rate, share=share, refused=f"unstable, not measured: {error}")
    predicted, advised = None, None
    if bench.asked.arrivals == "poisson":
        advised = advice.best_delay(curve, bench.asked.max_batch, rate, bench.asked.percentile)
        latency = {"mean": foreseen.mean_ns, **{name_of(each): foreseen.percentile(each) for each in percents}}
        predicted = Predicted(latency=latency, utilization=foreseen.utilization, mean_batch=foreseen.mean_batch)
    measured, refused = bench.run(rate)
    served = measured.served
    if not measured.kept_up:
        refused = f"the server did not keep up: {served.arrived.size} of {measured.asked} requests in twice the time"
    if not served.arrived.size:
        return Load(rate=rate, share=share, refused=refused)
    replay = simulate(curve, bench.policy, bench.due(rate)[: served.arrived.size], bench.seed)
    return Load(
        rate=rate,
        share=share,
        refused=refused,
        requests=int(served.arrived.size),
        seconds=float(served.done[-1]) / NS_PER_S,
        latency=latency_of(settled(served.latency), percents),
        queue_ns=float(np.mean(served.started - served.arrived)),
        service_ns=float(np.mean(served.done - served.started)),
        utilization=served.utilization,
        batches={str(size): count for size, count in served.formed.items()},
        lag_ns=max(0.0, float(np.quantile(measured.lag, 0.99))),
        predicted=predicted,
        advised_delay_ns=advised.delay_ns if advised else None,
        advised_ns=advised.value_ns if advised else None,
        replayed=Predicted(
            latency={n: each.value_ns for n, each in latency_of(settled(replay.latency), percents).items()},
            utilization=replay.utilization,
            mean_batch=replay.arrived.size / sum(replay.formed.values()),
        ),
    )


# --- the document ----------------------------------------------------------------------------------------------


def measure(requests: Sequence[RunRequest], asked: ServingPolicy) -> dict[str, Any]:
    """Measure a policy on sessions of a case at several batches, the last of which names it; failures are results."""
    last = requests[-1]
    trace_of(asked)  # refused before anything is measured
    backend: Backend = registry.look_up("backend", last.case.backend, registry.backends())
    gpu = hardware.detect_gpu() if backend.where != "cpu" else None
    head = {
        "schema": SCHEMA,
        "case": asdict(last.case),
        "machine": last.machine,
        "policy": msgspec.to_builtins(asked),
        "options": dict(last.variant.options),
    }
    budgets = {"loads": len(asked.loads) * (asked.seconds + len(requests) * CURVE_S)}
    budgets |= {"highest rate": search.RUNS * asked.seconds} if asked.search else {}
    budgets |= {"LoadGen": len(asked.loadgen) * asked.seconds} if asked.loadgen else {}
    with (
        gpu_lock(gpu.uuid, str(last.case)) if gpu else contextlib.nullcontext(),
        progress.task(f"Serve {last.case} by {asked.name}", ("load", *budgets), budgets=budgets, measures=True),
    ):
        environment = provenance.of_run(gpu)
        content = outcomes.attempt("serve", lambda: _content(requests, asked, gpu), "serving", head)
    return {**head, "status": "ok", "reason": None, **content, "environment": environment}


def energy(sampler: Telemetry | None, requests: int, span: tuple[int, int]) -> dict[str, Any]:
    """The part `energy` of a load, of each of its requests; nothing where none was served."""
    if not requests:
        return {}
    if sampler is None:
        return {"energy": {"not_measured": NO_GPU}}
    record = sampler.record({"throughput": {"back_to_back": {"span_ns": span, "inferences": requests}}})
    return {"energy": record.get("energy", record)}


def _content(requests: Sequence[RunRequest], asked: ServingPolicy, gpu: hardware.Gpu | None) -> Mapping[str, Any]:
    progress.step("load")
    sampler = Telemetry() if gpu else None
    with sampler or contextlib.nullcontext(), opened(requests, gpu) as server, timing.undisturbed():
        if server.sizes[-1] != asked.max_batch:
            raise UserError(
                f"max_batch is {asked.max_batch} and the largest batch with a session {server.sizes[-1]}: "
                "give the largest of the shapes as max_batch"
            )
        bench = Bench(server, asked, {}, requests[-1].seed)
        bench.server.curve(CURVE_S)  # not kept: the first second of a process is its slowest
        progress.step("loads")
        loads = [(point(bench, share), bench.span) for share in progress.counted(asked.loads, "rate")]
        curve = bench.measure_curve()
        highest = search.highest_rate(bench, curve) if asked.search else None
        runs = [loadgen.run(bench, scenario, curve) for scenario in asked.loadgen]
    pooled = Curve.of(bench.samples)
    return {
        "curve": {str(size): times.tolist() for size, times in pooled.times.items()},
        "capacity": pooled.capacity(asked.max_batch),
        "loads": [{**msgspec.to_builtins(load), **energy(sampler, load.requests, span)} for load, span in loads],
        **({"highest": msgspec.to_builtins(highest)} if highest else {}),
        "loadgen": msgspec.to_builtins(runs),
    }
