"""Matrix products in fp32 on a GPU whose tensor cores have TF32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import mentions

from inferprof.explain import answer, explain

SGEMM, IN_TF32 = "ampere_sgemm_128x64_tn", "sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n_tilesize128x64x16_stage4_execute"


def trace(folder: Path, kernel: str, major: int) -> Path:
    """Three iterations of torch in which a product of one kernel takes nearly all of the time."""
    events: list[dict[str, Any]] = []
    for number in range(3):
        start = 1000 * number
        at = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**at, "cat": "user_annotation", "name": "iteration", "ts": start, "dur": 900})
        tie = {"correlation": number + 1}
        events.append(
            {**at, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 5, "dur": 5, "args": tie}
        )
        on_gpu = {"device": 0, "stream": 7, **tie}
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": kernel,
                "pid": 0,
                "tid": 7,
                "ts": start + 12,
                "dur": 850,
                "args": on_gpu,
            }
        )
    gpu = {"id": 0, "name": "NVIDIA A100-SXM4-40GB" if major >= 8 else "Tesla V100", "computeMajor": major}
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": events}))
    return path


def test_tf32_is_named_with_how_to_switch_it_on(tmp_path: Path) -> None:
    (case,) = explain([trace(tmp_path, SGEMM, 8)])
    text = answer.render(case)
    assert mentions(
        text, "matrix products in fp32", "100.0 %", "set_float32_matmul_precision", "use_tf32", "TensorRT"
    )


@pytest.mark.parametrize(("kernel", "major"), [(IN_TF32, 8), (SGEMM, 7)], ids=["in TF32", "no TF32 in the GPU"])
def test_it_is_not_where_it_runs_or_cannot(tmp_path: Path, kernel: str, major: int) -> None:
    (case,) = explain([trace(tmp_path, kernel, major)])
    assert "TF32" not in answer.render(case)
    assert "iteration" in answer.render(case)
