"""The limits of a GPU that a roofline has: measured where they were, else its datasheet's, else unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from inferprof.documents import Bandwidth, Ceilings, Environment
from inferprof.documents.graph import Node
from inferprof.documents.machine import GpuFacts
from inferprof.machine import peaks
from inferprof.machine.peaks import Peaks
from inferprof.units import GIGA, MIB

Source = Literal["measured", "datasheet"]
KINDS: Final[Mapping[str, str]] = {
    "float64": "fp64_tensor",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8e4m3fn": "fp8",
    "float8e5m2": "fp8",
    "float4e2m1": "fp4",
    "int8": "int8",
    "uint8": "int8",
    "int4": "int4",
    "uint4": "int4",
}
"""Type that a product computes in → column of peaks.csv and kind of ceilings.json."""
CUDA_CORES: Final = "fp32"
"""What everything but products is computed on."""
NO_GPU: Final = GpuFacts(name="")
"""One of which nothing is known."""


@dataclass(frozen=True)
class Roof:
    """Operations or bytes per second, and whether that was measured."""

    value: float
    source: Source


@dataclass(frozen=True)
class Roofs:
    """What is known of a GPU's limits, for a variant that may compute fp32 in TF32 or use 2:4 sparse weights."""

    flops: Mapping[str, Roof]
    """Kind → dense operations per second; a kind that is neither measured nor on file is not in it."""
    bandwidth: Roof | None
    l2_bytes: int | None = None
    sparsity: float = 1.0
    """How many times the dense rate 2:4 sparse weights allow."""
    tf32: bool = False
    sparse: bool = False

    def of_variant(self, options: Mapping[str, Any]) -> Roofs:
        """The same for a variant with these options."""
        return replace(self, tf32=bool(options.get("tf32")), sparse=bool(options.get("sparsity")))

    def kind(self, node: Node) -> str:
        """What a node is held against: a product's type, else the CUDA cores."""
        if not node.product:
            return CUDA_CORES
        kind = KINDS.get(node.dtype, node.dtype)
        if kind == "fp32" and self.tf32 and "tf32" in self.flops:
            return "tf32"
        return "fp64" if kind == "fp64_tensor" and kind not in self.flops else kind

    def compute_s(self, node: Node) -> float | None:
        """The least seconds that a node's FLOPs take; None where they, or the peak, are not known."""
        peak = self.flops.get(self.kind(node))
        if node.flops is None or peak is None:
            return None
        faster = self.sparsity if self.sparse and node.sparse else 1.0
        return float(node.flops / peak.value / faster)


def roofs(gpu_peaks: Peaks | None, ceilings: Ceilings | None, bandwidth: Bandwidth | None) -> Roofs:
    """The roofs of a GPU by its datasheet, its ceilings.json and its bandwidth.json; None is "not there"."""
    flops = {kind: Roof(value, "datasheet") for kind, value in (gpu_peaks.flops if gpu_peaks else {}).items()}
    for kind, entry in ((ceilings and ceilings.gemm) or {}).items():
        if entry.flops_per_s is not None:
            flops[kind] = Roof(entry.flops_per_s, "measured")
    memory = ((ceilings and ceilings.memory) or {}).values()
    moved = [entry.bytes_per_s for entry in memory if entry.bytes_per_s is not None]
    if bandwidth is not None and bandwidth.d2d is not None:
        moved.append(bandwidth.d2d.gb_per_s * GIGA)
    promised = Roof(gpu_peaks.bandwidth, "datasheet") if gpu_peaks and gpu_peaks.bandwidth else None
    l2_bytes = ceilings.l2_bytes if ceilings else None
    return Roofs(
        flops,
        Roof(max(moved), "measured") if moved else promised,
        gpu_peaks.l2_bytes if gpu_peaks and l2_bytes is None else l2_bytes,
        gpu_peaks.sparsity if gpu_peaks else 1.0,
    )


def of_machine(environment: Environment | None, ceilings: Ceilings | None, bandwidth: Bandwidth | None) -> Roofs:
    """The roofs of the GPU of an environment.json."""
    gpu = gpu_in_use(environment)
    return roofs(datasheet(gpu) if gpu else None, ceilings, bandwidth)


def gpu_in_use(environment: Environment | None) -> GpuFacts | None:
    """The GPU of an environment.json that its machine's cases ran on; None where there is none."""
    gpus = environment.gpus if environment else None
    return next((gpu for gpu in gpus if gpu.used), None) if isinstance(gpus, list) else None


def datasheet(gpu: GpuFacts) -> Peaks | None:
    """The peaks of a GPU of environment.json; None where its datasheet is not on file."""
    return peaks.of(
        gpu.name,
        gpu.memory_mib * MIB if isinstance(gpu.memory_mib, int) else None,
        gpu.sm_count if isinstance(gpu.sm_count, int) else None,
        mig=bool(gpu.mig_instance),
    )
