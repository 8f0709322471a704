from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inferprof.machine import hardware
from inferprof.machine.hardware import Gpu, Machine

H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 85_520_809_984, "GPU-1", "580.159.04")


class FakeNvmlError(Exception):
    pass


class FakeNvml:
    """Two GPUs and one MIG instance."""

    NVMLError = FakeNvmlError
    UUIDS = ("GPU-aaaa-1", "GPU-bbbb-2")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index >= len(self.UUIDS):
            raise FakeNvmlError("Invalid Argument")
        return self.UUIDS[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        if handle == self.UUIDS[1]:
            raise FakeNvmlError("Not Supported")
        return SimpleNamespace(total=1 << 30)

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H100"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580"


def proc(folder: Path, monkeypatch: pytest.MonkeyPatch, params: str | None, effective: int = 0) -> None:
    """Put /proc and its NVIDIA parameters below a folder."""
    (folder / "proc/driver/nvidia").mkdir(parents=True)
    (folder / "proc/self").mkdir()
    (folder / "proc/self/status").write_text(f"Name:\tpython\nCapEff:\t{effective:016x}\n")
    if params is not None:
        (folder / "proc/driver/nvidia/params").write_text(params)
    monkeypatch.setattr(hardware, "Path", lambda path: folder / str(path).lstrip("/"))


# --- the slug ---


def test_the_slug_names_gpu_and_compute_capability_and_hashes_versions():
    slug = Machine(H100, {"torch": "2.11.0"}).slug
    assert slug.startswith("h100-80gb-hbm3-sm90-")
    assert len(slug.rpartition("-")[2]) == 8


def test_the_slug_changes_with_what_decides_a_measurement_and_with_nothing_else():
    base = Machine(H100, {"torch": "2.11.0"})
    assert base.slug == Machine(H100, {"torch": "2.11.0", "snakemake": "9.27"}, tools={"nsys": "/x"}).slug
    assert base.slug != Machine(H100, {"torch": "2.12.0"}).slug
    newer = Gpu(H100.name, H100.compute_capability, H100.memory, H100.uuid, "590.1")
    assert base.slug != Machine(newer, {"torch": "2.11.0"}).slug


def test_a_mig_instance_and_a_machine_without_gpu_have_slugs_of_their_own():
    mig = Gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb", (9, 0), None, "MIG-1", "580", mig=True)
    assert Machine(mig).slug.startswith("h100-80gb-hbm3-mig-1g-10gb-mig-sm90-")
    assert Machine(None, cpu="AMD EPYC 9B14 96-Core Processor").slug.startswith("cpu-epyc-9b14-")
    assert Machine(None, cpu="Intel(R) Xeon(R) CPU @ 2.20GHz").slug.startswith("cpu-xeon-")


def test_a_label_replaces_the_slug():
    assert Machine(H100, label="dgx-7").slug == "dgx-7"


@pytest.mark.parametrize(
    ("text", "version"),
    [("10.13.3.9", (10, 13, 3, 9)), ("2.13.0+cpu", (2, 13, 0)), ("1.31.1rc1", (1, 31, 1)), ("", ()), ("dev", ())],
)
def test_versions_are_compared_as_integers(text, version):
    assert hardware.parse_version(text) == version


def test_a_machine_knows_the_version_of_a_package():
    machine = Machine(H100, {"tensorrt": "10.13.3.9"})
    assert machine.version("tensorrt") >= (10, 8)
    assert machine.version("tensorrt-rtx") == ()


# --- which GPU ---


@pytest.mark.parametrize(
    ("visible", "handle"),
    [
        (None, "GPU-aaaa-1"),
        ("1", "GPU-bbbb-2"),
        ("1,0", "GPU-bbbb-2"),
        ("GPU-bbbb-2", "GPU-bbbb-2"),
        ("GPU-bb", "GPU-bbbb-2"),
        ("MIG-cccc", "MIG-cccc"),
        ("", None),
        ("-1", None),
        ("7", None),
        ("GPU-none", None),
    ],
)
def test_the_gpu_is_the_one_that_cuda_will_call_device_0(monkeypatch, visible, handle):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert hardware.visible_handle(FakeNvml()) == handle


def test_a_gpu_that_does_not_tell_its_memory_is_a_gpu_all_the_same():
    assert hardware._read_gpu(FakeNvml(), "GPU-aaaa-1").memory == 1 << 30
    unified = hardware._read_gpu(FakeNvml(), "GPU-bbbb-2")
    assert unified.memory is None and unified.sm == "sm90" and not unified.mig


# --- counters ---


def test_counters_need_a_driver(tmp_path, monkeypatch):
    proc(tmp_path, monkeypatch, None)
    assert hardware.counters_refusal() == "no NVIDIA driver"


def test_counters_are_free_where_the_driver_does_not_restrict_them(tmp_path, monkeypatch):
    proc(tmp_path, monkeypatch, "RmProfilingAdminOnly: 0\n")
    assert hardware.counters_refusal() is None


@pytest.mark.parametrize("capability", [hardware.CAP_SYS_ADMIN, hardware.CAP_PERFMON])
def test_either_capability_opens_restricted_counters(tmp_path, monkeypatch, capability):
    proc(tmp_path, monkeypatch, "RmProfilingAdminOnly: 1\n", 1 << capability)
    assert hardware.counters_refusal() is None


def test_restricted_counters_are_refused_with_what_to_do(tmp_path, monkeypatch):
    proc(tmp_path, monkeypatch, "RmProfilingAdminOnly: 1\n", 1 << 10)
    refusal = hardware.counters_refusal()
    assert refusal is not None and "ERR_NVGPUCTRPERM" in refusal and "--cap-add=SYS_ADMIN" in refusal


def test_a_library_is_found_on_the_library_path(tmp_path, monkeypatch):
    (tmp_path / "libnvinfer.so.10").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    assert hardware._loadable("libnvinfer.so.10")
    assert not hardware._loadable("libnvinfer.so.99")


def test_this_machine_is_detected_with_the_packages_that_it_has():
    import numpy as np

    machine = hardware.detect(label="here")
    assert machine.slug == "here"
    assert machine.packages["numpy"] == np.__version__
