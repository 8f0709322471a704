"""The machine in hand: its GPU, its library versions and its slug, read in well under half a second.

Read each time the Snakefile is parsed, so nothing heavy is imported here: NVML for the GPU and the driver,
importlib.metadata for the libraries, PATH for the tools. `environment` probes the rest, slowly and once.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import hashlib
import importlib.metadata
import itertools
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inferprof import documents
from inferprof.documents import Environment
from inferprof.documents.base import Unknown
from inferprof.errors import UserError

PACKAGES = (
    "onnxruntime-gpu",
    "onnx",
    "torch",
    "torchao",
    "gemlite",
    "triton",
    "transformers",
    "nvidia-modelopt",
    "polygraphy",
    "tensorrt",
    "tensorrt-rtx",
    "onnxruntime-ep-nv-tensorrt-rtx",
    "snakemake",
    "numpy",
)
"""The distributions whose versions decide what is measured."""
SLOWER = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of NVML's clocks event reasons that lower the clock under load: not idleness, not clocks set by the user."""

ALIASES = {
    "onnxruntime-gpu": ("onnxruntime-gpu", "onnxruntime"),
    "tensorrt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    "onnxruntime-ep-nv-tensorrt-rtx": ("onnxruntime-ep-nv-tensorrt-rtx-cu13", "onnxruntime-ep-nv-tensorrt-rtx-cu12"),
    "tensorrt-rtx": ("tensorrt-rtx-cu13", "tensorrt-rtx-cu12", "tensorrt-rtx"),
}
TOOLS = ("nsys", "ncu", "trtexec")
SLUG_PACKAGES = ("onnxruntime-gpu", "torch", "tensorrt", "tensorrt-rtx")
NOT_PERMITTED = (
    "counters not permitted (ERR_NVGPUCTRPERM): run the container as root with --cap-add=SYS_ADMIN, "
    "or set NVreg_RestrictProfilingToAdminUsers=0 on the host"
)
NOT_ON_PATH = "is not on PATH"
"""The end of environment.json's reason for a tool that is not there, told from one that does not say its version."""
CAP_SYS_ADMIN = 21
CAP_PERFMON = 38


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG instance, as NVML names it. `memory` is in bytes; None is "not told"."""

    name: str
    compute_capability: tuple[int, int]
    memory: int | None
    uuid: str
    driver: str
    mig: bool = False

    @property
    def sm(self) -> str:
        """The compute capability as compilers write it: `sm90`."""
        return f"sm{self.compute_capability[0]}{self.compute_capability[1]}"


@dataclass(frozen=True)
class Machine:
    """What the machine can do, as far as a refusal needs it."""

    gpu: Gpu | None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Installed versions by distribution name (PACKAGES); what is missing is not in it."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Paths of the external tools (TOOLS) that are on PATH."""
    cpu: str = "unknown"
    no_counters: str | None = None
    """Why ncu may not read performance counters; None where it may."""
    nvinfer: frozenset[int] = frozenset()
    """Major versions of libnvinfer that the loader finds outside of Python packages."""
    label: str | None = None
    """A name given in the config, instead of the slug."""
    threads: int | None = None
    """What the CPU runs side by side; None where nobody counted."""
    gpus: int = 0
    """How many GPUs like `gpu` one process per GPU may use, on a host."""
    hosts: int = 1
    """How many hosts like this one a case may be spread over."""

    @property
    def slug(self) -> str:
        """Folder name under results/: GPU, compute capability and a hash of driver and library versions."""
        if self.label:
            return self.label
        versions = [f"{name}={self.packages.get(name, '-')}" for name in SLUG_PACKAGES]
        if self.gpu is None:
            return f"cpu-{_slugify(self.cpu)}-{_short_hash(versions)}"
        versions.append(f"driver={self.gpu.driver}")
        mig = "-mig" if self.gpu.mig else ""
        return f"{_slugify(self.gpu.name)}{mig}-{self.gpu.sm}-{_short_hash(versions)}"

    def version(self, package: str) -> tuple[int, ...]:
        """The leading integers of a package's version; () where it isn't installed."""
        return parse_version(self.packages.get(package, ""))


def parse_version(text: str) -> tuple[int, ...]:
    """`10.13.3.9` → (10, 13, 3, 9); `2.13.0+cpu` → (2, 13, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def detect(label: str | None = None) -> Machine:
    """The machine in hand. `label` replaces the slug."""
    return Machine(
        gpu=detect_gpu(),
        gpus=count_gpus(),
        packages=detect_packages(),
        tools={tool: path for tool in TOOLS if (path := shutil.which(tool))},
        cpu=detect_cpu(),
        no_counters=counters_refusal(),
        nvinfer=frozenset(v for v in (8, 10, 11) if _loadable(f"libnvinfer.so.{v}")),
        label=label,
        threads=os.cpu_count(),
    )


def from_probe(content: Environment, label: str) -> Machine:
    """The machine that an environment.json describes. Raises LookupError or ValueError where facts lack.

    What such a file keeps to itself is left out: the GPU's serial number and the paths of the tools.
    """

    def why(fact: object) -> str | None:
        return fact.reason if isinstance(fact, Unknown) else None

    counters, cpu = content.performance_counters, content.cpu
    if counters is None or cpu is None:
        raise LookupError("no performance_counters, or no cpu")
    return Machine(
        gpu=_gpu_of_probe(content),
        packages={name: version for name in PACKAGES if isinstance(version := content.packages.get(name), str)},
        tools={tool: tool for tool in TOOLS if not str(why(content.tools[tool])).endswith(NOT_ON_PATH)},
        cpu=cpu.model,
        no_counters=why(counters),
        nvinfer=frozenset(content.nvinfer),
        label=label,
        threads=cpu.threads if isinstance(cpu.threads, int) else None,
        gpus=len(content.gpus) if isinstance(content.gpus, list) else 0,
    )


def read_probe(path: Path, label: str) -> Machine:
    """The machine that an environment.json describes. Raises UserError where that is not what a probe writes."""
    try:
        return from_probe(documents.read(path, "environment"), label)
    except (LookupError, ValueError):
        raise UserError(f"{path} is not what `inferprof probe` writes; remove it and probe again") from None


def check_probed(path: Path, here: Machine) -> None:
    """Raise UserError unless `here` is the machine of an environment.json, with the same driver and libraries."""
    probed, current = read_probe(path, "").slug, replace(here, label=None).slug
    if probed != current:
        raise UserError(
            f"this machine is {current}, and {path.parent.name} was {probed} when it was probed: GPU, driver or "
            "libraries differ; give it a label of its own, or remove what was probed and measured, and begin anew"
        )


def _gpu_of_probe(content: Environment) -> Gpu | None:
    """The GPU in use; of a MIG instance, which NVML tells less about, what is known of the first whole GPU."""
    gpus = content.gpus if isinstance(content.gpus, list) else []
    used = next((gpu for gpu in gpus if gpu.used), None)
    if used is None:
        return None
    major, minor = str(used.compute_capability or gpus[0].compute_capability).split(".")
    return Gpu(
        name=used.name,
        compute_capability=(int(major), int(minor)),
        memory=used.memory_mib << 20 if isinstance(used.memory_mib, int) else None,
        uuid="",
        driver=str(content.driver["version"]),
        mig=used.mig_instance is True,
    )


def detect_packages() -> dict[str, str]:
    """Installed versions of PACKAGES."""
    versions = {}
    for name in PACKAGES:
        for distribution in ALIASES.get(name, (name,)):
            try:
                versions[name] = importlib.metadata.version(distribution)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return versions


def detect_gpu(index: int = 0) -> Gpu | None:
    """The GPU that CUDA's device `index` will be, of CUDA_VISIBLE_DEVICES or of NVML; None where there is none."""
    with _nvml() as nvml:
        handle = visible_handle(nvml, index) if nvml else None
        return None if handle is None else _read_gpu(nvml, handle)


def count_gpus() -> int:
    """How many GPUs CUDA will see."""
    with _nvml() as nvml:
        return len(list(itertools.takewhile(lambda i: visible_handle(nvml, i), itertools.count()))) if nvml else 0


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """NVML; None where there is none, no driver, or a driver without its device: there is no GPU to be had."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def visible_handle(nvml: Any, index: int = 0) -> Any:
    """NVML's handle of the GPU that CUDA will call device `index`; None where there is none.

    NVML ignores CUDA_VISIBLE_DEVICES, so that a careless `index 0` watches another card than the one that runs.
    The variable may hold indices, UUIDs or MIG UUIDs, also shortened ones.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(index)] * (index + 1) if visible is None else [name.strip() for name in visible.split(",")]
    first = names[index] if index < len(names) else ""
    if first in ("", "-1", "none", "NoDevFiles") or "-1" in names[:index]:
        return None
    try:
        if first.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(first))
        if first.startswith("MIG-"):
            return nvml.nvmlDeviceGetHandleByUUID(first)
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            if nvml.nvmlDeviceGetUUID(handle).startswith(first):
                return handle
    except nvml.NVMLError:
        return None
    return None


def _read_gpu(nvml: Any, handle: Any) -> Gpu:
    """What NVML says of one GPU."""
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        memory: int | None = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:  # unified-memory boards have no memory of their own
        memory = None
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return Gpu(
        name=nvml.nvmlDeviceGetName(handle),
        compute_capability=(major, minor),
        memory=memory,
        uuid=uuid,
        driver=nvml.nvmlSystemGetDriverVersion(),
        mig=uuid.startswith("MIG-"),
    )


def detect_cpu() -> str:
    """The CPU's model name, as the kernel tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    match = re.search(r"model name\s*:\s*(.+)", text)
    return match.group(1).strip() if match else platform.machine()


def counters_refusal() -> str | None:
    """Why ncu may not read performance counters here, or None where it may.

    The driver's RmProfilingAdminOnly decides, and whether the process holds CAP_SYS_ADMIN or CAP_PERFMON.
    https://developer.nvidia.com/ERR_NVGPUCTRPERM
    """
    params = Path("/proc/driver/nvidia/params")
    if not params.exists():
        return "no NVIDIA driver"
    if "RmProfilingAdminOnly: 1" not in params.read_text(encoding="utf-8"):
        return None
    capabilities = re.search(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    effective = int(capabilities.group(1), 16) if capabilities else 0
    if effective & (1 << CAP_SYS_ADMIN | 1 << CAP_PERFMON):
        return None
    return NOT_PERMITTED


def _loadable(library: str) -> bool:
    """Whether the loader's cache or LD_LIBRARY_PATH holds a library of that file name."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if any(Path(folder, library).exists() for folder in folders if folder):
        return True
    stem, _, major = library.removeprefix("lib").partition(".so.")
    return ctypes.util.find_library(stem) == f"lib{stem}.so.{major}"


def _slugify(text: str) -> str:
    """`NVIDIA H100 80GB HBM3` → `h100-80gb-hbm3`; `AMD EPYC 9B14 96-Core Processor` → `epyc-9b14`."""
    noise = r"\b(nvidia|amd|intel|geforce|cpu|processor|\d+-core)\b|\(r\)|\(tm\)|@.*"
    words = re.sub(noise, " ", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown"


def _short_hash(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
