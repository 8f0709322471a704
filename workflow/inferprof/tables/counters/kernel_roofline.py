"""Kernels that ncu counted against the GPU's roofs: operations of the tensor and CUDA cores, bytes of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from inferprof.tables.records import frame_of
from inferprof.tables.roofs import CUDA_CORES, Roofs

COLUMNS: Final = ("name", "launch", "ops", "bytes", "intensity", "duration_ns", "roof_ns", "distance", "limit")
TENSOR_OPS: Final = "tensor_ops_"
"""Metrics of a kernel: operations of the tensor cores by kind of number."""
PEAKS: Final = {"fp64": "fp64_tensor"}
"""Kind of tensor operation → kind of peak, where the two are not called the same."""
NEEDED: Final = ("duration_total", "dram_bytes_read", "dram_bytes_written")


def of_case(frame: pd.DataFrame, roofs: Roofs) -> pd.DataFrame:
    """One row per launch, in the order of the capture; `distance` is its duration over its time at the roof.

    frame: the tidy table of one case by ncu. `ops` are those of the tensor cores alone; those of the CUDA cores count
    for the time at the roof where they were counted, in fp32, and the peak is known. Launches are left out where
    their duration or bytes were not counted, or a roof that they need is not known.
    """
    counted = frame[(frame["level"] == "kernel") & frame["value"].notna()]
    rows = [
        {"name": name, "launch": launch, **row}
        for (name, launch), group in counted.groupby(["name", "launch"], sort=False, dropna=False)
        if (row := _of_launch(dict(zip(group["metric"], group["value"], strict=True)), roofs))
    ]
    return frame_of(rows, list(COLUMNS))


def _of_launch(metrics: Mapping[str, float], roofs: Roofs) -> dict[str, Any] | None:
    ops = {
        metric.removeprefix(TENSOR_OPS): value for metric, value in metrics.items() if metric.startswith(TENSOR_OPS)
    }
    used = {PEAKS.get(kind, kind): value for kind, value in ops.items() if value}
    if roofs.bandwidth is None or not set(NEEDED) <= set(metrics) or not set(used) <= set(roofs.flops):
        return None
    moved = metrics["dram_bytes_read"] + metrics["dram_bytes_written"]
    compute_s = sum(value / roofs.flops[kind].value for kind, value in used.items())
    if CUDA_CORES in roofs.flops:
        compute_s = max(compute_s, metrics.get(f"flop_{CUDA_CORES}", 0.0) / roofs.flops[CUDA_CORES].value)
    memory_s = moved / roofs.bandwidth.value
    roof_ns = max(compute_s, memory_s) * 1e9
    return {
        "ops": sum(used.values()),
        "bytes": moved,
        "intensity": sum(used.values()) / moved if moved else None,
        "duration_ns": metrics["duration_total"],
        "roof_ns": roof_ns,
        "distance": metrics["duration_total"] / roof_ns if roof_ns else None,
        "limit": "compute" if compute_s >= memory_s else "memory",
    }
