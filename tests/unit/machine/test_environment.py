from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.facts import facts, mentions
from tests.unit.made_records import document

from inferprof.machine import cuda_facts, environment, hardware
from inferprof.machine.environment import Sources, missing
from inferprof.machine.hardware import Gpu, Machine
from inferprof.tables import roofs

UUIDS = ("GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002")


class FakeNvmlError(Exception):
    pass


class FakeNvml:
    """Two H100s as NVML tells them; the second has no PCIe link to tell of."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_DEVICE_MIG_ENABLE = NVML_FEATURE_ENABLED = 1

    def __init__(self) -> None:
        self.sessions = 0

    def nvmlInit(self) -> None:
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return UUIDS[gpu]

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetCudaComputeCapability(self, gpu: int) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(total=85_520_809_984)

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, clock: int) -> int:
        return {1: 1980, 2: 2619}[clock]

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: int) -> int:
        return 650_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, gpu: int) -> int:
        return 700_000

    def nvmlDeviceGetMigMode(self, gpu: int) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetEccMode(self, gpu: int) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetPersistenceMode(self, gpu: int) -> int:
        return 1

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu: int) -> int:
        if gpu == 1:
            raise FakeNvmlError("Not Supported")
        return 5

    nvmlDeviceGetMaxPcieLinkGeneration = nvmlDeviceGetCurrPcieLinkGeneration

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: int) -> int:
        return 16

    nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13_010

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: int) -> list[Any]:
        return [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=os.getppid()), SimpleNamespace(pid=2**22 + 1)]


def answers(**texts: str) -> Any:
    """A runner that prints what a tool of that name prints."""

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        name = Path(command[0]).name
        if name not in texts:
            raise FileNotFoundError(name)
        return subprocess.CompletedProcess(command, 0, texts[name], "")

    return run


def h100(**changes: Any) -> Machine:
    gpu = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 85_520_809_984, UUIDS[0], "580.159.04")
    values: dict[str, Any] = {
        "gpu": gpu,
        "packages": {"torch": "2.11.0"},
        "tools": {"nsys": "/opt/nvidia/nsys", "ncu": "/opt/nvidia/ncu"},
        "cpu": "AMD EPYC 9B14",
    }
    return Machine(**(values | changes))


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml = FakeNvml()
    return {
        "nvml": lambda: nvml,
        "providers": lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
        "sm_counts": lambda: {UUIDS[0].removeprefix("GPU-"): 132},
        "host_memory": lambda: {UUIDS[0].removeprefix("GPU-"): {"integrated": False, "host_page_tables": False}},
        "runner": answers(
            nsys="NVIDIA Nsight Systems version 2025.5.1.121-255136380782v0\n",
            ncu="NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\n"
            "Version 2025.1.1.0 (build 35528883) (public-release)\n",
            trtexec="&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b16] # trtexec --help\n",
            git="0123abcd\n",
        ),
        "environ": {},
        "root": tmp_path,
    }


def probe(sources: dict[str, Any], machine: Machine | None = None, **changes: Any) -> dict[str, Any]:
    facts = environment.probe(machine or h100(), Sources(**(sources | changes)))
    json.dumps(facts, allow_nan=False)
    return facts


def test_a_gpu_is_described_in_full(sources):
    first, second = probe(sources)["gpus"]
    assert first == {
        "name": "NVIDIA H100 80GB HBM3",
        "compute_capability": "9.0",
        "memory_mib": 81559,
        "clock_sm_max_mhz": 1980,
        "clock_memory_max_mhz": 2619,
        "power_limit_w": 650.0,
        "power_limit_default_w": 700.0,
        "mig": False,
        "ecc": True,
        "persistence_mode": True,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "sm_count": 132,
        "integrated": False,
        "host_page_tables": False,
        "used": True,
    }
    assert second["pcie_generation"] == {"value": None, "reason": "NVML: Not Supported"}
    assert set(second["sm_count"]) == {"value", "reason"} and second["sm_count"]["value"] is None
    assert second["integrated"] == second["host_page_tables"] == second["sm_count"]
    assert facts(second["sm_count"]["reason"]) == ["CUDA", "not", "GPU"]
    assert not second["used"]


def test_the_gpu_in_use_is_the_one_that_cuda_will_call_device_0(sources, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUIDS[1])
    assert [gpu["used"] for gpu in probe(sources)["gpus"]] == [False, True]


def test_versions_of_driver_tools_and_providers(sources):
    facts = probe(sources)
    assert facts["driver"] == {"version": "580.159.04", "cuda": "13.1"}
    assert facts["tools"]["nsys"] == "2025.5.1.121"
    assert facts["tools"]["ncu"] == "2025.1.1.0"
    assert facts["tools"]["trtexec"] == missing("trtexec is not on PATH")
    with_trtexec = probe(sources, h100(tools={"trtexec": "/opt/tensorrt/bin/trtexec"}))
    assert with_trtexec["tools"]["trtexec"] == "101601"
    assert facts["onnxruntime_providers"] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert facts["packages"]["torch"] == "2.11.0"
    assert facts["packages"]["tensorrt"] == missing("not installed")
    assert facts["git"] == "0123abcd"


def test_a_library_without_its_python_package_is_said_to_be_that(sources):
    facts = probe(sources, h100(nvinfer=frozenset({8, 10})))
    assert mentions(facts["packages"]["tensorrt"]["reason"], "only its library", "libnvinfer.so.10")


def test_other_processes_are_listed_by_program_and_this_one_is_not(sources):
    import psutil

    assert probe(sources)["processes_on_gpu"] == [
        {"pid": os.getppid(), "program": psutil.Process(os.getppid()).name()},
        {"pid": 2**22 + 1, "program": missing("the process is outside this container, or has ended")},
    ]


def test_a_machine_without_a_gpu_says_so_everywhere(sources):
    def no_nvml() -> Any:
        raise FakeNvmlError("NVML Shared Library Not Found")

    facts = probe(sources, Machine(gpu=None, no_counters="no NVIDIA driver"), nvml=no_nvml)
    absent = {"value": None, "reason": "no NVML: NVML Shared Library Not Found"}
    assert facts["gpus"] == facts["processes_on_gpu"] == absent
    assert facts["driver"] == {"version": absent, "cuda": absent}
    assert facts["performance_counters"] == {"value": None, "reason": "no NVIDIA driver"}


def test_counters_are_permitted_or_refused_with_what_to_do(sources):
    assert probe(sources)["performance_counters"] is True
    refused = probe(sources, h100(no_counters="counters not permitted (ERR_NVGPUCTRPERM): run as root"))
    assert refused["performance_counters"]["value"] is False
    assert refused["performance_counters"]["reason"].endswith("run as root")


class Gb10Nvml(FakeNvml):
    """A GB10 as NVML tells of it: no memory, memory clock, power limit and PCIe link of its own."""

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return "NVIDIA GB10"

    def nvmlDeviceGetCudaComputeCapability(self, gpu: int) -> tuple[int, int]:
        return 12, 1

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        raise FakeNvmlError("Not Supported")

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, clock: int) -> int:
        if clock == self.NVML_CLOCK_MEM:
            raise FakeNvmlError("Not Supported")
        return 3003

    nvmlDeviceGetEnforcedPowerLimit = nvmlDeviceGetPowerManagementDefaultLimit = nvmlDeviceGetMemoryInfo
    nvmlDeviceGetMigMode = nvmlDeviceGetEccMode = nvmlDeviceGetMemoryInfo


def test_what_nvml_does_not_tell_of_a_gpu_that_shares_the_hosts_memory_is_a_reason_each(sources):
    shared = {UUIDS[0].removeprefix("GPU-"): {"integrated": True, "host_page_tables": True}}
    (gpu,) = probe(sources, nvml=Gb10Nvml, host_memory=lambda: shared)["gpus"]
    lacking = missing("NVML: Not Supported")
    assert {name for name, fact in gpu.items() if fact == lacking} == {
        *("memory_mib", "clock_memory_max_mhz", "power_limit_w", "power_limit_default_w", "mig", "ecc")
    }
    assert (gpu["compute_capability"], gpu["integrated"], gpu["host_page_tables"]) == ("12.1", True, True)
    facts = document("environment", {"gpus": [gpu]}).gpus[0]
    assert facts.reads_host_memory
    peaks = roofs.datasheet(msgspec.structs.replace(facts, sm_count=48))
    assert peaks and peaks.gpu == "GB10"


def test_every_fact_that_is_asked_of_cuda_is_an_attribute_that_it_has():
    driver = pytest.importorskip("cuda.bindings.driver")
    names = [*cuda_facts.HOST_MEMORY.values(), "MULTIPROCESSOR_COUNT"]
    assert all(hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}") for name in names)


def test_nvml_is_shut_down_also_when_a_source_fails(sources):
    nvml = sources["nvml"]()

    def broken() -> dict[str, int]:
        raise OSError("CUDA driver: CUDA_ERROR_NO_DEVICE")

    facts = probe(sources, sm_counts=broken, providers=broken)
    assert nvml.sessions == 0
    assert facts["gpus"][0]["sm_count"]["reason"] == "OSError: CUDA driver: CUDA_ERROR_NO_DEVICE"
    assert facts["onnxruntime_providers"]["value"] is None


def test_a_tool_that_does_not_run_or_tells_nothing_is_a_reason(sources):
    tools = probe(sources, runner=answers(ncu="no version here", git=""))["tools"]
    assert tools["nsys"] == missing("nsys does not run: FileNotFoundError")
    assert tools["ncu"] == missing("ncu --version tells no version")


@pytest.mark.parametrize(
    ("environ", "mark", "expected"),
    [
        ({}, None, {"inside": False, "image": missing("not in a container")}),
        ({}, ".dockerenv", {"inside": True, "image": missing("the image does not tell its name")}),
        ({"APPTAINER_CONTAINER": "/x.sif", "NVIDIA_PYTORCH_VERSION": "25.11"}, None, "NVIDIA PyTorch 25.11"),
    ],
)
def test_a_container_is_known_by_its_marks(sources, tmp_path, environ, mark, expected):
    if mark:
        (tmp_path / mark).touch()
    container = probe(sources, environ=environ)["container"]
    assert container == (expected if isinstance(expected, dict) else {"inside": True, "image": expected})


def test_the_share_of_the_processor_is_read_from_the_control_group(sources, tmp_path):
    assert probe(sources)["cpu"]["quota_cores"] == missing("no limit is set")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("250000 100000\n")
    assert probe(sources)["cpu"]["quota_cores"] == 2.5
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("max 100000\n")
    assert probe(sources)["cpu"]["quota_cores"] == missing("no limit is set")


def test_nothing_names_the_host_the_user_or_a_folder(sources):
    text = json.dumps(probe(sources, environ={"HOSTNAME": "secret-host", "USER": "secret-user"}))
    assert "secret" not in text and "/opt/" not in text and "GPU-0000" not in text


def test_a_reason_is_one_line_without_folders():
    error = "libcudart.so.13: cannot open\n '/srv/me/lib/libcudart.so.13': no such file"
    assert facts(missing(error)["reason"]) == ["libcudart.so.13", "cannot", "libcudart.so.13", "no"]
    assert missing("3/4 of it")["reason"] == "3/4 of it"


def test_the_real_sources_of_this_machine_answer():
    pytest.importorskip("onnxruntime")
    assert "CPUExecutionProvider" in environment.ort_providers()
    facts = environment.probe(Machine(gpu=None))
    assert facts["cpu"]["threads"] == os.cpu_count()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"no_counters": "no NVIDIA driver", "tools": {}},
        {"nvinfer": frozenset({8, 10}), "tools": {"trtexec": "/opt/trtexec"}},
        {"packages": {"torch": "2.11.0", "tensorrt": "10.13.3.9"}},
    ],
    ids=["plain", "no counters", "a tool that tells no version", "TensorRT"],
)
def test_a_machine_is_read_back_from_its_probe_without_serial_number_and_paths(sources, changes):
    machine = h100(label="box", threads=os.cpu_count(), **changes)
    stored = document("environment", probe(sources, machine, runner=answers(git="")))
    assert machine.gpu is not None
    gpu = dataclasses.replace(machine.gpu, memory=81559 << 20, uuid="")
    tools = {name: name for name in machine.tools}
    assert hardware.from_probe(stored, "box") == dataclasses.replace(machine, gpu=gpu, tools=tools, gpus=len(UUIDS))


def test_a_machine_without_a_gpu_is_read_back_from_its_probe(sources):
    def no_nvml() -> Any:
        raise FakeNvmlError("NVML Shared Library Not Found")

    machine = Machine(gpu=None, cpu="EPYC", no_counters="no NVIDIA driver", label="box", threads=os.cpu_count())
    assert hardware.from_probe(document("environment", probe(sources, machine, nvml=no_nvml)), "box") == machine


def test_a_gpu_instance_is_read_back_from_its_probe(sources):
    stored = probe(sources)
    whole = {**stored["gpus"][0], "used": False}
    name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    instance = {"name": name, "mig_instance": True, "used": True}
    gpu = hardware.from_probe(document("environment", {**stored, "gpus": [whole, instance]}), "box").gpu
    assert gpu == Gpu(name, (9, 0), None, "", "580.159.04", mig=True)
