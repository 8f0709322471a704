"""TensorRT and TensorRT-RTX as backends: engines, their floors and what they refuse."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from inferprof.backends import refusals
from inferprof.backends.options import BUILD, RUN, some
from inferprof.backends.tensorrt_build import build
from inferprof.backends.tensorrt_runtime import (
    Flavour,
    TensorRTSession,
    deserialized,
    layer_times,
    load,
    message_log,
    outside_profile,
    write_profile,
)
from inferprof.case import Case
from inferprof.errors import CaseFailed
from inferprof.machine.hardware import Machine
from inferprof.model.model_spec import input_shapes
from inferprof.plugins import Backend, OpenRequest

FLOOR = "10.8"
"""The first TensorRT with FP4, whose networks this package has been built against."""

RTX_GPUS = ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1))
"""What TensorRT-RTX 1.7 names when it refuses another GPU."""


@contextlib.contextmanager
def open_engine(flavour: Flavour, request: OpenRequest) -> Iterator[TensorRTSession]:
    """The engine on the device's stream; with a native profile, each layer is timed."""
    trt = load(flavour)
    log = message_log(trt)
    engine = deserialized(request.artifact, trt, log)
    if reason := outside_profile(engine, input_shapes(request.spec, request.shape)):
        raise CaseFailed(reason)
    session = TensorRTSession(trt, engine, log, request.device, graph=request.variant.flag("cuda_graph"))
    times = layer_times(trt)
    if request.native_profile:
        session.context.profiler = times
    elif hasattr(session.context, "nvtx_verbosity"):
        # Built in detail for the inspector, which would cost each enqueue: as trtexec runs it, it names layers only.
        session.context.nvtx_verbosity = trt.ProfilingVerbosity.LAYER_NAMES_ONLY
    try:
        yield session
        if request.native_profile:
            write_profile(request.native_profile, trt, session, times.times_ms)
    finally:
        session.close()


def refuses_tensorrt(case: Case, machine: Machine) -> str | None:
    """A GPU, an installed TensorRT of the floor or newer, and a format that the GPU computes in."""
    return refusals.first(
        refusals.no_gpu(machine),
        refusals.not_installed(machine, "tensorrt"),
        refusals.too_old(machine, "tensorrt", FLOOR),
        refusals.format_not_in_hardware(case, machine),
    )


def refuses_tensorrt_rtx(case: Case, machine: Machine) -> str | None:
    """As for TensorRT, and a GPU of the RTX list. Building ahead of time asks none of this."""
    return refusals.first(
        refusals.no_gpu(machine),
        refusals.not_installed(machine, "tensorrt-rtx"),
        refusals.compute_capability_not_in(machine, RTX_GPUS, "TensorRT-RTX"),
        refusals.format_not_in_hardware(case, machine),
    )


TENSORRT = Backend(
    name="tensorrt",
    title="TensorRT",
    where="cuda",
    artifact="engine",
    open=functools.partial(open_engine, "tensorrt"),
    refuses=refuses_tensorrt,
    options={**RUN, **some(BUILD, "profile", "rebuild", "timing_cache")},
    build=functools.partial(build, flavour="tensorrt"),
)

TENSORRT_RTX = Backend(
    name="tensorrt_rtx",
    title="TensorRT-RTX",
    where="cuda",
    artifact="engine",
    open=functools.partial(open_engine, "tensorrt_rtx"),
    refuses=refuses_tensorrt_rtx,
    options={**RUN, **some(BUILD, "profile", "rebuild")},
    build=functools.partial(build, flavour="tensorrt_rtx"),
    ahead_of_time=True,
)
