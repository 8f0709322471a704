"""Launch configurations of a Kineto trace: the same kernels, grids and blocks as nsys saw of the same runtime."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from inferprof.readers.kineto_json import read_timeline
from inferprof.readers.launch_configs import rows


def wide(path: Path) -> pd.DataFrame:
    """One row per configuration."""
    frame = rows(read_timeline(path), "kineto")
    content = frame["value"].astype(object).where(frame["value"].notna(), frame["text"])
    keys = ["launch", "name", "device", "instances"]
    return frame.assign(content=content).pivot(index=keys, columns="metric", values="content").reset_index()


def trace(path: Path, *kernels: dict[str, object]) -> Path:
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", **kernel} for kernel in kernels]}))
    return path


def test_launches_of_one_kernel_grid_and_block_are_summed(tmp_path: Path) -> None:
    sizes = {"grid": [4, 2, 1], "block": [128, 1, 1], "device": 0}
    path = trace(
        tmp_path / "trace.json",
        {"name": "gemm", "ts": 10, "dur": 2.5, "args": sizes},
        {"name": "gemm", "ts": 20, "dur": 3, "args": sizes},
        {"name": "gemm", "ts": 30, "dur": 1, "args": {**sizes, "grid": [8, 2, 1]}},
        {"name": "of_amd", "ts": 40, "dur": 1, "args": {"device": 0}},
    )
    shown = ["name", "device", "grid", "block", "instances", "duration_total", "duration_min", "duration_max"]
    assert wide(path)[shown].to_numpy().tolist() == [
        ["gemm", 0, "4,2,1", "128,1,1", 2, 5500, 2500, 3000],
        ["gemm", 0, "8,2,1", "128,1,1", 1, 1000, 1000, 1000],
    ]


def test_a_real_trace(repository: Path) -> None:
    """Three iterations of ViT-B/16 in ONNX Runtime: 24 of these products in each."""
    first = wide(repository / "tests/data/kineto/h100_ort_cuda_vit.json.gz").iloc[0]
    assert first["name"] == "nvjet_sm90_hsh_128x72_64x8_1x2_h_bz_NNT"
    assert (first["grid"], first["block"]) == ("2,66,1", "384,1,1")
    assert (first["instances"], first["duration_total"]) == (72, 785476)
