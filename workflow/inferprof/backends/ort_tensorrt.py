"""ONNX Runtime's TensorRT execution provider, with its engines built in advance.

The provider builds an engine per subgraph the first time that it sees one. So that this never happens in a timed
run, the build step runs the model once and keeps the provider's cache: the .engine file is a zip of the ONNX file
and of that cache.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from inferprof import progress
from inferprof.backends import refusals
from inferprof.backends.options import BUILD, RUN, TF32, some
from inferprof.backends.ort import CPU, PACKAGE, cuda_provider
from inferprof.backends.ort_session import (
    OrtSession,
    Provider,
    create,
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

NAME = "TensorrtExecutionProvider"
CACHE = "cache"
WITH_STREAMS = (1, 18)
"""The first ONNX Runtime whose Python binding takes a stream, profiles and graphs for this provider. The product
runs a newer one; 1.14.1 is the one whose TensorRT can be had without an account, so our tests on a GPU use it."""
LIBRARY = "libnvinfer.so.10"


def providers(cache: Path, profile: Profile, variant: Variant, device: Device | None) -> list[Provider]:
    """TensorRT, and behind it CUDA and the CPU for what it does not take. `device` None: on a stream of its own."""
    if version() < WITH_STREAMS:
        options = {"trt_engine_cache_enable": "True", "trt_engine_cache_path": str(cache)}
        return [(NAME, {"trt_min_subgraph_size": "1", **options}), CPU]
    tensorrt = (NAME, of_provider(cache, profile, variant, device))
    if device is None:
        return [tensorrt, CPU]
    return [tensorrt, cuda_provider(device, graph=False, tf32=variant.flag("tf32")), CPU]


def of_provider(cache: Path, profile: Profile, variant: Variant, device: Device | None) -> dict[str, str]:
    """The provider's options. No precision flag is ever set: without one it builds strongly typed networks."""
    options = {
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(cache),
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": str(cache),
        "trt_cuda_graph_enable": str(variant.flag("cuda_graph")),
        "trt_sparsity_enable": str(variant.flag("sparsity")),
        "trt_engine_hw_compatible": str(variant.flag("hardware_compatible")),
    }
    options |= provider_options(profile, "trt")
    if "workspace" in variant.options:
        options["trt_max_workspace_size"] = str(variant.whole("workspace") * MIB)
    if "optimization_level" in variant.options:
        options["trt_builder_optimization_level"] = str(variant.whole("optimization_level"))
    if device is not None:
        options["user_compute_stream"] = str(device.stream)
    return options


def build(request: BuildRequest) -> dict[str, Any]:
    """Run the model once, which builds the engines, and keep them with the ONNX file."""
    _load_libraries(request.variant)
    profile = profile_of(request.spec, request.shape, request.variant)
    with tempfile.TemporaryDirectory() as folder:
        model = _staged(request.onnx, Path(folder))
        cache = Path(folder, CACHE)
        cache.mkdir()
        progress.step("build the engine")
        started = time.perf_counter()
        session = create(model, _silent(), providers(cache, profile, request.variant, None))
        feeds = {item.name: np.zeros(profile[item.name]["opt"], item.dtype) for item in request.spec.inputs}
        with reported():
            session.run(None, feeds)
        seconds = time.perf_counter() - started
        del session  # writes the timing cache
        engines = list(cache.glob("*.engine"))
        if not engines:
            raise CaseFailed("TensorRT took no part of the graph, so there is no engine")
        pack(Path(folder), request.out)
    versions = {"onnxruntime": ".".join(map(str, version()))}
    return {**build_facts(request, seconds, profile, versions), "engines": len(engines)}


def _silent() -> Any:
    import onnxruntime

    return onnxruntime.SessionOptions()


def _staged(onnx: Path, folder: Path) -> Path:
    """The ONNX file and its external data in `folder`, under their own names, which the cache's keys depend on."""
    import onnx as onnx_library

    graph = onnx_library.load(str(onnx), load_external_data=False).graph
    names = {entry.value for tensor in graph.initializer for entry in tensor.external_data if entry.key == "location"}
    for name in (onnx.name, *sorted(names)):
        shutil.copy(onnx.parent / name, folder / name)
    return folder / onnx.name


def pack(folder: Path, out: Path) -> None:
    """Zip a folder of the ONNX file and `cache/`. Uncompressed: weights do not shrink, and it opens faster."""
    with written_whole(out) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))


def unpack(artifact: Path, folder: Path) -> Path:
    """Unzip into `folder` and return the ONNX file. Raises CaseFailed where it is no such archive."""
    try:
        with zipfile.ZipFile(artifact) as archive:
            archive.extractall(folder)
    except zipfile.BadZipFile as error:
        raise CaseFailed(f"{artifact.name} is not an archive of a model and its engines: {error}") from None
    models = list(folder.glob("*.onnx"))
    if len(models) != 1:
        raise CaseFailed(f"{artifact.name} holds {len(models)} ONNX files instead of one")
    return models[0]


@contextlib.contextmanager
def open_tensorrt(request: OpenRequest) -> Iterator[OrtSession]:
    """The archive's model on its cached engines. Raises CaseFailed where the provider had to build new ones."""
    _load_libraries(request.variant)
    profile = profile_of(request.spec, request.shape, request.variant)
    with tempfile.TemporaryDirectory() as folder:
        model = unpack(request.artifact, Path(folder))
        cache = Path(folder, CACHE)
        cached = _stamps(cache)
        session = create(model, session_options(request), providers(cache, profile, request.variant, request.device))
        with opened(request, session, on_stream=version() >= WITH_STREAMS) as wrapped:
            _require_unchanged(cache, cached)
            yield wrapped
            _require_unchanged(cache, cached)


def _stamps(cache: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in cache.glob("*.engine")}


def _require_unchanged(cache: Path, before: dict[str, int]) -> None:
    """The provider silently replaces engines that do not fit."""
    if changed := sorted(name for name, stamp in _stamps(cache).items() if before.get(name) != stamp):
        raise CaseFailed(
            f"the cached engines do not fit this GPU, TensorRT or shape: ONNX Runtime built {', '.join(changed)} "
            "anew; build them on this machine"
        )


def _load_libraries(variant: Variant) -> None:
    """Load CUDA and TensorRT from their Python packages, where the loader does not find them by itself.

    The provider has no TF32 option and TensorRT's default is on, hence NVIDIA's own switch for all its libraries; it
    must be the same at build and at run time.
    """
    os.environ["NVIDIA_TF32_OVERRIDE"] = str(int(variant.flag("tf32")))
    with contextlib.suppress(ImportError):
        import tensorrt  # noqa: F401
    preload_cuda()


def refuses(case: Case, machine: Machine) -> str | None:
    """A GPU, TensorRT 10 and a format that the GPU computes in."""
    return refusals.first(
        refusals.no_gpu(machine),
        refusals.not_installed(machine, PACKAGE),
        _no_tensorrt_10(machine),
        refusals.format_not_in_hardware(case, machine),
    )


def _no_tensorrt_10(machine: Machine) -> str | None:
    """ONNX Runtime's provider is linked against one major version of TensorRT."""
    majors = set(machine.nvinfer) | set(machine.version("tensorrt")[:1])
    if 10 in majors:
        return None
    names = ", ".join(f"libnvinfer.so.{major}" for major in sorted(majors)) or "none"
    return f"ONNX Runtime wants {LIBRARY}; found: {names}"


ORT_TENSORRT = Backend(
    name="ort_tensorrt",
    title="ONNX Runtime, TensorRT",
    where="cuda",
    artifact="engine",
    open=open_tensorrt,
    refuses=refuses,
    options={
        **RUN,
        **TF32,
        **some(BUILD, "hardware_compatible", "optimization_level", "profile", "rebuild", "sparsity", "workspace"),
    },
    build=build,
)
