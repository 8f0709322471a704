"""ONNX Runtime's TensorRT-RTX execution provider: a plug-in that comes as a package of its own.

Checked against 0.5.0 (TensorRT-RTX 1.7.1, CUDA 13) in ONNX Runtime 1.31.1, as far as that goes without a GPU: it
registers, and finds no device. It builds for no other GPU from Python: the target is an option of ONNX Runtime's
environment there, which Python cannot set.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inferprof import progress
from inferprof.backends import refusals
from inferprof.backends.options import BUILD, RUN, TF32, some
from inferprof.backends.ort import PACKAGE
from inferprof.backends.ort_session import (
    OrtSession,
    on_devices,
    opened,
    preload_cuda,
    reported,
    session_options,
    version,
)
from inferprof.backends.profile import Profile, build_facts, profile_of, provider_options
from inferprof.case import Case, Variant
from inferprof.device import Device
from inferprof.errors import CaseFailed
from inferprof.files import written_whole
from inferprof.machine.hardware import Machine
from inferprof.plugins import Backend, BuildRequest, OpenRequest
from inferprof.units import MIB

PLUGIN = "onnxruntime_ep_nv_tensorrt_rtx"
DISTRIBUTION = "onnxruntime-ep-nv-tensorrt-rtx"
FLOOR = "1.24"
"""The first ONNX Runtime that the package says it works with."""
GPUS = ((8, 6), (8, 9), (12, 0), (12, 1))
"""What the plug-in's tensorrt_rtx_provider_options.h names: fewer than TensorRT-RTX itself runs on."""


def _registered() -> tuple[str, list[Any]]:
    """The provider's name and its devices, after loading the plug-in. Raises CaseFailed where it does not load."""
    import onnxruntime

    plugin = importlib.import_module(PLUGIN)
    name: str = plugin.get_ep_name()
    preload_cuda()
    _load_cuda_runtime(Path(plugin.get_library_path()).parent)
    with reported():
        if not any(device.ep_name == name for device in onnxruntime.get_ep_devices()):
            onnxruntime.register_execution_provider_library(name, plugin.get_library_path())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    if not devices:
        raise CaseFailed(
            f"{name} finds no GPU that it supports: needs one of its list, and a driver for the CUDA version that "
            f"{DISTRIBUTION} is for"
        )
    return name, devices[:1]


def _load_cuda_runtime(folder: Path, load: Callable[[str], Any] = ctypes.CDLL) -> None:
    """Load the CUDA runtime that the package brings, unless torch or the machine has one.

    The plug-in's library needs it as libcudart.so.13, a name that the package's file (libcudart.so.13.4.36) does not
    have: the loader only knows it by that name once it is loaded.
    """
    for bundled in sorted(folder.glob("libcudart.so.*")):
        needed = ".".join(bundled.name.split(".")[:3])
        try:
            load(needed)
        except OSError:
            load(str(bundled))


def of_provider(profile: Profile, variant: Variant, device: Device | None) -> dict[str, str]:
    """The plug-in's options (its tensorrt_rtx_provider_options.h).

    Of shapes that header says `;` between inputs, and its code splits at commas only.
    """
    options = {"enable_cuda_graph": str(int(variant.flag("cuda_graph"))), **provider_options(profile, "nv")}
    if "workspace" in variant.options:
        options["nv_max_workspace_size"] = str(variant.whole("workspace") * MIB)
    if device is not None:
        options |= {"has_user_compute_stream": "1", "user_compute_stream": str(device.stream)}
    return options


def _set_tf32(variant: Variant) -> None:
    """The plug-in has no TF32 option and TensorRT-RTX's default is on; its libraries read this at build and run."""
    os.environ["NVIDIA_TF32_OVERRIDE"] = str(int(variant.flag("tf32")))


def build(request: BuildRequest) -> dict[str, Any]:
    """Compile the graph to an ONNX file whose nodes hold the engines (EPContext)."""
    import onnxruntime

    _set_tf32(request.variant)
    _, devices = _registered()
    profile = profile_of(request.spec, request.shape, request.variant)
    options = onnxruntime.SessionOptions()
    progress.step("build the engine")
    started = time.perf_counter()
    with reported(), written_whole(request.out) as partial:
        options.add_provider_for_devices(devices, of_provider(profile, request.variant, None))
        compiler = onnxruntime.ModelCompiler(options, str(request.onnx), embed_compiled_data_into_model=True)
        compiler.compile_to_file(str(partial))
    plugin = str(importlib.import_module(PLUGIN).__version__)
    versions = {"onnxruntime": ".".join(map(str, version())), DISTRIBUTION: plugin}
    return build_facts(request, time.perf_counter() - started, profile, versions)


@contextlib.contextmanager
def open_tensorrt_rtx(request: OpenRequest) -> Iterator[OrtSession]:
    """The compiled graph on the device's stream."""
    _set_tf32(request.variant)
    name, devices = _registered()
    profile = profile_of(request.spec, request.shape, request.variant)
    options = session_options(request)
    with reported():
        options.add_provider_for_devices(devices, of_provider(profile, request.variant, request.device))
    session = on_devices(request.artifact, options, name)
    with opened(request, session) as wrapped:
        yield wrapped


def refuses(case: Case, machine: Machine) -> str | None:
    """A GPU of the plug-in's list, the plug-in, and an ONNX Runtime that can load it."""
    return refusals.first(
        refusals.no_gpu(machine),
        refusals.not_installed(machine, PACKAGE),
        refusals.too_old(machine, PACKAGE, FLOOR),
        refusals.not_installed(machine, DISTRIBUTION),
        refusals.compute_capability_not_in(machine, GPUS, "the plug-in of TensorRT-RTX"),
        refusals.format_not_in_hardware(case, machine),
    )


ORT_TENSORRT_RTX = Backend(
    name="ort_tensorrt_rtx",
    title="ONNX Runtime, TensorRT-RTX",
    where="cuda",
    artifact="engine",
    open=open_tensorrt_rtx,
    refuses=refuses,
    options={**RUN, **TF32, **some(BUILD, "profile", "rebuild", "workspace")},
    build=build,
)
