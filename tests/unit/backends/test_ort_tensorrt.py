from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import naming

from inferprof.backends import ort_session, ort_tensorrt
from inferprof.backends.ort import CPU
from inferprof.backends.profile import Profile
from inferprof.case import Variant
from inferprof.errors import CaseFailed
from inferprof.plugins import OpenRequest

PROFILE: Profile = {
    "ids": {"min": (1, 8), "opt": (4, 8), "max": (8, 8)},
    "mask": {"min": (1, 8), "opt": (4, 8), "max": (8, 8)},
}


class Stream:
    """As much of a Device as the provider's options need."""

    where = "cuda"
    stream = 77


def options(monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], variant: Variant, device: Any) -> Any:
    monkeypatch.setattr(ort_tensorrt, "version", lambda: version)
    return ort_tensorrt.providers(Path("cache"), PROFILE, variant, device)


def test_the_provider_gets_stream_profile_and_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = Variant("v", {"cuda_graph": True, "workspace": 2, "optimization_level": 5})
    (name, given), cuda, cpu = options(monkeypatch, (1, 31, 1), variant, Stream())
    assert (name, cuda[0], cpu[0]) == ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
    assert given == {
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": "cache",
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": "cache",
        "trt_cuda_graph_enable": "True",
        "trt_sparsity_enable": "False",
        "trt_engine_hw_compatible": "False",
        "trt_profile_min_shapes": "ids:1x8,mask:1x8",
        "trt_profile_opt_shapes": "ids:4x8,mask:4x8",
        "trt_profile_max_shapes": "ids:8x8,mask:8x8",
        "trt_max_workspace_size": str(2 << 20),
        "trt_builder_optimization_level": "5",
        "user_compute_stream": "77",
    }


def test_an_old_onnx_runtime_gets_only_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    (name, given), cpu = options(monkeypatch, (1, 14, 1), Variant(), Stream())
    assert set(given) == {"trt_engine_cache_enable", "trt_engine_cache_path", "trt_min_subgraph_size"}
    assert (name, cpu[0]) == ("TensorrtExecutionProvider", "CPUExecutionProvider")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "staged"
    (folder / "cache").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"model")
    (folder / "cache" / "a.engine").write_bytes(b"engine")
    ort_tensorrt.pack(folder, tmp_path / "b1.engine")
    return tmp_path / "b1.engine"


def test_an_archive_gives_back_the_model_under_its_name_and_the_cache(archive: Path, tmp_path: Path) -> None:
    model = ort_tensorrt.unpack(archive, tmp_path / "out")
    assert model == tmp_path / "out" / "model.onnx"
    assert model.read_bytes() == b"model"
    assert (tmp_path / "out" / "cache" / "a.engine").read_bytes() == b"engine"


def test_a_truncated_archive_is_a_failed_case(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(CaseFailed, match=naming("b1.engine", "not")):
        ort_tensorrt.unpack(archive, tmp_path / "out")


def test_an_archive_of_something_else_is_a_failed_case(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b1.engine", "w") as file:
        file.writestr("readme", "hello")
    with pytest.raises(CaseFailed, match=naming("b1.engine", "0", "ONNX", "one")):
        ort_tensorrt.unpack(tmp_path / "b1.engine", tmp_path / "out")


def test_external_data_travel_with_the_model(matmul: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(matmul)
    folder = tmp_path / "there"
    folder.mkdir()
    onnx.save(model, folder / "big.onnx", save_as_external_data=True, location="big.data", size_threshold=0)
    (tmp_path / "staged").mkdir()
    staged = ort_tensorrt._staged(folder / "big.onnx", tmp_path / "staged")
    assert {path.name for path in staged.parent.iterdir()} == {"big.onnx", "big.data"}


@pytest.mark.parametrize("moment", ["while loading", "in a run"])
def test_an_engine_that_is_built_anew_fails_the_case(
    moment: str,
    matmul: Path,
    tmp_path: Path,
    opening: Callable[..., OpenRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The provider is played by the CPU's, with the side effect that TensorRT's has where its cache does not fit."""
    staged = tmp_path / "staged"
    (staged / "cache").mkdir(parents=True)
    (staged / "cache" / "sm80.engine").write_bytes(b"old")
    (staged / "small.onnx").write_bytes(matmul.read_bytes())
    ort_tensorrt.pack(staged, tmp_path / "b2.engine")
    folders: list[Path] = []

    def create(model: Path, options: Any, providers: Any) -> Any:
        folders.append(model.parent)
        if moment == "while loading":
            (model.parent / "cache" / "sm90.engine").write_bytes(b"new")
        return ort_session.create(model, options, [CPU])

    monkeypatch.setattr(ort_tensorrt, "create", create)
    monkeypatch.setattr(ort_tensorrt, "_load_libraries", lambda variant: None)
    request = opening(matmul)
    archived = replace(request, artifact=tmp_path / "b2.engine")
    failing = pytest.raises(CaseFailed, match=naming("ONNX", "Runtime", "sm90.engine"))
    with failing, ort_tensorrt.open_tensorrt(archived):
        assert moment == "in a run"
        (folders[0] / "cache" / "sm90.engine").write_bytes(b"new")
