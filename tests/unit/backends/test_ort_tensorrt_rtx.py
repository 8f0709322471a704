"""The plug-in of TensorRT-RTX: how it is registered, and what it is told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.unit.facts import naming

from inferprof.backends import ort_tensorrt_rtx
from inferprof.backends.profile import Profile
from inferprof.case import Variant
from inferprof.errors import CaseFailed

NAME = "NvTensorRTRTXExecutionProvider"
PROFILE: Profile = {
    "ids": {"min": (1, 8), "opt": (4, 8), "max": (8, 8)},
    "mask": {"min": (1, 8), "opt": (4, 8), "max": (8, 8)},
}


class Registry:
    """As much of ONNX Runtime as registering takes: `offers` are the devices that a library brings."""

    def __init__(self, *offers: str) -> None:
        self.offers = offers
        self.devices = [SimpleNamespace(ep_name="CPUExecutionProvider")]
        self.registered: list[tuple[str, str]] = []

    def get_ep_devices(self) -> list[Any]:
        return self.devices

    def register_execution_provider_library(self, name: str, library: str) -> None:
        self.registered.append((name, library))
        self.devices = [*self.devices, *(SimpleNamespace(ep_name=offer) for offer in self.offers)]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package like the plug-in's, without its contents."""
    plugin: Any = ModuleType(ort_tensorrt_rtx.PLUGIN)
    path = tmp_path / "libonnxruntime_providers_nv_tensorrt_rtx.so"
    plugin.get_ep_name, plugin.get_library_path = (lambda: NAME), (lambda: str(path))
    monkeypatch.setitem(sys.modules, ort_tensorrt_rtx.PLUGIN, plugin)
    monkeypatch.setattr(ort_tensorrt_rtx, "preload_cuda", lambda: None)
    return path


def use(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    for name in ("get_ep_devices", "register_execution_provider_library"):
        monkeypatch.setattr(onnxruntime, name, getattr(registry, name))


def test_the_library_is_registered_once_by_the_name_of_its_provider(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(NAME, NAME)
    use(registry, monkeypatch)
    for _ in range(2):
        name, devices = ort_tensorrt_rtx._registered()
        assert (name, [device.ep_name for device in devices]) == (NAME, [NAME])
    assert registry.registered == [(NAME, str(library))]


@pytest.mark.usefixtures("library")
def test_a_plug_in_that_finds_no_gpu_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    use(Registry(), monkeypatch)
    with pytest.raises(CaseFailed, match=naming(str(NAME), "no", "GPU", "one")):
        ort_tensorrt_rtx._registered()


@pytest.mark.parametrize(("found", "loaded"), [(True, []), (False, ["libcudart.so.13.4.36"])])
def test_the_packages_cuda_runtime_is_loaded_where_there_is_no_other(
    tmp_path: Path, found: bool, loaded: list[str]
) -> None:
    (tmp_path / "libcudart.so.13.4.36").touch()
    asked: list[str] = []

    def load(name: str) -> None:
        asked.append(name)
        if name == "libcudart.so.13" and not found:
            raise OSError(name)

    ort_tensorrt_rtx._load_cuda_runtime(tmp_path, load)
    assert asked == ["libcudart.so.13", *(str(tmp_path / name) for name in loaded)]


def test_the_plug_in_gets_profile_workspace_graph_and_stream() -> None:
    variant = Variant("v", {"cuda_graph": True, "workspace": 2})
    stream: Any = SimpleNamespace(stream=77)
    assert ort_tensorrt_rtx.of_provider(PROFILE, variant, stream) == {
        "enable_cuda_graph": "1",
        "nv_profile_min_shapes": "ids:1x8,mask:1x8",
        "nv_profile_opt_shapes": "ids:4x8,mask:4x8",
        "nv_profile_max_shapes": "ids:8x8,mask:8x8",
        "nv_max_workspace_size": str(2 << 20),
        "has_user_compute_stream": "1",
        "user_compute_stream": "77",
    }


def test_a_build_has_no_stream() -> None:
    assert not any("stream" in name for name in ort_tensorrt_rtx.of_provider(PROFILE, Variant(), None))
