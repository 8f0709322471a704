"""What each GPU whose datasheet is on file would need for a graph at least: a lower bound, and no prediction.

Of the graph as one kernel (limits.roofline): its matrix products at the fastest rate that the datasheet has for their
type, its other FLOPs beside them, and its weights, inputs and outputs, each once, at the memory's bandwidth. Where
these fit in the L2, or it is not on file and they fit in the largest on file, they may lie there from the inference
before, and no time counts for them. Launches, copies and all that a library loses come on top.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from inferprof.documents import Cost
from inferprof.machine.peaks import Peaks
from inferprof.tables import roofs
from inferprof.tables.limits.roofline import Limit
from inferprof.tables.roofs import CUDA_CORES, Roofs

NO_SIZE: Final = "the sizes of the graph are not known"
PARTS: Final = 3
"""What is moved: inputs, outputs and weights. Without the outputs, whose size often only a run tells, it is still a
lower bound, where all products are counted."""
FASTER: Final = "_accumulate_fp16"
"""How the columns end of rates that may be higher than the kind's own, of GeForce."""
L2_IS_FREE: Final = (
    "Weights, inputs and outputs that fit in a GPU's L2 count as free: they may lie there from the inference before."
)
WITHOUT_TF32: Final = (
    "fp32 is without TF32, which TensorRT, ONNX Runtime and cuDNN use unless told otherwise: "
    "with it products can be faster."
)


@dataclass(frozen=True)
class Floor:
    """The least time of a graph on a GPU; `ns` is None where `not_known` says why, and `limit` where it is 0."""

    gpu: Peaks
    ns: float | None
    limit: Limit | None = None
    not_known: str = ""


def needed_bytes(cost: Cost) -> int | None:
    """The memory that a graph needs at least: its weights, and what its largest node reads and writes."""
    nodes = [(node.read or 0) + (node.written or 0) for node in cost.nodes or ()]
    return None if cost.in_weights is None else cost.in_weights + max(nodes, default=0)


def floors(cost: Cost, gpus: Iterable[Peaks]) -> list[Floor]:
    """The floor on each GPU, in their order."""
    every = list(gpus)
    largest = max((gpu.l2_bytes or 0 for gpu in every), default=0)
    return [_floor(cost, gpu, largest) for gpu in every]


def _floor(cost: Cost, gpu: Peaks, largest_l2: int) -> Floor:
    limits = _limits(gpu)
    nodes = [node for node in cost.nodes or () if node.flops]
    if uncounted := _uncounted(cost):
        return Floor(gpu, None, not_known=f"the FLOPs of its operators are not known ({', '.join(uncounted)})")
    sizes = [part for part in (cost.inputs, cost.outputs, cost.weights) if isinstance(part, int)]
    if len(sizes) < PARTS and any(node.product and node.flops is None for node in cost.nodes or ()):
        return Floor(gpu, None, not_known=NO_SIZE)
    moved = sum(sizes)
    if unknown := sorted({limits.kind(node) for node in nodes} - set(limits.flops)):
        return Floor(gpu, None, not_known=f"its datasheet has no rate of {', '.join(unknown)}")
    products = sum(limits.compute_s(node) or 0.0 for node in nodes if node.product)
    others = sum(node.flops or 0 for node in nodes if not node.product)
    computing = max(products, others / limits.flops[CUDA_CORES].value if others else 0.0)
    in_l2 = moved <= (largest_l2 if gpu.l2_bytes is None else gpu.l2_bytes)
    moving = 0.0 if in_l2 or gpu.bandwidth is None else moved / gpu.bandwidth
    if not computing and not moving:
        return Floor(gpu, 0.0)
    return Floor(gpu, max(computing, moving) * 1e9, "compute" if computing >= moving else "memory")


def _uncounted(cost: Cost) -> list[str]:
    """The operators of a graph of which none has known FLOPs, as of trees; empty where some has."""
    nodes = [node for node in cost.nodes or () if node.flops != 0]
    counted = any(node.product or node.flops is not None for node in nodes)
    return [] if counted else sorted({node.op for node in nodes})


def _limits(gpu: Peaks) -> Roofs:
    """The roofs by the datasheet, each kind at its fastest rate."""
    faster = {kind: max(rate, gpu.flops.get(f"{kind}{FASTER}", rate)) for kind, rate in gpu.flops.items()}
    return roofs.roofs(replace(gpu, flops=faster), None, None)
