"""The only process that infers: one case measured, or run a few times for a profiler, and its record."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import logging
import os
import resource
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from inferprof import documents, outcomes, progress, registry
from inferprof.device import Device
from inferprof.devices.cpu import CpuDevice
from inferprof.devices.cuda import CudaDevice
from inferprof.devices.ranges import collected, mark_clock
from inferprof.documents import Watched
from inferprof.documents.record import SCHEMA, SelfCheck, Tuning
from inferprof.errors import CaseFailed, UserError
from inferprof.machine import hardware, provenance
from inferprof.machine.hardware import Gpu
from inferprof.measure import host_cast, iterations, timing
from inferprof.measure.gpu_lock import gpu_lock
from inferprof.measure.lane import Lane
from inferprof.measure.telemetry import Telemetry
from inferprof.model import data
from inferprof.plugins import Backend, Feeds, OpenRequest, Precision, Session
from inferprof.run_request import Profiling, RunRequest

PROFILED_STEPS = ("load", "warm-up", "iterations")
NO_GRAPH = "a native profile is taken without the CUDA graph that the variant has"
KIB = 1024
LOGGER = logging.getLogger(__name__)


def run(request: RunRequest) -> dict[str, Any]:
    """Measure the case and return its record, which also says if and why the case failed.

    Raises UserError for what the user can put right, as outcomes.stage does.
    """
    request = replace(request, protocol=replace(request.protocol, graph=request.variant.flag("cuda_graph")))
    backend: Backend = registry.look_up("backend", request.case.backend, registry.backends())
    gpu = hardware.detect_gpu() if backend.where != "cpu" else None
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
    with gpu_lock(gpu.uuid, str(request.case)) if gpu else contextlib.nullcontext():
        environment = provenance.of_run(gpu)
        kind: documents.Kind = "watched" if request.profiling else "record"
        content = outcomes.attempt(
            "run", lambda: _content(request, backend, gpu), kind, {**head, "environment": environment}
        )
    return {**head, **content, "environment": environment}


def compile_ahead(request: RunRequest) -> dict[str, Any]:
    """Run the case once, for what its runtime's compiler leaves on disk, and return the facts of that.

    It measures nothing, so others may do the same meanwhile. What can't be compiled is left to the measurement, which
    says why: the facts are then without `seconds`. Raises UserError where nothing is compiled ahead.
    """
    backend: Backend = registry.look_up("backend", request.case.backend, registry.backends())
    if not backend.compiles_ahead(request.variant):
        raise UserError(f"{backend.name} with the variant {request.variant.name} compiles nothing ahead: use run")
    gpu = hardware.detect_gpu() if backend.where != "cpu" else None
    facts: dict[str, Any] = {"status": "ok", "reason": None, "options": dict(request.variant.options)}
    facts |= {"versions": dict(hardware.detect_packages())}
    with gpu_lock(gpu.uuid, str(request.case), shared=True) if gpu else contextlib.nullcontext():
        try:
            facts["seconds"] = _first_inference_s(request, backend, device_of(gpu))
        except CaseFailed as error:
            LOGGER.warning("not compiled: %s", error)
        finally:
            backend.forget_choices()
    return facts


def _first_inference_s(request: RunRequest, backend: Backend, device: Device) -> float:
    with outcomes.stage("compile"), outcomes.opened(backend.open(open_request(request, device))) as session:
        feeds = host_cast.given_as_half(feeds_of(request), request.variant)
        lane = Lane(session, device, feeds, request.placement)
        start = time.perf_counter()
        lane.execute()
        device.synchronize()
        return time.perf_counter() - start


def _content(request: RunRequest, backend: Backend, gpu: Gpu | None) -> dict[str, Any]:
    """The case measured under telemetry, or run for a profiler."""
    if backend.where == "cuda" and gpu is None:
        raise CaseFailed("NVML sees no GPU")
    outcomes.require_made(request.artifact)
    if request.profiling:
        return _profiled(request, request.profiling, backend, gpu)
    feeds = feeds_of(request)
    with _task(request, gpu):
        with Telemetry() if gpu else contextlib.nullcontext() as telemetry:
            measured, content = _measured(request, backend, host_cast.given_as_half(feeds, request.variant), gpu)
        checks = {**measured.checks, **_compared(request, feeds, measured.outputs)}
    return {
        **_verdict(checks),
        **content,
        "checks": msgspec.to_builtins(checks),
        "telemetry": telemetry.record(content) if telemetry else {"not_measured": "no GPU"},
    }


def _verdict(checks: Mapping[str, SelfCheck]) -> dict[str, Any]:
    """A number that fails a check of itself is no measurement."""
    failed = [f"{name}: {c.detail}" for name, c in checks.items() if c.passed is False]
    if not failed:
        return {"status": "ok", "reason": None}
    return {"status": "failed", "stage": documents.SELF_CHECK, "reason": f"self-check {'; '.join(failed)}"}


def _compared(request: RunRequest, feeds: Feeds, outputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, SelfCheck]:
    """Whether the outputs are those of the graph on the CPU. Nothing where no reference is given."""
    if request.reference is None:
        return {}
    from inferprof.model import accuracy, expected

    progress.step("compare outputs")
    try:
        outputs_expected, source = expected.of(request.reference, feeds)
    except accuracy.NotMeasured as error:
        return {"outputs_match": SelfCheck(not_measured=str(error))}
    precision: Precision = registry.look_up("precision", request.rounds_like, registry.precisions())
    distances = {name: accuracy.distance(array, outputs[name])["sqnr_db"] for name, array in outputs_expected.items()}
    outcome, reason = accuracy.judge(distances, [], precision.tolerance)
    return {"outputs_match": SelfCheck(outcome != "fail", f"{reason} (against {source})")}


# --- measuring -------------------------------------------------------------------------------------------------


def _task(request: RunRequest, gpu: Gpu | None) -> AbstractContextManager[None]:
    """What a measurement says of itself between its parts."""
    loops = 4 if gpu else 3
    protocol = request.protocol
    pipelined = {"pipelined": protocol.pipeline_s} if gpu and request.streams > 1 and not protocol.first_pass else {}
    budgets = {timing.IN_TURNS: loops * protocol.loop_s, "back to back": protocol.throughput_s, **pipelined}
    steps = ("load", "first inference", *budgets, *(["compare outputs"] if request.reference else []))
    return progress.task(f"Measure {request.case}", steps, budgets=budgets, measures=True)


def _measured(
    request: RunRequest, backend: Backend, feeds: Feeds, gpu: Gpu | None
) -> tuple[timing.Timing, dict[str, Any]]:
    """The timing, and what the record says of it and of memory.

    A session that cannot be closed keeps its numbers, and fails the self-check `closed`.
    """
    device = device_of(gpu)
    used_before = device.memory_used()
    progress.step("load")
    parts = None
    start = time.perf_counter_ns()
    try:
        with outcomes.opened(backend.open(open_request(request, device))) as session:
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
    if device.where == "cuda" and request.streams > 1 and not request.protocol.first_pass:
        measured = _pipelined(request, backend, opened, measured, feeds)
    tuning = _tuning(backend, session)
    with timing.undisturbed():  # the pipeline's lanes are garbage that holds device memory
        graphs = backend.graph_memory and backend.graph_memory(session, open_request(request, device))
    memory |= {"graphs": graphs} if graphs else {}
    return measured, {
        "compile_cache": cache,
        "memory": memory,
        "inputs": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in feeds.items()},
        "outputs": {name: digest(array) for name, array in measured.outputs.items()},
        **tuning,
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
                manager = outcomes.opened(backend.open(open_request(request, device)))
                lanes.append((stack.enter_context(manager), device))
            return timing.add_pipelined(measured, lanes, feeds, request.placement, request.protocol)
    except CaseFailed as error:
        return replace(measured, pipelined=timing.NotMeasured(str(error)))


def open_request(request: RunRequest, device: Device) -> OpenRequest:
    """What the backend needs to load the case."""
    return OpenRequest(
        artifact=request.artifact,
        spec=request.spec,
        precision=request.case.precision,
        shape=request.shape,
        variant=request.variant,
        device=device,
        threads=request.variant.whole("threads")
        if "threads" in request.variant.options
        else len(os.sched_getaffinity(0)),
        native_profile=request.profiling.native if request.profiling else None,
        remembered=_remembered(request.tuned),
    )


def _remembered(record: Path | None) -> list[Tuning]:
    """What another case's autotuners chose. Raises CaseFailed where its record does not say."""
    if record is None:
        return []
    content: Watched = documents.read(record, "watched")
    if not content.tuning:
        raise CaseFailed(f"{record} has no tuned configurations: {content.reason or 'nothing was tuned'}")
    return content.tuning


def _tuning(backend: Backend, session: Session) -> dict[str, Any]:
    """The part `tuning` of the record; nothing where no kernel was chosen by trying."""
    decisions = backend.tuning(session)
    return {"tuning": decisions} if decisions else {}


def feeds_of(request: RunRequest) -> Feeds:
    """The host arrays of one inference: the same ones in every round."""
    return data.feeds(request.spec, request.shape, 1, request.seed)[0]


def device_of(gpu: Gpu | None) -> Device:
    """The GPU as a device, or without one the CPU."""
    return CudaDevice() if gpu else CpuDevice()


def _memory(session: Session, device: Device, used_before: int | None) -> dict[str, Any]:
    """Peak of the process on the host; on the device what has come into use since before the model was loaded."""
    used = device.memory_used()
    return {
        "host_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
        "device_bytes": None if used is None or used_before is None else used - used_before,
        "runtime": session.memory(),
    }


def digest(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """What the record keeps of an output: enough to see whether two runs gave the same."""
    content = np.ascontiguousarray(array)
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "sha256": hashlib.sha256(content.tobytes()).hexdigest(),
        "finite": bool(np.isfinite(array).all()) if array.dtype.kind == "f" else True,
    }


# --- under a profiler ------------------------------------------------------------------------------------------


def _profiled(request: RunRequest, profiling: Profiling, backend: Backend, gpu: Gpu | None) -> dict[str, Any]:
    """Run end to end in named ranges; only the iterations are collected (cudaProfilerStart … Stop).

    Its iterations are timed as end_to_end is, by which the profiler's cost is known; they are no samples of it.
    A runtime's own profile sees nothing inside of a graph launch, so it is taken without the graph.
    """
    within = profiling.within or profiling.native is not None
    without_graph = within and request.variant.flag("cuda_graph")
    if within:
        options = {name: value for name, value in request.variant.options.items() if name != "cuda_graph"}
        request = replace(request, variant=replace(request.variant, options=options))
    feeds = host_cast.given_as_half(feeds_of(request), request.variant)
    device = device_of(gpu)
    with contextlib.ExitStack() as stack:
        stack.enter_context(progress.task(f"Run {request.case} for a profiler", PROFILED_STEPS, measures=True))
        progress.step("load")
        with profiling.range("load"):
            session = stack.enter_context(outcomes.opened(backend.open(open_request(request, device))))
            lane = Lane(session, device, feeds, request.placement)
        progress.step("warm-up")
        with outcomes.stage("first inference"), profiling.range("warmup"):
            iterations.warm_up(lane, graph=request.variant.flag("cuda_graph"))
        progress.step("iterations")
        with outcomes.stage("measure"), profiling.recorder, collected(device):
            if profiling.native:  # whose times are the host's
                mark_clock(profiling.range)
            samples = [iterations.once(lane, profiling.range) for _ in range(profiling.iterations)]
            if profiling.native:
                mark_clock(profiling.range)
        outputs = lane.finish()
        tuning = _tuning(backend, session)
    nothing = {"not_measured": "the run was profiled"}
    return {
        "status": "ok",
        "reason": None,
        "boundaries": dict.fromkeys(("device", "call", "end_to_end"), nothing),
        "iterations": {"not_measured": NO_GRAPH} if without_graph else {"samples_ns": samples},
        "outputs": {name: digest(array) for name, array in outputs.items()},
        **tuning,
    }
