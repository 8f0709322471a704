"""What TensorRT's builders understand: a constant per option of a variant. What a variant leaves out stays TensorRT's
default, except TF32, which is off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from inferprof.backends import options
from inferprof.case import Variant
from inferprof.plugins import BuilderOption
from inferprof.units import MIB

BOTH: Final = frozenset({"tensorrt", "tensorrt_rtx"})
TENSORRT: Final = frozenset({"tensorrt"})


def _flag(name: str, argument: str) -> Callable[[Variant, Any], Mapping[str, Any]]:
    return lambda variant, trt: {argument: variant.flag(name)}


def _workspace(variant: Variant, trt: Any) -> Mapping[str, Any]:
    if WORKSPACE.name not in variant.options:
        return {}
    return {"memory_pool_limits": {trt.MemoryPoolType.WORKSPACE: variant.whole(WORKSPACE.name) * MIB}}


def _level(variant: Variant, trt: Any) -> Mapping[str, Any]:
    if LEVEL.name not in variant.options:
        return {}
    return {"builder_optimization_level": variant.whole(LEVEL.name)}


def _hardware(variant: Variant, trt: Any) -> Mapping[str, Any]:
    if not variant.flag(HARDWARE.name):
        return {}
    return {"hardware_compatibility_level": trt.HardwareCompatibilityLevel.AMPERE_PLUS}


TF32: Final = BuilderOption("tf32", options.TF32["tf32"], BOTH, _flag("tf32", "tf32"))
REFIT: Final = BuilderOption("refit", options.BUILD["refit"], BOTH, _flag("refit", "refittable"))
SPARSITY: Final = BuilderOption("sparsity", options.BUILD["sparsity"], TENSORRT, _flag("sparsity", "sparse_weights"))
VERSION: Final = BuilderOption(
    "version_compatible",
    options.BUILD["version_compatible"],
    TENSORRT,
    _flag("version_compatible", "version_compatible"),
)
WORKSPACE: Final = BuilderOption("workspace", options.BUILD["workspace"], BOTH, _workspace)
LEVEL: Final = BuilderOption("optimization_level", options.BUILD["optimization_level"], TENSORRT, _level)
HARDWARE: Final = BuilderOption("hardware_compatible", options.BUILD["hardware_compatible"], TENSORRT, _hardware)
