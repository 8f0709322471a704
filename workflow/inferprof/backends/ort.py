"""ONNX Runtime with the providers that it comes with: CPU and CUDA."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from inferprof.backends import ort_options, refusals
from inferprof.backends.options import RUN, TF32, THREADS, some
from inferprof.backends.ort_session import OrtSession, Provider, create, opened, preload_cuda, session_options
from inferprof.backends.ort_transformers import rewritten
from inferprof.case import Case, Variant
from inferprof.device import Device
from inferprof.machine.hardware import Machine
from inferprof.plugins import Backend, OpenRequest

PACKAGE = "onnxruntime-gpu"
CPU: Provider = ("CPUExecutionProvider", {})


def cuda_provider(device: Device, *, graph: bool, tf32: bool, variant: Variant | None = None) -> Provider:
    """The CUDA EP on the device's stream. TF32 is ON by default in ONNX Runtime, so it is always said.

    `device_id` is left at its default, 0: where it is given, ONNX Runtime 1.26 and newer warn of each session that no
    plug-in EP has that device, which reads as if CUDA were not used.
    """
    options = {
        "user_compute_stream": str(device.stream),
        "use_tf32": str(int(tf32)),
        "enable_cuda_graph": str(int(graph)),
    }
    return "CUDAExecutionProvider", options | ort_options.of_cuda(variant or Variant())


@contextlib.contextmanager
def open_cpu(request: OpenRequest) -> Iterator[OrtSession]:
    """The ONNX file on the CPU EP."""
    session = create(rewritten(request.artifact, request.variant), session_options(request), [CPU])
    with opened(request, session) as wrapped:
        yield wrapped


@contextlib.contextmanager
def open_cuda(request: OpenRequest) -> Iterator[OrtSession]:
    """The ONNX file on the CUDA EP; nodes that it lacks run on the CPU, as they would for a user."""
    preload_cuda()
    variant = request.variant
    cuda = cuda_provider(request.device, graph=variant.flag("cuda_graph"), tf32=variant.flag("tf32"), variant=variant)
    session = create(rewritten(request.artifact, request.variant), session_options(request), [cuda, CPU])
    with opened(request, session) as wrapped:
        yield wrapped


def refuses_cpu(case: Case, machine: Machine) -> str | None:
    """Only formats without kernels are refused: the CPU EP computes Q/DQ graphs of any integer format."""
    return refusals.first(refusals.not_installed(machine, PACKAGE), refusals.no_kernels(case))


def refuses_cuda(case: Case, machine: Machine) -> str | None:
    """As on the CPU, and a GPU."""
    return refusals.first(refusals.no_gpu(machine), refuses_cpu(case, machine))


ORT_CPU = Backend(
    name="ort_cpu",
    title="ONNX Runtime, CPU",
    where="cpu",
    artifact="onnx",
    open=open_cpu,
    refuses=refuses_cpu,
    options={**THREADS, **some(RUN, "host_cast")},
)

ORT_CUDA = Backend(
    name="ort_cuda",
    title="ONNX Runtime, CUDA",
    where="cuda",
    artifact="onnx",
    open=open_cuda,
    refuses=refuses_cuda,
    options={**RUN, **TF32},
)
