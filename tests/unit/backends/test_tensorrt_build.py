"""Real ahead-of-time builds with TensorRT-RTX, which need no GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import naming

from inferprof.backends import tensorrt_build
from inferprof.case import Shape, Variant
from inferprof.errors import CaseFailed, UserError
from inferprof.model import model_spec
from inferprof.plugins import BuildRequest

if importlib.util.find_spec("tensorrt_rtx") is None:
    pytest.skip("TensorRT-RTX is not installed", allow_module_level=True)

BLACKWELL = (12, 0)


def build(model: Path, out: Path, target: tuple[int, int] = BLACKWELL, **options: Any) -> dict[str, Any]:
    request = BuildRequest(
        model, model_spec.load(model), Shape.parse("b2"), Variant("v", options), out, target=target
    )
    return tensorrt_build.build(request, "tensorrt_rtx")


def test_an_engine_for_blackwell_is_built_without_a_gpu(matmul: Path, tmp_path: Path) -> None:
    out = tmp_path / "engines" / "b2.engine"
    facts = build(matmul, out, profile=["b1", "b8"], workspace=64)
    assert facts["bytes"] == out.stat().st_size > 1000
    assert facts["target"] == "12.0"
    assert facts["strongly_typed"] is True
    assert facts["options"] == {"profile": ["b1", "b8"], "workspace": 64}
    assert facts["profile"] == {"x": {"min": (1, 4), "opt": (2, 4), "max": (8, 4)}}
    assert set(facts["versions"]) == {"tensorrt_rtx", "polygraphy"}
    assert 0 < facts["seconds"] < 60
    assert facts["host_rss_bytes"] > 1 << 20
    assert [tensor["dims"] for layer in facts["layers"] for tensor in layer["outputs"]][-1][0] == -1  # any batch


def test_the_options_of_a_variant_reach_the_builder() -> None:
    trt = tensorrt_build.polygraphy_with("tensorrt_rtx")

    def arguments(**options: Any) -> dict[str, Any]:
        return tensorrt_build._options(Variant("v", options), "tensorrt", trt)

    off = {"tf32": False, "sparse_weights": False, "refittable": False, "version_compatible": False}
    assert arguments() == off
    assert arguments(tf32=True, sparsity=True, refit=True, version_compatible=True) == dict.fromkeys(off, True)
    assert arguments(workspace=64, optimization_level=4, hardware_compatible=True) == {
        **off,
        "memory_pool_limits": {trt.MemoryPoolType.WORKSPACE: 64 << 20},
        "builder_optimization_level": 4,
        "hardware_compatibility_level": trt.HardwareCompatibilityLevel.AMPERE_PLUS,
    }
    assert tensorrt_build._options(Variant(), "tensorrt_rtx", trt) == {"tf32": False, "refittable": False}


def test_tensorrt_itself_builds_for_no_other_gpu(matmul: Path, tmp_path: Path) -> None:
    spec, out = model_spec.load(matmul), tmp_path / "b2.engine"
    request = BuildRequest(matmul, spec, Shape.parse("b2"), Variant(), out, target=BLACKWELL)
    with pytest.raises(UserError, match=naming("tensorrt", "GPU", "only")):
        tensorrt_build.build(request, "tensorrt")


def test_an_operator_that_the_parser_lacks_is_named_with_its_node(
    small_model: Callable[..., Path], tmp_path: Path
) -> None:
    model = small_model([("Det", ["x"], ["y"], {})], [("y", "FLOAT", [])])
    with pytest.raises(CaseFailed, match=r"node_y \(Det\): UNSUPPORTED_\w+ in \w*Det"):
        build(model, tmp_path / "b2.engine")
    assert not (tmp_path / "b2.engine").exists()


def test_a_gpu_that_rtx_does_not_build_for_is_refused_in_one_line(matmul: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("target", "9.0", "not", "one", "TensorRT-RTX", "SM75", "SM120")):
        build(matmul, tmp_path / "b2.engine", target=(9, 0))


def test_one_process_builds_with_one_flavour(matmul: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polygraphy import config

    monkeypatch.setattr(config, "USE_TENSORRT_RTX", False)
    with pytest.raises(UserError, match=naming("TensorRT", "tensorrt_rtx")):
        tensorrt_build.polygraphy_with("tensorrt_rtx")
