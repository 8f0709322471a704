"""A case under load: its curve, what that predicts, what comes at each rate, and the highest rate that will do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec
import numpy as np

from inferprof import outcomes, progress, registry
from inferprof.case import Case
from inferprof.documents.serving import NEEDS_PROMPTS, NO_PROMPTS, Load, ServingPolicy
from inferprof.errors import UserError
from inferprof.machine import hardware, provenance
from inferprof.measure import device_lock, timing
from inferprof.measure.telemetry import Telemetry
from inferprof.plugins import Backend
from inferprof.queueing import theory
from inferprof.queueing.policy import Times, trace_of
from inferprof.run_request import RunRequest
from inferprof.serving import load, loadgen, search
from inferprof.serving.bench import CURVE_S, PACED, Bench, Trial, name_of
from inferprof.serving.search import LATE
from inferprof.serving.server import opened
from inferprof.units import NS_PER_S

SCHEMA: Final = 1
NO_GPU: Final = "no GPU with an energy counter"


def point(bench: Bench, share: float) -> tuple[Load, Trial | None]:
    """What a rate comes to, predicted and measured, and the trial. A rate beyond the capacity is not tried."""
    curve = bench.measure_curve()
    capacity = bench.capacity(curve)
    rate = share * capacity
    if share >= theory.FULL:
        beyond = f"{rate:.4g} requests/s is beyond what batches of {bench.asked.max_batch} carry, {capacity:.4g}/s"
        return Load(rate=rate, share=share, refused=f"unstable, not measured: {beyond}"), None
    offline, trial = bench.by_theory(curve, rate), bench.trial(rate)
    run, served, refused = trial.run, trial.run.served, trial.refused
    if not run.kept_up:
        refused = f"the server did not keep up: {served.arrived.size} of {run.asked} requests in twice the time"
    if not served.arrived.size:
        return Load(rate=rate, share=share, refused=refused), trial
    rehearsal = bench.rehearsed(curve, trial)
    predicted, advised = bench.predicted(rehearsal, rate), bench.advised(rehearsal.curve, rate)
    measured = Load(
        rate=rate,
        share=share,
        refused=refused,
        requests=int(served.arrived.size),
        seconds=float(served.done[-1]) / NS_PER_S,
        latency=bench.told(run),
        queue_ns=float(np.mean(served.started - served.arrived)),
        service_ns=float(np.mean(served.done - served.started)),
        utilization=served.utilization,
        batches={str(size): count for size, count in bench.formed(run).items()},
        lag_ns=max(0.0, float(np.quantile(run.lag, 0.99))),
        tokens=bench.tokens(run),
        offline=offline,
        predicted=predicted,
        advised_delay_ns=advised.delay_ns if advised else None,
        advised_ns=advised.value_ns if advised else None,
        replayed=bench.replayed(rehearsal.curve, served.arrived),
        **bench.explained(rehearsal, run, rate, predicted),
    )
    return measured, trial


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
    budgets = {"loads": len(asked.loads) * ((1 + PACED) * asked.seconds + len(requests) * CURVE_S)}
    budgets |= {"highest rate": search.RUNS * asked.seconds} if asked.search else {}
    budgets |= {"LoadGen": len(asked.loadgen) * asked.seconds} if asked.loadgen else {}
    with (
        device_lock.hold([gpu] if gpu else [], str(last.case)),
        progress.task(f"Serve {last.case} by {asked.name}", ("load", *budgets), budgets=budgets, measures=True),
    ):
        environment = provenance.of_run(gpu)
        content = outcomes.attempt("serve", lambda: _content(requests, asked, gpu), "serving", head)
    return {**head, "status": "ok", "reason": None, **content, "environment": environment}


def energy(sampler: Telemetry | None, trial: Trial | None) -> dict[str, Any]:
    """The part `energy` of a load, of each of its requests; nothing where none was served."""
    if trial is None or not trial.answered:
        return {}
    if sampler is None:
        return {"energy": {"not_measured": NO_GPU}}
    served = {"span_ns": trial.span_ns, "inferences": trial.answered}
    record = sampler.record({"throughput": {"back_to_back": served}})
    return {"energy": record.get("energy", record)}


def _content(requests: Sequence[RunRequest], asked: ServingPolicy, gpu: hardware.Gpu | None) -> Mapping[str, Any]:
    progress.step("load")
    sampler = Telemetry() if gpu else None
    with (
        sampler or contextlib.nullcontext(),
        load.apart(asked.client_core) as core,
        _bench(requests, asked, gpu) as bench,
        timing.undisturbed(),
    ):
        bench.core = core
        bench.measure_curve()
        bench.samples.clear()  # the first second of a process is its slowest
        progress.step("loads")
        points = [point(bench, share) for share in progress.counted(asked.loads, "rate")]
        bench.measure_curve()
        pooled = bench.pooled()
        highest = search.highest_rate(bench, pooled) if asked.search else None
        runs = [loadgen.run(bench, scenario, pooled) for scenario in asked.loadgen]
    return {
        "curve": _times(pooled.times),
        "after_idle": _times(pooled.after_idle),
        "capacity": bench.capacity(pooled),
        "loads": [{**msgspec.to_builtins(each), **energy(sampler, trial)} for each, trial in points],
        **({"highest": msgspec.to_builtins(highest)} if highest else {}),
        "loadgen": msgspec.to_builtins(runs),
    }


@contextlib.contextmanager
def _bench(requests: Sequence[RunRequest], asked: ServingPolicy, gpu: hardware.Gpu | None) -> Iterator[Bench]:
    """The bench of a case, whose server is open."""
    last = requests[-1]
    if last.shape.batch != asked.max_batch:
        raise UserError(
            f"max_batch is {asked.max_batch} and the largest batch with a session {last.shape.batch}: "
            "give the largest of the shapes as max_batch"
        )
    threads = last.variant.whole("threads") if "threads" in last.variant.options else 0
    cores = len(os.sched_getaffinity(0))
    if asked.client_core and threads > cores:
        raise UserError(f"client_core leaves the session CPUs: {cores}, and threads of the variant is {threads}")
    if last.spec.kv_cache != asked.generates:
        raise UserError(f"policy {asked.name}: {NEEDS_PROMPTS if last.spec.kv_cache else NO_PROMPTS}")
    if not last.spec.kv_cache:
        with opened(requests, gpu) as server:
            yield Bench(server, asked, {}, last.seed)
        return
    from inferprof.serving import generation, generators

    with generators.opened(requests, asked, gpu) as generator:
        yield generation.Bench(generator, asked, {}, last.seed)


def _times(curve: Mapping[int, Times]) -> dict[str, list[float]]:
    return {str(size): times.tolist() for size, times in curve.items()}


TOKENS: Final = {"ttft": "TTFT", "tpot": "TPOT"}


def render(result: Mapping[str, Any]) -> str:
    """A line for each rate, and the highest one; why it failed, if so."""
    if result["status"] == "failed":
        return f"failed: {result['reason']}"
    return "\n".join(_lines(result))


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    asked = msgspec.convert(result["policy"], ServingPolicy)
    yield f"{Case(**result['case'])} {asked.name}: full batches carry {result['capacity']:.4g} requests/s"
    for sent in result["loads"]:
        of = f"{sent['share']:.3g} of what they carried just before"
        yield f"  {sent['rate']:.4g}/s, {of}: {_load(sent, asked.percentile)}"
    if highest := result.get("highest"):
        yield f"  {asked.objective}: {_highest(highest)}"


def _load(load: Mapping[str, Any], percentile: float) -> str:
    if "latency" not in load:
        return str(load["refused"])
    parts, percent = [], name_of(percentile)
    tokens, predicted = load.get("tokens") or {}, load.get("predicted", {})
    for what, title in TOKENS.items() if tokens else ():
        parts.append(_pair(f"{title} {percent}", tokens[what].get(percent), predicted.get(what, {}).get(percent)))
    if tokens:
        parts.append(f"{tokens['per_s']:.4g} tokens/s, {100 * tokens['good_share']:.3g} % good")
    for name in () if tokens else ("mean", percent):
        parts.append(_pair(name, load["latency"].get(name), predicted.get("latency", {}).get(name)))
    latency = tokens.get("ttft", {}) if tokens else load["latency"]
    if percent not in latency:
        parts[-1] += f"; {percent} not measured, {search.too_few(percentile, load['rate'], load['requests'])}"
    return ", ".join(filter(None, parts)) + (f"; {load['refused']}" if load.get("refused") else "")


def _pair(name: str, measured: Mapping[str, float] | None, predicted: float | None) -> str:
    if not measured:
        return f"{name} predicted {predicted / 1e6:.4g} ms" if predicted else ""
    foreseen = f" (predicted {predicted / 1e6:.4g})" if predicted else ""
    return f"{name} {measured['value_ns'] / 1e6:.4g} ms{foreseen}"


def _highest(highest: Mapping[str, Any]) -> str:
    if reason := highest.get("not_measured"):
        return str(reason)
    predicted = f", predicted {highest['predicted']:.4g}" if highest.get("predicted") else ""
    late = f"; not to be used: {highest['ended']}" if LATE in highest["ended"] else ""
    return f"up to {highest['rate']:.4g}/s ({highest['low']:.4g} to {highest['high']:.4g}){predicted}{late}"
