"""The only process that infers: one case measured, or run a few times for a profiler, and its record."""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any

import msgspec
import numpy as np

from inferprof import documents, loading, outcomes, progress, registry
from inferprof.device import Device
from inferprof.devices.cuda import CudaDevice
from inferprof.devices.ranges import collected, mark_clock
from inferprof.documents.base import SELF_CHECK
from inferprof.documents.record import SCHEMA, SelfCheck
from inferprof.errors import CaseFailed, UserError
from inferprof.machine import hardware, provenance
from inferprof.machine.hardware import Gpu
from inferprof.measure import device_lock, host_cast, iterations, telemetry, timing
from inferprof.measure.lane import Lane
from inferprof.measure.telemetry import Telemetry
from inferprof.plugins import Backend, Feeds, Precision, Session
from inferprof.ranks import led, supervise
from inferprof.ranks.hosts import Hosts
from inferprof.ranks.supervise import Rank
from inferprof.run_request import Profiling, RunRequest
from inferprof.units import KIB

PROFILED_STEPS = ("load", "warm-up", "iterations")
NO_GRAPH = "a native profile is taken without the CUDA graph that the variant has"
ELSEWHERE = {
    "not_measured": "it is on another host",
    "energy": {"not_measured": "some of its GPUs are on other hosts"},
}
"""The telemetry of a GPU that no process of this host can ask."""
LOGGER = logging.getLogger(__name__)


def run(request: RunRequest) -> dict[str, Any]:
    """Measure the case and return its record, which also says if and why the case failed.

    Raises UserError for what the user can put right, as outcomes.stage does.
    """
    request = replace(request, protocol=replace(request.protocol, graph=request.variant.flag("cuda_graph")))
    backend: Backend = registry.look_up("backend", request.case.backend, registry.backends())
    world = request.world
    if request.hosts > 1 and not world:
        raise UserError(f"--hosts {request.hosts} is for a case that is divided: give it `parallel`, or leave it out")
    hosts = Hosts.of(request.hosts)
    gpus = loading.gpus_of(backend, -(-world.size // hosts.count) if world else 1)
    gpu = gpus[0] if gpus else None
    head = {
        "schema": SCHEMA,
        "case": asdict(request.case),
        "round": request.round,
        "machine": request.machine,
        "options": dict(request.variant.options),
        "placement": request.placement,
        "protocol": request.protocol.record(),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
    work = functools.partial(_on_ranks, hosts) if world else _content
    # Launchers of several hosts may be on one machine: they are of one measurement.
    with device_lock.hold(gpus, str(request.case), shared=hosts.count > 1 and not gpus):
        environment = provenance.of_run(gpu)
        kind: documents.Kind = "watched" if request.profiling else "record"
        content = outcomes.attempt(
            "run", lambda: work(request, backend, gpus), kind, {**head, "environment": environment}
        )
    if hosts.number:
        raise SystemExit(1)  # before its ranks began: stderr has the reason, and the first host writes the record
    return {**head, **content, "environment": environment}


def _on_ranks(hosts: Hosts, request: RunRequest, backend: Backend, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """What rank 0 measures while the others follow it, and what those say of themselves."""
    assert request.world is not None
    if gpus and len(gpus) < (needed := len(hosts.ranks(request.world))):
        raise CaseFailed(f"parallel: {request.world} needs {needed} GPUs: {len(gpus)} here")

    def work(rank: Rank) -> dict[str, Any]:
        own = replace(request, rank=rank, streams=1)
        return _content(own, backend, gpus) if rank.leads else loading.follow(own, backend, gpus)

    content, *others = supervise.run(request.world, work, hosts=hosts)
    watched = content.get("ranks", [{}] * (1 + len(others)))
    return {
        **content,
        "ranks": [watched[0], *({**own, **other} for own, other in zip(watched[1:], others, strict=True))],
    }


def compile_ahead(request: RunRequest) -> dict[str, Any]:
    """Run the case once, for what its runtime's compiler leaves on disk, and return the facts of that.

    It measures nothing, so others may do the same meanwhile. What can't be compiled is left to the measurement, which
    says why: the facts are then without `seconds`. Raises UserError where nothing is compiled ahead.
    """
    backend: Backend = registry.look_up("backend", request.case.backend, registry.backends())
    if not backend.compiles_ahead(request.variant):
        raise UserError(f"{backend.name} with the variant {request.variant.name} compiles nothing ahead: use run")
    gpus = loading.gpus_of(backend, 1)
    facts: dict[str, Any] = {"status": "ok", "reason": None, "options": dict(request.variant.options)}
    facts |= {"versions": dict(hardware.detect_packages())}
    with device_lock.hold(gpus, str(request.case), shared=True):
        try:
            facts["seconds"] = _first_inference_s(request, backend, loading.device_of(gpus))
        except CaseFailed as error:
            LOGGER.warning("not compiled: %s", error)
        finally:
            backend.forget_choices()
    return facts


def _first_inference_s(request: RunRequest, backend: Backend, device: Device) -> float:
    with outcomes.stage("compile"), outcomes.opened(backend.open(loading.open_request(request, device))) as session:
        feeds = host_cast.given_as_half(loading.feeds_of(request), request.variant)
        lane = Lane(session, device, feeds, request.placement)
        start = time.perf_counter()
        lane.execute()
        device.synchronize()
        return time.perf_counter() - start


def _content(request: RunRequest, backend: Backend, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """The case measured under telemetry, or run for a profiler."""
    if backend.where == "cuda" and not gpus:
        raise CaseFailed("NVML sees no GPU")
    outcomes.require_made(request.artifact)
    if request.profiling:
        return _profiled(request, request.profiling, backend, gpus)
    feeds = loading.feeds_of(request)
    with _task(request, bool(gpus)):
        with contextlib.ExitStack() as stack:
            samplers = [stack.enter_context(Telemetry(gpu=index)) for index in range(len(gpus))]
            measured, content = _measured(request, backend, host_cast.given_as_half(feeds, request.variant), gpus)
        checks = {**measured.checks, **_compared(request, feeds, measured.outputs)}
    records = [sampler.record(content) for sampler in samplers] or [{"not_measured": "no GPU"}]
    if request.rank:
        records += [ELSEWHERE] * (request.rank.hosts.count - 1) * len(samplers)
    return {
        **_verdict(checks),
        **content,
        "checks": msgspec.to_builtins(checks),
        "telemetry": telemetry.of_all(records),
        **({"ranks": _ranks(request.rank, records)} if request.rank else {}),
    }


def _ranks(rank: Rank, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is known of each rank to the first of them."""
    size = rank.world.size
    each = records if len(records) == size else [*records] * size  # without a GPU one reason stands for all
    return [{"rank": number, "telemetry": dict(record)} for number, record in enumerate(each)]


def _verdict(checks: Mapping[str, SelfCheck]) -> dict[str, Any]:
    """A number that fails a check of itself is no measurement."""
    failed = [f"{name}: {c.detail}" for name, c in checks.items() if c.passed is False]
    if not failed:
        return {"status": "ok", "reason": None}
    return {"status": "failed", "stage": SELF_CHECK, "reason": f"self-check {'; '.join(failed)}"}


def _compared(request: RunRequest, feeds: Feeds, outputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, SelfCheck]:
    """Whether the outputs are those that `expect` computed. Nothing where no reference is given."""
    if request.reference is None:
        return {}
    from inferprof.model import accuracy, collapse, expected

    progress.step("compare outputs")
    try:
        outputs_expected, source = expected.of(request.reference, feeds)
    except accuracy.NotMeasured as error:
        return {"outputs_match": SelfCheck(not_measured=str(error))}
    precision: Precision = registry.look_up("precision", request.rounds_like, registry.precisions())
    distances = {name: accuracy.distance(array, outputs[name])["sqnr_db"] for name, array in outputs_expected.items()}
    lost = {name: collapse.without_numbers(array, outputs[name]) for name, array in outputs_expected.items()}
    reasons = [f"output {name}: {why}" for name, why in lost.items() if why]
    outcome, reason = accuracy.judge(distances, reasons, precision.tolerance)
    return {"outputs_match": SelfCheck(outcome != "fail", f"{reason} (against {source})")}


# --- measuring -------------------------------------------------------------------------------------------------


def _task(request: RunRequest, gpu: bool) -> AbstractContextManager[None]:
    """What a measurement says of itself between its parts."""
    protocol = request.protocol
    loops = 1 if protocol.only else 4 if gpu else 3
    budgets = {timing.IN_TURNS: loops * protocol.loop_s}
    budgets |= {} if protocol.only else {"back to back": protocol.throughput_s}
    budgets |= {"pipelined": protocol.pipeline_s} if gpu and request.streams > 1 and protocol.whole else {}
    steps = ("load", "first inference", *budgets, *(["compare outputs"] if request.reference else []))
    return progress.task(f"Measure {request.case}", steps, budgets=budgets, measures=True)


def _measured(
    request: RunRequest, backend: Backend, feeds: Feeds, gpus: Sequence[Gpu]
) -> tuple[timing.Timing, dict[str, Any]]:
    """The timing, and what the record says of it and of memory.

    A session that cannot be closed keeps its numbers, and fails the self-check `closed`.
    """
    device = loading.device_of(gpus, request.rank)
    used_before = device.memory_used()
    progress.step("load")
    parts = None
    start = time.perf_counter_ns()
    try:
        with loading.opened(request, backend, device) as session:
            load_ns = time.perf_counter_ns() - start
            measured, content = parts = _in_session(request, backend, (session, device), feeds, used_before)
    except CaseFailed as error:
        if parts is None:
            raise
        measured = replace(measured, checks={**measured.checks, "closed": SelfCheck(False, str(error))})
    record = measured.record()
    cache = content.pop("compile_cache")
    record["first"] |= {"load_ns": load_ns, **({"compile_cache": cache} if cache else {})}
    return measured, {**record, **content}


def _in_session(
    request: RunRequest, backend: Backend, opened: tuple[Session, Device], feeds: Feeds, used_before: int | None
) -> tuple[timing.Timing, dict[str, Any]]:
    """What is measured while the session is open."""
    session, device = opened
    progress.step("first inference")
    measured = timing.measure(session, device, feeds, request.placement, request.protocol)
    cache = backend.compile_cache()
    memory = _memory(session, device, used_before)
    if device.where == "cuda" and request.streams > 1 and request.protocol.whole:
        measured = _pipelined(request, backend, opened, measured, feeds)
    chosen = _of_backend(backend, session)
    with timing.undisturbed():  # the pipeline's lanes are garbage that holds device memory
        graphs = backend.graph_memory and backend.graph_memory(session, loading.open_request(request, device))
    memory |= {"graphs": graphs} if graphs else {}
    return measured, {
        "compile_cache": cache,
        "memory": memory,
        "inputs": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in feeds.items()},
        "outputs": {name: loading.digest(array) for name, array in measured.outputs.items()},
        **chosen,
    }


def _pipelined(
    request: RunRequest, backend: Backend, first: tuple[Session, Device], measured: timing.Timing, feeds: Feeds
) -> timing.Timing:
    """The timing with a pipeline over `request.streams` sessions, each with a stream of its own.

    A pipeline that does not fit leaves its reason: it must not cost the case what was measured before.
    """
    if reason := backend.alone(request.variant):
        return replace(measured, pipelined=timing.NotMeasured(reason))
    try:
        with outcomes.stage("pipeline"), contextlib.ExitStack() as stack:
            lanes = [first]
            for _ in range(1, request.streams):
                device = CudaDevice()
                manager = outcomes.opened(backend.open(loading.open_request(request, device)))
                lanes.append((stack.enter_context(manager), device))
            return timing.add_pipelined(measured, lanes, feeds, request.placement, request.protocol)
    except CaseFailed as error:
        return replace(measured, pipelined=timing.NotMeasured(str(error)))


def _of_backend(backend: Backend, session: Session) -> dict[str, Any]:
    """The parts `tuning` and `operation` of the record: where a kernel was chosen by trying, and of a KV cache."""
    own = led.own(session)
    return {name: part for name in ("tuning", "operation") if (part := getattr(backend, name)(own))}


def _memory(session: Session, device: Device, used_before: int | None) -> dict[str, Any]:
    """Peak of the process on the host; on the device what has come into use since before the model was loaded."""
    used = device.memory_used()
    return {
        "host_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
        "device_bytes": None if used is None or used_before is None else used - used_before,
        "runtime": session.memory(),
    }


# --- under a profiler ------------------------------------------------------------------------------------------


def _profiled(request: RunRequest, profiling: Profiling, backend: Backend, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """Run end to end in named ranges; only the iterations are collected (cudaProfilerStart … Stop).

    Its iterations are timed as end_to_end is, by which the profiler's cost is known; they are no samples of it.
    A runtime's own profile sees nothing inside of a graph launch, so it is taken without the graph.
    """
    within = profiling.within or profiling.native is not None
    without_graph = within and request.variant.flag("cuda_graph")
    if within:
        options = {name: value for name, value in request.variant.options.items() if name != "cuda_graph"}
        request = replace(request, variant=replace(request.variant, options=options))
    feeds = host_cast.given_as_half(loading.feeds_of(request), request.variant)
    device = loading.device_of(gpus, request.rank)
    with contextlib.ExitStack() as stack:
        stack.enter_context(progress.task(f"Run {request.case} for a profiler", PROFILED_STEPS, measures=True))
        progress.step("load")
        with profiling.range("load"):
            session = stack.enter_context(loading.opened(request, backend, device))
            lane = Lane(session, device, feeds, request.placement)
        progress.step("warm-up")
        with outcomes.stage("first inference"), profiling.range("warmup"):
            iterations.warm_up(lane, graph=request.variant.flag("cuda_graph"))
        progress.step("iterations")
        with outcomes.stage("measure"), profiling.recorder(0), collected(device), led.collecting(request.rank):
            if profiling.native:  # whose times are the host's
                mark_clock(profiling.range)
            samples = [iterations.once(lane, profiling.range) for _ in range(profiling.iterations)]
            if profiling.native:
                mark_clock(profiling.range)
        outputs = lane.finish()
        tuning = _of_backend(backend, session)
    nothing = {"not_measured": "the run was profiled"}
    return {
        "status": "ok",
        "reason": None,
        "boundaries": dict.fromkeys(("device", "call", "end_to_end"), nothing),
        "iterations": {"not_measured": NO_GRAPH} if without_graph else {"samples_ns": samples},
        "outputs": {name: loading.digest(array) for name, array in outputs.items()},
        **tuning,
    }
