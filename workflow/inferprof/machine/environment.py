"""What the machine is and what is installed on it: `inferprof probe` → environment.json.

A fact that can't be had is `{"value": null, "reason": …}`, never left out. Nothing that names a person, a host or a
folder is written: no host name, no user, no environment variables, no paths, no serial numbers.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferprof.machine import hardware, provenance
from inferprof.machine.cuda_facts import HOST_MEMORY, host_memory, sm_counts
from inferprof.machine.hardware import Machine
from inferprof.units import MIB

TOOL_VERSIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "nsys": (("--version",), r"version\s+(\d[\d.]*\d)"),
    "ncu": (("--version",), r"Version\s+(\d[\d.]*\d)"),
    "trtexec": (("--help",), r"\[TensorRT v(\d+)\]"),
}
"""How each tool says its version: as nsys 2021 to 2026, ncu 2020 to 2026 and trtexec 8.2 to 10.16 do."""
TOOL_TIMEOUT_S = 30

Runner = Callable[..., "subprocess.CompletedProcess[str]"]
Fact = Any
"""A value, or what `missing` gives."""


def missing(reason: str, value: bool | None = None) -> dict[str, Any]:
    """A fact that can't be had, or a no, and why: in one line, files without their folders."""
    return {"value": value, "reason": re.sub(r"(?<![\w.])/(?:[^\s/:'\"]+/)*", "", " ".join(reason.split()))}


def import_nvml() -> Any:
    """NVML, not yet initialised."""
    import pynvml

    return pynvml


def ort_providers() -> list[str]:
    """The execution providers that the installed ONNX Runtime was built with."""
    import onnxruntime

    return list(onnxruntime.get_available_providers())


@dataclass(frozen=True)
class Sources:
    """Where facts come from; tests put others in their place."""

    nvml: Callable[[], Any] = import_nvml
    providers: Callable[[], list[str]] = ort_providers
    sm_counts: Callable[[], dict[str, int]] = sm_counts
    host_memory: Callable[[], dict[str, dict[str, bool]]] = host_memory
    runner: Runner = subprocess.run
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    root: Path = Path("/")


def probe(machine: Machine, sources: Sources | None = None) -> dict[str, Fact]:
    """All facts of environment.json. Takes seconds: tools are asked for their versions."""
    sources = sources or Sources()
    with _nvml(sources) as nvml:
        gpu_facts = {"gpus": _gpus(nvml, sources), "driver": _driver(nvml), "processes_on_gpu": _processes(nvml)}
    return {
        "machine": machine.slug,
        **gpu_facts,
        "performance_counters": _counters(machine),
        "packages": _packages(machine),
        "nvinfer": sorted(machine.nvinfer),
        "onnxruntime_providers": _attempt(sources.providers),
        "tools": {tool: _tool_version(machine, tool, sources.runner) for tool in TOOL_VERSIONS},
        "container": _container(sources),
        "cpu": _cpu(machine, sources.root),
        "system": {"os": _os(), "kernel": platform.release(), "python": platform.python_version()},
        "git": provenance.git_revision(Path(__file__).parent, sources.runner)
        or missing("inferprof runs from no git checkout"),
    }


def _counters(machine: Machine) -> Fact:
    """Whether ncu may read performance counters."""
    if machine.no_counters is None:
        return True
    return missing(machine.no_counters, value=None if machine.gpu is None else False)


# --- GPUs ------------------------------------------------------------------------------------------------------


@contextmanager
def _nvml(sources: Sources) -> Iterator[Any]:
    """An initialised NVML, or a text that says why there is none."""
    try:
        nvml = sources.nvml()
        nvml.nvmlInit()
    except Exception as error:  # no package, no library or no driver: NVML's own errors come with the package
        yield f"no NVML: {error}"
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _told(nvml: Any, read: Callable[[], Any]) -> Fact:
    """What NVML answers, or that it doesn't."""
    try:
        return read()
    except nvml.NVMLError as error:
        return missing(f"NVML: {error}")


def _gpus(nvml: Any, sources: Sources) -> Fact:
    """Every GPU of the machine, and which of them this process would use."""
    if isinstance(nvml, str):
        return missing(nvml)
    counts, memory = _attempt(sources.sm_counts), _attempt(sources.host_memory)
    used = hardware.visible_handle(nvml)
    used_uuid = None if used is None else nvml.nvmlDeviceGetUUID(used)
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(handle)
        facts = {name: _told(nvml, functools.partial(read, nvml, handle)) for name, read in GPU_FACTS.items()}
        cuda = {"sm_count": _of_cuda(counts, uuid), **_host_memory(_of_cuda(memory, uuid))}
        gpus.append({**facts, **cuda, "used": uuid == used_uuid})
    if used_uuid is not None and used_uuid.startswith("MIG-"):
        gpus.append({"name": nvml.nvmlDeviceGetName(used), "mig_instance": True, "used": True})
    return gpus


def _of_cuda(facts: Fact, uuid: str) -> Fact:
    """What CUDA told of one GPU."""
    if "reason" in facts:
        return facts
    return facts.get(uuid.removeprefix("GPU-"), missing("CUDA does not see this GPU"))


def _host_memory(facts: Fact) -> dict[str, Fact]:
    """Each fact of HOST_MEMORY, or why there is none."""
    return dict.fromkeys(HOST_MEMORY, facts) if "reason" in facts else facts


def _compute_capability(nvml: Any, handle: Any) -> str:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


GPU_FACTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "name": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "compute_capability": _compute_capability,
    "memory_mib": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total // MIB,
    "clock_sm_max_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clock_memory_max_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "power_limit_default_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1000,
    "mig": lambda nvml, gpu: nvml.nvmlDeviceGetMigMode(gpu)[0] == nvml.NVML_DEVICE_MIG_ENABLE,
    "ecc": lambda nvml, gpu: nvml.nvmlDeviceGetEccMode(gpu)[0] == nvml.NVML_FEATURE_ENABLED,
    "persistence_mode": lambda nvml, gpu: nvml.nvmlDeviceGetPersistenceMode(gpu) == nvml.NVML_FEATURE_ENABLED,
    "pcie_generation": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_generation_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "pcie_width": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "pcie_width_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
}
"""A GPU's facts by name and unit. An idle link may run at a lower PCIe generation than under load."""


def _driver(nvml: Any) -> dict[str, Fact]:
    """Version of the driver and the newest CUDA that it serves."""
    if isinstance(nvml, str):
        return {"version": missing(nvml), "cuda": missing(nvml)}

    def cuda() -> str:
        number = nvml.nvmlSystemGetCudaDriverVersion()
        return f"{number // 1000}.{number % 1000 // 10}"

    return {"version": _told(nvml, nvml.nvmlSystemGetDriverVersion), "cuda": _told(nvml, cuda)}


def _processes(nvml: Any) -> Fact:
    """Other processes that compute on the GPU in use, by process id and program."""
    if isinstance(nvml, str):
        return missing(nvml)
    handle = hardware.visible_handle(nvml)
    if handle is None:
        return missing("no GPU is visible to CUDA")
    running = _told(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    if isinstance(running, dict):
        return running
    return [{"pid": p.pid, "program": _program(p.pid)} for p in running if p.pid != os.getpid()]


def _program(pid: int) -> Fact:
    """The name of a process's program, without its folder and arguments."""
    import psutil

    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return missing("the process is outside this container, or has ended")


# --- software --------------------------------------------------------------------------------------------------


def _attempt(read: Callable[[], Any]) -> Fact:
    """What a library tells, or why it can't be asked."""
    try:
        return read()
    except Exception as error:  # a missing package, a missing library, or the library's own refusal
        return missing(f"{type(error).__name__}: {error}")


def _packages(machine: Machine) -> dict[str, Fact]:
    """Versions by distribution, and the CUDA that torch was built with."""
    facts: dict[str, Fact] = {
        name: machine.packages.get(name, missing("not installed")) for name in hardware.PACKAGES
    }
    if "tensorrt" not in machine.packages and machine.nvinfer:
        facts["tensorrt"] = missing(
            f"only its library is installed (libnvinfer.so.{max(machine.nvinfer)}), not its Python package"
        )
    facts["torch_cuda"] = _attempt(_torch_cuda)
    return facts


def _torch_cuda() -> Fact:
    """The CUDA version of the installed torch, out of its version.py: importing torch would take seconds."""
    import importlib.metadata

    text = importlib.metadata.distribution("torch").read_text("../torch/version.py") or ""
    match = re.search(r"^cuda\b.*=\s*'([\d.]+)'", text, re.MULTILINE)
    return match.group(1) if match else missing("torch is built without CUDA")


def _tool_version(machine: Machine, tool: str, runner: Runner) -> Fact:
    """The version that a tool prints."""
    path = machine.tools.get(tool)
    if path is None:
        return missing(f"{tool} {hardware.NOT_ON_PATH}")
    arguments, pattern = TOOL_VERSIONS[tool]
    try:
        done = runner([path, *arguments], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return missing(f"{tool} does not run: {type(error).__name__}")
    match = re.search(pattern, done.stdout + done.stderr)
    return match.group(1) if match else missing(f"{tool} {' '.join(arguments)} tells no version")


def _container(sources: Sources) -> dict[str, Fact]:
    """Whether this is a container, and which image where its own variables say so."""
    environ, root = sources.environ, sources.root
    marks = (root / ".dockerenv", root / "run" / ".containerenv", root / ".singularity.d")
    variables = ("container", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
    inside = any(mark.exists() for mark in marks) or any(name in environ for name in variables)
    release = environ.get("NVIDIA_PYTORCH_VERSION")
    image = f"NVIDIA PyTorch {release}" if release else missing("the image does not tell its name")
    return {"inside": inside, "image": image if inside else missing("not in a container")}


# --- the host --------------------------------------------------------------------------------------------------


def _cpu(machine: Machine, root: Path) -> dict[str, Fact]:
    """The processor, how much of it this process may use, and the memory."""
    import psutil

    governor = root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    return {
        "model": machine.cpu,
        "cores": psutil.cpu_count(logical=False) or missing("the kernel does not tell cores from threads"),
        "threads": psutil.cpu_count(),
        "threads_usable": len(os.sched_getaffinity(0)),
        "quota_cores": _quota(root / "sys/fs/cgroup/cpu.max"),
        "memory_mib": psutil.virtual_memory().total // MIB,
        "governor": _first_line(governor) or missing("the kernel does not tell the frequency governor"),
    }


def _quota(path: Path) -> Fact:
    """The cores' worth of time that the control group grants: `200000 100000` is 2.0."""
    quota, _, period = (_first_line(path) or "max").partition(" ")
    return missing("no limit is set") if quota == "max" else int(quota) / int(period)


def _os() -> Fact:
    """The distribution, as it calls itself."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return missing("no os-release file")


def _first_line(path: Path) -> str | None:
    """The first line of a small file of the kernel's; None where there is none."""
    try:
        return path.read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return None
